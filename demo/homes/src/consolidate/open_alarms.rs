//! The consolidation for the consumer group `alarms`: the open alarms, each reported once when it opens and
//! once when it is over.
//!
//! The state has alarms, not homes: for every alarm the number of the reading that opened or ended it. That is enough to
//! recognise repeats, so updates are few: one when an alarm changes, and one every few minutes for the clock. An owner without
//! an update to write may checkpoint nevertheless: folding those events again changes nothing. Only the time of an alarm from a
//! wrong clock is then a guess that may differ by minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alarm::{Alarm, AlarmKind, Step, spoken_of};
use super::clock::Clock;
use super::{Consolidation, Progress};
use crate::reading::Reading;
use crate::time::CityTime;

/// The most ended alarms that are kept: those of hours, while a sensor repeats a reading within seconds.
const OVER_KEPT: usize = 256;

/// An update for the clock alone is due when it has moved by this. The next owner's clock is then near enough.
const CLOCK_DUE: Duration = Duration::from_mins(5);

/// The alarms of a partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct OpenAlarms {
    pub(super) now: Now,
    pub(super) entries: BTreeMap<(u32, AlarmKind), AlarmEntry>,
    #[serde(skip)]
    pending: Pending,
}

/// The state of the partition as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Now {
    pub(super) progress: Progress,
    clock: Clock,
    pub(super) repeats: u64,
    opened: u64,
}

/// The changes for the next update.
#[derive(Clone, Debug, Default)]
struct Pending {
    changed: BTreeSet<(u32, AlarmKind)>,
    forgotten: BTreeSet<(u32, AlarmKind)>,
    /// Something else that must not be lost.
    counted: bool,
    /// The clock at the last update.
    clock: CityTime,
}

/// One alarm that was reported.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AlarmEntry {
    /// The home.
    pub home: u32,
    /// The alarm.
    pub alarm: Alarm,
    /// The event that opened it or ended it: the order of the reports.
    pub sequence: u64,
}

/// A change of the open alarms.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct OpenAlarmsUpdate {
    now: Now,
    entries: Vec<AlarmEntry>,
    forgotten: Vec<(u32, AlarmKind)>,
}

impl OpenAlarmsUpdate {
    /// The alarms that opened, rose or ended, in order of their homes.
    pub fn alarms(&self) -> &[AlarmEntry] {
        &self.entries
    }
}

/// Compares what readers see, without the changes for the next update.
impl PartialEq for OpenAlarms {
    fn eq(&self, other: &Self) -> bool {
        self.now == other.now && self.entries == other.entries
    }
}

impl OpenAlarms {
    /// The alarms that are open and those that were over last, newest first.
    pub fn newest(&self) -> Vec<AlarmEntry> {
        let mut entries: Vec<_> = self.entries.values().copied().collect();
        entries.sort_by_key(|entries| std::cmp::Reverse(entries.sequence));
        entries
    }

    /// Returns the number of alarms that were opened.
    pub fn opened(&self) -> u64 {
        self.now.opened
    }

    /// Returns the number of events that were delivered again, and skipped.
    pub fn replayed(&self) -> u64 {
        self.now.progress.replayed
    }

    /// Returns the number of repeated readings about alarms. Other repeats change nothing and are not counted.
    pub fn repeats(&self) -> u64 {
        self.now.repeats
    }

    /// The newest moment that can be believed: the partition's own clock.
    pub fn time(&self) -> CityTime {
        self.now.clock.now()
    }

    fn record(&mut self, home: u32, alarm: Alarm, sequence: u64) {
        let key = (home, alarm.kind);
        self.entries.insert(key, AlarmEntry { home, alarm, sequence });
        self.pending.changed.insert(key);
        self.pending.forgotten.remove(&key);
    }

    /// Lets the oldest alarm go that is over, if there are too many.
    fn forget(&mut self) {
        let over = || self.entries.iter().filter(|(_, entries)| !entries.alarm.is_open());
        if over().count() <= OVER_KEPT {
            return;
        }
        let oldest = over().min_by_key(|(_, entries)| entries.sequence).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.entries.remove(&key);
            self.pending.changed.remove(&key);
            self.pending.forgotten.insert(key);
        }
    }
}

impl Consolidation for OpenAlarms {
    type Update = OpenAlarmsUpdate;

    fn fold(&mut self, sequence: u64, reading: &Reading) {
        if !self.now.progress.step(sequence) {
            self.pending.counted = true;
            return;
        }
        let judged = self.now.clock.judge(reading);
        // The clock of a new owner may be a few minutes behind; the sensor's own is better then.
        let at = if judged.wrong { judged.at } else { reading.at };
        let Some((kind, alarming)) = spoken_of(reading) else { return };
        let before = self.entries.get(&(reading.home, kind)).copied();
        match (Alarm::step(before.as_ref().map(|entries| &entries.alarm), alarming, reading), before) {
            (Step::Open, _) => {
                self.now.opened += 1;
                self.record(reading.home, Alarm::open(kind, reading, at), sequence);
            }
            (Step::Rise, Some(entries)) => {
                self.record(reading.home, Alarm { value: reading.value, ..entries.alarm }, entries.sequence);
            }
            (Step::Close, Some(AlarmEntry { mut alarm, .. })) => {
                alarm.close(reading.number, at);
                self.record(reading.home, alarm, sequence);
                self.forget();
            }
            (Step::Stale, _) => {
                self.now.repeats += 1;
                self.pending.counted = true;
            }
            _ => {}
        }
    }

    fn skip(&mut self, sequence: u64) {
        self.pending.counted = true;
        self.now.progress.skip(sequence);
    }

    fn take_update(&mut self) -> Option<OpenAlarmsUpdate> {
        let moved = self.time().apart(self.pending.clock) >= CLOCK_DUE;
        let pending = &self.pending;
        if !moved && !pending.counted && pending.changed.is_empty() && pending.forgotten.is_empty() {
            return None;
        }
        let clock = self.time();
        let Pending { changed, forgotten, .. } =
            std::mem::replace(&mut self.pending, Pending { clock, ..Pending::default() });
        let entries = changed.iter().filter_map(|key| self.entries.get(key).copied()).collect();
        Some(OpenAlarmsUpdate { now: self.now.clone(), entries, forgotten: forgotten.into_iter().collect() })
    }

    fn apply(&mut self, update: OpenAlarmsUpdate) {
        self.now = update.now;
        for key in update.forgotten {
            self.entries.remove(&key);
        }
        self.entries
            .extend(update.entries.into_iter().map(|entries| ((entries.home, entries.alarm.kind), entries)));
        self.pending.clock = self.time();
    }

    fn last(&self) -> Option<u64> {
        self.now.progress.last
    }
}
