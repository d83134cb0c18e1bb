//! Tests of sending: the chosen partition, refused events, the `Receipt` that a sender gets, and the
//! guarantee of an acknowledgement.

mod refused_events;
mod slow_disk;

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::Arc;
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ephor_core::event::{Event, Properties, Value};
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, Receiver};
use ephor_core::time::Timestamp;
use ephor_hub::files::MemoryFiles;
use ephor_hub::{
    Durability, Hub, HubConfig, LocalNamespace, MAX_BATCH_BYTES, NamespaceConfig, NewEvent, SendError,
    Target, offset_of,
};
use ephor_runtime::environment::SystemClock;
use ephor_testkit::conformance::source::check;
use tokio::task::JoinSet;

use crate::common::Ticking;
use crate::common::blocking_files::{Gate, Gated};

const FIRST: PartitionId = PartitionId(0);
const EVERY_DURABILITY: [Durability; 3] = [Durability::Disk, Durability::PageCache, Durability::Memory];

/// A hub of its own for each kind of durability.
fn every_kind(hub: &HubConfig) -> [(LocalNamespace, Hub); 3] {
    EVERY_DURABILITY.map(|durability| {
        let config = NamespaceConfig { durability, ..NamespaceConfig::default() };
        let files = Arc::new(MemoryFiles::default());
        let namespace = LocalNamespace::on(files, config, Arc::new(SystemClock)).unwrap();
        let hub = namespace.create_hub(hub.clone()).unwrap();
        (namespace, hub)
    })
}

fn homes(partitions: u32) -> HubConfig {
    HubConfig::new("homes", partitions).unwrap()
}

fn keyed(key: &str, body: &'static str) -> NewEvent {
    NewEvent { partition_key: Some(key.into()), ..NewEvent::new(body) }
}

/// All events of a partition.
async fn all(hub: &Hub, partition: PartitionId) -> Vec<Event> {
    let properties = hub.partition_properties(partition).await.unwrap();
    let count = properties.last.map_or(0, |last| last.sequence.0 + 1 - properties.first.0);
    let mut reader = hub.reader(partition, StartPosition::Earliest).await.unwrap();
    let mut events = Vec::new();
    while (events.len() as u64) < count {
        reader.receive(&mut events, usize::MAX).await.unwrap();
    }
    events
}

fn poll_once<T>(future: std::pin::Pin<&mut impl Future<Output = T>>) -> Poll<T> {
    future.poll(&mut Context::from_waker(Waker::noop()))
}

// Where events go.

#[tokio::test]
async fn an_event_goes_to_the_partition_that_is_asked_for() {
    for (_namespace, hub) in every_kind(&homes(4)) {
        for id in [3, 0, 3] {
            let receipt = hub.producer().send_to(PartitionId(id), keyed("a", "door")).await.unwrap();
            assert_eq!(receipt.partition, PartitionId(id));
        }
        assert_eq!(all(&hub, PartitionId(3)).await.len(), 2);
        assert_eq!(all(&hub, FIRST).await[0].partition_key.as_deref(), Some("a"), "the key travels along");
    }
}

#[tokio::test]
async fn a_key_chooses_the_partition_by_the_hash_of_the_service() {
    // From PROTOCOL.md, 4.4: what each key chooses among 2, 3, 4, 5, 8 and 32 partitions.
    let vectors: [(&str, [u32; 6]); 12] = [
        ("7", [1, 2, 3, 3, 7, 31]),
        ("131", [0, 1, 2, 2, 2, 2]),
        ("7149583486996073602", [1, 2, 1, 2, 1, 17]),
        ("sOdeEAsyQoEuEFPGerWO", [1, 2, 3, 3, 7, 7]),
        ("!c*_!I@1^c", [0, 0, 0, 2, 4, 12]),
        ("-4189260826195535198", [1, 0, 1, 3, 5, 5]),
        ("abcdefghijkl", [1, 0, 1, 3, 5, 5]),
        ("abcdefghijklm", [1, 1, 3, 0, 7, 15]),
        ("device-42", [0, 2, 0, 3, 4, 12]),
        ("The quick brown fox jumps over the lazy dog", [1, 2, 1, 2, 1, 1]),
        ("日本語キー", [1, 0, 1, 3, 1, 25]),
        ("😀", [0, 2, 2, 1, 6, 6]),
    ];
    for (column, partitions) in [2, 3, 4, 5, 8, 32].into_iter().enumerate() {
        for (_namespace, hub) in every_kind(&homes(partitions)) {
            for (key, chosen) in vectors {
                let one = hub.producer().send(keyed(key, "one")).await.unwrap();
                let batch =
                    hub.producer().send_batch(Target::Key(key), [NewEvent::new("batch")]).await.unwrap();
                let chosen = PartitionId(chosen[column]);
                assert_eq!((one.partition, batch.partition), (chosen, chosen), "{key} of {partitions}");
            }
        }
    }
}

#[tokio::test]
async fn a_batch_by_key_carries_the_key_in_every_event() {
    for (_namespace, hub) in every_kind(&homes(4)) {
        let events = [NewEvent::new("none"), keyed("other", "other"), keyed("home-7", "same")];
        let receipt = hub.producer().send_batch(Target::Key("home-7"), events).await.unwrap();
        let events = all(&hub, receipt.partition).await;
        assert_eq!(events.len(), 3);
        assert!(events.iter().all(|event| event.partition_key.as_deref() == Some("home-7")));
    }
}

#[tokio::test]
async fn without_a_wish_the_key_of_the_events_chooses_the_partition_and_two_keys_are_refused() {
    for (_namespace, hub) in every_kind(&homes(4)) {
        let producer = hub.producer();
        let chosen = producer.send(keyed("home-7", "one")).await.unwrap().partition;
        let events = [NewEvent::new("none"), keyed("home-7", "a"), keyed("home-7", "b")];
        let receipt = producer.send_batch(Target::Any, events).await.unwrap();
        assert_eq!((receipt.partition, receipt.count), (chosen, 3));
        let mixed = [keyed("home-7", "a"), keyed("home-8", "b")];
        let refused = producer.send_batch(Target::Any, mixed.clone()).await.unwrap_err();
        assert!(matches!(refused, SendError::DifferentKeys), "{refused}");
        // Where the partition is named, keys choose nothing.
        producer.send_batch(Target::Partition(FIRST), mixed).await.unwrap();
    }
}

#[tokio::test]
async fn without_a_wish_all_partitions_get_as_many() {
    for (_namespace, hub) in every_kind(&homes(4)) {
        let producers = [hub.producer(), hub.producer(), hub.producer().clone()];
        let mut counts = BTreeMap::new();
        for turn in 0..40 {
            let producer = &producers[turn % producers.len()];
            let receipt = match turn % 2 {
                0 => producer.send(NewEvent::new("door")).await.unwrap(),
                _ => producer.send_batch(Target::Any, [NewEvent::new("door")]).await.unwrap(),
            };
            *counts.entry(receipt.partition.0).or_insert(0) += 1;
        }
        assert_eq!(counts, BTreeMap::from([(0, 10), (1, 10), (2, 10), (3, 10)]));
    }
}

// Batches and order.

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn batches_of_many_senders_stay_whole_and_each_sender_keeps_its_order() {
    const SENDERS: usize = 8;
    const BATCHES: usize = 40;
    for (_namespace, hub) in every_kind(&homes(2)) {
        let mut senders = JoinSet::new();
        for sender in 0..SENDERS {
            let producer = hub.producer();
            senders.spawn(async move {
                for batch in 0..BATCHES {
                    let size = 1 + (sender * 7 + batch * 3) % 5;
                    let event = |place| NewEvent::new(format!("{sender} {batch} {place} {size}"));
                    let receipt =
                        producer.send_batch(Target::Partition(FIRST), (0..size).map(event)).await.unwrap();
                    assert_eq!(receipt.count, size);
                }
            });
        }
        senders.join_all().await;
        let mut next_batch = [0; SENDERS];
        let mut inside = None;
        for (number, event) in all(&hub, FIRST).await.iter().enumerate() {
            assert_eq!(event.sequence.0, number as u64);
            let words: Vec<usize> =
                event.text().unwrap().split(' ').map(|word| word.parse().unwrap()).collect();
            let (sender, batch, place, size) = (words[0], words[1], words[2], words[3]);
            if let Some(expected) = inside {
                assert_eq!((sender, batch, place), expected, "nothing comes between");
            } else {
                assert_eq!((batch, place), (next_batch[sender], 0), "of sender {sender}");
                next_batch[sender] += 1;
            }
            inside = (place + 1 < size).then_some((sender, batch, place + 1));
        }
        assert_eq!(next_batch, [BATCHES; SENDERS]);
    }
}

// What is refused.

// What comes back.

/// A message with every section that there is, two of them for the body.
fn message() -> Vec<u8> {
    let mut bytes = Vec::new();
    bytes.extend_from_slice(&[0x00, 0x53, 0x70, 0xc0, 0x02, 0x01, 0x41]); // header: durable
    bytes.extend_from_slice(&[0x00, 0x53, 0x71, 0xc1, 0x05, 0x02, 0xa3, 0x01, b'd', 0x40]); // delivery annotations
    bytes.extend_from_slice(&[0x00, 0x53, 0x72, 0xc1, 0x06, 0x02, 0xa3, 0x01, b'm', 0x54, 0x07]); // annotations
    bytes.extend_from_slice(&[0x00, 0x53, 0x73, 0xc0, 0x05, 0x01, 0xa1, 0x02, b'i', b'd']); // message-id
    bytes.extend_from_slice(&[0x00, 0x53, 0x74, 0xc1, 0x06, 0x02, 0xa1, 0x01, b'p', 0x55, 0x09]); // properties
    bytes.extend_from_slice(&[0x00, 0x53, 0x75, 0xa0, 0x02, 0x00, 0xff]); // data
    // The same length, written the long way: what no encoder of ours would write.
    bytes.extend_from_slice(&[0x00, 0x53, 0x75, 0xb0, 0, 0, 0, 1, 0x2a]);
    bytes.extend_from_slice(&[0x00, 0x53, 0x78, 0xc1, 0x05, 0x02, 0xa3, 0x01, b'f', 0x40]); // footer
    bytes
}

#[tokio::test]
async fn a_raw_message_comes_back_byte_for_byte_with_its_key() {
    let value_body = [0x00, 0x53, 0x77, 0xa1, 0x04, b'd', b'o', b'o', b'r'];
    for recent_bytes in [0, 1 << 20] {
        for durability in EVERY_DURABILITY {
            let config = NamespaceConfig { durability, recent_bytes, ..NamespaceConfig::default() };
            let files = Arc::new(MemoryFiles::default());
            let namespace = LocalNamespace::on(files, config, Ticking::new(1_000, 1)).unwrap();
            let hub = namespace.create_hub(homes(1)).unwrap();
            let mut batch = hub.producer().batch();
            batch.push_message(None, &message()).unwrap();
            batch.push_message(Some(""), &value_body).unwrap();
            batch.push_message(Some("home-7"), &message()).unwrap();
            hub.producer().send_encoded(Target::Any, batch).await.unwrap();
            let mut reader = hub.reader(FIRST, StartPosition::Earliest).await.unwrap();
            let stored = reader.next(10, usize::MAX).await.unwrap();
            let stored: Vec<_> = stored.events().map(|event| (event.partition_key, event.message)).collect();
            let expected: [(Option<&str>, &[u8]); 3] =
                [(None, &message()), (Some(""), &value_body), (Some("home-7"), &message())];
            assert_eq!(stored, expected);
        }
    }
}

#[tokio::test]
async fn every_kind_of_property_comes_back_as_it_was_sent() {
    let value = |name: &'static str, value: Value| (name, value);
    let properties = Properties::from_iter([
        value("null", Value::Null),
        value("bool", Value::Bool(true)),
        value("int", Value::Int(i64::MIN)),
        value("uint", Value::UInt(u64::MAX)),
        value("float", Value::Float(-0.5)),
        value("text", Value::from("ünïcödé")),
        value("bytes", Value::Bytes(Bytes::from_static(&[0, 1, 255]))),
        value("time", Value::Time(Timestamp(1_700_000_000_123))),
        value("uuid", Value::Uuid([7; 16])),
        value("decimal", Value::Encoded(Bytes::from_static(&[0x74, 1, 2, 3, 4]))),
    ]);
    let system_properties = Properties::from_iter([
        value("x-opt-mine", Value::Int(3)),
        value("message-id", Value::from("id-1")),
        value("content-type", Value::from("application/json")),
    ]);
    let sent = NewEvent { properties, system_properties, ..keyed("home-7", "{}") };
    for (_namespace, hub) in every_kind(&homes(1)) {
        hub.producer().send(sent.clone()).await.unwrap();
        let came = all(&hub, FIRST).await.remove(0);
        assert_eq!(
            (came.properties, came.system_properties),
            (sent.properties.clone(), sent.system_properties.clone())
        );
        assert_eq!((came.body, came.partition_key), (sent.body.clone(), sent.partition_key.clone()));
    }
}

// What an acknowledgement says.

#[tokio::test]
async fn a_receipt_says_where_the_events_are_and_what_that_is_worth() {
    for ((_namespace, hub), durability) in every_kind(&homes(2)).into_iter().zip(EVERY_DURABILITY) {
        let target = Target::Partition(PartitionId(1));
        hub.producer().send_batch(target, ["a", "b"].map(NewEvent::new)).await.unwrap();
        let receipt = hub.producer().send_batch(target, ["c", "d", "e"].map(NewEvent::new)).await.unwrap();
        assert_eq!((receipt.partition, receipt.first.0, receipt.count), (PartitionId(1), 2, 3));
        assert_eq!(receipt.durability, durability);
        assert_eq!(hub.durability(), durability);
        let events = all(&hub, PartitionId(1)).await;
        assert_eq!(events[2].text(), Some("c"));
        assert_eq!((events[2].sequence, events[2].enqueued_at), (receipt.first, receipt.enqueued_at));
        assert_eq!(events[2].offset, offset_of(2));
    }
}

#[tokio::test]
async fn enqueued_times_do_not_go_back_when_the_clock_does() {
    for durability in EVERY_DURABILITY {
        let config = NamespaceConfig { durability, ..NamespaceConfig::default() };
        let (files, clock) = (Arc::new(MemoryFiles::default()), Ticking::new(5_000_000, 0));
        let open = || LocalNamespace::on(files.clone(), config.clone(), clock.clone()).unwrap();
        let namespace = open();
        let hub = namespace.create_hub(homes(2)).unwrap();
        let time =
            async |hub: &Hub| hub.producer().send_to(FIRST, NewEvent::new("a")).await.unwrap().enqueued_at.0;
        assert_eq!(time(&hub).await, 5_000_000);
        clock.set(4_000_000);
        assert_eq!(time(&hub).await, 5_000_000);
        hub.seal_segment().unwrap();
        assert_eq!(time(&hub).await, 5_000_000, "nor in a new segment");
        drop(namespace);
        let namespace = open();
        let hub = namespace.hub("homes").unwrap();
        assert_eq!(time(&hub).await, 5_000_000, "nor after a restart");
        let other = hub.producer().send_to(PartitionId(1), NewEvent::new("a")).await.unwrap();
        assert_eq!(other.enqueued_at.0, 5_000_000, "a hub has one time for all partitions");
        clock.set(4_500_000);
        assert_eq!(time(&hub).await, 5_500_000, "time continues meanwhile");
        let times: Vec<i64> = all(&hub, FIRST).await.iter().map(|event| event.enqueued_at.0).collect();
        assert!(times.is_sorted(), "{times:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_clock_that_stands_still_lets_nobody_wait_for_company() {
    // It moves with each commit, so that a commit seems to take long, and not while somebody waits.
    let clock = Ticking::new(1_000, 1);
    let files = Arc::new(MemoryFiles::default());
    let namespace = LocalNamespace::on(files, NamespaceConfig::default(), clock).unwrap();
    let hub = namespace.create_hub(homes(1)).unwrap();
    let mut senders = JoinSet::new();
    for count in 1..8 {
        let producer = hub.producer();
        senders.spawn(async move {
            for _ in 0..20 * count {
                producer.send(NewEvent::new("door")).await.unwrap();
            }
        });
    }
    check(async { drop(senders.join_all().await) }).await;
}

// What waits.
