//! Decides whether this host is healthy enough to serve partitions.
//!
//! A host that cannot reach the hub, or whose processor does not open, would claim partitions only
//! to release them again. After a few failures in a row, while it serves no other partition, it
//! reports itself unhealthy (`Unfit`), so that its share goes to others, and retries later.

use std::time::Duration;

use ephor_core::failure::Backoff;
use ephor_core::time::Monotonic;

/// The number of failures in a row that make a host unhealthy.
const FAILURES: u32 = 3;
/// The time for which it stays unhealthy: longer each time.
const REST: Backoff = Backoff { first: Duration::from_secs(30), most: Duration::from_secs(300) };

#[derive(Debug, Default)]
pub(crate) struct Fitness {
    failures: u32,
    rests: u32,
    unfit_until: Option<Monotonic>,
}

impl Fitness {
    pub(crate) fn failed(&mut self, now: Monotonic, chance: u64) {
        self.failures += 1;
        if self.failures >= FAILURES && !self.is_unfit(now) {
            self.rests += 1;
            self.unfit_until = Some(now + REST.delay(self.rests, chance));
        }
    }

    pub(crate) fn well(&mut self) {
        *self = Self::default();
    }

    pub(crate) fn is_unfit(&self, now: Monotonic) -> bool {
        self.unfit_until.is_some_and(|until| now < until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn three_failures_in_a_row_make_a_host_unfit_for_longer_each_time() {
        let mut fitness = Fitness::default();
        fitness.failed(at(0), 0);
        fitness.failed(at(0), 0);
        assert!(!fitness.is_unfit(at(0)));
        fitness.failed(at(0), 0);
        assert!(fitness.is_unfit(at(29)));
        assert!(!fitness.is_unfit(at(30)));
        // It retries, and now one failure is enough.
        fitness.failed(at(31), 0);
        assert!(fitness.is_unfit(at(90)));
        assert!(!fitness.is_unfit(at(91)));
        fitness.well();
        fitness.failed(at(100), 0);
        assert!(!fitness.is_unfit(at(100)));
    }

    #[test]
    fn failures_while_unfit_do_not_prolong_it() {
        let mut fitness = Fitness::default();
        for _ in 0..9 {
            fitness.failed(at(0), 0);
        }
        assert!(!fitness.is_unfit(at(30)));
    }
}
