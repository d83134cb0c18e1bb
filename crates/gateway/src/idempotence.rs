//! Producers that number their events, so that a batch that is sent twice is stored once.
//!
//! A producer is known by its id, its epoch and the number of the last event that was stored. All three are
//! told in the answer to its attach. What is known of producers lives as long as the gateway, not as long as
//! the log: after a restart a producer goes on with the number that it brings along, and a batch whose answer
//! was lost in that very moment can be stored twice. The service documents the same feature as best effort.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_amqp::{Encoded, Malformed, Reader, Sections, Value};
use ephor_core::ids::PartitionId;
use ephor_hub::Hub;
use ephor_wire::condition::{Condition, Refusal};

use crate::facts::identity;

/// What a sender asks for, and what is not offered to those who do not.
pub(crate) const CAPABILITY: &str = "com.microsoft:idempotent-producer";
const PRODUCER_ID: &str = "com.microsoft:producer-id";
const PRODUCER_EPOCH: &str = "com.microsoft:producer-epoch";
const PRODUCER_SEQUENCE: &str = "com.microsoft:producer-sequence-number";

/// Producers of one hub. More are forgotten: first those without a link, and of these the one that attached
/// least recently.
const MOST_PRODUCERS: usize = 4_096;
/// Hubs whose producers are known. More are forgotten, the one that was used least recently first.
const MOST_HUBS: usize = 256;

/// The number before the first.
const NONE_YET: i32 = -1;

/// All producers that number their events, hub by hub: what happens in one is nothing to the others.
#[derive(Debug, Default)]
pub(crate) struct Producers {
    known: Mutex<Known>,
}

#[derive(Debug, Default)]
struct Known {
    /// By what names the hub's log.
    hubs: BTreeMap<String, Producing>,
    /// Goes up with every attach, to tell what was used least recently.
    uses: u64,
}

/// The producers of one hub.
#[derive(Debug, Default)]
struct Producing {
    producers: BTreeMap<Name, Entry>,
    used: u64,
}

#[derive(Debug)]
struct Entry {
    producer: Arc<Numbered>,
    used: u64,
}

/// A producer, in one partition.
type Name = (i64, PartitionId);

/// One of them, as all its links see it.
#[derive(Debug)]
pub(crate) struct Numbered {
    id: i64,
    state: Mutex<State>,
}

#[derive(Clone, Copy, Debug)]
struct State {
    epoch: i16,
    /// The last number that was handed to the hub, and not refused by it.
    last: i32,
}

/// What becomes of a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    /// It comes next.
    New {
        /// What the last number was before.
        before: i32,
    },
    /// It has been stored already.
    Repeated,
}

impl Producers {
    /// A sender with these link properties attaches: who it is, and with which epoch. Whoever has no id yet
    /// gets one that nobody can guess.
    pub(crate) fn attach(
        &self,
        hub: &str,
        partition: PartitionId,
        properties: Option<&Encoded>,
        random: impl Fn() -> u64,
    ) -> Result<(Arc<Numbered>, i16), Refusal> {
        let asked = Asked::read(properties)?;
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        known.uses += 1;
        let used = known.uses;
        let hub = known.hub(hub, used);
        let id = asked.id.unwrap_or_else(|| hub.fresh_id(partition, random));
        let Asked { epoch, last, .. } = asked;
        let made = || Arc::new(Numbered { id, state: Mutex::new(State { epoch, last }) });
        let entry = hub.producers.entry((id, partition)).or_insert_with(|| Entry { producer: made(), used });
        entry.used = used;
        let producer = entry.producer.clone();
        hub.forget_some();
        drop(known);
        let mut state = producer.lock();
        if epoch < state.epoch {
            return Err(stolen(state.epoch));
        }
        if epoch > state.epoch {
            *state = State { epoch, last };
        }
        drop(state);
        Ok((producer, epoch))
    }
}

/// What a sender says of itself.
struct Asked {
    id: Option<i64>,
    epoch: i16,
    last: i32,
}

impl Asked {
    fn read(properties: Option<&Encoded>) -> Result<Self, Refusal> {
        let number = |name| properties?.get(name)?.integer();
        let (id, epoch, last) = (number(PRODUCER_ID), number(PRODUCER_EPOCH), number(PRODUCER_SEQUENCE));
        if last.is_some() && (id.is_none() || epoch.is_none()) {
            let text = "A producer gives its id, its epoch and its sequence number, or none of them.";
            return Err(Refusal::new(Condition::ArgumentError, text));
        }
        let bad = || Refusal::new(Condition::ArgumentError, "The producer's numbers are out of range.");
        let id = id.map(|id| if id >= 0 { Ok(id) } else { Err(bad()) }).transpose()?;
        let epoch = i16::try_from(epoch.unwrap_or(0)).ok().filter(|epoch| *epoch >= 0).ok_or_else(bad)?;
        let last = last.unwrap_or(NONE_YET.into());
        let last = i32::try_from(last).ok().filter(|last| *last >= NONE_YET).ok_or_else(bad)?;
        Ok(Self { id, epoch, last })
    }
}

impl Known {
    fn hub(&mut self, name: &str, used: u64) -> &mut Producing {
        if !self.hubs.contains_key(name) && self.hubs.len() >= MOST_HUBS {
            let idle = self.hubs.iter().min_by_key(|(_, hub)| hub.used).map(|(name, _)| name.clone());
            idle.map(|name| self.hubs.remove(&name));
        }
        let hub = self.hubs.entry(name.to_owned()).or_default();
        hub.used = used;
        hub
    }
}

impl Producing {
    /// An id that no producer of this partition has. JavaScript can tell numbers of 53 bits apart.
    fn fresh_id(&self, partition: PartitionId, random: impl Fn() -> u64) -> i64 {
        loop {
            let id = (random() >> 12) as i64;
            if id > 0 && !self.producers.contains_key(&(id, partition)) {
                return id;
            }
        }
    }

    fn forget_some(&mut self) {
        while self.producers.len() > MOST_PRODUCERS {
            let in_use = |entry: &Entry| Arc::strong_count(&entry.producer) > 1;
            let least = self.producers.iter().min_by_key(|(_, entry)| (in_use(entry), entry.used));
            let Some(name) = least.map(|(name, _)| *name) else { return };
            self.producers.remove(&name);
        }
    }
}

impl Numbered {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// What the answer to an attach says beside the tracking id.
    pub(crate) fn properties(&self) -> [(&'static str, Value<'static>); 3] {
        let State { epoch, last } = *self.lock();
        [
            (PRODUCER_ID, Value::Long(self.id)),
            (PRODUCER_EPOCH, Value::Short(epoch)),
            (PRODUCER_SEQUENCE, Value::Int(last)),
        ]
    }

    /// A delivery came on a link with this epoch, whose first event has this number.
    pub(crate) fn claim(&self, epoch: i16, first: i32, count: usize) -> Result<Numbers, Refusal> {
        if first < 0 {
            let text = format!("The sequence number {first} is out of range: numbers begin at 0.");
            return Err(Refusal::new(Condition::ArgumentError, text));
        }
        let mut state = self.lock();
        if epoch < state.epoch {
            return Err(stolen(state.epoch));
        }
        let count = i64::try_from(count).unwrap_or(i64::MAX).max(1);
        let expected = next(state.last);
        if first == expected {
            let before = state.last;
            // Numbers go round behind the largest.
            let end = (i64::from(first) + count - 1).rem_euclid(i64::from(i32::MAX) + 1);
            state.last = i32::try_from(end).unwrap_or(i32::MAX);
            return Ok(Numbers::New { before });
        }
        if i64::from(first) + count - 1 <= i64::from(state.last) {
            return Ok(Numbers::Repeated);
        }
        let text = format!(
            "The sequence number {first} is out of order: the producer's last one is {}.",
            state.last
        );
        Err(Refusal::new(Condition::OutOfOrderSequence, text))
    }

    /// The hub did not store it: the numbers are free again.
    pub(crate) fn take_back(&self, before: i32) {
        let mut state = self.lock();
        state.last = state.last.min(before);
    }
}

fn next(last: i32) -> i32 {
    last.checked_add(1).unwrap_or(0)
}

fn stolen(epoch: i16) -> Refusal {
    let text = format!("A producer of the same id with the higher epoch {epoch} exists.");
    Refusal::new(Condition::ProducerEpochStolen, text)
}

/// What names the log of a hub: one that is created anew has other producers.
pub(crate) fn scope(hub: &Hub) -> String {
    match identity(hub).1 {
        Some(log) => log.to_string(),
        None => hub.name().as_str().to_ascii_lowercase(),
    }
}

/// The number that an event carries, in its annotations. One that cannot be any is negative.
pub(crate) fn number_of(message: &[u8]) -> Result<Option<i32>, Malformed> {
    let Some(section) = Sections::scan(message)?.message_annotations else { return Ok(None) };
    let mut items = Reader::starting(&message[..section.end], section.value).map()?;
    while let Some(key) = items.next()? {
        let value = items.next()?;
        if key.text() == Some(PRODUCER_SEQUENCE) {
            let number = value.and_then(Value::integer);
            return Ok(number.map(|number| i32::try_from(number).unwrap_or(-1)));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(producers: &Producers, properties: Option<Encoded>) -> Result<(Arc<Numbered>, i16), Refusal> {
        producers.attach("hub", PartitionId(0), properties.as_ref(), || 7 << 40)
    }

    fn properties(id: i64, epoch: i16, last: i32) -> Option<Encoded> {
        Some(Encoded::map([
            (PRODUCER_ID, Value::Long(id)),
            (PRODUCER_EPOCH, Value::Short(epoch)),
            (PRODUCER_SEQUENCE, Value::Int(last)),
        ]))
    }

    #[test]
    fn what_was_stored_is_not_stored_again_and_gaps_are_refused() {
        let producers = Producers::default();
        let (producer, epoch) = attach(&producers, None).unwrap();
        assert_eq!(producer.claim(epoch, 0, 3), Ok(Numbers::New { before: -1 }));
        assert_eq!(producer.claim(epoch, 3, 1), Ok(Numbers::New { before: 2 }));
        assert_eq!(producer.claim(epoch, 0, 3), Ok(Numbers::Repeated));
        assert_eq!(producer.claim(epoch, 3, 1), Ok(Numbers::Repeated));
        assert_eq!(producer.claim(epoch, 5, 1).unwrap_err().condition, Condition::OutOfOrderSequence);
        producer.take_back(2);
        assert_eq!(producer.claim(epoch, 3, 1), Ok(Numbers::New { before: 2 }));
        assert_eq!(producer.properties()[2].1, Value::Int(3));
    }

    #[test]
    fn a_producer_that_comes_back_goes_on_and_a_newer_epoch_takes_over() {
        let producers = Producers::default();
        let (first, epoch) = attach(&producers, properties(5, 1, 41)).unwrap();
        assert_eq!(first.claim(epoch, 42, 1), Ok(Numbers::New { before: 41 }));
        let (again, _) = attach(&producers, properties(5, 1, 41)).unwrap();
        assert_eq!(again.claim(1, 42, 1), Ok(Numbers::Repeated));
        let (_newer, _) = attach(&producers, properties(5, 2, -1)).unwrap();
        assert_eq!(first.claim(epoch, 43, 1).unwrap_err().condition, Condition::ProducerEpochStolen);
        let refused = attach(&producers, properties(5, 1, 42)).unwrap_err();
        assert_eq!(refused.condition, Condition::ProducerEpochStolen);
    }

    #[test]
    fn numbers_go_round() {
        let producers = Producers::default();
        let (producer, epoch) = attach(&producers, properties(1, 0, i32::MAX - 1)).unwrap();
        assert_eq!(producer.claim(epoch, i32::MAX, 2), Ok(Numbers::New { before: i32::MAX - 1 }));
        assert_eq!(producer.claim(epoch, 1, 1), Ok(Numbers::New { before: 0 }));
    }

    #[test]
    fn a_producer_of_another_hub_is_another_one() {
        let producers = Producers::default();
        let (here, epoch) = attach(&producers, properties(5, 3, 41)).unwrap();
        let there = producers.attach("other", PartitionId(0), properties(5, 0, -1).as_ref(), || 1).unwrap();
        assert_eq!(here.claim(epoch, 42, 1), Ok(Numbers::New { before: 41 }));
        assert_eq!(there.0.claim(there.1, 0, 1), Ok(Numbers::New { before: -1 }));
    }

    #[test]
    fn ids_are_drawn_and_not_counted_and_never_twice() {
        let producers = Producers::default();
        let draws = std::cell::RefCell::new(vec![u64::MAX, u64::MAX, 0x1234_5678_9abc_def0, 0]);
        let random = || draws.borrow_mut().pop().unwrap();
        let id = || producers.attach("hub", PartitionId(0), None, random).unwrap().0.id;
        assert_eq!(id(), 0x0001_2345_6789_abcd, "0 is none");
        assert_eq!(id(), (1 << 52) - 1);
        draws.borrow_mut().extend([9 << 20, u64::MAX]);
        assert_eq!(id(), 9 << 8, "one that is used already is drawn again");
    }

    #[test]
    fn negative_numbers_are_refused() {
        let producers = Producers::default();
        for (id, epoch, last) in [(-1, 0, 0), (1, -1, 0), (1, 0, -2), (1, 0, i32::MIN)] {
            let refused = attach(&producers, properties(id, epoch, last)).unwrap_err();
            assert_eq!(refused.condition, Condition::ArgumentError, "{id} {epoch} {last}");
        }
        let (producer, epoch) = attach(&producers, None).unwrap();
        for first in [-1, -5, i32::MIN] {
            let refused = producer.claim(epoch, first, 1).unwrap_err();
            assert_eq!(refused.condition, Condition::ArgumentError, "nothing is taken for stored already");
        }
        assert_eq!(producer.claim(epoch, 0, 1), Ok(Numbers::New { before: -1 }));
    }

    #[test]
    fn what_is_known_of_producers_is_bounded_and_those_in_use_stay() {
        let producers = Producers::default();
        let used = attach(&producers, properties(0, 1, 5)).unwrap();
        for id in 1..=2 * MOST_PRODUCERS as i64 {
            attach(&producers, properties(id, 0, -1)).unwrap();
        }
        assert_eq!(producers.known.lock().unwrap().hubs["hub"].producers.len(), MOST_PRODUCERS);
        assert!(Arc::ptr_eq(&used.0, &attach(&producers, properties(0, 1, 5)).unwrap().0));
        for hub in 0..2 * MOST_HUBS {
            producers.attach(&hub.to_string(), PartitionId(0), None, || 1 << 30).unwrap();
        }
        assert_eq!(producers.known.lock().unwrap().hubs.len(), MOST_HUBS);
    }
}
