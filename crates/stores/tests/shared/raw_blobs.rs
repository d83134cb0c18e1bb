//! Test helper: reads and writes blobs without the store, as another SDK or a person would. It signs
//! requests itself.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use ephor_testkit::azurite_server::{ACCOUNT, KEY};
use hmac::{Hmac, Mac};
use reqwest::{Client, Method, Response};
use sha2::Sha256;

pub(crate) struct Raw {
    client: Client,
    port: u16,
    container: String,
}

impl Raw {
    /// The container of a place, a connection string of ours with its name at the end.
    pub(crate) fn new(port: u16, place: &str) -> Self {
        let (_, container) = place.rsplit_once("Container=").unwrap();
        // Its client takes the provider of TLS that is installed, if it needs it or not.
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
        Self { client: Client::new(), port, container: container.to_owned() }
    }

    async fn send(
        &self,
        method: Method,
        name: &str,
        query: &str,
        headers: &[(&str, &str)],
        body: &str,
    ) -> Response {
        let path = if name.is_empty() { String::new() } else { format!("/{name}") };
        let path = format!("/{ACCOUNT}/{}{path}", self.container);
        let mut signed: BTreeMap<String, String> =
            headers.iter().map(|(name, value)| (name.to_lowercase(), (*value).to_owned())).collect();
        signed.insert("x-ms-version".into(), "2019-07-07".into());
        signed.insert("x-ms-date".into(), "Sun, 15 Nov 2026 00:00:00 GMT".into());
        let get = |name: &str| signed.get(name).cloned().unwrap_or_default();
        let length = if body.is_empty() { String::new() } else { body.len().to_string() };
        let ms: String = signed
            .iter()
            .filter(|(name, _)| name.starts_with("x-ms-"))
            .map(|(name, value)| format!("{name}:{value}\n"))
            .collect();
        let mut pairs: Vec<String> =
            query.split('&').filter(|pair| !pair.is_empty()).map(|pair| pair.replacen('=', ":", 1)).collect();
        pairs.sort();
        let resource: String = pairs.iter().map(|pair| format!("\n{pair}")).collect();
        let text = format!(
            "{method}\n\n\n{length}\n\n\n\n\n{}\n{}\n\n\n{ms}/{ACCOUNT}{path}{resource}",
            get("if-match"),
            get("if-none-match"),
        );
        let mut mac = Hmac::<Sha256>::new_from_slice(&STANDARD.decode(KEY).unwrap()).unwrap();
        mac.update(text.as_bytes());
        let signature = STANDARD.encode(mac.finalize().into_bytes());
        let query = if query.is_empty() { String::new() } else { format!("?{query}") };
        let mut request = self.client.request(method, format!("http://127.0.0.1:{}{path}{query}", self.port));
        for (name, value) in &signed {
            request = request.header(name, value);
        }
        request = request.header("authorization", format!("SharedKey {ACCOUNT}:{signature}"));
        request = request.header("content-length", body.len());
        request.body(body.to_owned()).send().await.unwrap()
    }

    pub(crate) async fn make(&self) {
        let answer = self.send(Method::PUT, "", "restype=container", &[], "").await;
        assert!(answer.status().is_success() || answer.status() == 409, "{answer:?}");
    }

    fn headers<'a>(metadata: &'a [(String, &'a str)]) -> Vec<(&'a str, &'a str)> {
        metadata.iter().map(|(name, value)| (name.as_str(), *value)).collect()
    }

    /// Put Blob, without a condition.
    pub(crate) async fn put(&self, name: &str, metadata: &[(&str, &str)], body: &str) {
        let named: Vec<(String, &str)> =
            metadata.iter().map(|(name, value)| (format!("x-ms-meta-{name}"), *value)).collect();
        let mut headers = Self::headers(&named);
        headers.push(("x-ms-blob-type", "BlockBlob"));
        let answer = self.send(Method::PUT, name, "", &headers, body).await;
        assert_eq!(answer.status(), 201, "{answer:?}");
    }

    /// Set Blob Metadata, without a condition.
    pub(crate) async fn set(&self, name: &str, metadata: &[(&str, &str)]) {
        let named: Vec<(String, &str)> =
            metadata.iter().map(|(name, value)| (format!("x-ms-meta-{name}"), *value)).collect();
        let answer = self.send(Method::PUT, name, "comp=metadata", &Self::headers(&named), "").await;
        assert_eq!(answer.status(), 200, "{answer:?}");
    }

    /// A blob's metadata, if it is there.
    pub(crate) async fn metadata(&self, name: &str) -> Option<BTreeMap<String, String>> {
        let answer = self.send(Method::HEAD, name, "", &[], "").await;
        if answer.status() == 404 {
            return None;
        }
        assert_eq!(answer.status(), 200, "{answer:?}");
        let pairs = answer.headers().iter().filter_map(|(name, value)| {
            Some((name.as_str().strip_prefix("x-ms-meta-")?.to_owned(), value.to_str().unwrap().to_owned()))
        });
        Some(pairs.collect())
    }

    /// A blob's body.
    pub(crate) async fn body(&self, name: &str) -> String {
        let answer = self.send(Method::GET, name, "", &[], "").await;
        assert_eq!(answer.status(), 200, "{answer:?}");
        answer.text().await.unwrap()
    }

    pub(crate) async fn delete(&self, name: &str) {
        let answer = self.send(Method::DELETE, name, "", &[], "").await;
        assert_eq!(answer.status(), 202, "{answer:?}");
    }

    /// Removes the whole container.
    pub(crate) async fn remove(&self) {
        let answer = self.send(Method::DELETE, "", "restype=container", &[], "").await;
        assert_eq!(answer.status(), 202, "{answer:?}");
    }

    /// Takes a real lease of a blob, as an old host does.
    pub(crate) async fn lease(&self, name: &str) {
        let headers = [("x-ms-lease-action", "acquire"), ("x-ms-lease-duration", "60")];
        let answer = self.send(Method::PUT, name, "comp=lease", &headers, "").await;
        assert_eq!(answer.status(), 201, "{answer:?}");
    }

    /// The names of all blobs.
    pub(crate) async fn names(&self) -> Vec<String> {
        let answer = self.send(Method::GET, "", "comp=list&restype=container", &[], "").await;
        let text = answer.text().await.unwrap();
        let names = text.split("<Name>").skip(1);
        names.map(|rest| rest.split("</Name>").next().unwrap().to_owned()).collect()
    }
}
