//! `$cbs`: a token is put for an audience, and from then on permits what it permits.
//!
//! The answer is 202, `Accepted`: one SDK takes nothing else for a success.

use std::fmt;

use ephor_amqp::encode;
use ephor_core::time::Timestamp;

use crate::address::MAX_ADDRESS_LENGTH;
use crate::condition::{Condition, Refusal};
use crate::exchange::{Ask, Request, RequestId, write_request, write_response};
use crate::quote::quoted;

const PUT_TOKEN: &str = "put-token";
const ACCEPTED: i32 = 202;

/// What kind of token it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A shared access signature.
    Sas,
    /// A token of Entra ID.
    Jwt,
}

impl TokenKind {
    /// Its name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sas => "servicebus.windows.net:sastoken",
            Self::Jwt => "jwt",
        }
    }
}

/// A token on its way to a hub.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PutToken<'a> {
    /// What it is for.
    pub audience: &'a str,
    /// What kind it is.
    pub kind: TokenKind,
    /// The token.
    pub token: &'a str,
    /// Until when it counts, if the client tells.
    pub expires_at: Option<Timestamp>,
}

impl fmt::Debug for PutToken<'_> {
    /// Without the token.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PutToken({:?} for {:?})", self.kind, quoted(self.audience))
    }
}

impl<'a> PutToken<'a> {
    /// Understands a request.
    pub fn of(request: &Request<'a>) -> Result<Self, Refusal> {
        let bad = |text: &str| Refusal::new(Condition::ArgumentError, text);
        if request.operation != PUT_TOKEN {
            return Err(Refusal::new(Condition::NotImplemented, "The operation is not put-token."));
        }
        let kind = [TokenKind::Sas, TokenKind::Jwt]
            .into_iter()
            .find(|kind| request.kind.eq_ignore_ascii_case(kind.name()))
            .ok_or_else(|| bad("The type of the token is not supported."))?;
        let audience = request
            .name
            .filter(|name| !name.is_empty() && name.len() <= MAX_ADDRESS_LENGTH)
            .ok_or_else(|| bad("The request names no audience."))?;
        let token = request.text.ok_or_else(|| bad("The body is not a token."))?;
        Ok(Self { audience, kind, token, expires_at: request.expires_at })
    }

    /// Writes the request at the end of `into`.
    pub fn write(&self, id: &RequestId, reply_to: &str, into: &mut Vec<u8>) {
        let texts = [("operation", PUT_TOKEN), ("type", self.kind.name()), ("name", self.audience)];
        let ask = Ask { texts: &texts, expires_at: self.expires_at, body: Some(self.token) };
        write_request(id, reply_to, &ask, into);
    }
}

/// Writes the response that says no: by status and text alone. Azure's Python SDK shows neither of them if there
/// is an `error-condition` beside.
pub fn write_refused(id: Option<&RequestId>, refusal: &Refusal, into: &mut Vec<u8>) {
    write_response(id, refusal.condition.status(), &refusal.text, None, into, encode::null);
}

/// Writes the response that says yes.
pub fn write_accepted(id: Option<&RequestId>, into: &mut Vec<u8>) {
    write_response(id, ACCEPTED, "Accepted", None, into, encode::null);
}
