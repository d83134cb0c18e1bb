//! Test helper: the child process that is killed, with one sender for each partition, and readers.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, OpenRequest, Receiver};
use ephor_hub::{Durability, Hub, HubConfig, LocalNamespace, NamespaceConfig, Target};

use super::child_process::{say, wait_for_the_end};
use super::hash_chain::{Link, Tail};
use super::protocol::{Orders, Word};

pub(crate) const HUB: &str = "chained";
pub(crate) const PARTITIONS: u32 = 8;

/// A few commits fill a segment, so that kills fall on the change from one to the next too.
const SEGMENT_BYTES: u64 = 64 << 10;
/// Less than a segment: readers that fall behind meet the files.
const RECENT_BYTES: u64 = 32 << 10;
const MAX_EVENTS_PER_BATCH: u32 = 24;

pub(crate) fn config(durability: Durability) -> NamespaceConfig {
    NamespaceConfig {
        durability,
        segment_bytes: SEGMENT_BYTES,
        recent_bytes: RECENT_BYTES,
        hubs: vec![HubConfig::new(HUB, PARTITIONS).unwrap()],
        ..NamespaceConfig::default()
    }
}

/// Sends and reads until it is killed or told to stop; everything it learns, it says at once.
pub(crate) fn run(folder: &Path, orders: &Orders) {
    // A task that panics would go unnoticed; this way the parent sees a child that died by itself.
    let print = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |panic| {
        print(panic);
        std::process::abort();
    }));
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).build().unwrap();
    let namespace = LocalNamespace::open(folder, config(orders.durability)).unwrap();
    let hub = namespace.hub(HUB).unwrap();
    let stop = Arc::new(AtomicBool::new(false));
    let mut senders = tokio::task::JoinSet::new();
    for partition in (0..PARTITIONS).map(PartitionId) {
        let (tail, next) = runtime.block_on(tail_of(&hub, partition));
        let mut random = fastrand::Rng::with_seed(orders.seed ^ u64::from(partition.0));
        runtime.spawn(read_from_here(hub.clone(), partition, tail, next));
        if random.u8(..4) == 0 {
            runtime.spawn(read_all(hub.clone(), partition));
        }
        let send = send(hub.clone(), partition, tail, orders.round, random, stop.clone());
        senders.spawn_on(send, runtime.handle());
    }
    wait_for_the_end();
    stop.store(true, Ordering::SeqCst);
    runtime.block_on(async { while senders.join_next().await.is_some() {} });
    runtime.shutdown_background();
    namespace.close().unwrap();
}

/// Where the chain of a partition ends, and the sequence number behind it.
async fn tail_of(hub: &Hub, partition: PartitionId) -> (Tail, u64) {
    let Some(last) = hub.partition_properties(partition).await.unwrap().last else {
        return (Tail::default(), 0);
    };
    let mut reader = hub.reader(partition, StartPosition::at(last.sequence)).await.unwrap();
    let mut events = Vec::new();
    reader.receive(&mut events, 1).await.unwrap();
    (Tail::behind(&Link::decode(&events[0].body).unwrap()), last.sequence.0 + 1)
}

async fn send(
    hub: Hub,
    partition: PartitionId,
    mut tail: Tail,
    round: u32,
    mut random: fastrand::Rng,
    stop: Arc<AtomicBool>,
) {
    let producer = hub.producer();
    while !stop.load(Ordering::SeqCst) {
        let size = random.u32(1..=MAX_EVENTS_PER_BATCH);
        let (bodies, behind) = tail.batch(partition.0, round, size);
        let events = bodies.into_iter().map(NewEvent::new);
        let receipt = producer.send_batch(Target::Partition(partition), events).await.unwrap();
        say(&Word::Stored { partition: partition.0, first: receipt.first.0, size, hash: behind.hash }.text());
        tail = behind;
    }
}

/// Follows the chain as it grows. What a reader has seen must be there after the kill as well.
async fn read_from_here(hub: Hub, partition: PartitionId, tail: Tail, next: u64) {
    let start = match next {
        0 => StartPosition::Earliest,
        next => StartPosition::after(SequenceNumber(next - 1)),
    };
    let reader = hub.reader(partition, start).await.unwrap();
    follow(reader, partition, tail, true).await;
}

/// Follows the chain from its beginning, as a consumer does that comes late.
async fn read_all(hub: Hub, partition: PartitionId) {
    let group = ConsumerGroup::default_group();
    let request =
        OpenRequest { start: StartPosition::Earliest, ..OpenRequest::probe(&group, partition, "late") };
    let reader = hub.receiver(request).await.unwrap();
    follow(reader, partition, Tail::default(), false).await;
}

async fn follow(mut reader: impl Receiver, partition: PartitionId, mut tail: Tail, report: bool) {
    let mut events = Vec::new();
    // A hub that is closed ends its readers.
    while reader.receive(&mut events, 100).await.is_ok() {
        for event in &events {
            let (link, judged) = tail.follow(partition.0, &event.body);
            assert_eq!(
                judged,
                Ok(()),
                "a reader met {link:?} at {} of partition {partition}",
                event.sequence
            );
        }
        if let Some(last) = events.last().filter(|_| report) {
            say(&Word::Seen { partition: partition.0, sequence: last.sequence.0, hash: tail.hash }.text());
        }
        events.clear();
    }
}
