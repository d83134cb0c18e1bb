//! Maps the errors of a source to AMQP error conditions, and conditions back to errors.

use ephor_core::source::{OpenError, ReceiveError, SourceError};

use super::current_reader::holder;
use super::{Condition, Refusal, error_texts};
use crate::peer_text::quoted;

impl From<&OpenError> for Refusal {
    fn from(error: &OpenError) -> Self {
        match error {
            OpenError::Refused { message, .. } => Self::new(Condition::LinkStolen, message),
            OpenError::TooManyReceivers { message } => Self::new(Condition::ResourceLimitExceeded, message),
            OpenError::InvalidPosition { message } => Self::new(Condition::ArgumentError, message),
            OpenError::Source(error) => error.into(),
            _ => error_texts::internal(),
        }
    }
}

impl From<&ReceiveError> for Refusal {
    fn from(error: &ReceiveError) -> Self {
        match error {
            ReceiveError::Disconnected { message, .. } => Self::new(Condition::LinkStolen, message),
            ReceiveError::Source(error) => error.into(),
            _ => error_texts::internal(),
        }
    }
}

impl From<&SourceError> for Refusal {
    fn from(error: &SourceError) -> Self {
        match error {
            SourceError::NotFound { what } => error_texts::not_found(what),
            SourceError::Unauthorized { message } => Self::new(Condition::UnauthorizedAccess, message),
            // Problems on this side are not disclosed to the peer.
            _ => error_texts::internal(),
        }
    }
}

/// The error for a refused attach of a receiver.
pub fn open_error(refusal: Refusal) -> OpenError {
    match refusal.condition {
        Condition::LinkStolen => {
            let (by, epoch) = holder(&refusal.text);
            OpenError::Refused { epoch, by, message: refusal.text }
        }
        Condition::ResourceLimitExceeded => OpenError::TooManyReceivers { message: refusal.text },
        Condition::ArgumentError | Condition::InvalidOffset => {
            OpenError::InvalidPosition { message: refusal.text }
        }
        // The service has used both conditions for a sequence number beyond the end.
        Condition::ArgumentOutOfRange if refusal.text.contains("sequence number") => {
            OpenError::InvalidPosition { message: refusal.text }
        }
        _ => source_error(refusal).into(),
    }
}

/// The error for an attached receiver that was detached.
pub fn receive_error(refusal: Refusal) -> ReceiveError {
    match refusal.condition {
        Condition::LinkStolen => {
            let (by, epoch) = holder(&refusal.text);
            ReceiveError::Disconnected { epoch, by, message: refusal.text }
        }
        _ => source_error(refusal).into(),
    }
}

/// The error for any other refusal.
pub fn source_error(refusal: Refusal) -> SourceError {
    match refusal.condition {
        Condition::NotFound | Condition::EntityDisabled | Condition::ResourceDeleted => {
            let entity = between(&refusal.text, "entity '", "'");
            let what = entity.map_or_else(|| refusal.text.clone(), |entity| format!("the entity '{entity}'"));
            SourceError::NotFound { what: quoted(&what) }
        }
        Condition::ArgumentOutOfRange => {
            SourceError::NotFound { what: format!("the requested entity ({})", quoted(&refusal.text)) }
        }
        Condition::UnauthorizedAccess | Condition::AuthFailed => {
            SourceError::Unauthorized { message: refusal.text }
        }
        _ => SourceError::Unavailable(refusal.into()),
    }
}

fn between<'a>(text: &'a str, before: &str, after: &str) -> Option<&'a str> {
    let (_, rest) = text.split_once(before)?;
    rest.split_once(after).map(|(found, _)| found)
}
