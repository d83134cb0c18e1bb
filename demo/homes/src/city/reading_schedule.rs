//! Generates the readings that are due: one of each sensor per minute of city time, at its own offset within
//! the minute, so that the load is even. Some come again; sensors with an empty battery send none.

use std::collections::BTreeMap;

use super::faults::REPEATS;
use super::{City, Matter};
use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

/// The most readings of one call.
pub const MAX_PER_CALL: usize = 10_000;

/// A repeat comes within this many milliseconds of real time.
const REPEAT_WITHIN: u64 = 3_000;

const MINUTE: u64 = 60_000;

/// A walk through the city's time, from reading to reading.
#[derive(Clone, Debug)]
pub struct ReadingSchedule {
    city: City,
    speed: f64,
    first_three: Walk,
    carbon_monoxide: Walk,
    /// Whether the detectors spoke in the last call.
    joined: bool,
    /// The last number of each sensor: four a home.
    numbers: Vec<u32>,
    /// Readings that come again, by the moment at which they do.
    repeats: BTreeMap<(CityTime, u32, Sensor, u32), Reading>,
    reached: CityTime,
}

impl ReadingSchedule {
    /// Begins at a moment. The speed of the city's time says how late repeats come: their delay is one of real time.
    pub fn new(city: City, from: CityTime, speed: f64) -> Self {
        Self {
            city,
            speed,
            first_three: Walk::new(&city, &Sensor::ALL[..3], from),
            carbon_monoxide: Walk::new(&city, &Sensor::ALL[3..], from),
            joined: false,
            numbers: vec![0; 4 * city.homes() as usize],
            repeats: BTreeMap::new(),
            reached: from,
        }
    }

    /// Up to which moment everything has been given: the end of the last call, or the last reading if there were too many for it.
    pub fn reached(&self) -> CityTime {
        self.reached
    }

    /// The readings from where the last call ended until before this moment, in order of time, and whether each is a repeat. At most
    /// [`MAX_PER_CALL`]: if there are this many, call again. Detectors that are switched on join within the minute, each at its moment;
    /// those that are switched off are skipped, and continue with their numbers later.
    pub fn due(&mut self, until: CityTime, carbon_monoxide: bool) -> Vec<(Reading, bool)> {
        if carbon_monoxide && !self.joined {
            self.carbon_monoxide.seek(self.reached);
        }
        self.joined = carbon_monoxide;
        let mut due = Vec::new();
        while due.len() < MAX_PER_CALL {
            let Some((at, next)) = self.next(carbon_monoxide).filter(|(at, _)| *at < until) else {
                self.reached = self.reached.max(until);
                break;
            };
            self.reached = self.reached.max(at);
            match next {
                Next::Repeat => due.extend(self.repeats.pop_first().map(|(_, reading)| (reading, true))),
                Next::FirstThree => {
                    let speaker = self.first_three.pass();
                    due.extend(self.speak(speaker, at).map(|reading| (reading, false)));
                }
                Next::CarbonMonoxide => {
                    let speaker = self.carbon_monoxide.pass();
                    due.extend(self.speak(speaker, at).map(|reading| (reading, false)));
                }
            }
        }
        due
    }

    /// Returns the next sensor, and its moment.
    fn next(&self, carbon_monoxide: bool) -> Option<(CityTime, Next)> {
        let repeat = self.repeats.first_key_value().map(|(key, _)| (key.0, Next::Repeat));
        let first_three = self.first_three.at().map(|at| (at, Next::FirstThree));
        let detector = self.carbon_monoxide.at().filter(|_| carbon_monoxide);
        let detector = detector.map(|at| (at, Next::CarbonMonoxide));
        [repeat, first_three, detector].into_iter().flatten().min_by_key(|(at, _)| *at)
    }

    /// Returns the reading of a sensor with its next number; none, and no number, if its battery is empty.
    fn speak(&mut self, speaker: u32, at: CityTime) -> Option<Reading> {
        let (home, sensor) = (speaker / 4, Sensor::ALL[(speaker % 4) as usize]);
        let mut reading = self.city.reading(home, sensor, at)?;
        let number = self.numbers.get_mut(speaker as usize)?;
        *number += 1;
        reading.number = *number;
        let mut dice =
            self.city.dice(home, Matter::Repeat, (u64::from(*number) << 2) | sensor.index() as u64);
        if dice.one_in(REPEATS) {
            let delay = (1 + dice.below(REPEAT_WITHIN)) as f64 * self.speed;
            self.repeats.insert((CityTime(at.0 + delay as u64), home, sensor, reading.number), reading);
        }
        Some(reading)
    }
}

#[derive(Clone, Copy)]
enum Next {
    Repeat,
    FirstThree,
    CarbonMonoxide,
}

/// Some sensors of all homes in the order in which they speak: chance makes the order, and they share the minute evenly.
#[derive(Clone, Debug)]
struct Walk {
    /// Four times the home, and the sensor.
    order: Vec<u32>,
    minute: u64,
    next: usize,
}

impl Walk {
    fn new(city: &City, sensors: &[Sensor], from: CityTime) -> Self {
        let all = (0..city.homes()).flat_map(|home| sensors.iter().map(move |sensor| (home, *sensor)));
        let mut order: Vec<_> = all
            .map(|(home, sensor)| {
                let chance = city.dice(home, Matter::Order, sensor.index() as u64).next();
                (chance, home * 4 + sensor.index() as u32)
            })
            .collect();
        order.sort_unstable();
        let order = order.into_iter().map(|(_, speaker)| speaker).collect();
        let mut walk = Self { order, minute: 0, next: 0 };
        walk.seek(from);
        walk
    }

    /// Goes to the first speaker at a moment or after it.
    fn seek(&mut self, from: CityTime) {
        self.minute = from.minute();
        let into = from.0 % MINUTE;
        // Rounded up: the speaker of this very moment is still to come, the one before it is not.
        self.next = (into * self.order.len() as u64).div_ceil(MINUTE) as usize;
        if self.next >= self.order.len() {
            (self.minute, self.next) = (self.minute + 1, 0);
        }
    }

    /// When the next one speaks; none if there is nobody.
    fn at(&self) -> Option<CityTime> {
        let many = self.order.len() as u64;
        (many > 0).then(|| CityTime(self.minute * MINUTE + self.next as u64 * MINUTE / many))
    }

    /// Takes the next one.
    fn pass(&mut self) -> u32 {
        let speaker = self.order.get(self.next).copied().unwrap_or_default();
        self.next += 1;
        if self.next >= self.order.len() {
            (self.minute, self.next) = (self.minute + 1, 0);
        }
        speaker
    }
}
