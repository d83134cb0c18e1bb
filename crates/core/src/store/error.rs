//! The errors of a store, with causes that callers can match.

use std::time::Duration;

use crate::BoxError;
use crate::causes::with_causes;

/// An error of a store. The outcome of the call is unknown.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The store cannot be reached, or answered with a temporary fault.
    #[error("the store is not available: {}", with_causes(&**.0))]
    Unavailable(#[source] BoxError),
    /// The store asks for fewer calls.
    #[error("the store is throttling: {}", with_causes(&**.0))]
    Throttled(#[source] BoxError),
    /// A record cannot be read.
    #[error("a record in the store is damaged: {what}")]
    Damaged {
        /// The record, and its fault.
        what: String,
    },
    /// The store refuses the call, and a retry would not help: wrong credentials, an unsuitable
    /// place, or no epoch left ([`NoEpochLeft`](crate::record::NoEpochLeft)).
    #[error("the store refuses: {message}")]
    Refused {
        /// The cause, for programs that decide by it.
        cause: RefusalCause,
        /// The message of the store.
        message: String,
    },
}

/// The cause of [`StoreError::Refused`]. Programs decide by it and never by the message, which is
/// for people.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum RefusalCause {
    /// The store does not accept the credentials: they are wrong, expired or of the wrong kind.
    InvalidCredentials,
    /// The credentials are valid and lack a right.
    AccessDenied,
    /// The database, its tables or the container do not exist.
    NotFound,
    /// No secure connection is possible: the certificate is not trusted, or TLS is not offered.
    NoSecureConnection,
    /// The tables or the interface are of another version.
    Incompatible,
    /// No epoch is left above those of a partition.
    NoEpochLeft,
    /// Any other cause.
    Other,
}

/// The cause of [`StoreError::Throttled`], if the store says how long to wait.
#[derive(Debug, thiserror::Error)]
#[error("{message}")]
pub struct Throttling {
    /// The message of the store.
    pub message: String,
    /// The pause for which the store asks.
    pub retry_after: Duration,
}

impl StoreError {
    /// A refusal with this cause and message.
    pub fn refused(cause: RefusalCause, message: impl Into<String>) -> Self {
        Self::Refused { cause, message: message.into() }
    }

    /// The cause of a refusal; `None` if the error is not a refusal.
    pub fn refusal_cause(&self) -> Option<RefusalCause> {
        match self {
            Self::Refused { cause, .. } => Some(*cause),
            _ => None,
        }
    }

    /// The pause for which a throttling store asks: zero if it gives no time, `None` if the error
    /// is not throttling.
    pub fn retry_after(&self) -> Option<Duration> {
        let Self::Throttled(cause) = self else { return None };
        Some(cause.downcast_ref::<Throttling>().map_or(Duration::ZERO, |throttling| throttling.retry_after))
    }
}
