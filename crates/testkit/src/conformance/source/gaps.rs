//! Conformance tests of gaps: sequence numbers without an event, as damage or compaction leaves them. Only
//! for fixtures that can lose events.

use ephor_core::event::Event;
use ephor_core::position::{SequenceNumber, StartPosition};

use super::SourceFixture;
use super::receiver_steps::{HERE, numbers, open_at, receive, send_numbers};

/// A partition with events 0 to 9 without those from `first` to `last`; `None` if the fixture
/// cannot lose events.
async fn without<F: SourceFixture>(first: u64, last: u64) -> Option<F> {
    let fixture = F::new(1).await;
    if !fixture.can_lose() {
        return None;
    }
    send_numbers(&fixture, 0..10).await;
    fixture.lose(HERE, SequenceNumber(first)..SequenceNumber(last + 1)).await;
    Some(fixture)
}

fn sequence_numbers(events: &[Event]) -> Vec<u64> {
    events.iter().map(|event| event.sequence.0).collect()
}

/// The events after it keep their numbers, so that the reader sees the gap.
pub async fn a_gap_is_passed_over_and_the_numbers_show_it<F: SourceFixture>() {
    let Some(fixture) = without::<F>(3, 5).await else { return };
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 7).await;
    assert_eq!(sequence_numbers(&events), [0, 1, 2, 6, 7, 8, 9]);
    assert_eq!(numbers(&events), sequence_numbers(&events));
}

/// The position exists, although its event does not.
pub async fn a_start_inside_a_gap_begins_at_the_next_event<F: SourceFixture>() {
    let Some(fixture) = without::<F>(3, 5).await else { return };
    for start in [
        StartPosition::after(SequenceNumber(2)),
        StartPosition::at(SequenceNumber(3)),
        StartPosition::after(SequenceNumber(4)),
        StartPosition::at(SequenceNumber(5)),
    ] {
        let events = receive(&mut open_at(&fixture, start.clone()).await, 4).await;
        assert_eq!(sequence_numbers(&events), [6, 7, 8, 9], "{start}");
    }
}

/// The numbers of lost events are not used again.
pub async fn a_gap_at_the_end_stays_a_gap<F: SourceFixture>() {
    let Some(fixture) = without::<F>(7, 9).await else { return };
    let properties = fixture.source().partition_properties(HERE).await.expect("it exists");
    assert_eq!(properties.next, SequenceNumber(10));
    let mut receiver = open_at(&fixture, StartPosition::after(SequenceNumber(6))).await;
    send_numbers(&fixture, [10]).await;
    assert_eq!(sequence_numbers(&receive(&mut receiver, 1).await), [10]);
}
