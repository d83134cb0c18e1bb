//! `StoreUrl`: parses the URL of a store, and formats it without its secrets.

use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use crate::storage_account::{StorageAccount, field};

/// The URL of a store. It shows no password.
///
/// With the feature `serde` it is read from text. It is written as it is shown, without passwords,
/// keys and parameters, so that a configuration can be logged: a URL with a secret does not read
/// back as it was.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum StoreUrl {
    /// A file on this machine.
    Sqlite(PathBuf),
    /// A database; the whole URL, password included.
    Postgres(String),
    /// A container of an Azure Storage account; the whole URL or connection string, key included.
    Blob(String),
}

/// The container of a connection string that names none.
pub const DEFAULT_CONTAINER: &str = "ephor";

/// Why a URL names no store. It shows no password, and nothing that may be a misplaced one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidUrl {
    /// There is no text.
    #[error("the store's URL is empty: {FORMS}")]
    Empty,
    /// There is no colon.
    #[error("the store's URL has no scheme: {FORMS}")]
    NoScheme,
    /// No store has this scheme.
    #[error("the store's URL has an unknown scheme: {FORMS}")]
    UnknownScheme,
    /// The address does not begin with two slashes.
    #[error("there is no // after {scheme}: {FORMS}")]
    NoSlashes {
        /// The scheme.
        scheme: String,
    },
    /// `sqlite:` without a path.
    #[error("sqlite: names no file: write sqlite:PATH, such as sqlite:ephor.db")]
    NoFile,
    /// `sqlite::memory:`.
    #[error("a SQLite database in memory is visible to one process only: name a file")]
    InMemory,
    /// `sqlite:PATH?…`.
    #[error("a SQLite URL takes no parameters here: write sqlite:PATH, without a question mark")]
    Parameters,
}

const FORMS: &str = "write sqlite:PATH for a file on this machine, \
                     postgres://USER:PASSWORD@HOST:PORT/DATABASE for hosts on several machines, or \
                     azblob://ACCOUNT/CONTAINER for an Azure Storage account";

impl FromStr for StoreUrl {
    type Err = InvalidUrl;

    fn from_str(text: &str) -> Result<Self, InvalidUrl> {
        let text = text.trim();
        let (scheme, rest) = text.split_once(':').unwrap_or_default();
        let no_slashes = || InvalidUrl::NoSlashes { scheme: scheme.to_owned() };
        // A text with a scheme is a URL, even if fields of a connection string follow.
        match scheme.to_ascii_lowercase().as_str() {
            "sqlite" => path(rest).map(Self::Sqlite),
            "postgres" | "postgresql" if rest.starts_with("//") => Ok(Self::Postgres(text.to_owned())),
            "azblob" if rest.starts_with("//") => Ok(Self::Blob(text.to_owned())),
            "postgres" | "postgresql" | "azblob" => Err(no_slashes()),
            _ if StorageAccount::is_connection_string(text) => Ok(Self::Blob(text.to_owned())),
            _ if text.is_empty() => Err(InvalidUrl::Empty),
            _ if !text.contains(':') => Err(InvalidUrl::NoScheme),
            _ => Err(InvalidUrl::UnknownScheme),
        }
    }
}

/// Parses `PATH`, or `//PATH` with an absolute or relative path, as other tools write it.
fn path(rest: &str) -> Result<PathBuf, InvalidUrl> {
    let path = rest.strip_prefix("//").unwrap_or(rest);
    match path {
        "" => Err(InvalidUrl::NoFile),
        _ if path.starts_with(":memory:") => Err(InvalidUrl::InMemory),
        _ if path.contains('?') => Err(InvalidUrl::Parameters),
        _ => Ok(Path::new(path).to_owned()),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            // Two leading slashes would look like those of a URL.
            Self::Sqlite(path) if path.to_string_lossy().starts_with("//") => {
                write!(f, "sqlite://{}", path.display())
            }
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Postgres(url) => f.write_str(&without_password(url)),
            Self::Blob(text) => f.write_str(&without_key(text)),
        }
    }
}

impl fmt::Debug for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The URL up to the database, with the user and without the password and the parameters, which may contain another
/// password.
fn without_password(url: &str) -> String {
    let (scheme, rest) = url.split_once("//").unwrap_or(("postgres:", url));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // A password may contain an @, a host may not.
    let (user, place) = match rest.rsplit_once('@') {
        Some((user, place)) => (user.split(':').next().map(|user| format!("{user}@")), place),
        None => (None, rest),
    };
    format!("{scheme}//{}{place}", user.unwrap_or_default())
}

/// The account and the container, without credentials.
fn without_key(text: &str) -> String {
    let is_url = text.to_ascii_lowercase().starts_with("azblob://");
    if !is_url {
        let account = field(text, "AccountName").unwrap_or("…");
        return format!("azblob://{account}/{}", field(text, "Container").unwrap_or(DEFAULT_CONTAINER));
    }
    let (_, rest) = text.split_once("//").unwrap_or(("", text));
    let rest = rest.split(['?', '#']).next().unwrap_or_default();
    // Fields of a connection string, or parameters without a question mark: any part may be the key.
    if rest.contains([';', '=']) {
        return "azblob://…".to_owned();
    }
    // A misplaced key is not shown.
    format!("azblob://{}", rest.rsplit('@').next().unwrap_or_default())
}

#[cfg(feature = "serde")]
impl serde::Serialize for StoreUrl {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

#[cfg(feature = "serde")]
impl<'de> serde::Deserialize<'de> for StoreUrl {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = std::borrow::Cow::<'de, str>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<StoreUrl, String> {
        text.parse().map_err(|error: InvalidUrl| error.to_string())
    }

    #[test]
    fn a_path_names_a_file() {
        for (text, expected) in [
            ("sqlite:ephor.db", "ephor.db"),
            ("sqlite:/var/lib/ephor.db", "/var/lib/ephor.db"),
            ("sqlite:///var/lib/ephor.db", "/var/lib/ephor.db"),
            ("sqlite://ephor.db", "ephor.db"),
            (" SQLite:a b.db ", "a b.db"),
        ] {
            assert_eq!(parse(text), Ok(StoreUrl::Sqlite(expected.into())), "{text}");
        }
    }

    #[test]
    fn what_is_no_store_is_refused_with_what_to_write() {
        for (text, part) in [
            ("", "is empty"),
            ("ephor.db", "no scheme"),
            ("sqlite:", "sqlite:ephor.db"),
            ("sqlite::memory:", "name a file"),
            ("sqlite:a.db?mode=ro", "no parameters"),
            ("mysql://root@localhost/x", "unknown scheme"),
            ("postgres:host=localhost", "no //"),
            ("a b:c", "unknown scheme"),
            ("azblob:contoso/leases", "no //"),
            // A key may contain two slashes: they do not make a URL of it.
            ("azblob:contoso/leases;AccountKey=no//canary", "no //"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part) && !error.contains("canary"), "{text}: {error}");
        }
    }

    #[test]
    fn a_storage_account_is_named_by_a_url_or_a_connection_string() {
        for (text, shown) in [
            ("azblob://contoso/leases/blue?shared-with=other-sdks", "azblob://contoso/leases/blue"),
            ("AZBLOB://ada:canary@contoso/leases?sig=canary", "azblob://contoso/leases"),
            ("azblob://contoso/leases;AccountKey=canary", "azblob://…"),
            ("azblob://contoso/leases&sig=canary", "azblob://…"),
            ("AccountName=contoso;AccountKey=canary==;Container=leases", "azblob://contoso/leases"),
            (
                "DefaultEndpointsProtocol=https;accountname=contoso;AccountKey=canary",
                "azblob://contoso/ephor",
            ),
            ("BlobEndpoint=https://contoso.example/;SharedAccessSignature=sig=canary", "azblob://…/ephor"),
        ] {
            let url = parse(text).unwrap();
            assert!(matches!(&url, StoreUrl::Blob(whole) if whole == text), "{text}");
            assert_eq!(format!("{url} {url:?}"), format!("{shown} {shown}"));
        }
    }

    #[test]
    fn no_password_is_shown() {
        for text in [
            "postgres://ada:canary@db.example:5432/fleet?sslmode=require&password=canary",
            "postgresql://ada:ca@na:canary@db.example:5432/fleet#canary",
        ] {
            let url = parse(text).unwrap();
            let shown = format!("{url} {url:?}");
            assert!(shown.contains("ada@db.example:5432/fleet") && !shown.contains("canary"), "{shown}");
            assert!(matches!(url, StoreUrl::Postgres(whole) if whole == text));
        }
        assert_eq!(parse("postgres://db/fleet").unwrap().to_string(), "postgres://db/fleet");
        for text in ["ada:canary@db.example/fleet", "canary:foo", "canary-pw:foo", "canary"] {
            let error = parse(text).expect_err("no scheme");
            assert!(!error.contains("canary"), "{error}");
        }
    }

    #[cfg(feature = "serde")]
    #[test]
    fn a_url_is_read_from_text_and_written_without_secrets() {
        for (text, written) in [
            ("sqlite:state.db", "sqlite:state.db"),
            ("postgres://ada:canary@db.example/fleet?password=canary", "postgres://ada@db.example/fleet"),
            ("AccountName=contoso;AccountKey=canary==;Container=leases", "azblob://contoso/leases"),
            ("azblob://contoso/leases?sig=canary", "azblob://contoso/leases"),
        ] {
            let url: StoreUrl = serde_json::from_value(text.into()).unwrap();
            assert_eq!(url, parse(text).unwrap(), "{text}");
            assert_eq!(serde_json::to_value(&url).unwrap(), written);
        }
        for given in [serde_json::json!("canary:foo"), serde_json::json!("canary")] {
            let error = serde_json::from_value::<StoreUrl>(given).unwrap_err().to_string();
            assert!(error.contains("write sqlite:PATH") && !error.contains("canary"), "{error}");
        }
    }
}
