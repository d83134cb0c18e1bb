//! How a hub says no: the conditions of the service, its texts, and what a client makes of them.
//!
//! A condition is a symbol; SDKs decide by it whether to try again. Some also read the text, so the texts
//! are the service's, to the letter ([`texts`]).

mod errors;
mod holder;
pub mod texts;

use std::fmt;

use crate::quote::quoted;

pub use errors::{open_error, receive_error, source_error};
pub use holder::told_name;
pub use texts::Tracking;

/// So many characters of a hub's text a client keeps. A text of so many may have been cut.
pub const MAX_TEXT: usize = 2_000;

/// What a client does about a condition.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// Wait a moment and do the same again, on the same link where there still is one.
    Retry,
    /// The link or the connection is gone for reasons of its own: open anew and go on behind the last event.
    Reopen,
    /// Trying again changes nothing: somebody has to know.
    GiveUp,
}

macro_rules! conditions {
    ($($(#[$doc:meta])* $name:ident $symbol:literal $class:ident $status:literal;)*) => {
        /// Why a hub refused something.
        #[derive(Clone, Debug, PartialEq, Eq)]
        pub enum Condition {
            $($(#[$doc])* $name,)*
            /// One that is not in the catalogue.
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

            /// The condition of a symbol. Of one that is not known only the beginning is kept.
            pub fn of(symbol: &str) -> Self {
                match symbol {
                    $($symbol => Self::$name,)*
                    other => Self::Other(quoted(other).into()),
                }
            }

            /// The status of a response of `$cbs` or `$management` that says the same.
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
    /// All places are taken, or a quota is used up.
    ResourceLimitExceeded "amqp:resource-limit-exceeded" GiveUp 403;
    /// There is no such hub or consumer group.
    NotFound "amqp:not-found" GiveUp 404;
    /// There is no such partition.
    ArgumentOutOfRange "com.microsoft:argument-out-of-range" GiveUp 400;
    /// An argument or a position that means nothing.
    ArgumentError "com.microsoft:argument-error" GiveUp 400;
    /// No claim, or a bad token.
    UnauthorizedAccess "amqp:unauthorized-access" GiveUp 401;
    /// Throttled.
    ServerBusy "com.microsoft:server-busy" Retry 503;
    /// The service took too long.
    Timeout "com.microsoft:timeout" Retry 408;
    /// The service gave the operation up.
    OperationCancelled "com.microsoft:operation-cancelled" Retry 503;
    /// The service failed.
    InternalError "amqp:internal-error" Reopen 500;
    /// An event or a batch is too large.
    MessageSizeExceeded "amqp:link:message-size-exceeded" GiveUp 400;
    /// The hub is switched off.
    EntityDisabled "com.microsoft:entity-disabled" GiveUp 403;
    /// The hub was changed, and its links begin anew.
    EntityUpdated "com.microsoft:entity-updated" Reopen 410;
    /// The link was idle, or the service moved.
    DetachForced "amqp:link:detach-forced" Reopen 410;
    /// The connection was idle, or the service stops.
    ConnectionForced "amqp:connection:forced" Reopen 410;
    /// Nobody may do this here.
    NotAllowed "amqp:not-allowed" GiveUp 403;
    /// The numbers of an idempotent producer have a gap.
    OutOfOrderSequence "com.microsoft:out-of-order-sequence" GiveUp 409;
    /// Another idempotent producer took over.
    ProducerEpochStolen "com.microsoft:producer-epoch-stolen" GiveUp 409;
    /// An offset of before a change of region.
    InvalidOffset "com.microsoft:georeplication:invalid-offset" GiveUp 400;
    /// The bytes cannot be read.
    DecodeError "amqp:decode-error" Reopen 400;
    /// The frames cannot be read.
    FramingError "amqp:connection:framing-error" Reopen 400;
    /// A field with a value that it cannot have.
    InvalidField "amqp:invalid-field" GiveUp 400;
    /// Something that is not built.
    NotImplemented "amqp:not-implemented" GiveUp 501;
    /// A frame that has no place at this moment.
    IllegalState "amqp:illegal-state" Reopen 409;
    /// A frame larger than agreed.
    FrameSizeTooSmall "amqp:frame-size-too-small" GiveUp 400;
    /// More was sent than the link's credit allows.
    TransferLimitExceeded "amqp:link:transfer-limit-exceeded" Reopen 403;
    /// More was sent than the session's window allows.
    WindowViolation "amqp:session:window-violation" Reopen 403;
    /// A handle that is used already.
    HandleInUse "amqp:session:handle-in-use" Reopen 409;
    /// A handle without a link.
    UnattachedHandle "amqp:session:unattached-handle" Reopen 400;
    /// It was deleted while it was in use.
    ResourceDeleted "amqp:resource-deleted" GiveUp 404;
    /// Somebody else uses it.
    ResourceLocked "amqp:resource-locked" Reopen 409;
}

impl fmt::Display for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.symbol())
    }
}

/// A condition and what the hub says to it: what stands in a detach, a close or a rejected disposition.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{condition}: {text}")]
pub struct Refusal {
    /// Why.
    pub condition: Condition,
    /// In words.
    pub text: String,
}

/// Without this phrase SDKs take what is not found for something that may pass, and so do we.
const COULD_NOT_BE_FOUND: &str = "could not be found";

impl Refusal {
    /// This condition, with this text.
    pub fn new(condition: Condition, text: impl Into<String>) -> Self {
        Self { condition, text: text.into() }
    }

    /// With where and when it happened behind the text, as the service has it.
    pub fn tracked(mut self, tracking: &Tracking<'_>) -> Self {
        self.text.push_str(&tracking.to_string());
        self
    }

    /// What a client does about it.
    pub fn class(&self) -> Class {
        match self.condition {
            Condition::NotFound if !self.text.contains(COULD_NOT_BE_FOUND) => Class::Reopen,
            // A token that ran out is replaced by a new one.
            Condition::UnauthorizedAccess if self.text.contains("ExpiredToken") => Class::Reopen,
            _ => self.condition.usual_class(),
        }
    }
}

#[cfg(test)]
mod tests;
