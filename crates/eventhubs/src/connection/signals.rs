//! Signals from receivers and senders to the task of their connection, without waiting and without a queue.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::LinkKey;

/// The signals since the task last took them. Repeated signals of one kind for one link are merged.
#[derive(Default)]
pub(super) struct PendingSignals {
    /// Receivers that may need more credit.
    pub(super) refill: BTreeSet<LinkKey>,
    /// Links that are no longer wanted.
    pub(super) released: BTreeSet<LinkKey>,
    /// The connection is to be abandoned, for this reason.
    pub(super) abandoned_for: Option<String>,
}

/// Collects signals and wakes the task.
#[derive(Default)]
pub(super) struct Signals {
    pending: Mutex<PendingSignals>,
    notify: Notify,
}

impl Signals {
    fn pending(&self) -> MutexGuard<'_, PendingSignals> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn refill(&self, key: LinkKey) {
        self.pending().refill.insert(key);
        self.notify.notify_one();
    }

    pub(super) fn release(&self, key: LinkKey) {
        self.pending().released.insert(key);
        self.notify.notify_one();
    }

    pub(super) fn abandon(&self, why: &str) {
        self.pending().abandoned_for = Some(why.to_owned());
        self.notify.notify_one();
    }

    /// Waits for signals and takes them. Cancel-safe: nothing is taken before it is ready.
    pub(super) async fn next(&self) -> PendingSignals {
        self.notify.notified().await;
        std::mem::take(&mut *self.pending())
    }

    /// Waits until the connection is to be abandoned, before it is established. Other signals concern links
    /// that do not exist yet and are dropped: a receiver that was closed has also marked its queue as
    /// abandoned.
    pub(super) async fn abandoned(&self) -> String {
        loop {
            if let Some(why) = self.next().await.abandoned_for {
                return why;
            }
        }
    }
}
