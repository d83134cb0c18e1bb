//! Test helpers that the tests of the hub share: files for each durability, a clock that the test moves, the
//! raw events of a partition, and simulated disks in the files of this folder.
#![allow(dead_code, reason = "each test uses its own part")]

pub(crate) mod blocking_files;
pub(crate) mod faulty_files;

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_hub::files::{DiskFiles, Files, MemoryFiles};
use ephor_hub::{Durability, Hub, LocalNamespace, NamespaceConfig};

/// Where a hub of this durability lives: in a folder that goes with the guard, or in memory.
pub(crate) fn files_for(durability: Durability) -> (Arc<dyn Files>, Option<tempfile::TempDir>) {
    if durability == Durability::Memory {
        return (Arc::new(MemoryFiles::default()), None);
    }
    let folder = tempfile::tempdir().unwrap();
    (Arc::new(DiskFiles::new(folder.path().to_owned())), Some(folder))
}

/// Opens a data folder a second after `start`, with one of its hubs.
pub(crate) fn open_later(folder: &Path, hub: &str, start: i64) -> (LocalNamespace, Hub) {
    let files = Arc::new(DiskFiles::new(folder.to_owned()));
    let clock = Ticking::new(start + 1_000, 0);
    let namespace = LocalNamespace::on(files, NamespaceConfig::default(), clock).unwrap();
    let hub = namespace.hub(hub).unwrap();
    (namespace, hub)
}

/// The numbers, keys and messages of the first events of partition 0, as a gateway takes them.
pub(crate) async fn raw_events(hub: &Hub, count: usize) -> Vec<(u64, Option<String>, Vec<u8>)> {
    let mut reader = hub.reader(PartitionId(0), StartPosition::Earliest).await.unwrap();
    let mut found = Vec::new();
    while found.len() < count {
        let batch = reader.next(100, usize::MAX).await.unwrap();
        found.extend(
            batch.events().map(|event| {
                (event.sequence.0, event.partition_key.map(str::to_owned), event.message.to_vec())
            }),
        );
    }
    assert_eq!(reader.take_missed(), 0);
    found
}

/// A clock that moves on by a step whenever it is asked for the wall time, or stands where it is put.
#[derive(Debug)]
pub(crate) struct Ticking {
    wall: AtomicI64,
    step: i64,
}

impl Ticking {
    pub(crate) fn new(start: i64, step: i64) -> Arc<Self> {
        Arc::new(Self { wall: AtomicI64::new(start), step })
    }

    pub(crate) fn set(&self, wall: i64) {
        self.wall.store(wall, Ordering::SeqCst);
    }
}

impl Clock for Ticking {
    fn now(&self) -> Monotonic {
        let wall = self.wall.load(Ordering::SeqCst);
        Monotonic(u64::try_from(wall).unwrap_or(0).saturating_mul(1_000_000))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.wall.fetch_add(self.step, Ordering::SeqCst))
    }
}
