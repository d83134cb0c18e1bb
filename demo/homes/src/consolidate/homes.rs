//! The consolidation for the consumer group `consolidate`: the state of each home of a partition.

use std::collections::BTreeMap;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::clock::Clock;
use super::home::{Home, HomeNow};
use super::seen_numbers::Arrival;
use super::today::Today;
use super::{Consolidation, Progress};
use crate::reading::{Reading, Sensor};
use crate::time::{CityTime, MINUTES_PER_DAY};

/// A sensor that has not been heard of for longer than this is silent.
pub const SILENCE: Duration = Duration::from_mins(5);

/// The homes of a partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Homes {
    pub(super) now: Now,
    pub(super) homes: BTreeMap<u32, Box<Home>>,
    #[serde(skip)]
    changed: bool,
    /// Homes that changed since the last update, with the marks that are new.
    #[serde(skip)]
    touched: BTreeMap<u32, Marks>,
}

/// Marks that are new.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct Marks {
    /// Whether the minutes were emptied before, for another day. The clock may go back: then it is the same day again.
    emptied: bool,
    marks: Vec<(u16, u8)>,
}

/// The state of the partition as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Now {
    pub(super) progress: Progress,
    clock: Clock,
    /// The minute in which silent sensors were last looked for.
    looked: u64,
    readings: u64,
    pub(super) repeats: u64,
}

/// The totals of a partition's homes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Totals {
    /// Readings counted, each once.
    pub readings: u64,
    /// Readings that sensors sent again, and that were not counted.
    pub repeats: u64,
    /// Events that were delivered again, and that were not counted.
    pub replayed: u64,
    /// Events that were no readings.
    pub skipped: u64,
}

/// A change of a partition's homes.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HomesUpdate {
    now: Now,
    homes: Vec<HomeUpdate>,
}

#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
struct HomeUpdate {
    home: u32,
    now: HomeNow,
    day: u32,
    fresh: Marks,
}

impl HomesUpdate {
    /// The homes that it touches, in order.
    pub fn homes(&self) -> impl Iterator<Item = u32> {
        self.homes.iter().map(|update| update.home)
    }
}

/// Compares what readers see, without the changes for the next update.
impl PartialEq for Homes {
    fn eq(&self, other: &Self) -> bool {
        self.now == other.now && self.homes == other.homes
    }
}

impl Homes {
    /// A home, if it has been heard of.
    pub fn home(&self, home: u32) -> Option<&Home> {
        self.homes.get(&home).map(Box::as_ref)
    }

    /// All homes that have been heard of, in order.
    pub fn iter(&self) -> impl Iterator<Item = (u32, &Home)> {
        self.homes.iter().map(|(number, home)| (*number, home.as_ref()))
    }

    /// The newest moment that can be believed: the partition's own clock.
    pub fn time(&self) -> CityTime {
        self.now.clock.now()
    }

    /// The marks of a home's 1,440 minutes of today; empty ones if nothing was heard of it today.
    pub fn today(&self, home: u32) -> Vec<u8> {
        match self.home(home) {
            Some(home) if home.today.has(self.time()) => home.today.minutes(),
            _ => vec![0; usize::from(MINUTES_PER_DAY)],
        }
    }

    /// Returns the totals of all homes.
    pub fn totals(&self) -> Totals {
        let Progress { replayed, skipped, .. } = self.now.progress;
        Totals { readings: self.now.readings, repeats: self.now.repeats, replayed, skipped }
    }

    /// Marks the minute of a moment, if it is of the day that the home is in, or of the day that begins.
    fn mark(&mut self, number: u32, at: CityTime, marks: u8) {
        let today = self.time().day();
        let Some(home) = self.homes.get_mut(&number) else { return };
        let fresh = self.touched.entry(number).or_default();
        if home.today.turn_to(today) {
            *fresh = Marks { emptied: true, marks: Vec::new() };
        }
        if home.today.has(at) {
            let minute = at.minute_of_day();
            let new = home.today.mark(minute, marks);
            if new != 0 {
                fresh.marks.push((minute, new));
            }
        }
    }

    /// After the clock was set by agreement, those that agreed are believed.
    fn believe(&mut self) {
        for (voice, at) in self.now.clock.right_voices() {
            if let Some(home) = self.homes.get_mut(&voice.home) {
                home.believe(voice.sensor, at);
                self.touched.entry(voice.home).or_default();
            }
        }
        self.now.looked = self.time().minute();
    }

    /// Once a minute of the partition's clock: finds the sensors that have fallen silent.
    fn look_for_silence(&mut self) {
        if self.time().minute() <= self.now.looked {
            return;
        }
        self.now.looked = self.time().minute();
        let (now, clock) = (self.time(), &self.now.clock);
        for (number, home) in &mut self.homes {
            for sensor in Sensor::ALL {
                let Some(state) = home.sensor(sensor) else { continue };
                let since = clock.unheard_since(state.heard);
                if !state.silent && Duration::from_millis(now.0.saturating_sub(since.0)) > SILENCE {
                    home.fall_silent(sensor, now);
                    self.touched.entry(*number).or_default();
                }
            }
        }
    }
}

impl Consolidation for Homes {
    type Update = HomesUpdate;

    fn fold(&mut self, sequence: u64, reading: &Reading) {
        self.changed = true;
        if !self.now.progress.step(sequence) {
            return;
        }
        let home = self.homes.entry(reading.home).or_default();
        let arrival = home.arrive(reading);
        if arrival == Arrival::Repeat {
            self.now.repeats += 1;
            self.touched.entry(reading.home).or_default();
            return;
        }
        self.now.readings += 1;
        let judged = self.now.clock.judge(reading);
        let marks = home.take(reading, judged, arrival);
        self.mark(reading.home, judged.at, marks);
        if judged.set {
            self.believe();
        }
        self.look_for_silence();
    }

    fn skip(&mut self, sequence: u64) {
        self.changed = true;
        self.now.progress.skip(sequence);
    }

    fn take_update(&mut self) -> Option<HomesUpdate> {
        if !std::mem::take(&mut self.changed) {
            return None;
        }
        let touched = std::mem::take(&mut self.touched);
        let homes = touched
            .into_iter()
            .filter_map(|(number, fresh)| {
                let home = self.homes.get(&number)?;
                Some(HomeUpdate { home: number, now: home.now.clone(), day: home.today.day(), fresh })
            })
            .collect();
        Some(HomesUpdate { now: self.now.clone(), homes })
    }

    fn apply(&mut self, update: HomesUpdate) {
        self.now = update.now;
        for HomeUpdate { home, now, day, fresh } in update.homes {
            let home = self.homes.entry(home).or_default();
            home.now = now;
            if fresh.emptied {
                home.today = Today::of(day);
            }
            for (minute, marks) in fresh.marks {
                home.today.mark(minute, marks);
            }
        }
    }

    fn last(&self) -> Option<u64> {
        self.now.progress.last
    }
}
