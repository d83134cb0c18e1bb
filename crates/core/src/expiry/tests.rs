//! Tests of expiry: dead owners. The submodules test clock jumps, store outages and former owners.

mod clock_jumps;
mod former_owners;
mod outages;

use super::*;
use crate::epoch::Epoch;
use crate::host_record::{HostRecord, HostState, HostStatistics};
use crate::ids::Incarnation;
use crate::lease::Lease;
use crate::store::HostEntry;

const LEASE: Duration = Duration::from_secs(30);
const P: PartitionId = PartitionId(0);

fn seconds(n: u64) -> Monotonic {
    Monotonic(n * 1_000_000_000)
}

fn host(name: &str) -> HostId {
    HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
}

fn lease(age: u64, version: u64, duration: Option<Duration>) -> Lease {
    Lease {
        partition: P,
        owner: Some(host("a")),
        epoch: Epoch::FIRST,
        duration,
        acquired_at: Timestamp(0),
        age: Duration::from_secs(age),
        age_known: true,
        version: LeaseVersion::revision(version),
        previous_owner: None,
        takeover_delay: Duration::ZERO,
        successor: None,
    }
}

fn view(store_seconds: i64, leases: Vec<Lease>) -> View {
    View { at: Timestamp(store_seconds * 1_000), leases, ..View::default() }
}

fn beat(name: &str, beat: u64, age: u64) -> HostEntry {
    let record = HostRecord {
        id: host(name),
        beat,
        state: HostState::Active,
        lease_duration: LEASE,
        max_partitions: None,
        wants: vec![],
        answers: vec![],
        statistics: HostStatistics::default(),
        software: String::new(),
        hub: None,
    };
    HostEntry { record, age: Duration::from_secs(age), age_known: true }
}

/// A tracker that has seen nothing yet, but has been watching for long enough.
fn tracker() -> LivenessTracker {
    LivenessTracker { watching_since: Some(seconds(0)), ..new_tracker() }
}

fn new_tracker() -> LivenessTracker {
    LivenessTracker::new(Tolerance::default(), Duration::from_secs(60))
}

/// Shows a view at the same instant on both clocks.
fn show(tracker: &mut LivenessTracker, own: u64, store: i64, age: u64, version: u64) -> Liveness {
    tracker.observe(&view(store, vec![lease(age, version, Some(LEASE))]), seconds(own), seconds(own))
}

#[test]
fn an_owner_stops_a_margin_before_its_lease_ends() {
    assert_eq!(deadline(seconds(100), LEASE, Duration::from_secs(3)), seconds(127));
    assert_eq!(deadline(seconds(100), LEASE, LEASE * 2), seconds(100));
}

#[test]
fn a_lease_of_a_new_epoch_is_new_whatever_its_version() {
    // A store that is restored from a backup hands out the same versions again.
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 1, 7);
    let claimed = Lease { epoch: Epoch::FIRST.next().unwrap(), ..lease(5, 7, Some(LEASE)) };
    let liveness = tracker.observe(&view(1_035, vec![claimed]), seconds(135), seconds(135));
    assert_eq!(liveness.expired, []);
}

#[test]
fn a_lease_is_dead_when_it_is_as_old_as_it_lasts() {
    let mut tracker = tracker();
    assert!(show(&mut tracker, 100, 1_000, 29, 1).expired.is_empty());
    let young = show(&mut tracker, 100, 1_000, 29, 1);
    assert_eq!((young.expired, young.alive), (vec![], vec![host("a")]));
    let old = show(&mut tracker, 101, 1_001, 30, 1);
    assert_eq!((old.expired, old.alive), (vec![P], vec![]));
}

#[test]
fn the_first_view_declares_nobody_dead() {
    let mut tracker = tracker();
    let first = show(&mut tracker, 100, 1_000, 500, 1);
    assert_eq!((first.expired, first.alive), (vec![], vec![host("a")]));
    assert_eq!(show(&mut tracker, 101, 1_001, 501, 1).expired, vec![P]);
}

#[test]
fn a_record_without_a_duration_gets_the_lease_duration_of_other_sdks() {
    let mut tracker = tracker();
    let mut at = |own: u64, age| {
        tracker.observe(&view(own as i64, vec![lease(age, 1, None)]), seconds(own), seconds(own)).expired
    };
    assert!(at(101, 59).is_empty());
    assert!(at(102, 59).is_empty());
    assert_eq!(at(103, 60), vec![P]);
}

#[test]
fn a_new_watcher_declares_nobody_dead_on_the_word_of_the_store_alone() {
    let mut tracker = new_tracker();
    // The store's clock may have been set forward just before.
    for (own, age) in [(100, 500), (101, 501), (114, 514)] {
        let judged = show(&mut tracker, own, 900 + own as i64, age, 1);
        assert_eq!((judged.expired, judged.alive), (vec![], vec![host("a")]), "{own}");
    }
    assert_eq!(show(&mut tracker, 115, 1_015, 515, 1).expired, vec![P]);
}

const YEARS: i64 = 10 * 365 * 86_400;

#[test]
fn what_was_seen_counts_from_the_answer_to_the_next_question() {
    // Slow answers: an observation begins when the first answer arrives, and ends when the last
    // request is sent.
    let mut tracker = tracker();
    let mut at = |sent: u64, received: u64, store: i64| {
        tracker
            .observe(&view(store, vec![lease(0, 1, Some(LEASE))]), seconds(sent), seconds(received))
            .expired
    };
    assert!(at(100, 110, 105).is_empty());
    assert!(at(139, 150, 140).is_empty());
    assert_eq!(at(151, 152, 151), vec![P]);
}

#[test]
fn a_host_is_alive_by_heartbeat_or_by_lease() {
    let mut tracker = tracker();
    let mut observe = |own: u64, leases: Vec<Lease>, hosts: Vec<HostEntry>| {
        let view = View { at: Timestamp(own as i64 * 1_000), leases, hosts, ..View::default() };
        tracker.observe(&view, seconds(own), seconds(own)).alive
    };
    observe(101, vec![], vec![]);
    assert_eq!(observe(202, vec![lease(5, 1, Some(LEASE))], vec![beat("a", 1, 99)]), vec![host("a")]);
    assert_eq!(observe(303, vec![], vec![beat("b", 1, 29)]), vec![host("b")]);
    assert_eq!(observe(304, vec![], vec![beat("b", 1, 30)]), Vec::<HostId>::new());
    assert_eq!(observe(405, vec![lease(30, 2, Some(LEASE))], vec![beat("a", 2, 30)]), Vec::<HostId>::new());
    // It let a lease expire: alive only if its heartbeat is younger than two thirds of the
    // duration.
    assert_eq!(observe(506, vec![lease(30, 3, Some(LEASE))], vec![beat("a", 3, 19)]), vec![host("a")]);
    assert_eq!(observe(607, vec![lease(30, 4, Some(LEASE))], vec![beat("a", 4, 20)]), Vec::<HostId>::new());
}

#[test]
fn the_lease_of_another_sdk_counts_with_the_lease_duration_of_other_sdks() {
    let mut tracker = tracker();
    tracker.observe(&view(1_000, vec![lease(1, 1, None)]), seconds(100), seconds(100));
    assert_eq!(tracker.former_owner_until(P, Timestamp(9_000_000), seconds(101)), Some(seconds(161)));
}

#[test]
fn a_record_that_was_left_out_of_a_view_keeps_its_age() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 1, 1);
    tracker.observe(&view(1_020, vec![]), seconds(120), seconds(120));
    assert_eq!(show(&mut tracker, 130, 1_030, 31, 1).expired, vec![P]);
}
