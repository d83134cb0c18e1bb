//! A receiver's place among the others: alive until an ending is written into it.
//!
//! Signs of life are atomics, so that a receiver gives them without the lock that
//! guards the others.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::epoch::Epoch;
use crate::source::{ReceiveError, SourceError};
use crate::time::Monotonic;

/// A receiver's place among the others. It is alive until an ending is written into it.
#[derive(Debug)]
pub struct Place {
    name: String,
    epoch: Option<Epoch>,
    ending: OnceLock<Ending>,
    /// The last sign of life, on the hub's monotonic clock.
    heard_at: AtomicU64,
    /// How many calls wait for events.
    waiting: AtomicUsize,
    /// A wait ended since anybody looked. Whoever ends it has no clock at hand.
    waited: AtomicBool,
}

/// Why a receiver came to its end.
#[derive(Debug)]
pub(super) enum Ending {
    /// Another receiver took the partition.
    Stolen { epoch: Epoch, by: Option<String>, message: String },
    /// The link is gone.
    Lost(Arc<str>),
}

impl Place {
    pub(super) fn new(name: String, epoch: Option<Epoch>, now: Monotonic) -> Self {
        Self {
            name,
            epoch,
            ending: OnceLock::new(),
            heard_at: AtomicU64::new(now.0),
            waiting: AtomicUsize::new(0),
            waited: AtomicBool::new(false),
        }
    }

    /// What the receiver calls itself; empty if it gave no name.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its epoch, if it came with one.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// The error that this receiver gets from now on, if it came to its end.
    pub fn error(&self) -> Option<ReceiveError> {
        self.ending.get().map(|ending| match ending {
            Ending::Stolen { epoch, by, message } => {
                ReceiveError::Disconnected { epoch: Some(*epoch), by: by.clone(), message: message.clone() }
            }
            Ending::Lost(message) => SourceError::Unavailable((&**message).into()).into(),
        })
    }

    /// Takes a sign of life. One that arrives late takes nothing back.
    pub fn heard(&self, now: Monotonic) {
        self.heard_at.fetch_max(now.0, Ordering::Relaxed);
    }

    /// Says that the receiver waits for events, until the guard is dropped. However long that
    /// takes, it is alive; and it counts as heard when its wait ends.
    pub fn waiting(self: &Arc<Self>) -> WaitingGuard {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingGuard(self.clone())
    }

    /// Whether the receiver waits: there is no event for it, or it has no use for one.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// For how long there has been no sign of life. A wait counts as one, and one that ended
    /// since the last look too: better a look too late than a living receiver thrown out.
    pub(super) fn silence(&self, now: Monotonic) -> Duration {
        if self.waiting.load(Ordering::Acquire) > 0 || self.waited.swap(false, Ordering::Relaxed) {
            self.heard(now);
        }
        now.since(Monotonic(self.heard_at.load(Ordering::Relaxed)))
    }

    pub(super) fn end(&self, ending: Ending) {
        // The first ending is the true one: whoever is gone cannot be told twice.
        let _ = self.ending.set(ending);
    }
}

/// A receiver waits for events as long as this lives.
#[derive(Debug)]
#[must_use = "the receiver waits only as long as this lives"]
pub struct WaitingGuard(Arc<Place>);

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.waited.store(true, Ordering::Relaxed);
        // Released after the note, so that whoever sees no wait any more sees the note.
        self.0.waiting.fetch_sub(1, Ordering::Release);
    }
}
