//! Error conditions of Event Hubs, the status of each in a response, and the client's reaction to it. The
//! texts are in `condition/error_texts.rs`.
//!
//! A condition is a symbol by which SDKs decide whether to retry. Some also read the text, so the texts are
//! the service's, to the letter ([`error_texts`]).

mod current_reader;
pub mod error_texts;
mod errors;

use std::fmt;

use crate::peer_text::quoted;

pub use current_reader::name_in_errors;
pub use error_texts::{RequestTracking, Tracking};
pub use errors::{open_error, receive_error, source_error};

/// The maximum number of characters that a client keeps of a hub's text. A text of this length may have been
/// cut.
pub const MAX_TEXT: usize = 2_000;

/// The client's reaction to a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Wait a moment and retry the same operation, on the same link if it still exists.
    Retry,
    /// The link or the connection has ended for a reason of its own: reopen it and continue after the last
    /// event.
    Reopen,
    /// A retry changes nothing: report the error.
    GiveUp,
}

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident $symbol:literal $class:ident $status:literal;)*) => {
        /// The reason why a hub refused something.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Condition {
            $($(#[$doc])* $name,)*
            /// A condition that is not in the catalogue.
            Other(Box<str>),
        }

        impl Condition {
            /// The symbol on the wire.
            pub fn symbol(&self) -> &str {
                match self {
                    $(Self::$name => $symbol,)*
                    Self::Other(symbol) => symbol,
                }
            }

            /// The condition of a symbol. An unknown symbol is kept, shortened.
            pub fn of(symbol: &str) -> Self {
                match symbol {
                    $($symbol => Self::$name,)*
                    other => Self::Other(quoted(other).into()),
                }
            }

            /// The equivalent status of a `$cbs` or `$management` response.
            pub fn status(&self) -> i32 {
                match self {
                    $(Self::$name => $status,)*
                    Self::Other(_) => 500,
                }
            }

            fn usual_class(&self) -> Class {
                match self {
                    $(Self::$name => Class::$class,)*
                    Self::Other(_) => Class::Reopen,
                }
            }

            /// Every condition of the catalogue.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];
        }
    };
}

conditions! {
    /// Another receiver took the partition, or holds it.
    LinkStolen "amqp:link:stolen" GiveUp 409;
    /// A limit is reached, such as the number of receivers, or a quota is used up.
    ResourceLimitExceeded "amqp:resource-limit-exceeded" GiveUp 403;
    /// There is no such hub or consumer group.
    NotFound "amqp:not-found" GiveUp 404;
    /// There is no such partition.
    ArgumentOutOfRange "com.microsoft:argument-out-of-range" GiveUp 400;
    /// An invalid argument or position.
    ArgumentError "com.microsoft:argument-error" GiveUp 400;
    /// A claim is missing, or the token is bad.
    UnauthorizedAccess "amqp:unauthorized-access" GiveUp 401;
    /// A token that was put is refused. Links are refused with [`Condition::UnauthorizedAccess`].
    AuthFailed "com.microsoft:auth-failed" GiveUp 401;
    /// Throttled.
    ServerBusy "com.microsoft:server-busy" Retry 503;
    /// The service took too long.
    Timeout "com.microsoft:timeout" Retry 408;
    /// The service cancelled the operation.
    OperationCancelled "com.microsoft:operation-cancelled" Retry 503;
    /// The service failed.
    InternalError "amqp:internal-error" Reopen 500;
    /// An event or a batch is too large.
    MessageSizeExceeded "amqp:link:message-size-exceeded" GiveUp 400;
    /// The hub is switched off.
    EntityDisabled "com.microsoft:entity-disabled" GiveUp 403;
    /// The hub was changed, and its links have to reopen.
    EntityUpdated "com.microsoft:entity-updated" Reopen 410;
    /// The link was idle, or the service moved.
    DetachForced "amqp:link:detach-forced" Reopen 410;
    /// The connection was idle, or the service stops.
    ConnectionForced "amqp:connection:forced" Reopen 410;
    /// The operation is not allowed.
    NotAllowed "amqp:not-allowed" GiveUp 403;
    /// The sequence numbers of an idempotent producer have a gap.
    OutOfOrderSequence "com.microsoft:out-of-order-sequence" GiveUp 409;
    /// Another idempotent producer took over.
    ProducerEpochStolen "com.microsoft:producer-epoch-stolen" GiveUp 409;
    /// An offset from before a geo-replication failover.
    InvalidOffset "com.microsoft:georeplication:invalid-offset" GiveUp 400;
    /// Bytes that cannot be decoded.
    DecodeError "amqp:decode-error" Reopen 400;
    /// Frames that cannot be decoded.
    FramingError "amqp:connection:framing-error" Reopen 400;
    /// A field has an invalid value.
    InvalidField "amqp:invalid-field" GiveUp 400;
    /// An operation that is not implemented.
    NotImplemented "amqp:not-implemented" GiveUp 501;
    /// A frame that is not allowed in the current state.
    IllegalState "amqp:illegal-state" Reopen 409;
    /// A frame larger than agreed.
    FrameSizeTooSmall "amqp:frame-size-too-small" GiveUp 400;
    /// More was sent than the link's credit allows.
    TransferLimitExceeded "amqp:link:transfer-limit-exceeded" Reopen 403;
    /// More was sent than the session's window allows.
    WindowViolation "amqp:session:window-violation" Reopen 403;
    /// A handle that is already in use.
    HandleInUse "amqp:session:handle-in-use" Reopen 409;
    /// A handle without a link.
    UnattachedHandle "amqp:session:unattached-handle" Reopen 400;
    /// The entity was deleted while it was in use.
    ResourceDeleted "amqp:resource-deleted" GiveUp 404;
    /// Another client uses the entity.
    ResourceLocked "amqp:resource-locked" Reopen 409;
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// A condition with its text, as in a detach, a close or a rejected disposition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{condition}: {text}")]
pub struct Refusal {
    /// The condition.
    pub condition: Condition,
    /// The hub's explanation.
    pub text: String,
}

/// SDKs treat a not-found without this phrase as transient, and so do we.
const COULD_NOT_BE_FOUND: &str = "could not be found";

impl Refusal {
    /// Creates a refusal with this condition and text.
    pub fn new(condition: Condition, text: impl Into<String>) -> Self {
        Self { condition, text: text.into() }
    }

    /// Appends the place and the time of the error to the text, as the service does.
    pub fn tracked(mut self, tracking: &impl fmt::Display) -> Self {
        self.text.push_str(&tracking.to_string());
        self
    }

    /// The client's reaction to this refusal.
    pub fn class(&self) -> Class {
        match self.condition {
            Condition::NotFound if !self.text.contains(COULD_NOT_BE_FOUND) => Class::Reopen,
            // An expired token is replaced by a new one.
            Condition::UnauthorizedAccess | Condition::AuthFailed if self.text.contains("ExpiredToken") => {
                Class::Reopen
            }
            _ => self.condition.usual_class(),
        }
    }
}

#[cfg(test)]
mod tests;
