//! Encodes and decodes the request and response messages of `$cbs` and `$management`.
//!
//! | | properties | application-properties | body |
//! |---|---|---|---|
//! | request | message-id, reply-to | `operation`, `type`, `name`, … | the token, or anything, or none |
//! | response | correlation-id | `status-code` int, `status-description` string | a value |
//!
//! A response repeats the request's id in its own type and to the letter: SDKs compare UUIDs, strings and
//! numbers as such. Keys are written with hyphens, which all SDKs read; our reader accepts camel case, too.

mod section;

use std::fmt;

use ephor_amqp::format_codes::section as descriptor;
use ephor_amqp::{Malformed, Reader, Value, encode};
use ephor_core::time::Timestamp;

use crate::condition::{Condition, Refusal};
use crate::peer_text::quoted;

/// The maximum length of a request id, in bytes. A longer one is refused, because it is kept until the answer
/// is sent.
pub const MAX_ID_LENGTH: usize = 256;

/// The maximum length of a text in a request, in bytes. The longest texts that clients send are tokens of
/// Entra ID.
pub const MAX_TEXT_LENGTH: usize = 32 << 10;

/// The number of fields in the properties section. All are written: some SDKs read them by position.
const FIELDS: usize = 13;
const MESSAGE_ID: usize = 0;
const REPLY_TO: usize = 4;
const CORRELATION_ID: usize = 5;

/// Correlates a response with its request: an encoded value.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct RequestId(Box<[u8]>);

impl RequestId {
    /// A numeric id.
    pub fn number(number: u64) -> Self {
        let mut encoded = Vec::new();
        encode::ulong(&mut encoded, number);
        Self(encoded.into())
    }

    /// The number, if the id is one.
    pub fn as_number(&self) -> Option<u64> {
        match Reader::new(&self.0).value() {
            Ok(Value::Ulong(number)) => Some(number),
            _ => None,
        }
    }

    fn read(encoded: &[u8], at: usize) -> Result<Self, Malformed> {
        if encoded.len() > MAX_ID_LENGTH {
            return Err(Malformed::new(at, "an id that is too long"));
        }
        Ok(Self(encoded.into()))
    }
}

/// A parsed request that is not checked yet.
#[derive(Clone)]
pub struct Request<'a> {
    /// The id that the response has to repeat; none if the client sent none.
    pub id: Option<RequestId>,
    /// The address for the response.
    pub reply_to: Option<&'a str>,
    /// The operation; empty if absent.
    pub operation: &'a str,
    /// The type of the entity or of the token; empty if absent.
    pub kind: &'a str,
    /// The name of the entity, or the audience of the token.
    pub name: Option<&'a str>,
    /// The partition.
    pub partition: Option<&'a str>,
    /// The token that authorizes this request, from clients that send one with every request.
    pub security_token: Option<&'a str>,
    /// The time at which the token expires.
    pub expires_at: Option<Timestamp>,
    /// The body, if it is text.
    pub text: Option<&'a str>,
}

impl fmt::Debug for Request<'_> {
    /// Leaves tokens out.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("operation", &quoted(self.operation))
            .field("kind", &quoted(self.kind))
            .field("name", &self.name.map(quoted))
            .field("partition", &self.partition.map(quoted))
            .finish_non_exhaustive()
    }
}

impl<'a> Request<'a> {
    /// Parses a request. Only its form is checked here.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let mut request = Self {
            id: None,
            reply_to: None,
            operation: "",
            kind: "",
            name: None,
            partition: None,
            security_token: None,
            expires_at: None,
            text: None,
        };
        section::each(message, |code, value| {
            match code {
                descriptor::PROPERTIES => {
                    section::fields(message, value, |index, field| {
                        let encoded = &message[field.clone()];
                        match index {
                            MESSAGE_ID => request.id = Some(RequestId::read(encoded, field.start)?),
                            REPLY_TO => request.reply_to = Reader::new(encoded).value()?.text(),
                            _ => {}
                        }
                        Ok(())
                    })?;
                }
                descriptor::APPLICATION_PROPERTIES => {
                    section::pairs(message, value, |name, held| request.property(name, held))?;
                }
                descriptor::AMQP_VALUE => request.text = bounded(Reader::new(&message[value]).value()?)?,
                _ => {}
            }
            Ok(())
        })?;
        Ok(request)
    }

    fn property(&mut self, name: &str, held: Value<'a>) -> Result<(), Malformed> {
        match name {
            "operation" => self.operation = bounded(held)?.unwrap_or_default(),
            "type" => self.kind = bounded(held)?.unwrap_or_default(),
            "name" => self.name = bounded(held)?,
            "partition" => self.partition = bounded(held)?,
            "security_token" => self.security_token = bounded(held)?,
            "expiration" => self.expires_at = expiration(held),
            _ => {}
        }
        Ok(())
    }
}

fn bounded(value: Value<'_>) -> Result<Option<&str>, Malformed> {
    match value.text() {
        Some(text) if text.len() > MAX_TEXT_LENGTH => Err(Malformed::new(0, "a text that is too long")),
        text => Ok(text),
    }
}

/// Reads a time: a timestamp, or, as the Go SDK writes it, a text with seconds.
fn expiration(value: Value<'_>) -> Option<Timestamp> {
    match value {
        Value::Timestamp(milliseconds) => Some(Timestamp(milliseconds)),
        value => value.text()?.parse::<i64>().ok().map(|seconds| Timestamp(seconds.saturating_mul(1000))),
    }
}

/// The content of a request other than its id: text properties, an expiry time if there is one, and a body.
pub(crate) struct RequestContent<'a> {
    pub(crate) texts: &'a [(&'a str, &'a str)],
    pub(crate) expires_at: Option<Timestamp>,
    pub(crate) body: Option<&'a str>,
}

/// Appends a request to `into`.
pub(crate) fn write_request(
    id: &RequestId,
    reply_to: &str,
    content: &RequestContent<'_>,
    into: &mut Vec<u8>,
) {
    let mut reply = Vec::new();
    encode::string(&mut reply, reply_to);
    write_properties(&[(MESSAGE_ID, &id.0), (REPLY_TO, &reply)], into);
    encode::described(into, descriptor::APPLICATION_PROPERTIES.into());
    let map = encode::begin(into);
    for (name, text) in content.texts {
        encode::string(into, name);
        encode::string(into, text);
    }
    if let Some(time) = content.expires_at {
        encode::string(into, "expiration");
        encode::timestamp(into, time.0);
    }
    encode::end_map(into, map, content.texts.len() + usize::from(content.expires_at.is_some()));
    encode::described(into, descriptor::AMQP_VALUE.into());
    match content.body {
        Some(text) => encode::string(into, text),
        None => encode::null(into),
    }
}

/// The content of a response other than its body.
#[derive(Clone, Copy)]
pub(crate) struct ResponseHead<'a> {
    /// The id of the request.
    pub(crate) id: Option<&'a RequestId>,
    pub(crate) status: i32,
    pub(crate) description: &'a str,
    pub(crate) condition: Option<&'a Condition>,
    /// The operation, which `$management` repeats.
    pub(crate) operation: Option<&'a str>,
}

impl<'a> ResponseHead<'a> {
    /// The head of a response to this request, with nothing else.
    pub(crate) fn of(id: Option<&'a RequestId>) -> Self {
        Self { id, status: 0, description: "", condition: None, operation: None }
    }
}

/// Appends the response to a request to `into`; `body` writes one value.
pub(crate) fn write_response(head: &ResponseHead<'_>, into: &mut Vec<u8>, body: impl FnOnce(&mut Vec<u8>)) {
    let ResponseHead { id, status, description, condition, operation } = *head;
    let correlation = id.map(|id| (CORRELATION_ID, &*id.0));
    write_properties(correlation.as_slice(), into);
    encode::described(into, descriptor::APPLICATION_PROPERTIES.into());
    let map = encode::begin(into);
    if let Some(operation) = operation {
        encode::string(into, "operation");
        encode::string(into, operation);
    }
    encode::string(into, "status-code");
    encode::int(into, status);
    encode::string(into, "status-description");
    encode::string(into, description);
    if let Some(condition) = condition {
        encode::string(into, "error-condition");
        encode::symbol(into, condition.symbol());
    }
    encode::end_map(into, map, 2 + usize::from(condition.is_some()) + usize::from(operation.is_some()));
    encode::described(into, descriptor::AMQP_VALUE.into());
    body(into);
}

/// Writes an error response.
pub fn write_refusal(id: Option<&RequestId>, refusal: &Refusal, into: &mut Vec<u8>) {
    let Refusal { condition, text } = refusal;
    let head = ResponseHead { status: condition.status(), description: text, ..ResponseHead::of(id) };
    write_response(&ResponseHead { condition: Some(condition), ..head }, into, encode::null);
}

fn write_properties(fields: &[(usize, &[u8])], into: &mut Vec<u8>) {
    encode::described(into, descriptor::PROPERTIES.into());
    let list = encode::begin(into);
    for index in 0..FIELDS {
        match fields.iter().find(|(field, _)| *field == index) {
            Some((_, encoded)) => into.extend_from_slice(encoded),
            None => encode::null(into),
        }
    }
    encode::end_list(into, list, FIELDS);
}

/// A response, as a client reads it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Response<'a> {
    /// The id of the request that it answers.
    pub id: Option<RequestId>,
    /// The status: 200 to 299 is a success.
    pub status: i32,
    /// The description of the status.
    pub description: Option<&'a str>,
    /// The error condition, if the response has one.
    pub condition: Option<&'a str>,
    /// The value of the body, encoded.
    pub body: Option<&'a [u8]>,
}

impl<'a> Response<'a> {
    /// Reads a response.
    pub fn read(message: &'a [u8]) -> Result<Self, Malformed> {
        let (mut id, mut status, mut description, mut condition, mut body) = (None, None, None, None, None);
        section::each(message, |code, value| {
            match code {
                descriptor::PROPERTIES => {
                    section::fields(message, value, |index, field| {
                        if index == CORRELATION_ID {
                            id = Some(RequestId::read(&message[field.clone()], field.start)?);
                        }
                        Ok(())
                    })?;
                }
                descriptor::APPLICATION_PROPERTIES => {
                    section::pairs(message, value, |name, held| {
                        match name {
                            "status-code" | "statusCode" => status = whole(held),
                            "status-description" | "statusDescription" => description = bounded(held)?,
                            "error-condition" | "errorCondition" => condition = bounded(held)?,
                            _ => {}
                        }
                        Ok(())
                    })?;
                }
                descriptor::AMQP_VALUE => body = Some(&message[value]),
                _ => {}
            }
            Ok(())
        })?;
        let status = status.ok_or(Malformed::new(0, "a response without a status"))?;
        Ok(Self { id, status, description, condition, body })
    }

    /// Returns an error unless the status is a success.
    pub fn accepted(&self) -> Result<(), Refusal> {
        if (200..300).contains(&self.status) {
            return Ok(());
        }
        let condition = match self.condition {
            Some(symbol) if !symbol.is_empty() => Condition::of(symbol),
            _ => condition_of(self.status),
        };
        let text = self.description.map_or_else(|| format!("status {}", self.status), quoted);
        Err(Refusal::new(condition, text))
    }
}

fn whole(value: Value<'_>) -> Option<i32> {
    match value {
        Value::Int(number) => Some(number),
        Value::Uint(number) => number.try_into().ok(),
        Value::Long(number) => number.try_into().ok(),
        Value::Ulong(number) => number.try_into().ok(),
        Value::Short(number) => Some(number.into()),
        Value::Ushort(number) => Some(number.into()),
        _ => None,
    }
}

/// The condition for a status, if a response has no condition: the table of the JavaScript SDK.
fn condition_of(status: i32) -> Condition {
    match status {
        400 => Condition::ArgumentError,
        401 => Condition::UnauthorizedAccess,
        403 => Condition::ResourceLimitExceeded,
        404 => Condition::NotFound,
        408 => Condition::Timeout,
        410 => Condition::DetachForced,
        501 => Condition::NotImplemented,
        503 => Condition::ServerBusy,
        _ => Condition::InternalError,
    }
}

#[cfg(test)]
mod tests;
