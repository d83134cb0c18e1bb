//! Tests of the number of store calls that a host makes, because stores charge for calls.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::action_recorder::{ActionRecorder, millis, seconds, send, start};
use crate::common::faulty_store::{FaultyStore, Op};
use ephor::{EventProcessorHost, PartitionId, PartitionManagerOptions};
use ephor_testkit::{CountingStore, TestFleet};

type Calls = BTreeMap<&'static str, usize>;

/// The calls that an idle host makes in ten minutes if it owns `owned` of `partitions`, and another
/// host owns the rest.
async fn calls_of_a_still_host(owned: u32, partitions: u32) -> Calls {
    let mut fleet = TestFleet::new(partitions).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let counted = CountingStore::new(fleet.store().clone());
    let manager =
        PartitionManagerOptions { max_partitions: Some(owned), ..PartitionManagerOptions::default() };
    let host = EventProcessorHost::builder(fleet.hub().clone(), counted.clone())
        .environment(fleet.environment())
        .host_name("counted")
        .manager_options(manager)
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap();
    host.start().await.unwrap();
    if owned < partitions {
        start(&mut fleet, "rest", recorder.options(), &recorder.scribe()).await;
    }
    let rest = (partitions - owned) as usize;
    let placed = |fleet: &TestFleet| {
        let others = if rest == 0 { 0 } else { fleet.snapshot("rest").partitions.len() };
        host.snapshot().unwrap().partitions.len() == owned as usize && others == rest
    };
    fleet.until("not placed", || placed(&fleet)).await.unwrap();
    fleet.pass(seconds(60)).await;
    counted.reset();
    fleet.pass(seconds(600)).await;
    assert!(placed(&fleet));
    let calls = counted.all_calls();
    let per_minute = calls.values().sum::<usize>() as f64 / 10.0;
    eprintln!("{owned} of {partitions} partitions, ten minutes: {calls:?}, {per_minute} calls a minute");
    calls
}

/// Checks that the counts are about equal: the exact times of scans are random.
fn assert_alike(some: &Calls, others: &Calls) {
    assert!(some.keys().eq(others.keys()), "{some:?} {others:?}");
    for (call, count) in some {
        assert!(count.abs_diff(others[call]) <= count / 10, "{call}: {some:?} {others:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_still_host_makes_as_many_calls_however_many_partitions_others_own() {
    let few = calls_of_a_still_host(1, 8).await;
    for partitions in [64, 256] {
        assert_alike(&few, &calls_of_a_still_host(1, partitions).await);
    }
}

#[tokio::test(start_paused = true)]
async fn a_still_host_makes_as_many_calls_however_many_partitions_it_owns() {
    let few = calls_of_a_still_host(1, 1).await;
    for partitions in [8, 64, 256] {
        assert_alike(&few, &calls_of_a_still_host(partitions, partitions).await);
    }
    assert_eq!(few["renew"], 60, "one renewal for all, every ten seconds");
    // A scan every 5 s less up to a quarter; a heartbeat with the first scan after ten seconds.
    assert!((120..=160).contains(&few["view"]), "{few:?}");
    assert!(few["heartbeat"] <= 60, "{few:?}");
    assert_eq!(few.len(), 3, "and nothing else: {few:?}");
}

#[tokio::test(start_paused = true)]
async fn events_that_are_processed_cost_no_call_until_a_checkpoint() {
    let fleet = TestFleet::new(4).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let counted = FaultyStore::new(fleet.store().clone());
    let mut fleet = fleet.with_store(Arc::new(counted.clone()));
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    fleet.pass(seconds(60)).await;
    counted.reset();
    for _ in 0..1_000 {
        for partition in (0..4).map(PartitionId) {
            send(&fleet, partition, 3);
        }
        fleet.pass(millis(60)).await;
    }
    fleet.until_caught_up().await.unwrap();
    assert_eq!(counted.calls(Op::Save), 0);
    assert_eq!(counted.calls(Op::Renew), 6);
    assert!(counted.calls(Op::View) <= 16, "{:?}", counted.all_calls());
    fleet.stop("a").await;
    assert_eq!(counted.calls(Op::Save), 4, "one for each partition when it closes");
    assert_eq!(counted.calls(Op::Release), 4);
}

#[tokio::test(start_paused = true)]
async fn a_host_starts_with_a_heartbeat_and_a_view_before_it_claims() {
    let fleet = TestFleet::new(4).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let counted = FaultyStore::new(fleet.store().clone());
    counted.trouble(Op::View, crate::common::faulty_store::Trouble::Fails);
    let mut fleet = fleet.with_store(Arc::new(counted.clone()));
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(20)).await;
    assert!(counted.calls(Op::Heartbeat) > 0 && counted.calls(Op::View) > 0);
    assert_eq!(counted.calls(Op::Claim), 0, "nobody claims blindly");
    counted.heal();
    fleet.until_balanced().await.unwrap();
    assert_eq!(counted.calls(Op::Claim), 4);
}
