//! The progress of an owned partition: delivered, finished and saved events, and the batch that keeps
//! failing.

use ephor_core::checkpoint::{Checkpoint, Position, Unsaved};
use ephor_core::event::Event;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::progress::{self, Lag};
use ephor_core::source::{LastEnqueued, PartitionProperties};
use ephor_core::time::{Monotonic, Timestamp};

use crate::checkpoint_throttle::CheckpointThrottle;
use crate::error::ProcessorError;

/// The progress since this host owns the partition.
#[derive(Debug, Default)]
pub(crate) struct Progress {
    /// The log that is read. Checkpoints of another one do not count.
    log: Option<LogId>,
    /// The position at which reading started.
    pub(crate) start: Option<StartPosition>,
    /// The last event for which `process_events` returned `Ok`.
    pub(crate) finished: Option<Position>,
    /// The end of the batch that is being processed.
    current: Option<Position>,
    /// The last event that was delivered to the processor.
    delivered: Option<SequenceNumber>,
    /// The stored checkpoint.
    pub(crate) saved: Option<Checkpoint>,
    pub(crate) throttle: CheckpointThrottle,
    pub(crate) unsaved: Unsaved,
    pub(crate) last_enqueued: Option<LastEnqueued>,
    /// The oldest event that was kept when the partition was opened.
    pub(crate) first_kept: SequenceNumber,
    pub(crate) events: u64,
    /// The batch that currently fails.
    pub(crate) failing: Option<Failing>,
}

/// A batch that fails and is redelivered.
#[derive(Clone, Debug)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Failing {
    /// The time of its first failure, by this host's wall clock.
    pub since: Timestamp,
    /// The number of failures so far.
    pub attempts: u32,
    /// The last error.
    pub error: ProcessorError,
}

impl Progress {
    pub(crate) fn new(log: Option<LogId>, saved: Option<Checkpoint>) -> Self {
        Self { log, saved, ..Self::default() }
    }

    /// Notes the position at which reading starts, as long as nothing was delivered from another one.
    pub(crate) fn starting_at(&mut self, start: &StartPosition) {
        if self.delivered.is_none() {
            self.start = Some(start.clone());
        }
    }

    /// Notes that a batch that ends with this event is passed to the processor.
    pub(crate) fn delivering(&mut self, last: &Event) {
        self.current = Some(Position::of(last));
        self.delivered = self.delivered.max(Some(last.sequence));
    }

    /// Notes that the processor returned from a batch, with or without success.
    pub(crate) fn returned(&mut self) {
        self.current = None;
    }

    /// Notes that the current batch failed at this wall-clock time.
    pub(crate) fn failed(&mut self, attempts: u32, error: &ProcessorError, now: Timestamp) {
        let since = self.failing.as_ref().map_or(now, |failing| failing.since);
        self.failing = Some(Failing { since, attempts, error: error.clone() });
    }

    /// Notes that the batch up to `last` is finished. True if it had failed before.
    pub(crate) fn finished(&mut self, last: &Event, events: u64, now: Monotonic) -> bool {
        let position = Position::of(last);
        if self.saved_up_to(&position).is_none() {
            self.unsaved.add(events, now);
        }
        self.finished = Some(position);
        self.events += events;
        self.failing.take().is_some()
    }

    /// Notes a stored checkpoint. Replies may come in another order than the requests.
    pub(crate) fn note_saved(&mut self, checkpoint: &Checkpoint) {
        let finished = self.finished.as_ref().and_then(Position::finished);
        if checkpoint.position.finished() >= finished {
            self.unsaved = Unsaved::default();
        }
        self.throttle.drop_up_to(&checkpoint.position);
        if self.saved_up_to(&checkpoint.position).is_none() {
            self.saved = Some(checkpoint.clone());
        }
    }

    /// The end of the batch that is being processed, or else of the last one that is finished.
    pub(crate) fn current(&self) -> Option<&Position> {
        self.current.as_ref().or(self.finished.as_ref())
    }

    /// The last event that was delivered to the processor.
    pub(crate) fn delivered(&self) -> Option<SequenceNumber> {
        self.delivered
    }

    /// The stored checkpoint, if it is as far as the position, or further.
    pub(crate) fn saved_up_to(&self, position: &Position) -> Option<&Checkpoint> {
        let log = self.log.as_ref();
        self.saved.as_ref().filter(|saved| {
            let same = saved.position == *position && saved.log.as_ref() == log;
            same || saved.forbids(position, log)
        })
    }

    /// True if everything that is finished is also saved.
    pub(crate) fn nothing_unsaved(&self) -> bool {
        self.finished.as_ref().is_none_or(|finished| self.saved_up_to(finished).is_some())
    }

    /// Forgets the progress before a rewind: nothing of it may be saved from now on.
    pub(crate) fn forget(&mut self) {
        self.finished = None;
        self.delivered = None;
        self.throttle.pending = None;
    }

    /// Resets the progress, because reading starts at a position that is saved.
    pub(crate) fn begin(&mut self) {
        self.finished = None;
        self.throttle.pending = None;
        self.unsaved = Unsaved::default();
    }

    /// The lag, counted from the last finished event, or else from the checkpoint.
    pub(crate) fn lag(&self, partition: PartitionId) -> Lag {
        let saved = self.saved.as_ref().filter(|saved| saved.log.is_none() || saved.log == self.log);
        let finished = self.finished.as_ref().or(saved.map(|saved| &saved.position)).and_then(finished_of);
        let (first, last) = (self.first_kept, self.last_enqueued.clone());
        progress::lag(&PartitionProperties::without_gap(partition, first, last), finished)
    }
}

fn finished_of(position: &Position) -> Option<(SequenceNumber, Option<Timestamp>)> {
    match position {
        Position::Finished { sequence, enqueued_at, .. } => Some((*sequence, *enqueued_at)),
        Position::Start(_) => None,
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::epoch::Epoch;
    use ephor_core::event::NewEvent;
    use ephor_core::position::Offset;

    use super::*;

    fn event(sequence: u64) -> Event {
        Event::stored(SequenceNumber(sequence), Offset::number(sequence), Timestamp(0), NewEvent::new(""))
    }

    fn log(name: &str) -> Option<LogId> {
        Some(LogId::new(name))
    }

    fn checkpoint(sequence: u64, log: Option<LogId>) -> Checkpoint {
        let position = Position::of(&event(sequence));
        Checkpoint { position, log, epoch: Epoch::FIRST, saved_at: Timestamp(0) }
    }

    /// The progress after a batch up to this event.
    fn finished(sequence: u64) -> Progress {
        let mut progress = Progress::new(log("x"), None);
        progress.delivering(&event(sequence));
        progress.returned();
        progress.finished(&event(sequence), 10, Monotonic(0));
        progress
    }

    #[test]
    fn a_checkpoint_is_of_the_batch_in_progress_or_of_the_last_finished_one() {
        let mut progress = finished(9);
        progress.delivering(&event(19));
        assert_eq!(progress.current(), Some(&Position::of(&event(19))));
        progress.returned();
        assert_eq!(progress.current(), Some(&Position::of(&event(9))), "it failed");
        assert_eq!(progress.delivered(), Some(SequenceNumber(19)));
    }

    #[test]
    fn finished_events_are_unsaved_until_a_checkpoint_reaches_them() {
        let mut progress = finished(9);
        assert_eq!((progress.nothing_unsaved(), progress.unsaved.events), (false, 10));
        progress.note_saved(&checkpoint(8, log("x")));
        assert_eq!((progress.nothing_unsaved(), progress.unsaved.events), (false, 10));
        progress.note_saved(&checkpoint(9, log("x")));
        assert_eq!((progress.nothing_unsaved(), progress.unsaved.events), (true, 0));
    }

    #[test]
    fn a_reply_that_comes_late_does_not_move_the_checkpoint_back() {
        let mut progress = finished(9);
        progress.note_saved(&checkpoint(9, log("x")));
        progress.note_saved(&checkpoint(5, log("x")));
        assert_eq!(progress.saved, Some(checkpoint(9, log("x"))));
    }

    #[test]
    fn a_checkpoint_of_another_log_does_not_count() {
        let progress = Progress { saved: Some(checkpoint(99, log("y"))), ..finished(9) };
        assert!(!progress.nothing_unsaved());
        assert_eq!(progress.saved_up_to(&Position::of(&event(9))), None);
    }

    #[test]
    fn a_batch_fails_since_its_first_failure_until_it_is_finished() {
        let mut progress = finished(9);
        let error = ProcessorError::Panicked { message: "no".into() };
        progress.failed(1, &error, Timestamp(100));
        progress.failed(2, &error, Timestamp(200));
        let failing = progress.failing.as_ref().map(|failing| (failing.since, failing.attempts));
        assert_eq!(failing, Some((Timestamp(100), 2)));
        assert!(progress.finished(&event(19), 10, Monotonic(0)));
        assert!(!progress.finished(&event(29), 10, Monotonic(0)));
    }

    #[test]
    fn nothing_of_before_a_rewind_can_be_saved() {
        let mut progress = finished(9);
        progress.forget();
        assert_eq!((progress.current(), progress.delivered()), (None, None));
    }
}
