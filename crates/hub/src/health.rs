//! The problems that keep hubs from working, for health checks, and the state of a hub's commits that shows
//! a hanging or failing disk. `LocalNamespace::health` collects them (`namespace.rs`).
//!
//! A health check waits neither for the disk nor for a commit: monitoring asks often, and needs an answer above all
//! when the disk hangs.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use ephor_core::ids::HubName;
use ephor_core::time::Monotonic;

use crate::config::quantity::show_size;
use crate::error::SendError;

/// A commit that takes longer than this counts as waiting for a disk that hangs.
pub const MAX_COMMIT_TIME: Duration = Duration::from_secs(10);

/// How long a failed commit is reported if no other commit follows. Otherwise a load balancer that sends nothing to an
/// unhealthy service would keep it unhealthy for ever.
pub const FAILURE_SHOWN_FOR: Duration = Duration::from_secs(60);

/// A problem. Its text is written for the person on call.
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
    /// The committer thread of the hub ended by a panic: nothing that is sent to the hub is stored.
    CommitterStopped {
        /// The hub.
        hub: HubName,
    },
    /// A commit, or idle work such as retention, has been waiting for the disk for longer than [`MAX_COMMIT_TIME`].
    DiskHangs {
        /// The hub.
        hub: HubName,
        /// For how long.
        waiting: Duration,
    },
    /// The last commit failed, less than [`FAILURE_SHOWN_FOR`] ago.
    CommitFailed {
        /// The hub.
        hub: HubName,
        /// Why.
        error: String,
    },
    /// The disk is nearly full: senders are refused.
    LowOnDisk {
        /// The free bytes.
        free: u64,
        /// The bytes that must stay free.
        reserve: u64,
    },
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Closed => f.write_str("the hubs are closed"),
            Self::Broken { hub, reason } => write!(f, "hub {hub:?} could not be opened: {reason}"),
            Self::CommitterStopped { hub } => {
                write!(
                    f,
                    "hub {hub:?} stores no more events: its committer thread stopped; restart the program"
                )
            }
            Self::DiskHangs { hub, waiting } => {
                write!(f, "hub {hub:?} has been waiting for its disk for {} s", waiting.as_secs())
            }
            Self::CommitFailed { hub, error } => {
                write!(f, "the last send to hub {hub:?} was not stored: {error}")
            }
            Self::LowOnDisk { free, reserve } => write!(
                f,
                "senders are refused: {} of the disk are free, and {} must stay free; free some space or lower disk_reserve_bytes",
                show_size(*free),
                show_size(*reserve)
            ),
        }
    }
}

/// The outcome of commits, written by the committer.
#[derive(Debug, Default)]
pub(crate) struct CommitHealth {
    /// When the current commit began, in nanoseconds plus one; 0 if no commit is under way.
    began: AtomicU64,
    /// Counts the beginnings and the ends of idle work: odd while it is under way.
    idle: AtomicU64,
    /// The idle work that a health check found under way, by its number, and when it first did.
    idle_seen: Mutex<Option<(u64, Monotonic)>>,
    /// The last commit failed: when (known once the committer has read its clock again), and why.
    failed: Mutex<Option<(Option<Monotonic>, String)>>,
}

impl CommitHealth {
    pub(crate) fn begin(&self, now: Monotonic) {
        self.began.store(now.0.saturating_add(1), Ordering::Relaxed);
    }

    /// Notes that a commit ended just now.
    pub(crate) fn end<T>(&self, result: &Result<T, SendError>) {
        self.began.store(0, Ordering::Relaxed);
        let failed = match result {
            Err(error @ (SendError::DiskFull(_) | SendError::Disk(_))) => Some((None, error.to_string())),
            _ => None,
        };
        *self.failed.lock().unwrap_or_else(PoisonError::into_inner) = failed;
    }

    pub(crate) fn begin_idle(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn end_idle(&self) {
        self.idle.fetch_add(1, Ordering::Relaxed);
    }

    /// How long the current idle work has been under way at least. It has no time of its own: the committer would have to
    /// read its clock for it.
    fn idle_for(&self, now: Monotonic) -> Duration {
        let number = self.idle.load(Ordering::Relaxed);
        if number.is_multiple_of(2) {
            return Duration::ZERO;
        }
        let mut seen = self.idle_seen.lock().unwrap_or_else(PoisonError::into_inner);
        match *seen {
            Some((same, since)) if same == number => now.since(since),
            _ => {
                *seen = Some((number, now));
                Duration::ZERO
            }
        }
    }

    /// Sets the time at which the last commit ended.
    pub(crate) fn ended_at(&self, now: Monotonic) {
        if let Some((at, _)) = &mut *self.failed.lock().unwrap_or_else(PoisonError::into_inner) {
            at.get_or_insert(now);
        }
    }

    pub(crate) fn problems(&self, hub: &HubName, now: Monotonic) -> Vec<Problem> {
        let began = self.began.load(Ordering::Relaxed).checked_sub(1).map(Monotonic);
        let waiting = began.map_or_else(|| self.idle_for(now), |began| now.since(began));
        let waiting = Some(waiting).filter(|waiting| *waiting > MAX_COMMIT_TIME);
        let failed = self.failed.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let hangs = waiting.map(|waiting| Problem::DiskHangs { hub: hub.clone(), waiting });
        let failed = failed.filter(|(at, _)| at.is_none_or(|at| now.since(at) <= FAILURE_SHOWN_FOR));
        let failed = failed.map(|(_, error)| Problem::CommitFailed { hub: hub.clone(), error });
        hangs.into_iter().chain(failed).collect()
    }
}
