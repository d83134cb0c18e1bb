//! The state of one home, and the changes that a sensor reading makes to it.

use serde::{Deserialize, Serialize};

use super::alarm::{Alarm, AlarmKind, Step, spoken_of};
use super::clock::Judged;
use super::seen_numbers::{Arrival, Seen};
use super::today::Today;
use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

/// Alarms that are over and still shown with their home.
const ALARMS_KEPT: usize = 6;

/// One home.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Home {
    /// Everything but the minutes: an update contains it as a whole.
    pub(super) now: HomeNow,
    /// Today, minute by minute.
    pub(super) today: Today,
}

/// A home without its minutes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct HomeNow {
    sensors: [Option<SensorState>; 4],
    armed: bool,
    readings: u64,
    #[serde(with = "postcard::fixint::le")]
    fingerprint: u64,
    repeats: u32,
    /// Oldest first.
    alarms: Vec<Alarm>,
}

/// One sensor that has been heard of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct SensorState {
    seen: Seen,
    /// Its last value.
    pub value: u16,
    /// When it was last heard of: by its own clock, or by the partition's if its own is wrong.
    pub heard: CityTime,
    /// The charge of its battery, in percent.
    pub battery: u8,
    /// Whether its clock is wrong.
    pub clock_wrong: bool,
    /// Whether it has not been heard of for long.
    pub silent: bool,
}

impl Home {
    /// A sensor, if it has been heard of.
    pub fn sensor(&self, sensor: Sensor) -> Option<&SensorState> {
        self.now.sensors[sensor.index()].as_ref()
    }

    /// The sensors that have been heard of.
    pub fn sensors(&self) -> impl Iterator<Item = (Sensor, &SensorState)> {
        Sensor::ALL.into_iter().filter_map(|sensor| Some((sensor, self.sensor(sensor)?)))
    }

    /// Whether the people are away.
    pub fn armed(&self) -> bool {
        self.now.armed
    }

    /// Readings counted, each once.
    pub fn readings(&self) -> u64 {
        self.now.readings
    }

    /// The wrapping sum of the fingerprints of those readings.
    pub fn fingerprint(&self) -> u64 {
        self.now.fingerprint
    }

    /// Readings that came again, and were not counted.
    pub fn repeats(&self) -> u32 {
        self.now.repeats
    }

    /// Its alarms, newest first: all that are open, and the last that are over.
    pub fn alarms(&self) -> impl Iterator<Item = &Alarm> {
        self.now.alarms.iter().rev()
    }

    /// Whether somebody moved when the motion sensor was last heard of.
    pub fn is_active(&self) -> bool {
        self.sensor(Sensor::Motion).is_some_and(|motion| motion.value > 0 && !motion.silent)
    }

    /// Whether one of its sensors is silent.
    pub fn is_silent(&self) -> bool {
        self.sensors().any(|(_, sensor)| sensor.silent)
    }

    /// Whether an alarm other than silence is open.
    pub fn in_danger(&self) -> bool {
        self.now.alarms.iter().any(|alarm| alarm.is_open() && !matches!(alarm.kind, AlarmKind::Silent(_)))
    }

    /// The day that its minutes are of. An older one than the city's means that nothing was heard of today.
    pub fn minutes(&self) -> &Today {
        &self.today
    }

    /// Counts the reading's number; a repeat counts as such.
    pub(super) fn arrive(&mut self, reading: &Reading) -> Arrival {
        let sensor = self.now.sensors[reading.sensor.index()].get_or_insert_default();
        let arrival = sensor.seen.note(reading.number);
        match arrival {
            Arrival::Repeat => self.now.repeats += 1,
            Arrival::Newest | Arrival::Late => {
                self.now.readings += 1;
                self.now.fingerprint = self.now.fingerprint.wrapping_add(reading.fingerprint());
            }
        }
        arrival
    }

    /// Takes in what a counted reading says; gives the marks that its minute deserves. One that was overtaken by a newer one of its
    /// sensor says nothing about the present.
    pub(super) fn take(&mut self, reading: &Reading, judged: Judged, arrival: Arrival) -> u8 {
        if arrival == Arrival::Newest {
            self.now.armed = reading.armed;
            let sensor = self.now.sensors[reading.sensor.index()].get_or_insert_default();
            sensor.value = reading.value;
            sensor.heard = judged.at;
            sensor.battery = reading.battery;
            sensor.clock_wrong = judged.wrong;
            if std::mem::take(&mut sensor.silent) {
                self.close(AlarmKind::Silent(reading.sensor), reading.number, judged.at);
            }
        }
        self.raise(reading, judged.at);
        self.marks(reading)
    }

    fn marks(&self, reading: &Reading) -> u8 {
        let said = match reading.sensor {
            Sensor::Motion if reading.value > 0 => Today::MOVEMENT,
            Sensor::Door if reading.value > 0 => Today::DOOR,
            _ => 0,
        };
        let alarm = if self.now.alarms.iter().any(Alarm::is_open) { Today::ALARM } else { 0 };
        Today::HEARD | said | alarm
    }

    /// Opens, raises or closes the alarm that the reading speaks of.
    fn raise(&mut self, reading: &Reading, at: CityTime) {
        let Some((kind, alarming)) = spoken_of(reading) else { return };
        let before = self.now.alarms.iter_mut().rev().find(|alarm| alarm.kind == kind);
        match (Alarm::step(before.as_deref(), alarming, reading), before) {
            (Step::Open, _) => self.keep(Alarm::open(kind, reading, at)),
            (Step::Rise, Some(alarm)) => alarm.value = reading.value,
            (Step::Close, Some(alarm)) => alarm.close(reading.number, at),
            _ => {}
        }
    }

    /// A sensor has not been heard of for long.
    pub(super) fn fall_silent(&mut self, sensor: Sensor, since: CityTime) {
        if let Some(state) = &mut self.now.sensors[sensor.index()] {
            state.silent = true;
            self.keep(Alarm { kind: AlarmKind::Silent(sensor), value: 0, since, until: None, number: 0 });
        }
    }

    /// The sensor's clock turned out to be right: it was the partition's that was wrong.
    pub(super) fn believe(&mut self, sensor: Sensor, at: CityTime) {
        if let Some(state) = &mut self.now.sensors[sensor.index()] {
            state.clock_wrong = false;
            state.heard = at;
        }
    }

    fn close(&mut self, kind: AlarmKind, number: u32, at: CityTime) {
        let open = self.now.alarms.iter_mut().rev().find(|alarm| alarm.kind == kind && alarm.is_open());
        if let Some(alarm) = open {
            alarm.close(number, at);
        }
    }

    /// The same home if no sensor had repeated itself.
    #[cfg(test)]
    pub(super) fn forget_repeats(&mut self) {
        self.now.repeats = 0;
    }

    /// Keeps an alarm, and lets the oldest go that are over.
    fn keep(&mut self, alarm: Alarm) {
        self.now.alarms.push(alarm);
        let over = self.now.alarms.iter().filter(|alarm| !alarm.is_open()).count();
        let mut surplus = over.saturating_sub(ALARMS_KEPT);
        self.now.alarms.retain(|alarm| {
            let goes = surplus > 0 && !alarm.is_open();
            surplus -= usize::from(goes);
            !goes
        });
    }
}
