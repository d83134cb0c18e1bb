//! Group `alarms`: which alarms are open, each passed on once when it opens and once when it is over.
//!
//! The desk remembers alarms, not homes: of every alarm the number of the reading that opened or ended it. That is enough to know
//! again what a sensor repeats, so its updates are few: one when an alarm changes, and one every few minutes for the clock. An owner
//! who has no update to write may checkpoint all the same: what was folded since changes nothing if it is folded again. Only the time
//! of an alarm from a wrong clock is then a guess that may differ by minutes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use serde::{Deserialize, Serialize};

use super::alarm::{Alarm, AlarmKind, Step, spoken_of};
use super::clock::Clock;
use super::{Consolidation, Progress};
use crate::reading::Reading;
use crate::time::CityTime;

/// Alarms that are over and still remembered. Hours of them: a sensor repeats itself within seconds.
const OVER_KEPT: usize = 256;

/// So far the clock goes before an update is due for it alone. The next owner's clock is then near enough to go on.
const CLOCK_DUE: Duration = Duration::from_mins(5);

/// The alarms of a partition.
#[derive(Clone, Debug, Default, Serialize, Deserialize)]
pub struct Desk {
    pub(super) now: Now,
    pub(super) told: BTreeMap<(u32, AlarmKind), Told>,
    #[serde(skip)]
    pending: Pending,
}

/// What is said of the partition as a whole.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Now {
    pub(super) progress: Progress,
    clock: Clock,
    pub(super) repeats: u64,
    opened: u64,
}

/// What waits for the next update.
#[derive(Clone, Debug, Default)]
struct Pending {
    changed: BTreeSet<(u32, AlarmKind)>,
    forgotten: BTreeSet<(u32, AlarmKind)>,
    /// Something else that must not be lost.
    counted: bool,
    /// Where the clock was when the last update was taken.
    clock: CityTime,
}

/// One alarm that was passed on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Told {
    /// Which home.
    pub home: u32,
    /// What is the matter there.
    pub alarm: Alarm,
    /// The event that opened it or ended it: the order in which things were told.
    pub sequence: u64,
}

/// What changed on the desk.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DeskUpdate {
    now: Now,
    told: Vec<Told>,
    forgotten: Vec<(u32, AlarmKind)>,
}

impl DeskUpdate {
    /// The alarms that opened, rose or ended, in order of their homes.
    pub fn alarms(&self) -> &[Told] {
        &self.told
    }
}

/// What readers see: what waits for the next update is not compared.
impl PartialEq for Desk {
    fn eq(&self, other: &Self) -> bool {
        self.now == other.now && self.told == other.told
    }
}

impl Desk {
    /// The alarms that are open and those that were over last, in the order in which they were told, newest first.
    pub fn newest(&self) -> Vec<Told> {
        let mut told: Vec<_> = self.told.values().copied().collect();
        told.sort_by_key(|told| std::cmp::Reverse(told.sequence));
        told
    }

    /// How many alarms have been opened.
    pub fn opened(&self) -> u64 {
        self.now.opened
    }

    /// Events that were delivered again, and that were passed over.
    pub fn replayed(&self) -> u64 {
        self.now.progress.replayed
    }

    /// Readings that told again what had been told. Those that speak of no alarm are not noticed: they change nothing.
    pub fn repeats(&self) -> u64 {
        self.now.repeats
    }

    /// The newest moment that can be believed: the partition's own clock.
    pub fn time(&self) -> CityTime {
        self.now.clock.now()
    }

    fn tell(&mut self, home: u32, alarm: Alarm, sequence: u64) {
        let key = (home, alarm.kind);
        self.told.insert(key, Told { home, alarm, sequence });
        self.pending.changed.insert(key);
        self.pending.forgotten.remove(&key);
    }

    /// Lets the oldest alarm go that is over, if there are too many.
    fn forget(&mut self) {
        let over = || self.told.iter().filter(|(_, told)| !told.alarm.is_open());
        if over().count() <= OVER_KEPT {
            return;
        }
        let oldest = over().min_by_key(|(_, told)| told.sequence).map(|(key, _)| *key);
        if let Some(key) = oldest {
            self.told.remove(&key);
            self.pending.changed.remove(&key);
            self.pending.forgotten.insert(key);
        }
    }
}

impl Consolidation for Desk {
    type Update = DeskUpdate;

    fn fold(&mut self, sequence: u64, reading: &Reading) {
        if !self.now.progress.step(sequence) {
            self.pending.counted = true;
            return;
        }
        let judged = self.now.clock.judge(reading);
        // The clock of a new owner may be a few minutes behind; the sensor's own is better then.
        let at = if judged.wrong { judged.at } else { reading.at };
        let Some((kind, alarming)) = spoken_of(reading) else { return };
        let before = self.told.get(&(reading.home, kind)).copied();
        match (Alarm::step(before.as_ref().map(|told| &told.alarm), alarming, reading), before) {
            (Step::Open, _) => {
                self.now.opened += 1;
                self.tell(reading.home, Alarm::open(kind, reading, at), sequence);
            }
            (Step::Rise, Some(told)) => {
                self.tell(reading.home, Alarm { value: reading.value, ..told.alarm }, told.sequence);
            }
            (Step::Close, Some(Told { mut alarm, .. })) => {
                alarm.close(reading.number, at);
                self.tell(reading.home, alarm, sequence);
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

    fn take_update(&mut self) -> Option<DeskUpdate> {
        let moved = self.time().apart(self.pending.clock) >= CLOCK_DUE;
        let pending = &self.pending;
        if !moved && !pending.counted && pending.changed.is_empty() && pending.forgotten.is_empty() {
            return None;
        }
        let clock = self.time();
        let Pending { changed, forgotten, .. } =
            std::mem::replace(&mut self.pending, Pending { clock, ..Pending::default() });
        let told = changed.iter().filter_map(|key| self.told.get(key).copied()).collect();
        Some(DeskUpdate { now: self.now.clone(), told, forgotten: forgotten.into_iter().collect() })
    }

    fn apply(&mut self, update: DeskUpdate) {
        self.now = update.now;
        for key in update.forgotten {
            self.told.remove(&key);
        }
        self.told.extend(update.told.into_iter().map(|told| ((told.home, told.alarm.kind), told)));
        self.pending.clock = self.time();
    }

    fn last(&self) -> Option<u64> {
        self.now.progress.last
    }
}
