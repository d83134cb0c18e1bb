//! One partition as its readers see it: where it begins and ends, what came last, who reads it.
//!
//! One lock guards the receivers and what they may take. So a receiver that was
//! disconnected cannot take another event once its successor is in.

use std::collections::{BTreeMap, VecDeque};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::receivers::{Place, Receivers};
use ephor_core::source::{LastEnqueued, OpenError, PartitionProperties, ReceiveError, SourceError};
use ephor_core::time::{Monotonic, Timestamp};
use tokio::sync::Notify;

use crate::batch::{LeftOut, StoredBatch, number_of, offset_of};
use crate::journal::Frame;
use crate::journal::layout::PartitionStart;

#[derive(Debug)]
pub(crate) struct Partition {
    pub(crate) id: PartitionId,
    state: Mutex<State>,
    /// Rings for all receivers: after an event or an ending.
    pub(crate) news: Notify,
    /// Rings for those who wait for nothing but their own ending.
    pub(crate) endings: Notify,
    /// Events whose readers do not get all of what is stored.
    pub(crate) left_out: LeftOut,
}

#[derive(Debug)]
struct State {
    first: u64,
    next: u64,
    last: Option<(u64, Timestamp)>,
    /// The newest frames, which readers share.
    recent: VecDeque<Frame>,
    groups: BTreeMap<ConsumerGroup, Receivers>,
    /// Why nobody can read it any more.
    ended: Option<Ended>,
}

/// Why a hub is no more.
#[derive(Clone, Debug)]
pub(crate) enum Ended {
    /// Its process closes it; it may come back.
    Closed(Arc<str>),
    /// It is gone for good.
    Deleted(Arc<str>),
}

impl Ended {
    /// What senders are told.
    pub(crate) fn why(&self) -> &Arc<str> {
        match self {
            Self::Closed(why) | Self::Deleted(why) => why,
        }
    }
}

/// What a receiver can have at once.
pub(crate) enum Taken {
    /// These events.
    Batch(StoredBatch),
    /// Something older, which has to be read from the log.
    Older,
    /// Nothing yet.
    Nothing,
}

/// Who reads a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReceiverDescription {
    /// The consumer group.
    pub group: ConsumerGroup,
    /// The partition.
    pub partition: PartitionId,
    /// What it calls itself; none if it gave no name.
    pub name: Option<String>,
    /// Its epoch, if it came with one.
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
            news: Notify::new(),
            endings: Notify::new(),
            left_out: LeftOut::default(),
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

    /// Shows a frame that has been committed. The caller wakes the receivers.
    pub(crate) fn publish(&self, frame: Frame, keep: bool) {
        let mut state = self.state();
        state.next = frame.end();
        state.last = Some((frame.end() - 1, frame.enqueued_at));
        if keep {
            state.recent.push_back(frame);
        }
    }

    /// Keeps the oldest of the recent frames in memory no longer.
    pub(crate) fn drop_oldest_recent(&self) {
        self.state().recent.pop_front();
    }

    /// Retention freed what lies before this number.
    pub(crate) fn begins_at(&self, first: u64) {
        let mut state = self.state();
        state.first = state.first.max(first);
    }

    /// Nobody can read it any more, in any group.
    pub(crate) fn end(&self, ended: &Ended) {
        let mut state = self.state();
        state.ended = Some(ended.clone());
        state.recent.clear();
        state.groups.values_mut().for_each(|receivers| receivers.cut(ended.why()));
        drop(state);
        self.tell_endings();
    }

    /// Cuts the links of all receivers of a group, and forgets it.
    pub(crate) fn cut_group(&self, group: &ConsumerGroup, why: &Arc<str>) {
        if let Some(mut receivers) = self.state().groups.remove(group) {
            receivers.cut(why);
        }
        self.tell_endings();
    }

    /// Whether a receiver may come in. Nobody is disconnected by asking.
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
            self.tell_endings();
        }
        receivers.admit(name, epoch)
    }

    /// Lets a receiver in, and disconnects those that must give way.
    pub(crate) fn enter(
        &self,
        group: &ConsumerGroup,
        name: &str,
        epoch: Option<Epoch>,
        now: Monotonic,
    ) -> Result<Arc<Place>, OpenError> {
        let mut state = self.state();
        state.answer()?;
        let receivers = state.groups.entry(group.clone()).or_default();
        // Somebody may have come in since it was admitted.
        receivers.admit(name, epoch)?;
        let place = receivers.enter(name.to_owned(), epoch, now);
        drop(state);
        self.tell_endings();
        Ok(place)
    }

    pub(crate) fn leave(&self, group: &ConsumerGroup, place: &Arc<Place>) {
        let mut state = self.state();
        if let Some(receivers) = state.groups.get_mut(group) {
            receivers.leave(place);
            if receivers.is_empty() {
                state.groups.remove(group);
            }
        }
    }

    /// Who reads it.
    pub(crate) fn receivers(&self) -> Vec<ReceiverDescription> {
        let state = self.state();
        let describe = |(group, receivers): (&ConsumerGroup, &Receivers)| {
            let describe = |place: &Arc<Place>| ReceiverDescription {
                group: group.clone(),
                partition: self.id,
                name: (!place.name().is_empty()).then(|| place.name().to_owned()),
                epoch: place.epoch(),
            };
            receivers.iter().map(describe).collect::<Vec<_>>()
        };
        state.groups.iter().flat_map(describe).collect()
    }

    /// The number at which this start position lies, unless it has to be looked up by time.
    pub(crate) fn locate(&self, start: &StartPosition) -> Result<Option<u64>, String> {
        let state = self.state();
        match start {
            StartPosition::Earliest => Ok(Some(state.first)),
            StartPosition::Latest => Ok(Some(state.next)),
            StartPosition::Sequence { number, inclusive } => state.locate(number.0, *inclusive, || {
                let last = state.last.map_or_else(|| "-1".to_owned(), |(last, _)| last.to_string());
                format!(
                    "The supplied sequence number '{number}' is invalid. The last sequence number in the \
                     system is '{last}'"
                )
            }),
            StartPosition::Offset { offset, inclusive } => state.locate_offset(offset, *inclusive),
            StartPosition::EnqueuedTime(_) => Ok(None),
        }
    }

    /// Whether the receiver in this place may go on, and what it can have from this number on.
    /// Moves the number forward to what is kept, and tells what that passed over.
    pub(crate) fn take(&self, place: Option<&Arc<Place>>, next: &mut u64) -> Result<Taken, ReceiveError> {
        let state = self.state();
        state.answer()?;
        if let Some(error) = place.and_then(|place| place.error()) {
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

    /// Whether the receiver in this place may still take what it has read from the log.
    pub(crate) fn may_take(&self, place: Option<&Arc<Place>>) -> Result<(), ReceiveError> {
        self.state().answer()?;
        place.and_then(|place| place.error()).map_or(Ok(()), Err)
    }

    /// The newest event.
    pub(crate) fn last(&self) -> Option<LastEnqueued> {
        self.state().last()
    }

    /// The number that a reader goes on at when nothing more can be read from the log.
    pub(crate) fn recent_or_next(&self) -> u64 {
        let state = self.state();
        state.recent.front().map_or(state.next, |frame| frame.first)
    }

    fn tell_endings(&self) {
        self.news.notify_waiters();
        self.endings.notify_waiters();
    }

    fn state(&self) -> MutexGuard<'_, State> {
        // No method leaves the state half changed, so a panic elsewhere does not spoil it.
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

    fn locate(
        &self,
        number: u64,
        inclusive: bool,
        unknown: impl FnOnce() -> String,
    ) -> Result<Option<u64>, String> {
        let next = if inclusive { number } else { number.saturating_add(1) };
        if next > self.next { Err(unknown()) } else { Ok(Some(next.max(self.first))) }
    }

    fn locate_offset(&self, offset: &Offset, inclusive: bool) -> Result<Option<u64>, String> {
        let unknown = || format!("The supplied offset '{offset}' is invalid.");
        let number = number_of(offset).filter(|number| *number < self.next).ok_or_else(unknown)?;
        self.locate(number, inclusive, unknown)
    }
}
