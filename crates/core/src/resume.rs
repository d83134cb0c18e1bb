//! Decides at which position the new owner of a partition starts to read.
//!
//! A stored checkpoint wins over the initial position. A position that no longer exists, or does
//! not exist in this log, is always reported. A position that seems to lie beyond the end is tried
//! all the same, until there is proof ([`end_of_log_proof`]).

pub mod end_of_log_proof;

use std::fmt;

use crate::checkpoint::{Checkpoint, Position};
use crate::ids::{LogId, PartitionId};
use crate::position::{SequenceNumber, StartPosition};
use crate::source::PartitionProperties;
use crate::store::GroupOrigin;

/// The reaction to a position that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
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
#[non_exhaustive]
pub enum PositionGone {
    /// Events that were not finished do not exist: retention removed them, they are damaged, or
    /// their numbers were never used.
    EventsGone {
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

impl PositionGone {
    /// The number of lost events, if known.
    pub fn gone(&self) -> Option<u64> {
        match self {
            Self::EventsGone { wanted, oldest } => Some(oldest.0 - wanted.0),
            _ => None,
        }
    }

    /// True for a gap inside the log: the position is not older than everything that the partition
    /// keeps.
    pub fn is_inside(&self, partition: &PartitionProperties) -> bool {
        matches!(self, Self::EventsGone { wanted, .. } if *wanted >= partition.first)
    }

    /// The oldest event that the partition keeps and that was not read.
    fn next_kept(&self, partition: &PartitionProperties) -> SequenceNumber {
        match self {
            Self::EventsGone { oldest, .. } => *oldest,
            _ => partition.first,
        }
    }
}

impl fmt::Display for PositionGone {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::EventsGone { wanted, oldest } => {
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
    pub lost: Option<PositionGone>,
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
) -> Result<Resume, PositionGone> {
    let (start, another_log, initial_use) = match checkpoint {
        Some(checkpoint) => (checkpoint.position.start(), other_log(checkpoint, log), false),
        None => (initial, None, true),
    };
    let overtaken =
        || out_of_range(&start, partition).filter(|cause| matches!(cause, PositionGone::EventsGone { .. }));
    if let Some(lost) = another_log.or_else(overtaken) {
        return replacement(lost, partition, on_invalid);
    }
    let remember = initial_use && matches!(start, StartPosition::Latest | StartPosition::EnqueuedTime(_));
    let start = if start == StartPosition::Latest { end_of(partition) } else { start };
    Ok(Resume { start, lost: None, remember, rewind: false })
}

/// The replacement for a position that was found not to exist.
pub fn replacement(
    lost: PositionGone,
    partition: &PartitionProperties,
    on_invalid: OnInvalidPosition,
) -> Result<Resume, PositionGone> {
    let start = match (on_invalid, &lost) {
        (OnInvalidPosition::Earliest, _) => StartPosition::Earliest,
        // Properties that are older than what the receivers report do not lead back.
        (OnInvalidPosition::Latest, PositionGone::EventsGone { oldest, .. }) if *oldest > partition.next => {
            StartPosition::at(*oldest)
        }
        (OnInvalidPosition::Latest, _) => end_of(partition),
        (OnInvalidPosition::Stop, _) => return Err(lost),
    };
    let rewind = matches!(lost, PositionGone::BeyondTheEnd { .. });
    let remember = rewind || on_invalid == OnInvalidPosition::Latest;
    Ok(Resume { start, lost: Some(lost), remember, rewind })
}

/// The position as it is saved for a successor.
pub fn remembered(start: &StartPosition) -> Position {
    Position::Start(start.clone())
}

/// The reason, if a position lies beyond the end by the partition's properties. That alone is no
/// proof.
pub fn beyond_the_end(start: &StartPosition, partition: &PartitionProperties) -> Option<PositionGone> {
    out_of_range(start, partition).filter(|cause| matches!(cause, PositionGone::BeyondTheEnd { .. }))
}

/// "After the newest event", pinned to the event that is the newest now. Sequence numbers that were
/// passed over come after it.
fn end_of(partition: &PartitionProperties) -> StartPosition {
    match &partition.last {
        Some(last) if last.sequence.next() == partition.next => StartPosition::after(last.sequence),
        _ => StartPosition::at(partition.next),
    }
}

fn other_log(checkpoint: &Checkpoint, log: Option<&LogId>) -> Option<PositionGone> {
    let (was, is) = (checkpoint.log.as_ref()?, log?);
    (was != is).then(|| PositionGone::AnotherLog { was: was.clone(), is: is.clone() })
}

fn out_of_range(start: &StartPosition, partition: &PartitionProperties) -> Option<PositionGone> {
    let StartPosition::Sequence { number, inclusive } = start else { return None };
    let wanted = if *inclusive { *number } else { number.next() };
    if wanted < partition.first {
        Some(PositionGone::EventsGone { wanted, oldest: partition.first })
    } else if wanted > partition.next {
        Some(PositionGone::BeyondTheEnd { wanted, next: partition.next })
    } else {
        None
    }
}

#[cfg(test)]
mod tests;
