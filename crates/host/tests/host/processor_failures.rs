//! Tests of processors that fail: retries, skipped events, and error reports.

use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder};
use ephor::{
    Backoff, CloseReason, ErrorHandler, EventProcessorOptions, FailurePolicy, HostState, OwnershipReason,
    PartitionId,
};
use ephor_core::lease::ReleaseCause;
use ephor_testkit::TestFleet;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);

fn send(fleet: &TestFleet, partition: u32, events: usize) {
    for n in 0..events {
        fleet.hub().send(PartitionId(partition), format!("event {n}")).unwrap();
    }
}

fn options(recorder: &Recorder) -> EventProcessorOptions {
    EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() }
}

fn with_failure(recorder: &Recorder, failure: FailurePolicy) -> EventProcessorOptions {
    EventProcessorOptions { failure, ..options(recorder) }
}

/// Batches that contain this event fail this many times, with a panic or an error.
fn fails_at(event: u64, times: u32, panics: bool) -> Recorder {
    let left = Arc::new(AtomicU32::new(times));
    Recorder::scripted(move |_, call| {
        let left = left.clone();
        async move {
            if matches!(call, Call::Batch(events) if events.contains(&event))
                && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok()
            {
                assert!(!panics, "cannot take it");
                return Err("cannot take it".into());
            }
            Ok(())
        }
    })
}

async fn owner(fleet: &TestFleet) -> Option<String> {
    let leases = fleet.admin().leases().await.unwrap();
    leases.first().and_then(|lease| lease.owner.as_ref()).map(|owner| owner.name.to_string())
}

#[tokio::test(start_paused = true)]
async fn a_factory_that_fails_or_panics_is_asked_again_and_the_partition_is_free_meanwhile() {
    for panics in [false, true] {
        let mut fleet = TestFleet::new(1).unwrap();
        let recorder = Recorder::new();
        let (make, asked) = (recorder.make(), Arc::new(AtomicU32::new(0)));
        let counter = asked.clone();
        send(&fleet, 0, 1);
        fleet
            .start("a", |host| {
                host.options(options(&recorder)).try_processor(move |context| {
                    if counter.fetch_add(1, Ordering::SeqCst) >= 2 {
                        return Ok(make(context));
                    }
                    assert!(!panics, "no database");
                    Err("no database".into())
                })
            })
            .await
            .unwrap();
        fleet.pass(SECOND).await;
        assert_eq!(asked.load(Ordering::SeqCst), 1);
        assert_eq!(owner(&fleet).await, None, "released at once");
        assert!(fleet.snapshot("a").partitions.is_empty());
        let said = if panics { "the processor panicked: no database" } else { "no database" };
        assert_eq!(recorder.report_texts(), [format!("partition 0: the processor does not open: {said}")]);
        fleet.until_caught_up().await.unwrap();
        assert_eq!(asked.load(Ordering::SeqCst), 3);
        assert_eq!((recorder.finished(0), recorder.reports("OpenFailed")), (vec![0], 2));
        assert_eq!(fleet.snapshot("a").state, HostState::Active);
    }
}

#[tokio::test(start_paused = true)]
async fn an_open_that_fails_releases_the_partition_and_is_tried_again_with_a_new_instance() {
    let mut fleet = TestFleet::new(1).unwrap();
    let opened = Arc::new(AtomicU32::new(0));
    let counter = opened.clone();
    let recorder = Recorder::scripted(move |_, call| {
        let failed = call == Call::Open && counter.fetch_add(1, Ordering::SeqCst) < 2;
        async move { if failed { Err("not now".into()) } else { Ok(()) } }
    });
    send(&fleet, 0, 1);
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    let mut changes = fleet.host("a").changes();
    fleet.until_caught_up().await.unwrap();
    let calls = recorder.calls(0);
    let opening = [Call::Made, Call::Open];
    assert_eq!(
        calls[..6],
        [opening.clone(), opening.clone(), opening].concat(),
        "never closed, as never opened"
    );
    let tries = recorder.times(0, |call| *call == Call::Open);
    assert!(tries.windows(2).all(|pair| pair[1] - pair[0] >= SECOND * 5), "left alone for a while");
    let mut released = 0;
    while let Some(Some(change)) = futures_util::FutureExt::now_or_never(changes.next()) {
        released += u32::from(change.reason == OwnershipReason::Released(ReleaseCause::ProcessorFailed));
    }
    assert_eq!(released, 2);
}

#[tokio::test(start_paused = true)]
async fn a_failed_batch_comes_again_with_growing_pauses_and_nothing_is_skipped() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = fails_at(2, 5, false);
    send(&fleet, 0, 4);
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    send(&fleet, 0, 1);
    fleet.until_caught_up().await.unwrap();
    let attempts = recorder.times(0, |call| *call == Call::Batch(vec![0, 1, 2, 3]));
    let pauses: Vec<u128> = attempts.windows(2).map(|pair| (pair[1] - pair[0]).as_millis()).collect();
    // Half a second, doubled each time, minus up to a quarter.
    let due = [500, 1_000, 2_000, 4_000, 8_000];
    assert_eq!(pauses.len(), due.len());
    assert!(pauses.iter().zip(due).all(|(p, due)| (due * 3 / 4..=due + 1).contains(p)), "{pauses:?}");
    assert_eq!(recorder.finished(0), [0, 1, 2, 3, 4]);
    let expected: Vec<String> =
        (1..=5).map(|n| format!("events 0 to 3 failed (attempt {n}): cannot take it")).collect();
    assert_eq!(recorder.heard(0), expected, "process_error hears of each");
    assert_eq!(recorder.reports("Partition"), 5, "and so does on_error");
    assert_eq!(fleet.snapshot("a").statistics.failures, 5);
    assert!(recorder.entries().iter().all(|entry| entry.instance == 1), "the same instance");
    assert_eq!(recorder.closes(0), []);
}

#[tokio::test(start_paused = true)]
async fn a_panic_discards_the_instance_and_a_new_one_gets_the_same_batch() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = fails_at(1, 2, true);
    send(&fleet, 0, 2);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let batch = Call::Batch(vec![0, 1]);
    let error = |n| {
        Call::Error(format!("events 0 to 1 failed (attempt {n}): the processor panicked: cannot take it"))
    };
    let expected = [
        (1, Call::Made),
        (1, Call::Open),
        (1, batch.clone()),
        (2, Call::Made),
        (2, Call::Open),
        (2, error(1)),
        (2, batch.clone()),
        (3, Call::Made),
        (3, Call::Open),
        (3, error(2)),
        (3, batch),
        (3, Call::Finished(vec![0, 1])),
    ];
    let calls: Vec<(u64, Call)> =
        recorder.entries().into_iter().map(|entry| (entry.instance, entry.call)).collect();
    assert_eq!(calls, expected);
    assert_eq!(fleet.snapshot("a").partitions[0].epoch, recorder.entries()[0].epoch, "kept");
}

#[tokio::test(start_paused = true)]
async fn a_panic_after_which_no_new_instance_opens_releases_the_partition() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::scripted(|_, call| async move {
        match call {
            Call::Batch(events) if events.contains(&0) => panic!("boom"),
            _ => Ok(()),
        }
    });
    let (make, made) = (recorder.make(), AtomicU32::new(0));
    send(&fleet, 0, 1);
    fleet
        .start("a", |host| {
            host.options(options(&recorder)).try_processor(move |context| {
                if made.fetch_add(1, Ordering::SeqCst) == 0 {
                    Ok(make(context))
                } else {
                    Err("no more".into())
                }
            })
        })
        .await
        .unwrap();
    fleet.pass(SECOND * 2).await;
    assert_eq!(owner(&fleet).await, None);
    assert_eq!((recorder.reports("OpenFailed"), recorder.closes(0)), (1, vec![]));
}

#[tokio::test(start_paused = true)]
async fn skipping_isolates_the_one_event_that_fails_and_names_it() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = fails_at(3, u32::MAX, false);
    let backoff = Backoff { first: SECOND, max: SECOND };
    let policy = FailurePolicy::SkipAfter { attempts: 2, backoff };
    send(&fleet, 0, 6);
    fleet
        .start("a", |host| host.options(with_failure(&recorder, policy)).processor(recorder.make()))
        .await
        .unwrap();
    fleet.until_caught_up().await.unwrap();
    let batches: Vec<Vec<u64>> = recorder
        .calls(0)
        .into_iter()
        .filter_map(|call| if let Call::Batch(events) = call { Some(events) } else { None })
        .collect();
    let whole = vec![0, 1, 2, 3, 4, 5];
    let expected = [whole.clone(), whole, vec![0], vec![1], vec![2], vec![3], vec![3], vec![4], vec![5]];
    assert_eq!(batches, expected);
    assert_eq!(recorder.finished(0), [0, 1, 2, 4, 5]);
    let skipped = "event 3 is skipped after 2 attempts: cannot take it".to_string();
    assert_eq!(recorder.heard(0).last(), Some(&skipped));
    assert_eq!(recorder.report_texts().last(), Some(&format!("partition 0: {skipped}")));
    let report = fleet.stop("a").await;
    assert!(report.is_clean(), "{report}");
    let saved = fleet.admin().checkpoints().await.unwrap();
    assert_eq!(
        saved[0].1.position.finished().map(|event| event.0),
        Some(5),
        "behind the one that was skipped"
    );
}

#[tokio::test(start_paused = true)]
async fn a_closure_per_event_goes_on_at_the_event_that_failed_and_repeats_none_before_it() {
    let backoff = Backoff { first: SECOND, max: SECOND };
    let retry = FailurePolicy::Retry(backoff);
    let skip = FailurePolicy::SkipAfter { attempts: 2, backoff };
    for (policy, expected) in [(retry, vec![0, 1, 2, 2, 2, 2, 3, 4]), (skip, vec![0, 1, 2, 2, 2, 2, 3, 4])] {
        let mut fleet = TestFleet::new(1).unwrap();
        let seen: Arc<Mutex<Vec<u64>>> = Arc::default();
        let log = seen.clone();
        send(&fleet, 0, 5);
        let options = EventProcessorOptions { failure: policy, ..EventProcessorOptions::default() };
        fleet
            .start("a", |host| {
                host.options(options).for_each_event(move |_, event| {
                    let mut seen = log.lock().unwrap();
                    seen.push(event.sequence.0);
                    let tried = seen.iter().filter(|number| **number == 2).count();
                    let bad = event.sequence.0 == 2
                        && (tried < 4 || matches!(policy, FailurePolicy::SkipAfter { .. }));
                    async move { if bad { Err("bad".into()) } else { Ok(()) } }
                })
            })
            .await
            .unwrap();
        fleet.until_caught_up().await.unwrap();
        assert_eq!(*seen.lock().unwrap(), expected, "{policy:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn under_the_policy_to_close_the_partition_is_released_and_claimed_again_after_the_pause() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = fails_at(0, 1, false);
    let policy = FailurePolicy::Close { pause: SECOND * 90 };
    send(&fleet, 0, 1);
    fleet
        .start("a", |host| host.options(with_failure(&recorder, policy)).processor(recorder.make()))
        .await
        .unwrap();
    fleet.until("closed", || recorder.closes(0) == [CloseReason::ProcessorFailed]).await.unwrap();
    fleet.pass(SECOND * 85).await;
    assert_eq!(owner(&fleet).await, None);
    assert_eq!(recorder.delivered(0), [0], "left alone");
    fleet.until_caught_up().await.unwrap();
    let batches = recorder.times(0, |call| matches!(call, Call::Batch(_)));
    let pause = batches[1] - batches[0];
    assert!((SECOND * 90..SECOND * 100).contains(&pause), "{pause:?}");
    assert_eq!(recorder.entries().last().unwrap().instance, 2);
}

#[tokio::test(start_paused = true)]
async fn a_process_error_that_panics_is_survived() {
    let mut fleet = TestFleet::new(1).unwrap();
    let failed = Arc::new(AtomicU32::new(0));
    let counter = failed.clone();
    let recorder = Recorder::scripted(move |_, call| {
        let first = matches!(call, Call::Batch(_)) && counter.fetch_add(1, Ordering::SeqCst) < 2;
        async move {
            assert!(!matches!(call, Call::Error(_)), "and now this");
            if first { Err("bad".into()) } else { Ok(()) }
        }
    });
    send(&fleet, 0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!((recorder.heard(0).len(), recorder.finished(0)), (2, vec![0]));
    assert!(fleet.stop("a").await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn an_error_handler_that_panics_is_survived_wherever_it_is_called() {
    let mut fleet = TestFleet::new(2).unwrap();
    let recorder = fails_at(0, 1, false);
    let heard = Arc::new(AtomicU32::new(0));
    let counter = heard.clone();
    let options = EventProcessorOptions {
        on_error: Some(ErrorHandler::new(move |_| {
            counter.fetch_add(1, Ordering::SeqCst);
            panic!("cannot even log");
        })),
        ..EventProcessorOptions::default()
    };
    // The manager reports that the hub is unreachable; later a pump reports a failed batch.
    fleet.hub().fail(Some("away"));
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    fleet.pass(SECOND * 20).await;
    fleet.hub().fail(None);
    send(&fleet, 0, 2);
    fleet.until_caught_up().await.unwrap();
    assert!(heard.load(Ordering::SeqCst) > 2);
    assert_eq!(recorder.finished(0), [0, 1]);
    assert!(fleet.stop("a").await.is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_failing_partition_does_not_hold_up_the_others() {
    let mut fleet = TestFleet::new(3).unwrap();
    let recorder = Recorder::scripted(|context, call| async move {
        match (context.partition(), call) {
            (P0, Call::Batch(_)) => Err("always".into()),
            (PartitionId(1), Call::Batch(_)) => panic!("always"),
            _ => Ok(()),
        }
    });
    send(&fleet, 0, 1);
    send(&fleet, 1, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    for n in 1..=60 {
        send(&fleet, 2, 1);
        fleet.pass(SECOND).await;
        assert_eq!(recorder.finished(2).len(), n);
    }
    assert_eq!((recorder.finished(0), recorder.finished(1)), (vec![], vec![]));
    assert!(recorder.delivered(0).len() > 3 && recorder.delivered(1).len() > 3, "both are tried on and on");
    assert_eq!(fleet.snapshot("a").partitions.len(), 3);
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_panics_when_it_is_dropped_costs_a_pause_and_nothing_else() {
    struct Explosive(Recorder);
    impl Drop for Explosive {
        fn drop(&mut self) {
            assert!(std::thread::panicking() || self.0.closes(0).len() != 1, "at the end of its life");
        }
    }
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = fails_at(0, 1, false);
    let script = recorder.clone();
    let make =
        move |_: &ephor::PartitionContext| ExplosiveProcessor(Explosive(script.clone()), script.clone());
    struct ExplosiveProcessor(#[expect(dead_code, reason = "dropped with it")] Explosive, Recorder);
    impl ephor::EventProcessor for ExplosiveProcessor {
        async fn process_events(
            &mut self,
            context: &ephor::PartitionContext,
            events: &[ephor::Event],
        ) -> Result<(), ephor::BoxError> {
            ephor::EventProcessor::process_events(&mut self.1.make()(context), context, events).await
        }
        async fn close(
            &mut self,
            context: &ephor::PartitionContext,
            reason: CloseReason,
        ) -> Result<(), ephor::BoxError> {
            ephor::EventProcessor::close(&mut self.1.make()(context), context, reason).await
        }
    }
    let policy = FailurePolicy::Close { pause: SECOND };
    send(&fleet, 0, 1);
    fleet.start("a", |host| host.options(with_failure(&recorder, policy)).processor(make)).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!((recorder.finished(0), recorder.closes(0).len()), (vec![0], 1));
}
