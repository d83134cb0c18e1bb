//! Signals from the users of a connection to its task, without waiting and without a queue.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Key;

/// The signals since the task last took them. Repeated signals of one kind for one link are merged.
#[derive(Default)]
pub(super) struct Wishes {
    /// Receivers that may need more credit.
    pub(super) refill: BTreeSet<Key>,
    /// Links that are no longer wanted.
    pub(super) released: BTreeSet<Key>,
    /// The connection is to be abandoned, for this reason.
    pub(super) condemned: Option<String>,
}

/// Collects signals and wakes the task.
#[derive(Default)]
pub(super) struct Attention {
    wishes: Mutex<Wishes>,
    bell: Notify,
}

impl Attention {
    fn wishes(&self) -> MutexGuard<'_, Wishes> {
        self.wishes.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn refill(&self, key: Key) {
        self.wishes().refill.insert(key);
        self.bell.notify_one();
    }

    pub(super) fn release(&self, key: Key) {
        self.wishes().released.insert(key);
        self.bell.notify_one();
    }

    pub(super) fn condemn(&self, why: &str) {
        self.wishes().condemned = Some(why.to_owned());
        self.bell.notify_one();
    }

    /// Waits for signals and takes them. Cancel-safe: nothing is taken before it is ready.
    pub(super) async fn next(&self) -> Wishes {
        self.bell.notified().await;
        std::mem::take(&mut *self.wishes())
    }

    /// Waits until the connection is to be abandoned, before it is established. Other signals concern links
    /// that do not exist yet and are dropped: a receiver that was closed has also marked its inbox as
    /// abandoned.
    pub(super) async fn condemned(&self) -> String {
        loop {
            if let Some(why) = self.next().await.condemned {
                return why;
            }
        }
    }
}
