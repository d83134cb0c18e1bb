//! Tests of start positions: the beginning, the end, numbers, offsets and times.

use super::*;

#[tokio::test]
async fn the_beginning_is_the_first_event() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        assert_eq!(clocked.numbers(StartPosition::Earliest).await, from(0));
    }
}

#[tokio::test]
async fn the_end_is_behind_the_last_event() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        let mut reader = clocked.reader(StartPosition::Latest).await;
        clocked.hub.producer().send(NewEvent::new("news")).await.unwrap();
        assert_eq!(next(&mut reader, 10).await, [60]);
    }
}

#[tokio::test]
async fn every_number_and_every_offset_can_be_begun_at_and_behind() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        for number in 0..60 {
            let at = SequenceNumber(number);
            assert_eq!(clocked.numbers(StartPosition::at(at)).await, from(number));
            let at = |inclusive| StartPosition::Offset { offset: offset_of(number), inclusive };
            assert_eq!(clocked.numbers(at(true)).await, from(number));
            if number < 59 {
                assert_eq!(
                    clocked.numbers(StartPosition::after(SequenceNumber(number))).await,
                    from(number + 1)
                );
                assert_eq!(clocked.numbers(at(false)).await, from(number + 1));
            }
        }
    }
}

#[tokio::test]
async fn every_time_begins_at_the_first_event_of_that_time_or_later() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        for second in 0..15 {
            let first = second as u64 * 4;
            for (time, first) in
                [(time(second), first), (time(second) - 999, first), (time(second) - 1, first)]
            {
                let start = StartPosition::EnqueuedTime(Timestamp(time));
                assert_eq!(clocked.numbers(start).await, from(first), "at {time}");
            }
        }
        assert_eq!(clocked.numbers(StartPosition::EnqueuedTime(Timestamp(0))).await, from(0));
    }
}

#[tokio::test]
async fn a_time_to_come_begins_with_the_first_event_that_is_not_before_it() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        let mut reader = clocked.reader(StartPosition::EnqueuedTime(Timestamp(time(20)))).await;
        for second in [16, 19, 20, 21] {
            clocked.clock.set(time(second));
            clocked.hub.producer().send(NewEvent::new("news")).await.unwrap();
        }
        assert_eq!([next(&mut reader, 1).await, next(&mut reader, 1).await], [[62], [63]]);
        assert_eq!(reader.take_missed(), 0, "an event that is too early is not reported as missed");
    }
}

#[tokio::test]
async fn the_next_event_to_come_can_be_begun_at_and_nothing_beyond_it() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        for start in [StartPosition::at(SequenceNumber(60)), StartPosition::after(SequenceNumber(59))] {
            drop(clocked.reader(start).await);
        }
        // Over AMQP it has to be an event that was stored, as with the service.
        let group = ConsumerGroup::default_group();
        let at_event = |start| OpenRequest { start, ..OpenRequest::probe(&group, FIRST, "test") };
        for (start, accepted) in [
            (StartPosition::at(SequenceNumber(59)), true),
            (StartPosition::after(SequenceNumber(59)), true),
            (StartPosition::at(SequenceNumber(60)), false),
            (StartPosition::after(SequenceNumber(60)), false),
        ] {
            let opened = clocked.hub.receiver_at_event(at_event(start.clone())).await;
            assert_eq!(opened.is_ok(), accepted, "{start}");
        }
        for start in [61, 1_000, u64::MAX] {
            let refused =
                clocked.hub.reader(FIRST, StartPosition::at(SequenceNumber(start))).await.unwrap_err();
            let said = format!(
                "no such position: The supplied sequence number '{start}' is invalid. The last sequence \
                 number in the system is '59'"
            );
            assert!(matches!(refused, OpenError::InvalidPosition { .. }));
            assert_eq!(refused.to_string(), said);
            let behind = StartPosition::after(SequenceNumber(start));
            assert!(clocked.hub.reader(FIRST, behind).await.is_err());
        }
    }
}

#[tokio::test]
async fn an_offset_between_two_events_begins_at_the_second() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        for (offset, number) in [(1, 1), (63, 1), (65, 1), (95, 1), (97, 2), (127, 2), (1_951, 59)] {
            for inclusive in [true, false] {
                let start = StartPosition::Offset { offset: Offset::number(offset), inclusive };
                assert_eq!(clocked.numbers(start).await, from(number), "{offset}");
            }
        }
    }
}

#[tokio::test]
async fn an_offset_beyond_the_last_is_no_position() {
    for clocked in ClockedHub::every_kind(1) {
        let refused = |offset: Offset, last: &str| {
            let said = format!(
                "no such position: The supplied offset '{offset}' is invalid. The last offset in the system is \
                 '{last}'"
            );
            let hub = clocked.hub.clone();
            async move {
                for inclusive in [true, false] {
                    let start = StartPosition::Offset { offset: offset.clone(), inclusive };
                    assert_eq!(hub.reader(FIRST, start).await.unwrap_err().to_string(), said);
                }
            }
        };
        refused(Offset::number(0), "-1").await;
        clocked.fill().await;
        let last = offset_of(59).as_number().unwrap();
        for offset in [Offset::number(last + 1), offset_of(60), Offset::new("@latest"), Offset::new("-1")] {
            refused(offset, &last.to_string()).await;
        }
    }
}

#[tokio::test]
async fn an_empty_partition_can_be_begun_everywhere_it_will_be() {
    for clocked in ClockedHub::every_kind(2) {
        let starts = [
            StartPosition::Earliest,
            StartPosition::Latest,
            StartPosition::at(SequenceNumber(0)),
            StartPosition::EnqueuedTime(Timestamp(0)),
            StartPosition::EnqueuedTime(Timestamp(time(0))),
        ];
        let mut readers = Vec::new();
        for start in starts {
            readers.push(clocked.reader(start).await);
        }
        clocked.hub.producer().send_to(PartitionId(1), NewEvent::new("of another")).await.unwrap();
        clocked.hub.producer().send_to(FIRST, NewEvent::new("door")).await.unwrap();
        for reader in &mut readers {
            assert_eq!(next(reader, 10).await, [0]);
        }
    }
}

#[tokio::test]
async fn unknown_partitions_are_told_by_their_number() {
    for clocked in ClockedHub::every_kind(2) {
        let refused = clocked.hub.reader(PartitionId(2), StartPosition::Earliest).await.unwrap_err();
        assert_eq!(refused.to_string(), "partition 2 of hub \"homes\" does not exist");
        let refused = clocked.hub.partition_properties(PartitionId(9)).await.unwrap_err();
        assert_eq!(refused.to_string(), "partition 9 of hub \"homes\" does not exist");
    }
}
