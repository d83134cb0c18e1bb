//! Idempotent producers, which number their events so that a batch sent twice is stored once: the producers
//! that a gateway knows, and the answer to the attach of one.
//!
//! The gateway knows a producer by its id, its epoch and the number of its last event on disk. The answer to
//! its attach has all three, but the number that the producer brought along, if it did: an SDK counts on from
//! the answer, and then sends again what it has no acknowledgement for. A producer that brings none and is new
//! begins at 1; one that brings a later number than is known here goes on after that. This state lives as long
//! as the gateway, not as long as the log: after a restart a producer resumes with the number that it brings
//! along, and a batch whose answer was lost at the time of the restart can be stored twice. The service
//! documents the same feature as best effort. Nothing is acknowledged that is not on disk, whatever was sent
//! again, dropped or failed before.
//!
//! A producer that attaches without a number resumes with the number in the answer, and may send other events
//! than the producer before it did. So the answer is delayed until nothing of that producer is in flight:
//! otherwise its first batch would have the numbers of another batch, and be taken for a repeat of it.
//!
//! | file | owns |
//! |---|---|
//! | `sequence.rs` | numbers that are stored, in flight, and next; no I/O |
//! | `fingerprint.rs` | whether events under the same numbers are the same events |
//! | `producer.rs` | a producer, and the claim of a batch on its numbers |

mod fingerprint;
mod producer;
mod sequence;

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use ephor_amqp::{Encoded, Malformed, Reader, Sections, Value};
use ephor_core::ids::PartitionId;
use ephor_hub::Hub;
use ephor_wire::condition::{Condition, Refusal};
use ephor_wire::names::{PRODUCER_EPOCH, PRODUCER_ID, PRODUCER_SEQUENCE_NUMBER};

use crate::hub_info_cache::identity;
use sequence::LOWEST;

pub(crate) use fingerprint::Fingerprint;
pub(crate) use producer::{Claimed, Commit, NumberedProducer};

/// The largest number of producers of one hub. Beyond it producers are forgotten: first those without a link,
/// and of these the one that attached least recently.
const MAX_PRODUCERS: usize = 4_096;
/// The largest number of hubs with known producers. Beyond it the least recently used one is forgotten.
const MAX_HUBS: usize = 256;

/// The service's words for numbers that no producer can have. Clients look for them.
const INVALID_STATE: &str = "Invalid range for idempotent producer state. Producer Id, Epoch, and Sequence \
                             Number must be zero or positive.";

/// All idempotent producers, hub by hub, so that hubs do not affect each other.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By the name of the hub's log; see [`scope`].
    hubs: BTreeMap<String, HubProducers>,
    /// Counts attaches, to find the least recently used.
    uses: u64,
}

/// The producers of one hub.
#[derive(Debug, Default)]
struct HubProducers {
    producers: BTreeMap<Name, Entry>,
    used: u64,
}

#[derive(Debug)]
struct Entry {
    producer: Arc<NumberedProducer>,
    used: u64,
}

/// The id of a producer, in one partition.
type Name = (i64, PartitionId);

impl Producers {
    /// Attaches a sender with these link properties, and returns its producer and its epoch. A sender without
    /// an id gets one that nobody can guess.
    pub(crate) fn attach(
        &self,
        hub: &str,
        partition: PartitionId,
        properties: Option<&Encoded>,
        random: impl Fn() -> u64,
    ) -> Result<(Arc<NumberedProducer>, i16), Refusal> {
        let asked = LinkProperties::read(properties)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.uses += 1;
        let used = known.uses;
        let hub = known.hub(hub, used);
        let id = asked.id.unwrap_or_else(|| hub.fresh_id(partition, random));
        let LinkProperties { epoch, last, .. } = asked;
        let made = || Arc::new(NumberedProducer::new(id, epoch, last));
        let entry = hub.producers.entry((id, partition)).or_insert_with(|| Entry { producer: made(), used });
        entry.used = used;
        let producer = entry.producer.clone();
        hub.forget_some();
        drop(known);
        producer.enter(epoch, last)?;
        Ok((producer, epoch))
    }
}

/// The commit that an attaching producer has to wait for: a batch of an older epoch that is being written;
/// or, if it brings no number, a batch in flight.
pub(crate) fn awaited(producer: &NumberedProducer, properties: Option<&Encoded>) -> Option<Commit> {
    let brings_number = brought(properties).is_some();
    producer.written_by_older().or_else(|| if brings_number { None } else { producer.pending() })
}

/// The last number that an attaching producer knows to be stored, if it says so.
fn brought(properties: Option<&Encoded>) -> Option<i64> {
    properties?.get(PRODUCER_SEQUENCE_NUMBER)?.integer()
}

/// The link properties of an attaching sender.
struct LinkProperties {
    id: Option<i64>,
    epoch: i16,
    /// The last number that it knows to be stored.
    last: Option<i32>,
}

impl LinkProperties {
    fn read(properties: Option<&Encoded>) -> Result<Self, Refusal> {
        let number = |name| properties?.get(name)?.integer();
        let (id, epoch, last) = (number(PRODUCER_ID), number(PRODUCER_EPOCH), brought(properties));
        let bad = || Refusal::new(Condition::ArgumentOutOfRange, INVALID_STATE);
        let id = id.map(|id| if id >= 0 { Ok(id) } else { Err(bad()) }).transpose()?;
        let epoch = i16::try_from(epoch.unwrap_or(0)).ok().filter(|epoch| *epoch >= 0).ok_or_else(bad)?;
        let valid = |last| i32::try_from(last).ok().filter(|last| *last >= LOWEST).ok_or_else(bad);
        let last = last.map(valid).transpose()?;
        Ok(Self { id, epoch, last })
    }
}

impl Known {
    fn hub(&mut self, name: &str, used: u64) -> &mut HubProducers {
        if !self.hubs.contains_key(name) && self.hubs.len() >= MAX_HUBS {
            let idle = self.hubs.iter().min_by_key(|(_, hub)| hub.used).map(|(name, _)| name.clone());
            idle.map(|name| self.hubs.remove(&name));
        }
        let hub = self.hubs.entry(name.to_owned()).or_default();
        hub.used = used;
        hub
    }
}

impl HubProducers {
    /// An id that no producer of this partition has. JavaScript can represent integers of 53 bits.
    fn fresh_id(&self, partition: PartitionId, random: impl Fn() -> u64) -> i64 {
        loop {
            let id = (random() >> 12) as i64;
            if id > 0 && !self.producers.contains_key(&(id, partition)) {
                return id;
            }
        }
    }

    fn forget_some(&mut self) {
        while self.producers.len() > MAX_PRODUCERS {
            let in_use = |entry: &Entry| Arc::strong_count(&entry.producer) > 1;
            let least = self.producers.iter().min_by_key(|(_, entry)| (in_use(entry), entry.used));
            let Some(name) = least.map(|(name, _)| *name) else { return };
            self.producers.remove(&name);
        }
    }
}

impl NumberedProducer {
    /// The properties of the attach answer, beside the tracking id, for a link that asks with these. Numbers in
    /// flight do not count yet: they may fail.
    pub(crate) fn properties(&self, asked: Option<&Encoded>) -> [(&'static str, Value<'static>); 3] {
        let (epoch, stored) = self.epoch_and_last_stored();
        let last = brought(asked).and_then(|last| i32::try_from(last).ok()).unwrap_or(stored);
        [
            (PRODUCER_ID, Value::Long(self.id)),
            (PRODUCER_EPOCH, Value::Short(epoch)),
            (PRODUCER_SEQUENCE_NUMBER, Value::Int(last)),
        ]
    }
}

/// The name of a hub's log: a hub that is deleted and created again has other producers.
pub(crate) fn scope(hub: &Hub) -> String {
    match identity(hub).1 {
        Some(log) => log.to_string(),
        None => hub.name().as_str().to_ascii_lowercase(),
    }
}

/// The number that an event carries in its annotations. An invalid number is returned as a negative one.
pub(crate) fn number_of(message: &[u8]) -> Result<Option<i32>, Malformed> {
    let Some(section) = Sections::scan(message)?.message_annotations else { return Ok(None) };
    let mut items = Reader::starting(&message[..section.end], section.value).map()?;
    while let Some(key) = items.next()? {
        let value = items.next()?;
        if key.text() == Some(PRODUCER_SEQUENCE_NUMBER) {
            let number = value.and_then(Value::integer);
            return Ok(number.map(|number| i32::try_from(number).unwrap_or(-1)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests;
