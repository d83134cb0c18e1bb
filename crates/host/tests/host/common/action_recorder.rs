//! Test helper: records all actions of processors, hosts and the store in one order. Also starts hosts, sends
//! events, and waits until they are finished.

#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]
#![allow(clippy::unwrap_used, reason = "a test that cannot go on should stop")]

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ephor::NewEvent;
use ephor::environment::Environment;
use ephor::memory::{MemoryStore, StoreEvent};
use ephor::{
    BoxError, Checkpoint, CloseReason, Epoch, ErrorHandler, Event, EventProcessor, EventProcessorOptions,
    HostError, Monotonic, PartitionContext, PartitionError, PartitionId, PartitionManagerOptions,
    SequenceNumber,
};
use ephor_core::BoxFuture;
use ephor_core::history::ChangeReason;
use ephor_testkit::TestFleet;

pub const P0: PartitionId = PartitionId(0);

pub fn seconds(n: u64) -> Duration {
    Duration::from_secs(n)
}

pub fn millis(n: u64) -> Duration {
    Duration::from_millis(n)
}

/// One thing that happened to a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum What {
    Opened,
    /// A call of `process_events` began with these events.
    Delivered(Vec<u64>),
    /// It returned `Ok`.
    Finished(Vec<u64>),
    /// `process_error` received this.
    Told(String),
    /// `close` was called.
    Closing(CloseReason),
    /// `close` returned `Ok`.
    Closed(CloseReason),
    /// The store saved a checkpoint up to this event.
    Saved(Option<u64>),
    /// The store changed the owner.
    Changed(ChangeReason),
}

#[derive(Clone, Debug)]
pub struct Entry {
    pub at: Monotonic,
    /// The host that did it; for changes of owner, the new owner.
    pub host: String,
    pub partition: PartitionId,
    pub epoch: Epoch,
    pub what: What,
}

/// An error that a host reported to its error handler.
#[derive(Clone, Debug)]
pub struct Report {
    pub at: Monotonic,
    /// Its `Debug` text, which begins with the name of the variant.
    pub kind: String,
    /// Its `Display` text.
    pub text: String,
}

#[derive(Default)]
struct Pages {
    entries: Vec<Entry>,
    reports: Vec<Report>,
    contexts: BTreeMap<PartitionId, PartitionContext>,
}

#[derive(Clone)]
pub struct ActionRecorder {
    environment: Arc<dyn Environment>,
    pages: Arc<Mutex<Pages>>,
}

impl ActionRecorder {
    pub fn new(fleet: &TestFleet) -> Self {
        Self { environment: fleet.environment(), pages: Arc::default() }
    }

    /// A fleet of this many partitions whose store writes into the recorder, too.
    pub fn with_fleet(partitions: u32) -> (TestFleet, Self) {
        let fleet = TestFleet::new(partitions).unwrap();
        let recorder = Self::new(&fleet);
        let store = recorder.store();
        (fleet.with_store(Arc::new(store)), recorder)
    }

    /// A store that writes into the recorder.
    pub fn store(&self) -> MemoryStore {
        let recorder = self.clone();
        let observer = move |_: &_, event: &StoreEvent| match event {
            StoreEvent::Saved { token, checkpoint } => {
                let sequence = checkpoint.position.finished().map(|sequence| sequence.0);
                let host = token.owner.name.to_string();
                recorder.write(host, token.partition, token.epoch, What::Saved(sequence));
            }
            StoreEvent::Changed { change, .. } => {
                let host = change.to.as_ref().map_or("nobody".into(), |to| to.name.to_string());
                recorder.write(host, change.partition, change.epoch, What::Changed(change.reason.clone()));
            }
            StoreEvent::Renewed { .. } => {}
        };
        MemoryStore::new(self.environment.clone()).with_observer(Arc::new(observer))
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap()
    }

    fn write(&self, host: String, partition: PartitionId, epoch: Epoch, what: What) {
        let at = self.environment.now();
        self.pages().entries.push(Entry { at, host, partition, epoch, what });
    }

    fn note(&self, context: &PartitionContext, what: What) {
        self.write(context.host().name.to_string(), context.partition(), context.epoch(), what);
    }

    pub fn now(&self) -> Monotonic {
        self.environment.now()
    }

    /// Options whose error handler writes into the recorder.
    pub fn options(&self) -> EventProcessorOptions {
        let recorder = self.clone();
        let on_error = ErrorHandler::new(move |error: &HostError| {
            let report = Report { at: recorder.now(), kind: format!("{error:?}"), text: error.to_string() };
            recorder.pages().reports.push(report);
        });
        EventProcessorOptions { on_error: Some(on_error), ..EventProcessorOptions::default() }
    }

    /// A processor that finishes everything at once.
    pub fn scribe(&self) -> Scribe {
        Scribe {
            recorder: self.clone(),
            work: Arc::new(|_, _| Box::pin(async { Ok(()) })),
            closing: Arc::new(|_, _| Box::pin(async { Ok(()) })),
        }
    }

    pub fn entries(&self) -> Vec<Entry> {
        self.pages().entries.clone()
    }

    /// The entries of one partition.
    pub fn of(&self, partition: PartitionId) -> Vec<Entry> {
        self.entries().into_iter().filter(|entry| entry.partition == partition).collect()
    }

    /// The first entry that matches.
    pub fn first(&self, mut wanted: impl FnMut(&Entry) -> bool) -> Option<Entry> {
        self.entries().into_iter().find(|entry| wanted(entry))
    }

    /// The events with which calls began, in order.
    pub fn delivered(&self, partition: PartitionId) -> Vec<u64> {
        self.flat(partition, |what| match what {
            What::Delivered(events) => events,
            _ => vec![],
        })
    }

    /// The same, for one host only.
    pub fn delivered_to(&self, host: &str, partition: PartitionId) -> Vec<u64> {
        let entries = self.of(partition).into_iter().filter(|entry| entry.host == host);
        entries
            .flat_map(|entry| if let What::Delivered(events) = entry.what { events } else { vec![] })
            .collect()
    }

    /// The events of calls that returned `Ok`, in order.
    pub fn finished(&self, partition: PartitionId) -> Vec<u64> {
        self.flat(partition, |what| match what {
            What::Finished(events) => events,
            _ => vec![],
        })
    }

    /// The checkpoints that the store saved, in order.
    pub fn saved(&self, partition: PartitionId) -> Vec<u64> {
        self.flat(partition, |what| match what {
            What::Saved(Some(sequence)) => vec![sequence],
            _ => vec![],
        })
    }

    /// The reasons with which `close` was called, in order.
    pub fn closings(&self, partition: PartitionId) -> Vec<CloseReason> {
        let entries = self.of(partition).into_iter();
        entries
            .filter_map(|entry| if let What::Closing(reason) = entry.what { Some(reason) } else { None })
            .collect()
    }

    fn flat(&self, partition: PartitionId, pick: impl Fn(What) -> Vec<u64>) -> Vec<u64> {
        self.of(partition).into_iter().flat_map(|entry| pick(entry.what)).collect()
    }

    /// The reports of this kind.
    pub fn reports(&self, kind: &str) -> Vec<Report> {
        let reports = self.pages().reports.clone();
        reports.into_iter().filter(|report| report.kind.starts_with(kind)).collect()
    }

    /// All reports.
    pub fn all_reports(&self) -> Vec<Report> {
        self.pages().reports.clone()
    }

    /// The newest context of a partition, kept for too long as a careless processor might.
    pub fn context(&self, partition: PartitionId) -> PartitionContext {
        self.pages().contexts.get(&partition).cloned().unwrap()
    }

    pub fn clear(&self) {
        let mut pages = self.pages();
        pages.entries.clear();
        pages.reports.clear();
    }
}

type Work =
    Arc<dyn Fn(PartitionContext, Vec<Event>) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;
type Closing =
    Arc<dyn Fn(PartitionContext, CloseReason) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// A processor that records everything.
#[derive(Clone)]
pub struct Scribe {
    recorder: ActionRecorder,
    work: Work,
    closing: Closing,
}

impl Scribe {
    /// Runs this for every batch.
    pub fn working<F>(self, work: impl Fn(PartitionContext, Vec<Event>) -> F + Send + Sync + 'static) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self { work: Arc::new(move |context, events| Box::pin(work(context, events))), ..self }
    }

    /// Runs this in `close`.
    pub fn closing<F>(
        self,
        closing: impl Fn(PartitionContext, CloseReason) -> F + Send + Sync + 'static,
    ) -> Self
    where
        F: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self { closing: Arc::new(move |context, reason| Box::pin(closing(context, reason))), ..self }
    }

    /// Takes this long for every batch.
    pub fn taking(self, time: Duration) -> Self {
        let environment = self.recorder.environment.clone();
        self.working(move |_, _| {
            let done = environment.sleep_until(environment.now() + time);
            async move {
                done.await;
                Ok(())
            }
        })
    }
}

impl EventProcessor for Scribe {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        self.recorder.pages().contexts.insert(context.partition(), context.clone());
        self.recorder.note(context, What::Opened);
        Ok(())
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence.0).collect();
        self.recorder.note(context, What::Delivered(numbers.clone()));
        (self.work)(context.clone(), events.to_vec()).await?;
        self.recorder.note(context, What::Finished(numbers));
        Ok(())
    }

    async fn process_error(&mut self, context: &PartitionContext, error: &PartitionError) {
        self.recorder.note(context, What::Told(format!("{error:?}")));
    }

    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        self.recorder.note(context, What::Closing(reason));
        (self.closing)(context.clone(), reason).await?;
        self.recorder.note(context, What::Closed(reason));
        Ok(())
    }
}

/// Starts a host with default options for its manager.
pub async fn start(fleet: &mut TestFleet, name: &str, options: EventProcessorOptions, scribe: &Scribe) {
    start_with(fleet, name, options, PartitionManagerOptions::default(), scribe).await;
}

pub async fn start_with(
    fleet: &mut TestFleet,
    name: &str,
    options: EventProcessorOptions,
    manager: PartitionManagerOptions,
    scribe: &Scribe,
) {
    let scribe = scribe.clone();
    let finish = |host: ephor::HostBuilder| {
        host.options(options).manager_options(manager).processor(move |_| scribe.clone())
    };
    fleet.start(name, finish).await.unwrap();
}

/// Sends this many events as one batch, and returns the number of the last one.
pub fn send(fleet: &TestFleet, partition: PartitionId, events: u64) -> u64 {
    let first =
        fleet.hub().send_batch(partition, (0..events).map(|n| NewEvent::new(format!("{n}")))).unwrap();
    first.0 + events - 1
}

/// Waits until an owner has finished this event and those before it.
pub async fn until_finished(
    fleet: &TestFleet,
    recorder: &ActionRecorder,
    partition: PartitionId,
    sequence: u64,
) {
    let what = format!("event {sequence} of partition {partition} was not finished");
    fleet.until(&what, || recorder.finished(partition).contains(&sequence)).await.unwrap();
}

/// The stored checkpoint.
pub async fn stored(fleet: &TestFleet, partition: PartitionId) -> Option<Checkpoint> {
    let view = fleet.store().view(fleet.group()).await.unwrap();
    view.checkpoint(partition).cloned()
}

/// The last finished event by the stored checkpoint.
pub async fn stored_sequence(fleet: &TestFleet, partition: PartitionId) -> Option<u64> {
    stored(fleet, partition).await?.position.finished().map(|SequenceNumber(number)| number)
}

/// The name of the owner in the store.
pub async fn owner(fleet: &TestFleet, partition: PartitionId) -> Option<String> {
    let view = fleet.store().view(fleet.group()).await.unwrap();
    Some(view.lease(partition)?.owner.as_ref()?.name.to_string())
}

/// The events from `first` to `last`.
pub fn events(first: u64, last: u64) -> Vec<u64> {
    (first..=last).collect()
}
