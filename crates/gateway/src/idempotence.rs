//! Producers that number their events, so that a batch that is sent twice is stored once.
//!
//! A producer is known by its id, its epoch and the number of the last event that was stored. All three are
//! told in the answer to its attach. What is known of producers lives as long as the gateway, not as long as
//! the log: after a restart a producer goes on with the number that it brings along, and a batch whose answer
//! was lost in that very moment can be stored twice. The service documents the same feature as best effort.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_amqp::{Encoded, Malformed, Reader, Sections, Value};
use ephor_core::ids::{HubName, PartitionId};
use ephor_wire::condition::{Condition, Refusal};

/// What a sender asks for, and what is not offered to those who do not.
pub(crate) const CAPABILITY: &str = "com.microsoft:idempotent-producer";
const PRODUCER_ID: &str = "com.microsoft:producer-id";
const PRODUCER_EPOCH: &str = "com.microsoft:producer-epoch";
const PRODUCER_SEQUENCE: &str = "com.microsoft:producer-sequence-number";

/// More are forgotten, the oldest ids first.
const MOST_PRODUCERS: usize = 16_384;

/// The number before the first.
const NONE_YET: i32 = -1;

/// All producers that number their events.
#[derive(Debug)]
pub(crate) struct Producers {
    known: Mutex<Known>,
}

#[derive(Debug)]
struct Known {
    next_id: i64,
    producers: BTreeMap<Name, Arc<Numbered>>,
}

/// A producer, in one partition.
type Name = (i64, String, PartitionId);

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
    pub(crate) fn new(seed: u64) -> Self {
        // Ids of an earlier life are not given out again soon.
        let next_id = i64::from(seed as u32) << 20;
        Self { known: Mutex::new(Known { next_id, producers: BTreeMap::new() }) }
    }

    /// A sender with these link properties attaches: who it is, and with which epoch.
    pub(crate) fn attach(
        &self,
        hub: &HubName,
        partition: PartitionId,
        properties: Option<&Encoded>,
    ) -> Result<(Arc<Numbered>, i16), Refusal> {
        let number = |name| properties?.get(name)?.integer();
        let asked = (number(PRODUCER_ID), number(PRODUCER_EPOCH), number(PRODUCER_SEQUENCE));
        let mut known = self.lock();
        let (id, epoch, last) = match asked {
            (Some(id), Some(epoch), Some(last)) => {
                let bad =
                    || Refusal::new(Condition::ArgumentError, "The producer's numbers are out of range.");
                (id, i16::try_from(epoch).map_err(|_| bad())?, i32::try_from(last).map_err(|_| bad())?)
            }
            (id, epoch, None) => {
                known.next_id = known.next_id.wrapping_add(1);
                let epoch = epoch.and_then(|epoch| i16::try_from(epoch).ok()).unwrap_or(0);
                (id.unwrap_or(known.next_id), epoch, NONE_YET)
            }
            _ => {
                let text = "A producer gives its id, its epoch and its sequence number, or none of them.";
                return Err(Refusal::new(Condition::ArgumentError, text));
            }
        };
        let name = (id, hub.as_str().to_ascii_lowercase(), partition);
        let producer = known
            .producers
            .entry(name)
            .or_insert_with(|| Arc::new(Numbered { id, state: Mutex::new(State { epoch, last }) }));
        let producer = producer.clone();
        while known.producers.len() > MOST_PRODUCERS {
            known.producers.pop_first();
        }
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

    fn lock(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
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

/// The number that an event carries, in its annotations.
pub(crate) fn number_of(message: &[u8]) -> Result<Option<i32>, Malformed> {
    let Some(section) = Sections::scan(message)?.message_annotations else { return Ok(None) };
    let mut items = Reader::starting(&message[..section.end], section.value).map()?;
    while let Some(key) = items.next()? {
        let value = items.next()?;
        if key.text() == Some(PRODUCER_SEQUENCE) {
            return Ok(value.and_then(Value::integer).and_then(|number| i32::try_from(number).ok()));
        }
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn attach(producers: &Producers, properties: Option<Encoded>) -> Result<(Arc<Numbered>, i16), Refusal> {
        producers.attach(&"hub".parse().unwrap(), PartitionId(0), properties.as_ref())
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
        let producers = Producers::new(7);
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
        let producers = Producers::new(7);
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
        let producers = Producers::new(7);
        let (producer, epoch) = attach(&producers, properties(1, 0, i32::MAX - 1)).unwrap();
        assert_eq!(producer.claim(epoch, i32::MAX, 2), Ok(Numbers::New { before: i32::MAX - 1 }));
        assert_eq!(producer.claim(epoch, 1, 1), Ok(Numbers::New { before: 0 }));
    }
}
