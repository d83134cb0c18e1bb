//! Tests of a restart after a close or a kill: events on disk or in the page cache are kept, and no sequence
//! number is used twice, even if a power failure lost the events of the page cache.
//!
//! A killed process leaves its files as they are, so a copy of the folder of an open hub is what the next process finds.
//! (Power failures are tested in `crashes.rs`.)

use std::path::Path;
use std::sync::Arc;

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, PartitionProperties, Receiver};
use ephor_hub::config::MIN_SEGMENT_BYTES;
use ephor_hub::{
    Durability, Hub, HubConfig, HubDescription, LocalNamespace, NamespaceConfig, NewEvent, RecoveryReport,
    Target, verify_folder,
};
use ephor_runtime::environment::SystemClock;

use crate::common::faulty_files::{Fate, FaultyFiles};
use crate::copies::copy_while_in_use;

const FIRST: PartitionId = PartitionId(0);

fn settings(durability: Durability) -> NamespaceConfig {
    NamespaceConfig { durability, segment_bytes: MIN_SEGMENT_BYTES, ..NamespaceConfig::default() }
}

fn open(folder: &Path, durability: Durability) -> LocalNamespace {
    LocalNamespace::open(folder, settings(durability)).unwrap()
}

fn homes() -> HubConfig {
    let groups = vec!["alarms".parse().unwrap()];
    HubConfig { groups, ..HubConfig::new("homes", 3).unwrap() }
}

/// Events of several sizes over all partitions but the last, in several segments.
async fn fill(hub: &Hub) {
    for round in 0..40_usize {
        let events = (0..1 + round % 3).map(|index| {
            let partition_key = (index > 0).then(|| format!("home-{round}").into());
            NewEvent { partition_key, ..NewEvent::new(vec![round as u8; 20 * round]) }
        });
        let target = Target::Partition(PartitionId(round as u32 % 2));
        hub.producer().send_batch(target, events).await.unwrap();
    }
    assert!(hub.describe().segments > 3);
}

/// Everything that anybody can see of a hub.
async fn seen(hub: &Hub) -> (HubDescription, Vec<(PartitionProperties, Vec<Event>)>) {
    let mut partitions = Vec::new();
    for id in hub.hub_properties().await.unwrap().partitions {
        let properties = hub.partition_properties(id).await.unwrap();
        let mut reader = hub.reader(id, StartPosition::Earliest).await.unwrap();
        let (mut events, last) = (Vec::<Event>::new(), properties.last.as_ref().map(|last| last.sequence));
        while events.last().map(|event| event.sequence) != last {
            reader.receive(&mut events, usize::MAX).await.unwrap();
        }
        assert_eq!(reader.take_missed(), 0);
        partitions.push((properties, events));
    }
    (hub.describe(), partitions)
}

/// As seen, apart from how many files there are, and from the number of the next event: after an unclean stop a new file is
/// begun, and with durability `page-cache` numbers are passed over.
async fn content(hub: &Hub) -> (HubDescription, Vec<(PartitionProperties, Vec<Event>)>) {
    let (mut description, mut partitions) = seen(hub).await;
    for (properties, _) in &mut partitions {
        let last = properties.last.as_ref().map(|last| last.sequence);
        assert!(last.is_none_or(|last| last < properties.next), "{properties:?}");
        properties.next = SequenceNumber(0);
    }
    (description.log_bytes, description.segments) = (0, 0);
    (description, partitions)
}

/// The folder as the next process would find it if this one died now.
fn copy(folder: &Path) -> tempfile::TempDir {
    let copied = tempfile::tempdir().unwrap();
    copy_while_in_use(folder, copied.path());
    copied
}

#[tokio::test]
async fn a_hub_that_was_closed_is_found_as_it_was_and_nothing_has_to_be_looked_for() {
    for durability in [Durability::Disk, Durability::PageCache] {
        let folder = tempfile::tempdir().unwrap();
        let namespace = open(folder.path(), durability);
        let hub = namespace.create_hub(homes()).unwrap();
        fill(&hub).await;
        let before = seen(&hub).await;
        namespace.close().unwrap();
        drop(namespace);
        let again = open(folder.path(), durability);
        let hub = again.hub("homes").unwrap();
        assert_eq!(seen(&hub).await, before);
        let RecoveryReport { clean, torn_bytes, jumped, bytes_read, .. } = *hub.recovery();
        assert_eq!((clean, torn_bytes, jumped), (true, 0, 0));
        assert!(bytes_read < 5_000, "{bytes_read} bytes: more than a header");
        let next = before.1[0].0.last.as_ref().unwrap().sequence.next();
        assert_eq!(hub.producer().send_to(FIRST, NewEvent::new("news")).await.unwrap().first, next);
    }
}

#[tokio::test]
async fn dropping_a_namespace_closes_its_hubs_in_good_order() {
    for durability in [Durability::Disk, Durability::PageCache] {
        let folder = tempfile::tempdir().unwrap();
        let namespace = open(folder.path(), durability);
        // A hub that outlives its namespace does not keep the folder.
        let hub = namespace.create_hub(homes()).unwrap();
        hub.producer().send_to(FIRST, NewEvent::new("door")).await.unwrap();
        drop(namespace);
        let again = open(folder.path(), durability);
        assert!(again.hub("homes").unwrap().recovery().clean);
        assert!(hub.producer().send_to(FIRST, NewEvent::new("late")).await.is_err());
    }
}

#[tokio::test]
async fn a_hub_that_was_not_closed_is_found_as_it_was() {
    for durability in [Durability::Disk, Durability::PageCache] {
        let folder = tempfile::tempdir().unwrap();
        let namespace = open(folder.path(), durability);
        let hub = namespace.create_hub(homes()).unwrap();
        fill(&hub).await;
        hub.grow(4).unwrap();
        hub.create_group("billing").unwrap();
        hub.producer().send_to(PartitionId(3), NewEvent::new("in a new one")).await.unwrap();
        let before = content(&hub).await;
        let copied = copy(folder.path());
        let again = open(copied.path(), durability);
        let found = again.hub("homes").unwrap();
        assert_eq!(content(&found).await, before);
        assert_eq!((found.recovery().torn_bytes, found.damage()), (0, vec![]));
        drop(again);
        assert!(verify_folder(copied.path()).unwrap().iter().all(|hub| hub.is_intact()));
    }
}

#[tokio::test]
async fn unclean_stops_one_after_the_other_lose_nothing_and_use_no_number_twice() {
    for durability in [Durability::Disk, Durability::PageCache] {
        let mut folder = tempfile::tempdir().unwrap();
        let mut sent: Vec<(u64, String)> = Vec::new();
        for round in 0..6 {
            let namespace = open(folder.path(), durability);
            let hub = namespace.ensure_hub(&homes()).unwrap();
            for index in 0..5 {
                let text = format!("{round} {index}");
                let receipt = hub.producer().send_to(FIRST, NewEvent::new(text.clone())).await.unwrap();
                assert!(sent.last().is_none_or(|(last, _)| *last < receipt.first.0), "{durability}");
                sent.push((receipt.first.0, text));
            }
            let copied = copy(folder.path());
            drop(namespace);
            folder = copied;
        }
        let namespace = open(folder.path(), durability);
        let hub = namespace.hub("homes").unwrap();
        let found = seen(&hub).await.1.remove(0).1;
        let found: Vec<(u64, String)> =
            found.iter().map(|event| (event.sequence.0, event.text().unwrap().to_owned())).collect();
        assert_eq!(found, sent);
    }
}

#[tokio::test]
async fn what_is_acknowledged_from_disk_keeps_its_numbers_without_a_gap() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = open(folder.path(), Durability::Disk);
    let hub = namespace.create_hub(homes()).unwrap();
    fill(&hub).await;
    let last = hub.partition_properties(FIRST).await.unwrap().last.unwrap().sequence;
    let copied = copy(folder.path());
    let again = open(copied.path(), Durability::Disk);
    let hub = again.hub("homes").unwrap();
    assert_eq!(hub.recovery().jumped, 0);
    assert_eq!(hub.producer().send_to(FIRST, NewEvent::new("news")).await.unwrap().first, last.next());
}

#[tokio::test]
async fn with_the_page_cache_numbers_jump_after_an_unclean_stop_and_say_by_how_much() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = open(folder.path(), Durability::PageCache);
    let hub = namespace.create_hub(homes()).unwrap();
    let last = hub.producer().send_to(FIRST, NewEvent::new("door")).await.unwrap().first;
    let copied = copy(folder.path());
    let again = open(copied.path(), Durability::PageCache);
    let hub = again.hub("homes").unwrap();
    let recovery = hub.recovery();
    assert!(!recovery.clean && recovery.jumped > 0, "{recovery:?}");
    let jumped_to = last.next().0 + recovery.jumped;
    // It says so of itself: a position among the numbers that were passed over is not beyond the end.
    let properties = hub.partition_properties(FIRST).await.unwrap();
    assert_eq!(properties.last.map(|last| last.sequence), Some(last));
    assert_eq!(properties.next.0, jumped_to);
    drop(hub.reader(FIRST, StartPosition::at(properties.next)).await.unwrap());
    let receipt = hub.producer().send_to(FIRST, NewEvent::new("after")).await.unwrap();
    assert_eq!(receipt.first.0, jumped_to);
    // A reader simply goes on behind the gap.
    let mut reader = hub.reader(FIRST, StartPosition::Earliest).await.unwrap();
    let mut events = Vec::new();
    while events.len() < 2 {
        reader.receive(&mut events, 10).await.unwrap();
    }
    let found: Vec<u64> = events.iter().map(|event| event.sequence.0).collect();
    assert_eq!(found, [last.0, jumped_to]);
    assert_eq!(hub.damage(), []);
}

/// All that was not synced is lost, again and again; also when the hub was closed in good order before.
#[tokio::test]
async fn with_the_page_cache_numbers_are_not_used_twice_although_the_events_are_lost_in_a_power_failure() {
    let mut files = FaultyFiles::new(u64::MAX);
    let mut largest = None;
    for round in 0..8 {
        let config = settings(Durability::PageCache);
        let namespace = LocalNamespace::on(Arc::new(files.clone()), config, Arc::new(SystemClock)).unwrap();
        let hub = namespace.ensure_hub(&homes()).unwrap();
        for _ in 0..3 {
            let receipt = hub.producer().send_to(FIRST, NewEvent::new("door")).await.unwrap();
            assert!(largest.is_none_or(|largest| largest < receipt.first), "{receipt:?} in round {round}");
            largest = Some(receipt.first);
        }
        // Every other time it is closed first, and what is on disk then looks as if nothing had been lost.
        files = match round % 2 {
            0 => {
                namespace.close().unwrap();
                files.after_crash(Fate::AllLost)
            }
            _ => {
                let lost = files.after_crash(Fate::AllLost);
                drop(namespace);
                lost
            }
        };
    }
}

#[tokio::test]
async fn a_hub_may_be_opened_with_another_durability_than_before() {
    let folder = tempfile::tempdir().unwrap();
    let mut expected = Vec::new();
    for durability in [Durability::Disk, Durability::PageCache, Durability::Disk, Durability::PageCache] {
        let namespace = open(folder.path(), durability);
        let hub = namespace.ensure_hub(&homes()).unwrap();
        let receipt = hub.producer().send_to(FIRST, NewEvent::new("door")).await.unwrap();
        assert_eq!(receipt.durability, durability);
        expected.push(receipt.first.0);
        let found = seen(&hub).await.1.remove(0).1;
        assert_eq!(found.iter().map(|event| event.sequence.0).collect::<Vec<_>>(), expected);
    }
    assert_eq!(expected, [0, 1, 2, 3], "each was closed in good order");
}

#[tokio::test]
async fn a_memory_hub_leaves_nothing_behind() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = open(folder.path(), Durability::Memory);
    namespace.create_hub(homes()).unwrap().producer().send(NewEvent::new("door")).await.unwrap();
    drop(namespace);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "the folder is not touched");
    assert!(open(folder.path(), Durability::Memory).hubs_open().is_empty());
}
