//! A user's own parts of a simulation: a processor, a store, bodies of events, and conditions that must hold
//! in the end. Without a processor, the simulation's own runs (`processor.rs`).

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ephor::memory::MemoryHub;
use ephor::{
    BuildError, Event, EventProcessorHost, EventProcessorOptions, EventSource, HostBuilder, PartitionId,
    SequenceNumber, StartPosition,
};
use ephor_core::source::OpenRequest;
use ephor_core::store::Store;
use ephor_core::time::Clock;
use futures_util::FutureExt;

use crate::events::log_generation_of;
use crate::judge::{FinalState, Judge, Promise};
use crate::observed_processor::CallObserver;

/// Builds a host with the user's processor, watched by the judge.
pub(crate) type Build =
    Arc<dyn Fn(HostBuilder, CallObserver) -> Result<EventProcessorHost, BuildError> + Send + Sync>;
/// Makes the user's store, on the store's clock.
pub(crate) type MakeStore = Arc<dyn Fn(Arc<dyn Clock>) -> Arc<dyn Store> + Send + Sync>;
/// The body of an event, by its number.
pub(crate) type Body = Arc<dyn Fn(u32) -> Bytes + Send + Sync>;
/// A condition that must hold for every event in the end.
pub(crate) type Condition = Arc<dyn Fn(PartitionId, &Event) -> bool + Send + Sync>;
/// Events that the failure policy skipped, by the generation of the hub's log.
pub(crate) type Skipped = BTreeSet<(usize, PartitionId, SequenceNumber)>;

/// A consumer group of its own for reading the results, so that no other reader is disconnected.
const AUDIT: &str = "audit";
/// At most this many events are read at a time.
const MAX_READ: usize = 1_000;

/// The parts of a run that are the user's. The simulation supplies all others.
#[derive(Clone, Default)]
pub(crate) struct UserCode {
    pub(crate) build: Option<Build>,
    pub(crate) store: Option<MakeStore>,
    pub(crate) body: Option<Body>,
    pub(crate) options: Option<EventProcessorOptions>,
    pub(crate) conditions: Vec<Condition>,
    pub(crate) skipped: Arc<Mutex<Skipped>>,
}

impl UserCode {
    /// The body of an event: the user's, or its number.
    pub(crate) fn body(&self, number: u32) -> Bytes {
        self.body.as_ref().map_or_else(|| number.to_string().into(), |body| body(number))
    }

    /// The options of a host: the user's, with the positions that were drawn.
    pub(crate) fn options(&self, drawn: EventProcessorOptions) -> EventProcessorOptions {
        let Some(wanted) = self.options.clone() else { return drawn };
        EventProcessorOptions {
            initial_position: drawn.initial_position,
            on_invalid_position: drawn.on_invalid_position,
            ..wanted
        }
    }

    /// Checks the user's conditions, after the faults, for every event that the hub keeps, except those that
    /// the user code need not have seen.
    pub(crate) fn audit(&self, hub: &MemoryHub, judge: &Judge, end: &FinalState) {
        if self.conditions.is_empty() {
            return;
        }
        for (partition, last) in &end.ends {
            let from = judge.oldest_kept(*partition).max(judge.excused_before(*partition));
            let Some(last) = last.filter(|last| *last >= from) else { continue };
            for event in read(hub, *partition, from, last) {
                if !self.was_skipped(*partition, &event) && !self.conditions_hold(*partition, &event) {
                    let what = format!("event {:?} is missing from the user's own results", event.sequence);
                    judge.report_violation(Promise::AtLeastOnceInOrder, Some(*partition), what);
                    return;
                }
            }
        }
    }

    fn conditions_hold(&self, partition: PartitionId, event: &Event) -> bool {
        self.conditions.iter().all(|condition| condition(partition, event))
    }

    fn was_skipped(&self, partition: PartitionId, event: &Event) -> bool {
        let skipped = self.skipped.lock().unwrap_or_else(PoisonError::into_inner);
        skipped.contains(&(log_generation_of(event), partition, event.sequence))
    }
}

/// The events of a partition from `from` to `to`. A hub in memory answers at once.
fn read(hub: &MemoryHub, partition: PartitionId, from: SequenceNumber, to: SequenceNumber) -> Vec<Event> {
    let group = hub.create_group(AUDIT).expect("a valid name");
    let start = StartPosition::at(from);
    let request = OpenRequest { start, ..OpenRequest::probe(&group, partition, AUDIT) };
    let opened = hub.open(request).now_or_never().expect("a hub in memory answers at once");
    let mut receiver = opened.expect("a hub in memory serves a single reader");
    let mut events: Vec<Event> = vec![];
    while events.last().is_none_or(|event| event.sequence < to) {
        let received = receiver.receive(&mut events, MAX_READ).now_or_never();
        received.expect("what is kept is there").expect("a hub in memory is up");
    }
    events
}
