//! Tests of the position at which the new owner of a partition starts to read.

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
        position: Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None },
        log: log.map(LogId::new),
        epoch: Epoch::NONE,
        saved_at: Timestamp(0),
    }
}

fn from(checkpoint: Option<&Checkpoint>, initial: StartPosition, partition: &PartitionProperties) -> Resume {
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
    let cause = lost.lost.unwrap();
    assert_eq!(cause.gone(), Some(3));
    assert_eq!(
        cause.to_string(),
        "3 events are gone (removed, damaged, or their numbers were never used): reading should go on at 5, and the \
         next event is 8"
    );
    assert_eq!(from(Some(&finished(7, None)), StartPosition::Latest, &kept).lost, None);
    assert_eq!(from(Some(&finished(6, None)), StartPosition::Latest, &kept).lost.unwrap().gone(), Some(1));
}

#[test]
fn a_position_that_seems_to_lie_beyond_the_end_is_tried_all_the_same() {
    let end = partition(0, Some(9));
    let behind = |sequence| StartPosition::after(SequenceNumber(sequence));
    assert_eq!(beyond_the_end(&behind(9), &end), None);
    assert_eq!(from(Some(&finished(10, None)), StartPosition::Latest, &end), plain(behind(10)));
    let cause = beyond_the_end(&behind(10), &end).unwrap();
    assert_eq!(cause.gone(), None);
    assert_eq!(cause.to_string(), "reading should go on at 11, but the log ends before 10");
    assert!(beyond_the_end(&behind(0), &partition(0, None)).is_some());
    // With proof, the start is written over the checkpoint.
    let proven = replacement(cause, &end, OnInvalidPosition::Earliest).unwrap();
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
        resume(Some(&finished(4, was)), StartPosition::Earliest, &end, Some(&is), OnInvalidPosition::Earliest)
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
    let cause = PositionGone::EventsGone { wanted: SequenceNumber(20), oldest: SequenceNumber(30) };
    for (first, inside) in [(0, true), (20, true), (21, false), (30, false)] {
        assert_eq!(cause.is_inside(&partition(first, Some(40))), inside, "{first}");
    }
    let unknown = PositionGone::Unknown { message: "offset 7".into() };
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
    let cause = PositionGone::EventsGone { wanted: SequenceNumber(20), oldest: SequenceNumber(30) };
    let ahead = replacement(cause, &kept, OnInvalidPosition::Latest).unwrap();
    assert_eq!(ahead.start, StartPosition::at(SequenceNumber(30)));
    assert_eq!(ahead.skips(&kept), (SequenceNumber(30), 0));
    assert!(matches!(go(OnInvalidPosition::Stop), Err(PositionGone::EventsGone { .. })));
    let unknown = PositionGone::Unknown { message: "offset 7".into() };
    assert_eq!(unknown.to_string(), "the hub knows no such position: offset 7");
}
