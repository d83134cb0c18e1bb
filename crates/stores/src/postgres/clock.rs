//! The database's clock, and which run of the server it belongs to.
//!
//! After a failover another machine keeps the time, and its clock may be minutes off. Hosts notice that the
//! store's time and their own advanced differently (`ephor_core::expiry`), and bury nobody for it. But a host
//! that starts after the failover has nothing to compare with: to it, all leases that were renewed last before
//! the failover would look minutes old. So every record that carries a time also carries when its server was
//! started, to the microsecond: a restart and a failover change that. A time of another run is taken to be as
//! young as can be: of age zero, with as much quiet time ahead as there was when it was written. A living owner
//! renews within seconds and is then dated by the new clock; a dead one is found out by watching, as everybody
//! does anyway when clocks disagree. Views say of such an age that it is not known, for people.

use ephor_core::time::Timestamp;

/// Now, in milliseconds.
pub(super) const NOW: &str = "floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint";

/// The run of the server, in microseconds.
pub(super) const SERVER: &str = "floor(extract(epoch FROM pg_postmaster_start_time()) * 1000000)::bigint";

/// What is decided by a reading older than this is read and decided again: the process may have been stopped
/// between its two statements, or the clock was set.
pub(super) const FRESH_MS: i64 = 5_000;

/// One reading of the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) now: Timestamp,
    pub(super) server: i64,
}

impl Reading {
    /// How far times that were written together with `written` must be moved to be times of this clock.
    pub(super) fn shift(&self, server: i64, written: Timestamp) -> i64 {
        if self.knows(server) { 0 } else { self.now.0.saturating_sub(written.0) }
    }

    /// Whether times of that run of the server can be compared with this one.
    pub(super) fn knows(&self, server: i64) -> bool {
        server == self.server
    }

    /// A condition: that this reading is still good.
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
