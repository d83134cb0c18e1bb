//! An alarm: its kind, when it opens and when it is over.

use serde::{Deserialize, Serialize};

use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

/// Parts per million of carbon monoxide from which on there is danger.
pub const CARBON_MONOXIDE_ALARM: u16 = 50;

/// The kind of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub enum AlarmKind {
    /// Glass was heard to break.
    GlassBreak,
    /// The front door is open though the people have left and armed the house.
    DoorOpen,
    /// Too much carbon monoxide.
    CarbonMonoxide,
    /// A sensor has not been heard of for long.
    Silent(Sensor),
}

/// One alarm, open or over.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Alarm {
    /// Its kind.
    pub kind: AlarmKind,
    /// The highest value while it was open.
    pub value: u16,
    /// When it opened.
    pub since: CityTime,
    /// When it was over; none while it is open.
    pub until: Option<CityTime>,
    /// The number of the reading that opened it, and then of the one that ended it: what is not newer was told before.
    pub(super) number: u32,
}

/// The effect of a reading on the alarm of its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// It tells what was told before: a repeat, or one that was overtaken.
    Stale,
    Open,
    /// It goes on, with a higher value.
    Rise,
    Close,
}

/// The kind of alarm that a reading speaks of, and whether it is the matter now. Only the sensor's own readings open and end its alarm.
pub(super) fn spoken_of(reading: &Reading) -> Option<(AlarmKind, bool)> {
    match reading.sensor {
        Sensor::Motion => None,
        Sensor::Door => Some((AlarmKind::DoorOpen, reading.value > 0 && reading.armed)),
        Sensor::Glass => Some((AlarmKind::GlassBreak, reading.value > 0)),
        Sensor::CarbonMonoxide => Some((AlarmKind::CarbonMonoxide, reading.value >= CARBON_MONOXIDE_ALARM)),
    }
}

impl Alarm {
    pub(super) fn open(kind: AlarmKind, reading: &Reading, since: CityTime) -> Self {
        Self { kind, value: reading.value, since, until: None, number: reading.number }
    }

    /// Whether it goes on.
    pub fn is_open(&self) -> bool {
        self.until.is_none()
    }

    /// Describes the alarm.
    pub fn what(&self) -> String {
        match self.kind {
            AlarmKind::GlassBreak => "glass break".into(),
            AlarmKind::DoorOpen => "door open while away".into(),
            AlarmKind::CarbonMonoxide => format!("carbon monoxide {} ppm", self.value),
            AlarmKind::Silent(sensor) => format!("silent: {}", sensor.name()),
        }
    }

    /// Returns the effect of a reading, after the newest alarm of its kind.
    pub(super) fn step(before: Option<&Self>, alarming: bool, reading: &Reading) -> Step {
        match before {
            Some(alarm) if reading.number <= alarm.number => Step::Stale,
            Some(alarm) if alarm.is_open() && alarming => {
                if reading.value > alarm.value {
                    Step::Rise
                } else {
                    Step::Nothing
                }
            }
            Some(alarm) if alarm.is_open() => Step::Close,
            _ if alarming => Step::Open,
            _ => Step::Nothing,
        }
    }

    pub(super) fn close(&mut self, number: u32, at: CityTime) {
        self.number = number;
        self.until = Some(at.max(self.since));
    }
}
