//! Why events were not sent.

use ephor_wire::batch::Refused;
use ephor_wire::condition::Refusal;

use crate::failure::Failure;

/// A send that failed.
#[derive(Clone, Debug, thiserror::Error)]
#[error("{failure}")]
pub struct SendError {
    /// So many events, from the first on, are stored all the same. Of those behind them some may be, too, if they
    /// have other keys: who sends again from here loses nothing.
    pub sent: usize,
    /// What went wrong.
    pub failure: SendFailure,
}

/// What went wrong with a send.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendFailure {
    /// An event that cannot be sent. It was not, nor was what came behind it.
    #[error("event {index} cannot be sent: {why}")]
    Event {
        /// Which, counted from 0.
        index: usize,
        /// Why not.
        why: Refused,
    },
    /// The hub said no, and would say no again: there is no such hub or partition, the key does not permit
    /// sending, the message is too large.
    #[error("the hub refused it: {0}")]
    Refused(Refusal),
    /// The client is set up so that it cannot reach the hub at all, for example without TLS where the hub wants it.
    #[error("{0}")]
    Misconfigured(String),
    /// The hub cannot be reached or is busy; it may pass. What was sent last may be stored nevertheless.
    #[error("not acknowledged after {attempts} attempts: {last}")]
    Unavailable {
        /// How often it was tried.
        attempts: u32,
        /// What went wrong the last time.
        last: String,
    },
}

impl SendFailure {
    pub(super) fn gone() -> Self {
        Self::Unavailable { attempts: 0, last: "the runtime of the producer is shut down".into() }
    }

    pub(super) fn of(failure: &Failure, attempts: u32, gives_up: bool) -> Self {
        match failure {
            Failure::Refused(refusal) if gives_up => Self::Refused(Refusal::clone(refusal)),
            Failure::Misconfigured(why) => Self::Misconfigured(why.to_string()),
            other => Self::Unavailable { attempts, last: other.to_string() },
        }
    }
}
