//! Adds up the CPU time and memory of all processes of the demo: those of hosts and hub are given to it, its
//! own process it measures.

use std::time::Duration;

use ephor::environment::SystemClock;
use ephor::{Clock, Monotonic};

use super::process::Cost;
use crate::os::Used;

/// Sums measurements.
#[derive(Debug, Default)]
pub struct Meter {
    own: Option<(Monotonic, u64)>,
    looks: u32,
    cores: f64,
    memory: u64,
}

impl Meter {
    /// Adds a measurement: the hosts, the hub, and this process. Returns the cost of all.
    pub fn note(&mut self, hosts: impl Iterator<Item = (f64, u64)>, hub: Cost) -> (f64, u64) {
        let own = self.own();
        let mut sum = (hub.cores + own.cores, hub.memory + own.memory);
        for (cores, memory) in hosts {
            sum = (sum.0 + cores, sum.1 + memory);
        }
        self.looks += 1;
        self.cores += sum.0;
        self.memory = self.memory.max(sum.1);
        sum
    }

    /// CPU time in cores on average, and the most memory.
    pub fn result(&self) -> (f64, u64) {
        (self.cores / f64::from(self.looks.max(1)), self.memory)
    }

    fn own(&mut self) -> Cost {
        let now = SystemClock.now();
        let Some(used) = Used::of_this_process() else {
            return Cost::default();
        };
        let passed = |then| now.since(then).max(Duration::from_millis(1));
        let cores = self.own.map_or(0.0, |(then, ticks)| used.cores_since(ticks, passed(then)));
        self.own = Some((now, used.ticks));
        Cost { cores, memory: used.memory }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_average_and_the_most_are_kept() {
        let mut meter = Meter::default();
        let hub = Cost { cores: 0.5, memory: 1 << 40 };
        meter.note([(0.25, 1)].into_iter(), hub);
        meter.note([(0.25, 1), (1.0, 5)].into_iter(), Cost::default());
        let (cores, memory) = meter.result();
        assert!(cores >= 1.0, "{cores}");
        assert!(((1 << 40) + 1..2 << 40).contains(&memory), "{memory}");
    }
}
