//! What cannot be read any more: where it is, and which events it held.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::sync::{Mutex, PoisonError};

use ephor_core::ids::PartitionId;

/// So many damaged places are remembered for each hub; the rest is only logged.
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

impl fmt::Display for Damage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} is damaged at position {}, {} bytes; ", self.file, self.position, self.length)?;
        if self.events.is_empty() {
            return f.write_str("no event is known to be lost by it");
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
    /// Remembers and logs it, once.
    pub(crate) fn report(&self, damage: Damage) {
        let mut known = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let key = (damage.file.clone(), damage.position);
        if known.contains_key(&key) {
            return;
        }
        tracing::error!(file = damage.file, position = damage.position, length = damage.length, "{damage}");
        if known.len() < MOST_REMEMBERED {
            known.insert(key, damage);
        }
    }

    pub(crate) fn all(&self) -> Vec<Damage> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).values().cloned().collect()
    }
}
