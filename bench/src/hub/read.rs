//! Measures reading: a whole log by one consumer, compared with reading its files; and reading while others
//! send.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ephor::BoxError;
use ephor_core::ids::ConsumerGroup;
use ephor_core::position::StartPosition;
use ephor_hub::{Durability, Hub};
use tokio::task::JoinSet;

use super::hub_under_test::{
    EVENT_BYTES, Load, PARTITIONS, Subject, events_in, fill, native, read, read_native, receiver, runtime,
    send,
};
use super::raw_disk;
use crate::figures::{Figure, RUNS, median, progress, size};
use crate::machine::{now, since};
use crate::options::Options;

const DEFAULT_MIB: u64 = 1024;
const SMALL_MIB: u64 = 256;
/// The bytes that are sent while reading.
const SENT_BYTES: u64 = 128 << 20;

/// Reads from the files: nothing is cached by the hub, and the page cache is warm.
pub(crate) fn backlog(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let mib = options.mib.unwrap_or(if options.small { SMALL_MIB } else { DEFAULT_MIB });
    let folder = options.folder((mib << 20) * 5 / 4)?;
    progress(&format!("read: filling a log with {mib} MiB"));
    fill(folder.path(), Load::usual((mib << 20) / EVENT_BYTES as u64))?;
    let subject = Subject::without_recent(folder.path(), PARTITIONS)?;
    let runtime = runtime()?;
    let (mut source, mut plain, mut files) = (Vec::new(), Vec::new(), Vec::new());
    let (mut events, mut read, mut stored) = (0, 0, 0);
    let mut buffer = vec![0; 1 << 20];
    for round in 1..=RUNS {
        progress(&format!("read: round {round} of {RUNS}"));
        // The first round also warms the page cache, if it is not warm from writing.
        let began = now();
        stored = raw_disk::read_segments(folder.path(), &mut buffer)?;
        files.push(since(began).as_secs_f64());
        let hub = subject.hub.clone();
        subject.files.take();
        let (took, count) = runtime.block_on(by_source(&hub));
        (events, read) = (count, subject.files.take().bytes_read);
        source.push(took.as_secs_f64());
        plain.push(runtime.block_on(by_reader(&hub)).0.as_secs_f64());
    }
    subject.close()?;
    let rate = |times: &[f64]| events as f64 / median(times);
    Ok(vec![
        Figure::rates("read a log as an event source / preads of 1 MiB", rate(&source), rate(&files)),
        Figure::rates("read a log without decoding events / preads of 1 MiB", rate(&plain), rate(&files)),
        Figure::new(
            "  bytes read from files / bytes of the log",
            size(read as f64),
            size(stored as f64),
            read as f64 / stored as f64,
        ),
    ])
}

async fn by_source(hub: &Hub) -> (Duration, u64) {
    let (began, mut events) = (now(), 0);
    for partition in 0..PARTITIONS {
        let count = events_in(hub, partition).await;
        let group = ConsumerGroup::default_group();
        let mut receiver = receiver(hub, &group, partition, StartPosition::Earliest).await;
        read(&mut *receiver, count).await;
        events += count;
    }
    (since(began), events)
}

async fn by_reader(hub: &Hub) -> (Duration, u64) {
    let (began, mut events) = (now(), 0);
    for partition in 0..PARTITIONS {
        let count = events_in(hub, partition).await;
        read_native(&mut native(hub, partition, StartPosition::Earliest).await, count).await;
        events += count;
    }
    (since(began), events)
}

/// A receiver waits at each partition while 64 senders send; the time ends when all events are received.
pub(crate) fn while_sending(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let folder = options.folder(2 * SENT_BYTES)?;
    let load = Load::usual(SENT_BYTES / EVENT_BYTES as u64);
    let (mut with, mut without) = (Vec::new(), Vec::new());
    for round in 1..=RUNS {
        progress(&format!("read while sending: round {round} of {RUNS}"));
        with.push(send_and_receive(&folder.path().join("with"), load, true)?.as_secs_f64());
        without.push(send_and_receive(&folder.path().join("without"), load, false)?.as_secs_f64());
    }
    let rate = |times: &[f64]| load.events as f64 / median(times);
    Ok(vec![Figure::rates("send and receive, on disk / only send", rate(&with), rate(&without))])
}

fn send_and_receive(folder: &Path, load: Load, receive: bool) -> Result<Duration, BoxError> {
    std::fs::create_dir_all(folder)?;
    let subject = Subject::open(folder, Durability::Disk, PARTITIONS)?;
    let hub = Arc::new(subject.hub.clone());
    let took = runtime()?.block_on(async {
        let mut receivers = JoinSet::new();
        for partition in (0..PARTITIONS).filter(|_| receive) {
            let group = ConsumerGroup::default_group();
            let mut receiver = receiver(&hub, &group, partition, StartPosition::Earliest).await;
            // Batches go to the partitions in turn.
            let (batches, partition) = (load.events / load.batch, u64::from(partition));
            let mine = (batches + u64::from(PARTITIONS) - 1 - partition) / u64::from(PARTITIONS) * load.batch;
            receivers.spawn(async move { read(&mut *receiver, mine).await });
        }
        let began = now();
        send(&hub, load).await;
        receivers.join_all().await;
        since(began)
    });
    subject.close()?;
    std::fs::remove_dir_all(folder)?;
    Ok(took)
}
