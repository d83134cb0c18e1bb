//! Two kinds of time, kept apart by type: monotonic time and wall-clock time; and the trait of a clock that
//! gives both.
//!
//! [`Monotonic`] is this machine's own clock: it never jumps and counts suspended time; durations
//! are measured with it. [`Timestamp`] is a wall clock (the hub's or the store's): it is shown to
//! people, and only ever compared with timestamps of the same clock.

mod conversions;
mod duration_text;

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

pub use conversions::InvalidTimestamp;
pub use duration_text::duration_text;

/// An instant on this machine's monotonic clock, in nanoseconds from some start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The end of time: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// The time since `earlier`; zero if this is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This much earlier, but not before the start of the clock.
    pub fn before(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(nanos(by)))
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

impl Add<Duration> for Monotonic {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(nanos(by)))
    }
}

impl fmt::Debug for Monotonic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{:03}s", self.0 / 1_000_000_000, self.0 / 1_000_000 % 1_000)
    }
}

/// A wall-clock time in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(pub i64);

impl Timestamp {
    /// The time since `earlier`; zero if this is not after it.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(u64::try_from(self.0.saturating_sub(earlier.0)).unwrap_or(0))
    }
}

fn millis(duration: Duration) -> i64 {
    i64::try_from(duration.as_millis()).unwrap_or(i64::MAX)
}

impl Add<Duration> for Timestamp {
    type Output = Self;
    fn add(self, by: Duration) -> Self {
        Self(self.0.saturating_add(millis(by)))
    }
}

impl Sub<Duration> for Timestamp {
    type Output = Self;
    fn sub(self, by: Duration) -> Self {
        Self(self.0.saturating_sub(millis(by)))
    }
}

/// The source of time. The host never asks the operating system itself.
pub trait Clock: Send + Sync + 'static {
    /// The current instant on the monotonic clock, for measuring durations.
    fn now(&self) -> Monotonic;
    /// The current wall-clock time.
    fn wall(&self) -> Timestamp;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_never_go_negative_and_sums_never_wrap() {
        let second = Duration::from_secs(1);
        assert_eq!(Monotonic(5).since(Monotonic(9)), Duration::ZERO);
        assert_eq!((Monotonic(9) + second).since(Monotonic(9)), second);
        assert_eq!(Monotonic::NEVER + second, Monotonic::NEVER);
        assert_eq!(Monotonic(5).before(second), Monotonic(0));
        assert_eq!((Monotonic(5) + second).before(second), Monotonic(5));
        assert_eq!(Timestamp(5).since(Timestamp(9)), Duration::ZERO);
        assert_eq!((Timestamp(5) + second - second).since(Timestamp(2)), Duration::from_millis(3));
        assert_eq!(format!("{:?}", Monotonic(12_345_678_901)), "12.345s");
    }
}
