//! Shared access signatures: tokens that prove the possession of a key without revealing it.
//!
//! ```text
//! SharedAccessSignature sr=<enc(uri)>&sig=<enc(base64(hmac))>&se=<unix seconds>&skn=<name of the key>
//! hmac = HMAC-SHA256(key as it is written, <enc(uri)> "\n" <unix seconds>)
//! ```
//!
//! The key is never base64-decoded. The signed text is the URI as it is encoded in the token: SDKs encode the
//! same URI in different ways, so a verifier takes it as it came. The fields come in any order.

mod claims;
mod key_ring;
mod scope;

use std::fmt;
use std::time::Duration;

use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use ephor_core::time::Timestamp;
use hmac::{Hmac, Mac};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};
use secrecy::{ExposeSecret, SecretString};
use sha2::Sha256;

pub use claims::Claims;
pub use key_ring::{Grant, KeyRing, SharedKey};
pub use scope::Scope;

/// The time for which a token is still accepted after it expired. The original .NET client renews its token 10
/// seconds after it expired, and works that way with the service; and clocks of two machines differ by some
/// seconds.
pub const EXPIRY_GRACE: Duration = Duration::from_secs(30);

/// The maximum length of a token, in bytes. A longer one is refused before it is parsed.
pub const MAX_TOKEN_LENGTH: usize = 8192;

const PREFIX: &str = "SharedAccessSignature";

/// All characters except those that RFC 3986 calls unreserved.
const ENCODED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');

/// A shared access key. `Debug` hides it; only [`Key::reveal`] returns it. It is wiped from memory when
/// dropped.
#[derive(Clone)]
pub struct Key(SecretString);

impl Key {
    /// Creates a key from its text in a connection string.
    pub fn new(text: &str) -> Self {
        Self(SecretString::from(text))
    }

    /// The key itself.
    pub fn reveal(&self) -> &str {
        self.0.expose_secret()
    }

    fn mac(&self, resource: &str, expiry: &str) -> Hmac<Sha256> {
        let mut mac = Hmac::<Sha256>::new_from_slice(self.reveal().as_bytes())
            .expect("a key of any length makes a signature");
        mac.update(resource.as_bytes());
        mac.update(b"\n");
        mac.update(expiry.as_bytes());
        mac
    }
}

impl fmt::Debug for Key {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Key(hidden)")
    }
}

/// The reason why a token was refused. The first words are the service's.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidToken {
    /// The text is not a token.
    #[error("MalformedToken: The token is not of the form SharedAccessSignature sr=…&sig=…&se=…&skn=….")]
    Malformed,
    /// A key of this name is known, but it did not sign the token.
    #[error("InvalidSignature: The token has an invalid signature.")]
    Signature,
    /// No key of this name is known. The text is that of a wrong signature; see [`InvalidToken::names_the_request`].
    #[error("InvalidSignature: The token has an invalid signature.")]
    UnknownKey,
    /// The token is for another resource.
    #[error("InvalidAudience: The authorization header contains a token with a wrong audience.")]
    Audience,
    /// The token has expired.
    #[error("ExpiredToken: The token is expired.")]
    Expired,
}

impl InvalidToken {
    /// True if the answer to `put-token` names the request, so that it can be found in the hub's log. The service
    /// leaves that out if a known key did not sign the token (REC: 34 of 34), and does it if no key has the name
    /// (REC: 34 of 34). So it tells which names keys have, and names are not secret. What it does for the other
    /// reasons is not known.
    pub fn names_the_request(self) -> bool {
        self != Self::Signature
    }
}

/// Signs a token for everything at and below `resource`, a URI such as `sb://host/hub`.
pub fn sign(resource: &str, key_name: &str, key: &Key, expires_at: Timestamp) -> String {
    let resource = utf8_percent_encode(resource, ENCODED).to_string();
    let expiry = expires_at.0.div_euclid(1000).max(0).to_string();
    let signature = BASE64.encode(key.mac(&resource, &expiry).finalize().into_bytes());
    let signature = utf8_percent_encode(&signature, ENCODED);
    let key_name = utf8_percent_encode(key_name, ENCODED);
    format!("{PREFIX} sr={resource}&sig={signature}&se={expiry}&skn={key_name}")
}

/// A parsed token. Nothing in it is trustworthy before it is verified.
#[derive(Clone)]
pub struct Token<'a> {
    /// The encoded URI, as it was signed.
    resource: &'a str,
    expiry: &'a str,
    signature: Vec<u8>,
    expires_at: Timestamp,
    key_name: String,
}

impl fmt::Debug for Token<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Token")
            .field("resource", &self.resource)
            .field("key_name", &self.key_name)
            .field("expires_at", &self.expires_at)
            .finish_non_exhaustive()
    }
}

impl<'a> Token<'a> {
    /// Parses a token.
    pub fn parse(text: &'a str) -> Result<Self, InvalidToken> {
        if text.len() > MAX_TOKEN_LENGTH {
            return Err(InvalidToken::Malformed);
        }
        Self::fields(text).ok_or(InvalidToken::Malformed)
    }

    fn fields(text: &'a str) -> Option<Self> {
        let (prefix, fields) = text.trim().split_once(' ')?;
        if !prefix.eq_ignore_ascii_case(PREFIX) {
            return None;
        }
        let (mut resource, mut signature, mut expiry, mut key_name) = (None, None, None, None);
        for (name, value) in fields.trim_start().split('&').filter_map(|field| field.split_once('=')) {
            let slot = match name {
                "sr" => &mut resource,
                "sig" => &mut signature,
                "se" => &mut expiry,
                "skn" => &mut key_name,
                _ => continue,
            };
            if slot.replace(value).is_some() {
                return None;
            }
        }
        let decoded = |text: &str| percent_decode_str(text).decode_utf8().map(String::from).ok();
        let expiry = expiry?;
        let seconds: u64 = expiry.parse().ok()?;
        let milliseconds = i64::try_from(seconds).ok()?.saturating_mul(1000);
        Some(Self {
            resource: resource?,
            expiry,
            signature: BASE64.decode(decoded(signature?)?).ok()?,
            expires_at: Timestamp(milliseconds),
            key_name: decoded(key_name?)?,
        })
    }

    /// The resource that the token is for; none if it cannot be parsed.
    pub fn scope(&self) -> Option<Scope> {
        let resource = percent_decode_str(self.resource).decode_utf8().ok()?;
        Scope::of_token(&resource)
    }

    /// The name of the key.
    pub fn key_name(&self) -> &str {
        &self.key_name
    }

    /// The time at which the token expires.
    pub fn expires_at(&self) -> Timestamp {
        self.expires_at
    }

    /// True if this key signed the token; compared in constant time.
    pub fn is_signed_by(&self, key: &Key) -> bool {
        key.mac(self.resource, self.expiry).verify_slice(&self.signature).is_ok()
    }
}

#[cfg(test)]
mod tests;
