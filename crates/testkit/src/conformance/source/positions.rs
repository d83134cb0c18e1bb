//! Conformance tests of start positions.

use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::source::{OpenError, OpenRequest};

use super::SourceFixture;
use super::receiver_steps::{numbers, open_at, receive, refusal, request, send_numbers};

/// The number of events in the partition of these properties.
const COUNT: u64 = 8;

async fn filled<F: SourceFixture>() -> F {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..COUNT).await;
    fixture
}

/// Opens at this position, and checks that exactly the events from `first` on come. An event that
/// is sent afterwards shows where they end.
async fn begins_at<F: SourceFixture>(fixture: &F, start: StartPosition, first: u64, next: &mut u64) {
    let mut receiver = open_at(fixture, start.clone()).await;
    send_numbers(fixture, [*next]).await;
    *next += 1;
    let events = receive(&mut receiver, (*next - first) as usize).await;
    assert_eq!(numbers(&events), Vec::from_iter(first..*next), "{start}");
    receiver.close().await;
}

/// The first event of the log.
pub async fn earliest_begins_at_the_first_event<F: SourceFixture>() {
    begins_at(&filled::<F>().await, StartPosition::Earliest, 0, &mut COUNT.clone()).await;
}

/// Events from before the receiver was opened do not come.
pub async fn latest_yields_only_news<F: SourceFixture>() {
    let fixture = filled::<F>().await;
    let mut receiver = open_at(&fixture, StartPosition::Latest).await;
    send_numbers(&fixture, COUNT..COUNT + 3).await;
    assert_eq!(numbers(&receive(&mut receiver, 3).await), Vec::from_iter(COUNT..COUNT + 3));
}

/// At: with the event itself. After: without it.
pub async fn every_sequence_number_can_be_started_at_and_after<F: SourceFixture>() {
    let (fixture, mut next) = (filled::<F>().await, COUNT);
    for number in 0..COUNT {
        let sequence = SequenceNumber(number);
        begins_at(&fixture, StartPosition::at(sequence), number, &mut next).await;
        begins_at(&fixture, StartPosition::after(sequence), number + 1, &mut next).await;
    }
}

/// At: with the event itself. After: without it.
pub async fn every_offset_can_be_started_at_and_after<F: SourceFixture>() {
    let (fixture, mut next) = (filled::<F>().await, COUNT);
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, COUNT as usize).await;
    for event in &events {
        let (number, offset) = (event.sequence.0, event.offset.clone());
        let at = StartPosition::Offset { offset: offset.clone(), inclusive: true };
        begins_at(&fixture, at, number, &mut next).await;
        let after = StartPosition::Offset { offset, inclusive: false };
        begins_at(&fixture, after, number + 1, &mut next).await;
    }
}

/// For all ways to name the end.
pub async fn a_start_behind_the_last_event_yields_only_news<F: SourceFixture>() {
    let (fixture, mut next) = (filled::<F>().await, COUNT);
    begins_at(&fixture, StartPosition::at(SequenceNumber(next)), next, &mut next.clone()).await;
    next += 1;
    begins_at(&fixture, StartPosition::after(SequenceNumber(next - 1)), next, &mut next.clone()).await;
    next += 1;
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, next as usize).await;
    let offset = events.last().expect("there are events").offset.clone();
    begins_at(&fixture, StartPosition::Offset { offset, inclusive: false }, next, &mut next.clone()).await;
}

/// It may be a checkpoint of another log, so it must be an error.
pub async fn a_start_beyond_the_end_does_not_exist<F: SourceFixture>() {
    let fixture = filled::<F>().await;
    for start in [
        StartPosition::after(SequenceNumber(COUNT)),
        StartPosition::at(SequenceNumber(COUNT + 1)),
        StartPosition::at(SequenceNumber(COUNT + 1_000_000)),
    ] {
        does_not_exist(&fixture, start).await;
    }
}

/// Text that no hub writes, and a number far beyond the end.
pub async fn an_offset_that_is_none_does_not_exist<F: SourceFixture>() {
    let fixture = filled::<F>().await;
    for text in ["no offset", "", "9223372036854775807"] {
        for inclusive in [true, false] {
            does_not_exist(&fixture, StartPosition::Offset { offset: Offset::new(text), inclusive }).await;
        }
    }
}

async fn does_not_exist<F: SourceFixture>(fixture: &F, start: StartPosition) {
    let error = refusal(fixture, OpenRequest { start: start.clone(), ..request("reader", None) }).await;
    assert!(matches!(error, OpenError::InvalidPosition { .. }), "{start}: {error}");
}

/// Events with the same time come together: none of them is skipped.
pub async fn a_start_by_time_begins_at_the_first_event_of_that_time_or_later<F: SourceFixture>() {
    let (fixture, mut next) = (filled::<F>().await, COUNT);
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, COUNT as usize).await;
    let first = events[0].enqueued_at;
    let long_before = first - std::time::Duration::from_secs(3_600);
    begins_at(&fixture, StartPosition::EnqueuedTime(long_before), 0, &mut next).await;
    for event in &events {
        let time = event.enqueued_at;
        let expected = events.iter().position(|event| event.enqueued_at >= time).unwrap_or_default() as u64;
        begins_at(&fixture, StartPosition::EnqueuedTime(time), expected, &mut next).await;
    }
}

/// A new owner of a new partition has no event to refer to yet.
pub async fn an_empty_partition_can_be_started_at_its_next_event<F: SourceFixture>() {
    let starts = [StartPosition::Earliest, StartPosition::Latest, StartPosition::at(SequenceNumber(0))];
    for start in starts {
        begins_at(&F::new(1).await, start, 0, &mut 0).await;
    }
    does_not_exist(&F::new(1).await, StartPosition::after(SequenceNumber(0))).await;
}
