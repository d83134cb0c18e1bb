//! The city's time: it starts with ours and may run faster.

use std::time::Duration;

use ephor::{Monotonic, Timestamp};
use serde::{Deserialize, Serialize};

/// A moment in the city, in milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct CityTime(pub u64);

/// One minute of a day: 0 is midnight.
pub const MINUTES_PER_DAY: u16 = 24 * 60;

const MINUTE: u64 = 60_000;

impl CityTime {
    /// Minutes since 1970.
    pub fn minute(self) -> u64 {
        self.0 / MINUTE
    }

    /// Days since 1970.
    pub fn day(self) -> u32 {
        u32::try_from(self.minute() / u64::from(MINUTES_PER_DAY)).unwrap_or(u32::MAX)
    }

    /// The minute of the day, from 0 to 1,439.
    pub fn minute_of_day(self) -> u16 {
        u16::try_from(self.minute() % u64::from(MINUTES_PER_DAY)).unwrap_or(0)
    }

    /// How far two moments are apart, whichever is first.
    pub fn apart(self, other: Self) -> Duration {
        Duration::from_millis(self.0.abs_diff(other.0))
    }

    /// `HH:MM` of the day.
    pub fn hours_and_minutes(self) -> String {
        let minute = self.minute_of_day();
        format!("{:02}:{:02}", minute / 60, minute % 60)
    }
}

/// Tells the city's time from ours.
#[derive(Clone, Copy, Debug)]
pub struct CityClock {
    began: Monotonic,
    at: CityTime,
    speed: f64,
}

impl CityClock {
    /// The city's time is ours at this moment, and runs so many times faster from here.
    pub fn starting(now: Monotonic, wall: Timestamp, speed: f64) -> Self {
        Self { began: now, at: CityTime(u64::try_from(wall.0).unwrap_or(0)), speed }
    }

    /// When it began.
    pub fn start(&self) -> CityTime {
        self.at
    }

    /// How much faster than ours it runs.
    pub fn speed(&self) -> f64 {
        self.speed
    }

    /// The city's time at a moment of ours.
    pub fn at(&self, now: Monotonic) -> CityTime {
        let passed = now.since(self.began).as_secs_f64() * 1_000.0 * self.speed;
        CityTime(self.at.0 + passed as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_moment_has_a_day_and_a_minute() {
        let noon = CityTime(3 * 86_400_000 + 12 * 3_600_000 + 59_999);
        assert_eq!((noon.day(), noon.minute_of_day()), (3, 720));
        assert_eq!(noon.hours_and_minutes(), "12:00");
        assert_eq!(noon.apart(CityTime(noon.0 + 5)), Duration::from_millis(5));
    }

    #[test]
    fn the_city_runs_faster() {
        let clock = CityClock::starting(Monotonic(1_000_000_000), Timestamp(60_000), 10.0);
        assert_eq!(clock.at(Monotonic(1_000_000_000)), CityTime(60_000));
        assert_eq!(clock.at(Monotonic(3_000_000_000)), CityTime(80_000));
        assert_eq!(clock.at(Monotonic(0)), CityTime(60_000), "never before its start");
    }
}
