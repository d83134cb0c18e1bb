//! Tests of checkpoints by policy: their times, their positions, and the events that are repeated after a
//! crash.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{
    P0, events, millis, seconds, send, start, stored_sequence, until_finished,
};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use ephor::{CheckpointPolicy, EventProcessorOptions, FailurePolicy};
use ephor_testkit::TestFleet;

fn policy(recorder: &ActionRecorder, checkpoint: CheckpointPolicy) -> EventProcessorOptions {
    // Each is written at once; the rate limit is tested in `rate_limited_checkpoints.rs`.
    let checkpoint = checkpoint.spaced(Duration::ZERO);
    EventProcessorOptions { checkpoint, max_batch_size: 5, ..recorder.options() }
}

/// The times at which the store saved checkpoints, in whole seconds since `recorder` began, and their
/// events.
fn saved_at(recorder: &ActionRecorder) -> Vec<(u64, u64)> {
    let entries = recorder.entries().into_iter();
    entries
        .filter_map(|entry| match entry.what {
            What::Saved(Some(sequence)) => Some((entry.at.0 / 1_000_000_000, sequence)),
            _ => None,
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn by_default_the_host_writes_one_checkpoint_when_it_closes() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 12);
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::default()), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 11).await;
    fleet.pass(seconds(120)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, None);
    let report = fleet.stop("a").await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(recorder.saved(P0), [11]);
}

#[tokio::test(start_paused = true)]
async fn by_hand_the_host_writes_no_checkpoint_and_says_what_will_be_repeated() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 12);
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::manual()), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 11).await;
    fleet.pass(seconds(120)).await;
    let report = fleet.stop("a").await;
    assert_eq!((report.unsaved.as_slice(), report.drained.len()), (&[P0][..], 0), "{report}");
    assert_eq!(recorder.saved(P0), []);
    start(&mut fleet, "b", policy(&recorder, CheckpointPolicy::manual()), &recorder.scribe()).await;
    fleet.until("b got less", || recorder.delivered_to("b", P0) == events(0, 11)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn every_so_many_events_means_at_the_end_of_the_batch_that_completes_them() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 37);
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::every_events(8)), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 36).await;
    fleet.pass(seconds(60)).await;
    // Batches of five: the second one completes 8 events, and counting starts again there.
    assert_eq!(recorder.saved(P0), [9, 19, 29]);
    fleet.stop("a").await;
    assert_eq!(recorder.saved(P0), [9, 19, 29, 36]);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_by_time_is_written_on_an_idle_partition_too_and_then_no_more() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::every(seconds(5))), &recorder.scribe()).await;
    fleet.pass(seconds(10)).await;
    send(&fleet, P0, 3);
    fleet.pass(seconds(60)).await;
    assert_eq!(saved_at(&recorder), [(15, 2)]);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_by_time_counts_from_the_first_unsaved_event() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let by_time = CheckpointPolicy::every(millis(5_500));
    start(&mut fleet, "a", policy(&recorder, by_time), &recorder.scribe()).await;
    fleet.pass(seconds(1)).await;
    // One event a second, from 1 s to 12 s: due at 6.5 s, and again at 12.5 s, counted from 7 s.
    for _ in 0..12 {
        send(&fleet, P0, 1);
        fleet.pass(seconds(1)).await;
    }
    fleet.pass(seconds(60)).await;
    assert_eq!(saved_at(&recorder), [(6, 5), (12, 11)]);
}

#[tokio::test(start_paused = true)]
async fn of_two_conditions_the_one_that_comes_first_counts() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let both = CheckpointPolicy::every_events(10).or_every(seconds(5));
    start(&mut fleet, "a", policy(&recorder, both), &recorder.scribe()).await;
    fleet.pass(seconds(1)).await;
    send(&fleet, P0, 10);
    fleet.pass(seconds(1)).await;
    assert_eq!(saved_at(&recorder), [(1, 9)]);
    send(&fleet, P0, 3);
    fleet.pass(seconds(30)).await;
    assert_eq!(saved_at(&recorder), [(1, 9), (7, 12)]);
}

#[tokio::test(start_paused = true)]
async fn the_final_checkpoint_does_not_cover_a_batch_that_failed() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 15);
    let scribe = recorder
        .scribe()
        .working(|_, batch| async move { if batch[0].sequence.0 == 10 { Err("no".into()) } else { Ok(()) } });
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::default()), &scribe).await;
    fleet.until("no failure", || recorder.reports("Partition").len() > 3).await.unwrap();
    fleet.stop("a").await;
    assert_eq!(recorder.saved(P0), [9]);
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 14).await;
    assert_eq!(recorder.delivered_to("b", P0), events(10, 14));
    assert_eq!(recorder.finished(P0), events(0, 14));
}

#[tokio::test(start_paused = true)]
async fn the_final_checkpoint_does_not_cover_a_batch_that_was_given_up() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 15);
    let scribe = recorder.scribe().working(|_, batch| async move {
        if batch[0].sequence.0 == 10 {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::default()), &scribe).await;
    fleet.until("no third batch", || recorder.delivered(P0).contains(&10)).await.unwrap();
    let before = recorder.now();
    let report = fleet.stop("a").await;
    assert_eq!(report.given_up, [P0], "{report}");
    let took = recorder.now().since(before);
    assert!(took >= seconds(30) && took < seconds(31), "{took:?}");
    assert_eq!(recorder.saved(P0), [9]);
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 14).await;
    assert_eq!(recorder.delivered_to("b", P0), events(10, 14));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_and_closes_the_partition_is_not_covered_either() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 15);
    let healed = Arc::new(AtomicBool::new(false));
    let flag = healed.clone();
    let scribe = recorder.scribe().working(move |_, batch| {
        let fails = batch[0].sequence.0 == 10 && !flag.load(Ordering::Relaxed);
        async move { if fails { Err("no".into()) } else { Ok(()) } }
    });
    let failure = FailurePolicy::Close { pause: seconds(2) };
    let options = EventProcessorOptions { failure, ..policy(&recorder, CheckpointPolicy::default()) };
    start(&mut fleet, "a", options, &scribe).await;
    fleet.until("not closed", || !recorder.closings(P0).is_empty()).await.unwrap();
    fleet.pass(millis(100)).await;
    assert_eq!(recorder.saved(P0), [9]);
    healed.store(true, Ordering::Relaxed);
    until_finished(&fleet, &recorder, P0, 14).await;
    assert_eq!(recorder.finished(P0), events(0, 14));
}

#[tokio::test(start_paused = true)]
async fn if_close_fails_in_any_way_no_final_checkpoint_is_written() {
    for way in ["an error", "a panic", "no end"] {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
        send(&fleet, P0, 5);
        let scribe = recorder.scribe().closing(move |_, _| async move {
            match way {
                "an error" => Err("the results could not be flushed".into()),
                "a panic" => panic!("in close"),
                _ => std::future::pending().await,
            }
        });
        start(&mut fleet, "a", recorder.options(), &scribe).await;
        until_finished(&fleet, &recorder, P0, 4).await;
        let report = fleet.stop("a").await;
        assert_eq!(report.unsaved, [P0], "{way}: {report}");
        assert_eq!(recorder.saved(P0), [], "{way}");
        assert_eq!(recorder.reports("CloseFailed").len(), 1, "{way}: {:?}", recorder.all_reports());
        start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
        fleet.until("b got less", || recorder.delivered_to("b", P0) == events(0, 4)).await.unwrap();
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_repeats_exactly_what_came_after_the_last_checkpoint() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 37);
    let options = policy(&recorder, CheckpointPolicy::every_events(10));
    start(&mut fleet, "a", options.clone(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 36).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(29));
    fleet.kill("a");
    start(&mut fleet, "b", options, &recorder.scribe()).await;
    fleet.until("b got nothing", || recorder.delivered_to("b", P0).contains(&36)).await.unwrap();
    assert_eq!(recorder.delivered_to("b", P0), events(30, 36));
}

#[tokio::test(start_paused = true)]
async fn a_policy_whose_store_fails_reports_it_goes_on_and_tries_again() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    store.trouble(Op::Save, Trouble::Fails);
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::every_events(5)), &recorder.scribe()).await;
    for _ in 0..10 {
        send(&fleet, P0, 5);
        fleet.pass(millis(500)).await;
    }
    assert_eq!(recorder.finished(P0), events(0, 49), "processing goes on meanwhile");
    assert_eq!(stored_sequence(&fleet, P0).await, None);
    let told = recorder.reports("Partition").len();
    assert!((4..=6).contains(&told), "{:?}", recorder.all_reports());
    assert!(recorder.reports("Partition").iter().all(|report| report.kind.contains("Checkpoint")));
    assert!(recorder.of(P0).iter().any(|entry| matches!(&entry.what, What::Told(_))));
    store.heal();
    send(&fleet, P0, 5);
    fleet.pass(seconds(2)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(54));
    fleet.kill("a");
    send(&fleet, P0, 5);
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 59).await;
    assert_eq!(recorder.finished(P0), events(0, 59));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_by_number_of_events_that_failed_is_tried_again_although_no_event_follows() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    store.trouble_times(Op::Save, Trouble::Fails, 3);
    start(&mut fleet, "a", policy(&recorder, CheckpointPolicy::every_events(5)), &recorder.scribe()).await;
    send(&fleet, P0, 5);
    fleet.pass(seconds(10)).await;
    assert_eq!(store.calls(Op::Save), 4, "once a second until it is written, and then no more");
    assert_eq!(stored_sequence(&fleet, P0).await, Some(4));
}

#[tokio::test(start_paused = true)]
async fn a_final_checkpoint_that_fails_is_tried_again_while_there_is_time() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    send(&fleet, P0, 5);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 4).await;
    store.trouble_times(Op::Save, Trouble::Fails, 3);
    let report = fleet.stop("a").await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(recorder.saved(P0), [4]);
    // If it cannot be written at all, the report says so.
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 9).await;
    store.trouble(Op::Save, Trouble::Fails);
    let report = fleet.stop("b").await;
    assert_eq!(report.unsaved, [P0], "{report}");
    assert_eq!(recorder.reports("FinalCheckpointMissing").len(), 1, "{:?}", recorder.all_reports());
}
