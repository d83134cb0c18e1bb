//! What a connection's users say without waiting and without a queue: each thing counts once.

use std::collections::BTreeSet;
use std::sync::{Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::Key;

/// What has been said since the connection looked last. There is at most one entry of each kind for a link.
#[derive(Default)]
pub(super) struct Wishes {
    /// Receivers that may need credit.
    pub(super) refill: BTreeSet<Key>,
    /// Links that nobody wants any more.
    pub(super) released: BTreeSet<Key>,
    /// The connection is given up, for this reason.
    pub(super) condemned: Option<String>,
}

/// Where it is said.
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

    /// Waits until something is said, and takes it. Safe to drop: nothing is taken before it is ready.
    pub(super) async fn next(&self) -> Wishes {
        self.bell.notified().await;
        std::mem::take(&mut *self.wishes())
    }

    /// Waits until the connection is given up, while there is none. What else is said concerns links that do not exist
    /// yet: who gave one up has said so to its inbox.
    pub(super) async fn condemned(&self) -> String {
        loop {
            if let Some(why) = self.next().await.condemned {
                return why;
            }
        }
    }
}
