//! Tests of processors whose calls hang, that panic before the first await, and whose batches keep failing.
//!
//! Earlier progress is saved meanwhile, and snapshots show the lag.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::sync::{Arc, Mutex};

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{P0, events, millis, owner, seconds, send, start, until_finished};
use ephor::{
    Backoff, BoxError, CheckpointPolicy, CloseReason, Event, EventProcessor, EventProcessorOptions,
    FailurePolicy, Lag, PartitionContext, PartitionError, PartitionSnapshot, PumpState,
};
use ephor_testkit::TestFleet;

fn every_second() -> Backoff {
    Backoff { first: seconds(1), max: seconds(1) }
}

fn owned(fleet: &TestFleet) -> PartitionSnapshot {
    fleet.snapshot("a").partitions[0].clone()
}

#[tokio::test(start_paused = true)]
async fn a_policy_that_skips_skips_an_event_whose_call_always_hangs_and_the_others_are_processed() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let hangs_at_two = recorder.scribe().working(|_, events| async move {
        if events.iter().any(|event| event.sequence.0 == 2) {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let options = EventProcessorOptions {
        process_timeout: Some(seconds(2)),
        failure: FailurePolicy::SkipAfter { attempts: 3, backoff: every_second() },
        ..recorder.options()
    };
    send(&fleet, P0, 5);
    start(&mut fleet, "a", options, &hangs_at_two).await;
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.finished(P0), [0, 1, 3, 4]);
    let alone = recorder.of(P0).into_iter().filter(|entry| entry.what == What::Delivered(vec![2])).count();
    assert_eq!(alone, 3, "three times together, and three times alone");
    let skipped: Vec<String> =
        recorder.all_reports().into_iter().map(|it| it.text).filter(|it| it.contains("skipped")).collect();
    let said =
        "partition 0: event 2 is skipped after 3 attempts: it did not return within 2s and was given up";
    assert_eq!(skipped, [said]);
    assert_eq!(recorder.closings(P0), [], "and the partition was not given away");
    assert_eq!((owned(&fleet).state, owned(&fleet).failing.is_none()), (PumpState::Running, true));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_only_works_in_pieces_is_over_its_failure_with_the_first_piece() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let one_at_a_time = recorder.scribe().working(|_, events| async move {
        if events.len() > 1 { Err("one at a time".into()) } else { Ok(()) }
    });
    let failure = FailurePolicy::SkipAfter { attempts: 2, backoff: every_second() };
    send(&fleet, P0, 3);
    start(&mut fleet, "a", EventProcessorOptions { failure, ..recorder.options() }, &one_at_a_time).await;
    fleet.until("fails", || recorder.delivered(P0) == events(0, 2)).await.unwrap();
    assert_eq!((owned(&fleet).state, owned(&fleet).failing.unwrap().attempts), (PumpState::Failing, 1));
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.finished(P0), events(0, 2));
    assert_eq!((owned(&fleet).state, owned(&fleet).failing.is_none()), (PumpState::Running, true));
}

/// Panics while a future is created, before it could be polled; each this many times.
#[derive(Default)]
struct Panics {
    open: AtomicU32,
    batch: AtomicU32,
    error: AtomicU32,
    close: AtomicU32,
    made: AtomicU32,
    /// The instance and its events.
    seen: Mutex<Vec<(u32, Vec<u64>)>>,
}

fn panic_if_any_is_left(left: &AtomicU32) {
    let any = left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1)).is_ok();
    assert!(!any, "at once");
}

struct Sudden {
    panics: Arc<Panics>,
    number: u32,
}

impl EventProcessor for Sudden {
    fn open(&mut self, _: &PartitionContext) -> impl Future<Output = Result<(), BoxError>> + Send {
        panic_if_any_is_left(&self.panics.open);
        async { Ok(()) }
    }

    fn process_events(
        &mut self,
        _: &PartitionContext,
        events: &[Event],
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        let numbers = events.iter().map(|event| event.sequence.0).collect();
        self.panics.seen.lock().unwrap().push((self.number, numbers));
        panic_if_any_is_left(&self.panics.batch);
        async { Ok(()) }
    }

    fn process_error(&mut self, _: &PartitionContext, _: &PartitionError) -> impl Future<Output = ()> + Send {
        panic_if_any_is_left(&self.panics.error);
        async {}
    }

    fn close(
        &mut self,
        _: &PartitionContext,
        _: CloseReason,
    ) -> impl Future<Output = Result<(), BoxError>> + Send {
        panic_if_any_is_left(&self.panics.close);
        async { Ok(()) }
    }
}

/// A host whose processor panics that way, and three events.
async fn sudden(panics: Panics) -> (TestFleet, ActionRecorder, Arc<Panics>) {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let panics = Arc::new(panics);
    send(&fleet, P0, 3);
    let (options, kept) = (recorder.options(), panics.clone());
    let make = move |_: &PartitionContext| Sudden {
        panics: kept.clone(),
        number: kept.made.fetch_add(1, Ordering::SeqCst) + 1,
    };
    fleet.start("a", |host| host.options(options).processor(make)).await.unwrap();
    (fleet, recorder, panics)
}

fn changes(recorder: &ActionRecorder) -> usize {
    recorder.of(P0).iter().filter(|entry| matches!(entry.what, What::Changed(_))).count()
}

#[tokio::test(start_paused = true)]
async fn a_panic_before_the_first_await_is_a_panic_like_any_other() {
    // A panic of the error handler has no further effect.
    let panics = Panics { batch: 1.into(), error: 1.into(), ..Panics::default() };
    let (fleet, recorder, panics) = sudden(panics).await;
    fleet.until_caught_up().await.unwrap();
    assert_eq!(*panics.seen.lock().unwrap(), [(1, events(0, 2)), (2, events(0, 2))]);
    let texts: Vec<String> = recorder.all_reports().into_iter().map(|report| report.text).collect();
    let said = "partition 0: events 0 to 2 failed (attempt 1): the processor panicked: at once";
    assert_eq!(texts, [said]);
    assert_eq!(panics.error.load(Ordering::SeqCst), 0, "it was told");
    assert_eq!(changes(&recorder), 1, "claimed once, and never released");
}

#[tokio::test(start_paused = true)]
async fn an_open_that_panics_before_the_first_await_is_reported_and_tried_again() {
    let (fleet, recorder, panics) = sudden(Panics { open: 1.into(), ..Panics::default() }).await;
    fleet.pass(seconds(1)).await;
    let texts: Vec<String> = recorder.all_reports().into_iter().map(|report| report.text).collect();
    assert_eq!(texts, ["partition 0: the processor does not open: the processor panicked: at once"]);
    assert_eq!(owner(&fleet, P0).await, None, "released at once");
    fleet.until_caught_up().await.unwrap();
    assert_eq!(*panics.seen.lock().unwrap(), [(2, events(0, 2))]);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_panics_before_the_first_await_is_reported_and_nothing_is_saved() {
    let (mut fleet, recorder, _) = sudden(Panics { close: 1.into(), ..Panics::default() }).await;
    fleet.until_caught_up().await.unwrap();
    let report = fleet.stop("a").await;
    assert_eq!(report.to_string(), "0 partitions drained, 1 released with work to repeat [p0]");
    let texts: Vec<String> = recorder.all_reports().into_iter().map(|report| report.text).collect();
    assert_eq!(texts.len(), 1, "{texts:?}");
    assert!(texts[0].starts_with("partition 0: the processor failed to close"), "{texts:?}");
    assert!(texts[0].ends_with("the processor panicked: at once"), "{texts:?}");
    assert_eq!((owner(&fleet, P0).await, recorder.saved(P0)), (None, vec![]));
    assert_eq!(changes(&recorder), 2, "claimed and released");
}

#[tokio::test(start_paused = true)]
async fn what_was_finished_is_saved_in_time_although_the_next_batch_keeps_failing() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let fails_at_one = recorder.scribe().working(|_, events| async move {
        if events[0].sequence.0 == 1 { Err("not this one".into()) } else { Ok(()) }
    });
    let options = EventProcessorOptions {
        max_batch_size: 1,
        checkpoint: CheckpointPolicy::every(seconds(5)),
        failure: FailurePolicy::Retry(every_second()),
        ..recorder.options()
    };
    send(&fleet, P0, 2);
    start(&mut fleet, "a", options, &fails_at_one).await;
    until_finished(&fleet, &recorder, P0, 0).await;
    let finished = recorder.first(|entry| entry.what == What::Finished(vec![0])).unwrap().at;
    fleet.until("nothing is saved", || recorder.saved(P0) == [0]).await.unwrap();
    let saved = recorder.first(|entry| entry.what == What::Saved(Some(0))).unwrap().at;
    let took = saved.since(finished);
    assert!(took >= seconds(5) && took <= seconds(6), "{took:?}: the period, and one pause");
    fleet.pass(seconds(30)).await;
    assert_eq!((recorder.saved(P0), recorder.closings(P0)), (vec![0], vec![]), "once, and not by closing");
}

#[tokio::test(start_paused = true)]
async fn a_pause_saves_what_a_policy_would_have_saved_later_and_nothing_else() {
    let policies = [
        (CheckpointPolicy::every(seconds(60)), vec![2]),
        (CheckpointPolicy::every_events(100), vec![2]),
        (CheckpointPolicy::default(), vec![]),
        (CheckpointPolicy::manual(), vec![]),
    ];
    for (checkpoint, saved) in policies {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
        let options = EventProcessorOptions { checkpoint: checkpoint.clone(), ..recorder.options() };
        start(&mut fleet, "a", options, &recorder.scribe()).await;
        send(&fleet, P0, 3);
        until_finished(&fleet, &recorder, P0, 2).await;
        assert_eq!(recorder.saved(P0), []);
        fleet.host("a").pause(P0);
        fleet.pass(millis(100)).await;
        assert_eq!((owned(&fleet).state, recorder.saved(P0)), (PumpState::Paused, saved), "{checkpoint:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_lag_of_a_paused_partition_goes_on_growing() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 2);
    until_finished(&fleet, &recorder, P0, 1).await;
    fleet.host("a").pause(P0);
    for behind in [5, 10, 15] {
        send(&fleet, P0, 5);
        fleet.pass(seconds(16)).await;
        assert_eq!((owned(&fleet).state, owned(&fleet).lag.events), (PumpState::Paused, behind));
    }
    assert!(owned(&fleet).lag.seconds() >= 32.0, "{:?}", owned(&fleet).lag);
    assert_eq!(fleet.snapshot("a").statistics.lag_events, 15);
    fleet.host("a").resume(P0);
    fleet.until_caught_up().await.unwrap();
    assert_eq!((owned(&fleet).state, owned(&fleet).lag), (PumpState::Running, Lag::default()));
}

#[tokio::test(start_paused = true)]
async fn a_batch_that_fails_shows_in_the_snapshot_until_it_works_and_so_does_the_growing_lag() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let broken = Arc::new(AtomicBool::new(true));
    let state = broken.clone();
    let needs_it = recorder.scribe().working(move |_, _| {
        let broken = state.load(Ordering::SeqCst);
        async move { if broken { Err("no database".into()) } else { Ok(()) } }
    });
    let failure = FailurePolicy::Retry(every_second());
    start(&mut fleet, "a", EventProcessorOptions { failure, ..recorder.options() }, &needs_it).await;
    fleet.until_balanced().await.unwrap();
    let began = fleet.environment().wall();
    send(&fleet, P0, 1);
    fleet.pass(millis(10)).await;
    assert_eq!(owned(&fleet).failing.unwrap().attempts, 1);
    for behind in [6, 11] {
        send(&fleet, P0, 5);
        fleet.pass(seconds(16)).await;
        assert_eq!((owned(&fleet).state, owned(&fleet).lag.events), (PumpState::Failing, behind));
    }
    let failing = owned(&fleet).failing.unwrap();
    assert!(failing.attempts >= 32, "{failing:?}");
    assert_eq!((failing.error.to_string().as_str(), failing.since), ("no database", began));
    broken.store(false, Ordering::SeqCst);
    fleet.until_caught_up().await.unwrap();
    let well = owned(&fleet);
    assert_eq!((well.state, well.failing.is_none(), well.lag), (PumpState::Running, true, Lag::default()));
}

#[tokio::test(start_paused = true)]
async fn the_lag_goes_on_growing_during_a_long_call() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe().taking(seconds(100))).await;
    fleet.until_balanced().await.unwrap();
    send(&fleet, P0, 1);
    fleet.pass(seconds(1)).await;
    send(&fleet, P0, 5);
    fleet.pass(seconds(40)).await;
    assert_eq!((owned(&fleet).state, owned(&fleet).lag.events), (PumpState::Running, 6));
}
