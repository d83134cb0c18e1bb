//! Parses the URL of an event hub.

use std::fmt;
use std::path::PathBuf;
use std::str::FromStr;

use ephor_host::{HubName, Namespace};

/// The partitions of a hub that is created and whose URL names no number.
pub const DEFAULT_PARTITIONS: u32 = 4;

/// The largest number of partitions in a URL.
pub const MAX_PARTITIONS: u32 = 1_024;

/// The URL of an event hub. It shows no key.
#[derive(Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum HubUrl {
    /// A hub over AMQP: Azure Event Hubs, or an Ephor hub that another process serves. The whole connection string,
    /// key included.
    EventHubs(String),
    /// The embedded hub.
    Embedded {
        /// The data folder.
        folder: PathBuf,
        /// The hub in it.
        hub: HubName,
        /// Its number of partitions, if it is given.
        partitions: Option<u32>,
    },
    /// A hub in memory.
    Memory {
        /// Its name.
        hub: HubName,
        /// Its number of partitions, if it is given.
        partitions: Option<u32>,
    },
}

/// Why a URL names no hub. It shows no key, and nothing that may be a misplaced one.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum InvalidHubUrl {
    /// There is no text.
    #[error("the hub's URL is empty: {FORMS}")]
    Empty,
    /// There is neither a scheme nor a connection string.
    #[error("the hub's URL has no scheme, and it is not a connection string: {FORMS}")]
    NoScheme,
    /// No hub has this scheme.
    #[error("the hub's URL has an unknown scheme: {FORMS}")]
    UnknownScheme,
    /// `hub:` without a folder and a name.
    #[error("hub: names no hub in a folder: write hub:FOLDER/HUB, such as hub:ephor-data/homes")]
    NoFolder,
    /// The name of the hub is invalid.
    #[error(
        "the hub's URL names no valid hub: write its name in letters, digits, dots, hyphens and underscores, at most 256 \
         of them"
    )]
    Name,
    /// A parameter is unknown.
    #[error("the hub's URL has an unknown parameter: only ?partitions=NUMBER can be given")]
    Parameter,
    /// The number of partitions is invalid.
    #[error("the hub's URL has an invalid number of partitions: write 1 to {MAX_PARTITIONS}")]
    Partitions,
}

const FORMS: &str = "write a connection string (Endpoint=sb://…;EntityPath=HUB) for Azure Event Hubs or a hub of \
                     another process, hub:FOLDER/HUB for the embedded hub, or memory:HUB for a hub in memory";

impl FromStr for HubUrl {
    type Err = InvalidHubUrl;

    fn from_str(text: &str) -> Result<Self, InvalidHubUrl> {
        let text = text.trim();
        if field(text, "Endpoint").is_some() {
            return Ok(Self::EventHubs(text.to_owned()));
        }
        let Some((scheme, rest)) = text.split_once(':') else {
            return Err(if text.is_empty() { InvalidHubUrl::Empty } else { InvalidHubUrl::NoScheme });
        };
        match scheme.to_ascii_lowercase().as_str() {
            "hub" => {
                // `//` may come before the path, as in the URLs of other programs.
                let (place, partitions) = parameters(rest.strip_prefix("//").unwrap_or(rest))?;
                let (folder, hub) = place.rsplit_once('/').ok_or(InvalidHubUrl::NoFolder)?;
                // `hub:/homes` is a hub in the root folder.
                let folder = if folder.is_empty() { "/" } else { folder };
                if hub.is_empty() {
                    return Err(InvalidHubUrl::NoFolder);
                }
                Ok(Self::Embedded { folder: folder.into(), hub: name(hub)?, partitions })
            }
            "memory" => {
                let (hub, partitions) = parameters(rest)?;
                Ok(Self::Memory { hub: name(hub)?, partitions })
            }
            _ => Err(InvalidHubUrl::UnknownScheme),
        }
    }
}

fn name(text: &str) -> Result<HubName, InvalidHubUrl> {
    // The error of the name would quote it, and it may be a misplaced key.
    text.parse().map_err(|_| InvalidHubUrl::Name)
}

/// Splits `?partitions=NUMBER` off.
fn parameters(rest: &str) -> Result<(&str, Option<u32>), InvalidHubUrl> {
    let Some((place, parameters)) = rest.split_once('?') else { return Ok((rest, None)) };
    let number = parameters.strip_prefix("partitions=").ok_or(InvalidHubUrl::Parameter)?;
    let number = number.parse().ok().filter(|number| (1..=MAX_PARTITIONS).contains(number));
    Ok((place, Some(number.ok_or(InvalidHubUrl::Partitions)?)))
}

/// The value of a part of a connection string.
fn field<'a>(text: &'a str, name: &str) -> Option<&'a str> {
    text.split(';').find_map(|part| {
        let (found, value) = part.split_once('=')?;
        found.trim().eq_ignore_ascii_case(name).then(|| value.trim())
    })
}

impl fmt::Display for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let partitions = match self {
            Self::EventHubs(text) => return f.write_str(&without_key(text)),
            Self::Embedded { folder, hub, partitions } => {
                let folder = folder.to_string_lossy();
                // Two leading slashes would look like those of a URL.
                let slashes = if folder.starts_with("//") { "//" } else { "" };
                write!(f, "hub:{slashes}{}/{hub}", if folder == "/" { "" } else { &*folder })?;
                partitions
            }
            Self::Memory { hub, partitions } => {
                write!(f, "memory:{hub}")?;
                partitions
            }
        };
        partitions.map_or(Ok(()), |partitions| write!(f, "?partitions={partitions}"))
    }
}

impl fmt::Debug for HubUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The address and the hub of a connection string, each only if it looks like one: parts may be mixed up, and then any
/// of them may be the key.
fn without_key(text: &str) -> String {
    let schemes = ["sb", "amqp", "amqps", "http", "https", "ws", "wss"];
    let endpoint = field(text, "Endpoint").and_then(|endpoint| {
        let (scheme, place) = endpoint.split_once("://")?;
        let place = place.strip_suffix('/').unwrap_or(place);
        let known = schemes.iter().any(|known| scheme.eq_ignore_ascii_case(known));
        (known && place.parse::<Namespace>().is_ok()).then(|| format!("{scheme}://{place}"))
    });
    let hub = field(text, "EntityPath").filter(|hub| hub.parse::<HubName>().is_ok());
    format!("Endpoint={};EntityPath={}", endpoint.as_deref().unwrap_or("…"), hub.unwrap_or("…"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<HubUrl, String> {
        text.parse().map_err(|error: InvalidHubUrl| error.to_string())
    }

    #[test]
    fn a_folder_and_a_name_are_an_embedded_hub() {
        for (text, folder, hub, partitions) in [
            ("hub:data/homes", "data", "homes", None),
            ("hub:/var/lib/ephor/homes?partitions=16", "/var/lib/ephor", "homes", Some(16)),
            ("hub:///var/lib/ephor/homes", "/var/lib/ephor", "homes", None),
            (" Hub:a b/homes ", "a b", "homes", None),
            ("hub:/homes", "/", "homes", None),
            ("hub:./homes?partitions=1024", ".", "homes", Some(1_024)),
        ] {
            let hub = hub.parse().unwrap();
            let expected = HubUrl::Embedded { folder: folder.into(), hub, partitions };
            assert_eq!(parse(text), Ok(expected.clone()), "{text}");
            assert_eq!(parse(&expected.to_string()), Ok(expected), "{text}");
        }
    }

    #[test]
    fn a_name_alone_is_a_hub_in_memory() {
        for (text, partitions) in [("memory:homes", None), ("memory:homes?partitions=2", Some(2))] {
            let expected = HubUrl::Memory { hub: "homes".parse().unwrap(), partitions };
            assert_eq!(parse(text), Ok(expected.clone()));
            assert_eq!(expected.to_string(), text);
        }
    }

    #[test]
    fn a_connection_string_is_kept_whole_and_shown_without_its_key() {
        for (text, shown) in [
            (
                "Endpoint=sb://ns.servicebus.windows.net/;SharedAccessKeyName=n;SharedAccessKey=canary+/=;EntityPath=homes",
                "Endpoint=sb://ns.servicebus.windows.net;EntityPath=homes",
            ),
            (
                "sharedaccesskey=canary; endpoint = sb://localhost:5672 ;UseDevelopmentEmulator=true",
                "Endpoint=sb://localhost:5672;EntityPath=…",
            ),
            // Mixed up.
            ("Endpoint=canary;EntityPath=canary+=", "Endpoint=…;EntityPath=…"),
            ("Endpoint=sb://n:canary@host;EntityPath=homes", "Endpoint=…;EntityPath=homes"),
        ] {
            let url = parse(text).unwrap();
            assert_eq!(url, HubUrl::EventHubs(text.to_owned()));
            assert_eq!((url.to_string().as_str(), format!("{url:?}").as_str()), (shown, shown));
        }
    }

    #[test]
    fn other_texts_are_refused_with_what_to_write() {
        for (text, part) in [
            ("", "is empty"),
            ("canary", "not a connection string"),
            ("SharedAccessKey=canary;EntityPath=homes", "not a connection string"),
            ("kafka:canary", "unknown scheme"),
            ("hub:", "hub:FOLDER/HUB"),
            ("hub:homes", "hub:FOLDER/HUB"),
            ("hub:data/", "hub:FOLDER/HUB"),
            ("hub:data/a b", "no valid hub"),
            ("hub:data/homes?partition=4", "?partitions=NUMBER"),
            ("hub:data/homes?partitions=0", "1 to 1024"),
            ("memory:homes?partitions=1025", "1 to 1024"),
            ("memory:homes?partitions=many", "1 to 1024"),
            ("memory:", "no valid hub"),
        ] {
            let error = parse(text).expect_err(text);
            assert!(error.contains(part) && !error.contains("canary"), "{text}: {error}");
        }
    }
}
