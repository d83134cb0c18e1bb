//! `error`: the reason why a link, a session or a connection ended, or a delivery was rejected; with the
//! conditions of the specification. Those of Event Hubs are in `ephor-wire`.

use std::borrow::Cow;

use super::descriptor;
use super::fields::{FieldWriter, Fields};
use crate::encoded::Encoded;
use crate::performative::BadPerformative;

/// The conditions of the specification that are used here (part 2, sections 2.8.15 to 2.8.18).
#[allow(missing_docs, reason = "the names are those of the specification and say all there is")]
pub mod condition {
    pub const INTERNAL_ERROR: &str = "amqp:internal-error";
    pub const NOT_FOUND: &str = "amqp:not-found";
    pub const UNAUTHORIZED_ACCESS: &str = "amqp:unauthorized-access";
    pub const DECODE_ERROR: &str = "amqp:decode-error";
    pub const RESOURCE_LIMIT_EXCEEDED: &str = "amqp:resource-limit-exceeded";
    pub const NOT_ALLOWED: &str = "amqp:not-allowed";
    pub const INVALID_FIELD: &str = "amqp:invalid-field";
    pub const NOT_IMPLEMENTED: &str = "amqp:not-implemented";
    pub const FRAME_SIZE_TOO_SMALL: &str = "amqp:frame-size-too-small";
    pub const CONNECTION_FORCED: &str = "amqp:connection:forced";
    pub const FRAMING_ERROR: &str = "amqp:connection:framing-error";
    pub const HANDLE_IN_USE: &str = "amqp:session:handle-in-use";
    pub const UNATTACHED_HANDLE: &str = "amqp:session:unattached-handle";
    pub const WINDOW_VIOLATION: &str = "amqp:session:window-violation";
    pub const ERRANT_LINK: &str = "amqp:session:errant-link";
    pub const DETACH_FORCED: &str = "amqp:link:detach-forced";
    pub const LINK_STOLEN: &str = "amqp:link:stolen";
    pub const MESSAGE_SIZE_EXCEEDED: &str = "amqp:link:message-size-exceeded";
    pub const TRANSFER_LIMIT_EXCEEDED: &str = "amqp:link:transfer-limit-exceeded";
}

/// A condition for programs, and a description for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// A symbol, such as one of [`condition`].
    pub condition: Cow<'static, str>,
    /// A text for people.
    pub description: Option<String>,
    /// More information, a map.
    pub info: Option<Encoded>,
}

impl Error {
    /// An error with a description.
    pub fn new(condition: impl Into<Cow<'static, str>>, description: impl Into<String>) -> Self {
        Self { condition: condition.into(), description: Some(description.into()), info: None }
    }

    /// The error of a message that is larger than its link allows, in the words of Azure Event Hubs.
    pub fn too_large(delivery: u32, size: u64, limit: u64) -> Self {
        let description = format!(
            "The received message (delivery-id:{delivery}, size:{size} bytes) exceeds the limit ({limit} bytes) \
             currently allowed on the link."
        );
        Self::new(condition::MESSAGE_SIZE_EXCEEDED, description)
    }

    /// The description, or an empty text.
    pub fn description(&self) -> &str {
        self.description.as_deref().unwrap_or_default()
    }

    pub(super) fn read(mut fields: Fields<'_>) -> Result<Self, BadPerformative> {
        let condition = fields.text("condition")?;
        Ok(Self {
            condition: fields.need(condition, "condition")?.into(),
            description: fields.text("description")?,
            info: fields.encoded()?,
        })
    }

    pub(super) fn write(&self, into: &mut Vec<u8>) {
        FieldWriter::new(into, descriptor::ERROR)
            .symbol(&*self.condition)
            .string(self.description.as_deref())
            .encoded(self.info.as_ref())
            .end();
    }
}

impl std::fmt::Display for Error {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match &self.description {
            Some(description) => write!(formatter, "{}: {description}", self.condition),
            None => formatter.write_str(&self.condition),
        }
    }
}
