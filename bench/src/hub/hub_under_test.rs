//! Opens the hub that is measured, and runs its senders and readers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use ephor::BoxError;
use ephor::environment::SystemClock;
use ephor_core::event::Event;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest, Receiver};
use ephor_hub::{Durability, Hub, HubConfig, HubReceiver, LocalNamespace, NamespaceConfig, NewEvent, Target};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::files::CountingFiles;
use crate::machine::{now, since};

/// The size of every event's body.
pub(crate) const EVENT_BYTES: usize = 1 << 10;
/// The batch size of readers.
pub(crate) const MAX_EVENTS: usize = 1000;
/// The number of partitions, unless a benchmark varies it.
pub(crate) const PARTITIONS: u32 = 16;

/// A hub on counted files.
pub(crate) struct Subject {
    pub(crate) namespace: LocalNamespace,
    pub(crate) hub: Hub,
    pub(crate) files: CountingFiles,
}

impl Subject {
    pub(crate) fn open(folder: &Path, durability: Durability, partitions: u32) -> Result<Self, BoxError> {
        Self::open_with(folder, NamespaceConfig { durability, ..NamespaceConfig::default() }, partitions)
    }

    /// Without a cache: every reader reads the files.
    pub(crate) fn without_recent(folder: &Path, partitions: u32) -> Result<Self, BoxError> {
        let config = NamespaceConfig {
            durability: Durability::PageCache,
            recent_bytes: 0,
            ..NamespaceConfig::default()
        };
        Self::open_with(folder, config, partitions)
    }

    fn open_with(folder: &Path, config: NamespaceConfig, partitions: u32) -> Result<Self, BoxError> {
        let files = CountingFiles::new(folder);
        let namespace = LocalNamespace::on(Arc::new(files.clone()), config, Arc::new(SystemClock))?;
        let hub = namespace.ensure_hub(&HubConfig::new("bench", partitions)?)?;
        Ok(Self { namespace, hub, files })
    }

    pub(crate) fn close(self) -> Result<(), BoxError> {
        Ok(self.namespace.close()?)
    }
}

/// A runtime as an application would have: a thread for each processor.
pub(crate) fn runtime() -> Result<Runtime, BoxError> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_time().build()?)
}

/// The number of senders, and how much they send.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) senders: usize,
    /// The number of events in a batch.
    pub(crate) batch: u64,
    /// The total number of events, in whole batches.
    pub(crate) events: u64,
}

impl Load {
    /// 64 senders with batches of 32.
    pub(crate) fn usual(events: u64) -> Self {
        Self { senders: 64, batch: 32, events: events.next_multiple_of(32) }
    }

    /// A load that fills a log fast.
    pub(crate) fn filling(bytes: u64) -> Self {
        Self { senders: 8, batch: 256, events: (bytes / EVENT_BYTES as u64).next_multiple_of(256) }
    }
}

/// An event that no disk can compress.
pub(crate) fn event() -> NewEvent {
    static BODY: std::sync::OnceLock<Bytes> = std::sync::OnceLock::new();
    NewEvent::new(BODY.get_or_init(|| noise(EVENT_BYTES).into()).clone())
}

/// Pseudorandom bytes, the same each time.
pub(crate) fn noise(length: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state as u8
    };
    (0..length).map(|_| next()).collect()
}

/// Sends until everything is acknowledged, and returns the time.
pub(crate) async fn send(hub: &Hub, load: Load) -> Duration {
    let batches = load.events / load.batch;
    let sent = Arc::new(AtomicU64::new(0));
    let began = now();
    let mut senders = JoinSet::new();
    for _ in 0..load.senders {
        let (producer, sent) = (hub.producer(), sent.clone());
        senders.spawn(async move {
            while sent.fetch_add(1, Ordering::Relaxed) < batches {
                let events = (0..load.batch).map(|_| event());
                producer.send_batch(Target::Any, events).await.expect("the hub accepts events");
            }
        });
    }
    senders.join_all().await;
    since(began)
}

/// Fills a log, and closes it.
pub(crate) fn fill(folder: &Path, load: Load) -> Result<(), BoxError> {
    let subject = Subject::open(folder, Durability::PageCache, PARTITIONS)?;
    runtime()?.block_on(send(&subject.hub, load));
    subject.close()
}

/// A receiver as a host has it.
pub(crate) async fn receiver(
    hub: &Hub,
    group: &ConsumerGroup,
    partition: u32,
    start: StartPosition,
) -> Box<dyn Receiver> {
    let request = OpenRequest {
        group: group.clone(),
        partition: PartitionId(partition),
        start,
        epoch: None,
        receiver: String::new(),
        prefetch_events: MAX_EVENTS,
        prefetch_bytes: usize::MAX,
    };
    EventSource::open(hub, request).await.expect("the hub accepts readers")
}

/// A reader that decodes nothing.
pub(crate) async fn native(hub: &Hub, partition: u32, start: StartPosition) -> HubReceiver {
    hub.reader(PartitionId(partition), start).await.expect("the hub accepts readers")
}

/// Reads this many events as a host does.
pub(crate) async fn read(receiver: &mut dyn Receiver, events: u64) {
    let (mut seen, mut batch) = (0, Vec::<Event>::with_capacity(MAX_EVENTS));
    while seen < events {
        batch.clear();
        receiver.receive(&mut batch, MAX_EVENTS).await.expect("the hub is up");
        seen += std::hint::black_box(&batch).len() as u64;
    }
}

/// Reads this many events without decoding them.
pub(crate) async fn read_native(receiver: &mut HubReceiver, events: u64) {
    let mut seen = 0;
    while seen < events {
        let batch = receiver.next(MAX_EVENTS, usize::MAX).await.expect("the hub is up");
        for event in batch.events() {
            std::hint::black_box(event);
        }
        seen += batch.len() as u64;
    }
}

/// The number of events in a partition.
pub(crate) async fn events_in(hub: &Hub, partition: u32) -> u64 {
    let properties = hub.partition_properties(PartitionId(partition)).await.expect("the hub is up");
    properties.last.map_or(0, |last| last.sequence.next().0 - properties.first.0)
}
