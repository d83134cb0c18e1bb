//! Decides whether this host is healthy enough to serve partitions.
//!
//! A host that cannot reach the hub, or whose processor does not open, would claim partitions only
//! to release them again. After a few failures in a row, while it serves no other partition, it
//! reports itself unhealthy, so that its share goes to others, and retries later.

use std::time::Duration;

use ephor_core::failure_policy::Backoff;
use ephor_core::time::Monotonic;

/// The number of failures in a row that make a host unhealthy.
const UNHEALTHY_AFTER: u32 = 3;
/// The time for which it stays unhealthy: longer each time.
const UNHEALTHY_FOR: Backoff = Backoff { first: Duration::from_secs(30), max: Duration::from_secs(300) };

#[derive(Debug, Default)]
pub(crate) struct Health {
    failures: u32,
    periods: u32,
    unhealthy_until: Option<Monotonic>,
}

impl Health {
    pub(crate) fn failed(&mut self, now: Monotonic, chance: u64) {
        self.failures += 1;
        if self.failures >= UNHEALTHY_AFTER && !self.is_unhealthy(now) {
            self.periods += 1;
            self.unhealthy_until = Some(now + UNHEALTHY_FOR.delay(self.periods, chance));
        }
    }

    pub(crate) fn recovered(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_unhealthy(&self, now: Monotonic) -> bool {
        self.unhealthy_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn three_failures_in_a_row_make_a_host_unhealthy_for_longer_each_time() {
        let mut health = Health::default();
        health.failed(at(0), 0);
        health.failed(at(0), 0);
        assert!(!health.is_unhealthy(at(0)));
        health.failed(at(0), 0);
        assert!(health.is_unhealthy(at(29)));
        assert!(!health.is_unhealthy(at(30)));
        // It retries, and now one failure is enough.
        health.failed(at(31), 0);
        assert!(health.is_unhealthy(at(90)));
        assert!(!health.is_unhealthy(at(91)));
        health.recovered();
        health.failed(at(100), 0);
        assert!(!health.is_unhealthy(at(100)));
    }

    #[test]
    fn failures_while_unhealthy_do_not_prolong_it() {
        let mut health = Health::default();
        for _ in 0..9 {
            health.failed(at(0), 0);
        }
        assert!(!health.is_unhealthy(at(30)));
    }
}
