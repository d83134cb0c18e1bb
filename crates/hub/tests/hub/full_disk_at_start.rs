//! Tests of a full disk when a hub is opened, and of retention that makes room on a disk that is nearly full.

use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::position::SequenceNumber;
use ephor_core::source::EventSource;
use ephor_hub::{Durability, LocalNamespace, NamespaceConfig, Retention};

use crate::full_disk::{
    BODY, DISK, PARTITIONS, SEGMENT, Sent, assert_full, assert_intact, body, open, read_all, wait_for,
    with_hub,
};
use crate::small_disk::{names_below, on_small_disk};

#[test]
fn a_folder_on_a_full_disk_is_refused_with_the_reason_and_opened_when_there_is_room() {
    let name = "full_disk_at_start::a_folder_on_a_full_disk_is_refused_with_the_reason_and_opened_when_there_is_room";
    on_small_disk(name, DISK, |disk| {
        for pages in 0..4 {
            disk.fill_but(pages * 4096);
            let opened = LocalNamespace::open(disk.data(), with_hub(Retention::default()));
            if pages == 0 {
                let text = opened.as_ref().unwrap_err().to_string();
                assert!(text.contains("No space left on device"), "{text}");
                assert!(text.contains(&disk.data().display().to_string()), "{text}");
            }
            drop(opened);
            disk.clear();
            let (namespace, hub) = open(disk);
            wait_for(hub.producer().send(NewEvent::new(body(pages as u64)))).unwrap();
            drop((namespace, hub));
            assert_intact(&disk.data());
            std::fs::remove_dir_all(disk.data()).unwrap();
        }
    });
}

#[test]
fn what_is_stored_can_be_read_after_a_restart_on_a_full_disk() {
    on_small_disk(
        "full_disk_at_start::what_is_stored_can_be_read_after_a_restart_on_a_full_disk",
        DISK,
        |disk| {
            let (namespace, hub) = open(disk);
            let mut sent = Sent::default();
            wait_for(async {
                sent.send(&hub, 0, 100).await.unwrap();
                sent.send(&hub, 1, 100).await.unwrap();
            });
            // What a power failure at this moment would leave: nobody waits for the mark to be on disk.
            let crashed = disk.copy_of_data();
            for name in names_below(&crashed).iter().filter(|name| name.ends_with("/mark")) {
                std::fs::write(crashed.join(name), "").unwrap();
            }
            drop((namespace, hub));
            for left in [disk.data(), crashed] {
                let mut sent = sent.clone();
                disk.fill_but(0);
                let namespace = LocalNamespace::open(&left, with_hub(Retention::default())).unwrap();
                assert_eq!(namespace.broken(), []);
                let hub = namespace.hub("homes").unwrap();
                assert_eq!(hub.recovery().clean, left == disk.data());
                wait_for(async {
                    sent.check(&hub).await;
                    assert_full(&sent.send(&hub, 0, 100).await.unwrap_err());
                    disk.clear();
                    sent.send(&hub, 0, 100).await.unwrap();
                    sent.check(&hub).await;
                });
                drop((namespace, hub));
                assert_intact(&left);
            }
        },
    );
}

#[test]
fn retention_by_size_keeps_a_hub_going_on_a_nearly_full_disk() {
    on_small_disk(
        "full_disk_at_start::retention_by_size_keeps_a_hub_going_on_a_nearly_full_disk",
        DISK,
        |disk| {
            let kept = 8 * SEGMENT;
            let config = with_hub(Retention { bytes: Some(kept), ..Retention::default() });
            let namespace = LocalNamespace::open(disk.data(), config.clone()).unwrap();
            let hub = namespace.hub("homes").unwrap();
            // What is kept, the segment that is being written, and what lies beside the events.
            disk.fill_but((kept + 2 * SEGMENT) as usize);
            let mut sent = Sent::default();
            wait_for(async {
                for turn in 0..2_000 {
                    sent.send(&hub, turn % PARTITIONS, 10).await.unwrap();
                }
                for (id, acknowledged) in sent.acknowledged.iter().enumerate() {
                    let read = read_all(&hub, id as u32).await;
                    assert!(read.len() as u64 * BODY as u64 > kept / 3, "too much was freed");
                    assert!(acknowledged.ends_with(&read), "partition {id}");
                }
            });
            assert_eq!(hub.durability(), Durability::Disk);
            drop((namespace, hub));
            assert_intact(&disk.data());
        },
    );
}

#[test]
fn what_retention_need_not_keep_makes_room_when_the_disk_is_full() {
    on_small_disk(
        "full_disk_at_start::what_retention_need_not_keep_makes_room_when_the_disk_is_full",
        DISK,
        |disk| {
            // Four segments and half of one may stay, so that the one being written goes beyond it.
            let segment = 1 << 20;
            let kept = 4 * segment + segment / 2;
            let config = with_hub(Retention { bytes: Some(kept), ..Retention::default() });
            let config = NamespaceConfig { segment_bytes: segment, ..config };
            let namespace = LocalNamespace::open(disk.data(), config).unwrap();
            let hub = namespace.hub("homes").unwrap();
            // Room for what is kept, but not for a whole segment beside it.
            disk.fill_but((kept + segment / 4) as usize);
            let mut sent = Sent::default();
            wait_for(async {
                for turn in 0..2_000 {
                    sent.send(&hub, turn % PARTITIONS, 10).await.unwrap();
                }
                let oldest = hub.partition_properties(PartitionId(0)).await.unwrap().first;
                assert!(oldest > SequenceNumber(0));
            });
            drop((namespace, hub));
            assert_intact(&disk.data());
        },
    );
}
