//! A moment of the city's simulated time: its day, its minute, and how far two moments are apart.
//! `city/sender.rs` advances the city's time, which may run faster than ours.

use std::time::Duration;

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
}
