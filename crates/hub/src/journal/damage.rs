//! Known damage of a log: the damaged range of a file, and the events that were in it.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ephor_core::ids::PartitionId;

/// The most damaged places of a hub that are remembered and logged.
const MAX_REMEMBERED: usize = 1_000;

/// The most ranges of events that are remembered for one place.
const MAX_RANGES: usize = 1_000;

/// A damaged part of a file.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Damage {
    /// The file.
    pub file: String,
    /// The position at which the damaged part begins.
    pub position: u64,
    /// Its length in bytes; 0 if something is missing there.
    pub length: u64,
    /// The sequence numbers of the affected events, as far as the rest of the log shows.
    pub events: Vec<(PartitionId, Range<u64>)>,
}

impl Damage {
    pub(crate) fn new(file: &str, range: Range<u64>) -> Self {
        let (position, length) = (range.start, range.end - range.start);
        Self { file: file.to_owned(), position, length, events: Vec::new() }
    }

    pub(crate) fn of(mut self, partition: u32, events: Range<u64>) -> Self {
        self.add(partition, events);
        self
    }

    pub(crate) fn add(&mut self, partition: u32, events: Range<u64>) {
        self.events.push((PartitionId(partition), events));
    }
}

impl Damage {
    /// Adds affected events. Ranges that touch are merged.
    fn merge(&mut self, events: Vec<(PartitionId, Range<u64>)>) {
        self.events.extend(events);
        self.events.sort_by_key(|(partition, events)| (*partition, events.start));
        self.events.dedup_by(|(partition, next), (earlier_partition, earlier)| {
            let touches = partition == earlier_partition && next.start <= earlier.end;
            if touches {
                earlier.end = earlier.end.max(next.end);
            }
            touches
        });
        self.events.truncate(MAX_RANGES);
    }

    /// Returns the number of affected events, in all partitions.
    fn affected(&self) -> u64 {
        self.events.iter().map(|(_, events)| events.end.saturating_sub(events.start)).sum()
    }

    /// Returns the number of affected events of this partition.
    pub(crate) fn count(&self, partition: u32) -> u64 {
        let mine = self.events.iter().filter(|(other, _)| other.0 == partition);
        mine.map(|(_, events)| events.end.saturating_sub(events.start)).sum()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at position {}, length {}; ", self.file, self.position, self.length)?;
        if self.events.is_empty() {
            return f.write_str("the affected events, if any, are unknown");
        }
        f.write_str("affected:")?;
        for (index, (partition, events)) in self.events.iter().enumerate() {
            let separator = if index == 0 { " " } else { ", " };
            let (first, last) = (events.start, events.end.saturating_sub(1));
            match first == last {
                true => write!(f, "{separator}event {first} of partition {partition}")?,
                false => write!(f, "{separator}events {first} to {last} of partition {partition}")?,
            }
        }
        Ok(())
    }
}

/// The known damage of one hub.
#[derive(Debug, Default)]
pub(crate) struct KnownDamage(Mutex<BTreeMap<(String, u64), Known>>);

/// One damaged place.
#[derive(Debug)]
struct Known {
    damage: Damage,
    /// The number of affected events when it was logged last.
    logged: u64,
}

impl KnownDamage {
    /// Remembers damage, and logs it when it is new and when the number of affected events has doubled. So reading a damaged
    /// place again and again does not fill the log file.
    pub(crate) fn report(&self, damage: Damage) {
        self.note(damage);
    }

    /// Like [`Self::report`]; returns whether it was logged.
    fn note(&self, damage: Damage) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = known.len() >= MAX_REMEMBERED;
        let known = match known.entry((damage.file.clone(), damage.position)) {
            Entry::Vacant(_) if full => return false,
            Entry::Vacant(vacant) => vacant.insert(Known { logged: damage.affected(), damage }),
            Entry::Occupied(present) => {
                let present = present.into_mut();
                present.damage.merge(damage.events);
                let affected = present.damage.affected();
                if affected < present.logged.saturating_mul(2).max(1) {
                    return false;
                }
                present.logged = affected;
                present
            }
        };
        let Damage { file, position, length, .. } = &known.damage;
        tracing::error!(file, position, length, "{}", known.damage);
        true
    }

    pub(crate) fn all(&self) -> Vec<Damage> {
        let known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        known.values().map(|known| known.damage.clone()).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(position: u64, partition: u32, events: Range<u64>) -> Damage {
        Damage::new("00000001.log", position..position + 8).of(partition, events)
    }

    #[test]
    fn a_place_that_is_read_from_ever_lower_positions_stays_one_range_and_a_few_lines() {
        let known = KnownDamage::default();
        let lines = (0..10_000).rev().filter(|first| known.note(at(64, 0, *first..10_000))).count();
        assert!(lines <= 15, "{lines} lines");
        assert_eq!(known.all(), [at(64, 0, 0..10_000)]);
        assert!(!known.note(at(64, 0, 17..20)), "known damage is not logged again");
    }

    #[test]
    fn what_one_place_held_is_bounded_however_it_is_found() {
        let known = KnownDamage::default();
        let lines =
            (0..20_000).filter(|number| known.note(at(64, (number % 3) as u32, number * 2..number * 2 + 1)));
        assert!(lines.count() <= 20);
        assert_eq!(known.all()[0].events.len(), MAX_RANGES);
    }

    #[test]
    fn ranges_that_touch_are_one_and_others_stay_apart() {
        let known = KnownDamage::default();
        for (partition, events) in [(1, 5..7), (0, 9..10), (1, 0..2), (1, 7..9), (1, 1..3)] {
            known.note(at(64, partition, events));
        }
        let (zero, one) = (PartitionId(0), PartitionId(1));
        assert_eq!(known.all()[0].events, [(zero, 9..10), (one, 0..3), (one, 5..9)]);
    }

    #[test]
    fn places_are_bounded_too() {
        let known = KnownDamage::default();
        let lines = (0..5_000).filter(|place| known.note(at(place * 8, 0, 0..1))).count();
        assert_eq!((lines, known.all().len()), (MAX_REMEMBERED, MAX_REMEMBERED));
    }
}
