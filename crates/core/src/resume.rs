//! Decides at which position a new owner starts to read.
//!
//! A stored checkpoint wins over the initial position. A position that no longer exists, or does
//! not exist in this log, is always reported. A position that seems to lie beyond the end is tried
//! all the same, until there is proof ([`proof`]).

pub mod proof;

use std::fmt;

use crate::checkpoint::{Checkpoint, Position};
use crate::ids::{LogId, PartitionId};
use crate::position::{SequenceNumber, StartPosition};
use crate::source::PartitionProperties;
use crate::store::GroupOrigin;

/// The reaction to a position that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum OnInvalidPosition {
    /// Go on at the oldest event that is kept, and report the number of lost events.
    #[default]
    Earliest,
    /// Go on after the newest event, and report the number of events that are skipped. Only where
    /// the position is older than everything that is kept, or unknown to the log: after a gap
    /// inside the log, reading goes on at the next event.
    Latest,
    /// Keep the partition and read nothing until an operator seeks.
    Stop,
}

/// The reason why a position does not exist.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum LostGround {
    /// Events that were not finished do not exist: retention removed them, they are damaged, or
    /// their numbers were never used.
    Overtaken {
        /// The first event that should have been read.
        wanted: SequenceNumber,
        /// The next event that exists. Older ones may exist, too, if this is a gap inside the log.
        oldest: SequenceNumber,
    },
    /// The position lies beyond the end of the log.
    BeyondTheEnd {
        /// The first event that should have been read.
        wanted: SequenceNumber,
        /// The number of the next event to come.
        next: SequenceNumber,
    },
    /// The hub was created again: the position belongs to another log.
    AnotherLog {
        /// The log of the position.
        was: LogId,
        /// The log of the hub.
        is: LogId,
    },
    /// The hub reports that it does not know the position.
    Unknown {
        /// The message of the hub.
        message: String,
    },
}

impl LostGround {
    /// The number of lost events, if known.
    pub fn gone(&self) -> Option<u64> {
        match self {
            Self::Overtaken { wanted, oldest } => Some(oldest.0 - wanted.0),
            _ => None,
        }
    }

    /// True for a gap inside the log: the position is not older than everything that the partition
    /// keeps.
    pub fn is_inside(&self, partition: &PartitionProperties) -> bool {
        matches!(self, Self::Overtaken { wanted, .. } if *wanted >= partition.first)
    }

    /// The oldest event that the partition keeps and that was not read.
    fn next_kept(&self, partition: &PartitionProperties) -> SequenceNumber {
        match self {
            Self::Overtaken { oldest, .. } => *oldest,
            _ => partition.first,
        }
    }
}

impl fmt::Display for LostGround {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Overtaken { wanted, oldest } => {
                let gone = oldest.0 - wanted.0;
                let events = if gone == 1 { "event is" } else { "events are" };
                write!(
                    f,
                    "{gone} {events} gone (removed, damaged, or their numbers were never used): reading should go on \
                     at {wanted}, and the next event is {oldest}"
                )
            }
            Self::BeyondTheEnd { wanted, next } => {
                write!(f, "reading should go on at {wanted}, but the log ends before {next}")
            }
            Self::AnotherLog { was, is } => {
                write!(f, "the position belongs to log {was}, but the hub was created again as log {is}")
            }
            Self::Unknown { message } => write!(f, "the hub knows no such position: {message}"),
        }
    }
}

/// The position at which to start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Resume {
    /// The position to open the receiver at.
    pub start: StartPosition,
    /// The reason, if the wanted position does not exist.
    pub lost: Option<LostGround>,
    /// True if the start moves with time and must be saved, so that a successor starts here, too.
    pub remember: bool,
    /// True if the checkpoint lies beyond the end of this very log. The start must be written over
    /// it, or reading would jump there once the log has grown that far.
    pub rewind: bool,
}

impl Resume {
    /// Replaces the earliest position by a sequence number to be saved, if the oldest events are
    /// gone already. The earliest position moves with time, too, and a tool that sees only the
    /// stored position, such as an autoscaler, would count the events that are gone.
    pub fn pinned(self, partition: &PartitionProperties) -> Self {
        if self.start != StartPosition::Earliest || partition.first == SequenceNumber(0) {
            return self;
        }
        Self { start: StartPosition::at(partition.first), remember: true, ..self }
    }

    /// The event at which reading goes on, and the number of events before it that the partition
    /// keeps and that are skipped. For a replacement of a position that does not exist.
    pub fn skips(&self, partition: &PartitionProperties) -> (SequenceNumber, u64) {
        let resumes_at = match &self.start {
            StartPosition::Sequence { number, inclusive: true } => *number,
            StartPosition::Sequence { number, inclusive: false } => number.next(),
            StartPosition::Earliest => partition.first,
            _ => partition.next,
        };
        let next = self.lost.as_ref().map_or(resumes_at, |lost| lost.next_kept(partition));
        (resumes_at, resumes_at.0.saturating_sub(next.0))
    }
}

/// The initial position of a partition without a checkpoint: as the options say, but the earliest
/// one for a partition that was added after the group began.
pub fn initial_position(
    origin: Option<&GroupOrigin>,
    partition: PartitionId,
    wanted: impl FnOnce() -> StartPosition,
) -> StartPosition {
    let grown = origin.is_some_and(|origin| !origin.partitions.contains(&partition));
    if grown { StartPosition::Earliest } else { wanted() }
}

/// The position at which to start, or the reason not to. A position beyond the end of the log is
/// returned unchanged: see [`beyond_the_end`].
pub fn resume(
    checkpoint: Option<&Checkpoint>,
    initial: StartPosition,
    partition: &PartitionProperties,
    log: Option<&LogId>,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, LostGround> {
    let (start, another_log, initial_use) = match checkpoint {
        Some(checkpoint) => (checkpoint.position.start(), other_log(checkpoint, log), false),
        None => (initial, None, true),
    };
    let overtaken =
        || out_of_range(&start, partition).filter(|ground| matches!(ground, LostGround::Overtaken { .. }));
    if let Some(lost) = another_log.or_else(overtaken) {
        return replacement(lost, partition, on_invalid);
    }
    let remember = initial_use && matches!(start, StartPosition::Latest | StartPosition::EnqueuedTime(_));
    let start = if start == StartPosition::Latest { end_of(partition) } else { start };
    Ok(Resume { start, lost: None, remember, rewind: false })
}

/// The replacement for a position that was found not to exist.
pub fn replacement(
    lost: LostGround,
    partition: &PartitionProperties,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, LostGround> {
    let start = match (on_invalid, &lost) {
        (OnInvalidPosition::Earliest, _) => StartPosition::Earliest,
        // Properties that are older than what the receivers report do not lead back.
        (OnInvalidPosition::Latest, LostGround::Overtaken { oldest, .. }) if *oldest > partition.next => {
            StartPosition::at(*oldest)
        }
        (OnInvalidPosition::Latest, _) => end_of(partition),
        (OnInvalidPosition::Stop, _) => return Err(lost),
    };
    let rewind = matches!(lost, LostGround::BeyondTheEnd { .. });
    let remember = rewind || on_invalid == OnInvalidPosition::Latest;
    Ok(Resume { start, lost: Some(lost), remember, rewind })
}

/// The position as it is saved for a successor.
pub fn remembered(start: &StartPosition) -> Position {
    Position::Start(start.clone())
}

/// The reason, if a position lies beyond the end by the partition's properties. That alone is no
/// proof.
pub fn beyond_the_end(start: &StartPosition, partition: &PartitionProperties) -> Option<LostGround> {
    out_of_range(start, partition).filter(|ground| matches!(ground, LostGround::BeyondTheEnd { .. }))
}

/// "After the newest event", pinned to the event that is the newest now. Sequence numbers that were
/// passed over come after it.
fn end_of(partition: &PartitionProperties) -> StartPosition {
    match &partition.last {
        Some(last) if last.sequence.next() == partition.next => StartPosition::after(last.sequence),
        _ => StartPosition::at(partition.next),
    }
}

fn other_log(checkpoint: &Checkpoint, log: Option<&LogId>) -> Option<LostGround> {
    let (was, is) = (checkpoint.log.as_ref()?, log?);
    (was != is).then(|| LostGround::AnotherLog { was: was.clone(), is: is.clone() })
}

fn out_of_range(start: &StartPosition, partition: &PartitionProperties) -> Option<LostGround> {
    let StartPosition::Sequence { number, inclusive } = start else { return None };
    let wanted = if *inclusive { *number } else { number.next() };
    if wanted < partition.first {
        Some(LostGround::Overtaken { wanted, oldest: partition.first })
    } else if wanted > partition.next {
        Some(LostGround::BeyondTheEnd { wanted, next: partition.next })
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::epoch::Epoch;
    use crate::position::Offset;
    use crate::source::LastEnqueued;
    use crate::time::Timestamp;

    /// A partition that keeps the events from `first` to `last`.
    fn partition(first: u64, last: Option<u64>) -> PartitionProperties {
        let last = last.map(|n| LastEnqueued {
            sequence: SequenceNumber(n),
            offset: Offset::number(n),
            enqueued_at: Timestamp(0),
        });
        PartitionProperties::without_gap(PartitionId(0), SequenceNumber(first), last)
    }

    fn finished(sequence: u64, log: Option<&str>) -> Checkpoint {
        Checkpoint {
            position: Position::Finished {
                sequence: SequenceNumber(sequence),
                offset: None,
                enqueued_at: None,
            },
            log: log.map(LogId::new),
            epoch: Epoch::NONE,
            saved_at: Timestamp(0),
        }
    }

    fn from(
        checkpoint: Option<&Checkpoint>,
        initial: StartPosition,
        partition: &PartitionProperties,
    ) -> Resume {
        resume(checkpoint, initial, partition, None, OnInvalidPosition::Earliest).unwrap()
    }

    #[test]
    fn the_earliest_event_of_a_trimmed_log_is_written_down_by_its_number() {
        let trimmed = partition(100, Some(200));
        let pinned = from(None, StartPosition::Earliest, &trimmed).pinned(&trimmed);
        let start = StartPosition::at(SequenceNumber(100));
        assert_eq!(pinned, Resume { start, lost: None, remember: true, rewind: false });
        // A log with all its events needs no number, and any other position has its own.
        let whole = partition(0, Some(200));
        let found = from(None, StartPosition::Earliest, &whole);
        assert_eq!(found.clone().pinned(&whole), found);
        let found = from(None, StartPosition::Latest, &trimmed);
        assert_eq!(found.clone().pinned(&trimmed), found);
    }

    fn plain(start: StartPosition) -> Resume {
        Resume { start, lost: None, remember: false, rewind: false }
    }

    #[test]
    fn a_stored_checkpoint_wins_over_the_initial_position() {
        let partition = partition(0, Some(9));
        let stored = finished(4, None);
        assert_eq!(
            from(Some(&stored), StartPosition::Latest, &partition),
            plain(StartPosition::after(SequenceNumber(4)))
        );
        assert_eq!(from(None, StartPosition::Earliest, &partition), plain(StartPosition::Earliest));
    }

    #[test]
    fn an_initial_position_that_moves_with_time_is_written_down() {
        let latest = from(None, StartPosition::Latest, &partition(0, Some(9)));
        assert_eq!(latest.start, StartPosition::after(SequenceNumber(9)));
        assert!(latest.remember);
        let empty = from(None, StartPosition::Latest, &partition(3, None));
        assert_eq!(empty.start, StartPosition::at(SequenceNumber(3)));
        let time = from(None, StartPosition::EnqueuedTime(Timestamp(5)), &partition(0, Some(9)));
        assert_eq!((time.start, time.remember), (StartPosition::EnqueuedTime(Timestamp(5)), true));
        let at = StartPosition::at(SequenceNumber(3));
        assert_eq!(from(None, at.clone(), &partition(0, Some(9))), plain(at));
        let mut sought = finished(0, None);
        sought.position = Position::Start(StartPosition::EnqueuedTime(Timestamp(5)));
        assert!(!from(Some(&sought), StartPosition::Earliest, &partition(0, Some(9))).remember);
        assert_eq!(remembered(&StartPosition::Earliest), Position::Start(StartPosition::Earliest));
    }

    #[test]
    fn a_partition_that_came_later_starts_at_the_earliest() {
        let origin = GroupOrigin { partitions: vec![PartitionId(0)], log: None };
        let latest = || StartPosition::Latest;
        assert_eq!(initial_position(Some(&origin), PartitionId(0), latest), StartPosition::Latest);
        assert_eq!(initial_position(Some(&origin), PartitionId(1), latest), StartPosition::Earliest);
        assert_eq!(initial_position(None, PartitionId(1), latest), StartPosition::Latest);
    }

    #[test]
    fn what_retention_took_is_counted() {
        let kept = partition(8, Some(9));
        let lost = from(Some(&finished(4, None)), StartPosition::Latest, &kept);
        assert_eq!(lost.start, StartPosition::Earliest);
        let ground = lost.lost.unwrap();
        assert_eq!(ground.gone(), Some(3));
        assert_eq!(
            ground.to_string(),
            "3 events are gone (removed, damaged, or their numbers were never used): reading should go on at 5, and the \
             next event is 8"
        );
        assert_eq!(from(Some(&finished(7, None)), StartPosition::Latest, &kept).lost, None);
        assert_eq!(
            from(Some(&finished(6, None)), StartPosition::Latest, &kept).lost.unwrap().gone(),
            Some(1)
        );
    }

    #[test]
    fn a_position_that_seems_to_lie_beyond_the_end_is_tried_all_the_same() {
        let end = partition(0, Some(9));
        let behind = |sequence| StartPosition::after(SequenceNumber(sequence));
        assert_eq!(beyond_the_end(&behind(9), &end), None);
        assert_eq!(from(Some(&finished(10, None)), StartPosition::Latest, &end), plain(behind(10)));
        let ground = beyond_the_end(&behind(10), &end).unwrap();
        assert_eq!(ground.gone(), None);
        assert_eq!(ground.to_string(), "reading should go on at 11, but the log ends before 10");
        assert!(beyond_the_end(&behind(0), &partition(0, None)).is_some());
        // With proof, the start is written over the checkpoint.
        let proven = replacement(ground, &end, OnInvalidPosition::Earliest).unwrap();
        assert!(proven.rewind && proven.remember);
    }

    #[test]
    fn the_end_is_behind_the_numbers_that_were_passed_over() {
        let jumped = PartitionProperties { next: SequenceNumber(20), ..partition(0, Some(9)) };
        let latest = from(None, StartPosition::Latest, &jumped);
        assert_eq!(latest.start, StartPosition::at(SequenceNumber(20)));
        assert_eq!(beyond_the_end(&StartPosition::at(SequenceNumber(20)), &jumped), None);
        assert!(beyond_the_end(&StartPosition::at(SequenceNumber(21)), &jumped).is_some());
    }

    #[test]
    fn a_position_of_another_log_does_not_exist() {
        let end = partition(0, Some(9));
        let is = LogId::new("b");
        let check = |was| {
            resume(
                Some(&finished(4, was)),
                StartPosition::Earliest,
                &end,
                Some(&is),
                OnInvalidPosition::Earliest,
            )
            .unwrap()
            .lost
        };
        assert_eq!(
            check(Some("a")).unwrap().to_string(),
            "the position belongs to log a, but the hub was created again as log b"
        );
        assert_eq!(check(Some("b")), None);
        assert_eq!(check(None), None);
    }

    #[test]
    fn a_gap_is_inside_the_log_unless_retention_has_passed_it() {
        let ground = LostGround::Overtaken { wanted: SequenceNumber(20), oldest: SequenceNumber(30) };
        for (first, inside) in [(0, true), (20, true), (21, false), (30, false)] {
            assert_eq!(ground.is_inside(&partition(first, Some(40))), inside, "{first}");
        }
        let unknown = LostGround::Unknown { message: "offset 7".into() };
        assert!(!unknown.is_inside(&partition(0, Some(40))));
    }

    #[test]
    fn the_policy_says_where_to_go_on_instead() {
        let kept = partition(8, Some(9));
        let stored = finished(4, None);
        let go = |policy| resume(Some(&stored), StartPosition::Earliest, &kept, None, policy);
        let latest = go(OnInvalidPosition::Latest).unwrap();
        assert_eq!(latest.start, StartPosition::after(SequenceNumber(9)));
        assert!(latest.remember);
        assert_eq!(latest.skips(&kept), (SequenceNumber(10), 2));
        assert_eq!(go(OnInvalidPosition::Earliest).unwrap().skips(&kept), (SequenceNumber(8), 0));
        assert!(!go(OnInvalidPosition::Earliest).unwrap().remember);
        assert!(!latest.rewind);
        // An event was received that the properties do not include yet.
        let ground = LostGround::Overtaken { wanted: SequenceNumber(20), oldest: SequenceNumber(30) };
        let ahead = replacement(ground, &kept, OnInvalidPosition::Latest).unwrap();
        assert_eq!(ahead.start, StartPosition::at(SequenceNumber(30)));
        assert_eq!(ahead.skips(&kept), (SequenceNumber(30), 0));
        assert!(matches!(go(OnInvalidPosition::Stop), Err(LostGround::Overtaken { .. })));
        let unknown = LostGround::Unknown { message: "offset 7".into() };
        assert_eq!(unknown.to_string(), "the hub knows no such position: offset 7");
    }
}
