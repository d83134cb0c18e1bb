//! Two kinds of time, kept apart by type.
//!
//! [`Monotonic`] is this machine's own clock: it never jumps and counts
//! suspended time; durations are measured with it. [`Timestamp`] is somebody's
//! wall clock (the hub's, the store's): it is shown to people, and only ever
//! compared with timestamps of the same clock.

use std::fmt;
use std::ops::{Add, Sub};
use std::time::Duration;

/// An instant on this machine's monotonic clock, in nanoseconds from some start.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(pub u64);

impl Monotonic {
    /// The end of time: a deadline that never comes.
    pub const NEVER: Self = Self(u64::MAX);

    /// How long after `earlier` this is; zero if it is not after.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(earlier.0))
    }

    /// This much earlier, stopping at the clock's start.
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
    /// How long after `earlier` this is; zero if it is not after.
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

impl fmt::Display for Timestamp {
    /// `2018-04-15T01:23:45.000Z`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (days, ms) = (self.0.div_euclid(86_400_000), self.0.rem_euclid(86_400_000));
        // Days to a Gregorian date, counted in 400-year cycles from 0000-03-01.
        let shifted = days + 719_468;
        let (cycle, day_of_cycle) = (shifted.div_euclid(146_097), shifted.rem_euclid(146_097));
        let year_of_cycle =
            (day_of_cycle - day_of_cycle / 1_460 + day_of_cycle / 36_524 - day_of_cycle / 146_096) / 365;
        let day_of_year = day_of_cycle - (365 * year_of_cycle + year_of_cycle / 4 - year_of_cycle / 100);
        let march_month = (5 * day_of_year + 2) / 153;
        let day = day_of_year - (153 * march_month + 2) / 5 + 1;
        let month = if march_month < 10 { march_month + 3 } else { march_month - 9 };
        let year = year_of_cycle + cycle * 400 + i64::from(month <= 2);
        let (hours, minutes, seconds) = (ms / 3_600_000, ms / 60_000 % 60, ms / 1_000 % 60);
        write!(f, "{year:04}-{month:02}-{day:02}T{hours:02}:{minutes:02}:{seconds:02}.{:03}Z", ms % 1_000)
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// Where time comes from. The host never asks the operating system itself.
pub trait Clock: Send + Sync + 'static {
    /// Now, on the clock that durations are measured with.
    fn now(&self) -> Monotonic;
    /// Now, as people write it.
    fn wall(&self) -> Timestamp;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn timestamps_read_as_dates() {
        assert_eq!(Timestamp(0).to_string(), "1970-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(1_523_755_425_678).to_string(), "2018-04-15T01:23:45.678Z");
        assert_eq!(Timestamp(951_782_400_000).to_string(), "2000-02-29T00:00:00.000Z");
        assert_eq!(Timestamp(951_868_800_000).to_string(), "2000-03-01T00:00:00.000Z");
        assert_eq!(Timestamp(978_307_199_999).to_string(), "2000-12-31T23:59:59.999Z");
        assert_eq!(Timestamp(4_107_542_400_000).to_string(), "2100-03-01T00:00:00.000Z");
        assert_eq!(Timestamp(-1).to_string(), "1969-12-31T23:59:59.999Z");
        assert_eq!(format!("{:?}", Timestamp(13_569_465_600_000)), "2400-01-01T00:00:00.000Z");
        assert_eq!(Timestamp(13_574_563_200_000).to_string(), "2400-02-29T00:00:00.000Z");
    }

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
