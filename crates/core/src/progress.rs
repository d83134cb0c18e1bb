//! Computes lag: the distance of a group from the end of a partition.

use std::time::Duration;

use crate::position::SequenceNumber;
use crate::source::PartitionProperties;
use crate::time::Timestamp;

/// The lag between the end of a partition and the last finished event.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Lag {
    /// Events not yet finished.
    pub events: u64,
    /// The time from the last finished event to the newest one, by their enqueued times: the lag of
    /// an idle partition does not grow.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::duration_setting::millis"))]
    pub time: Duration,
}

impl Lag {
    /// The lag in seconds.
    pub fn seconds(&self) -> f64 {
        self.time.as_secs_f64()
    }
}

/// The last finished event: its number, and the time at which it was enqueued, if known.
pub type Finished = (SequenceNumber, Option<Timestamp>);

/// The lag of a partition whose newest event and last finished event are given.
///
/// If nothing is finished yet, all events that the partition keeps count, and the time is unknown:
/// zero.
pub fn lag(partition: &PartitionProperties, finished: Option<Finished>) -> Lag {
    let Some(last) = &partition.last else { return Lag::default() };
    match finished {
        None => {
            Lag { events: last.sequence.next().0.saturating_sub(partition.first.0), time: Duration::ZERO }
        }
        Some((sequence, _)) if sequence >= last.sequence => Lag::default(),
        Some((sequence, enqueued_at)) => Lag {
            events: last.sequence.0 - sequence.0,
            time: enqueued_at.map_or(Duration::ZERO, |then| last.enqueued_at.since(then)),
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::PartitionId;
    use crate::position::Offset;
    use crate::source::LastEnqueued;

    fn partition(first: u64, last: Option<(u64, i64)>) -> PartitionProperties {
        let last = last.map(|(sequence, at)| LastEnqueued {
            sequence: SequenceNumber(sequence),
            offset: Offset::number(sequence),
            enqueued_at: Timestamp(at),
        });
        PartitionProperties::without_gap(PartitionId(0), SequenceNumber(first), last)
    }

    #[test]
    fn lag_is_counted_in_events_and_in_the_hubs_own_seconds() {
        let partition = partition(10, Some((20, 9_500)));
        let behind = lag(&partition, Some((SequenceNumber(15), Some(Timestamp(2_000)))));
        assert_eq!(behind, Lag { events: 5, time: Duration::from_millis(7_500) });
        assert!((behind.seconds() - 7.5).abs() < 1e-9);
        assert_eq!(lag(&partition, Some((SequenceNumber(15), None))).time, Duration::ZERO);
    }

    #[test]
    fn whoever_is_at_the_end_is_not_behind() {
        let done = Some((SequenceNumber(20), Some(Timestamp(0))));
        assert_eq!(lag(&partition(10, Some((20, 9_500))), done), Lag::default());
        assert_eq!(lag(&partition(10, Some((19, 9_500))), done), Lag::default());
        assert_eq!(lag(&partition(10, None), None), Lag::default());
        assert_eq!(lag(&partition(21, Some((20, 9_500))), None), Lag::default());
    }

    #[test]
    fn with_nothing_finished_all_that_is_kept_is_still_to_do() {
        assert_eq!(lag(&partition(10, Some((20, 9_500))), None), Lag { events: 11, time: Duration::ZERO });
    }
}
