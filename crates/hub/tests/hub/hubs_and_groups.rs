//! Tests of managing hubs and consumer groups: create, list, describe, grow, delete; also after a restart.

mod consumer_groups;
mod damaged_folders;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_hub::{
    Durability, Hub, HubConfig, HubError, LocalNamespace, NamespaceConfig, NewEvent, Retention, Target,
};
use ephor_testkit::conformance::source::check;

fn open(folder: &Path) -> LocalNamespace {
    LocalNamespace::open(folder, NamespaceConfig::default()).unwrap()
}

/// Namespaces on disk and in memory.
fn both(folder: &Path) -> [LocalNamespace; 2] {
    [open(folder), LocalNamespace::in_memory(NamespaceConfig::default()).unwrap()]
}

fn config(name: &str, partitions: u32) -> HubConfig {
    HubConfig::new(name, partitions).unwrap()
}

fn names(namespace: &LocalNamespace) -> Vec<String> {
    namespace.hubs_open().iter().map(|hub| hub.name().to_string()).collect()
}

fn groups(hub: &Hub) -> Vec<String> {
    hub.describe().groups.iter().map(ToString::to_string).collect()
}

fn error<T: std::fmt::Debug>(result: Result<T, HubError>) -> String {
    result.unwrap_err().to_string()
}

fn request(group: &str) -> OpenRequest {
    let group = group.parse().unwrap();
    OpenRequest { start: StartPosition::Earliest, ..OpenRequest::probe(&group, PartitionId(0), "test") }
}

/// Where a hub's folders are, in order.
fn hub_folders(folder: &Path) -> Vec<PathBuf> {
    let list = std::fs::read_dir(folder.join("hubs")).unwrap();
    let mut paths: Vec<PathBuf> = list.map(|entry| entry.unwrap().path()).collect();
    paths.sort();
    paths
}

#[tokio::test]
async fn a_hub_is_created_listed_described_and_deleted_at_run_time() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        assert_eq!(names(&namespace), [""; 0]);
        namespace.create_hub(config("offices", 3)).unwrap();
        let retention = Retention { age: None, bytes: Some(1 << 30) };
        let homes = HubConfig {
            retention,
            max_event_bytes: 1_000,
            groups: vec!["Alarms".parse().unwrap()],
            ..config("Homes", 16)
        };
        let hub = namespace.create_hub(homes).unwrap();
        assert_eq!(names(&namespace), ["Homes", "offices"]);
        let described = namespace.hub("homes").unwrap().describe();
        assert_eq!(described, hub.describe());
        assert_eq!((described.name.as_str(), described.partitions), ("Homes", 16));
        assert_eq!((described.retention, described.max_event_bytes), (retention, 1_000));
        assert_eq!(described.durability, namespace.config().durability);
        assert_eq!((described.segments, described.groups.len()), (1, 2));
        assert_eq!(hub.hub_properties().await.unwrap().log, Some(described.log));
        namespace.delete_hub("HOMES").unwrap();
        assert_eq!(names(&namespace), ["offices"]);
        assert_eq!(error(namespace.hub("Homes")), "hub \"Homes\" does not exist");
        assert_eq!(error(namespace.delete_hub("Homes")), "hub \"Homes\" does not exist");
    }
    assert_eq!(hub_folders(folder.path()).len(), 1, "nothing of the deleted one is left");
}

#[test]
fn the_hubs_of_a_configuration_are_there_from_the_start() {
    let folder = tempfile::tempdir().unwrap();
    let groups = vec!["alarms".parse().unwrap()];
    let hubs = vec![HubConfig { groups, ..config("homes", 2) }, config("offices", 3)];
    let settings = NamespaceConfig { hubs, ..NamespaceConfig::default() };
    for durability in [Durability::Disk, Durability::Memory] {
        let settings = NamespaceConfig { durability, ..settings.clone() };
        let namespace = LocalNamespace::open(folder.path(), settings).unwrap();
        assert_eq!(names(&namespace), ["homes", "offices"]);
        assert_eq!(self::groups(&namespace.hub("homes").unwrap()), ["$Default", "alarms"]);
        assert_eq!(namespace.hub("offices").unwrap().partition_count(), 3);
    }
}

#[test]
fn a_changed_configuration_changes_the_hubs_that_are_there() {
    let folder = tempfile::tempdir().unwrap();
    let with = |hub: HubConfig| {
        let settings = NamespaceConfig { hubs: vec![hub], ..NamespaceConfig::default() };
        LocalNamespace::open(folder.path(), settings)
    };
    let before = with(config("homes", 2)).unwrap().hub("homes").unwrap().describe();
    let retention = Retention { age: Some(Duration::from_secs(3_600)), bytes: None };
    let groups = vec!["alarms".parse().unwrap()];
    let after =
        with(HubConfig { retention, groups, ..config("HOMES", 4) }).unwrap().hub("homes").unwrap().describe();
    assert_eq!((&after.name, &after.log), (&before.name, &before.log), "it is the same hub");
    assert_eq!((after.partitions, after.retention, after.groups.len()), (4, retention, 2));
    // One that has grown since the file was written stays as it is.
    assert_eq!(with(config("homes", 3)).unwrap().hub("homes").unwrap().partition_count(), 4);
    // What a configuration does not name stays.
    assert_eq!(names(&open(folder.path())), ["homes"]);
}

#[test]
fn names_of_hubs_are_checked_and_told_what_is_wrong() {
    let of = |name: &str| HubConfig::new(name, 1).unwrap_err().to_string();
    assert_eq!(of(""), "name: hub name \"\" is empty");
    assert!(of("my hub").contains("contains ' '"), "{}", of("my hub"));
    assert!(of("a//b").contains("has two slashes in a row"), "{}", of("a//b"));
    assert!(of("../secrets").contains("has the part \"..\""), "{}", of("../secrets"));
    assert!(of(&"a".repeat(257)).contains("256"), "{}", of(&"a".repeat(257)));
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        for name in ["a", "homes/north", "a.b-c_d", &"x".repeat(256)] {
            let hub = namespace.create_hub(config(name, 1)).unwrap();
            assert_eq!(namespace.hub(name).unwrap().name(), hub.name());
        }
    }
    assert_eq!(open(folder.path()).hubs_open().len(), 4, "all of them are found again");
}

#[test]
fn hubs_that_differ_only_in_case_are_one() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        namespace.create_hub(config("Homes", 1)).unwrap();
        assert_eq!(
            error(namespace.create_hub(config("hOMES", 1))),
            "hub \"Homes\" exists already; names are compared without case"
        );
        assert_eq!(namespace.ensure_hub(&config("homes", 1)).unwrap().name().as_str(), "Homes");
        assert_eq!(names(&namespace), ["Homes"], "it keeps the name that it was given");
    }
}

#[test]
fn a_hub_has_1_to_1024_partitions() {
    let of = |count| HubConfig::new("homes", count).unwrap_err().to_string();
    assert_eq!(of(0), "partitions: 0 is less than 1; write a number from 1 to 1024");
    assert_eq!(of(1025), "partitions: 1025 is more than 1024; write a number from 1 to 1024");
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        hub.grow(1024).unwrap();
        assert_eq!(hub.partition_count(), 1024);
        assert!(error(hub.grow(1025)).starts_with("partitions: 1025 is more than 1024"));
    }
    assert_eq!(open(folder.path()).hub("homes").unwrap().partition_count(), 1024);
}

#[tokio::test]
async fn a_hub_grows_while_it_is_read_and_written() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 2)).unwrap();
        let producer = hub.producer();
        producer.send_to(PartitionId(1), NewEvent::new("before")).await.unwrap();
        let mut reader = hub.reader(PartitionId(1), StartPosition::Earliest).await.unwrap();
        let missing = producer.send_to(PartitionId(3), NewEvent::new("too early")).await.unwrap_err();
        assert_eq!(missing.to_string(), "hub \"homes\" has no partition 3; it has 2 in all, numbered from 0");
        hub.grow(4).unwrap();
        hub.grow(4).unwrap();
        let ids: Vec<u32> = hub.hub_properties().await.unwrap().partitions.iter().map(|id| id.0).collect();
        assert_eq!(ids, [0, 1, 2, 3]);
        let receipt = producer.send_to(PartitionId(3), NewEvent::new("new")).await.unwrap();
        assert_eq!(receipt.first.0, 0, "a new partition begins at 0");
        let receipt = producer.send_to(PartitionId(1), NewEvent::new("after")).await.unwrap();
        assert_eq!(receipt.first.0, 1, "an old one continues");
        for expected in [0, 1] {
            let batch = reader.next(1, 1).await.unwrap();
            assert_eq!(batch.events().next().unwrap().sequence.0, expected);
        }
        let in_turn = producer.send_batch(Target::Any, [NewEvent::new("any")]).await.unwrap();
        assert!(in_turn.partition.0 < 4);
    }
}

#[test]
fn a_hub_does_not_shrink_and_says_so() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 4)).unwrap();
        let refused = hub.grow(2).unwrap_err();
        assert!(matches!(refused, HubError::CannotShrink { present: 4, wanted: 2, .. }), "{refused:?}");
        assert_eq!(
            refused.to_string(),
            "hub \"homes\" has 4 partitions and cannot shrink to 2; keep the number, or delete the \
             hub and create it again"
        );
        assert_eq!(hub.partition_count(), 4);
    }
}

#[tokio::test]
async fn everything_that_a_hub_is_survives_a_restart() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = open(folder.path());
    let hub = namespace.create_hub(HubConfig { max_event_bytes: 500, ..config("Homes/North", 2) }).unwrap();
    hub.grow(5).unwrap();
    for group in ["Alarms", "billing", "gone"] {
        hub.create_group(group).unwrap();
    }
    hub.delete_group("gone").unwrap();
    hub.set_retention(Retention { age: Some(Duration::from_secs(7_200)), bytes: Some(1 << 30) }).unwrap();
    hub.producer().send_to(PartitionId(4), NewEvent::new("door")).await.unwrap();
    namespace.create_hub(config("offices", 1)).unwrap();
    let before = hub.describe();
    drop(hub);
    drop(namespace);
    let again = open(folder.path());
    assert_eq!(names(&again), ["Homes/North", "offices"]);
    let hub = again.hub("homes/north").unwrap();
    assert_eq!(hub.describe(), before);
    let mut reader = hub.reader(PartitionId(4), StartPosition::Earliest).await.unwrap();
    assert_eq!(reader.next(1, 1).await.unwrap().len(), 1);
}

#[tokio::test]
async fn a_hub_that_is_created_again_has_another_log_id_and_none_of_the_events() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let first = namespace.create_hub(config("homes", 1)).unwrap();
        first.producer().send(NewEvent::new("door")).await.unwrap();
        namespace.delete_hub("homes").unwrap();
        let second = namespace.create_hub(config("homes", 1)).unwrap();
        assert_ne!(first.describe().log, second.describe().log);
        let properties = second.partition_properties(PartitionId(0)).await.unwrap();
        assert_eq!((properties.first.0, properties.last), (0, None));
    }
}

#[tokio::test]
async fn deleting_a_hub_tells_its_receivers_and_its_senders() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        let (producer, mut receiver) = (hub.producer(), hub.receiver(request("$Default")).await.unwrap());
        let mut tool = hub.reader(PartitionId(0), StartPosition::Latest).await.unwrap();
        let waiting = async {
            let delete = async { namespace.delete_hub("homes").unwrap() };
            let (received, read, ()) = tokio::join!(receiver.next(1, 1), tool.next(1, 1), delete);
            let text = "the hub (hub \"homes\" was deleted) does not exist";
            assert_eq!(received.unwrap_err().to_string(), text);
            assert_eq!(read.unwrap_err().to_string(), text);
        };
        check(waiting).await;
        let refused = producer.send(NewEvent::new("door")).await.unwrap_err();
        assert_eq!(refused.to_string(), "hub \"homes\" was deleted");
        let refused = hub.receiver(request("$Default")).await.unwrap_err().to_string();
        assert_eq!(refused, "the hub (hub \"homes\" was deleted) does not exist");
    }
}

#[tokio::test]
async fn a_closed_namespace_says_so_to_everybody() {
    let folder = tempfile::tempdir().unwrap();
    for namespace in both(folder.path()) {
        let hub = namespace.create_hub(config("homes", 1)).unwrap();
        let mut receiver = hub.receiver(request("$Default")).await.unwrap();
        namespace.close().unwrap();
        namespace.close().unwrap();
        for refused in [
            error(namespace.hub("homes")),
            error(namespace.create_hub(config("homes", 1))),
            error(namespace.ensure_hub(&config("homes", 1))),
            error(namespace.delete_hub("homes")),
        ] {
            assert_eq!(refused, "the namespace is closed");
        }
        let received = receiver.next(1, 1).await.unwrap_err().to_string();
        assert_eq!(received, "the hub is not available: the hub is closed");
        let sent = hub.producer().send(NewEvent::new("door")).await.unwrap_err().to_string();
        assert_eq!(sent, "the hub is closed");
    }
}
