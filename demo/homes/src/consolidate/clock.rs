//! The time of a partition, computed from its readings. Sensors may have wrong clocks, so no single sensor
//! decides.
//!
//! The clock follows any reading that is at most two minutes ahead of it. Further it moves, ahead or back, only when most of the
//! [`VOICES`] sensors heard last agree: after hours without events, or when the first reading of all had a wrong clock.

use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

/// A sensor whose clock is further off than this has a wrong clock.
pub const WRONG_CLOCK: Duration = Duration::from_mins(10);

/// How far a single reading takes the clock ahead, and how near readings are that agree.
const NEAR: Duration = Duration::from_mins(2);

/// The number of sensors whose last reading is kept.
const VOICES: usize = 9;

/// The clock of a partition.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Clock {
    now: CityTime,
    /// When it was last set by agreement, or founded: nobody could be heard before.
    set: CityTime,
    /// The sensors heard last, oldest first, and what each of them said.
    voices: Vec<Voice>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Voice {
    pub(super) home: u32,
    pub(super) sensor: Sensor,
    at: CityTime,
}

/// The time of a reading, checked by the clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Judged {
    /// When it was: by the sensor if its clock is right, never later than now.
    pub(super) at: CityTime,
    /// Whether the sensor's clock is wrong.
    pub(super) wrong: bool,
    /// Whether the clock was set by agreement because of it.
    pub(super) set: bool,
}

impl Clock {
    /// The greatest time that can be believed.
    pub(super) fn now(&self) -> CityTime {
        self.now
    }

    /// Since when a sensor has been silent that was heard at this time.
    pub(super) fn unheard_since(&self, heard: CityTime) -> CityTime {
        if heard > self.now { self.set } else { heard.max(self.set) }
    }

    /// Takes the time of a reading in.
    pub(super) fn judge(&mut self, reading: &Reading) -> Judged {
        let at = reading.at;
        let founds = self.voices.is_empty();
        self.hear(Voice { home: reading.home, sensor: reading.sensor, at });
        let mut set = founds;
        if founds {
            self.now = at;
        } else if at.apart(self.now) > NEAR {
            if let Some(agreed) = self.agreed(at) {
                self.now = agreed;
                set = true;
            }
        } else {
            self.now = self.now.max(at);
        }
        if set {
            self.set = self.now;
        }
        self.judged(at, set)
    }

    /// Checks a time without updating the clock.
    fn judged(&self, at: CityTime, set: bool) -> Judged {
        let wrong = at.apart(self.now) > WRONG_CLOCK;
        Judged { at: if wrong { self.now } else { at.min(self.now) }, wrong, set }
    }

    /// The sensors heard last that the clock agrees with, and when they were heard.
    pub(super) fn right_voices(&self) -> impl Iterator<Item = (Voice, CityTime)> {
        self.voices.iter().filter_map(|voice| {
            let judged = self.judged(voice.at, false);
            (!judged.wrong).then_some((*voice, judged.at))
        })
    }

    fn hear(&mut self, voice: Voice) {
        let known = self.voices.iter().position(|old| old.home == voice.home && old.sensor == voice.sensor);
        match known {
            Some(index) => {
                self.voices.remove(index);
            }
            None if self.voices.len() == VOICES => {
                self.voices.remove(0);
            }
            None => {}
        }
        self.voices.push(voice);
    }

    /// The latest time near this one, if most of the voices are near it.
    fn agreed(&self, at: CityTime) -> Option<CityTime> {
        let near = || self.voices.iter().map(|voice| voice.at).filter(|other| other.apart(at) <= NEAR);
        (near().count() * 2 > self.voices.len()).then(|| near().max()).flatten()
    }
}
