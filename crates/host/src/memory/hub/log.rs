//! The log of one partition of a hub in memory, and positions in it.

use std::collections::VecDeque;
use std::ops::Range;

use ephor_core::event::{Event, NewEvent};
use ephor_core::ids::PartitionId;
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::receivers::error_texts as texts;
use ephor_core::source::{LastEnqueued, PartitionProperties};
use ephor_core::time::Timestamp;

/// The bytes that every event takes in addition to its own. Offsets count bytes, from 0 on.
const OFFSET_PER_EVENT: u64 = 32;

/// An ordered log whose oldest events may be gone, and in which numbers may be passed over.
pub(super) struct Log {
    events: VecDeque<Event>,
    next: u64,
    next_offset: u64,
    /// The largest offset that any event ever had.
    newest_offset: Option<u64>,
    last: Option<LastEnqueued>,
}

/// The position of a receiver.
pub(super) struct Cursor {
    next: u64,
    /// Skips older events: a start in the future has no event to point at yet.
    not_before: Option<Timestamp>,
}

impl Log {
    pub(super) fn new() -> Self {
        Self { events: VecDeque::new(), next: 0, next_offset: 0, newest_offset: None, last: None }
    }

    pub(super) fn append(&mut self, event: NewEvent, now: Timestamp) {
        // The first clone of a `Bytes` made from a `Vec` allocates its counter: here, and not when
        // it is read.
        drop(event.body.clone());
        let sequence = SequenceNumber(self.next);
        let offset = Offset::number(self.next_offset);
        self.newest_offset = Some(self.next_offset);
        // A clock that is set back does not make a later event older than an earlier one.
        let enqueued_at = self.last.as_ref().map_or(now, |last| last.enqueued_at.max(now));
        self.last = Some(LastEnqueued { sequence, offset: offset.clone(), enqueued_at });
        let event = Event::stored(sequence, offset, enqueued_at, event);
        self.next += 1;
        self.next_offset += OFFSET_PER_EVENT + event.size() as u64;
        self.events.push_back(event);
    }

    pub(super) fn forget_before(&mut self, sequence: SequenceNumber) {
        let count = self.index_of(sequence.0.min(self.next));
        self.events.drain(..count);
    }

    /// Loses the newest events, and passes over this many numbers, so that none is used twice.
    pub(super) fn lose_newest(&mut self, events: usize, passed_over: u64) {
        let before = self.events.len();
        self.events.truncate(before.saturating_sub(events));
        self.next += passed_over;
        if self.events.len() < before {
            self.last = self.events.back().map(|event| LastEnqueued {
                sequence: event.sequence,
                offset: event.offset.clone(),
                enqueued_at: event.enqueued_at,
            });
        }
    }

    /// Loses the events with these numbers. The numbers are not used again.
    pub(super) fn lose(&mut self, numbers: &Range<SequenceNumber>) {
        self.events.retain(|event| !numbers.contains(&event.sequence));
    }

    pub(super) fn properties(&self, id: PartitionId) -> PartitionProperties {
        PartitionProperties { id, first: self.first(), last: self.last.clone(), next: self.next() }
    }

    /// The number of the oldest event that is kept; that of the next event to come if none is kept.
    fn first(&self) -> SequenceNumber {
        self.events.front().map_or(self.next(), |event| event.sequence)
    }

    /// The number of the next event to come.
    pub(super) fn next(&self) -> SequenceNumber {
        SequenceNumber(self.next)
    }

    /// The newest event that was ever stored.
    pub(super) fn last(&self) -> Option<&LastEnqueued> {
        self.last.as_ref()
    }

    /// Appends at most `most` of the events from the cursor on; false if there are none. A cursor
    /// that retention has overtaken goes on at the oldest event that is kept.
    pub(super) fn read(&self, cursor: &mut Cursor, into: &mut Vec<Event>, max: usize) -> bool {
        let mut from = self.index_of(cursor.next);
        if let Some(time) = cursor.not_before {
            from = from.max(self.index_of_time(time));
        }
        if from == self.events.len() {
            return false;
        }
        let to = from + max.min(self.events.len() - from);
        into.extend(self.events.range(from..to).cloned());
        *cursor = Cursor { next: self.number_at(to), not_before: None };
        true
    }

    /// The error of a replica with these properties that refuses this position, although it exists.
    pub(super) fn refused_by(
        &self,
        replica: &PartitionProperties,
        start: &StartPosition,
        cursor: &Cursor,
    ) -> Option<String> {
        let last = replica.last.as_ref();
        match start {
            _ if cursor.next <= replica.next.0 => None,
            StartPosition::Sequence { number, .. } => Some(beyond_the_end(*number, last)),
            StartPosition::Offset { offset, .. } => {
                Some(texts::invalid_offset(offset, last.map(|last| &last.offset)))
            }
            _ => None,
        }
    }

    /// The cursor of this start position, or the error if it does not exist. With `any_number`, any
    /// sequence number is accepted.
    pub(super) fn locate(&self, start: &StartPosition, any_number: bool) -> Result<Cursor, String> {
        let next = match start {
            StartPosition::Earliest => self.first().0,
            StartPosition::Latest => self.next,
            StartPosition::Sequence { number, inclusive: true } if any_number => number.0,
            StartPosition::Sequence { number, inclusive: false } if any_number => number.next().0,
            StartPosition::Sequence { number, inclusive } => self.locate_sequence(*number, *inclusive)?,
            StartPosition::Offset { offset, inclusive } => self.locate_offset(offset, *inclusive)?,
            StartPosition::EnqueuedTime(time) => {
                let next = self.number_at(self.index_of_time(*time));
                return Ok(Cursor { next, not_before: Some(*time) });
            }
        };
        Ok(Cursor { next, not_before: None })
    }

    fn locate_sequence(&self, number: SequenceNumber, inclusive: bool) -> Result<u64, String> {
        let next = if inclusive { number } else { number.next() };
        if next.0 > self.next {
            return Err(beyond_the_end(number, self.last.as_ref()));
        }
        Ok(next.0)
    }

    /// An offset is a bound: between two events it means the second of them.
    fn locate_offset(&self, offset: &Offset, inclusive: bool) -> Result<u64, String> {
        let known = offset.as_number().filter(|wanted| Some(*wanted) <= self.newest_offset);
        let Some(wanted) = known else {
            let last = self.last.as_ref().map(|last| &last.offset);
            return Err(texts::invalid_offset(offset, last));
        };
        let lies_before = |event: &Event| {
            let place = event.offset.as_number().unwrap_or(u64::MAX);
            place < wanted || (place == wanted && !inclusive)
        };
        Ok(self.number_at(self.events.partition_point(lies_before)))
    }

    /// The index of this event, or of the next kept one if it is not kept.
    fn index_of(&self, sequence: u64) -> usize {
        self.events.partition_point(|event| event.sequence.0 < sequence)
    }

    /// The number of the event at this index; of the next event to come if there is none.
    fn number_at(&self, index: usize) -> u64 {
        self.events.get(index).map_or(self.next, |event| event.sequence.0)
    }

    fn index_of_time(&self, time: Timestamp) -> usize {
        self.events.partition_point(|event| event.enqueued_at < time)
    }
}

/// The message of a hub about a sequence number that it has not reached.
fn beyond_the_end(number: SequenceNumber, last: Option<&LastEnqueued>) -> String {
    texts::invalid_sequence_number(number, last.map(|last| last.sequence))
}
