//! Tests of the disk reserve: senders are refused before the disk is full, the health of the namespace shows
//! it, and sending continues by itself when there is free space again.

use std::time::Duration;

use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::Receiver;
use ephor_hub::health::Problem;
use ephor_hub::{Hub, HubConfig, LocalNamespace, NamespaceConfig, Retention, SendError};

use crate::small_disk::{SmallDisk, on_small_disk};

const DISK: u64 = 16 << 20;
const RESERVE: u64 = 4 << 20;
const SEGMENT: u64 = 256 << 10;
const BODY: usize = 10_000;
/// A commit and the blocks that it touches.
const SLACK: u64 = 128 << 10;

fn open(disk: &SmallDisk, disk_reserve_bytes: Option<u64>, retention: Retention) -> (LocalNamespace, Hub) {
    let hub = HubConfig { retention, ..HubConfig::new("homes", 1).unwrap() };
    let config = NamespaceConfig {
        segment_bytes: SEGMENT,
        disk_reserve_bytes,
        hubs: vec![hub],
        ..NamespaceConfig::default()
    };
    let namespace = LocalNamespace::open(disk.data(), config).unwrap();
    let hub = namespace.hub("homes").unwrap();
    (namespace, hub)
}

#[expect(clippy::disallowed_methods, reason = "a test that hangs shall fail")]
fn wait_for<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(Duration::from_secs(20), future).await }).unwrap()
}

async fn send_until_refused(hub: &Hub) -> (u64, SendError) {
    for sent in 0.. {
        if let Err(error) = hub.producer().send(NewEvent::new(vec![7; BODY])).await {
            return (sent, error);
        }
    }
    unreachable!("the disk is small")
}

fn free(disk: &SmallDisk) -> u64 {
    let space = rustix::fs::statvfs(disk.data()).unwrap();
    space.f_bavail * space.f_frsize
}

#[test]
fn senders_are_refused_while_everything_else_goes_on_and_admitted_when_there_is_room() {
    let name =
        "disk_reserve::senders_are_refused_while_everything_else_goes_on_and_admitted_when_there_is_room";
    on_small_disk(name, DISK, |disk| {
        disk.fill_but((RESERVE + (2 << 20)) as usize);
        let (namespace, hub) = open(disk, Some(RESERVE), Retention::default());
        assert_eq!(namespace.health(), []);
        wait_for(async {
            let (sent, error) = send_until_refused(&hub).await;
            assert!(matches!(error, SendError::LowOnDisk { reserve: RESERVE, .. }), "{error}");
            assert!(sent > 100, "only {sent} were stored");
            let left = free(disk);
            assert!((RESERVE - SLACK..RESERVE + SLACK).contains(&left), "{left} bytes are left");
            assert!(matches!(namespace.health()[..], [Problem::LowOnDisk { reserve: RESERVE, .. }]));
            // Whoever tries again and again does not use up the rest.
            for _ in 0..200 {
                hub.producer().send(NewEvent::new(vec![7; BODY])).await.unwrap_err();
            }
            assert!(free(disk) >= left);
            // Readers, groups and neighbours have what they need.
            let mut reader = hub.reader(PartitionId(0), StartPosition::Earliest).await.unwrap();
            let (mut events, mut read) = (Vec::new(), 0);
            while read < sent {
                reader.receive(&mut events, 100).await.unwrap();
                read += events.drain(..).count() as u64;
            }
            hub.create_group("late").unwrap();
            namespace.create_hub(HubConfig::new("mills", 1).unwrap()).unwrap();
            std::fs::write(disk.data().join("store.db"), vec![1; 1 << 20]).unwrap();

            disk.clear();
            assert_eq!(hub.producer().send(NewEvent::new("again")).await.unwrap().first.0, sent);
            assert_eq!(namespace.health(), []);
        });
    });
}

#[test]
fn without_a_word_of_configuration_a_twentieth_of_a_small_disk_stays_free() {
    let name = "disk_reserve::without_a_word_of_configuration_a_twentieth_of_a_small_disk_stays_free";
    on_small_disk(name, DISK, |disk| {
        let (_namespace, hub) = open(disk, None, Retention::default());
        let (sent, error) = wait_for(send_until_refused(&hub));
        assert!(matches!(error, SendError::LowOnDisk { .. }), "after {sent}: {error}");
        let left = free(disk);
        assert!((DISK / 20 - SLACK..DISK / 10).contains(&left), "{left} bytes are left");
    });
}

#[test]
fn what_retention_need_not_keep_makes_room_before_anybody_is_refused() {
    let name = "disk_reserve::what_retention_need_not_keep_makes_room_before_anybody_is_refused";
    on_small_disk(name, DISK, |disk| {
        let kept = 8 * SEGMENT;
        disk.fill_but((RESERVE + kept + 2 * SEGMENT) as usize);
        let (namespace, hub) = open(disk, Some(RESERVE), Retention { age: None, bytes: Some(kept) });
        wait_for(async {
            for _ in 0..1_000 {
                hub.producer().send(NewEvent::new(vec![7; BODY])).await.unwrap();
            }
        });
        assert_eq!(namespace.health(), []);
    });
}

#[test]
fn an_idle_hub_notices_by_itself_that_there_is_room_again() {
    on_small_disk("disk_reserve::an_idle_hub_notices_by_itself_that_there_is_room_again", DISK, |disk| {
        disk.fill_but((RESERVE + (1 << 20)) as usize);
        let (namespace, hub) = open(disk, Some(RESERVE), Retention::default());
        wait_for(send_until_refused(&hub));
        assert_eq!(namespace.health().len(), 1);
        disk.clear();
        wait_for(async {
            while !namespace.health().is_empty() {
                tokio::task::yield_now().await;
            }
        });
    });
}
