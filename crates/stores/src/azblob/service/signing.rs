//! Signs requests with the account's key, or adds the shared access signature.
//!
//! The Rust SDK supports only Entra ID. The signed fields and their order are those of "Authorize with Shared
//! Key" in the service's documentation, in the form of 2015-02-21 and later.

use std::sync::Arc;

use async_trait::async_trait;
use azure_core::http::headers::HeaderName;
use azure_core::http::policies::{Policy, PolicyResult};
use azure_core::http::{Context, Request};
use azure_core::time::{OffsetDateTime, to_rfc7231};
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use hmac::{Hmac, Mac};
use sha2::Sha256;

use crate::azblob::service::credential::{AccountKey, Sas};

/// The headers that are signed without their names, in this order. The date is among the service's headers.
const SIGNED: [&str; 11] = [
    "content-encoding",
    "content-language",
    "content-length",
    "content-md5",
    "content-type",
    "date",
    "if-modified-since",
    "if-match",
    "if-none-match",
    "if-unmodified-since",
    "range",
];

/// The policy that authorizes a request.
#[derive(Debug)]
pub(in crate::azblob) enum Signer {
    Key { account: String, key: AccountKey },
    Sas(Sas),
}

#[async_trait]
#[allow(elided_lifetimes_in_paths, reason = "the trait is written so, and the macro must find it alike")]
impl Policy for Signer {
    async fn send(&self, context: &Context, request: &mut Request, next: &[Arc<dyn Policy>]) -> PolicyResult {
        match self {
            Self::Key { account, key } => {
                sign(request, account, key, &to_rfc7231(&OffsetDateTime::now_utc()))
            }
            Self::Sas(sas) => add(request, sas),
        }
        next[0].send(context, request, &next[1..]).await
    }
}

fn add(request: &mut Request, sas: &Sas) {
    let query = match request.url().query() {
        Some(query) if !query.is_empty() => format!("{query}&{}", sas.query()),
        _ => sas.query().to_owned(),
    };
    request.url_mut().set_query(Some(&query));
}

fn sign(request: &mut Request, account: &str, key: &AccountKey, date: &str) {
    request.insert_header("x-ms-date", date.to_owned());
    let text = string_to_sign(request, account);
    // HMAC accepts keys of any length.
    let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key.bytes()) else { return };
    mac.update(text.as_bytes());
    let signature = STANDARD.encode(mac.finalize().into_bytes());
    request.insert_header("authorization", format!("SharedKey {account}:{signature}"));
}

fn string_to_sign(request: &Request, account: &str) -> String {
    let mut text = format!("{}\n", request.method().as_str());
    for name in SIGNED {
        let given = request.headers().get_optional_string(&HeaderName::from_static(name));
        let value = match (name, given) {
            ("content-length", given) => length(request, given),
            (_, given) => given.unwrap_or_default(),
        };
        text.push_str(value.trim());
        text.push('\n');
    }
    text.push_str(&service_headers(request));
    text.push_str(&resource(request, account));
    text
}

/// The signed length. A length of zero is an empty text.
fn length(request: &Request, given: Option<String>) -> String {
    let length = given.or_else(|| request.body().len().map(|length| length.to_string()));
    length.filter(|length| length != "0").unwrap_or_default()
}

/// The headers that begin with `x-ms-`, in order.
fn service_headers(request: &Request) -> String {
    let headers = request.headers().iter();
    let mut headers: Vec<String> = headers
        .map(|(name, value)| (name.as_str().to_ascii_lowercase(), value.as_str().trim()))
        .filter(|(name, _)| name.starts_with("x-ms-"))
        .map(|(name, value)| format!("{name}:{value}\n"))
        .collect();
    headers.sort();
    headers.concat()
}

/// The account, the path as it is sent, and the parameters of the query in order, each name with its values.
fn resource(request: &Request, account: &str) -> String {
    let url = request.url();
    let mut pairs: Vec<(String, String)> =
        url.query_pairs().map(|(name, value)| (name.to_lowercase(), value.into_owned())).collect();
    pairs.sort();
    let mut text = format!("/{account}{}", url.path());
    let mut last: Option<&str> = None;
    for (name, value) in &pairs {
        if last == Some(name) {
            text.push_str(&format!(",{value}"));
        } else {
            text.push_str(&format!("\n{name}:{value}"));
        }
        last = Some(name);
    }
    text
}

#[cfg(test)]
mod tests {
    use azure_core::http::Method;

    use super::*;
    use crate::storage_account::EMULATOR_KEY;

    fn request(url: &str, method: Method) -> Request {
        Request::new(url.parse().unwrap(), method)
    }

    /// The example of the service's documentation, with its own order of everything.
    #[test]
    fn what_is_signed_is_what_the_service_signs() {
        let url =
            "https://myaccount.blob.core.windows.net/mycontainer?restype=container&comp=metadata&timeout=20";
        let mut request = request(url, Method::Get);
        request.insert_header("x-ms-version", "2015-02-21");
        request.insert_header("x-ms-date", "Fri, 26 Jun 2015 23:39:12 GMT");
        assert_eq!(
            string_to_sign(&request, "myaccount"),
            "GET\n\n\n\n\n\n\n\n\n\n\n\nx-ms-date:Fri, 26 Jun 2015 23:39:12 GMT\nx-ms-version:2015-02-21\n\
             /myaccount/mycontainer\ncomp:metadata\nrestype:container\ntimeout:20"
        );
    }

    #[test]
    fn conditions_lengths_and_metadata_are_signed() {
        let mut request =
            request("http://127.0.0.1:1/dev/c/a%2Fb?include=metadata&include=copy", Method::Put);
        request.insert_header("if-match", "\"0x1\"");
        request.insert_header("x-ms-meta-ownerid", "");
        request.insert_header("x-ms-meta-ephor", " a ");
        request.insert_header("content-type", "text/plain");
        request.set_body("body");
        assert_eq!(
            string_to_sign(&request, "dev"),
            "PUT\n\n\n4\n\ntext/plain\n\n\n\"0x1\"\n\n\n\nx-ms-meta-ephor:a\nx-ms-meta-ownerid:\n\
             /dev/dev/c/a%2Fb\ninclude:copy,metadata"
        );
    }

    #[test]
    fn a_request_is_signed_once_and_the_key_is_not_in_it() {
        let key = AccountKey::from_base64(EMULATOR_KEY).unwrap();
        let mut request = request("http://127.0.0.1:1/dev/c", Method::Get);
        sign(&mut request, "dev", &key, "Fri, 26 Jun 2015 23:39:12 GMT");
        sign(&mut request, "dev", &key, "Fri, 26 Jun 2015 23:39:12 GMT");
        let sent = request.headers().get_optional_string(&HeaderName::from_static("authorization")).unwrap();
        // Computed by another implementation.
        assert_eq!(sent, "SharedKey dev:LoM+BVwWbcqywpVfjEmx/lSzr+6SVX2RI9No3riY1q4=");
        let signer = Signer::Key { account: "dev".into(), key };
        assert!(!format!("{signer:?}").contains("Eby8"), "{signer:?}");
    }

    #[test]
    fn a_signature_joins_what_is_asked() {
        let sas = Sas::new("?sv=2021-12-02&sig=a%2Bb%3D").unwrap();
        for (url, sent) in [
            ("http://h/c", "http://h/c?sv=2021-12-02&sig=a%2Bb%3D"),
            ("http://h/c?comp=list", "http://h/c?comp=list&sv=2021-12-02&sig=a%2Bb%3D"),
        ] {
            let mut request = request(url, Method::Get);
            add(&mut request, &sas);
            assert_eq!(request.url().as_str(), sent);
        }
    }
}
