//! Tests of rate-limited checkpoints: few of them reach the store, and the last one does unless the host
//! crashes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::action_recorder::{ActionRecorder, Entry, Scribe, What};
use crate::common::action_recorder::{
    P0, events, millis, seconds, send, start, stored_sequence, until_finished,
};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use ephor::{CheckpointPolicy, Checkpointed, EventProcessorOptions};
use ephor_testkit::TestFleet;

const SPACING: Duration = Duration::from_millis(100);

/// One event at a time, with checkpoints by hand.
fn manual(recorder: &ActionRecorder) -> EventProcessorOptions {
    let checkpoint = CheckpointPolicy::manual().spaced(SPACING);
    EventProcessorOptions { checkpoint, max_batch_size: 1, ..recorder.options() }
}

/// Takes this long for each event, and then writes a checkpoint; the results are kept.
fn eager(
    fleet: &TestFleet,
    recorder: &ActionRecorder,
    each: Duration,
) -> (Scribe, Arc<Mutex<Vec<Checkpointed>>>) {
    let (environment, answers) = (fleet.environment(), Arc::<Mutex<Vec<Checkpointed>>>::default());
    let log = answers.clone();
    let scribe = recorder.scribe().working(move |context, _| {
        let (done, log) = (environment.sleep_until(environment.now() + each), log.clone());
        async move {
            done.await;
            let answer = context.checkpoint().await?;
            log.lock().unwrap().push(answer);
            Ok(())
        }
    });
    (scribe, answers)
}

fn saves(recorder: &ActionRecorder) -> Vec<Entry> {
    recorder.of(P0).into_iter().filter(|entry| matches!(entry.what, What::Saved(_))).collect()
}

#[tokio::test(start_paused = true)]
async fn checkpoints_for_every_event_cost_the_store_no_more_than_their_rate_and_the_last_is_written() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let (scribe, answers) = eager(&fleet, &recorder, millis(3));
    send(&fleet, P0, 1_000);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    until_finished(&fleet, &recorder, P0, 999).await;
    fleet.pass(SPACING).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(999));
    let saves = saves(&recorder);
    let apart: Vec<_> = saves.windows(2).map(|pair| pair[1].at.since(pair[0].at)).collect();
    assert!(apart.iter().all(|apart| *apart >= SPACING), "{apart:?}");
    // 1,000 events of 3 ms take three seconds: about thirty turns, all of which are used.
    assert!((25..=32).contains(&saves.len()), "{} saves", saves.len());
    let answers = answers.lock().unwrap();
    assert!(matches!(answers[0], Checkpointed::Saved(_)), "a quiet partition's first is written at once");
    assert!(matches!(answers[1], Checkpointed::Deferred));
    assert!(!answers.iter().any(Checkpointed::is_refused));
}

#[tokio::test(start_paused = true)]
async fn checkpoints_far_apart_are_written_by_whoever_asks() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let (scribe, answers) = eager(&fleet, &recorder, millis(150));
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(recorder.saved(P0), events(0, 9));
    assert!(answers.lock().unwrap().iter().all(|answer| matches!(answer, Checkpointed::Saved(_))));
}

#[tokio::test(start_paused = true)]
async fn a_policy_is_spaced_out_too() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let checkpoint = CheckpointPolicy::every_events(1).spaced(seconds(2));
    let options = EventProcessorOptions { checkpoint, max_batch_size: 1, ..recorder.options() };
    send(&fleet, P0, 100);
    start(&mut fleet, "a", options, &recorder.scribe().taking(millis(50))).await;
    until_finished(&fleet, &recorder, P0, 99).await;
    fleet.pass(seconds(3)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(99), "also when no event follows");
    let saves = saves(&recorder);
    assert!(saves.windows(2).all(|pair| pair[1].at.since(pair[0].at) >= seconds(2)));
    assert!((3..=5).contains(&saves.len()), "{:?}", recorder.saved(P0));
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_written_before_the_partition_is_released() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let (scribe, _) = eager(&fleet, &recorder, millis(1));
    let mut options = manual(&recorder);
    options.checkpoint.spacing = seconds(3_600);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", options, &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(recorder.saved(P0), [0]);
    let report = fleet.stop("a").await;
    assert!(report.is_clean(), "{report}");
    let last: Vec<What> = recorder.of(P0).into_iter().map(|entry| entry.what).collect();
    let saved = last.iter().position(|what| *what == What::Saved(Some(9))).expect("it was written");
    let released = last.iter().rposition(|what| matches!(what, What::Changed(_))).unwrap();
    assert!(saved < released, "{last:?}");
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_written_although_close_failed() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let (scribe, _) = eager(&fleet, &recorder, millis(1));
    let scribe = scribe.closing(|_, _| async { Err("the sink is gone".into()) });
    let mut options = manual(&recorder);
    options.checkpoint.spacing = seconds(3_600);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", options, &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.stop("a").await;
    assert_eq!(recorder.saved(P0), [0, 9]);
}

#[tokio::test(start_paused = true)]
async fn what_waits_is_written_while_a_long_call_goes_on() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let scribe = recorder.scribe().working(|context, batch| async move {
        for event in &batch[..5] {
            context.checkpoint_at(event).await?;
        }
        std::future::pending().await
    });
    send(&fleet, P0, 10);
    let options = EventProcessorOptions { max_batch_size: 10, ..manual(&recorder) };
    start(&mut fleet, "a", options, &scribe).await;
    fleet.until("the first is not written", || recorder.saved(P0) == [0]).await.unwrap();
    fleet.pass(SPACING * 2).await;
    assert_eq!(recorder.saved(P0), [0, 4], "of those that waited, the furthest");
}

#[tokio::test(start_paused = true)]
async fn who_asks_for_less_than_what_waits_takes_nothing_back() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let scribe = recorder.scribe().working(|context, batch| async move {
        for index in [0, 7, 3] {
            context.checkpoint_at(&batch[index]).await?;
        }
        std::future::pending().await
    });
    send(&fleet, P0, 10);
    let options = EventProcessorOptions { max_batch_size: 10, ..manual(&recorder) };
    start(&mut fleet, "a", options, &scribe).await;
    fleet.until("the first is not written", || recorder.saved(P0) == [0]).await.unwrap();
    fleet.pass(SPACING * 3).await;
    assert_eq!(recorder.saved(P0), [0, 7]);
}

#[tokio::test(start_paused = true)]
async fn flush_writes_what_waits_now() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let scribe = recorder.scribe().working(|context, batch| async move {
        assert_eq!(context.flush().await?, Checkpointed::Nothing);
        context.checkpoint_at(&batch[0]).await?;
        assert!(matches!(context.flush().await?, Checkpointed::Unchanged(_)), "nothing waits");
        assert_eq!(context.checkpoint_at(&batch[4]).await?, Checkpointed::Deferred);
        assert!(matches!(context.flush().await?, Checkpointed::Saved(_)));
        std::future::pending().await
    });
    send(&fleet, P0, 10);
    let options = EventProcessorOptions { max_batch_size: 10, ..manual(&recorder) };
    start(&mut fleet, "a", options, &scribe).await;
    fleet.until("no flush", || recorder.saved(P0).len() == 2).await.unwrap();
    assert_eq!(recorder.saved(P0), [0, 4]);
    fleet.pass(seconds(1)).await;
    assert_eq!(recorder.saved(P0), [0, 4], "and it is not written again");
    assert!(recorder.all_reports().is_empty(), "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn who_dies_before_its_turn_repeats_what_waited() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let (scribe, _) = eager(&fleet, &recorder, millis(1));
    let mut options = manual(&recorder);
    options.checkpoint.spacing = seconds(3_600);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", options, &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.kill("a");
    fleet.pass(seconds(7_200)).await;
    assert_eq!(recorder.saved(P0), [0], "the dead write nothing");
    start(&mut fleet, "b", manual(&recorder), &recorder.scribe()).await;
    fleet.until("b got less", || recorder.delivered_to("b", P0) == events(1, 9)).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn what_could_not_be_written_in_its_turn_is_tried_again() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    let (scribe, _) = eager(&fleet, &recorder, millis(1));
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    fleet.until("the first is not written", || recorder.saved(P0) == [0]).await.unwrap();
    store.trouble(Op::Save, Trouble::Fails);
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.pass(seconds(5)).await;
    assert_eq!(recorder.saved(P0), [0]);
    assert!(!recorder.reports("Store").is_empty(), "the host says what is wrong");
    store.heal();
    fleet.pass(seconds(2)).await;
    assert_eq!(recorder.saved(P0), [0, 9]);
}
