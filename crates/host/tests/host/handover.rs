//! Tests of the moves of partitions between hosts: planned ones repeat and lose no event, and the new owner
//! is there soon after a host joins, stops or crashes.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use crate::common::action_recorder::{Entry, Ledger, What};
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
fn assert_each_event_once(ledger: &Ledger, sent: u64) {
    for partition in (0..PARTITIONS).map(PartitionId) {
        let mut counts: BTreeMap<u64, usize> = BTreeMap::new();
        for sequence in ledger.delivered(partition) {
            *counts.entry(sequence).or_default() += 1;
        }
        let repeated: Vec<_> = counts.iter().filter(|(_, count)| **count > 1).collect();
        assert!(repeated.is_empty(), "partition {partition} repeats {repeated:?}");
        assert_eq!(ledger.finished(partition), events(0, sent - 1), "partition {partition}, in order");
    }
}

fn owners(ledger: &Ledger) -> usize {
    let opened = ledger.entries().into_iter().filter(|entry| entry.what == What::Opened);
    opened.count()
}

#[tokio::test(start_paused = true)]
async fn hosts_that_come_and_go_in_good_order_repeat_no_event_and_lose_none() {
    let (mut fleet, ledger) = Ledger::with_fleet(PARTITIONS);
    let scribe = ledger.scribe().taking(millis(35));
    for name in ["a", "b", "c", "d"] {
        start(&mut fleet, name, ledger.options(), &scribe).await;
        load(&fleet, 250).await;
    }
    assert!(owners(&ledger) > PARTITIONS as usize, "nothing moved");
    assert!(fleet.stop("b").await.is_clean());
    load(&fleet, 250).await;
    fleet.admin().drain("c").await.unwrap();
    load(&fleet, 1_000).await;
    assert!(fleet.snapshot("c").partitions.is_empty(), "c is not drained");
    assert!(fleet.stop("a").await.is_clean());
    load(&fleet, 250).await;
    fleet.until_caught_up().await.unwrap();
    assert_each_event_once(&ledger, 4 * 250 + 250 + 1_000 + 250);
    assert!(ledger.all_reports().is_empty(), "{:?}", ledger.all_reports());
}

#[tokio::test(start_paused = true)]
async fn the_same_holds_with_a_store_that_wakes_nobody() {
    let fleet = TestFleet::new(PARTITIONS).unwrap();
    let ledger = Ledger::new(&fleet);
    let mut fleet = fleet.with_store(Arc::new(ledger.store().without_wakes()));
    let scribe = ledger.scribe().taking(millis(35));
    for name in ["a", "b", "c"] {
        start(&mut fleet, name, ledger.options(), &scribe).await;
        load(&fleet, 1_000).await;
    }
    assert!(owners(&ledger) > PARTITIONS as usize, "nothing moved");
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
    assert_each_event_once(&ledger, 3 * 1_000 + 250);
}

#[tokio::test(start_paused = true)]
async fn the_new_owner_opens_after_the_call_the_close_and_the_final_checkpoint() {
    let (mut fleet, ledger) = Ledger::with_fleet(2);
    let environment = fleet.environment();
    let scribe = ledger.scribe().taking(seconds(3)).closing(move |_, _| {
        let done = environment.sleep_until(environment.now() + seconds(1));
        async move {
            done.await;
            Ok(())
        }
    });
    start(&mut fleet, "a", ledger.options(), &scribe).await;
    fleet.until_balanced().await.unwrap();
    for partition in [0, 1].map(PartitionId) {
        send(&fleet, partition, 5);
    }
    fleet.pass(seconds(1)).await;
    start(&mut fleet, "b", ledger.options(), &scribe).await;
    fleet.until_balanced().await.unwrap();
    let moved = fleet.snapshot("b").partitions[0].partition;
    fleet
        .until("b does not open", || ledger.first(|e| e.host == "b" && e.what == What::Opened).is_some())
        .await
        .unwrap();
    let story: Vec<(String, What)> = ledger.of(moved).into_iter().map(|e| (e.host, e.what)).collect();
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
    let entries = ledger.of(moved);
    assert!(entries.last().unwrap().epoch > entries[0].epoch, "in a new epoch");
}

#[tokio::test(start_paused = true)]
async fn a_call_that_outlives_the_handover_timeout_is_given_up_and_its_events_go_to_the_new_owner() {
    let (mut fleet, ledger) = Ledger::with_fleet(2);
    let endless = ledger.scribe().working(|_, _| std::future::pending());
    start(&mut fleet, "a", ledger.options(), &endless).await;
    fleet.until_balanced().await.unwrap();
    for partition in [0, 1].map(PartitionId) {
        send(&fleet, partition, 5);
    }
    fleet.pass(seconds(1)).await;
    let joined = ledger.now();
    start(&mut fleet, "b", ledger.options(), &ledger.scribe()).await;
    let by_b = || ledger.first(|entry| entry.host == "b" && matches!(entry.what, What::Finished(_)));
    fleet.until("b finishes nothing", || by_b().is_some()).await.unwrap();
    let entry = by_b().unwrap();
    let took = entry.at.since(joined);
    assert!(took >= seconds(30) && took < seconds(31), "{took:?}");
    assert_eq!(ledger.delivered(entry.partition), [events(0, 4), events(0, 4)].concat());
    assert_eq!(
        ledger.closings(entry.partition),
        [CloseReason::Handover],
        "closed in good order all the same"
    );
    assert_eq!(ledger.saved(entry.partition), [], "nothing was finished, so nothing is saved");
}

#[tokio::test(start_paused = true)]
async fn a_short_call_is_waited_for_and_not_given_up() {
    let (mut fleet, ledger) = Ledger::with_fleet(2);
    let slow = ledger.scribe().taking(seconds(29));
    start(&mut fleet, "a", ledger.options(), &slow).await;
    fleet.until_balanced().await.unwrap();
    for partition in [0, 1].map(PartitionId) {
        send(&fleet, partition, 5);
    }
    fleet.pass(millis(100)).await;
    start(&mut fleet, "b", ledger.options(), &ledger.scribe()).await;
    fleet.until_balanced().await.unwrap();
    fleet.pass(seconds(60)).await;
    for partition in [0, 1].map(PartitionId) {
        assert_eq!(ledger.delivered(partition), events(0, 4));
        assert_eq!(ledger.finished(partition), events(0, 4));
    }
}

/// Waits until this host has opened this many partitions since `began`, and returns the time that
/// it took.
async fn opened_since(
    fleet: &TestFleet,
    ledger: &Ledger,
    host: &str,
    partitions: usize,
    began: Monotonic,
) -> Duration {
    let opened = || {
        let by_host = |entry: &&Entry| entry.host == host && entry.what == What::Opened && entry.at >= began;
        ledger.entries().iter().filter(by_host).count()
    };
    fleet.until("not opened", || opened() >= partitions).await.unwrap();
    ledger.now().since(began)
}

fn without_wakes(partitions: u32) -> (TestFleet, Ledger) {
    let fleet = TestFleet::new(partitions).unwrap();
    let ledger = Ledger::new(&fleet);
    let store: MemoryStore = ledger.store().without_wakes();
    (fleet.with_store(Arc::new(store)), ledger)
}

/// Two hosts that have been stable for a while, with half of the partitions each.
async fn two_still_hosts(fleet: &mut TestFleet, ledger: &Ledger) {
    for name in ["a", "b"] {
        start(fleet, name, ledger.options(), &ledger.scribe()).await;
    }
    fleet.until_balanced().await.unwrap();
    fleet.pass(seconds(62)).await;
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_the_new_owner_is_there_within_a_second_if_the_store_wakes() {
    let (mut fleet, ledger) = Ledger::with_fleet(PARTITIONS);
    two_still_hosts(&mut fleet, &ledger).await;
    let began = ledger.now();
    fleet.stop("a").await;
    let took = opened_since(&fleet, &ledger, "b", 4, began).await;
    assert!(took < seconds(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_joins_has_its_share_within_a_second_if_the_store_wakes() {
    let (mut fleet, ledger) = Ledger::with_fleet(PARTITIONS);
    two_still_hosts(&mut fleet, &ledger).await;
    let began = ledger.now();
    start(&mut fleet, "c", ledger.options(), &ledger.scribe()).await;
    let took = opened_since(&fleet, &ledger, "c", 2, began).await;
    assert!(took < seconds(1), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_that_joins_has_its_share_within_a_slow_and_two_fast_scans_if_the_store_does_not_wake() {
    let (mut fleet, ledger) = without_wakes(PARTITIONS);
    two_still_hosts(&mut fleet, &ledger).await;
    let began = ledger.now();
    start(&mut fleet, "c", ledger.options(), &ledger.scribe()).await;
    let took = opened_since(&fleet, &ledger, "c", 2, began).await;
    assert!(took < seconds(5 + 2), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn after_a_stop_no_partition_is_idle_for_more_than_a_fast_scan_if_the_store_does_not_wake() {
    let (mut fleet, ledger) = without_wakes(PARTITIONS);
    two_still_hosts(&mut fleet, &ledger).await;
    let began = ledger.now();
    let leaving: Vec<PartitionId> = fleet.snapshot("a").partitions.iter().map(|p| p.partition).collect();
    fleet.stop("a").await;
    fleet.until_balanced().await.unwrap();
    fleet.pass(seconds(1)).await;
    for partition in leaving {
        let since = |wanted: &dyn Fn(&What) -> bool| {
            let entries = ledger.of(partition).into_iter();
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
        let (mut fleet, ledger) = Ledger::with_fleet(PARTITIONS);
        two_still_hosts(&mut fleet, &ledger).await;
        fleet.pass(seconds(after)).await;
        let began = ledger.now();
        fleet.kill("a");
        let took = opened_since(&fleet, &ledger, "b", 4, began).await;
        assert!(took < seconds(30 + 5), "{took:?}");
        assert!(took >= seconds(20), "{took:?}: it could have been alive");
    }
}

#[tokio::test(start_paused = true)]
async fn more_hosts_than_partitions_stand_by_and_take_over_at_once() {
    let (mut fleet, ledger) = Ledger::with_fleet(2);
    for name in ["a", "b", "c", "d"] {
        start(&mut fleet, name, ledger.options(), &ledger.scribe()).await;
    }
    fleet.pass(seconds(20)).await;
    let standby: Vec<&str> =
        ["a", "b", "c", "d"].into_iter().filter(|name| fleet.snapshot(name).is_standby()).collect();
    assert_eq!(standby.len(), 2, "{fleet:?}");
    let leaving = owner(&fleet, P0).await.unwrap();
    assert!(!standby.contains(&leaving.as_str()));
    send(&fleet, P0, 3);
    until_finished(&fleet, &ledger, P0, 2).await;
    ledger.clear();
    let began = ledger.now();
    fleet.stop(&leaving).await;
    fleet.until("nobody takes over", || ledger.first(|e| e.what == What::Opened).is_some()).await.unwrap();
    let took = ledger.now().since(began);
    assert!(took < seconds(1), "{took:?}");
    let successor = owner(&fleet, P0).await.unwrap();
    assert!(standby.contains(&successor.as_str()), "{successor} was no standby");
    assert!(!fleet.snapshot(&successor).is_standby());
    let opened = ledger.entries().iter().filter(|entry| entry.what == What::Opened).count();
    assert_eq!(opened, 1, "nothing else moves");
}
