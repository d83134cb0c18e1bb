//! The readable state of one partition: its first and last event, its newest frames, its receivers.
//!
//! One lock guards the receivers and what they may take. So a receiver that was disconnected cannot take another
//! event once its successor is admitted.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::receivers::{Admission, Receivers, error_texts as texts};
use ephor_core::source::{LastEnqueued, OpenError, PartitionProperties, ReceiveError, SourceError};
use ephor_core::time::{Monotonic, Timestamp};
use tokio::sync::Notify;

use crate::batch::{OmissionLog, StoredBatch};
use crate::journal::Frame;
use crate::journal::layout::PartitionStart;
use crate::offset::{first_from, offset_of};

/// One partition of a hub.
#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    state: Mutex<State>,
    /// Notifies all receivers of new events and of disconnects.
    pub(crate) changed: Notify,
    /// Notifies only of disconnects, for receivers that do not want events now.
    pub(crate) disconnects: Notify,
    /// The events of which invalid parts are left out for readers.
    pub(crate) omissions: OmissionLog,
}

#[derive(Debug)]
struct State {
    first: u64,
    next: u64,
    last: Option<(u64, Timestamp)>,
    /// The newest frames, cached and shared by all readers.
    recent: VecDeque<Frame>,
    groups: BTreeMap<ConsumerGroup, Receivers>,
    /// Why it cannot be read any more.
    ended: Option<Ended>,
}

/// Whether a receiver may begin at the sequence number of the next event to come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NextEvent {
    /// It may, as with every source of events.
    Accepted,
    /// It may not, as with the service: it may begin after the last event.
    Refused,
}

/// Why a hub ended.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// Its process closes it. It can be opened again.
    Closed(Arc<str>),
    /// It was deleted.
    Deleted(Arc<str>),
}

impl Ended {
    /// Returns the reason, for errors.
    pub(crate) fn why(&self) -> &Arc<str> {
        match self {
            Self::Closed(why) | Self::Deleted(why) => why,
        }
    }
}

/// The events that a receiver can take without reading files.
pub(crate) enum Taken {
    /// These events.
    Batch(StoredBatch),
    /// The next event is not cached: it has to be read from the log.
    Older,
    /// Nothing yet.
    Nothing,
}

/// A receiver of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct ReceiverDescription {
    /// The consumer group.
    pub group: ConsumerGroup,
    /// The partition.
    pub partition: PartitionId,
    /// The name that the receiver gave, if any.
    pub name: Option<String>,
    /// Its epoch, if it has one.
    pub epoch: Option<Epoch>,
}

impl Partition {
    pub(crate) fn new(id: u32, first: u64, state: PartitionStart) -> Arc<Self> {
        let PartitionStart { next, last, .. } = state;
        let state =
            State { first, next, last, recent: VecDeque::new(), groups: BTreeMap::new(), ended: None };
        Arc::new(Self {
            id: PartitionId(id),
            state: Mutex::new(state),
            changed: Notify::new(),
            disconnects: Notify::new(),
            omissions: OmissionLog::default(),
        })
    }

    pub(crate) fn properties(&self) -> PartitionProperties {
        let state = self.state();
        PartitionProperties {
            id: self.id,
            first: SequenceNumber(state.first),
            last: state.last(),
            next: SequenceNumber(state.next),
        }
    }

    /// Makes a committed frame readable. The caller notifies the receivers.
    pub(crate) fn publish(&self, frame: Frame, keep: bool) {
        let mut state = self.state();
        state.next = frame.end();
        state.last = Some((frame.end() - 1, frame.enqueued_at));
        if keep {
            state.recent.push_back(frame);
        }
    }

    /// Drops the oldest cached frame.
    pub(crate) fn drop_oldest_recent(&self) {
        self.state().recent.pop_front();
    }

    /// Moves the beginning of the partition: retention freed the events before this number.
    pub(crate) fn begins_at(&self, first: u64) {
        let mut state = self.state();
        state.first = state.first.max(first);
    }

    /// Ends the partition: disconnects the receivers of all groups.
    pub(crate) fn end(&self, ended: &Ended) {
        let mut state = self.state();
        state.ended = Some(ended.clone());
        state.recent.clear();
        state.groups.values_mut().for_each(|receivers| receivers.disconnect_all(ended.why()));
        drop(state);
        self.notify_endings();
    }

    /// Disconnects all receivers of a group, and removes the group.
    pub(crate) fn cut_group(&self, group: &ConsumerGroup, why: &Arc<str>) {
        if let Some(mut receivers) = self.state().groups.remove(group) {
            receivers.disconnect_all(why);
        }
        self.notify_endings();
    }

    /// Checks by the epoch rules whether a receiver may open. Disconnects nobody.
    pub(crate) fn admit(
        &self,
        group: &ConsumerGroup,
        name: &str,
        epoch: Option<Epoch>,
        silence: (Monotonic, Duration),
    ) -> Result<(), OpenError> {
        let mut state = self.state();
        state.answer()?;
        let Some(receivers) = state.groups.get_mut(group) else { return Ok(()) };
        if receivers.forget_vanished(silence.0, silence.1) > 0 {
            self.notify_endings();
        }
        receivers.admit(name, epoch)
    }

    /// Admits a receiver, and disconnects those that it replaces.
    pub(crate) fn enter(
        &self,
        group: &ConsumerGroup,
        name: &str,
        epoch: Option<Epoch>,
        now: Monotonic,
    ) -> Result<Arc<Admission>, OpenError> {
        let mut state = self.state();
        state.answer()?;
        let receivers = state.groups.entry(group.clone()).or_default();
        // Another receiver may have opened since the first check.
        receivers.admit(name, epoch)?;
        let admission = receivers.enter(name.to_owned(), epoch, now);
        drop(state);
        self.notify_endings();
        Ok(admission)
    }

    pub(crate) fn leave(&self, group: &ConsumerGroup, admission: &Arc<Admission>) {
        let mut state = self.state();
        if let Some(receivers) = state.groups.get_mut(group) {
            receivers.leave(admission);
            if receivers.is_empty() {
                state.groups.remove(group);
            }
        }
    }

    /// Lists its receivers.
    pub(crate) fn receivers(&self) -> Vec<ReceiverDescription> {
        let state = self.state();
        let describe = |(group, receivers): (&ConsumerGroup, &Receivers)| {
            let describe = |admission: &Arc<Admission>| ReceiverDescription {
                group: group.clone(),
                partition: self.id,
                name: (!admission.name().is_empty()).then(|| admission.name().to_owned()),
                epoch: admission.epoch(),
            };
            receivers.iter().map(describe).collect::<Vec<_>>()
        };
        state.groups.iter().flat_map(describe).collect()
    }

    /// Returns the number of a start position; none if it has to be searched by time.
    pub(crate) fn locate(&self, start: &StartPosition, to_come: NextEvent) -> Result<Option<u64>, String> {
        let state = self.state();
        match start {
            StartPosition::Earliest => Ok(Some(state.first)),
            StartPosition::Latest => Ok(Some(state.next)),
            StartPosition::Sequence { number, inclusive } => {
                state.locate_sequence(*number, *inclusive, to_come).map(Some)
            }
            StartPosition::Offset { offset, inclusive } => state.locate_offset(offset, *inclusive).map(Some),
            StartPosition::EnqueuedTime(_) => Ok(None),
        }
    }

    /// Checks whether the receiver with this admission is still connected, and returns what it can take from `next` on. Moves
    /// `next` forward if retention has freed that event.
    pub(crate) fn take(
        &self,
        admission: Option<&Arc<Admission>>,
        next: &mut u64,
    ) -> Result<Taken, ReceiveError> {
        let state = self.state();
        state.answer()?;
        if let Some(error) = admission.and_then(|admission| admission.error()) {
            return Err(error);
        }
        *next = (*next).max(state.first);
        if *next >= state.next {
            return Ok(Taken::Nothing);
        }
        let at = state.recent.partition_point(|frame| frame.end() <= *next);
        match state.recent.get(at) {
            Some(frame) if frame.first <= *next || at > 0 => Ok(Taken::Batch(StoredBatch::of(frame))),
            _ => Ok(Taken::Older),
        }
    }

    /// Checks whether the receiver with this admission may still take what it has read from the log.
    pub(crate) fn may_take(&self, admission: Option<&Arc<Admission>>) -> Result<(), ReceiveError> {
        self.state().answer()?;
        admission.and_then(|admission| admission.error()).map_or(Ok(()), Err)
    }

    /// Returns the position of the newest event.
    pub(crate) fn last(&self) -> Option<LastEnqueued> {
        self.state().last()
    }

    /// Returns the number to continue at when the log on disk has nothing more to read.
    pub(crate) fn recent_or_next(&self) -> u64 {
        let state = self.state();
        state.recent.front().map_or(state.next, |frame| frame.first)
    }

    fn notify_endings(&self) {
        self.changed.notify_waiters();
        self.disconnects.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No method leaves the state half changed, so it is valid after a panic elsewhere.
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn answer(&self) -> Result<(), SourceError> {
        match &self.ended {
            None => Ok(()),
            Some(Ended::Closed(why)) => Err(SourceError::Unavailable((&**why).into())),
            Some(Ended::Deleted(why)) => Err(SourceError::NotFound { what: format!("the hub ({why})") }),
        }
    }

    fn last(&self) -> Option<LastEnqueued> {
        let (number, enqueued_at) = self.last?;
        Some(LastEnqueued { sequence: SequenceNumber(number), offset: offset_of(number), enqueued_at })
    }

    /// Numbers that were passed over count as stored, though there is no event.
    fn locate_sequence(
        &self,
        number: SequenceNumber,
        inclusive: bool,
        to_come: NextEvent,
    ) -> Result<u64, String> {
        let begin = if inclusive { number } else { number.next() };
        let exists = match to_come {
            NextEvent::Accepted => begin.0 <= self.next,
            NextEvent::Refused => number.0 < self.next,
        };
        if !exists {
            let last = self.last.map(|(last, _)| SequenceNumber(last));
            return Err(texts::invalid_sequence_number(number, last));
        }
        Ok(begin.0.max(self.first))
    }

    fn locate_offset(&self, offset: &Offset, inclusive: bool) -> Result<u64, String> {
        let begin = first_from(offset, inclusive, self.next).ok_or_else(|| {
            let last = self.last.map(|(last, _)| offset_of(last));
            texts::invalid_offset(offset, last.as_ref())
        })?;
        Ok(begin.max(self.first))
    }
}
