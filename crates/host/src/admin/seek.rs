//! The targets of a seek, and its planned or actual result for each partition.

use std::fmt;

use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::source::PartitionProperties;
use ephor_core::time::Timestamp;

use super::AdminError;

/// The target of a seek.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekTo {
    /// To the oldest event kept.
    Earliest,
    /// After the newest event.
    Latest,
    /// So that this event is the next.
    Sequence(SequenceNumber),
    /// So that the event at this offset is the next.
    Offset(Offset),
    /// So that the first event enqueued at this time or later is the next.
    Time(Timestamp),
    /// This many events forward (or back, if negative) from the checkpoint.
    By(i64),
}

/// The effect of a seek on one partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct SeekStep {
    /// The partition.
    pub partition: PartitionId,
    /// The position before.
    pub from: Option<Position>,
    /// The position after.
    pub to: Position,
    /// The number of events that are skipped, or repeated if negative; `None` if unknown. Without a
    /// checkpoint it is counted from the oldest event that is kept.
    pub distance: Option<i64>,
    /// The owner that will notice it.
    pub owner: Option<HostId>,
    /// The outcome; `None` for a dry run.
    pub outcome: Option<SeekStepOutcome>,
}

impl fmt::Display for SeekStep {
    /// `partition 0: after 901 -> at sequence number 891, 10 events repeated`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let from = self.from.as_ref().map_or("no checkpoint".into(), |from| from.start().to_string());
        write!(f, "partition {}: {from} -> {}", self.partition, self.to.start())?;
        match self.distance {
            Some(0) => write!(f, ", no event skipped or repeated")?,
            Some(skipped @ 1..) => write!(f, ", {skipped} events skipped")?,
            Some(repeated) => write!(f, ", {} events repeated", repeated.unsigned_abs())?,
            None => {}
        }
        match &self.outcome {
            None => Ok(()),
            Some(SeekStepOutcome::Done(epoch)) => write!(f, ", done in epoch {epoch}"),
            Some(SeekStepOutcome::OtherSdkOwner(owner)) => {
                write!(f, ", not done: its owner {owner} is another SDK's and would not notice")
            }
        }
    }
}

/// The outcome of a seek.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
#[non_exhaustive]
pub enum SeekStepOutcome {
    /// Done, in this epoch.
    Done(Epoch),
    /// The owner is another SDK's processor and would not notice; nothing was changed. Use
    /// [`SeekMode::Force`] to do it nevertheless.
    OtherSdkOwner(String),
}

/// The mode of a seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum SeekMode {
    /// Only report what would happen.
    DryRun,
    /// Do it.
    Apply,
    /// Do it even if the owner is another SDK's processor.
    Force,
}

/// Resolves a seek target to a position.
pub(super) fn resolve(
    to: &SeekTo,
    from: Option<&Position>,
    partition: &PartitionProperties,
) -> Result<Position, AdminError> {
    let (first, end) = (partition.first, partition.next);
    Ok(Position::Start(match to {
        SeekTo::Earliest => StartPosition::Earliest,
        SeekTo::Latest => StartPosition::at(end),
        SeekTo::Sequence(wanted) if (first..=end).contains(wanted) => StartPosition::at(*wanted),
        SeekTo::Sequence(wanted) => {
            return Err(AdminError::OutOfRange { partition: partition.id, wanted: *wanted, first, end });
        }
        SeekTo::Offset(offset) => StartPosition::Offset { offset: offset.clone(), inclusive: true },
        SeekTo::Time(time) => StartPosition::EnqueuedTime(*time),
        SeekTo::By(events) => {
            let next = from.and_then(|from| next_event(from, partition));
            let next = next.ok_or(AdminError::NoCheckpoint { partition: partition.id })?;
            StartPosition::at(SequenceNumber(next.0.saturating_add_signed(*events).clamp(first.0, end.0)))
        }
    }))
}

/// The event that is read next from this position, if known.
fn next_event(position: &Position, partition: &PartitionProperties) -> Option<SequenceNumber> {
    match position.start() {
        StartPosition::Earliest => Some(partition.first),
        StartPosition::Latest => Some(partition.next),
        StartPosition::Sequence { number, inclusive: true } => Some(number),
        StartPosition::Sequence { number, inclusive: false } => Some(number.next()),
        StartPosition::Offset { .. } | StartPosition::EnqueuedTime(_) => None,
    }
}

pub(super) fn distance(
    from: Option<&Position>,
    to: &Position,
    partition: &PartitionProperties,
) -> Option<i64> {
    let from = from.map_or(Some(partition.first), |from| next_event(from, partition))?;
    let to = next_event(to, partition)?;
    i64::try_from(i128::from(to.0) - i128::from(from.0)).ok()
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::source::LastEnqueued;

    fn partition() -> PartitionProperties {
        let last = LastEnqueued {
            sequence: SequenceNumber(19),
            offset: Offset::number(190),
            enqueued_at: Timestamp(0),
        };
        PartitionProperties::without_gap(PartitionId(0), SequenceNumber(10), Some(last))
    }

    fn finished(sequence: u64) -> Position {
        Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None }
    }

    fn at(sequence: u64) -> Position {
        Position::Start(StartPosition::at(SequenceNumber(sequence)))
    }

    #[test]
    fn wishes_become_positions_within_what_is_kept() {
        let partition = partition();
        let to = |to: SeekTo, from: Option<Position>| resolve(&to, from.as_ref(), &partition).unwrap();
        assert_eq!(to(SeekTo::Earliest, None), Position::Start(StartPosition::Earliest));
        assert_eq!(to(SeekTo::Latest, None), at(20));
        assert_eq!(to(SeekTo::Sequence(SequenceNumber(10)), None), at(10));
        assert_eq!(to(SeekTo::Sequence(SequenceNumber(20)), None), at(20));
        assert_eq!(to(SeekTo::By(3), Some(finished(12))), at(16));
        assert_eq!(to(SeekTo::By(-2), Some(finished(12))), at(11));
        assert_eq!(to(SeekTo::By(-99), Some(finished(12))), at(10));
        assert_eq!(to(SeekTo::By(99), Some(finished(12))), at(20));
        let nowhere = resolve(&SeekTo::By(1), None, &partition).unwrap_err().to_string();
        assert!(nowhere.starts_with("partition 0 has no checkpoint yet"), "{nowhere}");
        assert_eq!(to(SeekTo::By(1), Some(at(15))), at(16));
        for wanted in [9, 21] {
            let error = resolve(&SeekTo::Sequence(SequenceNumber(wanted)), None, &partition).unwrap_err();
            let kept = "it keeps 10 to 19, and 20 is the next to come";
            assert_eq!(error.to_string(), format!("partition 0 has no event {wanted}: {kept}"));
        }
        let empty = PartitionProperties::without_gap(partition.id, partition.first, None);
        let error = resolve(&SeekTo::Sequence(SequenceNumber(9)), None, &empty).unwrap_err();
        let kept = "it keeps none, and 10 is the next to come";
        assert_eq!(error.to_string(), format!("partition 0 has no event 9: {kept}"));
    }

    #[test]
    fn a_dry_run_says_how_many_events_are_skipped_or_repeated() {
        let partition = partition();
        let step = |to: Position| SeekStep {
            partition: PartitionId(0),
            from: Some(finished(12)),
            distance: distance(Some(&finished(12)), &to, &partition),
            to,
            owner: None,
            outcome: None,
        };
        let words = |to| step(to).to_string();
        assert_eq!(
            words(at(10)),
            "partition 0: after sequence number 12 -> at sequence number 10, 3 events repeated"
        );
        assert!(words(at(16)).ends_with(", 3 events skipped"));
        assert!(words(at(13)).ends_with(", no event skipped or repeated"));
        assert_eq!(distance(Some(&finished(12)), &at(16), &partition), Some(3));
        assert_eq!(distance(Some(&finished(12)), &at(10), &partition), Some(-3));
        let earliest = Position::Start(StartPosition::Earliest);
        assert_eq!(distance(Some(&finished(12)), &earliest, &partition), Some(-3));
        assert_eq!(distance(None, &at(12), &partition), Some(2));
        let time = Position::Start(StartPosition::EnqueuedTime(Timestamp(5)));
        assert_eq!(distance(Some(&finished(12)), &time, &partition), None);
    }
}
