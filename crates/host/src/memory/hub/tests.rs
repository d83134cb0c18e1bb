//! Tests of faults that a hub in memory simulates: damage, and replicas that lag behind.

use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, OpenError, OpenRequest, Receiver};
use futures_util::FutureExt;

use super::MemoryHub;

const P: PartitionId = PartitionId(0);

fn hub_with(events: u64) -> MemoryHub {
    let hub = MemoryHub::new("homes", 1).unwrap();
    send(&hub, events);
    hub
}

fn send(hub: &MemoryHub, events: u64) {
    for _ in 0..events {
        hub.send(P, "an event").unwrap();
    }
}

/// Opens a receiver. A hub in memory answers at once.
fn open(hub: &MemoryHub, start: StartPosition) -> Result<Box<dyn Receiver>, OpenError> {
    let request = OpenRequest { start, ..OpenRequest::probe(&ConsumerGroup::default_group(), P, "reader") };
    hub.open(request).now_or_never().unwrap()
}

fn numbers(receiver: &mut dyn Receiver) -> Vec<u64> {
    let mut events = vec![];
    receiver.receive(&mut events, 100).now_or_never().unwrap().unwrap();
    events.iter().map(|event| event.sequence.0).collect()
}

#[test]
fn events_that_are_lost_in_the_middle_leave_a_gap_inside_one_batch() {
    let hub = hub_with(10);
    hub.lose(P, SequenceNumber(3)..SequenceNumber(6)).unwrap();
    assert_eq!(numbers(&mut *open(&hub, StartPosition::Earliest).unwrap()), [0, 1, 2, 6, 7, 8, 9]);
    assert_eq!(hub.send(P, "the next").unwrap(), SequenceNumber(10));
    let properties = &hub.true_properties()[0];
    assert_eq!((properties.first, properties.next), (SequenceNumber(0), SequenceNumber(11)));
    assert!(hub.lose(PartitionId(1), SequenceNumber(0)..SequenceNumber(1)).is_err());
}

#[test]
fn a_replica_that_lags_refuses_what_lies_beyond_its_end_and_nothing_else() {
    let hub = hub_with(5);
    let mut reader = open(&hub, StartPosition::Earliest).unwrap();
    hub.hold_opens();
    send(&hub, 5);
    assert_eq!(numbers(&mut *reader), [0, 1, 2, 3, 4, 5, 6, 7, 8, 9], "who reads gets everything");
    let told = hub.partition_properties(P).now_or_never().unwrap().unwrap();
    assert_eq!(told.next, SequenceNumber(5));
    let refused = open(&hub, StartPosition::at(SequenceNumber(6))).err();
    let Some(OpenError::InvalidPosition { message }) = refused else { panic!("{refused:?}") };
    assert!(message.contains("'6' is invalid. The last sequence number in the system is '4'"), "{message}");
    for start in [StartPosition::at(SequenceNumber(5)), StartPosition::Earliest, StartPosition::Latest] {
        assert!(open(&hub, start).is_ok());
    }
    hub.hold_properties(false);
    assert!(open(&hub, StartPosition::at(SequenceNumber(6))).is_ok());
}
