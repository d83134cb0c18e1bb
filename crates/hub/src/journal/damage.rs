//! Remembers what cannot be read any more: where it is, and which events it held.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ephor_core::ids::PartitionId;

/// So many damaged places are remembered and logged for each hub: whoever has more has no need of the rest.
const MOST_REMEMBERED: usize = 1_000;

/// So many ranges of events are remembered of one place, for the same reason.
const MOST_RANGES: usize = 1_000;

/// A part of a file that is not what was written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Damage {
    /// The file.
    pub file: String,
    /// Where in it the damaged part begins.
    pub position: u64,
    /// How long it is; 0 if something is missing there.
    pub length: u64,
    /// The sequence numbers of the events in doubt, as far as the rest of the log tells.
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
    /// Adds what is in doubt as well; ranges that touch become one.
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
        self.events.truncate(MOST_RANGES);
    }

    /// How many events are in doubt, in all partitions.
    fn doubtful(&self) -> u64 {
        self.events.iter().map(|(_, events)| events.end.saturating_sub(events.start)).sum()
    }

    /// How many events of this partition are in doubt.
    pub(crate) fn count(&self, partition: u32) -> u64 {
        let mine = self.events.iter().filter(|(other, _)| other.0 == partition);
        mine.map(|(_, events)| events.end.saturating_sub(events.start)).sum()
    }
}

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at position {}, {} bytes; ", self.file, self.position, self.length)?;
        if self.events.is_empty() {
            return f.write_str("which events it held, if any, the rest of the log does not tell");
        }
        f.write_str("in doubt:")?;
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

/// The damage that is known of one hub.
#[derive(Debug, Default)]
pub(crate) struct KnownDamage(Mutex<BTreeMap<(String, u64), Known>>);

/// One damaged place.
#[derive(Debug)]
struct Known {
    damage: Damage,
    /// How many events were in doubt when it was logged last.
    logged: u64,
}

impl KnownDamage {
    /// Remembers it, and logs it when it is new and when twice as much of it is known. Whoever reads a damaged place
    /// again and again, from ever other positions, shall not fill the log file with it.
    pub(crate) fn report(&self, damage: Damage) {
        self.note(damage);
    }

    /// The same, and tells whether it was logged.
    fn note(&self, damage: Damage) -> bool {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = known.len() >= MOST_REMEMBERED;
        let known = match known.entry((damage.file.clone(), damage.position)) {
            Entry::Vacant(_) if full => return false,
            Entry::Vacant(vacant) => vacant.insert(Known { logged: damage.doubtful(), damage }),
            Entry::Occupied(present) => {
                let present = present.into_mut();
                present.damage.merge(damage.events);
                let doubtful = present.damage.doubtful();
                if doubtful < present.logged.saturating_mul(2).max(1) {
                    return false;
                }
                present.logged = doubtful;
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
        assert!(!known.note(at(64, 0, 17..20)), "what is known is not told again");
    }

    #[test]
    fn what_one_place_held_is_bounded_however_it_is_found() {
        let known = KnownDamage::default();
        let lines =
            (0..20_000).filter(|number| known.note(at(64, (number % 3) as u32, number * 2..number * 2 + 1)));
        assert!(lines.count() <= 20);
        assert_eq!(known.all()[0].events.len(), MOST_RANGES);
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
        assert_eq!((lines, known.all().len()), (MOST_REMEMBERED, MOST_REMEMBERED));
    }
}
