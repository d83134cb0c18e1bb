//! Measures the rate and the CPU time of both ends: of any work against `ephor dev`, for all benchmarks of
//! AMQP, and of receiving with Ephor's client over one connection.

use std::future::Future;
use std::time::Duration;

use ephor::BoxError;
use ephor_core::event::Event;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::EventHub;
use tokio::runtime::Runtime;

use super::dev::{Dev, HUB};
use crate::figures::{median, per_second, time};
use crate::machine::{cpu_time, now, since};

/// The batch size, and the prefetch.
const MAX_EVENTS: usize = 1_000;
const PREFETCH: usize = 3_000;

/// One measured run from the server to the client.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Run {
    pub(crate) events: u64,
    pub(crate) took: Duration,
    /// The CPU time of the two ends.
    pub(crate) server: Duration,
    pub(crate) client: Duration,
}

impl Run {
    pub(crate) fn rate(&self) -> f64 {
        self.events as f64 / self.took.as_secs_f64()
    }

    fn per_event(&self, what: Duration) -> f64 {
        what.as_secs_f64() / self.events as f64
    }
}

/// The medians of several runs.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Typical {
    pub(crate) rate: f64,
    server: f64,
    client: f64,
}

impl Typical {
    pub(crate) fn of(runs: &[Run]) -> Self {
        let middle = |of: &dyn Fn(&Run) -> f64| median(&runs.iter().map(of).collect::<Vec<_>>());
        Self {
            rate: middle(&Run::rate),
            server: middle(&|run| run.per_event(run.server)),
            client: middle(&|run| run.per_event(run.client)),
        }
    }

    /// The CPU time of both ends for an event.
    pub(crate) fn processor(&self) -> Duration {
        Duration::from_secs_f64(self.server + self.client)
    }

    /// Prints `123,456/s, CPU time for an event: server 1.00 µs, client 1.20 µs`.
    pub(crate) fn line(&self, name: &str) {
        let [server, client] =
            [self.server, self.client].map(|seconds| time(Duration::from_secs_f64(seconds)));
        let rate = per_second(self.rate);
        println!("{name:<46}{rate:>14}   CPU time for an event: server {server}, client {client}");
    }
}

/// A runtime with threads as an application would have.
pub(crate) fn runtime() -> Result<Runtime, BoxError> {
    Ok(tokio::runtime::Builder::new_multi_thread().enable_all().build()?)
}

/// Measures a piece of work with `ephor dev` at the other end.
pub(crate) async fn measured<F>(dev: &Dev, events: u64, work: F) -> Result<Run, BoxError>
where
    F: Future<Output = Result<(), BoxError>>,
{
    let before = [dev.process(), std::process::id()].map(cpu_time);
    let began = now();
    work.await?;
    let took = since(began);
    let after = [dev.process(), std::process::id()].map(cpu_time);
    let [server, client] = [after[0].saturating_sub(before[0]), after[1].saturating_sub(before[1])];
    Ok(Run { events, took, server, client })
}

/// Reads partition 0 from its beginning over a new connection, and measures it from the first event on.
pub(crate) async fn receive(dev: &Dev, events: u64) -> Result<Run, BoxError> {
    let client = EventHub::builder(&dev.connection).hub(HUB).build()?;
    let request = OpenRequest {
        group: ConsumerGroup::default_group(),
        partition: PartitionId(0),
        start: StartPosition::Earliest,
        epoch: None,
        receiver: "bench".into(),
        prefetch_events: PREFETCH,
        prefetch_bytes: usize::MAX,
    };
    let mut receiver = client.open(request).await?;
    let mut batch = Vec::<Event>::with_capacity(MAX_EVENTS);
    receiver.receive(&mut batch, 1).await?;
    let run = measured(dev, events, async {
        let mut seen = 0;
        while seen < events {
            batch.clear();
            receiver.receive(&mut batch, MAX_EVENTS).await?;
            seen += std::hint::black_box(&batch).len() as u64;
        }
        Ok(())
    });
    run.await
}
