//! The conformance suite for producers.
//!
//! A hub writes a [`ProducerFixture`] and runs the suite in one line with
//! [`producer_conformance!`](crate::producer_conformance): one test per property. Every property reads
//! back what it sent, so the hub is an event source, too.

use std::collections::BTreeSet;
use std::sync::Arc;

use ephor_core::event::{Event, NewEvent, Properties};
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::partition_key::{MAX_KEY_CHARACTERS, partition_for};
use ephor_core::position::StartPosition;
use ephor_core::producer::{Producer, SendCause, Target};
use ephor_core::source::{EventSource, OpenRequest, SourceError};

/// The number of partitions of a hub under test.
const PARTITIONS: u32 = 4;

/// A hub on which the properties run. Every property creates its own.
pub trait ProducerFixture: Sized {
    /// A hub with this many empty partitions, which takes events of up to 1 MiB.
    fn new(partitions: u32) -> impl Future<Output = Self>;

    /// The producer under test.
    fn producer(&self) -> Arc<dyn Producer>;

    /// The same hub, to read.
    fn source(&self) -> Arc<dyn EventSource>;
}

/// An event whose body is this number.
fn event(number: usize) -> NewEvent {
    NewEvent::new(number.to_string())
}

fn keyed(number: usize, key: &str) -> NewEvent {
    NewEvent { partition_key: Some(key.into()), ..event(number) }
}

/// All events of a partition, in order.
async fn stored<F: ProducerFixture>(fixture: &F, partition: u32) -> Vec<Event> {
    let source = fixture.source();
    let partition = PartitionId(partition);
    let last = source.partition_properties(partition).await.expect("the partition exists").last;
    let count = last.map_or(0, |last| last.sequence.0 + 1);
    let request = OpenRequest {
        start: StartPosition::Earliest,
        prefetch_events: 300,
        prefetch_bytes: 1 << 20,
        ..OpenRequest::probe(&ConsumerGroup::default_group(), partition, "reader")
    };
    let mut receiver = source.open(request).await.expect("a receiver opens");
    let mut events = Vec::new();
    while (events.len() as u64) < count {
        receiver.receive(&mut events, usize::MAX).await.expect("events come");
    }
    receiver.close().await;
    events
}

/// The numbers in the bodies.
fn numbers(events: &[Event]) -> Vec<usize> {
    let number = |event: &Event| event.text().and_then(|text| text.parse().ok());
    events.iter().map(|event| number(event).expect("the body is a number")).collect()
}

/// The numbers of all events of the hub.
async fn all_numbers<F: ProducerFixture>(fixture: &F) -> Vec<usize> {
    let mut all = Vec::new();
    for partition in 0..PARTITIONS {
        all.extend(numbers(&stored(fixture, partition).await));
    }
    all.sort_unstable();
    all
}

/// When a send returns, the event can be read, unchanged.
pub async fn a_sent_event_is_stored_as_it_was_sent<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    let properties = Properties::from_iter([("unit", "celsius")]);
    let event = NewEvent { properties: properties.clone(), ..keyed(7, "home-7") };
    assert_eq!(fixture.producer().send(event).await.expect("it is stored").count, 1);
    let events = stored(&fixture, partition_for("home-7", PARTITIONS).0).await;
    assert_eq!(numbers(&events), [7]);
    assert_eq!(events[0].partition_key.as_deref(), Some("home-7"));
    assert_eq!(events[0].properties, properties);
}

/// The partition is the sender's choice; keys are stored and choose nothing.
pub async fn events_go_to_the_partition_that_is_named<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    let producer = fixture.producer();
    producer.send_to(PartitionId(2), keyed(0, "a")).await.expect("it is stored");
    let batch = vec![keyed(1, "b"), event(2), keyed(3, "c")];
    assert_eq!(producer.send_batch(Target::Partition(PartitionId(2)), batch).await.expect("stored").count, 3);
    let events = stored(&fixture, 2).await;
    assert_eq!(numbers(&events), [0, 1, 2, 3]);
    let keys: Vec<_> = events.iter().map(|event| event.partition_key.as_deref()).collect();
    assert_eq!(keys, [Some("a"), Some("b"), None, Some("c")]);
}

/// A key for the whole batch takes the place of the events' own keys.
pub async fn a_key_for_a_batch_chooses_its_partition_and_is_stored_with_every_event<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    let batch = vec![event(0), keyed(1, "another"), keyed(2, "home-7")];
    fixture.producer().send_batch(Target::Key("home-7"), batch).await.expect("stored");
    let events = stored(&fixture, partition_for("home-7", PARTITIONS).0).await;
    assert_eq!(numbers(&events), [0, 1, 2]);
    assert!(events.iter().all(|event| event.partition_key.as_deref() == Some("home-7")));
}

/// Without a target, events of one batch go where their own keys say, each key in order.
pub async fn without_a_target_the_key_of_each_event_chooses_its_partition<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    let key = |number: usize| format!("home-{}", number % 10);
    let batch = (0..200).map(|number| keyed(number, &key(number))).collect();
    assert_eq!(fixture.producer().send_batch(Target::Any, batch).await.expect("stored").count, 200);
    let mut partitions = BTreeSet::new();
    for partition in 0..PARTITIONS {
        let events = stored(&fixture, partition).await;
        for (event, number) in events.iter().zip(numbers(&events)) {
            assert_eq!(event.partition_key.as_deref(), Some(&*key(number)));
            assert_eq!(partition_for(&key(number), PARTITIONS), PartitionId(partition));
            partitions.insert(partition);
        }
        for home in 0..10 {
            let of_key = numbers(&events).into_iter().filter(|number| number % 10 == home);
            assert!(of_key.is_sorted(), "home-{home} is out of order");
        }
    }
    assert!(partitions.len() > 1, "ten keys choose several partitions");
    assert_eq!(all_numbers(&fixture).await, Vec::from_iter(0..200));
}

/// The hub chooses for events without a key, and not always the same partition.
pub async fn events_without_a_key_are_spread_over_the_partitions<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    for number in 0..8 {
        fixture.producer().send(event(number)).await.expect("it is stored");
    }
    assert_eq!(all_numbers(&fixture).await, Vec::from_iter(0..8));
    let mut used = 0;
    for partition in 0..PARTITIONS {
        used += u32::from(!stored(&fixture, partition).await.is_empty());
    }
    assert!(used > 1, "all events are in one partition");
}

/// Events with and without a key may be in one batch.
pub async fn events_with_and_without_a_key_go_together<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    let batch = vec![event(0), keyed(1, "a"), event(2), keyed(3, "b"), keyed(4, "a")];
    fixture.producer().send_batch(Target::Any, batch).await.expect("stored");
    assert_eq!(all_numbers(&fixture).await, [0, 1, 2, 3, 4]);
    for (key, expected) in [("a", &[1, 4][..]), ("b", &[3])] {
        let mut events = stored(&fixture, partition_for(key, PARTITIONS).0).await;
        events.retain(|event| event.partition_key.as_deref() == Some(key));
        assert_eq!(numbers(&events), expected);
    }
}

/// More than any hub stores in one step: the batch is split, and its order stays.
pub async fn a_batch_of_any_size_is_stored_in_order<F: ProducerFixture>() {
    const COUNT: usize = 24;
    let fixture = F::new(PARTITIONS).await;
    let padding = Properties::from_iter([("padding", "x".repeat(900 << 10).as_str())]);
    let large = |number| NewEvent { properties: padding.clone(), ..event(number) };
    let batch = (0..COUNT).map(large).collect();
    let target = Target::Partition(PartitionId(1));
    assert_eq!(fixture.producer().send_batch(target, batch).await.expect("stored").count, COUNT);
    assert_eq!(numbers(&stored(&fixture, 1).await), Vec::from_iter(0..COUNT));
}

/// Nothing to do is no error.
pub async fn a_batch_without_events_is_sent_at_once<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    assert_eq!(fixture.producer().send_batch(Target::Any, Vec::new()).await.expect("nothing to do").count, 0);
    assert!(all_numbers(&fixture).await.is_empty());
}

/// A wrong number is not reported as a busy hub.
pub async fn an_unknown_partition_does_not_exist<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    let error = fixture.producer().send_to(PartitionId(PARTITIONS), event(0)).await.expect_err("unknown");
    assert!(matches!(error.cause, SendCause::Source(SourceError::NotFound { .. })), "{error:?}");
    assert_eq!(error.stored, 0);
    assert!(all_numbers(&fixture).await.is_empty());
}

/// The error names the event and the number of events that are stored. Nothing from that event on is.
pub async fn an_event_that_cannot_be_stored_is_named_by_its_index<F: ProducerFixture>() {
    let fixture = F::new(PARTITIONS).await;
    let long = "k".repeat(MAX_KEY_CHARACTERS + 1);
    let batch = vec![keyed(0, "a"), event(1), keyed(2, &long), keyed(3, "a")];
    let error = fixture.producer().send_batch(Target::Any, batch).await.expect_err("the key is too long");
    assert!(matches!(error.cause, SendCause::Event { index: 2, .. }), "{error:?}");
    let stored = all_numbers(&fixture).await;
    assert!(stored.iter().all(|number| *number < 2), "{stored:?}");
    assert!((0..error.stored).all(|number| stored.contains(&number)), "{error:?} {stored:?}");
    // The producer goes on.
    fixture.producer().send(keyed(4, "a")).await.expect("it is stored");
}

/// Runs every property of producers on a [`ProducerFixture`]: one `#[tokio::test]` each. The calling crate needs
/// tokio with `macros` and `rt`.
#[macro_export]
macro_rules! producer_conformance {
    ($fixture:ty) => {
        $crate::producer_conformance! { @tests $fixture;
            a_sent_event_is_stored_as_it_was_sent
            events_go_to_the_partition_that_is_named
            a_key_for_a_batch_chooses_its_partition_and_is_stored_with_every_event
            without_a_target_the_key_of_each_event_chooses_its_partition
            events_without_a_key_are_spread_over_the_partitions
            events_with_and_without_a_key_go_together
            a_batch_of_any_size_is_stored_in_order
            a_batch_without_events_is_sent_at_once
            an_unknown_partition_does_not_exist
            an_event_that_cannot_be_stored_is_named_by_its_index
        }
    };
    (@tests $fixture:ty; $($property:ident)+) => {
        $(
            #[tokio::test]
            async fn $property() {
                let property = $crate::conformance::producer::$property::<$fixture>();
                $crate::conformance::source::check(property).await;
            }
        )+
    };
}

#[cfg(test)]
mod tests {
    #[test]
    fn every_property_is_in_the_list() {
        let (properties, list) = include_str!("producer.rs").split_once("macro_rules!").unwrap();
        for property in properties.split("pub async fn ").skip(1) {
            let name = property.split('<').next().unwrap();
            assert!(list.lines().any(|line| line.trim() == name), "{name} is not run");
        }
    }
}
