//! Checkpoints: the progress of a group in a partition, and the policy of saving it.

use std::time::Duration;

use crate::epoch::Epoch;
use crate::event::Event;
use crate::ids::LogId;
use crate::position::{Offset, SequenceNumber, StartPosition};
use crate::time::{Monotonic, Timestamp};

/// The position that a checkpoint holds.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum Position {
    /// Everything up to and including this event is finished.
    Finished {
        /// The last finished event.
        sequence: SequenceNumber,
        /// Its offset in the log, if known.
        offset: Option<Offset>,
        /// The time at which the hub stored it, if known.
        enqueued_at: Option<Timestamp>,
    },
    /// Nothing is finished yet; reading starts here.
    ///
    /// Written by a seek, and by the first owner of a partition whose initial position moves with
    /// time, so that its successor starts at the same place.
    Start(StartPosition),
}

impl Position {
    /// Finished up to and including this event.
    pub fn of(event: &Event) -> Self {
        Self::Finished {
            sequence: event.sequence,
            offset: Some(event.offset.clone()),
            enqueued_at: Some(event.enqueued_at),
        }
    }

    /// The last finished event, if there is one.
    pub fn finished(&self) -> Option<SequenceNumber> {
        match self {
            Self::Finished { sequence, .. } => Some(*sequence),
            Self::Start(_) => None,
        }
    }

    /// The position at which a reader resumes.
    pub fn start(&self) -> StartPosition {
        match self {
            Self::Finished { sequence, .. } => StartPosition::after(*sequence),
            Self::Start(start) => start.clone(),
        }
    }

    /// The first event that is still to be read, if its number is known.
    fn next(&self) -> Option<SequenceNumber> {
        match self.start() {
            StartPosition::Sequence { number, inclusive } => {
                Some(if inclusive { number } else { number.next() })
            }
            _ => None,
        }
    }

    /// True if writing `other` over this would move back, or might: only a log knows the place of a
    /// start without a sequence number.
    fn would_move_back_to(&self, other: &Self) -> bool {
        match (self.next(), other.next()) {
            (Some(old), Some(new)) => new < old,
            _ => matches!(other, Self::Start(_)) && self != other,
        }
    }
}

/// A position as the store keeps it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Checkpoint {
    /// The progress of the group.
    pub position: Position,
    /// The log to which the position belongs, if the source names its log.
    pub log: Option<LogId>,
    /// The epoch in which it was written.
    pub epoch: Epoch,
    /// The time at which it was written, by the store's clock.
    pub saved_at: Timestamp,
}

impl Checkpoint {
    /// True if an owner must not write `next` over this one: a checkpoint never moves back, except
    /// by a seek or a rewind. Positions in different logs cannot be compared, and a checkpoint
    /// without a log (another SDK wrote it) may belong to any log, so both may be overwritten.
    pub fn forbids(&self, next: &Position, log: Option<&LogId>) -> bool {
        let same_log = log.is_none() || self.log.as_ref() == log;
        same_log && self.position.would_move_back_to(next)
    }
}

/// The minimum time between two checkpoints of a partition, unless the policy sets another.
pub const DEFAULT_SPACING: Duration = Duration::from_millis(100);

/// The times at which the host itself writes checkpoints, and the rate limit of all checkpoints.
/// The conditions combine: the first one that is met counts.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(
    feature = "serde",
    derive(serde::Serialize, serde::Deserialize),
    serde(default, deny_unknown_fields)
)]
pub struct CheckpointPolicy {
    /// After this many finished events.
    pub every_events: Option<u64>,
    /// This long after the first event that is finished but not yet saved.
    #[cfg_attr(feature = "serde", serde(with = "crate::duration_setting::option"))]
    pub every: Option<Duration>,
    /// When a partition closes gracefully.
    pub on_close: bool,
    /// The minimum time between two checkpoints of one partition, whether the processor or this
    /// policy asks for them: a rate limit that protects the store. The latest checkpoint that was
    /// asked for is always written: when its turn comes, and before the partition is given away.
    /// Zero writes each one at once.
    #[cfg_attr(feature = "serde", serde(with = "crate::duration_setting"))]
    pub spacing: Duration,
}

impl Default for CheckpointPolicy {
    /// When a partition closes gracefully; in between, only the processor checkpoints.
    fn default() -> Self {
        Self { every_events: None, every: None, on_close: true, spacing: DEFAULT_SPACING }
    }
}

impl CheckpointPolicy {
    /// The host writes none: only the processor checkpoints.
    pub fn manual() -> Self {
        Self { on_close: false, ..Self::default() }
    }

    /// After `events` finished events, and on close.
    pub fn every_events(events: u64) -> Self {
        Self { every_events: Some(events), ..Self::default() }
    }

    /// `period` after the first unsaved event, and on close.
    pub fn every(period: Duration) -> Self {
        Self { every: Some(period), ..Self::default() }
    }

    /// Also after `events` finished events.
    pub fn or_events(self, events: u64) -> Self {
        Self { every_events: Some(events), ..self }
    }

    /// Also `period` after the first unsaved event.
    pub fn or_every(self, period: Duration) -> Self {
        Self { every: Some(period), ..self }
    }

    /// Sets the minimum time between two checkpoints of a partition.
    pub fn spaced(self, spacing: Duration) -> Self {
        Self { spacing, ..self }
    }

    /// True if a checkpoint is due now.
    pub fn due(&self, unsaved: &Unsaved, now: Monotonic) -> bool {
        let enough = self.every_events.is_some_and(|limit| unsaved.events >= limit);
        unsaved.events > 0 && (enough || self.due_at(unsaved).is_some_and(|at| now >= at))
    }

    /// The time at which a checkpoint falls due by its age alone.
    pub fn due_at(&self, unsaved: &Unsaved) -> Option<Monotonic> {
        self.every.and_then(|period| Some(unsaved.since? + period))
    }
}

/// Progress that is not yet saved.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Unsaved {
    /// The number of finished events.
    pub events: u64,
    /// The time at which the first of them was finished.
    pub since: Option<Monotonic>,
}

impl Unsaved {
    /// `events` more were finished.
    pub fn add(&mut self, events: u64, now: Monotonic) {
        if events > 0 {
            self.events += events;
            self.since.get_or_insert(now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn finished(sequence: u64) -> Position {
        Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None }
    }

    fn checkpoint(position: Position, log: Option<&str>) -> Checkpoint {
        Checkpoint { position, log: log.map(LogId::new), epoch: Epoch::NONE, saved_at: Timestamp(0) }
    }

    #[test]
    fn a_checkpoint_never_moves_back() {
        let at_seven = checkpoint(finished(7), None);
        assert!(at_seven.forbids(&finished(6), None));
        assert!(!at_seven.forbids(&finished(7), None));
        assert!(!at_seven.forbids(&finished(8), None));
        assert!(at_seven.forbids(&Position::Start(StartPosition::Earliest), None));
        assert!(at_seven.forbids(&Position::Start(StartPosition::Latest), None));
        assert!(at_seven.forbids(&Position::Start(StartPosition::at(SequenceNumber(7))), None));
        assert!(!at_seven.forbids(&Position::Start(StartPosition::after(SequenceNumber(7))), None));
        assert!(!at_seven.forbids(&Position::Start(StartPosition::after(SequenceNumber(30))), None));
    }

    #[test]
    fn a_start_is_not_overtaken_from_behind() {
        let after = checkpoint(Position::Start(StartPosition::after(SequenceNumber(7))), None);
        assert!(after.forbids(&finished(6), None));
        assert!(!after.forbids(&finished(7), None));
        assert!(!after.forbids(&finished(8), None));
        let at = checkpoint(Position::Start(StartPosition::at(SequenceNumber(7))), None);
        assert!(at.forbids(&finished(5), None));
        assert!(!at.forbids(&finished(6), None));
        assert!(!at.forbids(&finished(7), None));
        assert!(at.forbids(&Position::Start(StartPosition::at(SequenceNumber(6))), None));
        assert!(!at.forbids(&Position::Start(StartPosition::at(SequenceNumber(8))), None));
        let earliest = checkpoint(Position::Start(StartPosition::Earliest), None);
        assert!(!earliest.forbids(&finished(0), None));
        assert!(!earliest.forbids(&Position::Start(StartPosition::Earliest), None));
        assert!(earliest.forbids(&Position::Start(StartPosition::Latest), None));
    }

    #[test]
    fn in_another_log_there_is_no_back() {
        let old_log = checkpoint(finished(7), Some("a"));
        assert!(!old_log.forbids(&finished(0), Some(&LogId::new("b"))));
        assert!(old_log.forbids(&finished(0), Some(&LogId::new("a"))));
        assert!(old_log.forbids(&finished(0), None));
        assert!(!checkpoint(finished(7), None).forbids(&finished(0), Some(&LogId::new("b"))));
    }

    #[test]
    fn reading_goes_on_behind_the_last_finished_event() {
        assert_eq!(finished(7).start(), StartPosition::after(SequenceNumber(7)));
        assert_eq!(finished(7).finished(), Some(SequenceNumber(7)));
        assert_eq!(Position::Start(StartPosition::Latest).start(), StartPosition::Latest);
        assert_eq!(Position::Start(StartPosition::Latest).finished(), None);
    }

    #[test]
    fn a_policy_says_when_a_checkpoint_is_due() {
        let second = Duration::from_secs(1);
        let mut unsaved = Unsaved::default();
        let both = CheckpointPolicy::every_events(10).or_every(second);
        assert!(!both.due(&unsaved, Monotonic::NEVER));
        unsaved.add(0, Monotonic(0));
        assert_eq!(unsaved.since, None);
        unsaved.add(4, Monotonic(5));
        unsaved.add(5, Monotonic(6));
        assert_eq!(unsaved, Unsaved { events: 9, since: Some(Monotonic(5)) });
        assert!(!both.due(&unsaved, Monotonic(6)));
        assert!(!both.due(&unsaved, Monotonic(4) + second));
        assert!(both.due(&unsaved, Monotonic(5) + second));
        assert_eq!(both.due_at(&unsaved), Some(Monotonic(5) + second));
        unsaved.add(1, Monotonic(6));
        assert!(both.due(&unsaved, Monotonic(6)));
        for never in [CheckpointPolicy::manual(), CheckpointPolicy::default()] {
            assert!(!never.due(&unsaved, Monotonic::NEVER));
            assert_eq!(never.due_at(&unsaved), None);
        }
        assert!(CheckpointPolicy::default().on_close);
        assert!(!CheckpointPolicy::manual().on_close);
        assert_eq!(CheckpointPolicy::manual().spacing, DEFAULT_SPACING);
        let spaced = CheckpointPolicy::every_events(3).spaced(second);
        assert_eq!((spaced.spacing, spaced.every_events, spaced.on_close), (second, Some(3), true));
        assert!(CheckpointPolicy::every(second).or_events(3).due(&unsaved, Monotonic(6)));
        assert!(CheckpointPolicy::every(second).on_close);
        assert_eq!(CheckpointPolicy::every(second).due_at(&unsaved), Some(Monotonic(5) + second));
        assert!(!CheckpointPolicy::every_events(0).due(&Unsaved::default(), Monotonic::NEVER));
    }
}
