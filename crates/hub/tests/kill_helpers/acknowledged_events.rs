//! Test helper: records the events that the killed processes had acknowledged and read, and checks that all
//! exist.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, ReceiveError, Receiver};
use ephor_hub::Hub;

use super::hash_chain::{Break, Link, Tail};
use super::protocol::Word;
use super::sender::PARTITIONS;

/// Everything that must be found again.
pub(crate) struct AcknowledgedEvents {
    partitions: Vec<Page>,
    /// Whether sequence numbers may jump from one process to the next.
    jumps: bool,
    pub(crate) acknowledged: u64,
}

#[derive(Default)]
struct Page {
    /// By first sequence number: the size and the hash behind the last event.
    stored: BTreeMap<u64, (u32, u64)>,
    /// By sequence number: the hash.
    seen: BTreeMap<u64, u64>,
    /// Up to here it has been checked.
    checked: Place,
}

/// A place between two events of a partition.
#[derive(Clone, Copy, Debug, Default)]
struct Place {
    tail: Tail,
    sequence: u64,
    /// The event before it.
    before: Option<Link>,
}

/// The faults that a check found.
#[derive(Debug, Default)]
pub(crate) struct Faults {
    pub(crate) lost: u64,
    pub(crate) repeated: u64,
    pub(crate) changed: u64,
    /// The first of them, in words.
    pub(crate) stories: Vec<String>,
}

impl Faults {
    pub(crate) fn is_empty(&self) -> bool {
        self.stories.is_empty()
    }

    fn tell(&mut self, story: String) {
        if self.stories.len() < 20 {
            self.stories.push(story);
        }
    }
}

impl AcknowledgedEvents {
    pub(crate) fn new(jumps: bool) -> Self {
        Self { partitions: (0..PARTITIONS).map(|_| Page::default()).collect(), jumps, acknowledged: 0 }
    }

    /// Takes down what a child said.
    pub(crate) fn note(&mut self, word: Word) {
        match word {
            Word::Stored { partition, first, size, hash } => {
                self.acknowledged += u64::from(size);
                let before = self.partitions[partition as usize].stored.insert(first, (size, hash));
                assert_eq!(before, None, "number {first} of partition {partition} was given away twice");
            }
            Word::Seen { partition, sequence, hash } => {
                self.partitions[partition as usize].seen.insert(sequence, hash);
            }
        }
    }

    /// Reads what has come since it was checked last.
    pub(crate) async fn check_new(&mut self, hub: &Hub) -> Faults {
        let mut faults = Faults::default();
        for (id, page) in self.partitions.iter_mut().enumerate() {
            page.checked = page.check(hub, id as u32, page.checked, self.jumps, &mut faults).await;
        }
        faults
    }

    /// Reads everything from the first event of the first process on.
    pub(crate) async fn check_all(&mut self, hub: &Hub) -> Faults {
        self.partitions.iter_mut().for_each(|page| page.checked = Place::default());
        self.check_new(hub).await
    }

    pub(crate) fn events(&self) -> u64 {
        self.partitions.iter().map(|page| page.checked.tail.ordinal).sum()
    }
}

/// Whether what is said to be there can be read at all.
#[expect(clippy::disallowed_methods, reason = "a reader that waits for a lost event would wait forever")]
async fn arrives(read: impl Future<Output = Result<(), ReceiveError>>) -> bool {
    tokio::time::timeout(Duration::from_secs(20), read).await.map(Result::unwrap).is_ok()
}

impl Page {
    async fn check(&self, hub: &Hub, id: u32, from: Place, jumps: bool, faults: &mut Faults) -> Place {
        let mut place = from;
        let end = hub.partition_properties(PartitionId(id)).await.unwrap().last;
        let end = end.map_or(0, |last| last.sequence.0 + 1);
        if end > place.sequence {
            let start = StartPosition::at(SequenceNumber(place.sequence));
            let mut reader = hub.reader(PartitionId(id), start).await.unwrap();
            let mut events = Vec::new();
            while place.sequence < end {
                if !arrives(reader.receive(&mut events, 1000)).await {
                    faults.lost += end - place.sequence;
                    faults.tell(format!("partition {id}: nothing to read from {} to {end}", place.sequence));
                    break;
                }
                for event in events.drain(..) {
                    place = self.check_event(id, place, &event, jumps, faults);
                }
            }
        }
        if let Some(link) = place.before.filter(|link| !link.is_last()) {
            faults.changed += 1;
            faults.tell(format!("partition {id} ends within a batch, with {link:?}"));
        }
        for (first, (size, _)) in self.stored.range(place.sequence..) {
            faults.lost += u64::from(*size);
            faults.tell(format!(
                "partition {id} ends at {}, {size} events from {first} on were acknowledged",
                place.sequence
            ));
        }
        if let Some((sequence, _)) = self.seen.range(place.sequence..).next_back() {
            faults.lost += 1;
            faults.tell(format!("partition {id} ends at {}, a reader had {sequence}", place.sequence));
        }
        place
    }

    fn check_event(&self, id: u32, from: Place, event: &Event, jumps: bool, faults: &mut Faults) -> Place {
        let mut place = from;
        let sequence = event.sequence.0;
        let (link, judged) = place.tail.follow(id, &event.body);
        match judged {
            Ok(()) => {}
            Err(Break::Gap { missing }) => faults.lost += missing,
            Err(Break::Again) => faults.repeated += 1,
            Err(Break::Changed) => faults.changed += 1,
        }
        if let Err(fault) = judged {
            faults.tell(format!(
                "partition {id}, number {sequence}: {fault:?}; {link:?} behind {:?}",
                from.before
            ));
        }
        let new_process = link.zip(from.before).is_none_or(|(link, before)| link.round != before.round);
        if sequence < from.sequence || sequence > from.sequence && !(jumps && new_process) {
            faults.changed += 1;
            faults.tell(format!("partition {id}: number {sequence} where {} was due", from.sequence));
        }
        self.compare(id, sequence, link, from.before, faults);
        Place { tail: place.tail, sequence: sequence + 1, before: link }
    }

    /// Compares an event with what senders were told and readers have seen.
    fn compare(&self, id: u32, sequence: u64, link: Option<Link>, before: Option<Link>, faults: &mut Faults) {
        let Some(link) = link else { return };
        let whole = match link.index {
            0 => before.is_none_or(|before| before.is_last()),
            index => before.is_some_and(|before| before.index + 1 == index && before.size == link.size),
        };
        let begins = self.stored.get(&sequence);
        let ends = link.is_last().then(|| self.stored.get(&(sequence + 1 - u64::from(link.size)))).flatten();
        let as_told = begins.is_none_or(|(size, _)| (link.index, link.size) == (0, *size))
            && ends.is_none_or(|(size, hash)| (link.size, link.hash) == (*size, *hash))
            && self.seen.get(&sequence).is_none_or(|hash| *hash == link.hash);
        if !whole || !as_told {
            faults.changed += 1;
            faults.tell(format!(
                "partition {id}, number {sequence}: {link:?} was neither acknowledged nor seen"
            ));
        }
    }
}
