//! Records the sends, reads and administrative calls that were acknowledged, and checks that they hold
//! after a crash.
//!
//! An acknowledged call counts, and an event that a reader has seen. A call that was neither acknowledged nor refused may
//! have happened or not, but not in part.

use std::collections::{BTreeMap, BTreeSet};

use bytes::Bytes;
use ephor_core::event::Event;
use ephor_core::time::Timestamp;
use ephor_hub::{HubDescription, Receipt};

use super::Checked;
use super::event::EventId;

/// Whether something is there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    Sure,
    Unknown,
    Gone,
}

#[derive(Debug, Clone)]
pub struct Model {
    /// Whether what was acknowledged has to survive a power failure: not with durability `page-cache`.
    pub strict: bool,
    /// Whether a sync has failed: then a later one says little of what was acknowledged with durability `page-cache`.
    pub sync_failed: bool,
    pub hubs: BTreeMap<String, HubModel>,
    hubs_made: u32,
    /// The faults that readers found while the hub was at work.
    pub violations: Vec<String>,
}

#[derive(Debug, Clone)]
pub struct HubModel {
    id: u32,
    pub existence: Certainty,
    /// As many as were acknowledged, and as were asked for.
    pub partitions: (u32, u32),
    pub groups: BTreeMap<String, Certainty>,
    /// More than this may be freed.
    pub kept_bytes: Option<u64>,
    batches: Vec<Batch>,
    /// Which event a number of a partition was ever used for.
    numbers: BTreeMap<(u32, u64), EventId>,
}

#[derive(Debug, Clone)]
struct Batch {
    partition: u32,
    lengths: Vec<usize>,
    receipt: Option<(u64, Timestamp)>,
    promised: bool,
}

impl Model {
    pub fn new(strict: bool) -> Model {
        Model { strict, sync_failed: false, hubs: BTreeMap::new(), hubs_made: 0, violations: Vec::new() }
    }

    /// A hub is about to be made.
    pub fn hub_asked_for(&mut self, name: &str, partitions: u32, kept_bytes: Option<u64>) {
        self.hubs_made += 1;
        let hub = HubModel {
            id: self.hubs_made,
            existence: Certainty::Unknown,
            partitions: (partitions, partitions),
            groups: BTreeMap::new(),
            kept_bytes,
            batches: Vec::new(),
            numbers: BTreeMap::new(),
        };
        self.hubs.insert(name.to_owned(), hub);
    }

    pub fn hub(&mut self, name: &str) -> &mut HubModel {
        self.hubs.get_mut(name).expect("the script makes a hub before it uses it")
    }

    /// Everything that was acknowledged so far is on disk: the hub was closed.
    pub fn all_is_on_disk(&mut self, name: &str) {
        let count = self.hub(name).batches.len();
        self.on_disk(name, count);
    }

    fn on_disk(&mut self, name: &str, count: usize) {
        if !self.sync_failed {
            let batches = self.hub(name).batches.iter_mut().take(count);
            batches.for_each(|batch| batch.promised |= batch.receipt.is_some());
        }
    }

    pub fn acknowledged(&mut self, name: &str, batch: u32, receipt: &Receipt) -> Checked {
        let strict = self.strict;
        self.hub(name).acknowledged(batch, receipt, strict)
    }

    /// A reader saw this.
    pub fn seen(&mut self, name: &str, partition: u32, event: &Event) -> Checked<EventId> {
        let strict = self.strict;
        self.hub(name).seen(partition, event, strict)
    }

    /// A hub as it is found: with these events in its partitions, and a log of this size.
    pub fn found(&mut self, name: &str, hub: &HubDescription, events: &[Vec<Event>], slack: u64) -> Checked {
        let strict = self.strict;
        let model = self.hubs.get_mut(name).ok_or_else(|| format!("hub {name} was never requested"))?;
        model.found(hub, events, slack, strict).map_err(|violation| format!("hub {name}: {violation}"))
    }

    /// There is no such hub.
    pub fn not_found(&mut self, name: &str) -> Checked {
        let hub = self.hub(name);
        match hub.existence {
            Certainty::Sure => Err(format!("hub {name} is gone")),
            Certainty::Unknown | Certainty::Gone => {
                hub.existence = Certainty::Gone;
                Ok(())
            }
        }
    }
}

impl HubModel {
    /// A batch is about to be sent. Yields its number and the bodies.
    pub fn sending(&mut self, partition: u32, lengths: &[usize]) -> (u32, Vec<Bytes>) {
        let batch = self.batches.len() as u32;
        let lengths = lengths.to_vec();
        let body = |(index, length): (usize, &usize)| {
            EventId { hub: self.id, partition, batch, index: index as u32 }.body(*length)
        };
        let bodies = lengths.iter().enumerate().map(body).collect();
        self.batches.push(Batch { partition, lengths, receipt: None, promised: false });
        (batch, bodies)
    }

    fn acknowledged(&mut self, number: u32, receipt: &Receipt, strict: bool) -> Checked {
        let hub = self.id;
        let batch = &mut self.batches[number as usize];
        let (partition, count, first) = (batch.partition, batch.lengths.len(), receipt.first.0);
        if (receipt.partition.0, receipt.count) != (partition, count) {
            return Err(format!("batch {number} of {count} events for {partition} got {receipt:?}"));
        }
        batch.receipt = Some((first, receipt.enqueued_at));
        batch.promised |= strict;
        for index in 0..count as u32 {
            let id = EventId { hub, partition, batch: number, index };
            self.number(partition, first + u64::from(index), id)?;
        }
        Ok(())
    }

    /// No number is ever used for two events.
    fn number(&mut self, partition: u32, number: u64, id: EventId) -> Checked {
        match self.numbers.insert((partition, number), id) {
            Some(other) if other != id => {
                Err(format!("number {number} of partition {partition} was used for {other:?} and {id:?}"))
            }
            _ => Ok(()),
        }
    }

    fn seen(&mut self, partition: u32, event: &Event, strict: bool) -> Checked<EventId> {
        let id = EventId::of(event)?;
        let number = event.sequence.0;
        let batch = self
            .batches
            .get_mut(id.batch as usize)
            .filter(|batch| id.hub == self.id && id.partition == partition && batch.partition == partition);
        let batch = batch.ok_or_else(|| format!("{id:?} is in partition {partition} by number {number}"))?;
        let length = batch.lengths.get(id.index as usize).copied().unwrap_or(0);
        if event.body != id.body(length.max(super::event::MIN_LENGTH)) {
            return Err(format!("the body of {id:?}, number {number}, has changed"));
        }
        let expected = batch.receipt.map(|(first, time)| (first + u64::from(id.index), time));
        if expected.is_some_and(|expected| expected != (number, event.enqueued_at)) {
            return Err(format!(
                "{id:?} has number {number} at {:?}, its receipt says {expected:?}",
                event.enqueued_at
            ));
        }
        batch.promised |= strict;
        self.number(partition, number, id)?;
        Ok(id)
    }

    fn found(&mut self, hub: &HubDescription, events: &[Vec<Event>], slack: u64, strict: bool) -> Checked {
        if self.existence == Certainty::Gone {
            return Err("it was deleted, but exists".to_owned());
        }
        self.existence = Certainty::Sure;
        let (sure, most) = self.partitions;
        if !(sure..=most).contains(&hub.partitions) || hub.partitions as usize != events.len() {
            return Err(format!("it has {} partitions, not {sure} to {most}", hub.partitions));
        }
        self.partitions.0 = hub.partitions;
        self.groups_found(hub)?;
        let mut present = BTreeSet::new();
        for (partition, events) in events.iter().enumerate() {
            self.partition_found(partition as u32, events, &mut present, strict)?;
        }
        self.nothing_is_missing(&present, hub.log_bytes, slack)?;
        // What was lost with durability `page-cache` stays lost; only its numbers are remembered.
        for (number, batch) in self.batches.iter_mut().enumerate() {
            if !present.contains(&(number as u32)) {
                batch.receipt = None;
            }
        }
        Ok(())
    }

    fn groups_found(&mut self, hub: &HubDescription) -> Checked {
        let found: BTreeSet<&str> = hub.groups.iter().skip(1).map(|group| group.as_str()).collect();
        if let Some(stranger) = found.iter().find(|group| !self.groups.contains_key(**group)) {
            return Err(format!("group {stranger} was never requested"));
        }
        for (group, certainty) in &mut self.groups {
            let is_found = found.contains(group.as_str());
            match (*certainty, is_found) {
                (Certainty::Sure, false) => return Err(format!("group {group} is gone")),
                (Certainty::Gone, true) => return Err(format!("group {group} was deleted, but exists")),
                _ => *certainty = if is_found { Certainty::Sure } else { Certainty::Gone },
            }
        }
        Ok(())
    }

    /// In order, once, unchanged, and no batch by halves.
    fn partition_found(
        &mut self,
        partition: u32,
        events: &[Event],
        present: &mut BTreeSet<u32>,
        strict: bool,
    ) -> Checked {
        let mut before: Option<(&Event, EventId)> = None;
        let mut ends = |hub: &HubModel, last: Option<(&Event, EventId)>| match last {
            Some((_, id)) if hub.batches[id.batch as usize].lengths.len() != id.index as usize + 1 => {
                Err(format!("batch {} ends with {id:?}", id.batch))
            }
            Some((_, id)) => {
                present.insert(id.batch);
                Ok(())
            }
            None => Ok(()),
        };
        for event in events {
            let id = self.seen(partition, event, strict)?;
            let number = event.sequence.0;
            if let Some((last, _)) = before
                && (last.sequence >= event.sequence || last.enqueued_at > event.enqueued_at)
            {
                return Err(format!("{event:?} follows {last:?} in partition {partition}"));
            }
            match before {
                Some((_, last)) if last.batch > id.batch => {
                    return Err(format!("{id:?} follows {last:?}"));
                }
                Some((last, last_id)) if last_id.batch == id.batch => {
                    if last_id.index + 1 != id.index || last.sequence.0 + 1 != number {
                        return Err(format!("{id:?}, number {number}, follows {last_id:?}, {last:?}"));
                    }
                }
                _ if id.index > 0 => return Err(format!("batch {} begins with {id:?}", id.batch)),
                last => ends(self, last)?,
            }
            before = Some((event, id));
        }
        ends(self, before)
    }

    /// Only retention takes what was promised: the oldest, and only if there is more than may be kept.
    fn nothing_is_missing(&self, present: &BTreeSet<u32>, log_bytes: u64, slack: u64) -> Checked {
        let promised = || {
            let all = self.batches.iter().enumerate().filter(|(_, batch)| batch.promised);
            all.map(|(number, _)| number as u32)
        };
        let Some(missing) = promised().filter(|number| !present.contains(number)).max() else {
            return Ok(());
        };
        let what = |number: u32| format!("batch {number}, {:?}", self.batches[number as usize]);
        let Some(limit) = self.kept_bytes else { return Err(format!("{} is missing", what(missing))) };
        if let Some(older) = promised().find(|number| *number < missing && present.contains(number)) {
            return Err(format!("{} is missing, but the older batch {older} exists", what(missing)));
        }
        if log_bytes + slack < limit {
            return Err(format!("{} is missing, and {log_bytes} of {limit} bytes are kept", what(missing)));
        }
        Ok(())
    }
}
