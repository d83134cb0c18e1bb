//! Fetches Entra ID tokens through any credential of the Azure SDK for Rust.

use std::error::Error;
use std::fmt;
use std::sync::Arc;

use azure_core::credentials::TokenCredential;
use azure_core::error::ErrorKind;
use azure_core::http::StatusCode;
use ephor_core::BoxFuture;
use ephor_core::time::Timestamp;
use secrecy::SecretString;

use super::{Credential, Token, TokenError, TokenKind};

/// The scope of the requested token: everything that its owner may do with event hubs.
pub const SCOPE: &str = "https://eventhubs.azure.net/.default";

/// Authenticates applications, managed identities and people with Entra ID instead of keys.
///
/// It takes any credential of the crate `azure_identity`, or one of your own. **Untried:** it has never run
/// against Azure itself; Ephor's own hub knows keys only, and refuses these tokens with a clear error.
///
/// ```no_run
/// use std::sync::Arc;
///
/// use azure_core::credentials::TokenCredential;
/// use ephor::eventhubs::{EntraId, EventHub, InvalidOptions};
///
/// /// Such as `azure_identity::ManagedIdentityCredential::new(None)?`.
/// fn hub(credential: Arc<dyn TokenCredential>) -> Result<EventHub, InvalidOptions> {
///     EventHub::at("contoso.servicebus.windows.net").hub("homes").credential(EntraId::new(credential)).build()
/// }
/// ```
#[derive(Clone)]
pub struct EntraId(Arc<dyn TokenCredential>);

impl EntraId {
    /// Wraps a credential. It is called for each link, and is expected to cache a token until shortly before
    /// it expires, as those of `azure_identity` do.
    pub fn new(credential: Arc<dyn TokenCredential>) -> Self {
        Self(credential)
    }
}

impl fmt::Debug for EntraId {
    /// Leaves the credential out, because its `Debug` may show secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("EntraId(hidden)")
    }
}

impl Credential for EntraId {
    /// The audience is ignored: one token covers everything that its owner may do.
    fn token<'a>(&'a self, _: &'a str) -> BoxFuture<'a, Result<Token, TokenError>> {
        Box::pin(async move {
            let token = self.0.get_token(&[SCOPE], None).await.map_err(sorted)?;
            let milliseconds = token.expires_on.unix_timestamp_nanos() / 1_000_000;
            Ok(Token {
                kind: TokenKind::Jwt,
                text: SecretString::from(token.token.secret()),
                expires_at: Timestamp(i64::try_from(milliseconds).unwrap_or(i64::MAX)),
            })
        })
    }
}

/// Classifies an error: with these statuses Entra ID refuses for good; any other failure may pass.
fn sorted(error: azure_core::Error) -> TokenError {
    const FINAL: [StatusCode; 3] = [StatusCode::BadRequest, StatusCode::Unauthorized, StatusCode::Forbidden];
    let mut cause: Option<&(dyn Error + 'static)> = Some(&error);
    while let Some(found) = cause {
        if let Some(ErrorKind::HttpResponse { status, .. }) =
            found.downcast_ref().map(azure_core::Error::kind)
            && FINAL.contains(status)
        {
            return TokenError::Refused(error.into());
        }
        cause = found.source();
    }
    TokenError::Unavailable(error.into())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn response(status: StatusCode) -> azure_core::Error {
        let kind = ErrorKind::HttpResponse { status, error_code: None, raw_response: None };
        azure_core::Error::with_message(kind, "said no")
    }

    #[test]
    fn what_entra_id_refuses_is_refused_and_the_rest_may_pass() {
        let refused = |error| matches!(sorted(error), TokenError::Refused(_));
        for status in [400, 401, 403] {
            assert!(refused(response(StatusCode::from(status))), "{status}");
        }
        for status in [404, 408, 410, 429, 500, 503] {
            assert!(!refused(response(StatusCode::from(status))), "{status}");
        }
        let wrapped =
            azure_core::Error::with_error(ErrorKind::Credential, response(StatusCode::Unauthorized), "outer");
        assert!(refused(wrapped));
        assert!(!refused(azure_core::Error::with_message(ErrorKind::Io, "no route")));
        assert!(!refused(azure_core::Error::with_message(ErrorKind::Credential, "the tool is asleep")));
    }
}
