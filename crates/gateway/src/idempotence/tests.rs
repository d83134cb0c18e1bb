//! Tests of idempotent producers: their ids, and their sequence numbers when a delivery is repeated, fails,
//! or is lost with its connection.

use ephor_hub::SendError;
use futures_util::FutureExt;
use proptest::prelude::*;

use super::producer::{Claim, Commit};
use super::*;

fn attach(
    producers: &Producers,
    properties: Option<Encoded>,
) -> Result<(Arc<NumberedProducer>, i16), Refusal> {
    producers.attach("hub", PartitionId(0), properties.as_ref(), || 7 << 40)
}

fn properties(id: i64, epoch: i16, last: i32) -> Option<Encoded> {
    Some(Encoded::map([
        (PRODUCER_ID, Value::Long(id)),
        (PRODUCER_EPOCH, Value::Short(epoch)),
        (PRODUCER_SEQUENCE_NUMBER, Value::Int(last)),
    ]))
}

fn last_answered(producer: &NumberedProducer) -> Value<'static> {
    producer.properties(None)[2].1
}

/// The events that have these numbers in the tests.
fn events(first: i32, count: usize) -> Fingerprint {
    let numbers = (0..).take(count).map(|number: i32| first.wrapping_add(number) & i32::MAX);
    numbers.map(Fingerprint::of_number).fold(Fingerprint::EMPTY, Fingerprint::then)
}

/// Claims numbers that come next.
fn new(producer: &Arc<NumberedProducer>, epoch: i16, first: i32, count: usize) -> Claim {
    match producer.claim(epoch, first, count, events(first, count)) {
        Ok(Claimed::New(claim)) => claim,
        other => panic!("{other:?}"),
    }
}

/// Claims numbers that are in flight.
fn pending(producer: &Arc<NumberedProducer>, epoch: i16, first: i32, count: usize) -> Commit {
    match producer.claim(epoch, first, count, events(first, count)) {
        Ok(Claimed::Pending(commit)) => commit,
        other => panic!("{other:?}"),
    }
}

fn is_stored(producer: &Arc<NumberedProducer>, epoch: i16, first: i32, count: usize) -> bool {
    matches!(producer.claim(epoch, first, count, events(first, count)), Ok(Claimed::Stored))
}

fn refusal(producer: &Arc<NumberedProducer>, epoch: i16, first: i32) -> Condition {
    producer.claim(epoch, first, 1, events(first, 1)).unwrap_err().condition
}

fn failed() -> SendError {
    SendError::Closed("the disk failed".into())
}

#[test]
fn a_producer_that_asks_for_its_number_waits_for_what_is_in_flight() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, properties(5, 0, 9)).unwrap();
    let without_number = Encoded::map([(PRODUCER_ID, Value::Long(5)), (PRODUCER_EPOCH, Value::Short(0))]);
    assert!(awaited(&producer, Some(&without_number)).is_none());
    let (claim, failing) = (new(&producer, epoch, 10, 2), new(&producer, epoch, 12, 1));
    assert!(awaited(&producer, properties(5, 0, 9).as_ref()).is_none(), "it knows its number");
    let first = awaited(&producer, Some(&without_number)).unwrap();
    failing.settle(Err(failed()));
    assert!(first.settled().now_or_never().is_some());
    let second = awaited(&producer, Some(&without_number)).unwrap();
    claim.settle(Ok(()));
    assert!(second.settled().now_or_never().is_some());
    assert!(awaited(&producer, Some(&without_number)).is_none());
    assert_eq!(last_answered(&producer), Value::Int(11));
}

#[test]
fn what_was_stored_is_not_stored_again_and_gaps_are_refused() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, None).unwrap();
    new(&producer, epoch, 1, 3).settle(Ok(()));
    new(&producer, epoch, 4, 1).settle(Ok(()));
    assert!(is_stored(&producer, epoch, 1, 3) && is_stored(&producer, epoch, 4, 1));
    assert_eq!(refusal(&producer, epoch, 6), Condition::OutOfOrderSequence);
    assert_eq!(last_answered(&producer), Value::Int(4));
}

#[test]
fn an_event_that_is_not_stored_is_refused_though_its_number_is_known() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, None).unwrap();
    new(&producer, epoch, 1, 5).settle(Ok(()));
    // As in the JavaScript SDK's own live test: another client, with another idea of the last number.
    let asked = Encoded::map([
        (PRODUCER_ID, Value::Long(producer.id)),
        (PRODUCER_EPOCH, Value::Null),
        (PRODUCER_SEQUENCE_NUMBER, Value::Int(1)),
    ]);
    let (other, epoch) = attach(&producers, Some(asked.clone())).unwrap();
    assert!(Arc::ptr_eq(&producer, &other));
    assert_eq!(other.properties(Some(&asked))[2].1, Value::Int(1), "it counts on from the answer");
    let refused = other.claim(epoch, 2, 1, events(2, 1)).unwrap_err();
    assert_eq!(refused.condition, Condition::OutOfOrderSequence);
    assert!(refused.text.contains("old sequence"), "{}", refused.text);
}

#[test]
fn other_events_under_the_numbers_of_a_lost_answer_are_refused_and_not_acknowledged() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, properties(5, 0, 0)).unwrap();
    new(&producer, epoch, 1, 3).settle(Ok(()));
    // The application gave up the batch whose answer was lost, and the client numbers its next one the same.
    let (again, epoch) = attach(&producers, properties(5, 0, 0)).unwrap();
    let refused = again.claim(epoch, 1, 3, events(7, 3)).unwrap_err();
    assert_eq!(refused.condition, Condition::OutOfOrderSequence);
    assert!(is_stored(&again, epoch, 1, 3), "the same events are a repeat");
    new(&again, epoch, 4, 1).settle(Ok(()));
}

#[test]
fn a_producer_goes_on_after_the_number_that_it_brings_if_that_is_the_later_one() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, properties(5, 0, 0)).unwrap();
    new(&producer, epoch, 1, 3).settle(Ok(()));
    let asked = properties(5, 0, 50);
    let (again, epoch) = attach(&producers, asked.clone()).unwrap();
    assert_eq!(again.properties(asked.as_ref())[2].1, Value::Int(50));
    new(&again, epoch, 51, 1).settle(Ok(()));
}

#[test]
fn a_client_whose_answer_was_lost_repeats_the_batch_and_goes_on_behind_it() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, properties(5, 0, 2)).unwrap();
    new(&producer, epoch, 3, 2).settle(Ok(()));
    let asked = properties(5, 0, 2);
    let (again, epoch) = attach(&producers, asked.clone()).unwrap();
    // With 4 in the answer, the JavaScript SDK would repeat 3 and 4 and go on with 7.
    assert_eq!(again.properties(asked.as_ref())[2].1, Value::Int(2));
    assert!(is_stored(&again, epoch, 3, 2));
    new(&again, epoch, 5, 1).settle(Ok(()));
}

#[test]
fn a_repeat_of_a_send_in_flight_waits_for_it_and_gets_its_outcome() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, None).unwrap();
    let (first, second) = (new(&producer, epoch, 1, 1), new(&producer, epoch, 2, 1));
    let (one, other) = (pending(&producer, epoch, 1, 1), pending(&producer, epoch, 2, 1));
    assert!(one.clone().settled().now_or_never().is_none());
    assert_eq!(last_answered(&producer), Value::Int(0), "it may still fail");
    first.settle(Ok(()));
    assert!(matches!(one.settled().now_or_never(), Some(Some(Ok(())))));
    assert_eq!(last_answered(&producer), Value::Int(1));
    second.settle(Err(failed()));
    assert!(matches!(other.settled().now_or_never(), Some(Some(Err(_)))));
    // It failed for all waiters: the next delivery claims the numbers again.
    new(&producer, epoch, 2, 1).settle(Ok(()));
}

#[test]
fn a_claim_that_is_dropped_before_the_hub_has_it_is_free_for_those_that_wait() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, None).unwrap();
    let claim = new(&producer, epoch, 1, 2);
    let waiting = pending(&producer, epoch, 1, 2);
    drop(claim);
    assert!(matches!(waiting.settled().now_or_never(), Some(None)));
    new(&producer, epoch, 1, 2).settle(Ok(()));
    assert!(is_stored(&producer, epoch, 1, 2));
}

#[test]
fn a_producer_that_comes_back_goes_on_and_a_newer_epoch_takes_over() {
    let producers = Producers::default();
    let (first, epoch) = attach(&producers, properties(5, 1, 41)).unwrap();
    new(&first, epoch, 42, 1).settle(Ok(()));
    let (again, _) = attach(&producers, properties(5, 1, 41)).unwrap();
    assert!(is_stored(&again, 1, 42, 1));
    let late = new(&first, epoch, 43, 1);
    let (newer, _) = attach(&producers, properties(5, 2, -1)).unwrap();
    assert_eq!(refusal(&first, epoch, 43), Condition::ProducerEpochStolen);
    let refused = attach(&producers, properties(5, 1, 42)).unwrap_err();
    assert_eq!(refused.condition, Condition::ProducerEpochStolen);
    // The JavaScript SDK's own live test looks for this.
    assert!(refused.text.contains("Received:1 Current:2"), "{}", refused.text);
    // Batches in flight of the older epoch say nothing about the numbers of the newer one.
    late.settle(Ok(()));
    assert_eq!(last_answered(&newer), Value::Int(-1));
    new(&newer, 2, 0, 1).settle(Ok(()));
    assert_eq!(last_answered(&newer), Value::Int(0));
}

#[test]
fn what_an_older_epoch_has_in_the_queue_is_not_stored_once_a_newer_one_is_let_in() {
    let producers = Producers::default();
    let (older, epoch) = attach(&producers, properties(5, 0, 4)).unwrap();
    let (queued, behind) = (new(&older, epoch, 5, 5), new(&older, epoch, 10, 5));
    let (wanted, wanted_behind) = (queued.may_be_stored(), behind.may_be_stored());
    let (newer, _) = attach(&producers, properties(5, 1, 4)).unwrap();
    assert!(awaited(&newer, properties(5, 1, 4).as_ref()).is_none(), "nothing of it is being written");
    assert!(!wanted(), "it would be stored beside what the newer epoch sends with the same numbers");
    queued.settle(Err(SendError::OutOfOrder));
    assert!(!wanted_behind(), "it would be stored before what the newer epoch sends");
    behind.settle(Err(SendError::OutOfOrder));
    let again = new(&newer, 1, 5, 5);
    assert!(again.may_be_stored()());
    again.settle(Ok(()));
    assert_eq!(last_answered(&newer), Value::Int(9));
}

#[test]
fn a_newer_epoch_waits_for_what_is_being_written_of_an_older_one() {
    let producers = Producers::default();
    let (older, epoch) = attach(&producers, properties(5, 0, 4)).unwrap();
    let (first, second) = (new(&older, epoch, 5, 1), new(&older, epoch, 6, 1));
    assert!(first.may_be_stored()() && second.may_be_stored()());
    assert!(awaited(&older, properties(5, 0, 4).as_ref()).is_none(), "the epoch is the same");
    // A stored batch, and one that is dropped with the hub, are both settled.
    let mut stored = [Ok(())].into_iter();
    for claim in [first, second] {
        let (newer, _) = attach(&producers, properties(5, 1, 4)).unwrap();
        let written = awaited(&newer, properties(5, 1, 4).as_ref()).expect("it may be stored any time");
        assert!(written.clone().settled().now_or_never().is_none());
        match stored.next() {
            Some(sent) => claim.settle(sent),
            None => drop(claim),
        }
        assert!(written.settled().now_or_never().is_some());
    }
    let (newer, _) = attach(&producers, properties(5, 1, 4)).unwrap();
    assert!(awaited(&newer, properties(5, 1, 4).as_ref()).is_none());
    new(&newer, 1, 5, 1).settle(Ok(()));
}

#[test]
fn numbers_go_round() {
    let producers = Producers::default();
    let (producer, epoch) = attach(&producers, properties(1, 0, i32::MAX - 1)).unwrap();
    new(&producer, epoch, i32::MAX, 2).settle(Ok(()));
    assert_eq!(last_answered(&producer), Value::Int(0));
    let failing = new(&producer, epoch, 1, 1);
    failing.settle(Err(failed()));
    assert_eq!(last_answered(&producer), Value::Int(0));
    assert!(is_stored(&producer, epoch, i32::MAX, 2));
    new(&producer, epoch, 1, 1).settle(Ok(()));
}

#[test]
fn a_producer_of_another_hub_is_another_one() {
    let producers = Producers::default();
    let (here, epoch) = attach(&producers, properties(5, 3, 41)).unwrap();
    let there = producers.attach("other", PartitionId(0), properties(5, 0, -1).as_ref(), || 1).unwrap();
    new(&here, epoch, 42, 1);
    new(&there.0, there.1, 0, 1);
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
        assert_eq!(refused.condition, Condition::ArgumentOutOfRange, "{id} {epoch} {last}");
        // The JavaScript SDK's own live test looks for these words.
        assert!(refused.text.starts_with("Invalid range for idempotent producer state."), "{}", refused.text);
    }
    let (producer, epoch) = attach(&producers, None).unwrap();
    for first in [-1, -5, i32::MIN] {
        assert_eq!(refusal(&producer, epoch, first), Condition::ArgumentError, "none is stored already");
    }
    new(&producer, epoch, 1, 1);
}

#[test]
fn what_is_known_of_producers_is_bounded_and_those_in_use_stay() {
    let producers = Producers::default();
    let used = attach(&producers, properties(0, 1, 5)).unwrap();
    // A batch that the hub has not stored yet counts as a use, though its connection is gone.
    let (producer, epoch) = attach(&producers, properties(1, 0, 5)).unwrap();
    let queued = new(&producer, epoch, 6, 1);
    drop(producer);
    for id in 2..=2 * MAX_PRODUCERS as i64 {
        attach(&producers, properties(id, 0, -1)).unwrap();
    }
    assert_eq!(producers.known.lock().unwrap().hubs["hub"].producers.len(), MAX_PRODUCERS);
    assert!(Arc::ptr_eq(&used.0, &attach(&producers, properties(0, 1, 5)).unwrap().0));
    queued.settle(Ok(()));
    assert_eq!(last_answered(&attach(&producers, properties(1, 0, 5)).unwrap().0), Value::Int(6));
    for hub in 0..2 * MAX_HUBS {
        producers.attach(&hub.to_string(), PartitionId(0), None, || 1 << 30).unwrap();
    }
    assert_eq!(producers.known.lock().unwrap().hubs.len(), MAX_HUBS);
}

/// One step of a random run; the numbers choose among the possible targets.
#[derive(Clone, Debug)]
enum Happening {
    /// The client sends some events on a connection, beginning some numbers before the next one.
    Send { connection: usize, back: usize, count: usize },
    /// The client sends one of its last batches again.
    Repeat { connection: usize, back: usize },
    /// There is room in the hub's queue for a delivery.
    Queue { delivery: usize },
    /// The hub commits some batches of its queue, with success or failure.
    Commit { batches: usize, works: bool },
    /// A connection is lost, and with it all deliveries that are not in the hub's queue yet.
    Lose { connection: usize },
    /// The gateway's process ends. The client attaches again with the last number that it knows to be stored.
    Crash,
}

fn happening() -> impl Strategy<Value = Happening> {
    let connection = 0..3usize;
    prop_oneof![
        6 => (connection.clone(), 0..6usize, 1..4usize)
            .prop_map(|(connection, back, count)| Happening::Send { connection, back, count }),
        4 => (connection.clone(), 0..6usize)
            .prop_map(|(connection, back)| Happening::Repeat { connection, back }),
        5 => (0..8usize).prop_map(|delivery| Happening::Queue { delivery }),
        4 => (1..4usize, proptest::bool::weighted(0.7))
            .prop_map(|(batches, works)| Happening::Commit { batches, works }),
        2 => connection.prop_map(|connection| Happening::Lose { connection }),
        1 => Just(Happening::Crash),
    ]
}

/// A delivery whose numbers have been claimed.
struct Sent {
    connection: usize,
    numbers: std::ops::Range<i32>,
    /// The claim, until the hub has it.
    claim: Option<Claim>,
    commit: Commit,
}

/// A client, its connections, the gateway's state, and a hub with its disk.
struct World {
    producers: Producers,
    deliveries: Vec<Sent>,
    queue: std::collections::VecDeque<(std::ops::Range<i32>, Claim)>,
    /// The number of times each number was stored since the last crash, and whether it was stored before.
    disk: BTreeMap<i32, (usize, bool)>,
    acknowledged: std::collections::BTreeSet<i32>,
    /// All batches that the client sent.
    sent: Vec<std::ops::Range<i32>>,
    /// The number that the client would send next.
    next: i32,
}

impl World {
    fn producer(&self) -> (Arc<NumberedProducer>, i16) {
        let known = (0..).take_while(|number| self.acknowledged.contains(number)).count() as i32 - 1;
        attach(&self.producers, properties(1, 0, known)).unwrap()
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Send { connection, back, count } => {
                let first = (self.next - back as i32).max(0);
                let numbers = first..first + count as i32;
                self.sent.push(numbers.clone());
                self.send(connection, numbers);
            }
            Happening::Repeat { connection, back } => {
                if let Some(numbers) = self.sent.iter().rev().nth(back).cloned() {
                    self.send(connection, numbers);
                }
            }
            Happening::Queue { delivery } => {
                let mut waiting = self.deliveries.iter_mut().filter(|sent| sent.claim.is_some());
                if let Some(sent) = waiting.nth(delivery) {
                    self.queue.push_back((sent.numbers.clone(), sent.claim.take().unwrap()));
                }
            }
            Happening::Commit { batches, works } => {
                let taken: Vec<_> = self.queue.drain(..batches.min(self.queue.len())).collect();
                for (numbers, claim) in taken {
                    if works {
                        numbers.for_each(|number| self.disk.entry(number).or_default().0 += 1);
                        claim.settle(Ok(()));
                    } else {
                        claim.settle(Err(failed()));
                    }
                }
            }
            Happening::Lose { connection } => self.deliveries.retain(|sent| sent.connection != connection),
            Happening::Crash => {
                self.deliveries.clear();
                self.queue.clear();
                self.producers = Producers::default();
                self.disk.values_mut().for_each(|stored| *stored = (0, true));
            }
        }
        self.handle_outcomes();
    }

    fn send(&mut self, connection: usize, numbers: std::ops::Range<i32>) {
        let (producer, epoch) = self.producer();
        match producer.claim(epoch, numbers.start, numbers.len(), events(numbers.start, numbers.len())) {
            Ok(Claimed::Stored) => self.acknowledge(numbers.clone()),
            Ok(Claimed::New(claim)) => {
                let commit = claim.commit();
                self.deliveries.push(Sent {
                    connection,
                    numbers: numbers.clone(),
                    claim: Some(claim),
                    commit,
                });
            }
            Ok(Claimed::Pending(commit)) => {
                self.deliveries.push(Sent { connection, numbers: numbers.clone(), claim: None, commit });
            }
            Err(refusal) => return assert_eq!(refusal.condition, Condition::OutOfOrderSequence),
        }
        self.next = self.next.max(numbers.end);
    }

    /// Handles the outcomes of deliveries.
    fn handle_outcomes(&mut self) {
        for sent in std::mem::take(&mut self.deliveries) {
            match sent.commit.clone().settled().now_or_never() {
                None => self.deliveries.push(sent),
                // It may be in flight with another delivery, or be new now.
                Some(None | Some(Ok(()))) => self.send(sent.connection, sent.numbers),
                // The client resends from the failed number.
                Some(Some(Err(_))) => self.next = self.next.min(sent.numbers.start),
            }
        }
    }

    fn acknowledge(&mut self, numbers: std::ops::Range<i32>) {
        for number in numbers {
            let known = self.disk.get(&number);
            assert!(known.is_some(), "{number} was acknowledged and is not on disk");
            self.acknowledged.insert(number);
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 2_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn what_is_acknowledged_is_on_disk_whatever_is_dropped_repeated_failed_or_lost(
        happenings in proptest::collection::vec(happening(), 1..80),
    ) {
        let mut world = World {
            producers: Producers::default(),
            deliveries: Vec::new(),
            queue: Default::default(),
            disk: BTreeMap::new(),
            acknowledged: Default::default(),
            sent: Vec::new(),
            next: 0,
        };
        for happening in happenings {
            world.happen(happening);
            for (number, (times, _)) in &world.disk {
                prop_assert!(*times <= 1, "{} was stored {} times in one life of the gateway", number, times);
            }
        }
    }
}
