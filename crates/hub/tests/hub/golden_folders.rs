//! Tests that this version opens the golden folders that earlier versions wrote, and reads exactly their
//! content.
//!
//! The first version of the format wrote `tests/golden/v1`, and all later ones must read it. It is never overwritten: a new
//! format gets a new version, and a folder `v2` beside it.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ephor_core::event::{Event, Properties, Value};
use ephor_core::ids::PartitionId;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, Receiver};
use ephor_core::time::Timestamp;
use ephor_hub::config::MIN_SEGMENT_BYTES;
use ephor_hub::files::DiskFiles;
use ephor_hub::{
    Durability, Hub, HubConfig, LocalNamespace, NamespaceConfig, NewEvent, Retention, Target, offset_of,
    verify_folder,
};

use crate::common::Ticking;
use crate::copies::{copy_of_golden, golden_folder};

/// The environment variable that makes the test write the folder.
const WRITE: &str = "EPHOR_WRITE_GOLDEN";
/// When its first event was stored; each commit is a second later.
const START: i64 = 1_700_000_000_000;

/// A message with a header and two data sections, the second with its length written the long way: what no
/// encoder of ours would write.
const RAW: [u8; 23] = [
    0x00, 0x53, 0x70, 0xc0, 0x02, 0x01, 0x41, 0x00, 0x53, 0x75, 0xa0, 0x02, b'd', b'o', 0x00, 0x53, 0x75,
    0xb0, 0, 0, 0, 1, b'r',
];

/// The folder that version 1 wrote.
const VERSION_1: &str = "v1";

fn open(folder: &Path, durability: Durability, clock: &Arc<Ticking>) -> LocalNamespace {
    let files = Arc::new(DiskFiles::new(folder.to_owned()));
    let segment_bytes = MIN_SEGMENT_BYTES;
    let config = NamespaceConfig { durability, segment_bytes, ..NamespaceConfig::default() };
    LocalNamespace::on(files, config, clock.clone()).unwrap()
}

/// The event that is sent in this round.
fn event(round: i64) -> NewEvent {
    let properties = Properties::from_iter([
        ("round", Value::Int(round)),
        ("kind", Value::from("motion")),
        ("open", Value::Bool(round % 2 == 0)),
        ("raw", Value::Bytes(Bytes::from_static(&[0, 255]))),
    ]);
    let system_properties = Properties::from_iter([
        ("x-opt-house", Value::from("grün")),
        ("content-type", Value::from("application/json")),
    ]);
    NewEvent {
        partition_key: (round % 3 == 0).then(|| format!("home-{round}").into()),
        properties: if round % 2 == 0 { properties } else { Properties::default() },
        system_properties: if round % 4 == 0 { system_properties } else { Properties::default() },
        ..NewEvent::new(vec![b'a' + round as u8; 40 * round as usize])
    }
}

/// "Homes" was acknowledged from disk and has grown; "offices" from the page cache.
async fn write(folder: &Path) {
    let clock = Ticking::new(START, 0);
    let namespace = open(folder, Durability::Disk, &clock);
    let retention = Retention { age: None, bytes: Some(1 << 30) };
    let homes = HubConfig { retention, max_event_bytes: 10_000, ..HubConfig::new("Homes", 2).unwrap() };
    let hub = namespace.create_hub(homes).unwrap();
    hub.create_group("Alarms").unwrap();
    for round in 0..20 {
        clock.set(START + 1_000 * round);
        let target = Target::Partition(PartitionId(round as u32 % 2));
        hub.producer().send_batch(target, (0..1 + round % 2).map(|_| event(round))).await.unwrap();
    }
    hub.grow(3).unwrap();
    clock.set(START + 20_000);
    let mut batch = hub.producer().batch();
    batch.push_message(Some("raw"), &RAW).unwrap();
    hub.producer().send_encoded(Target::Partition(PartitionId(2)), batch).await.unwrap();
    drop(namespace);
    let namespace = open(folder, Durability::PageCache, &clock);
    let retention = Retention { age: Some(Duration::from_secs(3_600)), bytes: None };
    let offices = HubConfig { retention, ..HubConfig::new("offices/north", 1).unwrap() };
    let hub = namespace.create_hub(offices).unwrap();
    hub.producer().send(NewEvent::new("light")).await.unwrap();
    hub.producer().send(NewEvent::new("dark")).await.unwrap();
}

async fn all(hub: &Hub, partition: u32) -> Vec<Event> {
    let partition = PartitionId(partition);
    let last = hub.partition_properties(partition).await.unwrap().last.map(|last| last.sequence);
    let mut reader = hub.reader(partition, StartPosition::Earliest).await.unwrap();
    let mut events = Vec::<Event>::new();
    while events.last().map(|event| event.sequence) != last {
        reader.receive(&mut events, 100).await.unwrap();
    }
    assert_eq!(reader.take_missed(), 0);
    events
}

/// Looks at everything that [`write`] wrote.
async fn check_content(namespace: &LocalNamespace) {
    assert_eq!(namespace.broken(), []);
    let homes = namespace.hub("homes").unwrap();
    let described = homes.describe();
    assert_eq!((described.name.as_str(), described.partitions), ("Homes", 3));
    assert_eq!((described.created_at, described.max_event_bytes), (Timestamp(START), 10_000));
    assert_eq!(described.retention, Retention { age: None, bytes: Some(1 << 30) });
    assert_eq!(described.groups, ["$Default", "Alarms"].map(|group| group.parse().unwrap()));
    assert!(described.segments >= 3, "{} segments", described.segments);
    assert!(homes.recovery().clean && homes.damage().is_empty());
    for partition in 0..2 {
        let rounds = (0..20).filter(|round| round % 2 == partition);
        let sent = rounds.flat_map(|round| (0..1 + round % 2).map(move |_| (round, event(round))));
        let found = all(&homes, partition as u32).await;
        assert_eq!(found.len(), if partition == 0 { 10 } else { 20 });
        for ((number, (round, sent)), found) in (0..).zip(sent).zip(&found) {
            let enqueued_at = Timestamp(START + 1_000 * round);
            let expected = Event::stored(SequenceNumber(number), offset_of(number), enqueued_at, sent);
            assert_eq!(*found, expected, "event {number} of partition {partition}");
        }
    }
    let mut reader = homes.reader(PartitionId(2), StartPosition::Earliest).await.unwrap();
    let raw = reader.next(10, usize::MAX).await.unwrap();
    let raw: Vec<_> = raw.events().map(|event| (event.partition_key, event.message.to_vec())).collect();
    assert_eq!(raw, [(Some("raw"), RAW.to_vec())]);
    let offices = namespace.hub("offices/north").unwrap();
    assert_eq!(offices.describe().retention.age, Some(Duration::from_secs(3_600)));
    assert!(offices.recovery().clean);
    let texts: Vec<_> = all(&offices, 0).await.iter().map(|event| event.text().unwrap().to_owned()).collect();
    assert_eq!(texts, ["light", "dark"]);
}

/// A minute after the last event, before any of them is past its time.
fn later() -> Arc<Ticking> {
    Ticking::new(START + 80_000, 0)
}

#[tokio::test]
async fn a_folder_of_version_1_holds_exactly_what_was_written() {
    let folder = copy_of_golden(VERSION_1);
    check_content(&open(folder.path(), Durability::Disk, &later())).await;
    check_content(&open(folder.path(), Durability::PageCache, &later())).await;
}

#[test]
fn a_folder_of_version_1_is_intact_to_the_last_bit() {
    let folder = copy_of_golden(VERSION_1);
    let found = verify_folder(folder.path()).unwrap();
    assert_eq!(found.len(), 2);
    for hub in found {
        assert!(hub.is_intact(), "{hub:?}");
        let log = hub.log.unwrap();
        let expected = if hub.hub.unwrap().as_str() == "Homes" { 31 } else { 2 };
        assert_eq!((log.events, log.torn_bytes), (expected, 0));
    }
}

#[tokio::test]
async fn a_folder_of_version_1_is_written_on_where_it_ends() {
    let folder = copy_of_golden(VERSION_1);
    let namespace = open(folder.path(), Durability::Disk, &later());
    let mut next = Vec::new();
    for (hub, partition) in [("homes", 0), ("homes", 1), ("homes", 2), ("offices/north", 0)] {
        let producer = namespace.hub(hub).unwrap().producer();
        next.push(producer.send_to(PartitionId(partition), NewEvent::new("news")).await.unwrap().first.0);
    }
    assert_eq!(next, [10, 20, 1, 2]);
    drop(namespace);
    assert!(verify_folder(folder.path()).unwrap().iter().all(|hub| hub.is_intact()));
}

#[tokio::test]
async fn a_folder_of_version_1_does_not_need_its_indexes() {
    let folder = copy_of_golden(VERSION_1);
    for hub in std::fs::read_dir(folder.path().join("hubs")).unwrap() {
        for file in std::fs::read_dir(hub.unwrap().path()).unwrap() {
            let path = file.unwrap().path();
            if path.extension().is_some_and(|kind| kind == "index") {
                std::fs::remove_file(path).unwrap();
            }
        }
    }
    check_content(&open(folder.path(), Durability::Disk, &later())).await;
}

/// Earlier versions gave the first event the offset 64, and each other one 32 more than the one before. SDKs have such
/// offsets in their blobs, without a word on who wrote them.
#[tokio::test]
async fn every_offset_that_was_given_out_leads_to_its_event() {
    let folder = copy_of_golden(VERSION_1);
    let namespace = open(folder.path(), Durability::Disk, &later());
    let homes = namespace.hub("homes").unwrap();
    for (partition, count) in [(PartitionId(0), 10), (PartitionId(1), 20), (PartitionId(2), 1)] {
        let mut at_the_end = None;
        for number in 0..count {
            for (inclusive, first) in [(true, number), (false, number + 1)] {
                let offset = Offset::new(&(64 + 32 * number).to_string());
                let start = StartPosition::Offset { offset, inclusive };
                let mut reader = homes.reader(partition, start.clone()).await.unwrap();
                if first == count {
                    at_the_end = Some(reader);
                    continue;
                }
                let found = reader.next(1, usize::MAX).await.unwrap();
                assert_eq!(found.first(), SequenceNumber(first), "{start} of {partition}");
                assert_eq!(reader.take_missed(), 0, "{start} of {partition}");
            }
        }
        homes.producer().send_to(partition, NewEvent::new("news")).await.unwrap();
        let found = at_the_end.unwrap().next(1, usize::MAX).await.unwrap();
        assert_eq!(found.first(), SequenceNumber(count), "behind the last of {partition}");
    }
    // And those that it gives out now.
    for (partition, last) in [(PartitionId(0), "384"), (PartitionId(1), "704"), (PartitionId(2), "96")] {
        let told = homes.partition_properties(partition).await.unwrap().last.unwrap().offset;
        assert_eq!(told.to_string(), last);
    }
}

#[tokio::test]
async fn what_this_version_writes_reads_back_the_same() {
    let folder = tempfile::tempdir().unwrap();
    write(folder.path()).await;
    check_content(&open(folder.path(), Durability::Disk, &later())).await;
}

#[tokio::test]
async fn the_committed_folder_is_written_only_if_it_is_not_there_and_ephor_write_golden_is_set() {
    if std::env::var_os(WRITE).is_none() || golden_folder(VERSION_1).exists() {
        return;
    }
    std::fs::create_dir_all(golden_folder(VERSION_1)).unwrap();
    write(&golden_folder(VERSION_1)).await;
}
