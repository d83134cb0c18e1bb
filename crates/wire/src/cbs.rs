//! Encodes and decodes the messages of `$cbs` (claims-based security): the request with which a client puts a
//! token for an audience, and the answers. Tokens are verified in `sas/key_ring.rs`.
//!
//! The success status is 202, `Accepted`: one SDK accepts no other.

use std::fmt;

use ephor_amqp::encode;
use ephor_core::time::Timestamp;

use crate::address::MAX_ADDRESS_LENGTH;
use crate::condition::{Condition, Refusal};
use crate::peer_text::quoted;
use crate::request_response::{
    Request, RequestContent, RequestId, ResponseHead, write_request, write_response,
};

const PUT_TOKEN: &str = "put-token";
const ACCEPTED: i32 = 202;

/// The kind of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// A shared access signature.
    Sas,
    /// A token of Entra ID.
    Jwt,
}

impl TokenKind {
    /// The kind's name on the wire.
    pub fn name(self) -> &'static str {
        match self {
            Self::Sas => "servicebus.windows.net:sastoken",
            Self::Jwt => "jwt",
        }
    }
}

/// A request to put a token.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PutToken<'a> {
    /// The URI that the token is for.
    pub audience: &'a str,
    /// The kind of the token.
    pub kind: TokenKind,
    /// The token.
    pub token: &'a str,
    /// The time at which the token expires, if the client sends it.
    pub expires_at: Option<Timestamp>,
}

impl fmt::Debug for PutToken<'_> {
    /// Leaves the token out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PutToken({:?} for {:?})", self.kind, quoted(self.audience))
    }
}

impl<'a> PutToken<'a> {
    /// Parses a request.
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

    /// Appends the request to `into`.
    pub fn write(&self, id: &RequestId, reply_to: &str, into: &mut Vec<u8>) {
        let texts = [("operation", PUT_TOKEN), ("type", self.kind.name()), ("name", self.audience)];
        let content = RequestContent { texts: &texts, expires_at: self.expires_at, body: Some(self.token) };
        write_request(id, reply_to, &content, into);
    }
}

/// Writes an error response, with the condition that the service uses for a token.
///
/// Azure's Python SDK shows neither status nor text if there is a condition, here as with the service.
pub fn write_refused(id: Option<&RequestId>, refusal: &Refusal, into: &mut Vec<u8>) {
    let condition = match &refusal.condition {
        Condition::UnauthorizedAccess => &Condition::AuthFailed,
        condition => condition,
    };
    let head =
        ResponseHead { status: condition.status(), description: &refusal.text, ..ResponseHead::of(id) };
    write_response(&ResponseHead { condition: Some(condition), ..head }, into, encode::null);
}

/// Writes the success response.
pub fn write_accepted(id: Option<&RequestId>, into: &mut Vec<u8>) {
    let head = ResponseHead { status: ACCEPTED, description: "Accepted", ..ResponseHead::of(id) };
    write_response(&head, into, encode::null);
}
