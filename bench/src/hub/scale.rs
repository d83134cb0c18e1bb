//! Measures how the hub scales: the time with twice the partitions, twice the readers, and twice the log.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ephor::BoxError;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::EventSource;
use ephor_core::time::Timestamp;
use ephor_hub::{Durability, Hub};
use tokio::task::JoinSet;

use super::hub_under_test::{
    EVENT_BYTES, Load, PARTITIONS, Subject, fill, native, read, read_native, receiver, runtime, send,
};
use crate::figures::{Doubling, RUNS, median, progress};
use crate::machine::{now, since};
use crate::options::Options;

const PARTITION_COUNTS: [u32; 7] = [8, 16, 32, 64, 128, 256, 512];
const READER_COUNTS: [u64; 6] = [1, 2, 4, 8, 16, 32];
const LOG_MIB: [u64; 5] = [64, 128, 256, 512, 1024];
/// The bytes sent in each run.
const SENT_BYTES: u64 = 64 << 20;
const SENT_TO_READERS: u64 = 16 << 20;
/// The number of lookups in a log: each takes less than a millisecond, so that five would say little.
const LOOKS: u64 = 25;

pub(crate) fn scale(options: &Options) -> Result<(), BoxError> {
    let folder = options.folder(3 << 30)?;
    partitions(folder.path())?;
    readers(folder.path(), Kind::Tools)?;
    readers(folder.path(), Kind::Groups)?;
    log_size(folder.path())
}

fn partitions(folder: &Path) -> Result<(), BoxError> {
    let load = Load::usual(SENT_BYTES / EVENT_BYTES as u64);
    let mut table = Doubling::begin("partitions", &["time per event sent"]);
    for count in PARTITION_COUNTS {
        progress(&format!("scale: {count} partitions"));
        let mut times = Vec::new();
        for _ in 0..RUNS {
            let folder = folder.join("partitions");
            std::fs::create_dir_all(&folder)?;
            let subject = Subject::open(&folder, Durability::Disk, count)?;
            times.push(runtime()?.block_on(send(&subject.hub, load)).as_secs_f64());
            subject.close()?;
            std::fs::remove_dir_all(&folder)?;
        }
        let per_event = Duration::from_secs_f64(median(&times) / load.events as f64);
        table.row(&count.to_string(), vec![per_event]);
    }
    Ok(())
}

/// The kind of readers.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Readers that decode nothing.
    Tools,
    /// Receivers as hosts have them, each in a group of its own.
    Groups,
}

/// All read the one partition that is sent to.
fn readers(folder: &Path, kind: Kind) -> Result<(), BoxError> {
    let what = match kind {
        Kind::Tools => "readers of one partition",
        Kind::Groups => "groups of one partition",
    };
    let mut table = Doubling::begin(what, &["time per event sent", "time per event read"]);
    for count in READER_COUNTS {
        progress(&format!("scale: {count} {what}"));
        let (mut sending, mut reading) = (Vec::new(), Vec::new());
        for _ in 0..RUNS {
            let (sent, all) = send_to_readers(&folder.join("readers"), kind, count)?;
            sending.push(sent.as_secs_f64());
            reading.push(all.as_secs_f64());
        }
        let events = (SENT_TO_READERS / EVENT_BYTES as u64) as f64;
        let per = |times: &[f64], events: f64| Duration::from_secs_f64(median(times) / events);
        table.row(&count.to_string(), vec![per(&sending, events), per(&reading, events * count as f64)]);
    }
    Ok(())
}

/// The time until all was sent, and until all readers have read all of it.
fn send_to_readers(folder: &Path, kind: Kind, count: u64) -> Result<(Duration, Duration), BoxError> {
    std::fs::create_dir_all(folder)?;
    let subject = Subject::open(folder, Durability::Disk, 1)?;
    let load = Load::usual(SENT_TO_READERS / EVENT_BYTES as u64);
    let hub = Arc::new(subject.hub.clone());
    let groups = (0..count).map(|index| hub.create_group(&format!("group-{index}")));
    let groups = groups.collect::<Result<Vec<ConsumerGroup>, _>>()?;
    let took = runtime()?.block_on(async {
        let mut readers = JoinSet::new();
        for group in groups {
            if kind == Kind::Groups {
                let mut receiver = receiver(&hub, &group, 0, StartPosition::Earliest).await;
                readers.spawn(async move { read(&mut *receiver, load.events).await });
            } else {
                let mut receiver = native(&hub, 0, StartPosition::Earliest).await;
                readers.spawn(async move { read_native(&mut receiver, load.events).await });
            }
        }
        let began = now();
        let sent = send(&hub, load).await;
        readers.join_all().await;
        (sent, since(began))
    });
    subject.close()?;
    std::fs::remove_dir_all(folder)?;
    Ok(took)
}

/// Lookups in logs of different sizes.
fn log_size(folder: &Path) -> Result<(), BoxError> {
    let folder = folder.join("log");
    std::fs::create_dir_all(&folder)?;
    let columns = &["open, closed before", "find a sequence number", "find a time", "read the first event"];
    let mut table = Doubling::begin("MiB of log", columns);
    let runtime = runtime()?;
    let mut filled = 0;
    for mib in LOG_MIB {
        progress(&format!("scale: {mib} MiB of log"));
        fill(&folder, Load::filling((mib << 20) - filled))?;
        filled = mib << 20;
        let mut times: [Vec<f64>; 4] = Default::default();
        for round in 1..=LOOKS {
            let began = now();
            let subject = Subject::without_recent(&folder, PARTITIONS)?;
            times[0].push(since(began).as_secs_f64());
            let hub = &subject.hub;
            runtime.block_on(async {
                let properties = hub.partition_properties(PartitionId(3)).await.expect("the hub is up");
                let last = properties.last.expect("the log was filled");
                // Another position in each round: no file is open there yet.
                let number = SequenceNumber(last.sequence.0 * round / (LOOKS + 1));
                let number = StartPosition::Sequence { number, inclusive: true };
                let first = first_event_at(hub, StartPosition::Earliest).await;
                times[3].push(first.0.as_secs_f64());
                let (took, found) = first_event_at(hub, number).await;
                times[1].push(took.as_secs_f64());
                let (took, _) = first_event_at(hub, StartPosition::EnqueuedTime(found)).await;
                times[2].push(took.as_secs_f64());
            });
            subject.close()?;
        }
        let medians = times.iter().map(|times| Duration::from_secs_f64(median(times)));
        table.row(&mib.to_string(), medians.collect());
    }
    Ok(())
}

/// The time to get the first event of a reader, and the event's enqueued time.
async fn first_event_at(hub: &Hub, start: StartPosition) -> (Duration, Timestamp) {
    let began = now();
    let mut reader = native(hub, 3, start).await;
    let batch = reader.next(1, usize::MAX).await.expect("the hub is up");
    (since(began), batch.enqueued_at())
}
