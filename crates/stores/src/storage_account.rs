//! Parses connection strings of Azure Storage accounts, as the portal shows them.
//!
//! ```text
//! DefaultEndpointsProtocol=https;AccountName=NAME;AccountKey=KEY;EndpointSuffix=core.windows.net
//! BlobEndpoint=https://NAME.blob.core.windows.net/;SharedAccessSignature=sv=…&sig=…
//! UseDevelopmentStorage=true      the emulator on this machine
//! ```
//!
//! Fields have any order, and their names any case. Unknown fields are ignored, because every program adds its
//! own ([`field`]). No error and no `Debug` repeats a value: if fields are mixed up, any of them may be the key.

use std::fmt;

/// The account of every emulator.
pub const EMULATOR_ACCOUNT: &str = "devstoreaccount1";
/// The key of [`EMULATOR_ACCOUNT`]. It is public.
pub const EMULATOR_KEY: &str =
    "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw==";
const EMULATOR_ENDPOINT: &str = "http://127.0.0.1:10000/devstoreaccount1";

/// The end of the host names of accounts, unless the connection string has another.
pub const DEFAULT_SUFFIX: &str = "core.windows.net";

const NAME: &str = "AccountName";
const KEY: &str = "AccountKey";
const SIGNATURE: &str = "SharedAccessSignature";
const ENDPOINT: &str = "BlobEndpoint";
const SUFFIX: &str = "EndpointSuffix";
const PROTOCOL: &str = "DefaultEndpointsProtocol";
const EMULATOR: &str = "UseDevelopmentStorage";

const FIELDS: [&str; 7] = [NAME, KEY, SIGNATURE, ENDPOINT, SUFFIX, PROTOCOL, EMULATOR];

/// The account of a connection string.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StorageAccount {
    /// The name of the account. It may be invalid.
    pub name: String,
    /// The URL of its blob service, without a slash at its end. It may be invalid.
    pub endpoint: String,
    /// The credential, if the connection string has one.
    pub access: Option<StorageAccess>,
}

/// The credential of a connection string, as it is written there.
#[derive(Clone, PartialEq, Eq)]
pub enum StorageAccess {
    /// The key of the account, in base64.
    Key(String),
    /// A shared access signature: the parameters of a query.
    Signature(String),
}

impl fmt::Debug for StorageAccess {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Key(_) => "Key(hidden)",
            Self::Signature(_) => "Signature(hidden)",
        })
    }
}

/// A connection string that names no account.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("has neither AccountName nor BlobEndpoint: copy the complete string")]
pub struct NoStorageAccount;

impl StorageAccount {
    /// Whether a text is meant to be a connection string: one of its fields has a known name.
    pub fn is_connection_string(text: &str) -> bool {
        let is_known = |name: &str| FIELDS.iter().any(|known| known.eq_ignore_ascii_case(name));
        fields(text).any(|(name, _)| is_known(name))
    }

    /// Parses a connection string. A key counts more than a signature beside it.
    pub fn parse(text: &str) -> Result<Self, NoStorageAccount> {
        let emulated = field(text, EMULATOR).is_some_and(|value| value.eq_ignore_ascii_case("true"));
        let name = field(text, NAME).or(emulated.then_some(EMULATOR_ACCOUNT));
        let given = field(text, ENDPOINT).or(emulated.then_some(EMULATOR_ENDPOINT));
        let (name, endpoint) = match (name, given) {
            (Some(name), Some(endpoint)) => (name.to_owned(), endpoint.to_owned()),
            (None, Some(endpoint)) => (account_of(endpoint), endpoint.to_owned()),
            (Some(name), None) => {
                let protocol = field(text, PROTOCOL).unwrap_or("https");
                let suffix = field(text, SUFFIX).unwrap_or(DEFAULT_SUFFIX);
                (name.to_owned(), format!("{protocol}://{name}.blob.{suffix}"))
            }
            (None, None) => return Err(NoStorageAccount),
        };
        let key = field(text, KEY).or(emulated.then_some(EMULATOR_KEY));
        let access = match (key, field(text, SIGNATURE)) {
            (Some(key), _) => Some(StorageAccess::Key(key.to_owned())),
            (None, Some(signature)) => Some(StorageAccess::Signature(signature.to_owned())),
            (None, None) => None,
        };
        Ok(Self { name, endpoint: endpoint.trim_end_matches('/').to_owned(), access })
    }
}

/// The value of a field; none if it is missing or empty. A value may contain `=`, as keys do.
pub fn field<'a>(text: &'a str, wanted: &str) -> Option<&'a str> {
    fields(text)
        .find(|(name, value)| name.eq_ignore_ascii_case(wanted) && !value.is_empty())
        .map(|(_, value)| value)
}

fn fields(text: &str) -> impl Iterator<Item = (&str, &str)> {
    text.split(';').filter_map(|pair| pair.split_once('=')).map(|(name, value)| (name.trim(), value.trim()))
}

/// The account in `https://ACCOUNT.blob…` or `http://127.0.0.1:10000/ACCOUNT`.
fn account_of(endpoint: &str) -> String {
    let rest = endpoint.split_once("://").map_or(endpoint, |(_, rest)| rest);
    let (host, path) = rest.split_once('/').unwrap_or((rest, ""));
    match path.trim_matches('/') {
        "" => host.split(['.', ':']).next().unwrap_or_default().to_ascii_lowercase(),
        account => account.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> (String, String, Option<StorageAccess>) {
        assert!(StorageAccount::is_connection_string(text), "{text}");
        let StorageAccount { name, endpoint, access } = StorageAccount::parse(text).unwrap();
        (name, endpoint, access)
    }

    #[test]
    fn every_form_of_the_portal_is_read() {
        let key = |key: &str| Some(StorageAccess::Key(key.into()));
        let signature = |signature: &str| Some(StorageAccess::Signature(signature.into()));
        for (text, name, endpoint, access) in [
            (
                "DefaultEndpointsProtocol=https;AccountName=contoso;AccountKey=c2VjcmV0cw==;EndpointSuffix=core.windows.net",
                "contoso",
                "https://contoso.blob.core.windows.net",
                key("c2VjcmV0cw=="),
            ),
            (
                " accountname = contoso ; ACCOUNTKEY = a= ;EndpointSuffix=core.example;Own=x;",
                "contoso",
                "https://contoso.blob.core.example",
                key("a="),
            ),
            ("AccountName=;AccountName=b;AccountKey=", "b", "https://b.blob.core.windows.net", None),
            (
                "BlobEndpoint=https://Contoso.blob.example:443/;SharedAccessSignature=sv=2022&sig=a%3D",
                "contoso",
                "https://Contoso.blob.example:443",
                signature("sv=2022&sig=a%3D"),
            ),
            ("BlobEndpoint=http://127.0.0.1:7/dev/", "dev", "http://127.0.0.1:7/dev", None),
            ("BlobEndpoint=http://127.0.0.1:7/a;AccountName=b", "b", "http://127.0.0.1:7/a", None),
            (
                "AccountName=a;AccountKey=k;SharedAccessSignature=s",
                "a",
                "https://a.blob.core.windows.net",
                key("k"),
            ),
            ("UseDevelopmentStorage=True", EMULATOR_ACCOUNT, EMULATOR_ENDPOINT, key(EMULATOR_KEY)),
        ] {
            assert_eq!(parse(text), (name.to_owned(), endpoint.to_owned(), access), "{text}");
        }
    }

    #[test]
    fn a_string_without_an_account_is_refused() {
        for text in ["AccountKey=canary", "UseDevelopmentStorage=false", "SharedAccessSignature=sig=canary"] {
            assert!(StorageAccount::is_connection_string(text), "{text}");
            assert_eq!(StorageAccount::parse(text), Err(NoStorageAccount), "{text}");
        }
    }

    #[test]
    fn a_path_or_a_url_is_no_connection_string() {
        for text in [
            "/tmp/results",
            "results",
            "a=b/c;d",
            "",
            "sqlite:ephor.db",
            "Endpoint=sb://host;EntityPath=homes",
        ] {
            assert!(!StorageAccount::is_connection_string(text), "{text}");
        }
    }

    #[test]
    fn no_secret_is_shown() {
        for text in ["AccountName=a;AccountKey=canary", "AccountName=a;SharedAccessSignature=sig=canary"] {
            let shown = format!("{:?}", StorageAccount::parse(text).unwrap());
            assert!(shown.contains("hidden") && !shown.contains("canary"), "{shown}");
        }
    }
}
