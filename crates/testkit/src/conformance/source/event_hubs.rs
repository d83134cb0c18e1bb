//! Conformance tests of rules that Event Hubs adds besides epochs: the partition of a key, consumer groups
//! that must exist, the fields of a message, and offsets between events.

use std::collections::BTreeMap;

use bytes::Bytes;
use ephor_core::event::{NewEvent, Properties};
use ephor_core::ids::PartitionId;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::source::{OpenError, OpenRequest, SourceError};

use super::SourceFixture;
use super::receiver_steps::{HERE, numbers, open, open_at, receive, refusal, request, send_numbers};

/// Hosts rely on its epochs only if it says so.
pub async fn the_source_says_that_it_fences_readers<F: SourceFixture>() {
    assert!(F::new(1).await.source().capabilities().fences_readers);
}

/// Producers that compute the partition themselves, and those that leave it to the hub, send to the
/// same one.
pub async fn a_key_chooses_the_partition_that_the_service_would_choose<F: SourceFixture>() {
    let fixture = F::new(5).await;
    let chosen: [(u32, &[&str]); 5] = [
        (0, &["a", "abcdefghi"]),
        (1, &["FWfAT", "order:12345"]),
        (2, &["131", "é"]),
        (3, &["7", "日本語キー"]),
        (4, &["$0cb", "naïve-key-ü"]),
    ];
    for key in chosen.iter().flat_map(|(_, keys)| *keys) {
        fixture.send_with_key(key, Bytes::from_static(b"x")).await;
    }
    for (id, keys) in chosen {
        let partition = PartitionId(id);
        let properties = fixture.source().partition_properties(partition).await.expect("it exists");
        let last = properties.last.map(|last| last.sequence);
        assert_eq!(last, Some(SequenceNumber(1)), "partition {id} has both of {keys:?} and no other");
        let request = OpenRequest { partition, ..request("reader", None) };
        let events = receive(&mut open(&fixture, request).await, keys.len()).await;
        assert!(events.iter().map(|event| event.partition_key.as_deref()).eq(keys.iter().copied().map(Some)));
    }
}

/// A wrong name is not reported as a busy hub.
pub async fn unknown_groups_do_not_exist<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let group = "nobody-made-this".parse().expect("a valid name");
    let error = refusal(&fixture, OpenRequest { group, ..request("reader", None) }).await;
    assert!(matches!(error, OpenError::Source(SourceError::NotFound { .. })), "{error}");
}

/// The fields of a message and its annotations come back; their sections do not matter.
pub async fn system_properties_are_kept_with_names_and_values<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let system_properties = Properties::from_iter([
        ("message-id", "m-17"),
        ("content-type", "application/json; charset=utf-8"),
        ("correlation-id", "örder 4"),
        ("x-opt-custom", "blue"),
    ]);
    let properties = Properties::from_iter([("message-id", "the sender's own")]);
    let event = NewEvent { properties, system_properties: system_properties.clone(), ..NewEvent::new("x") };
    fixture.send(HERE, event.clone()).await;
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 1).await;
    let by_name = |all: &Properties| BTreeMap::from_iter(all.iter().cloned());
    assert_eq!(by_name(&events[0].system_properties), by_name(&system_properties));
    assert_eq!(events[0].properties, event.properties, "the two kinds do not mix");
}

/// An offset need not be that of an event: the event after it is the first. Beyond the last there is none.
pub async fn offsets_begin_at_zero_and_are_bounds<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..3).await;
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 3).await;
    let offsets: Vec<u64> = events.iter().filter_map(|event| event.offset.as_number()).collect();
    assert_eq!((offsets.len(), offsets[0]), (3, 0), "{offsets:?}");
    let at = |offset: u64, inclusive| StartPosition::Offset { offset: Offset::number(offset), inclusive };
    for inclusive in [true, false] {
        for (offset, first) in [(1, 1), (offsets[1] - 1, 1), (offsets[1] + 1, 2), (offsets[2] - 1, 2)] {
            let start = at(offset, inclusive);
            let found = receive(&mut open_at(&fixture, start.clone()).await, 3 - first as usize).await;
            assert_eq!(numbers(&found), Vec::from_iter(first..3), "{start}");
        }
        let start = at(offsets[2] + 1, inclusive);
        let error = refusal(&fixture, OpenRequest { start, ..request("reader", None) }).await;
        let OpenError::InvalidPosition { message } = error else { panic!("{error}") };
        let last = format!("The last offset in the system is '{}'", offsets[2]);
        assert!(message.contains(&last), "{message}");
    }
}
