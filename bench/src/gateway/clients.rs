//! Benchmark of receiving: the rate and CPU time of an Ephor host, compared with the official Python and
//! JavaScript clients on the same `ephor dev`.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use ephor::BoxError;
use ephor::memory::MemoryStore;
use ephor::{Event, EventProcessor, EventProcessorHost, EventProcessorOptions, PartitionContext};
use ephor_eventhubs::EventHub;
use tokio::sync::Notify;

use super::dev::{Dev, HUB};
use super::other_clients;
use super::our_client::{Run, Typical, measured, runtime};
use super::receive::fill;
use crate::figures::{Bound, Figure, RUNS, progress};
use crate::hub::hub_under_test::EVENT_BYTES;
use crate::options::Options;

const DEFAULT_MIB: u64 = 384;
/// The number of events that the others read: enough for some seconds.
const PYTHON_EVENTS: u64 = 15_000;
const JAVASCRIPT_EVENTS: u64 = 40_000;

pub(crate) fn beside(options: &Options) -> Result<Vec<Figure>, BoxError> {
    let bytes = options.mib.unwrap_or(DEFAULT_MIB) << 20;
    let events = bytes / EVENT_BYTES as u64;
    let folder = options.folder(bytes + bytes / 4 + (64 << 20))?;
    let runtime = runtime()?;
    progress("clients: filling a partition");
    runtime.block_on(fill(folder.path(), events))?;
    let dev = Dev::start(folder.path(), 1)?;
    let (mut ours, mut python, mut javascript) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=RUNS {
        progress(&format!("clients: round {round} of {RUNS}"));
        ours.push(runtime.block_on(host(&dev, events - events / 64))?);
        python.push(other_clients::python(&dev, PYTHON_EVENTS.min(events / 2))?);
        javascript.push(other_clients::javascript(&dev, JAVASCRIPT_EVENTS.min(events / 2))?);
    }
    let [ours, python, javascript] = [&ours, &python, &javascript].map(|runs| Typical::of(runs));
    ours.line("our host");
    python.line("  azure-eventhub 5.15.1 (Python)");
    javascript.line("  @azure/event-hubs 6.0.4 (JavaScript)");
    Ok(vec![
        Figure::rates("our host / azure-eventhub (Python)", ours.rate, python.rate)
            .must_be(Bound::AtLeast(20.0)),
        Figure::rates("our host / @azure/event-hubs (JavaScript)", ours.rate, javascript.rate)
            .must_be(Bound::AtLeast(10.0)),
    ])
}

/// Counts events, and signals the first and the last.
struct Counting {
    seen: Arc<AtomicU64>,
    wanted: u64,
    begun: Arc<Notify>,
    done: Arc<Notify>,
}

impl EventProcessor for Counting {
    async fn process_events(&mut self, _: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let before = self.seen.fetch_add(events.len() as u64, Ordering::Relaxed);
        if before == 0 {
            self.begun.notify_one();
        }
        if before + events.len() as u64 >= self.wanted {
            self.done.notify_one();
        }
        Ok(())
    }
}

/// Measures a single host on the hub, from its first batch on.
async fn host(dev: &Dev, events: u64) -> Result<Run, BoxError> {
    let source = EventHub::builder(&dev.connection).hub(HUB).build()?;
    let (seen, begun, done) = (Arc::new(AtomicU64::new(0)), Arc::new(Notify::new()), Arc::new(Notify::new()));
    let told = (seen.clone(), begun.clone(), done.clone());
    // The same batch size and prefetch as for the others.
    let options =
        EventProcessorOptions { max_batch_size: 1_000, prefetch_count: 3_000, ..Default::default() };
    let host = EventProcessorHost::builder(source, MemoryStore::default()).options(options).processor(
        move |_| {
            let (seen, begun, done) = told.clone();
            Counting { seen, wanted: events, begun, done }
        },
    )?;
    host.start().await?;
    begun.notified().await;
    let missed = seen.load(Ordering::Relaxed);
    let run = measured(dev, events - missed, async {
        done.notified().await;
        Ok(())
    });
    let run = run.await?;
    host.stop(std::time::Duration::from_secs(5)).await?;
    Ok(run)
}
