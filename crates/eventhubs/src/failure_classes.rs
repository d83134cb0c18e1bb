//! The failures between client and hub, and the client's reaction to each: retry, reconnect, or give up.

use std::fmt;
use std::sync::Arc;

use ephor_amqp::connection::Closed;
use ephor_amqp::performative::{Error, condition};
use ephor_core::ids::LogId;
use ephor_core::source::SourceError;
use ephor_wire::condition::{Class, Condition, MAX_TEXT, Refusal, source_error};

use crate::credential::TokenError;
use crate::dial_error::DialError;

/// The reason why an operation failed. It may be reported to many users at once, so it is cheap to clone.
#[derive(Clone, Debug)]
pub(crate) enum Failure {
    /// The hub returned an error.
    Refused(Arc<Refusal>),
    /// No answer: the link or the connection was lost.
    Lost(Arc<str>),
    /// No answer: the connection was never made.
    NotConnected(Arc<DialError>),
    /// The hub was deleted and created again: its log is another one, whose sequence numbers have another
    /// meaning.
    Replaced(Arc<LogReplaced>),
    /// The two ends do not speak the same protocol: a retry does not help.
    Misconfigured(Arc<str>),
}

/// A hub was deleted and created again while a receiver read it: positions of the log that it was opened in
/// mean nothing in the current one. It is the cause of a [`SourceError::Unavailable`], and the receiver
/// yields no more events.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the hub was deleted and created again: its log was {was} and is {is}; check the hub's properties, and open \
     a new receiver"
)]
#[non_exhaustive]
pub struct LogReplaced {
    /// The log that the receiver was opened in.
    pub was: LogId,
    /// The current log.
    pub is: LogId,
}

impl Failure {
    pub(crate) fn lost(why: impl Into<Arc<str>>) -> Self {
        Self::Lost(why.into())
    }

    /// The failure for the peer's error in a `detach`, an `end` or a rejected delivery.
    pub(crate) fn of_error(error: Option<Error>) -> Self {
        match error {
            Some(error) => Self::refused(refusal(&error)),
            // The service moves links without giving an error, and so does a hub that shuts down gracefully.
            None => Self::lost("the hub ended the link"),
        }
    }

    pub(crate) fn refused(refusal: Refusal) -> Self {
        Self::Refused(Arc::new(refusal))
    }

    /// The failure for a missing token.
    pub(crate) fn of_token(error: &TokenError) -> Self {
        let text = within_bounds(&error.to_string());
        match error {
            TokenError::Refused(_) => Self::refused(Refusal::new(Condition::UnauthorizedAccess, text)),
            TokenError::Unavailable(_) => Self::lost(text),
        }
    }

    /// The failure for everything on a connection that was closed.
    pub(crate) fn of_closed(closed: Closed) -> Self {
        match closed {
            Closed::ByPeer(Some(error)) => Self::refused(refusal(&error)),
            Closed::ByPeer(None) => Self::lost("the hub closed the connection"),
            Closed::ByUs => Self::lost("the connection was closed"),
            // Authentication failed: another connection would not help.
            Closed::Failed(error) if error.condition == condition::UNAUTHORIZED_ACCESS => {
                Self::refused(refusal(&error))
            }
            Closed::Failed(error) => Self::lost(format!("the connection failed: {}", refusal(&error))),
            Closed::Lost(why) | Closed::SpokeTls(why) => {
                Self::lost(format!("the connection was lost: {why}"))
            }
        }
    }

    pub(crate) fn class(&self) -> Class {
        match self {
            Self::Refused(refusal) => refusal.class(),
            Self::Lost(_) | Self::NotConnected(_) => Class::Reopen,
            Self::Misconfigured(_) | Self::Replaced(_) => Class::GiveUp,
        }
    }

    pub(crate) fn condition(&self) -> Option<&Condition> {
        match self {
            Self::Refused(refusal) => Some(&refusal.condition),
            Self::Lost(_) | Self::NotConnected(_) | Self::Misconfigured(_) | Self::Replaced(_) => None,
        }
    }

    /// Converts the failure to the error of the `EventSource` trait.
    pub(crate) fn into_source_error(self) -> SourceError {
        match self {
            Self::Refused(refusal) => source_error(Arc::unwrap_or_clone(refusal)),
            Self::Lost(why) => SourceError::Unavailable(why.to_string().into()),
            Self::NotConnected(failure) => SourceError::Unavailable(Arc::unwrap_or_clone(failure).into()),
            Self::Misconfigured(why) => SourceError::Misconfigured { message: why.to_string() },
            Self::Replaced(replaced) => SourceError::Unavailable(Arc::unwrap_or_clone(replaced).into()),
        }
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Refused(refusal) => refusal.fmt(f),
            Self::Lost(why) | Self::Misconfigured(why) => f.write_str(why),
            Self::NotConnected(failure) => failure.fmt(f),
            Self::Replaced(replaced) => replaced.fmt(f),
        }
    }
}

fn refusal(error: &Error) -> Refusal {
    Refusal::new(Condition::of(&error.condition), within_bounds(error.description()))
}

/// A text from outside, shortened and on one line.
fn within_bounds(text: &str) -> String {
    text.chars().take(MAX_TEXT).map(|c| if c.is_control() { ' ' } else { c }).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn failures_are_sorted_by_what_helps() {
        let of = |condition, text: &str| Failure::of_error(Some(Error::new(condition, text))).class();
        assert_eq!(of(condition::LINK_STOLEN, ""), Class::GiveUp);
        assert_eq!(of(condition::DETACH_FORCED, "idle"), Class::Reopen);
        assert_eq!(of("com.microsoft:server-busy", "wait"), Class::Retry);
        assert_eq!(Failure::of_error(None).class(), Class::Reopen);
        assert_eq!(Failure::of_closed(Closed::Lost("cut".into())).class(), Class::Reopen);
        let closed = Closed::ByPeer(Some(Error::new(condition::CONNECTION_FORCED, "idle")));
        assert_eq!(Failure::of_closed(closed).class(), Class::Reopen);
        let outside = Closed::Failed(Error::new(condition::UNAUTHORIZED_ACCESS, "no"));
        assert_eq!(Failure::of_closed(outside).class(), Class::GiveUp);
        let confused = Closed::Failed(Error::new(condition::NOT_ALLOWED, "a frame out of place"));
        assert_eq!(Failure::of_closed(confused).class(), Class::Reopen);
    }

    #[test]
    fn what_a_hub_says_is_kept_within_bounds_and_on_one_line() {
        let failure = Failure::of_error(Some(Error::new("x:y", "a\nb".to_owned() + &"é".repeat(10_000))));
        let text = failure.to_string();
        assert!(text.starts_with("x:y: a b") && text.chars().count() < 2_100, "{}", text.len());
    }
}
