//! Tests of the position at which reading starts: initial positions, checkpoints, and partitions that are
//! added later.

use crate::common::action_recorder::ActionRecorder;
use crate::common::action_recorder::{
    P0, events, seconds, send, start, stored, stored_sequence, until_finished,
};
use ephor::{
    CheckpointPolicy, EventProcessorOptions, InitialPosition, Offset, PartitionId, SequenceNumber,
    StartPosition,
};
use ephor_testkit::TestFleet;

fn beginning(recorder: &ActionRecorder, position: StartPosition) -> EventProcessorOptions {
    EventProcessorOptions {
        initial_position: position.into(),
        checkpoint: CheckpointPolicy::manual(),
        ..recorder.options()
    }
}

/// The events that are delivered, of ten that were there and three that come later.
async fn delivered_from(
    fleet: &mut TestFleet,
    recorder: &ActionRecorder,
    options: EventProcessorOptions,
) -> Vec<u64> {
    start(fleet, "a", options, &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    send(fleet, P0, 3);
    until_finished(fleet, recorder, P0, 12).await;
    recorder.delivered(P0)
}

#[tokio::test(start_paused = true)]
async fn without_a_word_reading_begins_at_the_earliest_event() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    let options = recorder.options();
    assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(0, 12));
}

#[tokio::test(start_paused = true)]
async fn the_initial_position_may_be_the_earliest_event_kept() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    fleet.hub().forget_before(P0, SequenceNumber(4)).unwrap();
    let options = beginning(&recorder, StartPosition::Earliest);
    assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(4, 12));
    assert!(
        recorder.all_reports().is_empty(),
        "nobody has lost what nobody had: {:?}",
        recorder.all_reports()
    );
}

#[tokio::test(start_paused = true)]
async fn the_initial_position_may_be_the_end() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    let options = beginning(&recorder, StartPosition::Latest);
    assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(10, 12));
}

#[tokio::test(start_paused = true)]
async fn the_initial_position_may_be_a_sequence_number() {
    for (position, first) in
        [(StartPosition::at(SequenceNumber(6)), 6), (StartPosition::after(SequenceNumber(6)), 7)]
    {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
        send(&fleet, P0, 10);
        let options = beginning(&recorder, position);
        assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(first, 12));
    }
}

#[tokio::test(start_paused = true)]
async fn the_initial_position_may_be_an_offset() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    // Reads the offsets first, as a user who writes one into a configuration does.
    let scribe = recorder.scribe().working(|context, batch| async move {
        let _ = context.checkpoint_at(&batch[6]).await?;
        Ok(())
    });
    start(&mut fleet, "look", beginning(&recorder, StartPosition::Earliest), &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    let Some(ephor::Position::Finished { offset: Some(offset), .. }) =
        stored(&fleet, P0).await.map(|checkpoint| checkpoint.position)
    else {
        panic!("a checkpoint carries its offset")
    };
    for (inclusive, first) in [(true, 6), (false, 7)] {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
        send(&fleet, P0, 10);
        let options = beginning(&recorder, StartPosition::Offset { offset: offset.clone(), inclusive });
        assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(first, 12));
    }
}

#[tokio::test(start_paused = true)]
async fn an_initial_offset_that_the_hub_does_not_know_is_reported_and_reading_begins_at_the_earliest() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    let nowhere = StartPosition::Offset { offset: Offset::new("nowhere"), inclusive: true };
    let options = beginning(&recorder, nowhere);
    assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(0, 12));
    let reports = recorder.reports("Partition");
    assert!(reports.len() == 1 && reports[0].text.contains("knows no such position"), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn the_initial_position_may_be_a_time() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 6);
    fleet.pass(seconds(10)).await;
    let then = fleet.environment().wall();
    fleet.pass(seconds(10)).await;
    send(&fleet, P0, 4);
    let options = beginning(&recorder, StartPosition::EnqueuedTime(then));
    assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(6, 12));
}

#[tokio::test(start_paused = true)]
async fn the_initial_position_may_be_a_function_of_the_partition() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(3);
    let choose = |partition: PartitionId| match partition.0 {
        0 => StartPosition::Earliest,
        1 => StartPosition::at(SequenceNumber(7)),
        _ => StartPosition::Latest,
    };
    for n in 0..3 {
        send(&fleet, PartitionId(n), 10);
    }
    let options = EventProcessorOptions {
        initial_position: InitialPosition::by_partition(choose),
        ..recorder.options()
    };
    start(&mut fleet, "a", options, &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    for n in 0..3 {
        send(&fleet, PartitionId(n), 1);
    }
    fleet.until_caught_up().await.unwrap();
    let firsts = [0, 1, 2].map(|n| recorder.delivered(PartitionId(n))[0]);
    assert_eq!(firsts, [0, 7, 10]);
}

#[tokio::test(start_paused = true)]
async fn a_stored_checkpoint_wins_over_every_initial_position() {
    for position in [
        StartPosition::Earliest,
        StartPosition::Latest,
        StartPosition::at(SequenceNumber(2)),
        StartPosition::EnqueuedTime(ephor::Timestamp(0)),
    ] {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
        send(&fleet, P0, 5);
        start(&mut fleet, "first", recorder.options(), &recorder.scribe()).await;
        until_finished(&fleet, &recorder, P0, 4).await;
        fleet.stop("first").await;
        send(&fleet, P0, 5);
        recorder.clear();
        let options = beginning(&recorder, position);
        assert_eq!(delivered_from(&mut fleet, &recorder, options).await, events(5, 12));
    }
}

#[tokio::test(start_paused = true)]
async fn the_end_is_found_once_and_what_arrives_while_nobody_reads_is_not_lost() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    assert_eq!(recorder.delivered(P0), []);
    fleet.kill("a");
    // Nobody owns the partition now, and no event of it was ever finished.
    send(&fleet, P0, 4);
    start(&mut fleet, "b", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 13).await;
    assert_eq!(recorder.delivered(P0), events(10, 13));
    // The same for one more successor, although events were delivered meanwhile.
    fleet.kill("b");
    send(&fleet, P0, 2);
    start(&mut fleet, "c", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 15).await;
    assert_eq!(recorder.delivered_to("c", P0), events(10, 15));
}

#[tokio::test(start_paused = true)]
async fn the_end_of_an_empty_partition_is_remembered_too() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    fleet.kill("a");
    send(&fleet, P0, 4);
    start(&mut fleet, "b", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 3).await;
    assert_eq!(recorder.delivered(P0), events(0, 3));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_comes_later_is_noticed_and_read_from_its_first_event() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    send(&fleet, P0, 5);
    start(&mut fleet, "a", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    fleet.hub().grow(4);
    for n in 0..4 {
        send(&fleet, PartitionId(n), 3);
    }
    fleet.pass(seconds(40)).await;
    assert_eq!(recorder.delivered(P0), events(5, 7));
    for n in 1..4 {
        assert_eq!(recorder.delivered(PartitionId(n)), events(0, 2), "partition {n}");
    }
    assert_eq!(fleet.snapshot("a").hub_partitions, 4);
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_came_while_no_host_ran_is_read_from_its_first_event() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    start(&mut fleet, "a", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    fleet.stop("a").await;
    fleet.hub().grow(3);
    send(&fleet, PartitionId(2), 3);
    start(&mut fleet, "b", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    assert_eq!(recorder.delivered(PartitionId(2)), events(0, 2));
    // Once more, with a third host that never saw the hub grow.
    fleet.kill("b");
    start(&mut fleet, "c", beginning(&recorder, StartPosition::Latest), &recorder.scribe()).await;
    fleet.pass(seconds(60)).await;
    assert_eq!(recorder.delivered_to("c", PartitionId(2)), events(0, 2));
}

#[tokio::test(start_paused = true)]
async fn a_policy_may_checkpoint_right_behind_a_remembered_start() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    let options = EventProcessorOptions {
        checkpoint: CheckpointPolicy::every_events(2),
        ..beginning(&recorder, StartPosition::Latest)
    };
    start(&mut fleet, "a", options, &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    send(&fleet, P0, 2);
    fleet.pass(seconds(1)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(11));
}
