//! The errors of sending events, with the number of events that were stored.

use ephor_wire::batch::Refused;
use ephor_wire::condition::Refusal;

use crate::dial_error::DialError;
use crate::failure_classes::Failure;

/// A send that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{failure}")]
#[non_exhaustive]
pub struct SendError {
    /// The number of events, counted from the first, that are stored nevertheless. Some of the later ones may
    /// be stored, too, if they have other keys: sending again from here loses nothing.
    pub sent: usize,
    /// The cause.
    #[source]
    pub failure: SendFailure,
}

/// The cause of a failed send.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendFailure {
    /// An event cannot be sent. Neither it nor the events after it were sent.
    #[error("event {index} cannot be sent: {why}")]
    Event {
        /// The index of the event, from 0.
        index: usize,
        /// The reason.
        #[source]
        why: Refused,
    },
    /// The hub refused the message, and a retry would not help: there is no such hub or partition, the key
    /// does not permit sending, or the message is too large.
    #[error("the hub refused it: {0}")]
    Refused(#[source] Refusal),
    /// The client is configured so that it cannot reach the hub at all, for example without TLS if the hub
    /// requires it.
    #[error("{0}")]
    Misconfigured(String),
    /// The hub is unreachable or busy, which may pass. The last message may be stored nevertheless.
    #[error("not acknowledged after {attempts} attempts: {last}")]
    Unavailable {
        /// The number of attempts.
        attempts: u32,
        /// The failure of the last attempt.
        last: String,
        /// The cause of that failure, if there was no connection.
        #[source]
        connect: Option<DialError>,
    },
}

impl SendFailure {
    pub(super) fn gone() -> Self {
        let last = "the runtime of the producer is shut down".into();
        Self::Unavailable { attempts: 0, last, connect: None }
    }

    pub(super) fn of(failure: &Failure, attempts: u32, gives_up: bool) -> Self {
        match failure {
            Failure::Refused(refusal) if gives_up => Self::Refused(Refusal::clone(refusal)),
            Failure::Misconfigured(why) => Self::Misconfigured(why.to_string()),
            other => {
                let connect = match other {
                    Failure::NotConnected(failure) => Some(DialError::clone(failure)),
                    _ => None,
                };
                Self::Unavailable { attempts, last: other.to_string(), connect }
            }
        }
    }
}
