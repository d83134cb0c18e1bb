//! Refuses senders before the disk is full, so that a reserve of free space is left.
//!
//! The reserve is for everything else on that disk: records and marks of the hubs, a SQLite store, the system. All
//! hubs of a data folder share one reserve.
//!
//!   open ─free space < reserve─► reached ─free space ≥ reserve and an eighth─► open
//!
//! The free space is measured once in [`MEASURE_EVERY`], and earlier when half of it may be used up: a commit takes more
//! space than its events.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::time::Monotonic;

use crate::config::{DEFAULT_DISK_RESERVE_BYTES, DEFAULT_DISK_RESERVE_PARTS, quantity::show_size};
use crate::files::{DiskSpace, Files};

/// How long a measurement of the free space is valid.
const MEASURE_EVERY: Duration = Duration::from_millis(100);

/// Senders are admitted again when the reserve and one part in this many of it are free. Without this hysteresis, a
/// sender that retries all the time would cause two log lines for every block that is freed.
const RESUME_PARTS: u64 = 8;

/// Less than the reserve is free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ReserveReached {
    pub(crate) free: u64,
    pub(crate) reserve: u64,
}

/// The reserve of one data folder.
#[derive(Debug)]
pub(crate) struct DiskReserve {
    files: Arc<dyn Files>,
    /// The configured reserve; none for the default.
    asked: Option<u64>,
    /// Held while the free space is measured.
    state: Mutex<State>,
    /// The result of the last measurement, readable without waiting for the disk.
    found: Mutex<Option<ReserveReached>>,
}

#[derive(Debug, Default)]
struct State {
    measured_at: Option<Monotonic>,
    /// The bytes that may be stored before the next measurement.
    left: u64,
    reached: Option<ReserveReached>,
}

impl DiskReserve {
    pub(crate) fn new(files: Arc<dyn Files>, asked: Option<u64>) -> Self {
        Self { files, asked, state: Mutex::default(), found: Mutex::default() }
    }

    /// Checks whether `bytes` may be stored.
    pub(crate) fn admit(&self, bytes: u64, now: Monotonic) -> Result<(), ReserveReached> {
        if self.asked == Some(0) {
            return Ok(());
        }
        let mut state = self.state();
        let fresh = state.measured_at.is_some_and(|measured_at| now.since(measured_at) < MEASURE_EVERY);
        // While senders are refused, every attempt measures again, so that none is refused for longer than necessary.
        if !fresh || state.left < bytes || state.reached.is_some() {
            self.measure(&mut state, bytes, now);
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

    /// Returns the result of the last measurement. Does not wait for the disk.
    pub(crate) fn reached(&self) -> Option<ReserveReached> {
        *self.found.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn measure(&self, state: &mut State, bytes: u64, now: Monotonic) {
        state.measured_at = Some(now);
        let space = match self.files.space() {
            Ok(Some(space)) => space,
            // Files without a disk, or a disk that cannot be measured: a full disk shows when it is written.
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
        let reached = (space.free < needed.saturating_add(bytes))
            .then_some(ReserveReached { free: space.free, reserve });
        let folder = self.files.shown("");
        let (free, kept) = (show_size(space.free), show_size(reserve));
        match (state.reached, reached) {
            (None, Some(_)) => tracing::error!(
                folder,
                free,
                reserve = kept,
                "the disk is nearly full: senders are refused until there is room, readers continue. Free some space, \
                 set a retention by size, or lower disk_reserve_bytes"
            ),
            (Some(_), None) => {
                tracing::info!(folder, free, reserve = kept, "the disk has room again: senders are admitted")
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

/// Returns how much of this disk stays free.
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
