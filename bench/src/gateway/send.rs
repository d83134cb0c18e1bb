//! Benchmark of sending batches that are acknowledged from disk: over AMQP, compared with the hub in the
//! same process.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephor::BoxError;
use ephor_eventhubs::{EventHub, EventHubProducer, Target};
use ephor_hub::Durability;
use tokio::task::JoinSet;

use super::dev::{Dev, HUB};
use super::our_client::{Run, Typical, measured, runtime};
use crate::figures::{Bound, Figure, RUNS, progress};
use crate::hub::hub_under_test::{self, EVENT_BYTES, Load, PARTITIONS, Subject, event};
use crate::machine::cpu_time;
use crate::options::Options;

const DEFAULT_MIB: u64 = 256;

pub(crate) fn durable(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let bytes = options.mib.unwrap_or(DEFAULT_MIB) << 20;
    let folder = options.folder(2 * (bytes + (64 << 20)))?;
    let load = Load::usual(bytes / EVENT_BYTES as u64);
    let runtime = runtime()?;
    let (mut over_amqp, mut in_process) = (Vec::new(), Vec::new());
    for round in 1..=RUNS {
        progress(&format!("send: round {round} of {RUNS}"));
        let data = folder.path().join("dev");
        let dev = Dev::start(&data, PARTITIONS)?;
        over_amqp.push(runtime.block_on(send(&dev, load))?);
        drop(dev);
        std::fs::remove_dir_all(data)?;
        let data = folder.path().join("hub");
        std::fs::create_dir_all(&data)?;
        in_process.push(without_amqp(&data, load)?);
        std::fs::remove_dir_all(data)?;
    }
    let [over_amqp, in_process] = [&over_amqp, &in_process].map(|runs| Typical::of(runs));
    over_amqp.line("send over AMQP, 64 senders with batches of 32");
    in_process.line("  the same in the hub's own process");
    Ok(vec![
        Figure::rates(
            "send over AMQP, on disk / the hub in its own process",
            over_amqp.rate,
            in_process.rate,
        )
        .must_be(Bound::AtLeast(0.5)),
        Figure::times(
            "  CPU time per event, both ends / only the hub",
            over_amqp.processor(),
            in_process.processor(),
        ),
    ])
}

async fn send(dev: &Dev, load: Load) -> Result<Run, BoxError> {
    let client = EventHub::builder(&dev.connection).hub(HUB).build()?;
    let producer = client.producer();
    // Connects before the measurement.
    producer.send_batch(Target::Any, [event()]).await?;
    measured(dev, load.events, batches(producer, load)).await
}

async fn batches(producer: EventHubProducer, load: Load) -> Result<(), BoxError> {
    let sent = Arc::new(AtomicU64::new(0));
    let mut senders = JoinSet::new();
    for _ in 0..load.senders {
        let (producer, sent) = (producer.clone(), sent.clone());
        senders.spawn(async move {
            while sent.fetch_add(1, Ordering::Relaxed) < load.events / load.batch {
                producer.send_batch(Target::Any, (0..load.batch).map(|_| event())).await?;
            }
            Ok::<(), BoxError>(())
        });
    }
    senders.join_all().await.into_iter().collect()
}

fn without_amqp(folder: &std::path::Path, load: Load) -> Result<Run, BoxError> {
    let subject = Subject::open(folder, Durability::Disk, PARTITIONS)?;
    let runtime = hub_under_test::runtime()?;
    let before = cpu_time(std::process::id());
    let took = runtime.block_on(hub_under_test::send(&subject.hub, load));
    let server = cpu_time(std::process::id()).saturating_sub(before);
    subject.close()?;
    Ok(Run { events: load.events, took, server, client: std::time::Duration::ZERO })
}
