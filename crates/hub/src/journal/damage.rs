//! What cannot be read any more: where it is, and which events it held.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ephor_core::ids::PartitionId;

/// So many damaged places are remembered and logged for each hub: whoever has more has no need of the rest.
const MOST_REMEMBERED: usize = 1_000;

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
    fn covers(&self, partition: PartitionId, events: &Range<u64>) -> bool {
        let within = |known: &Range<u64>| known.start <= events.start && events.end <= known.end;
        self.events.iter().any(|(other, known)| *other == partition && within(known))
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
pub(crate) struct KnownDamage(Mutex<BTreeMap<(String, u64), Damage>>);

impl KnownDamage {
    /// Remembers and logs it, once; or what of it was not known before.
    pub(crate) fn report(&self, damage: Damage) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let full = known.len() >= MOST_REMEMBERED;
        match known.entry((damage.file.clone(), damage.position)) {
            Entry::Occupied(mut present) => {
                let present = present.get_mut();
                let new =
                    damage.events.iter().filter(|(partition, events)| !present.covers(*partition, events));
                let new: Vec<_> = new.cloned().collect();
                if new.is_empty() {
                    return;
                }
                present.events.extend(new);
            }
            // Who reads damaged places again and again shall not fill the log file with them.
            Entry::Vacant(_) if full => return,
            Entry::Vacant(vacant) => drop(vacant.insert(damage.clone())),
        }
        tracing::error!(file = damage.file, position = damage.position, length = damage.length, "{damage}");
    }

    pub(crate) fn all(&self) -> Vec<Damage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
