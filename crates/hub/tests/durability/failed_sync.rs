//! Tests of a failed sync that left the end of a log in the page cache only: events that readers have seen
//! survive a power failure.

use std::sync::Arc;

use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, Receiver};
use ephor_hub::files::Files;
use ephor_hub::{Durability, HubConfig, LocalNamespace, NamespaceConfig, NewEvent};
use ephor_runtime::environment::SystemClock;

use crate::common::faulty_files::{Fate, FaultyFiles};

const FIRST: PartitionId = PartitionId(0);

fn open(files: &FaultyFiles, durability: Durability) -> LocalNamespace {
    let config = NamespaceConfig {
        durability,
        // So small that no room is asked for beforehand.
        segment_bytes: 1 << 20,
        hubs: vec![HubConfig::new("homes", 1).unwrap()],
        ..NamespaceConfig::default()
    };
    LocalNamespace::on(Arc::new(files.clone()), config, Arc::new(SystemClock)).unwrap()
}

#[expect(clippy::disallowed_methods, reason = "bounds a test that hangs; nothing depends on it")]
async fn events(namespace: &LocalNamespace) -> Vec<usize> {
    let hub = namespace.hub("homes").unwrap();
    let Some(last) = hub.partition_properties(FIRST).await.unwrap().last else { return Vec::new() };
    assert_eq!(hub.damage(), []);
    let mut reader = hub.reader(FIRST, StartPosition::Earliest).await.unwrap();
    let mut sizes = Vec::new();
    loop {
        let mut batch = Vec::new();
        let received =
            tokio::time::timeout(std::time::Duration::from_secs(60), reader.receive(&mut batch, 100));
        received.await.expect("every stored event can be read").unwrap();
        sizes.extend(batch.iter().map(|event| event.body.len()));
        if batch.last().is_some_and(|event| event.sequence >= last.sequence) {
            return sizes;
        }
    }
}

/// The same files, all of them on disk.
fn copy(files: &FaultyFiles) -> FaultyFiles {
    let copy = files.after_crash(Fate::AllKept);
    assert_eq!(copy.files(), files.files());
    copy
}

fn log(files: &FaultyFiles) -> String {
    files.files().into_iter().map(|(path, _)| path).find(|path| path.ends_with(".log")).unwrap()
}

#[tokio::test]
async fn what_is_served_after_a_write_back_that_failed_is_on_disk() {
    for durability in [Durability::Disk, Durability::PageCache] {
        for sizes in [&[10, 20][..], &[10, 9_000], &[100_000, 5, 300_000]] {
            let files = FaultyFiles::new(u64::MAX);
            let namespace = open(&files, durability);
            let (last, before) = sizes.split_last().unwrap();
            let hub = namespace.hub("homes").unwrap();
            for size in before {
                hub.producer().send_to(FIRST, NewEvent::new(vec![7; *size])).await.unwrap();
            }
            let left = copy(&files);
            let path = log(&files);
            let begin = left.read(&path).unwrap().len();
            hub.producer().send_to(FIRST, NewEvent::new(vec![7; *last])).await.unwrap();
            // The process was killed after the write, and the system could not bring it to disk.
            let whole = files.read(&path).unwrap();
            let end = whole.len();
            let file = left.open(&path).unwrap();
            file.write_at(begin as u64, &[&whole[begin..end]]).unwrap();
            left.fail_next_syncs(1);
            file.sync().unwrap_err();
            drop(file);
            let namespace = open(&left, durability);
            assert_eq!(events(&namespace).await, sizes, "{durability}");
            let after = open(&left.after_crash(Fate::AllLost), durability);
            assert_eq!(events(&after).await, sizes, "{durability}: after the power failure");
            assert_eq!(after.hub("homes").unwrap().damage(), []);
        }
    }
}
