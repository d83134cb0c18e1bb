//! Measures how long each partition is not read while one host stops and another is ready.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor::memory::MemoryHub;
use ephor::{
    BoxError, CloseReason, Event, EventProcessor, EventProcessorHost, Monotonic, NewEvent, PartitionContext,
    PartitionId, Store,
};

use crate::machine::{now, pause};

pub(crate) const PARTITIONS: u32 = 16;
/// The interval between two events of a partition, which is the precision of the measurement.
const APART: Duration = Duration::from_millis(1);
/// The time limit for everything here.
const PATIENCE: Duration = Duration::from_secs(60);

/// The times at which partitions were closed by the first host, and read again by the second.
#[derive(Default)]
struct Notes {
    closed: BTreeMap<PartitionId, Monotonic>,
    read_again: BTreeMap<PartitionId, Monotonic>,
    first_host_reads: BTreeMap<PartitionId, ()>,
}

struct TimedProcessor {
    leaves: bool,
    notes: Arc<Mutex<Notes>>,
}

impl EventProcessor for TimedProcessor {
    async fn process_events(&mut self, context: &PartitionContext, _: &[Event]) -> Result<(), BoxError> {
        let mut notes = self.notes.lock().map_err(|_| "a processor panicked")?;
        if self.leaves {
            notes.first_host_reads.insert(context.partition(), ());
        } else if notes.closed.contains_key(&context.partition()) {
            notes.read_again.entry(context.partition()).or_insert_with(now);
        }
        Ok(())
    }

    async fn close(&mut self, context: &PartitionContext, _: CloseReason) -> Result<(), BoxError> {
        if self.leaves {
            self.notes.lock().map_err(|_| "a processor panicked")?.closed.insert(context.partition(), now());
        }
        Ok(())
    }
}

/// For each partition of the first host, the time from the end of its `close` to the second host's first
/// event.
pub(crate) async fn release_to_first_event(
    round: usize,
    one: Arc<dyn Store>,
    other: Arc<dyn Store>,
) -> Result<Vec<Duration>, BoxError> {
    let hub = MemoryHub::new(&format!("moves-{round}"), PARTITIONS)?;
    let notes = Arc::new(Mutex::new(Notes::default()));
    let host = |name: &str, leaves: bool, store: Arc<dyn Store>| {
        let notes = notes.clone();
        EventProcessorHost::builder(hub.clone(), store)
            .host_name(name)
            .processor(move |_| TimedProcessor { leaves, notes: notes.clone() })
    };
    let (first, second) = (host("leaves", true, one)?, host("stays", false, other)?);
    let senders = send(hub.clone());
    let work = async {
        first.start().await?;
        until("the first host reads", || reads(&notes) == PARTITIONS as usize).await?;
        second.start().await?;
        // Half of them move to balance the load; then nothing moves any more.
        until("the load is shared", || owned(&first) == (PARTITIONS / 2) as usize).await?;
        notes.lock().map_err(|_| "a processor panicked")?.closed.clear();
        notes.lock().map_err(|_| "a processor panicked")?.read_again.clear();
        first.stop(Duration::from_secs(10)).await?;
        let moved =
            || notes.lock().map(|notes| (notes.closed.len(), notes.read_again.len())).unwrap_or_default();
        until("the second host reads all", || moved().0 > 0 && moved().0 == moved().1).await?;
        second.stop(Duration::from_secs(10)).await?;
        Ok::<(), BoxError>(())
    };
    tokio::select! {
        biased;
        done = work => done?,
        failed = senders => failed?,
    }
    let notes = notes.lock().map_err(|_| "a processor panicked")?;
    Ok(notes.closed.iter().map(|(id, closed)| notes.read_again[id].since(*closed)).collect())
}

fn owned(host: &EventProcessorHost) -> usize {
    host.snapshot().map_or(0, |snapshot| snapshot.partitions.len())
}

fn reads(notes: &Mutex<Notes>) -> usize {
    notes.lock().map(|notes| notes.first_host_reads.len()).unwrap_or_default()
}

async fn send(hub: MemoryHub) -> Result<(), BoxError> {
    loop {
        for partition in 0..PARTITIONS {
            hub.send_batch(PartitionId(partition), [NewEvent::new("tick")])?;
        }
        pause(APART).await;
    }
}

async fn until(what: &str, mut done: impl FnMut() -> bool) -> Result<(), BoxError> {
    let began = now();
    while !done() {
        if now().since(began) > PATIENCE {
            return Err(format!("timeout after {PATIENCE:?}: {what}").into());
        }
        pause(Duration::from_millis(5)).await;
    }
    Ok(())
}
