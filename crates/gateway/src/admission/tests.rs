//! Tests of the connection limits: the order of eviction, and the cost of waiting connections.

use futures_util::FutureExt;

use super::*;

fn admission(admitted: usize, waiting: usize) -> Arc<Admission> {
    let cost = Cost { bytes: 1_000, sessions: 100 };
    Admission::new(AdmissionLimits { waiting, cost, bytes_of_one: 900, admitted })
}

fn is_evicted(ticket: &Ticket) -> bool {
    ticket.evicted().now_or_never().is_some()
}

#[test]
fn the_oldest_that_waits_is_evicted_and_never_an_admitted_one() {
    let admission = admission(2, 2);
    let mut first = admission.enter();
    first.admit().unwrap();
    let (second, third) = (admission.enter(), admission.enter());
    let fourth = admission.enter();
    assert!(!is_evicted(&first));
    assert!(is_evicted(&second));
    assert!(!is_evicted(&third));
    drop(third);
    let _fifth = admission.enter();
    assert!(!is_evicted(&fourth));
    admission.make_room();
    assert!(is_evicted(&fourth));
}

#[test]
fn connections_that_only_connect_evict_none_of_a_later_stage() {
    let admission = admission(9, 8);
    let mut others: Vec<_> = (0..3).map(|_| admission.enter()).collect();
    for (other, stage) in others.iter_mut().zip([Stage::Greeted, Stage::Opened, Stage::Attached]) {
        other.advance(stage);
    }
    let flood: Vec<_> = (0..1_000).map(|_| admission.enter()).collect();
    assert!(!others.iter().any(is_evicted));
    assert_eq!(flood.iter().filter(|one| is_evicted(one)).count(), 1_000 - 5);
    assert!(!is_evicted(flood.last().unwrap()));
}

#[test]
fn connections_of_a_later_stage_evict_none_that_just_connected() {
    let admission = admission(9, 8);
    let mut flood = Vec::new();
    for _ in 0..100 {
        let mut one = admission.enter();
        one.advance(Stage::Opened);
        one.advance(Stage::Attached);
        flood.push(one);
    }
    let other = admission.enter();
    for _ in 0..100 {
        let mut one = admission.enter();
        one.advance(Stage::Attached);
        flood.push(one);
    }
    assert!(!is_evicted(&other));
}

#[test]
fn a_socket_that_is_still_there_counts() {
    let admission = admission(9, 2);
    let mut waiting: Vec<_> = (0..2).map(|_| admission.enter()).collect();
    assert!(admission.room().now_or_never().is_some());
    waiting.push(admission.enter());
    assert!(admission.room().now_or_never().is_none(), "three sockets");
    drop(waiting.remove(0));
    assert!(admission.room().now_or_never().is_some());
    // A connection that is admitted at the last moment needs no room among those that wait.
    waiting.push(admission.enter());
    waiting[0].admit().unwrap();
    assert!(admission.room().now_or_never().is_some());
}

#[test]
fn a_dismissed_connection_waits_again_and_frees_its_place() {
    let admission = admission(1, 2);
    let (mut one, mut other) = (admission.enter(), admission.enter());
    admission.make_room();
    one.admit().unwrap();
    one.dismiss();
    one.dismiss();
    assert!(!is_evicted(&one), "it was notified before it was admitted");
    other.admit().unwrap();
    assert_eq!(one.admit().unwrap_err().0, 1);
    admission.make_room();
    assert!(is_evicted(&one) && !is_evicted(&other));
    drop((one, other));
    let state = admission.lock();
    assert_eq!((state.waiting(), state.leaving, state.admitted), (0, 0, 0));
}

#[test]
fn no_more_connections_are_admitted_than_the_limit() {
    let admission = admission(1, 9);
    let (mut one, mut other) = (admission.enter(), admission.enter());
    one.admit().unwrap();
    one.admit().unwrap();
    assert_eq!(other.admit().unwrap_err().0, 1);
    drop(one);
    other.admit().unwrap();
    assert!(other.is_admitted());
}

#[test]
fn the_oldest_that_costs_more_than_its_share_is_evicted() {
    let admission = admission(9, 10);
    let mut waiting: Vec<_> = (0..5).map(|_| admission.enter()).collect();
    let bytes = |bytes| Cost { bytes, sessions: 1 };
    waiting[0].report(bytes(100));
    waiting[0].advance(Stage::Attached);
    for costly in &mut waiting[1..4] {
        costly.report(bytes(300));
    }
    assert!(!waiting.iter().any(is_evicted), "all together are at the limit");
    waiting[4].report(bytes(100));
    let evicted: Vec<_> = waiting.iter().map(is_evicted).collect();
    assert_eq!(evicted, [false, true, false, false, false], "the first used no more than its share");
    // One that costs more than one may is evicted, and nobody else for it.
    waiting[4].report(bytes(901));
    let evicted: Vec<_> = waiting.iter().map(is_evicted).collect();
    assert_eq!(evicted, [false, false, false, false, true], "notified once each");
    assert_eq!(admission.lock().cost, Cost { bytes: 700, sessions: 3 });
    drop(waiting);
    let state = admission.lock();
    assert_eq!((state.cost, state.leaving), (Cost::default(), 0));
}

#[test]
fn sessions_are_limited_as_bytes_are_and_an_admitted_connection_costs_nothing() {
    let admission = admission(9, 10);
    let sessions = |sessions| Cost { bytes: 10, sessions };
    let (mut first, mut second, mut third) = (admission.enter(), admission.enter(), admission.enter());
    first.report(sessions(60));
    first.admit().unwrap();
    second.report(sessions(60));
    third.report(sessions(40));
    assert!(!is_evicted(&second));
    third.report(sessions(41));
    assert!(is_evicted(&second) && !is_evicted(&third));
    first.report(sessions(1_000));
    first.dismiss();
    first.report(sessions(60));
    assert!(is_evicted(&third), "it waits again, and is the youngest");
    assert!(!is_evicted(&first));
}
