//! Conformance tests of retention: the oldest events are deleted. Only for fixtures that can delete them.

use ephor_core::position::{SequenceNumber, StartPosition};

use super::SourceFixture;
use super::receiver_steps::{HERE, numbers, open_at, receive, send_numbers};

/// A partition with events 0 to 9; `None` if the fixture cannot forget.
async fn filled<F: SourceFixture>() -> Option<F> {
    let fixture = F::new(1).await;
    if !fixture.can_forget() {
        return None;
    }
    send_numbers(&fixture, 0..10).await;
    Some(fixture)
}

/// The end of the log is unchanged.
pub async fn forgetting_moves_the_first_event_and_not_the_last<F: SourceFixture>() {
    let Some(fixture) = filled::<F>().await else { return };
    let before = fixture.source().partition_properties(HERE).await.expect("it exists");
    fixture.forget_before(HERE, SequenceNumber(4)).await;
    let after = fixture.source().partition_properties(HERE).await.expect("it exists");
    assert_eq!(after.first, SequenceNumber(4));
    assert_eq!(after.last, before.last);
}

/// Not at an event that is gone.
pub async fn earliest_begins_at_the_oldest_event_kept<F: SourceFixture>() {
    let Some(fixture) = filled::<F>().await else { return };
    fixture.forget_before(HERE, SequenceNumber(7)).await;
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 3).await;
    assert_eq!(numbers(&events), [7, 8, 9]);
    assert_eq!(events[0].sequence, SequenceNumber(7));
}

/// The sequence numbers show the reader that there is a gap.
pub async fn a_forgotten_start_begins_at_the_oldest_event_kept<F: SourceFixture>() {
    let Some(fixture) = filled::<F>().await else { return };
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 10).await;
    fixture.forget_before(HERE, SequenceNumber(7)).await;
    let offset = events[2].offset.clone();
    for start in [
        StartPosition::at(SequenceNumber(2)),
        StartPosition::after(SequenceNumber(2)),
        StartPosition::after(SequenceNumber(6)),
        StartPosition::Offset { offset: offset.clone(), inclusive: true },
        StartPosition::Offset { offset, inclusive: false },
        StartPosition::EnqueuedTime(events[0].enqueued_at),
    ] {
        let kept = receive(&mut open_at(&fixture, start.clone()).await, 3).await;
        assert_eq!(numbers(&kept), [7, 8, 9], "{start}");
    }
}

/// Prefetched events may still come; kept events come in any case.
pub async fn an_overtaken_receiver_goes_on_at_the_oldest_event_kept<F: SourceFixture>() {
    let Some(fixture) = filled::<F>().await else { return };
    let mut receiver = open_at(&fixture, StartPosition::Earliest).await;
    let mut received = numbers(&receive(&mut receiver, 2).await);
    fixture.forget_before(HERE, SequenceNumber(7)).await;
    while received.last() != Some(&9) {
        received.extend(numbers(&receive(&mut receiver, 1).await));
    }
    assert!(received.is_sorted(), "{received:?}");
    assert!(received.ends_with(&[7, 8, 9]), "{received:?}");
    assert!(received.starts_with(&[0, 1]), "{received:?}");
}

/// Numbers are never used twice.
pub async fn a_partition_that_forgot_everything_counts_on<F: SourceFixture>() {
    let Some(fixture) = filled::<F>().await else { return };
    fixture.forget_before(HERE, SequenceNumber(10)).await;
    let properties = fixture.source().partition_properties(HERE).await.expect("it exists");
    assert_eq!(properties.first, SequenceNumber(10));
    assert_eq!(properties.last.map(|last| last.sequence), Some(SequenceNumber(9)));
    let mut receivers = Vec::new();
    for start in [
        StartPosition::Earliest,
        StartPosition::after(SequenceNumber(9)),
        StartPosition::at(SequenceNumber(3)),
    ] {
        receivers.push(open_at(&fixture, start).await);
    }
    send_numbers(&fixture, [10]).await;
    for receiver in &mut receivers {
        let events = receive(receiver, 1).await;
        assert_eq!((events[0].sequence, numbers(&events)), (SequenceNumber(10), vec![10]));
    }
}
