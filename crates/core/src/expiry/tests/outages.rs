//! Tests of the grace period after an outage of the store.

use super::*;

/// A tracker whose store was unreachable from `lost_at` to second 160, with one lease and one host
/// from before.
fn back_after(lost_at: u64) -> (LivenessTracker, Liveness) {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 5, 1);
    tracker.store_unreachable(seconds(lost_at));
    tracker.store_unreachable(seconds(159));
    let liveness = observe_both(&mut tracker, 160, 65, 1, 7);
    (tracker, liveness)
}

/// Shows a lease of this version and a host of this heartbeat number, both of this age.
fn observe_both(tracker: &mut LivenessTracker, own: u64, age: u64, version: u64, beats: u64) -> Liveness {
    let leases = vec![lease(age, version, Some(LEASE))];
    let view = View { hosts: vec![beat("b", beats, age)], ..view(900 + own as i64, leases) };
    tracker.observe(&view, seconds(own), seconds(own))
}

#[test]
fn when_the_store_is_back_the_others_are_given_a_while_to_come_back_too() {
    let (mut tracker, back) = back_after(101);
    assert_eq!(
        (back.expired, back.alive, back.grace_after_outage),
        (vec![], vec![host("a"), host("b")], true)
    );
    let soon = observe_both(&mut tracker, 169, 74, 1, 7);
    assert_eq!(
        (soon.expired, soon.alive, soon.grace_after_outage),
        (vec![], vec![host("a"), host("b")], true)
    );
    // A third of a lease later, an unresponsive host is dead.
    let late = observe_both(&mut tracker, 170, 75, 1, 7);
    assert_eq!((late.expired, late.alive, late.grace_after_outage), (vec![P], vec![], false));
}

#[test]
fn one_excuse_is_enough_to_wait() {
    let back = |part: fn(View) -> View| {
        let mut tracker = tracker();
        show(&mut tracker, 100, 1_000, 5, 1);
        tracker.store_unreachable(seconds(101));
        let whole = view(1_060, vec![lease(65, 1, Some(LEASE))]);
        let whole = View { hosts: vec![beat("b", 7, 65)], ..whole };
        tracker.observe(&part(whole), seconds(160), seconds(160)).grace_after_outage
    };
    assert!(back(|whole| View { hosts: vec![], ..whole }), "for a lease alone");
    assert!(back(|whole| View { leases: vec![], ..whole }), "for a host alone");
    assert!(!back(|whole| View { leases: vec![], hosts: vec![], ..whole }));
}

#[test]
fn who_is_heard_of_after_the_store_is_back_needs_no_excuse() {
    let (mut tracker, _) = back_after(101);
    let heard = observe_both(&mut tracker, 161, 0, 2, 8);
    assert_eq!((heard.alive, heard.grace_after_outage), (vec![host("a"), host("b")], false));
    // It wrote again, and then stopped: its age counts as usual.
    let old = observe_both(&mut tracker, 191, 30, 2, 8);
    assert_eq!((old.expired, old.alive, old.grace_after_outage), (vec![P], vec![], false));
}

#[test]
fn a_store_that_was_away_for_a_moment_excuses_nobody() {
    let (_, back) = back_after(146);
    assert_eq!((back.expired, back.alive, back.grace_after_outage), (vec![P], vec![], false));
    let (_, back) = back_after(145);
    assert_eq!((back.expired, back.grace_after_outage), (vec![], true));
}

#[test]
fn a_store_that_answers_all_the_time_excuses_nobody() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 5, 1);
    let old = observe_both(&mut tracker, 160, 65, 1, 7);
    assert_eq!((old.expired, old.alive, old.grace_after_outage), (vec![P], vec![], false));
}
