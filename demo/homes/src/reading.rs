//! The sensor reading, and its encoding: one JSON object for each event.

use bytes::Bytes;
use ephor::PartitionId;
use ephor_core::partition_key;
use serde::{Deserialize, Serialize};

use crate::time::CityTime;

/// Partitions of the hub, as the story has it.
pub const PARTITIONS: u32 = 16;

/// The maximum number of homes, since every home takes memory. A reading of a higher one is refused.
pub const MAX_HOMES: u32 = 1_000_000;

/// The kinds of sensors. Every home has the first three; the last can be added while everything runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Sensor {
    /// Counts the movements in a room.
    Motion,
    /// Knows whether the front door is open.
    Door,
    /// Hears glass break.
    Glass,
    /// Measures carbon monoxide.
    CarbonMonoxide,
}

impl Sensor {
    /// All of them, in the order of [`Sensor::index`].
    pub const ALL: [Self; 4] = [Self::Motion, Self::Door, Self::Glass, Self::CarbonMonoxide];

    /// From 0 to 3.
    pub fn index(self) -> usize {
        self as usize
    }

    /// For people.
    pub fn name(self) -> &'static str {
        match self {
            Self::Motion => "motion",
            Self::Door => "front door",
            Self::Glass => "glass break",
            Self::CarbonMonoxide => "carbon monoxide",
        }
    }
}

/// One reading. Home, sensor and number together are its id: a sensor that repeats itself repeats the number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Reading {
    /// The home, counted from 0.
    pub home: u32,
    /// The sensor.
    pub sensor: Sensor,
    /// Grows by one with every new reading of this sensor, from 1.
    pub number: u32,
    /// When, by the sensor's own clock, which may be wrong.
    pub at: CityTime,
    /// When it was pushed, in milliseconds of real time since 1970: what the age of data is measured by.
    pub pushed: u64,
    /// Movements in the last minute; 1 for an open door; 1 for broken glass; parts per million.
    pub value: u16,
    /// Whether the people have left and armed the house.
    pub armed: bool,
    /// The charge of the battery, in percent.
    pub battery: u8,
}

/// The error for an event that is not a reading.
#[derive(Debug, thiserror::Error)]
#[error("this is not a reading: {0}")]
pub struct NoReading(#[from] serde_json::Error);

impl Reading {
    /// The body of its event.
    pub fn encode(&self) -> Bytes {
        // A struct of numbers always has a JSON form.
        serde_json::to_vec(self).map(Bytes::from).unwrap_or_default()
    }

    /// Reads the body of an event.
    pub fn decode(body: &[u8]) -> Result<Self, NoReading> {
        let reading: Self = serde_json::from_slice(body)?;
        if reading.home >= MAX_HOMES {
            let why = format!("there is no home {}; homes have numbers below {MAX_HOMES}", reading.home);
            return Err(NoReading(serde::de::Error::custom(why)));
        }
        Ok(reading)
    }

    /// A number that stands for its id. The sum of these over a home's readings stands for all of them, in any order.
    pub fn fingerprint(&self) -> u64 {
        let id = (u64::from(self.home) << 34) | ((self.sensor.index() as u64) << 32) | u64::from(self.number);
        let mixed = (id ^ (id >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }
}

/// The key of a home's events: all of them go to one partition, and stay in order there.
pub fn key_of(home: u32) -> String {
    format!("home-{home}")
}

/// The partition of a home: what the hub itself makes of the key.
pub fn partition_of(home: u32) -> PartitionId {
    partition_key::partition_for(&key_of(home), PARTITIONS)
}

#[cfg(test)]
mod tests {
    use super::*;

    const READING: Reading = Reading {
        home: 99_999,
        sensor: Sensor::CarbonMonoxide,
        number: 7,
        at: CityTime(1_000),
        pushed: 2_000,
        value: 35,
        armed: true,
        battery: 80,
    };

    #[test]
    fn a_reading_travels_as_json() {
        let body = READING.encode();
        assert_eq!(Reading::decode(&body).unwrap(), READING);
        let text = std::str::from_utf8(&body).unwrap();
        assert!(text.contains(r#""sensor":"carbon_monoxide""#), "{text}");
        assert!(
            Reading::decode(b"{\"home\":-1}").unwrap_err().to_string().starts_with("this is not a reading: ")
        );
    }

    #[test]
    fn a_home_that_cannot_be_is_no_reading() {
        let last = Reading { home: MAX_HOMES - 1, ..READING };
        assert_eq!(Reading::decode(&last.encode()).unwrap(), last);
        for home in [MAX_HOMES, u32::MAX] {
            let error = Reading::decode(&Reading { home, ..READING }.encode()).unwrap_err().to_string();
            assert!(error.contains(&format!("there is no home {home}")), "{error}");
        }
    }

    #[test]
    fn the_fingerprint_stands_for_the_id_alone() {
        let same = Reading { at: CityTime(5), pushed: 6, value: 0, armed: false, battery: 1, ..READING };
        assert_eq!(same.fingerprint(), READING.fingerprint());
        let others = [
            Reading { home: 1, ..READING },
            Reading { sensor: Sensor::Door, ..READING },
            Reading { number: 8, ..READING },
        ];
        for other in others {
            assert_ne!(other.fingerprint(), READING.fingerprint());
        }
    }

    #[test]
    fn homes_are_spread_over_all_partitions() {
        let mut homes = [0; PARTITIONS as usize];
        for home in 0..100_000 {
            homes[partition_of(home).0 as usize] += 1;
        }
        assert!(homes.iter().all(|homes| (5_500..7_000).contains(homes)), "{homes:?}");
    }
}
