//! One admitted receiver of a partition: alive until it is ended with a reason.
//!
//! Signs of life are atomics, so that a receiver gives them without the lock that guards the
//! others.

use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use crate::epoch::Epoch;
use crate::source::{ReceiveError, SourceError};
use crate::time::Monotonic;

/// One receiver among those of a partition. It is alive until it is ended with a reason.
#[derive(Debug)]
pub struct Admission {
    name: String,
    epoch: Option<Epoch>,
    ending: OnceLock<Ending>,
    /// The last sign of life, on the hub's monotonic clock.
    heard_at: AtomicU64,
    /// The number of calls that wait for events.
    waiting: AtomicUsize,
    /// True if a wait ended since the last check. The call that ends it has no clock at hand.
    waited: AtomicBool,
}

/// The reason why a receiver ended.
#[derive(Debug)]
pub(super) enum Ending {
    /// Another receiver took the partition.
    Stolen { epoch: Epoch, by: Option<String>, message: String },
    /// The link is gone.
    Lost(Arc<str>),
}

impl Admission {
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

    /// The name that the receiver gave; empty if it gave none.
    pub fn name(&self) -> &str {
        &self.name
    }

    /// Its epoch, if it has one.
    pub fn epoch(&self) -> Option<Epoch> {
        self.epoch
    }

    /// The error that this receiver gets from now on, if it has ended.
    pub fn error(&self) -> Option<ReceiveError> {
        self.ending.get().map(|ending| match ending {
            Ending::Stolen { epoch, by, message } => {
                ReceiveError::Disconnected { epoch: Some(*epoch), by: by.clone(), message: message.clone() }
            }
            Ending::Lost(message) => SourceError::Unavailable((&**message).into()).into(),
        })
    }

    /// Notes a sign of life. A late one does not set the clock back.
    pub fn heard(&self, now: Monotonic) {
        self.heard_at.fetch_max(now.0, Ordering::Relaxed);
    }

    /// Notes that the receiver waits for events, until the guard is dropped. It counts as alive for
    /// as long as that takes, and as heard of when its wait ends.
    pub fn waiting(self: &Arc<Self>) -> WaitingGuard {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        WaitingGuard(self.clone())
    }

    /// True if the receiver waits: there is no event for it, or it cannot take one.
    pub fn is_waiting(&self) -> bool {
        self.waiting.load(Ordering::Acquire) > 0
    }

    /// The time without a sign of life. A wait counts as one, and so does a wait that ended since
    /// the last check: a late removal is better than removing a receiver that is alive.
    pub(super) fn silence(&self, now: Monotonic) -> Duration {
        if self.waiting.load(Ordering::Acquire) > 0 || self.waited.swap(false, Ordering::Relaxed) {
            self.heard(now);
        }
        now.since(Monotonic(self.heard_at.load(Ordering::Relaxed)))
    }

    pub(super) fn end(&self, ending: Ending) {
        // The first reason counts: an ended receiver cannot end again.
        let _ = self.ending.set(ending);
    }
}

/// Marks a receiver as waiting for events until it is dropped.
#[derive(Debug)]
#[must_use = "the receiver waits only as long as this lives"]
pub struct WaitingGuard(Arc<Admission>);

impl Drop for WaitingGuard {
    fn drop(&mut self) {
        self.0.waited.store(true, Ordering::Relaxed);
        // Released after the flag is set, so that a reader that sees no wait any more sees the
        // flag.
        self.0.waiting.fetch_sub(1, Ordering::Release);
    }
}
