//! The storage account for results: its connection string, checked before use.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ephor_core::loopback::is_loopback;
use ephor_stores::storage_account::{StorageAccess, StorageAccount};
use object_store::azure::split_sas;

/// The error for an invalid connection string. Contains no key.
#[derive(Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection string of the storage account {0}")]
pub struct InvalidAccount(String);

/// How to be let in.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Access {
    /// The account's key, in base64.
    Key(String),
    /// The parameters of a shared access signature.
    Signature(Vec<(String, String)>),
}

impl fmt::Debug for Access {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Key(***)",
            Self::Signature(_) => "Signature(***)",
        })
    }
}

/// A storage account.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Account {
    pub(super) name: String,
    /// Of its blobs, without a slash at the end.
    pub(super) endpoint: String,
    pub(super) access: Access,
}

impl Account {
    /// Reads a connection string.
    pub(super) fn parse(text: &str) -> Result<Self, InvalidAccount> {
        let wrong = |text: &str| Err(InvalidAccount(text.to_owned()));
        let account = StorageAccount::parse(text).map_err(|problem| InvalidAccount(problem.to_string()))?;
        let StorageAccount { name, endpoint, access } = account;
        let Some((protocol, rest)) =
            endpoint.split_once("://").filter(|(protocol, _)| matches!(*protocol, "http" | "https"))
        else {
            return wrong(
                "has a BlobEndpoint that does not start with https:// or http://: copy the complete string",
            );
        };
        if protocol == "http" && !is_loopback(host_of(rest)) {
            return wrong("uses http to another machine, which is not encrypted: use https");
        }
        let access = match access {
            Some(StorageAccess::Key(key)) if BASE64.decode(&key).is_err() => {
                return wrong("has an AccountKey that is not base64: copy the complete string");
            }
            Some(StorageAccess::Key(key)) => Access::Key(key),
            Some(StorageAccess::Signature(signature)) => match split_sas(&signature) {
                Ok(pairs) => Access::Signature(pairs),
                Err(_) => return wrong("has an invalid SharedAccessSignature: copy the complete string"),
            },
            None => {
                return wrong("has neither AccountKey nor SharedAccessSignature: copy the complete string");
            }
        };
        Ok(Self { name, endpoint, access })
    }

    /// Whether it is reached without TLS: the emulator.
    pub(super) fn is_plain(&self) -> bool {
        self.endpoint.starts_with("http://")
    }
}

/// Returns the host of a URL without its scheme; none if there is user information, or anything else that no
/// endpoint has and that not everybody reads alike.
fn host_of(rest: &str) -> &str {
    if rest.contains(['@', '\\', '?', '#']) {
        return "";
    }
    let authority = rest.split('/').next().unwrap_or_default();
    match authority.rsplit_once(':') {
        // The colons of an address of version 6 are in brackets.
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Account {
        Account::parse(text).unwrap()
    }

    #[test]
    fn the_host_of_an_endpoint_is_found() {
        for (rest, host) in [
            ("127.0.0.1:10000/a", "127.0.0.1"),
            ("[::1]:10000/a", "[::1]"),
            ("[::1]/a", "[::1]"),
            ("localhost", "localhost"),
            ("localhost:7", "localhost"),
        ] {
            assert_eq!(host_of(rest), host, "{rest}");
            assert!(is_loopback(host_of(rest)), "{rest}");
        }
    }

    #[test]
    fn every_form_is_read() {
        let azure = parse(
            "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=c2VjcmV0cw==;EndpointSuffix=core.windows.net",
        );
        assert_eq!(
            (azure.name.as_str(), azure.endpoint.as_str()),
            ("contoso", "https://contoso.blob.core.windows.net")
        );
        assert_eq!(azure.access, Access::Key("c2VjcmV0cw==".into()));
        assert!(!azure.is_plain());
        let emulator = parse("UseDevelopmentStorage=true");
        assert_eq!((emulator.name.as_str(), emulator.is_plain()), ("devstoreaccount1", true));
        let signed = parse(
            "BlobEndpoint=https://contoso.blob.core.windows.net/;SharedAccessSignature=sv=2022&sig=a%3D",
        );
        assert_eq!(signed.name, "contoso");
        let pairs = [("sv", "2022"), ("sig", "a=")].map(|(name, value)| (name.to_owned(), value.to_owned()));
        assert_eq!(signed.access, Access::Signature(pairs.to_vec()));
    }

    #[test]
    fn what_is_wrong_is_said_without_the_key() {
        for (text, word) in [
            ("AccountKey=canary", "BlobEndpoint"),
            ("AccountName=a", "AccountKey"),
            ("AccountName=a;AccountKey=canary!", "not base64"),
            ("AccountName=a;SharedAccessSignature=canary", "SharedAccessSignature"),
            ("BlobEndpoint=canary;AccountKey=canary", "https://"),
            ("BlobEndpoint=http://127.0.0.1.example.org/a;AccountKey=canary", "use https"),
            ("BlobEndpoint=http://[2001:db8::1]:10000/a;AccountKey=canary", "use https"),
            ("BlobEndpoint=http://127.0.0.1:1@evil.example/;AccountKey=canary", "use https"),
            ("BlobEndpoint=http://localhost:1?@evil.example/;AccountKey=canary", "use https"),
            ("BlobEndpoint=http://127.0.0.1@evil.example:80/;AccountKey=canary", "use https"),
            ("BlobEndpoint=http://evil.example\\@127.0.0.1/;AccountKey=canary", "use https"),
            ("DefaultEndpointsProtocol=http;AccountName=a;AccountKey=canary", "use https"),
        ] {
            let error = Account::parse(text).unwrap_err().to_string();
            assert!(error.contains(word) && !error.contains("canary"), "{error}");
        }
        let account = parse("AccountName=a;AccountKey=Y2FuYXJ5");
        assert!(!format!("{account:?}").contains("Y2FuYXJ5"));
    }
}
