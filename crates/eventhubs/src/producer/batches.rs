//! Packs events into batch messages, one open batch for each partition key, bounded in number and bytes.
//!
//! A message has one key, because the key chooses its partition. Events with alternating keys therefore fill
//! several messages at the same time; events with one key keep their order.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use bytes::Bytes;
use ephor_core::event::NewEvent;
use ephor_core::partition_key;
use ephor_wire::batch::{Packer, Push, Refused};

use crate::connection::Outgoing;

/// The maximum number of messages that are being filled.
const MAX_OPEN_MESSAGES: usize = 1_000;

/// The maximum total size of all of them, in full messages.
const MAX_FULL_MESSAGES: usize = 4;

type Key = Option<Arc<str>>;

struct Open {
    packer: Packer,
    /// The index of its first event.
    first: usize,
}

/// A message that is ready to be sent.
pub(super) struct Ready {
    pub(super) message: Outgoing,
    pub(super) first: usize,
    pub(super) events: usize,
}

pub(super) struct Batches {
    /// The maximum size of a message.
    limit: usize,
    open: BTreeMap<Key, Open>,
    bytes: usize,
}

impl Batches {
    pub(super) fn new(limit: usize) -> Self {
        Self { limit, open: BTreeMap::new(), bytes: 0 }
    }

    /// Adds the event with this index; returns a message that has to be sent before the next event is added.
    pub(super) fn push(
        &mut self,
        index: usize,
        key: Key,
        event: &NewEvent,
    ) -> Result<Option<Ready>, Refused> {
        let limit = self.limit;
        let (open, before) = match self.open.entry(key) {
            Entry::Occupied(found) => {
                let open = found.into_mut();
                let size = open.packer.size();
                (open, size)
            }
            Entry::Vacant(place) => {
                place.key().as_deref().map_or(Ok(()), partition_key::check)?;
                let packer = Packer::new(limit, place.key().as_deref());
                (place.insert(Open { packer, first: index }), 0)
            }
        };
        let mut full = None;
        if open.packer.push(event)? == Push::Full {
            full = open.take();
            open.first = index;
            // It fits into an empty message, and this one is empty now.
            let _added = open.packer.push(event)?;
        }
        self.bytes = self.bytes - before + open.packer.size();
        let too_much =
            self.open.len() > MAX_OPEN_MESSAGES || self.bytes > MAX_FULL_MESSAGES.saturating_mul(limit);
        Ok(if full.is_none() && too_much { self.take_largest() } else { full })
    }

    fn take_largest(&mut self) -> Option<Ready> {
        let largest = self.open.iter().max_by_key(|(_, open)| open.packer.size());
        let mut open = self.open.remove(&largest.map(|(key, _)| key.clone())?)?;
        self.bytes -= open.packer.size();
        open.take()
    }

    /// The index of the oldest event that has not been returned in a message.
    pub(super) fn first(&self) -> Option<usize> {
        self.open.values().map(|open| open.first).min()
    }

    /// All remaining messages, oldest first.
    pub(super) fn into_rest(self) -> impl Iterator<Item = Ready> {
        let mut rest: Vec<Open> = self.open.into_values().collect();
        rest.sort_unstable_by_key(|open| open.first);
        rest.into_iter().filter_map(|mut open| open.take())
    }
}

impl Open {
    fn take(&mut self) -> Option<Ready> {
        let packed = self.packer.take()?;
        let message = Outgoing { format: packed.format, bytes: Bytes::from(packed.bytes) };
        Some(Ready { message, first: self.first, events: packed.events })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn events_of(ready: &[Ready]) -> usize {
        ready.iter().map(|ready| ready.events).sum()
    }

    /// Pushes `count` events of `size` bytes, alternating among `keys` keys.
    fn filled(limit: usize, keys: usize, count: usize, size: usize) -> (Vec<Ready>, Batches) {
        let mut batches = Batches::new(limit);
        let mut sent = Vec::new();
        for index in 0..count {
            let key = Some(Arc::from((index % keys).to_string()));
            sent.extend(batches.push(index, key, &NewEvent::new(vec![0; size])).unwrap());
            assert!(batches.open.len() <= MAX_OPEN_MESSAGES && batches.bytes <= MAX_FULL_MESSAGES * limit);
            assert_eq!(batches.bytes, batches.open.values().map(|open| open.packer.size()).sum::<usize>());
        }
        (sent, batches)
    }

    #[test]
    fn keys_by_turns_share_few_messages() {
        let (mut all, batches) = filled(100_000, 10, 1_000, 20);
        assert!(all.is_empty());
        assert_eq!(batches.first(), Some(0));
        all.extend(batches.into_rest());
        assert_eq!((all.len(), events_of(&all)), (10, 1_000));
        assert!(all.is_sorted_by_key(|ready| ready.first));
    }

    #[test]
    fn neither_many_keys_nor_large_events_fill_the_memory() {
        for (limit, keys, size) in [(100_000, 5_000, 1), (10_000, 50, 2_000), (1_000, 1, 300)] {
            let (mut all, batches) = filled(limit, keys, 10_000, size);
            assert!(!all.is_empty());
            all.extend(batches.into_rest());
            assert_eq!(events_of(&all), 10_000);
            assert!(all.iter().all(|ready| ready.message.bytes.len() <= limit));
        }
    }

    #[test]
    fn what_is_not_given_back_is_known_by_its_oldest() {
        let mut batches = Batches::new(1_000);
        let (a, b) = (Some(Arc::from("a")), Some(Arc::from("b")));
        assert!(batches.push(0, a.clone(), &NewEvent::new(vec![0; 600])).unwrap().is_none());
        assert!(batches.push(1, b, &NewEvent::new("small")).unwrap().is_none());
        let full = batches.push(2, a, &NewEvent::new(vec![0; 600])).unwrap().unwrap();
        assert_eq!((full.first, full.events), (0, 1));
        assert_eq!(batches.first(), Some(1));
        assert!(batches.push(3, None, &NewEvent::new(vec![0; 2_000])).is_err());
    }
}
