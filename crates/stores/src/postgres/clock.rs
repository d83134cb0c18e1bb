//! The database's clock, with the start time of the server, so that times of another server are recognized
//! after a failover.
//!
//! After a failover another machine keeps the time, and its clock may be minutes off. Running hosts
//! notice that the store's time and their own advanced differently (`ephor_core::expiry`), and do not
//! treat leases as expired because of it. A host that starts after the failover has nothing to compare
//! with: leases that were last renewed before the failover would look minutes old to it. Therefore every
//! record with a time also stores when its server was started, in microseconds, which a restart and a
//! failover change. A time of another run counts as new: its age is zero, and the takeover delay is what
//! it was when the record was written. A live owner renews within seconds and so gets a time of the new
//! clock; hosts find a dead owner by observing that its lease does not change. Views mark such an age as
//! unknown.

use ephor_core::time::Timestamp;

/// SQL for the current time, in milliseconds.
pub(super) const NOW: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// SQL for the start time of the server, in microseconds.
pub(super) const SERVER: &str = "floor(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/// A call whose reading is older than this reads and decides again: the process was stopped between its
/// two statements, or the clock was set.
pub(super) const FRESH_MS: i64 = 5_000;

/// One reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) now: Timestamp,
    pub(super) server: i64,
}

impl Reading {
    /// The offset that converts the times of a record, written at `written`, to this clock.
    pub(super) fn shift(&self, server: i64, written: Timestamp) -> i64 {
        if self.knows(server) { 0 } else { self.now.0.saturating_sub(written.0) }
    }

    /// Whether times of that run of the server are comparable with this reading.
    pub(super) fn knows(&self, server: i64) -> bool {
        server == self.server
    }

    /// An SQL condition: this reading is still fresh.
    pub(super) fn is_fresh(&self) -> String {
        format!("abs({NOW} - {}) <= {FRESH_MS} AND {SERVER} = {}", self.now.0, self.server)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_times_of_another_run_are_moved() {
        let reading = Reading { now: Timestamp(1_000), server: 7 };
        assert_eq!(reading.shift(7, Timestamp(900)), 0);
        assert_eq!(reading.shift(7, Timestamp(1_900)), 0);
        assert_eq!(reading.shift(6, Timestamp(900)), 100);
        assert_eq!(reading.shift(8, Timestamp(1_900)), -900);
    }
}
