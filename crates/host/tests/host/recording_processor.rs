//! Test helper: a processor that records every call, and follows a script.

#![allow(dead_code, reason = "each test file uses its own part")]

use std::collections::BTreeMap;
use std::future::Future;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ephor::environment::Environment;
use ephor::{
    BoxError, CloseReason, Epoch, ErrorHandler, Event, EventProcessor, HostError, PartitionContext,
    PartitionError, PartitionId,
};
use ephor_core::BoxFuture;
use tokio::time::Instant;

/// A call of a processor, or its success.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum Call {
    Made,
    Open,
    /// `process_events` begins, with these events.
    Batch(Vec<u64>),
    /// `process_events` returned `Ok`.
    Finished(Vec<u64>),
    Error(String),
    Close(CloseReason),
}

#[derive(Clone, Debug)]
pub(crate) struct Entry {
    pub(crate) host: String,
    pub(crate) partition: PartitionId,
    pub(crate) epoch: Epoch,
    /// The number of the processor's instance, from 1.
    pub(crate) instance: u64,
    pub(crate) at: Instant,
    pub(crate) call: Call,
}

type Script = Arc<dyn Fn(PartitionContext, Call) -> BoxFuture<'static, Result<(), BoxError>> + Send + Sync>;

/// Creates processors that share one log.
#[derive(Clone)]
pub(crate) struct Recorder {
    log: Arc<Mutex<Log>>,
    instances: Arc<AtomicU64>,
    script: Script,
}

#[derive(Default)]
struct Log {
    entries: Vec<Entry>,
    /// The reports of the host: the `Debug` text with all fields, and the text for people.
    reports: Vec<(String, String)>,
    running: BTreeMap<PartitionId, usize>,
    most_in_one_partition: usize,
    most_at_once: usize,
}

impl Recorder {
    /// All calls succeed at once.
    pub(crate) fn new() -> Self {
        Self::scripted(|_, _| async { Ok(()) })
    }

    /// The script runs at each call. A [`Call::Batch`] for which it returns `Ok` is finished.
    pub(crate) fn scripted<F, Fut>(script: F) -> Self
    where
        F: Fn(PartitionContext, Call) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<(), BoxError>> + Send + 'static,
    {
        Self {
            log: Arc::default(),
            instances: Arc::default(),
            script: Arc::new(move |context, call| Box::pin(script(context, call))),
        }
    }

    /// For [`ephor::HostBuilder::processor`].
    pub(crate) fn make(&self) -> impl Fn(&PartitionContext) -> Recording + Send + Sync + 'static {
        let recorder = self.clone();
        move |context| {
            let number = recorder.instances.fetch_add(1, Ordering::SeqCst) + 1;
            let recording = Recording { recorder: recorder.clone(), number };
            recording.note(context, Call::Made);
            recording
        }
    }

    /// For [`ephor::EventProcessorOptions::on_error`].
    pub(crate) fn on_error(&self) -> Option<ErrorHandler> {
        let log = self.log.clone();
        Some(ErrorHandler::new(move |error: &HostError| {
            log.lock().unwrap().reports.push((format!("{error:?}"), error.to_string()));
        }))
    }

    fn log(&self) -> MutexGuard<'_, Log> {
        self.log.lock().unwrap()
    }

    pub(crate) fn entries(&self) -> Vec<Entry> {
        self.log().entries.clone()
    }

    /// All calls for a partition.
    pub(crate) fn calls(&self, partition: u32) -> Vec<Call> {
        self.of(partition).map(|entry| entry.call).collect()
    }

    fn of(&self, partition: u32) -> impl Iterator<Item = Entry> {
        self.entries().into_iter().filter(move |entry| entry.partition == PartitionId(partition))
    }

    /// The events of all batches that began, in order, including repetitions.
    pub(crate) fn delivered(&self, partition: u32) -> Vec<u64> {
        let batch = |call| if let Call::Batch(events) = call { events } else { vec![] };
        self.calls(partition).into_iter().flat_map(batch).collect()
    }

    /// The events of all batches that were finished, in order.
    pub(crate) fn finished(&self, partition: u32) -> Vec<u64> {
        let batch = |call| if let Call::Finished(events) = call { events } else { vec![] };
        self.calls(partition).into_iter().flat_map(batch).collect()
    }

    /// The reason of each close.
    pub(crate) fn closes(&self, partition: u32) -> Vec<CloseReason> {
        let reason = |call| if let Call::Close(reason) = call { Some(reason) } else { None };
        self.calls(partition).into_iter().filter_map(reason).collect()
    }

    /// The errors that `process_error` received.
    pub(crate) fn heard(&self, partition: u32) -> Vec<String> {
        let text = |call| if let Call::Error(text) = call { Some(text) } else { None };
        self.calls(partition).into_iter().filter_map(text).collect()
    }

    /// The time of each matching call.
    pub(crate) fn times(&self, partition: u32, matches: impl Fn(&Call) -> bool) -> Vec<Instant> {
        self.of(partition).filter(|entry| matches(&entry.call)).map(|entry| entry.at).collect()
    }

    /// The number of reports of this kind to `on_error`, such as `Stuck`.
    pub(crate) fn reports(&self, kind: &str) -> usize {
        self.log().reports.iter().filter(|(debug, _)| debug.starts_with(kind)).count()
    }

    /// The texts of all reports to `on_error`.
    pub(crate) fn report_texts(&self) -> Vec<String> {
        self.log().reports.iter().map(|(_, text)| text.clone()).collect()
    }

    /// The most concurrent calls for one partition; more than one is wrong.
    pub(crate) fn most_in_one_partition(&self) -> usize {
        self.log().most_in_one_partition
    }

    /// The most concurrent calls.
    pub(crate) fn most_at_once(&self) -> usize {
        self.log().most_at_once
    }

    /// The number of calls in progress.
    pub(crate) fn running(&self) -> usize {
        self.log().running.values().sum()
    }
}

/// One instance.
pub(crate) struct Recording {
    recorder: Recorder,
    number: u64,
}

impl Recording {
    fn note(&self, context: &PartitionContext, call: Call) {
        self.recorder.log().entries.push(Entry {
            host: context.host().name.to_string(),
            partition: context.partition(),
            epoch: context.epoch(),
            instance: self.number,
            at: Instant::now(),
            call,
        });
    }

    async fn act(&self, context: &PartitionContext, call: Call) -> Result<(), BoxError> {
        self.note(context, call.clone());
        let _running = InCall::new(&self.recorder, context.partition());
        (self.recorder.script)(context.clone(), call).await
    }
}

/// Counts a call for as long as it lives, even if it is dropped half-way.
struct InCall {
    recorder: Recorder,
    partition: PartitionId,
}

impl InCall {
    fn new(recorder: &Recorder, partition: PartitionId) -> Self {
        let mut log = recorder.log();
        let here = log.running.entry(partition).or_default();
        *here += 1;
        let here = *here;
        log.most_in_one_partition = log.most_in_one_partition.max(here);
        log.most_at_once = log.most_at_once.max(log.running.values().sum());
        Self { recorder: recorder.clone(), partition }
    }
}

impl Drop for InCall {
    fn drop(&mut self) {
        *self.recorder.log().running.entry(self.partition).or_default() -= 1;
    }
}

impl EventProcessor for Recording {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        self.act(context, Call::Open).await
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let numbers = numbers(events);
        self.act(context, Call::Batch(numbers.clone())).await?;
        self.note(context, Call::Finished(numbers));
        Ok(())
    }

    async fn process_error(&mut self, context: &PartitionContext, error: &PartitionError) {
        // Its result does not matter; it may panic.
        let _ = self.act(context, Call::Error(error.to_string())).await;
    }

    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        self.act(context, Call::Close(reason)).await
    }
}

/// A future that sleeps, for a script.
pub(crate) fn sleep(environment: &Arc<dyn Environment>, time: Duration) -> BoxFuture<'static, ()> {
    environment.sleep_until(environment.now() + time)
}

pub(crate) fn numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.sequence.0).collect()
}
