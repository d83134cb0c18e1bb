//! The two programs that are compared: a host with an empty processor, and a plain loop that receives the
//! same events and ignores them.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ephor::NewEvent;
use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{
    BoxError, Event, EventProcessor, EventProcessorHost, EventSource, PartitionContext, PartitionId,
};
use ephor_core::ids::ConsumerGroup;
use ephor_core::position::StartPosition;
use ephor_core::source::OpenRequest;
use ephor_core::time::{Clock, Monotonic};
use tokio::sync::Notify;

use crate::counting_allocator::allocations;

/// Events in a batch.
pub(crate) const BATCH: usize = 100;

#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Subject {
    Host,
    Loop,
}

impl Subject {
    pub(crate) fn named(name: &str) -> Option<Self> {
        [Self::Host, Self::Loop].into_iter().find(|subject| subject.name() == name)
    }

    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Host => "with",
            Self::Loop => "without",
        }
    }
}

/// The cost of a run.
#[derive(Clone, Copy)]
pub(crate) struct Cost {
    pub(crate) time: Duration,
    /// Per event.
    pub(crate) allocations: f64,
}

/// The clock and the count of allocations at one moment.
#[derive(Clone, Copy)]
struct Mark(Monotonic, u64);

impl Mark {
    fn now() -> Self {
        Self(ephor::environment::SystemClock.now(), allocations())
    }

    fn cost_until(self, end: Self, events: u64) -> Cost {
        Cost { time: end.0.since(self.0), allocations: (end.1 - self.1) as f64 / events as f64 }
    }
}

/// Reads `events` events from a hub in memory, and measures from the second batch on.
pub(crate) fn run(subject: Subject, events: u32) -> Cost {
    let hub = MemoryHub::new("bench", 1).expect("a valid name");
    let body = Bytes::from_static(&[7; 100]);
    let batch = (0..events).map(|_| NewEvent::new(body.clone()));
    hub.send_batch(PartitionId(0), batch).expect("the hub is up");
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
    runtime.block_on(async {
        match subject {
            Subject::Host => with_host(hub, events).await,
            Subject::Loop => without(hub, events).await,
        }
    })
}

/// A processor that does nothing but measure from the first batch to the last.
struct Nothing {
    seen: u64,
    events: u64,
    start: Option<Mark>,
    done: Arc<Done>,
}

#[derive(Default)]
struct Done {
    bell: Notify,
    cost: std::sync::Mutex<Option<Cost>>,
}

impl EventProcessor for Nothing {
    async fn process_events(&mut self, _: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let start = *self.start.get_or_insert_with(Mark::now);
        self.seen += events.len() as u64;
        if self.seen >= self.events {
            let cost = start.cost_until(Mark::now(), self.events - BATCH as u64);
            *self.done.cost.lock().expect("no task panics") = Some(cost);
            self.done.bell.notify_one();
        }
        Ok(())
    }
}

async fn with_host(hub: MemoryHub, events: u32) -> Cost {
    let done = Arc::new(Done::default());
    let told = done.clone();
    let host = EventProcessorHost::builder(hub, MemoryStore::default())
        .processor(move |_| Nothing { seen: 0, events: u64::from(events), start: None, done: told.clone() })
        .expect("valid options");
    host.start().await.expect("the hub is up");
    done.bell.notified().await;
    drop(host);
    done.cost.lock().expect("no task panics").take().expect("the signal arrived")
}

async fn without(hub: MemoryHub, events: u32) -> Cost {
    let request = OpenRequest {
        group: ConsumerGroup::default_group(),
        partition: PartitionId(0),
        start: StartPosition::Earliest,
        epoch: None,
        receiver: "loop".into(),
        prefetch_events: BATCH,
        prefetch_bytes: usize::MAX,
    };
    let mut receiver = hub.open(request).await.expect("the hub is up");
    let (mut batch, mut seen, mut start) = (Vec::with_capacity(BATCH), 0, None);
    while seen < u64::from(events) {
        batch.clear();
        receiver.receive(&mut batch, BATCH).await.expect("the hub is up");
        start.get_or_insert_with(Mark::now);
        seen += std::hint::black_box(&batch).len() as u64;
    }
    let start = start.expect("there were events");
    start.cost_until(Mark::now(), u64::from(events) - BATCH as u64)
}
