//! Connection strings: the address of a hub and the credential to authenticate with.
//!
//! ```text
//! Endpoint=sb://host[:port];SharedAccessKeyName=name;SharedAccessKey=key[;EntityPath=hub]
//! Endpoint=sb://host[:port];SharedAccessSignature=SharedAccessSignature sr=…[;EntityPath=hub]
//! …;UseDevelopmentEmulator=true      without TLS, on port 5672 unless the endpoint names another
//! ```
//!
//! `amqp://`, `http://` and `ws://` mean "without TLS", too. Parsing such a string is no consent to it:
//! clients send tokens in plaintext only to this machine ([`is_loopback`]), unless the user says otherwise.
//!
//! Names are read in any case and order; spaces around them and empty parts are ignored. An unknown name is
//! refused, since it is most likely misspelt and its value would be missed. No error and no `Debug` repeats a
//! value: if parts are mixed up, any of them may hold the key.

use std::fmt;

use ephor_core::ids::{HubName, Namespace};
pub use ephor_core::loopback::is_loopback;
use secrecy::{ExposeSecret, SecretString};

use crate::sas::Key;

/// The maximum length of a connection string, in bytes. A longer one is refused before it is parsed.
pub const MAX_CONNECTION_STRING_LENGTH: usize = 16 << 10;

/// The port of AMQP over TLS.
pub const TLS_PORT: u16 = 5671;
/// The port of AMQP without TLS.
pub const PLAIN_PORT: u16 = 5672;

/// The key's name in the development connection string.
pub const DEVELOPMENT_KEY_NAME: &str = "RootManageSharedAccessKey";
/// The key in the development connection string: literally these words.
pub const DEVELOPMENT_KEY: &str = "SAS_KEY_VALUE";

const ENDPOINT: &str = "Endpoint";
const KEY_NAME: &str = "SharedAccessKeyName";
const KEY: &str = "SharedAccessKey";
const SIGNATURE: &str = "SharedAccessSignature";
const ENTITY_PATH: &str = "EntityPath";
const EMULATOR: &str = "UseDevelopmentEmulator";

/// Names that older SDKs wrote and that are ignored here.
const UNUSED: [&str; 6] =
    ["OperationTimeout", "TransportType", "RuntimePort", "ManagementPort", "StsEndpoint", "Authentication"];

/// The credential to authenticate with.
#[derive(Clone)]
pub enum Credential {
    /// Signs tokens with a key.
    Key {
        /// The key's name.
        name: String,
        /// The key.
        key: Key,
    },
    /// A token that was signed elsewhere.
    Signature(SecretString),
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Key { name, .. } => write!(f, "Key({name:?}, hidden)"),
            Self::Signature(_) => f.write_str("Signature(hidden)"),
        }
    }
}

/// A parsed connection string.
#[derive(Clone, Debug)]
pub struct ConnectionString {
    host: Namespace,
    port: Option<u16>,
    tls: bool,
    development: bool,
    /// The hub, if the string names one.
    pub hub: Option<HubName>,
    /// The credential; none if the client authenticates in another way.
    pub credential: Option<Credential>,
    /// Parts that were read and ignored, described for the user.
    pub notes: Vec<String>,
}

/// The error in a connection string.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the connection string {0}")]
pub struct InvalidConnectionString(String);

fn invalid<T>(why: impl Into<String>) -> Result<T, InvalidConnectionString> {
    Err(InvalidConnectionString(why.into()))
}

impl ConnectionString {
    /// Parses a connection string.
    pub fn parse(text: &str) -> Result<Self, InvalidConnectionString> {
        if text.len() > MAX_CONNECTION_STRING_LENGTH {
            return invalid(format!("is longer than {MAX_CONNECTION_STRING_LENGTH} bytes"));
        }
        let mut parts = Parts::default();
        for (index, part) in text.trim().split(';').map(str::trim).enumerate() {
            if !part.is_empty() {
                parts.take(index + 1, part)?;
            }
        }
        parts.resolve()
    }

    /// The connection string of a hub on this machine, as the SDKs understand it.
    pub fn development(host: &Namespace, port: u16, hub: Option<HubName>) -> Self {
        Self {
            host: host.clone(),
            port: Some(port),
            tls: false,
            development: true,
            hub,
            credential: Some(Credential::Key {
                name: DEVELOPMENT_KEY_NAME.to_owned(),
                key: Key::new(DEVELOPMENT_KEY),
            }),
            notes: Vec::new(),
        }
    }

    /// Replaces the key.
    pub fn with_key(self, name: &str, key: Key) -> Self {
        Self { credential: Some(Credential::Key { name: name.to_owned(), key }), ..self }
    }

    /// The host, without a port: the namespace in audiences and checkpoints.
    pub fn host(&self) -> &Namespace {
        &self.host
    }

    /// The port to connect to.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(if self.tls { TLS_PORT } else { PLAIN_PORT })
    }

    /// True if the connection uses TLS.
    pub fn tls(&self) -> bool {
        self.tls
    }

    /// True if it is for a development emulator.
    pub fn is_development(&self) -> bool {
        self.development
    }

    /// The whole string, with its secret: to paste, not to log.
    pub fn reveal(&self) -> String {
        self.written(|credential, text| match credential {
            Credential::Key { name, key } => {
                *text += &format!("{KEY_NAME}={name};{KEY}={};", key.reveal());
            }
            Credential::Signature(token) => *text += &format!("{SIGNATURE}={};", token.expose_secret()),
        })
    }

    fn written(&self, credential: impl Fn(&Credential, &mut String)) -> String {
        let scheme = if self.tls || self.development { "sb" } else { "amqp" };
        let mut text = format!("{ENDPOINT}={scheme}://{}", self.host);
        if let Some(port) = self.port {
            text += &format!(":{port}");
        }
        text.push(';');
        if let Some(held) = &self.credential {
            credential(held, &mut text);
        }
        if let Some(hub) = &self.hub {
            text += &format!("{ENTITY_PATH}={hub};");
        }
        if self.development {
            text += &format!("{EMULATOR}=true;");
        }
        text
    }
}

impl fmt::Display for ConnectionString {
    /// Writes the string without its secret.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.written(|credential, text| match credential {
            Credential::Key { name, .. } => *text += &format!("{KEY_NAME}={name};{KEY}=hidden;"),
            Credential::Signature(_) => *text += &format!("{SIGNATURE}=hidden;"),
        }))
    }
}

/// The values of the parts as they were found.
#[derive(Default)]
struct Parts<'a> {
    endpoint: Option<&'a str>,
    key_name: Option<&'a str>,
    key: Option<&'a str>,
    signature: Option<&'a str>,
    hub: Option<&'a str>,
    emulator: Option<&'a str>,
    notes: Vec<String>,
}

impl<'a> Parts<'a> {
    fn take(&mut self, number: usize, part: &'a str) -> Result<(), InvalidConnectionString> {
        let Some((name, value)) = part.split_once('=') else {
            return invalid(format!("has no '=' in its part {number}; each part is Name=value"));
        };
        let (name, value) = (name.trim(), value.trim());
        let is = |known: &str| name.eq_ignore_ascii_case(known);
        let (known, slot) = match () {
            () if is(ENDPOINT) => (ENDPOINT, &mut self.endpoint),
            () if is(KEY_NAME) => (KEY_NAME, &mut self.key_name),
            () if is(KEY) => (KEY, &mut self.key),
            () if is(SIGNATURE) => (SIGNATURE, &mut self.signature),
            () if is(ENTITY_PATH) => (ENTITY_PATH, &mut self.hub),
            () if is(EMULATOR) => (EMULATOR, &mut self.emulator),
            () => return self.unknown(number, name),
        };
        if value.is_empty() {
            return invalid(format!("has no value for {known}"));
        }
        if slot.replace(value).is_some() {
            return invalid(format!("has {known} twice"));
        }
        Ok(())
    }

    fn unknown(&mut self, number: usize, name: &str) -> Result<(), InvalidConnectionString> {
        if let Some(unused) = UNUSED.into_iter().find(|unused| name.eq_ignore_ascii_case(unused)) {
            self.notes.push(format!("{unused} is not used"));
            return Ok(());
        }
        // Only a part that looks like a name is repeated: it may be the end of a key that contains ';'.
        let shown = match name.len() <= 30 && name.bytes().all(|b| b.is_ascii_alphabetic()) {
            true => format!("part {number}, {name:?},"),
            false => format!("part {number}"),
        };
        invalid(format!(
            "has a {shown} that is not known; known are {ENDPOINT}, {KEY_NAME}, {KEY}, {SIGNATURE}, {ENTITY_PATH} \
             and {EMULATOR}"
        ))
    }

    fn resolve(self) -> Result<ConnectionString, InvalidConnectionString> {
        let Some(endpoint) = self.endpoint else {
            return invalid(format!("has no {ENDPOINT}; it begins with {ENDPOINT}=sb://…"));
        };
        let development = self.emulator.map_or(Ok(false), flag)?;
        let (plain_scheme, host, port) = split_endpoint(endpoint)?;
        let credential = match (self.key_name, self.key, self.signature) {
            (Some(name), Some(key), None) => {
                Some(Credential::Key { name: name.to_owned(), key: Key::new(key) })
            }
            (None, None, Some(token)) => Some(Credential::Signature(SecretString::from(token))),
            (None, None, None) => None,
            (Some(_), None, _) => return invalid(format!("has {KEY_NAME} without {KEY}")),
            (None, Some(_), _) => return invalid(format!("has {KEY} without {KEY_NAME}")),
            (Some(_), Some(_), Some(_)) => {
                return invalid(format!("has both {KEY} and {SIGNATURE}; one of them is enough"));
            }
        };
        let hub = match self.hub.map(str::parse::<HubName>) {
            Some(Err(_)) => {
                return invalid(format!(
                    "has an {ENTITY_PATH} that is not the name of a hub: at most 256 letters, digits, dots, \
                     hyphens, underscores and slashes"
                ));
            }
            Some(Ok(hub)) => Some(hub),
            None => None,
        };
        Ok(ConnectionString {
            host,
            port,
            tls: !development && !plain_scheme,
            development,
            hub,
            credential,
            notes: self.notes,
        })
    }
}

/// Parses true or false, in all the ways in which SDKs read them.
fn flag(value: &str) -> Result<bool, InvalidConnectionString> {
    match value.to_ascii_lowercase().as_str() {
        "true" | "1" | "t" => Ok(true),
        "false" | "0" | "f" => Ok(false),
        _ => invalid(format!("has a {EMULATOR} that is neither true nor false")),
    }
}

/// Splits an endpoint: true if the scheme means "without TLS", the host, and the port.
fn split_endpoint(endpoint: &str) -> Result<(bool, Namespace, Option<u16>), InvalidConnectionString> {
    let wrong = |why: &str| InvalidConnectionString(format!("has an {ENDPOINT} {why}"));
    let (scheme, rest) = endpoint.split_once("://").unwrap_or(("sb", endpoint));
    let plain = match scheme.to_ascii_lowercase().as_str() {
        "sb" | "amqps" | "https" | "wss" => false,
        "amqp" | "http" | "ws" => true,
        _ => return Err(wrong("whose scheme is not known; write sb://host")),
    };
    let authority = rest.trim_end_matches('/');
    if authority.contains(['/', '@', '?', '#']) {
        return Err(wrong("with more than a host and a port; the hub belongs in EntityPath"));
    }
    let (host, port) = match authority.rfind(':') {
        // The colons of an IPv6 address are in brackets.
        Some(colon) if !authority[colon..].contains(']') => {
            let port = authority[colon + 1..].parse().ok().filter(|port| *port > 0);
            (&authority[..colon], Some(port.ok_or_else(|| wrong("whose port is not a number up to 65535"))?))
        }
        _ => (authority, None),
    };
    let bracketed = host.starts_with('[') && host.ends_with(']');
    let host = match host.parse::<Namespace>() {
        Ok(name) if bracketed || !host.contains([':', '[', ']']) => name,
        _ => return Err(wrong("without the name of a host; write sb://host or sb://host:port")),
    };
    Ok((plain, host, port))
}

#[cfg(test)]
mod tests;
