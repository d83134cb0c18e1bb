//! Tests of graceful shutdowns that take long, with several hosts and while the store hangs: calls in
//! flight get the whole time limit of the shutdown.

use std::sync::Arc;
use std::time::Duration;

use crate::common::faulty_store::{FaultyStore, Op, Trouble, pass};
use crate::recording_processor::{Call, Recorder, sleep};
use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{CloseReason, EventProcessorHost, EventProcessorOptions, NotRunning, PartitionId};
use ephor_testkit::TestFleet;
use futures_util::FutureExt;
use tokio::sync::Notify;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);

/// With and without a store that wakes hosts.
const WAKES: [bool; 2] = [true, false];

fn fleet(partitions: u32, wakes: bool) -> (TestFleet, FaultyStore) {
    let fleet = TestFleet::new(partitions).unwrap();
    let store = MemoryStore::new(fleet.environment());
    let store = if wakes { store } else { store.without_wakes() };
    let troubled = FaultyStore::new(Arc::new(store));
    (fleet.with_store(Arc::new(troubled.clone())), troubled)
}

/// Calls of this kind take this long, for partition 0.
fn slow(fleet: &TestFleet, time: Duration, is_slow: fn(&Call) -> bool) -> Recorder {
    let environment = fleet.environment();
    Recorder::scripted(move |context, call| {
        let environment = environment.clone();
        async move {
            if is_slow(&call) && context.partition() == P0 {
                sleep(&environment, time).await;
            }
            Ok(())
        }
    })
}

fn is_batch(call: &Call) -> bool {
    matches!(call, Call::Batch(_))
}

fn is_close(call: &Call) -> bool {
    matches!(call, Call::Close(_))
}

fn with_reports(recorder: &Recorder) -> EventProcessorOptions {
    EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn nobody_takes_a_partition_from_a_host_that_stops_for_two_minutes() {
    for wakes in WAKES {
        let (mut fleet, _) = fleet(1, wakes);
        let recorder = slow(&fleet, SECOND * 60, is_batch);
        let others = Recorder::new();
        fleet.hub().send(P0, "event").unwrap();
        fleet
            .start("a", |host| host.options(with_reports(&recorder)).processor(recorder.make()))
            .await
            .unwrap();
        fleet.until("in a call", || recorder.running() == 1).await.unwrap();
        for name in ["b", "c", "d", "e"] {
            fleet.start(name, |host| host.processor(others.make())).await.unwrap();
        }
        let report = fleet.host("a").stop(SECOND * 120).await.unwrap();
        assert_eq!((report.is_clean(), &*report.drained), (true, &[P0][..]), "{report}, wakes: {wakes}");
        assert_eq!(recorder.finished(0), [0]);
        // If nobody is woken, it goes to the host that has asked meanwhile.
        let reason = if wakes { CloseReason::Shutdown } else { CloseReason::Handover };
        assert_eq!(recorder.closes(0), [reason]);
        fleet.pass(SECOND * 60).await;
        assert_eq!(others.delivered(0), [] as [u64; 0], "what is finished does not come again");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_is_seen_alive_as_long_as_it_stops() {
    let (mut fleet, _) = fleet(1, true);
    let recorder = slow(&fleet, SECOND * 100, is_batch);
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    let mut stop = Box::pin(fleet.host("a").stop(SECOND * 120));
    assert!((&mut stop).now_or_never().is_none());
    fleet.pass(SECOND * 80).await;
    let hosts = fleet.admin().hosts().await.unwrap();
    assert!(hosts[0].age <= SECOND * 15, "{hosts:?}");
    assert!(stop.await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_close_in_a_long_stop_has_the_time_of_the_stop() {
    let (mut fleet, _) = fleet(1, true);
    let recorder = slow(&fleet, SECOND * 90, is_close);
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.options(with_reports(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let report = fleet.host("a").stop(SECOND * 120).await.unwrap();
    assert_eq!((report.is_clean(), &*report.drained), (true, &[P0][..]), "{report}");
    assert_eq!(recorder.reports("Stuck"), 0, "{:?}", recorder.report_texts());
}

#[tokio::test(start_paused = true)]
async fn a_stop_while_the_store_hangs_leaves_the_call_in_flight_its_time() {
    for wakes in WAKES {
        let (mut fleet, store) = fleet(2, wakes);
        let recorder = slow(&fleet, SECOND * 12, is_batch);
        fleet.hub().send(P0, "event").unwrap();
        fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
        fleet.until("in a call", || recorder.running() == 1).await.unwrap();
        store.trouble_all(Trouble::Hangs);
        // The next scan hangs half-way.
        fleet.pass(SECOND * 6).await;
        let (finished, report) = {
            let mut stop = Box::pin(fleet.host("a").stop(SECOND * 15));
            assert!((&mut stop).now_or_never().is_none());
            fleet.pass(SECOND * 3).await;
            // From now on nothing new starts.
            let begun = recorder.delivered(0).len();
            for n in 0..5 {
                fleet.hub().send(PartitionId(1), format!("late {n}")).unwrap();
            }
            fleet.pass(SECOND * 6).await;
            assert_eq!(
                (recorder.delivered(0).len(), recorder.delivered(1)),
                (begun, vec![]),
                "wakes: {wakes}"
            );
            store.heal();
            (recorder.finished(0), stop.await.unwrap())
        };
        assert_eq!(finished, [0], "the call ended by itself, wakes: {wakes}");
        assert_eq!(report.given_up, [], "{report}, wakes: {wakes}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_may_give_less_time() {
    let (mut fleet, _) = fleet(1, true);
    let recorder = slow(&fleet, SECOND * 3_600, is_batch);
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    let began = tokio::time::Instant::now();
    let host = fleet.host("a");
    let impatient = async {
        fleet.pass(SECOND * 10).await;
        host.stop(SECOND).await
    };
    let (report, second) = tokio::join!(host.stop(SECOND * 600), impatient);
    assert_eq!(report.clone().unwrap().given_up, [P0]);
    assert_eq!(second, report);
    assert!(began.elapsed() < SECOND * 20, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_is_heard_while_the_first_one_waits_for_the_store() {
    for wakes in WAKES {
        let (mut fleet, store) = fleet(1, wakes);
        let recorder = slow(&fleet, SECOND * 3_600, is_batch);
        fleet.hub().send(P0, "event").unwrap();
        fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
        fleet.until("in a call", || recorder.running() == 1).await.unwrap();
        store.trouble_all(Trouble::Hangs);
        let began = tokio::time::Instant::now();
        let host = fleet.host("a");
        let impatient = async {
            fleet.pass(SECOND / 2).await;
            let mut second = Box::pin(host.stop(SECOND));
            assert!((&mut second).now_or_never().is_none());
            fleet.pass(SECOND / 2).await;
            store.heal();
            second.await
        };
        let (report, second) = tokio::join!(host.stop(SECOND * 600), impatient);
        assert_eq!(report.clone().unwrap().given_up, [P0], "wakes: {wakes}");
        assert_eq!(second, report);
        assert!(began.elapsed() < SECOND * 30, "{:?}, wakes: {wakes}", began.elapsed());
    }
}

/// A second stop is heard while the first one asks a store that hangs for the successors of its partitions.
#[tokio::test(start_paused = true)]
async fn a_second_stop_gives_up_calls_while_the_store_hangs() {
    let (mut fleet, store) = fleet(1, true);
    let recorder = slow(&fleet, SECOND * 3_600, is_batch);
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    store.trouble_all(Trouble::Hangs);
    let host = fleet.host("a");
    let impatient = async {
        fleet.pass(SECOND / 2).await;
        let mut second = Box::pin(host.stop(SECOND));
        assert!((&mut second).now_or_never().is_none());
        fleet.pass(SECOND * 2).await;
        assert_eq!(recorder.running(), 0, "the call in flight was given up");
        fleet.pass(SECOND * 2).await;
        store.heal();
        second.await
    };
    let (report, _) = tokio::join!(host.stop(SECOND * 600), impatient);
    let report = report.unwrap();
    assert_eq!((report.given_up, report.abandoned), (vec![P0], vec![]));
    assert_eq!(recorder.closes(0), [CloseReason::Shutdown]);
}

/// The time is that of a few calls, and not of each sixteenth partition.
#[tokio::test(start_paused = true)]
async fn a_stop_whose_releases_hang_takes_no_longer_with_many_partitions() {
    let (mut fleet, store) = fleet(256, true);
    fleet.start("a", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    fleet.until("all are owned", || fleet.snapshot("a").partitions.len() == 256).await.unwrap();
    store.trouble(Op::Release, Trouble::Hangs);
    let began = tokio::time::Instant::now();
    let report = fleet.host("a").stop(SECOND).await.unwrap();
    assert_eq!(report.abandoned.len(), 256);
    assert!(began.elapsed() < SECOND * 45, "{:?}", began.elapsed());
}

#[tokio::test(start_paused = true)]
async fn a_second_stop_shortens_a_close_in_progress() {
    for wakes in WAKES {
        let (mut fleet, _) = fleet(1, wakes);
        let recorder = slow(&fleet, SECOND * 60, is_close);
        fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
        fleet.until("it is owned", || fleet.snapshot("a").partitions.len() == 1).await.unwrap();
        let began = tokio::time::Instant::now();
        let second = async {
            pass(SECOND * 10).await;
            fleet.host("a").stop(SECOND * 2).await
        };
        let (first, _) = tokio::join!(fleet.host("a").stop(SECOND * 120), second);
        let report = first.unwrap();
        assert!(report.abandoned.is_empty(), "wakes {wakes}: {report}");
        assert!(began.elapsed() < SECOND * 20, "wakes {wakes}: {:?}", began.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_does_not_ask_a_store_that_confirms_nothing() {
    let (mut fleet, store) = fleet(4, true);
    fleet.start("a", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    fleet.until("all are owned", || fleet.snapshot("a").partitions.len() == 4).await.unwrap();
    store.trouble(Op::Release, Trouble::Hangs);
    let mut views = None;
    let mut stop = Box::pin(fleet.host("a").stop(SECOND));
    let report = loop {
        tokio::select! {
            biased;
            report = &mut stop => break report.unwrap(),
            () = pass(SECOND) => {
                // The second release of each has begun.
                if store.calls(Op::Release) == 8 {
                    views.get_or_insert(store.calls(Op::View));
                }
            }
        }
    };
    assert_eq!(report.abandoned.len(), 4);
    assert_eq!(views, Some(store.calls(Op::View)), "no scan after that");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_told_to_stop_claims_nothing_more() {
    let (mut fleet, store) = fleet(256, true);
    store.trouble(Op::Claim, Trouble::Hangs);
    fleet.start("a", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    fleet.until("it claims", || store.calls(Op::Claim) == 16).await.unwrap();
    let began = tokio::time::Instant::now();
    let report = fleet.host("a").stop(SECOND).await.unwrap();
    assert!(report.is_clean(), "{report}");
    assert_eq!(store.calls(Op::Claim), 16, "no further claim");
    assert!(began.elapsed() < SECOND * 30, "{:?}", began.elapsed());
}

/// The manager may end at any moment of the second stop.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn two_stops_at_once_both_end() {
    for _ in 0..300 {
        let hub = MemoryHub::new("homes", 1).unwrap();
        hub.send(P0, "event").unwrap();
        let called = Arc::new(Notify::new());
        let begun = called.clone();
        let host = EventProcessorHost::builder(hub, MemoryStore::default())
            .for_each_event(move |_, _| {
                begun.notify_one();
                std::future::pending()
            })
            .unwrap();
        host.start().await.unwrap();
        called.notified().await;
        let mut first = Box::pin(host.stop(SECOND * 600));
        assert!((&mut first).now_or_never().is_none());
        let (first, second) = tokio::join!(first, host.stop(Duration::ZERO));
        assert_eq!(first.clone().unwrap().given_up, [P0]);
        // The first one may be over before the second one begins.
        assert!(second == first || second == Err(NotRunning), "{second:?}");
    }
}
