//! Measures the cost of idle partitions: memory, and threads that wake up.

use std::time::Duration;

use ephor::BoxError;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_hub::Durability;
use tokio::task::JoinSet;

use super::hub_under_test::{Subject, event, receiver, runtime};
use crate::figures::{Bound, Figure, progress, size};
use crate::machine::{resident_bytes, sleep, wake_ups_of_others};
use crate::options::Options;

const PARTITIONS: u32 = 1024;
const MAX_BYTES: f64 = 100.0 * 1_048_576.0;
const WATCHED: Duration = Duration::from_secs(10);
/// The time until busy threads have gone to sleep.
const SETTLING: Duration = Duration::from_secs(2);

/// Must run before anything else has used memory: memory that the allocator keeps would hide the increase.
pub(crate) fn idle(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let folder = options.folder(256 << 20)?;
    let runtime = runtime()?;
    let before = resident_bytes();
    let subject = Subject::open(folder.path(), Durability::Disk, PARTITIONS)?;
    // Each partition has been used once.
    runtime.block_on(async {
        let producer = subject.hub.producer();
        let mut sends = JoinSet::new();
        for partition in 0..PARTITIONS {
            let producer = producer.clone();
            sends.spawn(async move {
                producer.send_to(PartitionId(partition), event()).await.expect("the hub accepts events")
            });
        }
        sends.join_all().await;
    });
    let mut figures = watch("1,024 idle partitions", before)?;
    let mut receivers = JoinSet::new();
    runtime.block_on(async {
        for partition in 0..PARTITIONS {
            let group = ConsumerGroup::default_group();
            let mut receiver = receiver(&subject.hub, &group, partition, StartPosition::Latest).await;
            receivers.spawn(async move { receiver.receive(&mut Vec::new(), 1).await.map_err(|_| ()) });
        }
    });
    figures.extend(watch("1,024 idle partitions, a receiver waiting at each", before)?);
    if receivers.try_join_next().is_some() {
        return Err("a receiver ended although nothing was sent".into());
    }
    subject.close()?;
    Ok(figures)
}

fn watch(name: &str, before: u64) -> Result<Vec<Figure>, BoxError> {
    progress(&format!("{name}: watching for {} s", WATCHED.as_secs()));
    sleep(SETTLING);
    let more = resident_bytes().saturating_sub(before) as f64;
    let awake = wake_ups_of_others()?;
    if awake == 0 {
        return Err("no other thread has run, so its wake-ups cannot be counted".into());
    }
    sleep(WATCHED);
    let wake_ups = wake_ups_of_others()? - awake;
    Ok(vec![
        Figure::new(format!("{name}: memory"), size(more), size(MAX_BYTES), more / MAX_BYTES)
            .must_be(Bound::AtMost(1.0)),
        Figure::new("  wake-ups in 10 s / none", wake_ups.to_string(), "0".into(), wake_ups as f64)
            .must_be(Bound::AtMost(0.0)),
    ])
}
