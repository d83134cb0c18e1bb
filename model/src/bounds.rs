//! The bounds of the search, such as the number of hosts and partitions, and the durations of the protocol
//! in ticks.

use std::time::Duration;

use ephor_core::time::{Monotonic, Timestamp};

/// A lease lasts this many ticks.
pub const LEASE: u8 = 3;
/// An owner stops this many ticks before its lease is over.
pub const MARGIN: u8 = 1;
/// Nothing is delivered this many ticks after a renewal was sent, or later.
pub const USABLE: u8 = LEASE - MARGIN;
/// How long a handover may take.
pub const PATIENCE: u8 = 1;
/// The extra time for an owner that is seen draining.
pub const GRACE: u8 = 0;
/// How long a free partition is left to the host that the plan gives it to. None at all: any host may claim it, so that
/// there are more races than in production.
pub const OVERDUE: u8 = 0;

/// The instant at which every step happens. Only ages count, so it never moves.
pub const NOW: Monotonic = Monotonic(1_000_000_000_000);
/// The same instant on the store's clock.
pub const STORE_NOW: Timestamp = Timestamp(1_000_000);

/// Converts ticks to a duration, for the code of `ephor-core`.
pub fn ticks(number: u8) -> Duration {
    Duration::from_secs(u64::from(number))
}

/// Converts a duration to ticks.
pub fn in_ticks(duration: Duration) -> u8 {
    u8::try_from(duration.as_secs()).unwrap_or(u8::MAX)
}

/// The limits of the search. Time has none by default.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Bounds {
    /// Hosts: at most three.
    pub hosts: usize,
    /// Partitions: at most two.
    pub partitions: usize,
    /// Changes of owner in all: claims, transfers and seeks.
    pub changes: u8,
    /// Messages in flight for longer than a step, at a time: at most three. All others arrive at once.
    pub messages: usize,
    /// Events of the first partition. The second has none, and no seeks: nothing in a partition depends on the position of
    /// another one.
    pub events: u8,
    /// Seeks by an operator.
    pub seeks: u8,
    /// Hosts that stop.
    pub stops: u8,
    /// Processors that fail.
    pub failures: u8,
    /// Outcomes that stay unknown: a call times out, or an answer is lost. None: any number.
    pub unknowns: Option<u8>,
    /// Ticks that pass. None: any number.
    pub ticks: Option<u8>,
}

impl Default for Bounds {
    fn default() -> Self {
        Self {
            hosts: 2,
            partitions: 2,
            changes: 3,
            messages: 1,
            events: 1,
            seeks: 1,
            stops: 0,
            failures: 0,
            unknowns: None,
            ticks: None,
        }
    }
}

impl Bounds {
    /// Returns the number of events of a partition.
    pub fn events_of(&self, partition: usize) -> u8 {
        if partition == 0 { self.events } else { 0 }
    }
}
