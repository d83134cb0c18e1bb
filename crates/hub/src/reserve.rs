//! Keeps part of the disk free of events: senders are refused before the disk is full.
//!
//! What is left is for everything else on that disk: groups and marks of the hubs, a SQLite store beside them, the
//! system. All hubs of a data folder share one reserve.
//!
//!   open ─free space < reserve─► reached ─free space ≥ reserve and an eighth─► open
//!
//! The disk is asked once in [`LOOK_EVERY`], and earlier when half of what was left may be used up: what a commit takes
//! of the disk is more than its events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::time::Monotonic;

use crate::config::{DEFAULT_DISK_RESERVE_BYTES, DEFAULT_DISK_RESERVE_PARTS, quantity::show_size};
use crate::files::{DiskSpace, Files};

/// So long a look at the disk counts.
const LOOK_EVERY: Duration = Duration::from_millis(100);

/// How much more than the reserve has to be free before senders are admitted again, as a part of the reserve:
/// otherwise one that tries all the time would turn every freed block into two lines of the log.
const RESUME_PARTS: u64 = 8;

/// Too little of the disk is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Reached {
    pub(crate) free: u64,
    pub(crate) reserve: u64,
}

/// The reserve of one data folder.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    files: Arc<dyn Files>,
    /// What was configured; none for the default.
    asked: Option<u64>,
    /// Held while the disk is asked.
    state: Mutex<State>,
    /// What the last look found, for those who must not wait for a disk.
    found: Mutex<Option<Reached>>,
}

#[derive(Debug, Default)]
struct State {
    looked: Option<Monotonic>,
    /// What may be stored before the disk is asked again.
    left: u64,
    reached: Option<Reached>,
}

impl DiskReserve {
    pub(crate) fn new(files: Arc<dyn Files>, asked: Option<u64>) -> Self {
        Self { files, asked, state: Mutex::default(), found: Mutex::default() }
    }

    /// Whether so many bytes may be stored.
    pub(crate) fn admit(&self, bytes: u64, now: Monotonic) -> Result<(), Reached> {
        if self.asked == Some(0) {
            return Ok(());
        }
        let mut state = self.state();
        let fresh = state.looked.is_some_and(|looked| now.since(looked) < LOOK_EVERY);
        // Whoever is refused shall not be refused for longer than it takes.
        if !fresh || state.left < bytes || state.reached.is_some() {
            self.look(&mut state, bytes, now);
            *self.found.lock().unwrap_or_else(PoisonError::into_inner) = state.reached;
        }
        match state.reached {
            Some(reached) => Err(reached),
            None => {
                state.left = state.left.saturating_sub(bytes);
                Ok(())
            }
        }
    }

    /// What the last look found. Neither asks a disk nor waits for somebody who does.
    pub(crate) fn reached(&self) -> Option<Reached> {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn look(&self, state: &mut State, bytes: u64, now: Monotonic) {
        state.looked = Some(now);
        let space = match self.files.space() {
            Ok(Some(space)) => space,
            // Files that know of no disk, and a disk that does not tell: the write itself will.
            Ok(None) | Err(_) => {
                (state.left, state.reached) = (u64::MAX, None);
                return;
            }
        };
        let reserve = reserve_of(space, self.asked);
        let needed = match state.reached {
            Some(_) => reserve.saturating_add(reserve / RESUME_PARTS),
            None => reserve,
        };
        let reached =
            (space.free < needed.saturating_add(bytes)).then_some(Reached { free: space.free, reserve });
        let folder = self.files.shown("");
        let (free, kept) = (show_size(space.free), show_size(reserve));
        match (state.reached, reached) {
            (None, Some(_)) => tracing::error!(
                folder,
                free,
                reserve = kept,
                "the disk is nearly full: senders are refused until there is room; free some, keep less (retention \
                 by size), or lower disk_reserve_bytes; reading goes on"
            ),
            (Some(_), None) => {
                tracing::info!(
                    folder,
                    free,
                    reserve = kept,
                    "there is room on the disk again: senders are admitted"
                )
            }
            _ => {}
        }
        state.left = space.free.saturating_sub(reserve) / 2;
        state.reached = reached;
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// How much of this disk stays free.
fn reserve_of(space: DiskSpace, asked: Option<u64>) -> u64 {
    asked.unwrap_or_else(|| DEFAULT_DISK_RESERVE_BYTES.min(space.total / DEFAULT_DISK_RESERVE_PARTS))
}

#[cfg(test)]
mod tests {
    use super::*;

    const MIB: u64 = 1 << 20;
    const GIB: u64 = 1 << 30;

    #[test]
    fn by_default_a_small_disk_keeps_a_twentieth_and_a_large_one_a_gibibyte() {
        let of = |total, asked| reserve_of(DiskSpace { free: total, total }, asked);
        assert_eq!([of(40 * MIB, None), of(20 * GIB, None), of(4_000 * GIB, None)], [2 * MIB, GIB, GIB]);
        assert_eq!([of(40 * MIB, Some(0)), of(GIB, Some(5 * GIB))], [0, 5 * GIB]);
    }
}
