//! Soak test: sends and reads for a long time under retention by size, and checks that memory does not keep
//! growing and that disk usage stays below a limit.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ephor::BoxError;
use ephor_core::ids::ConsumerGroup;
use ephor_core::position::StartPosition;
use ephor_hub::{Durability, Hub, Retention, Target};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::hub_under_test::{MAX_EVENTS, PARTITIONS, Subject, event, native, receiver, runtime};
use crate::figures::{median, per_second, progress, size};
use crate::machine::{disk_bytes, load_average, now, pause, resident_bytes, since, sleep};
use crate::options::Options;

const KEPT: u64 = 2 << 30;
const NEEDED: u64 = 3 << 30;
const SENDERS: usize = 64;
const BATCH: u64 = 32;
const SAMPLED_EACH: Duration = Duration::from_secs(5);
/// The number of samples per printed line.
const PRINTED_EACH: u64 = 6;
/// The pause of the slow reader between two batches, so that retention overtakes it.
const DAWDLING: Duration = Duration::from_millis(200);
/// The allowance beyond what is to be kept: the active segment, its preallocation, and one that is about to
/// be deleted.
const DISK_SLACK: u64 = 160 << 20;

#[derive(Default)]
struct Counters {
    stop: AtomicBool,
    sent: AtomicU64,
    tailed: AtomicU64,
    slow: AtomicU64,
    missed: AtomicU64,
}

#[derive(Clone, Copy)]
struct Sample {
    resident: u64,
    disk: u64,
}

/// Returns true if memory and disk stayed flat.
pub(crate) fn soak(options: &Options) -> Result<bool, BoxError> {
    let folder = options.folder(NEEDED)?;
    let subject = Subject::open(folder.path(), Durability::Disk, PARTITIONS)?;
    subject.hub.set_retention(Retention { age: None, bytes: Some(KEPT) })?;
    let (runtime, counters) = (runtime()?, Arc::new(Counters::default()));
    let readers = begin(&runtime, &subject.hub, &counters);
    let minutes = options.minutes;
    println!(
        "{SENDERS} senders, batches of {BATCH}, 1 KiB events, on disk, {minutes} min, {} kept",
        size(KEPT as f64)
    );
    let samples = watch(folder.path(), &counters, Duration::from_secs(60 * minutes));
    counters.stop.store(true, Ordering::Relaxed);
    runtime.block_on(readers.0.join_all());
    drop(readers.1);
    subject.close()?;
    Ok(conclude(&samples))
}

/// Starts senders, which end when `stop` is set, and readers, which end when they are dropped.
fn begin(runtime: &Runtime, hub: &Hub, counters: &Arc<Counters>) -> (JoinSet<()>, JoinSet<()>) {
    let (mut senders, mut readers) = (JoinSet::new(), JoinSet::new());
    let _entered = runtime.enter();
    for _ in 0..SENDERS {
        let (producer, counters) = (hub.producer(), counters.clone());
        senders.spawn(async move {
            while !counters.stop.load(Ordering::Relaxed) {
                let events = (0..BATCH).map(|_| event());
                producer.send_batch(Target::Any, events).await.expect("the hub accepts events");
                counters.sent.fetch_add(BATCH, Ordering::Relaxed);
            }
        });
    }
    for partition in 0..PARTITIONS {
        let (hub, counters) = (hub.clone(), counters.clone());
        readers.spawn(async move {
            let group = ConsumerGroup::default_group();
            let mut receiver = receiver(&hub, &group, partition, StartPosition::Earliest).await;
            let mut batch = Vec::with_capacity(MAX_EVENTS);
            while receiver.receive(&mut batch, MAX_EVENTS).await.is_ok() {
                counters.tailed.fetch_add(batch.len() as u64, Ordering::Relaxed);
                batch.clear();
            }
        });
    }
    let (hub, counters) = (hub.clone(), counters.clone());
    readers.spawn(async move {
        let mut reader = native(&hub, 0, StartPosition::Earliest).await;
        while let Ok(batch) = reader.next(MAX_EVENTS, usize::MAX).await {
            counters.slow.fetch_add(batch.len() as u64, Ordering::Relaxed);
            counters.missed.fetch_add(reader.take_missed(), Ordering::Relaxed);
            pause(DAWDLING).await;
        }
    });
    (senders, readers)
}

fn watch(folder: &Path, counters: &Counters, duration: Duration) -> Vec<Sample> {
    let (began, mut samples, mut sent_before) = (now(), Vec::new(), 0);
    println!(
        "{:>7}{:>16}{:>16}{:>14}{:>14}{:>12}{:>12}  load",
        "", "sent", "tail lag", "slow read", "slow missed", "memory", "disk"
    );
    let read = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
    while since(began) < duration {
        sleep(SAMPLED_EACH.min(duration.saturating_sub(since(began))));
        let sample = Sample { resident: resident_bytes(), disk: disk_bytes(folder) };
        samples.push(sample);
        if !(samples.len() as u64).is_multiple_of(PRINTED_EACH) {
            continue;
        }
        let sent = read(&counters.sent);
        let between = SAMPLED_EACH.as_secs_f64() * PRINTED_EACH as f64;
        println!(
            "{:>5} s{:>16}{:>16}{:>14}{:>14}{:>12}{:>12}  {}",
            since(began).as_secs(),
            per_second((sent - sent_before) as f64 / between),
            // Acknowledged events are counted a little after they can be read.
            sent.saturating_sub(read(&counters.tailed)),
            read(&counters.slow),
            read(&counters.missed),
            size(sample.resident as f64),
            size(sample.disk as f64),
            load_average(),
        );
        sent_before = sent;
    }
    progress("soak: closing");
    samples
}

fn conclude(samples: &[Sample]) -> bool {
    for (name, pick) in
        [("memory", (|sample| sample.resident) as fn(&Sample) -> u64), ("disk", |sample| sample.disk)]
    {
        let values: Vec<u64> = samples.iter().map(pick).collect();
        let (least, most) = (values.iter().min().copied(), values.iter().max().copied());
        let [least, middle, most] =
            [least.unwrap_or(0), median(&values), most.unwrap_or(0)].map(|bytes| size(bytes as f64));
        println!("{name}: minimum {least}, median {middle}, maximum {most}");
    }
    let (first, second) = samples.split_at(samples.len() / 2);
    let most = |samples: &[Sample]| samples.iter().map(|sample| sample.resident).max().unwrap_or(0);
    let limit = most(first) + most(first) / 10 + (16 << 20);
    let memory_is_flat = most(second) <= limit;
    let disk_is_flat = samples.iter().all(|sample| sample.disk <= KEPT + DISK_SLACK);
    let word = |flat: bool| if flat { "flat" } else { "NOT FLAT" };
    println!(
        "memory is {} (maximum of the second half {}, limit {}); disk is {} (limit {})",
        word(memory_is_flat),
        size(most(second) as f64),
        size(limit as f64),
        word(disk_is_flat),
        size((KEPT + DISK_SLACK) as f64)
    );
    memory_is_flat && disk_is_flat
}
