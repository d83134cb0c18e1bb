//! Remembers which log a hub has, and asks again after a link was lost.
//!
//! A hub that is deleted and created again has the same name and another log. A receiver that attaches again by
//! itself would go on in it at a position of the old one, and skip what comes before. So it asks which log is there
//! *after* it was attached, and before it hands anything out. Receivers that come back together share an answer.

use std::sync::{Arc, Mutex, PoisonError};

use ephor_core::ids::LogId;
use ephor_core::source::SourceError;
use tokio::time::Instant;

use crate::client::Shared;

/// An answer, and when it was asked for.
#[derive(Clone)]
struct Known {
    log: LogId,
    asked: Instant,
}

/// What was last told about the log.
#[derive(Default)]
pub(crate) struct LogWatch {
    known: Mutex<Option<Known>>,
    /// Held by the one that asks.
    asking: tokio::sync::Mutex<()>,
}

impl LogWatch {
    /// The log that the hub had when somebody asked last; none if nobody has.
    pub(crate) fn last(&self) -> Option<LogId> {
        self.known().map(|known| known.log)
    }

    /// The hub said that it has this log, to a question of this time.
    pub(crate) fn tell(&self, log: LogId, asked: Instant) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.as_ref().is_none_or(|known| known.asked <= asked) {
            *known = Some(Known { log, asked });
        }
    }

    fn known(&self) -> Option<Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The log that the hub has at this time, or later.
pub(crate) async fn log_since(shared: Arc<Shared>, time: Instant) -> Result<Option<LogId>, SourceError> {
    let _turn = shared.log_watch.asking.lock().await;
    if let Some(known) = shared.log_watch.known().filter(|known| known.asked >= time) {
        return Ok(Some(known.log));
    }
    Ok(shared.hub_properties().await?.log)
}
