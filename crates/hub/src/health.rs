//! Tells what keeps the hubs of a namespace from doing all of their work.
//!
//! Asking waits for no disk and for no commit: whoever looks after a service asks often, and above all when the
//! disk hangs.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ephor_core::ids::HubName;
use ephor_core::time::Monotonic;

use crate::config::quantity::show_size;
use crate::error::SendError;

/// A commit that takes longer waits for a disk that hangs.
pub const LONGEST_COMMIT: Duration = Duration::from_secs(10);

/// So long a commit that failed counts if no other follows: whoever keeps senders away until a service is healthy
/// shall not do so for ever.
pub const FAILURE_COUNTS: Duration = Duration::from_secs(60);

/// What is the matter, in words for whoever is called at night.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Problem {
    /// The namespace is closed.
    Closed,
    /// A hub could not be opened. The others are served.
    Broken {
        /// The hub, or its folder.
        hub: String,
        /// Why.
        reason: String,
    },
    /// Nobody stores what is sent to the hub any more.
    CommitterGone {
        /// The hub.
        hub: HubName,
    },
    /// A commit has been waiting for the disk for longer than [`LONGEST_COMMIT`].
    DiskHangs {
        /// The hub.
        hub: HubName,
        /// For how long.
        waiting: Duration,
    },
    /// The last commit failed, less than [`FAILURE_COUNTS`] ago.
    CommitFailed {
        /// The hub.
        hub: HubName,
        /// Why.
        error: String,
    },
    /// So little of the disk is free that senders are refused.
    LowOnDisk {
        /// How many bytes are free.
        free: u64,
        /// How many have to stay free.
        reserve: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the hubs are closed"),
            Self::Broken { hub, reason } => write!(f, "hub {hub:?} could not be opened: {reason}"),
            Self::CommitterGone { hub } => {
                write!(f, "hub {hub:?} stores nothing any more: its committer is gone; restart the program")
            }
            Self::DiskHangs { hub, waiting } => {
                write!(f, "hub {hub:?} has been waiting for its disk for {} s", waiting.as_secs())
            }
            Self::CommitFailed { hub, error } => {
                write!(f, "the last send to hub {hub:?} was not stored: {error}")
            }
            Self::LowOnDisk { free, reserve } => write!(
                f,
                "senders are refused: {} of the disk are free, and {} have to stay free",
                show_size(*free),
                show_size(*reserve)
            ),
        }
    }
}

/// How commits went, written by whoever commits.
#[derive(Debug, Default)]
pub(crate) struct CommitHealth {
    /// When the commit that is under way began, in nanoseconds, and one more; 0 if none is.
    began: AtomicU64,
    /// The last one failed: when, once the committer has looked at its clock again, and why.
    failed: Mutex<Option<(Option<Monotonic>, String)>>,
}

impl CommitHealth {
    pub(crate) fn begin(&self, now: Monotonic) {
        self.began.store(now.0.saturating_add(1), Ordering::Relaxed);
    }

    /// A commit ended just now.
    pub(crate) fn end<T>(&self, result: &Result<T, SendError>) {
        self.began.store(0, Ordering::Relaxed);
        let failed = match result {
            Err(error @ (SendError::DiskFull(_) | SendError::Disk(_))) => Some((None, error.to_string())),
            _ => None,
        };
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }

    /// The commit that ended last did so at this time.
    pub(crate) fn ended_at(&self, now: Monotonic) {
        if let Some((at, _)) = &mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            at.get_or_insert(now);
        }
    }

    pub(crate) fn problems(&self, hub: &HubName, now: Monotonic) -> Vec<Problem> {
        let began = self.began.load(Ordering::Relaxed).checked_sub(1).map(Monotonic);
        let waiting = began.map(|began| now.since(began)).filter(|waiting| *waiting > LONGEST_COMMIT);
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hangs = waiting.map(|waiting| Problem::DiskHangs { hub: hub.clone(), waiting });
        let failed = failed.filter(|(at, _)| at.is_none_or(|at| now.since(at) <= FAILURE_COUNTS));
        let failed = failed.map(|(_, error)| Problem::CommitFailed { hub: hub.clone(), error });
        hangs.into_iter().chain(failed).collect()
    }
}
