//! Credentials, from which a client creates its authentication tokens: the trait, shared access keys, and
//! signatures. Entra ID is in `credential/entra.rs`.
//!
//! A [`Credential`] makes tokens for audiences; a connection puts them on `$cbs` and replaces them before
//! they expire. Connection strings contain a [`SharedKey`] or a [`Signature`]; any other credential is given
//! to [`EventHubBuilder::credential`](crate::EventHubBuilder::credential). With the feature `entra` there is `EntraId`, which
//! wraps the credentials of the Azure SDK.

#[cfg(feature = "entra")]
mod entra;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::time::{Clock, Timestamp};
use ephor_core::{BoxError, BoxFuture};
use ephor_runtime::environment::SystemClock;
use ephor_wire::connection_string;
use ephor_wire::sas::{self, Key};
use secrecy::{ExposeSecret, SecretString};

#[cfg(feature = "entra")]
pub use entra::{EntraId, SCOPE};
pub use ephor_wire::cbs::TokenKind;

/// A token that authorizes its bearer for a limited time.
#[derive(Clone)]
pub struct Token {
    /// The kind of the token.
    pub kind: TokenKind,
    /// The token itself.
    pub text: SecretString,
    /// The time at which the token expires.
    pub expires_at: Timestamp,
}

impl fmt::Debug for Token {
    /// Leaves the token out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Token({:?} until {})", self.kind, self.expires_at)
    }
}

/// The reason why there is no token. It is shown to users, so it must not contain secrets.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokenError {
    /// The issuer refused, and a retry would not help.
    #[error("no token: {0}")]
    Refused(#[source] BoxError),
    /// A failure that may pass.
    #[error("no token: {0}")]
    Unavailable(#[source] BoxError),
}

/// Makes tokens.
pub trait Credential: Send + Sync + fmt::Debug + 'static {
    /// Returns a token for an audience such as `sb://host/hub/ConsumerGroups/$Default/Partitions/0`.
    ///
    /// It is called again when a quarter of a token's life is left, and then at shorter and shorter intervals
    /// until it returns a token that expires later; so a credential may cache a token for as long as it
    /// likes.
    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, TokenError>>;
}

/// The default life of a token that is signed with a key.
pub const DEFAULT_TOKEN_LIFE: Duration = Duration::from_secs(60 * 60);

/// Signs tokens with a shared access key.
#[derive(Clone)]
pub struct SharedKey {
    name: String,
    key: Key,
    life: Duration,
    clock: Arc<dyn Clock>,
}

impl SharedKey {
    /// Creates a credential from the key's name and the key's text.
    pub fn new(name: impl Into<String>, key: Key) -> Self {
        Self { name: name.into(), key, life: DEFAULT_TOKEN_LIFE, clock: Arc::new(SystemClock) }
    }

    /// Sets the life of the tokens.
    pub fn with_life(self, life: Duration) -> Self {
        Self { life, ..self }
    }
}

impl fmt::Debug for SharedKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SharedKey({:?}, hidden)", self.name)
    }
}

impl Credential for SharedKey {
    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, TokenError>> {
        let expires_at = self.clock.wall() + self.life;
        // A token's expiry is in whole seconds. Rounded down, it would be before the time that renewal is
        // based on.
        let expires_at = Timestamp(expires_at.0.saturating_add(999).div_euclid(1_000).saturating_mul(1_000));
        let text = SecretString::from(sas::sign(audience, &self.name, &self.key, expires_at));
        Box::pin(std::future::ready(Ok(Token { kind: TokenKind::Sas, text, expires_at })))
    }
}

/// A token that was signed elsewhere. It cannot be renewed: links end when it expires.
#[derive(Clone)]
pub struct Signature(Token);

impl Signature {
    /// Reads the expiry time of the token; the hub judges the rest.
    pub fn new(text: SecretString) -> Result<Self, sas::InvalidToken> {
        let expires_at = sas::Token::parse(text.expose_secret())?.expires_at();
        Ok(Self(Token { kind: TokenKind::Sas, text, expires_at }))
    }
}

impl fmt::Debug for Signature {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Signature(until {}, hidden)", self.0.expires_at)
    }
}

impl Credential for Signature {
    fn token<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Token, TokenError>> {
        Box::pin(std::future::ready(Ok(self.0.clone())))
    }
}

/// Wraps a credential on a connection without TLS and refuses bearer tokens: anyone who reads such a token
/// could use it wherever its owner is authorized.
#[derive(Debug)]
pub(crate) struct WithoutTls(pub(crate) Arc<dyn Credential>);

impl Credential for WithoutTls {
    fn token<'a>(&'a self, audience: &'a str) -> BoxFuture<'a, Result<Token, TokenError>> {
        Box::pin(async move {
            let token = self.0.token(audience).await?;
            match token.kind {
                TokenKind::Sas => Ok(token),
                TokenKind::Jwt => Err(TokenError::Refused(
                    "a token of Entra ID is never sent without TLS; leave UseDevelopmentEmulator=true, or a scheme such \
                     as amqp://, out of the connection string, or use a shared access key"
                        .into(),
                )),
            }
        })
    }
}

/// Creates the credential of a connection string.
pub(crate) fn of(
    credential: connection_string::Credential,
    life: Duration,
) -> Result<Arc<dyn Credential>, sas::InvalidToken> {
    Ok(match credential {
        connection_string::Credential::Key { name, key } => {
            Arc::new(SharedKey::new(name, key).with_life(life))
        }
        connection_string::Credential::Signature(text) => Arc::new(Signature::new(text)?),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_key_signs_what_it_is_asked_for_and_shows_itself_nowhere() {
        let credential = SharedKey::new("root", Key::new("canary-key")).with_life(Duration::from_secs(60));
        let token = credential.token("sb://localhost/hub").await.unwrap();
        let read = sas::Token::parse(token.text.expose_secret()).unwrap();
        assert!(read.is_signed_by(&Key::new("canary-key")));
        assert_eq!(read.key_name(), "root");
        let left = token.expires_at.since(SystemClock.wall());
        assert!(left <= Duration::from_secs(61) && left > Duration::from_secs(50), "{left:?}");
        assert_eq!(read.expires_at(), token.expires_at);
        let shown = format!("{credential:?} {token:?}");
        assert!(!shown.contains("canary") && !shown.contains("sig="), "{shown}");
    }

    #[tokio::test]
    async fn a_signature_is_given_out_as_it_came_until_its_time_is_over() {
        let text =
            sas::sign("sb://localhost/hub", "root", &Key::new("canary-key"), Timestamp(1_800_000_000_000));
        let credential = Signature::new(SecretString::from(text.clone())).unwrap();
        let token = credential.token("sb://localhost/hub/Partitions/0").await.unwrap();
        assert_eq!(token.text.expose_secret(), text);
        assert_eq!(token.expires_at, Timestamp(1_800_000_000_000));
        assert!(!format!("{credential:?}").contains("sig="));
        assert!(Signature::new(SecretString::from("canary")).is_err());
    }
}
