//! One partition of a hub in memory: its log, its receivers, and their notifications.
//!
//! One lock guards the log and the receivers alike, so that a disconnected receiver cannot take
//! another event once its successor is attached.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::BoxFuture;
use ephor_core::event::{Event, NewEvent};
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::receivers::{Admission, Receivers};
use ephor_core::source::{
    LastEnqueued, OpenError, OpenRequest, PartitionProperties, ReceiveError, Receiver, SourceCapabilities,
};
use ephor_core::time::{Monotonic, Timestamp};
use tokio::sync::Notify;

use super::log::{Cursor, Log};
use super::unavailable;

pub(super) struct Partition {
    id: PartitionId,
    state: Mutex<State>,
    /// Notifies all receivers of an event, an ending, or an outage.
    news: Notify,
}

struct State {
    log: Log,
    groups: BTreeMap<ConsumerGroup, Receivers>,
    outage: Option<Arc<str>>,
    /// The properties that it reports while they are frozen.
    stale_properties: Option<PartitionProperties>,
    /// True if, while the properties are frozen, no receiver opens beyond the end that they show.
    opens_lag: bool,
    /// True if positions that do not exist are accepted without an error.
    takes_any_position: bool,
}

impl Partition {
    pub(super) fn new(id: PartitionId, outage: Option<Arc<str>>) -> Arc<Self> {
        let state = State {
            log: Log::new(),
            groups: BTreeMap::new(),
            outage,
            stale_properties: None,
            opens_lag: false,
            takes_any_position: false,
        };
        Arc::new(Self { id, state: Mutex::new(state), news: Notify::new() })
    }

    pub(super) fn id(&self) -> PartitionId {
        self.id
    }

    /// The true properties.
    pub(super) fn properties(&self) -> PartitionProperties {
        self.state().log.properties(self.id)
    }

    /// The reported properties.
    pub(super) fn told_properties(&self) -> PartitionProperties {
        let state = self.state();
        let now = || state.log.properties(self.id);
        state.stale_properties.clone().unwrap_or_else(now)
    }

    /// Appends the events, and returns the number of the first one.
    pub(super) fn append(
        &self,
        events: impl IntoIterator<Item = NewEvent>,
        now: Timestamp,
    ) -> SequenceNumber {
        let mut state = self.state();
        let first = state.log.next();
        events.into_iter().for_each(|event| state.log.append(event, now));
        drop(state);
        self.news.notify_waiters();
        first
    }

    pub(super) fn forget_before(&self, sequence: SequenceNumber) {
        self.state().log.forget_before(sequence);
    }

    /// Loses its newest events, and passes over this many numbers.
    pub(super) fn lose_newest(&self, events: usize, passed_over: u64) {
        self.state().log.lose_newest(events, passed_over);
    }

    /// Loses the events with these numbers.
    pub(super) fn lose(&self, numbers: &Range<SequenceNumber>) {
        self.state().log.lose(numbers);
    }

    /// Freezes its properties as they are now, or lets them follow its log again.
    pub(super) fn hold_properties(&self, hold: bool) {
        let mut state = self.state();
        let now = state.log.properties(self.id);
        state.stale_properties = hold.then_some(now);
        state.opens_lag &= hold;
    }

    /// The same, and receivers open no further than these properties say.
    pub(super) fn hold_opens(&self) {
        self.hold_properties(true);
        self.state().opens_lag = true;
    }

    pub(super) fn take_any_position(&self, any: bool) {
        self.state().takes_any_position = any;
    }

    /// Cuts the links of all receivers, in all groups.
    pub(super) fn disconnect_all(&self, message: &Arc<str>) {
        self.state().groups.values_mut().for_each(|receivers| receivers.disconnect_all(message));
        self.news.notify_waiters();
    }

    /// Begins or ends an outage.
    pub(super) fn fail(&self, outage: Option<Arc<str>>) {
        self.state().outage = outage;
        self.news.notify_waiters();
    }

    /// Opens a receiver. A refused request disconnects nobody.
    pub(super) fn open(
        self: &Arc<Self>,
        request: OpenRequest,
        capabilities: SourceCapabilities,
        now: Monotonic,
    ) -> Result<MemoryReceiver, OpenError> {
        let OpenRequest { group, start, epoch, receiver: name, .. } = request;
        let epoch = epoch.filter(|_| capabilities.fences_readers);
        let mut state = self.state();
        let State { log, groups, takes_any_position, stale_properties, opens_lag, .. } = &mut *state;
        // A former owner gets the error about its epoch first, whatever its start position.
        if let Some(receivers) = groups.get(&group).filter(|_| capabilities.fences_readers) {
            receivers.admit(&name, epoch)?;
        }
        let cursor = log
            .locate(&start, *takes_any_position)
            .map_err(|message| OpenError::InvalidPosition { message })?;
        let replica = stale_properties.as_ref().filter(|_| *opens_lag);
        if let Some(message) = replica.and_then(|replica| log.refused_by(replica, &start, &cursor)) {
            return Err(OpenError::InvalidPosition { message });
        }
        let admission = groups.entry(group.clone()).or_default().enter(name, epoch, now);
        drop(state);
        self.news.notify_waiters();
        Ok(MemoryReceiver { partition: self.clone(), group, admission, cursor, last_enqueued: None })
    }

    fn leave(&self, group: &ConsumerGroup, admission: &Arc<Admission>) {
        let mut state = self.state();
        if let Some(receivers) = state.groups.get_mut(group) {
            receivers.leave(admission);
            if receivers.is_empty() {
                state.groups.remove(group);
            }
        }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No method leaves the state half changed, so a panic elsewhere does not corrupt it.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// A receiver of one partition in memory.
pub(super) struct MemoryReceiver {
    partition: Arc<Partition>,
    group: ConsumerGroup,
    admission: Arc<Admission>,
    cursor: Cursor,
    last_enqueued: Option<LastEnqueued>,
}

impl MemoryReceiver {
    /// Takes events or an error; `None` if there is neither yet.
    fn take(&mut self, into: &mut Vec<Event>, max: usize) -> Option<Result<(), ReceiveError>> {
        let state = self.partition.state();
        if let Some(error) = self.admission.error() {
            return Some(Err(error));
        }
        if let Some(message) = &state.outage {
            return Some(Err(unavailable(message).into()));
        }
        if !state.log.read(&mut self.cursor, into, max) {
            return None;
        }
        self.last_enqueued = state.log.last().cloned();
        Some(Ok(()))
    }
}

impl Receiver for MemoryReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        max: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(async move {
            // A long backlog is always ready; a task that reads it in a loop must not starve
            // others.
            tokio::task::coop::consume_budget().await;
            let partition = self.partition.clone();
            loop {
                // Subscribes before it checks, so that nothing in between is missed.
                let news = partition.news.notified();
                if let Some(taken) = self.take(into, max) {
                    return taken;
                }
                news.await;
            }
        })
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move { drop(self) })
    }
}

impl Drop for MemoryReceiver {
    fn drop(&mut self) {
        self.partition.leave(&self.group, &self.admission);
    }
}
