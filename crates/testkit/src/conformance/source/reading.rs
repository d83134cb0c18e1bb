//! Conformance tests of reading: all events arrive, in order and unchanged.

use std::collections::BTreeSet;

use bytes::Bytes;
use ephor_core::event::NewEvent;
use ephor_core::event::{Properties, Value};
use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{OpenError, OpenRequest, SourceError};
use ephor_core::time::Timestamp;

use super::SourceFixture;
use super::receiver_steps::{Alarm, HERE, numbers, open, open_at, receive, refusal, request, send_numbers};

/// The hub numbers its partitions from 0 on, and keeps the id of its log.
pub async fn the_hub_lists_its_partitions_in_order_and_keeps_its_log_id<F: SourceFixture>() {
    let fixture = F::new(3).await;
    let before = fixture.source().hub_properties().await.expect("the hub answers");
    assert_eq!(before.partitions, [PartitionId(0), PartitionId(1), PartitionId(2)]);
    send_numbers(&fixture, 0..3).await;
    let after = fixture.source().hub_properties().await.expect("the hub answers");
    assert_eq!(after, before);
}

/// Nothing was stored, and 0 is the next number.
pub async fn an_empty_partition_begins_at_zero_and_has_no_last_event<F: SourceFixture>() {
    let fixture = F::new(2).await;
    let properties = fixture.source().partition_properties(PartitionId(1)).await.expect("it exists");
    assert_eq!(properties.id, PartitionId(1));
    assert_eq!(properties.first, SequenceNumber(0));
    assert_eq!(properties.last, None);
}

/// The properties describe the last event as its receiver sees it.
pub async fn a_filled_partition_tells_its_first_and_its_last_event<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..5).await;
    let properties = fixture.source().partition_properties(HERE).await.expect("it exists");
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 5).await;
    let last = properties.last.expect("there is a last event");
    assert_eq!(properties.first, SequenceNumber(0));
    assert_eq!(last.sequence, SequenceNumber(4));
    assert_eq!(last.offset, events[4].offset);
    assert_eq!(last.enqueued_at, events[4].enqueued_at);
}

/// Numbers have no gap and start at 0, offsets never repeat, time never goes back.
pub async fn events_come_complete_and_in_order<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..100).await;
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 100).await;
    assert_eq!(numbers(&events), Vec::from_iter(0..100));
    assert!(events.iter().zip(0..).all(|(event, number)| event.sequence == SequenceNumber(number)));
    let offsets: BTreeSet<String> = events.iter().map(|event| event.offset.to_string()).collect();
    assert_eq!(offsets.len(), 100);
    assert!(events.is_sorted_by_key(|event| event.enqueued_at));
}

/// Every partition has its own numbers, and yields its own events only.
pub async fn partitions_do_not_mix<F: SourceFixture>() {
    let fixture = F::new(2).await;
    for number in 0..10_u32 {
        fixture.send(PartitionId(number % 2), NewEvent::new(number.to_string())).await;
    }
    for id in 0..2 {
        let request = OpenRequest { partition: PartitionId(id), ..request("reader", None) };
        let events = receive(&mut open(&fixture, request).await, 5).await;
        assert_eq!(numbers(&events), Vec::from_iter((0..5).map(|n| n * 2 + u64::from(id))));
        assert_eq!(events[4].sequence, SequenceNumber(4));
    }
}

/// The caller's limit holds, however many events wait.
pub async fn no_more_events_come_than_were_asked_for<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..20).await;
    let mut receiver = open_at(&fixture, StartPosition::Earliest).await;
    let mut events = Vec::new();
    for max in [1, 2, 3, 14] {
        let before = events.len();
        receiver.receive(&mut events, max).await.expect("the receiver is alive");
        let received = events.len() - before;
        assert!((1..=max).contains(&received), "{received} of at most {max}");
    }
    let rest = 20 - events.len();
    events.append(&mut receive(&mut receiver, rest).await);
    assert_eq!(numbers(&events), Vec::from_iter(0..20));
}

/// The caller's earlier events stay in front.
pub async fn a_receive_only_appends<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..2).await;
    let mut receiver = open_at(&fixture, StartPosition::Earliest).await;
    let mut events = receive(&mut receiver, 1).await;
    receiver.receive(&mut events, 10).await.expect("the receiver is alive");
    assert_eq!(numbers(&events), [0, 1]);
}

/// Without polling: the receiver calls its waker.
pub async fn a_waiting_receive_is_woken_by_news<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut receiver = open_at(&fixture, StartPosition::Earliest).await;
    let mut events = Vec::new();
    for number in 0..5 {
        let alarm = Alarm::new();
        let mut waiting = receiver.receive(&mut events, 10);
        assert!(alarm.poll(&mut waiting).is_pending(), "there is nothing to receive yet");
        send_numbers(&fixture, [number]).await;
        alarm.finish(&mut waiting).await.expect("the receiver is alive");
    }
    assert_eq!(numbers(&events), Vec::from_iter(0..5));
}

/// Before the event is there, and after it has come but was not polled for.
pub async fn dropping_a_waiting_receive_loses_nothing<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut receiver = open_at(&fixture, StartPosition::Earliest).await;
    let (mut events, mut abandoned) = (Vec::new(), Vec::new());
    for number in 0..30 {
        assert!(Alarm::new().poll(&mut receiver.receive(&mut abandoned, 10)).is_pending());
        let mut waiting = receiver.receive(&mut abandoned, 10);
        assert!(Alarm::new().poll(&mut waiting).is_pending());
        send_numbers(&fixture, [number]).await;
        drop(waiting);
        assert!(abandoned.is_empty(), "a receive that did not end has handed out nothing");
        events.append(&mut receive(&mut receiver, 1).await);
    }
    assert_eq!(numbers(&events), Vec::from_iter(0..30));
}

/// Polled once and dropped before every single event.
pub async fn dropping_a_ready_receive_loses_nothing<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..50).await;
    let mut receiver = open_at(&fixture, StartPosition::Earliest).await;
    let mut events = Vec::new();
    while events.len() < 50 {
        for max in [1, 2] {
            let before = events.len();
            drop(receiver.receive(&mut events, max));
            assert_eq!(events.len(), before, "a future that was never polled has done nothing");
            let polled = Alarm::new().poll(&mut receiver.receive(&mut events, max));
            assert_eq!(polled.is_ready(), events.len() > before, "handed out when it ends, and only then");
            if events.len() == 50 {
                break;
            }
            fixture.pause().await;
        }
    }
    assert_eq!(numbers(&events), Vec::from_iter(0..50));
}

/// Empty, large, and with all byte values.
pub async fn bodies_are_kept_byte_for_byte<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let bodies = [Bytes::new(), (0..=255).collect(), vec![0xab; 200_000].into(), "☃ ünïcode".into()];
    for body in &bodies {
        fixture.send(HERE, NewEvent::new(body.clone())).await;
    }
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, bodies.len()).await;
    assert!(events.iter().map(|event| &event.body).eq(&bodies));
    assert!(events.iter().all(|event| event.partition_key.is_none() && event.properties.is_empty()));
}

/// Every type of value.
pub async fn properties_are_kept_with_names_values_and_order<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let properties = Properties::from_iter([
        ("zone", Value::from("küche")),
        ("absent", Value::Null),
        ("armed", Value::Bool(true)),
        ("delta", Value::Int(i64::MIN)),
        ("count", Value::UInt(u64::MAX)),
        ("level", Value::Float(-0.125)),
        ("raw", Value::Bytes(Bytes::from_static(&[0, 255, 10]))),
        ("at", Value::Time(Timestamp(1_523_755_425_678))),
        ("before", Value::Time(Timestamp(-1))),
        ("device", Value::Uuid([0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 255])),
        ("größe", Value::from("日本語 😀")),
        ("", Value::from("")),
    ]);
    let event = NewEvent { properties: properties.clone(), ..NewEvent::new("x") };
    fixture.send(HERE, event).await;
    let events = receive(&mut open_at(&fixture, StartPosition::Earliest).await, 1).await;
    assert_eq!(events[0].properties, properties);
}

/// Events with one key keep their order.
pub async fn keys_are_kept_and_choose_one_partition<F: SourceFixture>() {
    let fixture = F::new(4).await;
    for number in 0..6_u32 {
        fixture.send_with_key("höme 7", number.to_string().into()).await;
    }
    let mut chosen = Vec::new();
    for id in (0..4).map(PartitionId) {
        let properties = fixture.source().partition_properties(id).await.expect("it exists");
        chosen.extend(properties.last.map(|_| id));
    }
    assert_eq!(chosen.len(), 1, "one key, one partition");
    let request = OpenRequest { partition: chosen[0], ..request("reader", None) };
    let events = receive(&mut open(&fixture, request).await, 6).await;
    assert_eq!(numbers(&events), Vec::from_iter(0..6));
    assert!(events.iter().all(|event| event.partition_key.as_deref() == Some("höme 7")));
}

/// Groups read independently.
pub async fn two_groups_each_receive_everything<F: SourceFixture>() {
    let fixture = F::new(1).await;
    send_numbers(&fixture, 0..10).await;
    let mut first = open(&fixture, request("first", Some(1))).await;
    assert_eq!(numbers(&receive(&mut first, 7).await), Vec::from_iter(0..7));
    let other = OpenRequest { group: fixture.second_group(), ..request("second", Some(1)) };
    let mut second = open(&fixture, other).await;
    assert_eq!(numbers(&receive(&mut second, 10).await), Vec::from_iter(0..10));
    assert_eq!(numbers(&receive(&mut first, 3).await), [7, 8, 9]);
}

/// It may be older than the newest event, but not than the last received one.
pub async fn the_newest_event_is_told_truthfully_or_not_at_all<F: SourceFixture>() {
    let fixture = F::new(1).await;
    let mut receiver = open_at(&fixture, StartPosition::Earliest).await;
    assert_eq!(receiver.last_enqueued(), None, "nothing was delivered yet");
    for number in 0..5 {
        send_numbers(&fixture, [number]).await;
        let events = receive(&mut receiver, 1).await;
        if let Some(last) = receiver.last_enqueued() {
            assert_eq!(last.sequence, events[0].sequence);
            assert_eq!(last.offset, events[0].offset);
            assert_eq!(last.enqueued_at, events[0].enqueued_at);
        }
    }
}

/// Zero, too: processors that know no epochs use it.
pub async fn any_epoch_opens_where_nobody_reads<F: SourceFixture>() {
    for epoch in [0, 1, 7, 636_730_203_068_015_448] {
        let fixture = F::new(1).await;
        send_numbers(&fixture, 0..2).await;
        let mut owner = open(&fixture, request("owner", Some(epoch))).await;
        assert_eq!(numbers(&receive(&mut owner, 2).await), [0, 1]);
    }
}

/// A former owner that does not know it yet keeps nobody out.
pub async fn without_fencing_a_reader_opens_whatever_the_epochs_of_the_others<F: SourceFixture>() {
    let fixture = F::new(1).await;
    if fixture.source().capabilities().fences_readers {
        return;
    }
    send_numbers(&fixture, 0..3).await;
    let _former = open(&fixture, request("former", Some(7))).await;
    for epoch in [Some(0), Some(7), Some(3), None] {
        let mut reader = open(&fixture, request("reader", epoch)).await;
        assert_eq!(numbers(&receive(&mut reader, 3).await), [0, 1, 2], "{epoch:?}");
    }
}

/// A wrong number is not reported as a busy hub.
pub async fn unknown_partitions_do_not_exist<F: SourceFixture>() {
    let fixture = F::new(2).await;
    let nowhere = PartitionId(2);
    let error = refusal(&fixture, OpenRequest { partition: nowhere, ..request("reader", None) }).await;
    assert!(matches!(error, OpenError::Source(SourceError::NotFound { .. })), "{error}");
    let answer = fixture.source().partition_properties(nowhere).await;
    assert!(matches!(answer, Err(SourceError::NotFound { .. })), "{answer:?}");
}
