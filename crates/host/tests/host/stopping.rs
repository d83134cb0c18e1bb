//! Tests of graceful shutdown: partitions are drained, closed, saved and released, and the report lists the
//! exceptions. Also tests of `run_until`, and of a host that is dropped without a stop.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder, sleep};
use ephor::{CloseReason, EventProcessorHost, EventProcessorOptions, NotRunning, PartitionId, PumpState};
use ephor_testkit::TestFleet;
use futures_util::FutureExt;
use tokio::time::Instant;

const P0: PartitionId = PartitionId(0);
const P1: PartitionId = PartitionId(1);
const SECOND: Duration = Duration::from_secs(1);

fn send(fleet: &TestFleet, partition: PartitionId, events: usize) {
    for n in 0..events {
        fleet.hub().send(partition, format!("event {n}")).unwrap();
    }
}

/// Each batch of partition 0 takes this long.
fn slow(fleet: &TestFleet, time: Duration) -> Recorder {
    let environment = fleet.environment();
    Recorder::scripted(move |context, call| {
        let environment = environment.clone();
        async move {
            if matches!(call, Call::Batch(_)) && context.partition() == P0 {
                sleep(&environment, time).await;
            }
            Ok(())
        }
    })
}

fn with_reports(recorder: &Recorder) -> EventProcessorOptions {
    EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() }
}

async fn owners(fleet: &TestFleet) -> Vec<Option<String>> {
    let leases = fleet.admin().leases().await.unwrap();
    leases.into_iter().map(|lease| lease.owner.map(|owner| owner.name.to_string())).collect()
}

async fn stored(fleet: &TestFleet, partition: PartitionId) -> Option<u64> {
    let stored = fleet.admin().checkpoints().await.unwrap();
    let found = stored.iter().find(|(id, _)| *id == partition);
    found.and_then(|(_, checkpoint)| checkpoint.position.finished()).map(|sequence| sequence.0)
}

#[tokio::test(start_paused = true)]
async fn a_stop_lets_the_call_in_flight_finish_and_saves_and_releases() {
    let mut fleet = TestFleet::new(2).unwrap();
    let recorder = slow(&fleet, SECOND * 10);
    send(&fleet, P0, 3);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    send(&fleet, P0, 4);
    let began = Instant::now();
    let report = fleet.stop("a").await;
    assert!((SECOND * 9..SECOND * 11).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert!(report.is_clean(), "{report}");
    let mut drained = report.drained.clone();
    drained.sort_unstable();
    assert_eq!(drained, [P0, P1]);
    assert_eq!(report.to_string(), "2 partitions drained");
    assert_eq!(recorder.finished(0), [0, 1, 2], "finished, and nothing new begun");
    assert_eq!(recorder.closes(0), [CloseReason::Shutdown]);
    assert_eq!(stored(&fleet, P0).await, Some(2));
    assert_eq!(owners(&fleet).await, [None, None]);
    assert!(fleet.admin().hosts().await.unwrap().is_empty(), "it left the fleet");
}

#[tokio::test(start_paused = true)]
async fn a_stop_gives_up_a_call_that_outlasts_it_and_says_which() {
    let mut fleet = TestFleet::new(2).unwrap();
    let recorder = slow(&fleet, SECOND * 3_600);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    send(&fleet, P0, 3);
    send(&fleet, P1, 3);
    fleet.until("in a call", || recorder.running() == 1 && recorder.finished(1).len() == 3).await.unwrap();
    let began = Instant::now();
    let report = fleet.host("a").stop(SECOND * 5).await.unwrap();
    assert!((SECOND * 5..SECOND * 6).contains(&began.elapsed()), "{:?}", began.elapsed());
    assert_eq!((report.drained.clone(), report.given_up.clone()), (vec![P1], vec![P0]), "{report}");
    assert!(!report.is_clean());
    assert_eq!(report.to_string(), "1 partition drained, 1 with an unfinished batch [p0]");
    assert_eq!((recorder.running(), recorder.finished(0)), (0, vec![]));
    assert_eq!(recorder.closes(0), [CloseReason::Shutdown], "closed all the same");
    assert_eq!((stored(&fleet, P0).await, stored(&fleet, P1).await), (None, Some(2)));
    assert_eq!(owners(&fleet).await, [None, None], "released all the same");
}

#[tokio::test(start_paused = true)]
async fn a_stop_is_not_held_up_by_a_handover_that_has_more_time() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = slow(&fleet, SECOND * 3_600);
    send(&fleet, P0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    fleet.start("b", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    fleet.admin().drain("a").await.unwrap();
    // It agrees to hand over within 30 s, and the call goes on.
    fleet.pass(SECOND * 20).await;
    let hosts = fleet.admin().hosts().await.unwrap();
    assert!(hosts.iter().any(|host| !host.record.answers.is_empty()), "{hosts:?}");
    assert_eq!(recorder.running(), 1);
    let began = Instant::now();
    let report = fleet.host("a").stop(SECOND).await.unwrap();
    assert!(began.elapsed() < SECOND * 3, "{:?}", began.elapsed());
    assert_eq!(report.abandoned, [], "{report}");
    assert_eq!(recorder.closes(0).len(), 1);
    fleet.until("b has it", || fleet.snapshot("b").partitions.len() == 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_stop_with_no_time_at_all_still_closes_and_releases() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = slow(&fleet, SECOND * 3_600);
    send(&fleet, P0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    let report = fleet.host("a").stop(Duration::ZERO).await.unwrap();
    assert_eq!(report.given_up, [P0]);
    assert_eq!(recorder.closes(0), [CloseReason::Shutdown]);
    assert_eq!(owners(&fleet).await, [None]);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_hangs_holds_a_stop_up_for_a_bounded_time_and_saves_nothing() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::scripted(|_, call| async move {
        if matches!(call, Call::Close(_)) {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    send(&fleet, P0, 1);
    fleet.start("a", |host| host.options(with_reports(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let began = Instant::now();
    let report = fleet.host("a").stop(SECOND).await.unwrap();
    assert!(began.elapsed() < SECOND * 6, "{:?}", began.elapsed());
    assert_eq!(report.unsaved, [P0], "{report}");
    assert_eq!(report.to_string(), "0 partitions drained, 1 released with work to repeat [p0]");
    assert_eq!(recorder.reports("CloseFailed"), 1);
    let texts = recorder.report_texts();
    assert!(
        texts.contains(
            &"partition 0: the processor failed to close, so the policy writes no final checkpoint: \
              it did not return within 3s and was given up"
                .to_string()
        ),
        "{texts:?}"
    );
    assert_eq!(stored(&fleet, P0).await, None);
    assert_eq!(owners(&fleet).await, [None]);
}

#[tokio::test(start_paused = true)]
async fn a_close_that_fails_or_panics_writes_no_final_checkpoint() {
    for panics in [false, true] {
        let mut fleet = TestFleet::new(1).unwrap();
        let recorder = Recorder::scripted(move |_, call| async move {
            match call {
                Call::Close(_) if panics => panic!("cannot close"),
                Call::Close(_) => Err("cannot close".into()),
                _ => Ok(()),
            }
        });
        send(&fleet, P0, 2);
        fleet
            .start("a", |host| host.options(with_reports(&recorder)).processor(recorder.make()))
            .await
            .unwrap();
        fleet.until_caught_up().await.unwrap();
        let report = fleet.stop("a").await;
        assert_eq!(report.unsaved, [P0], "{report}");
        assert_eq!(recorder.reports("CloseFailed"), 1);
        assert_eq!(stored(&fleet, P0).await, None);
        assert_eq!(owners(&fleet).await, [None], "released all the same");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_that_does_not_run_cannot_be_stopped() {
    let mut fleet = TestFleet::new(1).unwrap();
    fleet.start("a", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    let host = fleet.host("a");
    let (first, second) = tokio::join!(host.stop(SECOND), host.stop(SECOND));
    assert!(first.is_ok());
    assert_eq!(second, first, "both get the report");
    assert_eq!(host.stop(SECOND).await, Err(NotRunning));
    assert_eq!(NotRunning.to_string(), "the host is not running");
}

#[tokio::test(start_paused = true)]
async fn a_stop_that_nobody_waits_for_is_carried_out_and_the_host_can_start_again() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = slow(&fleet, SECOND * 10);
    send(&fleet, P0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    // A second stop with less time.
    assert!(fleet.host("a").stop(SECOND * 20).now_or_never().is_none());
    fleet.until("closed", || recorder.closes(0) == [CloseReason::Shutdown]).await.unwrap();
    fleet.pass(SECOND).await;
    assert_eq!((stored(&fleet, P0).await, owners(&fleet).await), (Some(0), vec![None]));
    fleet.host("a").start().await.unwrap();
    fleet.until("owns", || fleet.snapshot("a").partitions.len() == 1).await.unwrap();
    assert!(fleet.host("a").stop(SECOND).await.is_ok());
}

#[tokio::test(start_paused = true)]
async fn the_report_of_a_stop_that_nobody_waited_for_is_kept_for_the_next_one() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = slow(&fleet, SECOND);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("owns", || fleet.snapshot("a").partitions.len() == 1).await.unwrap();
    assert!(fleet.host("a").stop(SECOND).now_or_never().is_none());
    fleet.pass(SECOND * 20).await;
    let report = fleet.host("a").stop(SECOND).await.unwrap();
    assert_eq!((report.is_clean(), report.drained), (true, vec![P0]));
    assert_eq!(fleet.host("a").stop(SECOND).await, Err(NotRunning));
}

#[tokio::test(start_paused = true)]
async fn run_until_starts_waits_and_stops() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = slow(&fleet, SECOND);
    let host = EventProcessorHost::builder(fleet.hub().clone(), fleet.store().clone())
        .environment(fleet.environment())
        .processor(recorder.make())
        .unwrap();
    send(&fleet, P0, 1);
    let environment = fleet.environment();
    let began = Instant::now();
    let report = host.run_until(sleep(&environment, SECOND * 42), SECOND * 5).await.unwrap();
    assert!(began.elapsed() >= SECOND * 42);
    assert_eq!((report.is_clean(), report.drained), (true, vec![P0]));
    assert_eq!((recorder.finished(0), stored(&fleet, P0).await), (vec![0], Some(0)));
    assert!(host.snapshot().is_none());
    assert!(host.run_until(async {}, SECOND).await.is_ok(), "and again");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_dropped_releases_nothing_and_its_tasks_end() {
    /// Lives as long as the call.
    struct Alive(Arc<AtomicBool>);
    impl Drop for Alive {
        fn drop(&mut self) {
            self.0.store(false, Ordering::SeqCst);
        }
    }
    let mut fleet = TestFleet::new(1).unwrap();
    let alive = Arc::new(AtomicBool::new(false));
    let flag = alive.clone();
    let contexts: Arc<std::sync::Mutex<Vec<ephor::PartitionContext>>> = Arc::default();
    let kept = contexts.clone();
    let recorder = Recorder::scripted(move |context, call| {
        let (flag, kept) = (flag.clone(), kept.clone());
        async move {
            if matches!(call, Call::Batch(_)) {
                kept.lock().unwrap().push(context);
                flag.store(true, Ordering::SeqCst);
                let _alive = Alive(flag);
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    send(&fleet, P0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    let mut changes = fleet.host("a").changes();
    fleet.until("in a call", || alive.load(Ordering::SeqCst)).await.unwrap();
    fleet.kill("a");
    fleet.pass(Duration::from_millis(1)).await;
    assert!(!alive.load(Ordering::SeqCst), "the call was dropped");
    assert_eq!(recorder.closes(0), []);
    assert_eq!(owners(&fleet).await, [Some("a".into())], "as a crash would leave it");
    let context = contexts.lock().unwrap().pop().unwrap();
    assert!(context.is_cancelled() && context.cancelled().now_or_never().is_some());
    assert!(context.checkpoint().await.unwrap().is_refused());
    drop(context);
    while let Some(change) = changes.next().now_or_never().expect("the stream ends with the host") {
        assert!(change.to.is_some(), "{change}");
    }
    // Nobody renews: the lease expires, and the next host takes over.
    let before = fleet.admin().leases().await.unwrap()[0].epoch;
    let began = Instant::now();
    fleet.start("b", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    let taken = |snapshot: ephor::HostSnapshot| {
        snapshot
            .partitions
            .first()
            .is_some_and(|owned| owned.epoch > before && owned.state == PumpState::Running)
    };
    fleet.until("taken over", || taken(fleet.snapshot("b"))).await.unwrap();
    assert!((SECOND * 15..SECOND * 45).contains(&began.elapsed()), "{:?}", began.elapsed());
}
