//! Tests of the moves of partitions between hosts: planned ones repeat and lose no event, and the new owner
//! is there soon after a host joins, stops or crashes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::action_recorder::{ActionRecorder, Entry, What};
use crate::common::action_recorder::{P0, events, millis, owner, seconds, send, start, until_finished};
use ephor::memory::MemoryStore;
use ephor::{CloseReason, Monotonic, PartitionId};
use ephor_core::history::ChangeReason;
use ephor_testkit::TestFleet;

const PARTITIONS: u32 = 8;

/// Sends an event to every partition, `times` times, 20 ms apart.
async fn load(fleet: &TestFleet, times: u64) {
    for _ in 0..times {
        for partition in 0..PARTITIONS {
            send(fleet, PartitionId(partition), 1);
        }
        fleet.pass(millis(20)).await;
    }
}

/// Checks that every event was delivered once, and that its call returned `Ok`.
fn assert_each_event_once(recorder: &ActionRecorder, sent: u64) {
    for partition in (0..PARTITIONS).map(PartitionId) {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for sequence in recorder.delivered(partition) {
            *counts.entry(sequence).or_default() += 1;
        }
        let repeated: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(repeated.is_empty(), "partition {partition} repeats {repeated:?}");
        assert_eq!(recorder.finished(partition), events(0, sent - 1), "partition {partition}, in order");
    }
}

fn owners(recorder: &ActionRecorder) -> usize {
    let opened = recorder.entries().into_iter().filter(|entry| entry.what == What::Opened);
    opened.count()
}

#[tokio::test(start_paused = true)]
async fn hosts_that_come_and_go_in_good_order_repeat_no_event_and_lose_none() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(PARTITIONS);
    let scribe = recorder.scribe().taking(millis(35));
    for name in ["a", "b", "c", "d"] {
        start(&mut fleet, name, recorder.options(), &scribe).await;
        load(&fleet, 250).await;
    }
    assert!(owners(&recorder) > PARTITIONS as usize, "nothing moved");
    assert!(fleet.stop("b").await.is_clean());
    load(&fleet, 250).await;
    fleet.admin().drain("c").await.unwrap();
    load(&fleet, 1_000).await;
    assert!(fleet.snapshot("c").partitions.is_empty(), "c is not drained");
    assert!(fleet.stop("a").await.is_clean());
    load(&fleet, 250).await;
    fleet.until_caught_up().await.unwrap();
    assert_each_event_once(&recorder, 4 * 250 + 250 + 1_000 + 250);
    assert!(recorder.all_reports().is_empty(), "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn the_same_holds_with_a_store_that_wakes_nobody() {
    let fleet = TestFleet::new(PARTITIONS).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let mut fleet = fleet.with_store(Arc::new(recorder.store().without_wakes()));
    let scribe = recorder.scribe().taking(millis(35));
    for name in ["a", "b", "c"] {
        start(&mut fleet, name, recorder.options(), &scribe).await;
        load(&fleet, 1_000).await;
    }
    assert!(owners(&recorder) > PARTITIONS as usize, "nothing moved");
    let (report, ()) = {
        let sender = fleet.hub().clone();
        let environment = fleet.environment();
        let loading = async move {
            for _ in 0..250 {
                for partition in 0..PARTITIONS {
                    sender.send(PartitionId(partition), "while b stops").unwrap();
                }
                environment.sleep_until(environment.now() + millis(20)).await;
            }
        };
        tokio::join!(fleet.stop("b"), loading)
    };
    assert!(report.is_clean(), "{report}");
    fleet.until_caught_up().await.unwrap();
    assert_each_event_once(&recorder, 3 * 1_000 + 250);
}

#[tokio::test(start_paused = true)]
async fn the_new_owner_opens_after_the_call_the_close_and_the_final_checkpoint() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    let environment = fleet.environment();
    let scribe = recorder.scribe().taking(seconds(3)).closing(move |_, _| {
        let done = environment.sleep_until(environment.now() + seconds(1));
        async move {
            done.await;
            Ok(())
        }
    });
    start(&mut fleet, "a", recorder.options(), &scribe).await;
    fleet.until_balanced().await.unwrap();
    for partition in [0, 1].map(PartitionId) {
        send(&fleet, partition, 5);
    }
    fleet.pass(seconds(1)).await;
    start(&mut fleet, "b", recorder.options(), &scribe).await;
    fleet.until_balanced().await.unwrap();
    let moved = fleet.snapshot("b").partitions[0].partition;
    fleet
        .until("b does not open", || recorder.first(|e| e.host == "b" && e.what == What::Opened).is_some())
        .await
        .unwrap();
    let story: Vec<(String, What)> = recorder.of(moved).into_iter().map(|e| (e.host, e.what)).collect();
    let of = |host: &str, what: What| (host.to_string(), what);
    assert_eq!(
        story[1..],
        [
            of("a", What::Opened),
            of("a", What::Delivered(events(0, 4))),
            of("a", What::Finished(events(0, 4))),
            of("a", What::Closing(CloseReason::Handover)),
            of("a", What::Closed(CloseReason::Handover)),
            of("a", What::Saved(Some(4))),
            of("b", What::Changed(ChangeReason::HandedOver)),
            of("b", What::Opened),
        ]
    );
    let entries = recorder.of(moved);
    assert!(entries.last().unwrap().epoch > entries[0].epoch, "in a new epoch");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlives_the_handover_timeout_is_given_up_and_its_events_go_to_the_new_owner() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    let endless = recorder.scribe().working(|_, _| std::future::pending());
    start(&mut fleet, "a", recorder.options(), &endless).await;
    fleet.until_balanced().await.unwrap();
    for partition in [0, 1].map(PartitionId) {
        send(&fleet, partition, 5);
    }
    fleet.pass(seconds(1)).await;
    let joined = recorder.now();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    let by_b = || recorder.first(|entry| entry.host == "b" && matches!(entry.what, What::Finished(_)));
    fleet.until("b finishes nothing", || by_b().is_some()).await.unwrap();
    let entry = by_b().unwrap();
    let took = entry.at.since(joined);
    assert!(took >= seconds(30) && took < seconds(31), "{took:?}");
    assert_eq!(recorder.delivered(entry.partition), [events(0, 4), events(0, 4)].concat());
    assert_eq!(
        recorder.closings(entry.partition),
        [CloseReason::Handover],
        "closed in good order all the same"
    );
    assert_eq!(recorder.saved(entry.partition), [], "nothing was finished, so nothing is saved");
}

#[tokio::test(start_paused = true)]
async fn a_short_call_is_waited_for_and_not_given_up() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    let slow = recorder.scribe().taking(seconds(29));
    start(&mut fleet, "a", recorder.options(), &slow).await;
    fleet.until_balanced().await.unwrap();
    for partition in [0, 1].map(PartitionId) {
        send(&fleet, partition, 5);
    }
    fleet.pass(millis(100)).await;
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    fleet.pass(seconds(60)).await;
    for partition in [0, 1].map(PartitionId) {
        assert_eq!(recorder.delivered(partition), events(0, 4));
        assert_eq!(recorder.finished(partition), events(0, 4));
    }
}

/// Waits until this host has opened this many partitions since `began`, and returns the time that
/// it took.
async fn opened_since(
    fleet: &TestFleet,
    recorder: &ActionRecorder,
    host: &str,
    partitions: usize,
    began: Monotonic,
) -> Duration {
    let opened = || {
        let by_host = |entry: &&Entry| entry.host == host && entry.what == What::Opened && entry.at >= began;
        recorder.entries().iter().filter(by_host).count()
    };
    fleet.until("not opened", || opened() >= partitions).await.unwrap();
    recorder.now().since(began)
}

fn without_wakes(partitions: u32) -> (TestFleet, ActionRecorder) {
    let fleet = TestFleet::new(partitions).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store: MemoryStore = recorder.store().without_wakes();
    (fleet.with_store(Arc::new(store)), recorder)
}

/// Two hosts that have been stable for a while, with half of the partitions each.
async fn two_still_hosts(fleet: &mut TestFleet, recorder: &ActionRecorder) {
    for name in ["a", "b"] {
        start(fleet, name, recorder.options(), &recorder.scribe()).await;
    }
    fleet.until_balanced().await.unwrap();
    fleet.pass(seconds(62)).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_the_new_owner_is_there_within_a_second_if_the_store_wakes() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(PARTITIONS);
    two_still_hosts(&mut fleet, &recorder).await;
    let began = recorder.now();
    fleet.stop("a").await;
    let took = opened_since(&fleet, &recorder, "b", 4, began).await;
    assert!(took < seconds(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_joins_has_its_share_within_a_second_if_the_store_wakes() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(PARTITIONS);
    two_still_hosts(&mut fleet, &recorder).await;
    let began = recorder.now();
    start(&mut fleet, "c", recorder.options(), &recorder.scribe()).await;
    let took = opened_since(&fleet, &recorder, "c", 2, began).await;
    assert!(took < seconds(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_joins_has_its_share_within_a_slow_and_two_fast_scans_if_the_store_does_not_wake() {
    let (mut fleet, recorder) = without_wakes(PARTITIONS);
    two_still_hosts(&mut fleet, &recorder).await;
    let began = recorder.now();
    start(&mut fleet, "c", recorder.options(), &recorder.scribe()).await;
    let took = opened_since(&fleet, &recorder, "c", 2, began).await;
    assert!(took < seconds(5 + 2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_no_partition_is_idle_for_more_than_a_fast_scan_if_the_store_does_not_wake() {
    let (mut fleet, recorder) = without_wakes(PARTITIONS);
    two_still_hosts(&mut fleet, &recorder).await;
    let began = recorder.now();
    let leaving: Vec<PartitionId> = fleet.snapshot("a").partitions.iter().map(|p| p.partition).collect();
    fleet.stop("a").await;
    fleet.until_balanced().await.unwrap();
    fleet.pass(seconds(1)).await;
    for partition in leaving {
        let since = |wanted: &dyn Fn(&What) -> bool| {
            let entries = recorder.of(partition).into_iter();
            entries.filter(|e| e.at >= began && wanted(&e.what)).map(|e| e.at).next().unwrap()
        };
        let closed = since(&|what| matches!(what, What::Closed(_)));
        let opened = since(&|what| *what == What::Opened);
        let idle = opened.since(closed);
        assert!(idle <= millis(1_100), "partition {partition} is idle for {idle:?}");
        assert!(opened.since(began) < seconds(5 + 2), "{:?}", opened.since(began));
    }
}

#[tokio::test(start_paused = true)]
async fn after_a_crash_the_new_owner_is_there_within_a_lease_and_a_slow_scan() {
    for after in 0..10 {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(PARTITIONS);
        two_still_hosts(&mut fleet, &recorder).await;
        fleet.pass(seconds(after)).await;
        let began = recorder.now();
        fleet.kill("a");
        let took = opened_since(&fleet, &recorder, "b", 4, began).await;
        assert!(took < seconds(30 + 5), "{took:?}");
        assert!(took >= seconds(20), "{took:?}: it could have been alive");
    }
}

#[tokio::test(start_paused = true)]
async fn more_hosts_than_partitions_stand_by_and_take_over_at_once() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    for name in ["a", "b", "c", "d"] {
        start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
    }
    fleet.pass(seconds(20)).await;
    let standby: Vec<&str> =
        ["a", "b", "c", "d"].into_iter().filter(|name| fleet.snapshot(name).is_standby()).collect();
    assert_eq!(standby.len(), 2, "{fleet:?}");
    let leaving = owner(&fleet, P0).await.unwrap();
    assert!(!standby.contains(&leaving.as_str()));
    send(&fleet, P0, 3);
    until_finished(&fleet, &recorder, P0, 2).await;
    recorder.clear();
    let began = recorder.now();
    fleet.stop(&leaving).await;
    fleet.until("nobody takes over", || recorder.first(|e| e.what == What::Opened).is_some()).await.unwrap();
    let took = recorder.now().since(began);
    assert!(took < seconds(1), "{took:?}");
    let successor = owner(&fleet, P0).await.unwrap();
    assert!(standby.contains(&successor.as_str()), "{successor} was no standby");
    assert!(!fleet.snapshot(&successor).is_standby());
    let opened = recorder.entries().iter().filter(|entry| entry.what == What::Opened).count();
    assert_eq!(opened, 1, "nothing else moves");
}
