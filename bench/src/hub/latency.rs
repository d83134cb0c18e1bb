//! Measures latency at light load, from the call of `send` to a waiting receiver, compared with a bare
//! append and sync.

use std::path::Path;
use std::time::Duration;

use ephor::BoxError;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::time::Monotonic;
use ephor_hub::{Durability, Hub, HubProducer};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use super::hub_under_test::{EVENT_BYTES, Subject, event, native, runtime};
use super::raw_disk::SingleAppends;
use crate::figures::{Figure, progress, quantile};
use crate::machine::{now, pause};
use crate::options::Options;

/// The number of events. Ours and the other measurements alternate with each event.
const EVENTS: usize = 1000;
const NEEDED: u64 = 64 << 20;

/// All times of one kind of load.
#[derive(Default)]
struct Times {
    ours: Vec<Duration>,
    growing: Vec<Duration>,
    in_room: Vec<Duration>,
}

pub(crate) fn light_load(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let mut figures = Vec::new();
    for (name, between) in [("back to back", Duration::ZERO), ("one each 5 ms", Duration::from_millis(5))] {
        progress(&format!("latency: {name}"));
        let folder = options.folder(NEEDED)?;
        let subject = Subject::open(folder.path(), Durability::Disk, 1)?;
        let (runtime, hub, path) = (runtime()?, subject.hub.clone(), folder.path().to_owned());
        // In a task, as an application sends; the thread that blocks on the runtime is not a worker.
        let task = runtime.spawn(async move { in_turn(hub, &path, between).await });
        let times = runtime.block_on(task)??;
        subject.close()?;
        for (other, bare) in
            [("pwrite + fdatasync", &times.growing), ("the same, preallocated", &times.in_room)]
        {
            for (quantile_name, share) in [("p50", 0.5), ("p99", 0.99)] {
                figures.push(Figure::times(
                    format!("send to receive, {name}, {quantile_name} / {other}"),
                    quantile(&times.ours, share),
                    quantile(bare, share),
                ));
            }
        }
    }
    Ok(figures)
}

async fn in_turn(hub: Hub, folder: &Path, between: Duration) -> Result<Times, BoxError> {
    let mut growing = SingleAppends::to(&folder.join("growing"), EVENT_BYTES, false)?;
    let mut in_room = SingleAppends::to(&folder.join("in-room"), EVENT_BYTES, true)?;
    let (mut ours, mut times) = (RoundTrips::begin(&hub).await, Times::default());
    let rest = async || {
        if !between.is_zero() {
            pause(between).await;
        }
    };
    for _ in 0..EVENTS {
        times.ours.push(ours.one().await?);
        rest().await;
        times.growing.push(growing.append()?);
        rest().await;
        times.in_room.push(in_room.append()?);
        rest().await;
    }
    Ok(times)
}

/// A sender, and a waiting receiver.
struct RoundTrips {
    producer: HubProducer,
    arrived: mpsc::UnboundedReceiver<Monotonic>,
    _reading: JoinSet<()>,
}

impl RoundTrips {
    async fn begin(hub: &Hub) -> Self {
        let mut receiver = native(hub, 0, StartPosition::Latest).await;
        let (tell, arrived) = mpsc::unbounded_channel();
        let mut reading = JoinSet::new();
        reading.spawn(async move {
            while receiver.next(1, usize::MAX).await.is_ok() && tell.send(now()).is_ok() {}
        });
        Self { producer: hub.producer(), arrived, _reading: reading }
    }

    /// The time of one event from the call to the receiver.
    async fn one(&mut self) -> Result<Duration, BoxError> {
        let began = now();
        self.producer.send_to(PartitionId(0), event()).await?;
        Ok(self.arrived.recv().await.ok_or("the receiver ended")?.since(began))
    }
}
