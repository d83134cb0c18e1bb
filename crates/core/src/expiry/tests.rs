//! Tests of expiry: dead owners, clocks that jump, and the grace period after an outage.

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
fn the_first_view_buries_nobody() {
    let mut tracker = tracker();
    let first = show(&mut tracker, 100, 1_000, 500, 1);
    assert_eq!((first.expired, first.alive), (vec![], vec![host("a")]));
    assert_eq!(show(&mut tracker, 101, 1_001, 501, 1).expired, vec![P]);
}

#[test]
fn a_record_without_a_duration_gets_the_foreign_expiry() {
    let mut tracker = tracker();
    let mut at = |own: u64, age| {
        tracker.observe(&view(own as i64, vec![lease(age, 1, None)]), seconds(own), seconds(own)).expired
    };
    assert!(at(101, 59).is_empty());
    assert!(at(102, 59).is_empty());
    assert_eq!(at(103, 60), vec![P]);
}

#[test]
fn who_has_just_begun_to_watch_buries_nobody_on_the_word_of_the_store_alone() {
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
fn who_begins_to_watch_after_the_store_clock_was_set_years_ahead_robs_nobody() {
    let (mut tracker, age) = (new_tracker(), YEARS.unsigned_abs());
    for own in [100, 101, 110] {
        let judged = show(&mut tracker, own, YEARS + own as i64, age, 1);
        assert_eq!((judged.expired, judged.alive), (vec![], vec![host("a")]), "{own}");
    }
    // The owner has renewed, and its record is dated by the new clock.
    assert!(show(&mut tracker, 115, YEARS + 115, 4, 2).expired.is_empty());
    // A dead owner is noticed after half a lease.
    let mut tracker = new_tracker();
    show(&mut tracker, 100, YEARS + 100, age, 1);
    assert_eq!(show(&mut tracker, 115, YEARS + 115, age + 15, 1).expired, vec![P]);
}

#[test]
fn a_store_clock_set_years_ahead_or_back_robs_nobody_and_makes_nobody_wait_for_years() {
    for jump in [YEARS, -YEARS] {
        let age = if jump > 0 { YEARS.unsigned_abs() } else { 0 };
        // A host that watches before and after the jump.
        let mut tracker = tracker();
        show(&mut tracker, 100, 1_000, 3, 1);
        assert!(show(&mut tracker, 105, 1_005 + jump, age, 1).skewed);
        assert!(show(&mut tracker, 134, 1_034 + jump, age, 1).expired.is_empty());
        assert_eq!(show(&mut tracker, 135, 1_035 + jump, age, 1).expired, vec![P], "{jump}");
        // A host that starts to watch after the jump needs one lease at most.
        let mut tracker = new_tracker();
        show(&mut tracker, 100, 1_000 + jump, age, 1);
        assert!(show(&mut tracker, 114, 1_014 + jump, age, 1).expired.is_empty(), "{jump}");
        show(&mut tracker, 129, 1_029 + jump, age, 1);
        assert_eq!(show(&mut tracker, 130, 1_030 + jump, age, 1).expired, vec![P], "{jump}");
    }
}

#[test]
fn our_own_clock_that_jumps_ahead_kills_nobody() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 1, 1);
    show(&mut tracker, 102, 1_002, 3, 1);
    let jumped = show(&mut tracker, 150, 1_003, 4, 1);
    assert!(jumped.skewed && jumped.expired.is_empty());
    // Observations from before the jump prove nothing: the watch starts over.
    let after = show(&mut tracker, 151, 1_004, 5, 1);
    assert!(!after.skewed);
    assert_eq!((after.expired, after.alive), (vec![], vec![host("a")]));
    assert!(show(&mut tracker, 179, 1_032, 33, 1).expired.is_empty());
    assert_eq!(show(&mut tracker, 180, 1_033, 34, 1).expired, vec![P]);
}

#[test]
fn both_clocks_that_jump_ahead_at_once_kill_nobody() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 1, 1);
    assert!(show(&mut tracker, 170, 1_600, 601, 1).skewed);
    assert!(show(&mut tracker, 171, 1_601, 602, 1).expired.is_empty());
    assert_eq!(show(&mut tracker, 200, 1_630, 631, 1).expired, vec![P]);
}

#[test]
fn an_age_is_unknown_from_a_jump_until_the_record_is_written_again() {
    let mut tracker = tracker();
    assert!(show(&mut tracker, 100, 1_000, 1, 1).ages_unknown.is_empty());
    // Written between two views, and then the store's clock was set back: it looks younger than it
    // is.
    assert_eq!(show(&mut tracker, 120, 960, 0, 2).ages_unknown, vec![P]);
    assert_eq!(show(&mut tracker, 121, 961, 0, 2).ages_unknown, vec![P]);
    assert!(show(&mut tracker, 122, 962, 0, 3).ages_unknown.is_empty());
}

#[test]
fn what_was_seen_otherwise_before_was_written_after_that() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 1, 1);
    assert_eq!(tracker.written_after(P), None);
    show(&mut tracker, 110, 1_010, 11, 1);
    assert_eq!(tracker.written_after(P), None);
    let asked = tracker.last.map(|last| last.sent);
    // The store's clock does not matter.
    show(&mut tracker, 120, 960, 0, 2);
    assert_eq!(tracker.written_after(P), asked);
    show(&mut tracker, 130, 970, 10, 2);
    assert_eq!(tracker.written_after(P), asked);
}

#[test]
fn our_own_clock_that_jumps_ahead_makes_no_host_look_dead() {
    let mut tracker = tracker();
    let mut observe = |own: u64, store: i64, age| {
        let view = View { hosts: vec![beat("b", 1, age)], ..view(store, vec![]) };
        tracker.observe(&view, seconds(own), seconds(own)).alive
    };
    observe(100, 1_000, 2);
    for own in [150, 151, 179] {
        assert_eq!(observe(own, 851 + own as i64, 3), vec![host("b")], "{own}");
    }
    assert!(observe(180, 1_031, 33).is_empty());
}

#[test]
fn a_store_clock_set_forward_kills_nobody() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 3, 1);
    let jumped = show(&mut tracker, 105, 1_305, 308, 1);
    assert!(jumped.skewed);
    assert!(jumped.expired.is_empty());
    // The clocks agree again, and the age is still wrong.
    let after = show(&mut tracker, 110, 1_310, 313, 1);
    assert!(!after.skewed);
    assert!(after.expired.is_empty());
    // Unchanged for a whole lease since then, by our own clock: now it is dead.
    assert!(show(&mut tracker, 134, 1_334, 337, 1).expired.is_empty());
    assert_eq!(show(&mut tracker, 135, 1_335, 338, 1).expired, vec![P]);
}

#[test]
fn after_a_jump_a_renewed_record_is_judged_by_the_store_again() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 3, 1);
    show(&mut tracker, 105, 1_305, 308, 1);
    assert!(show(&mut tracker, 110, 1_310, 4, 2).expired.is_empty());
    assert!(show(&mut tracker, 135, 1_335, 29, 2).expired.is_empty());
    assert_eq!(show(&mut tracker, 136, 1_336, 30, 2).expired, vec![P]);
}

#[test]
fn a_store_clock_that_is_off_between_two_views_makes_no_renewal_old() {
    // Set back by seven minutes after the first view, and put right before the second: the clocks
    // agree, and the renewal in between has a stamp of seven minutes ago.
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 1, 1);
    let renewed = show(&mut tracker, 103, 1_003, 421, 2);
    assert_eq!((renewed.skewed, renewed.expired, renewed.alive), (false, vec![], vec![host("a")]));
    assert!(show(&mut tracker, 129, 1_029, 447, 2).expired.is_empty());
    // It was written after second 100, and by the store it is old enough.
    assert_eq!(show(&mut tracker, 130, 1_030, 448, 2).expired, vec![P]);
}

#[test]
fn a_store_clock_set_back_keeps_no_corpse_alive() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 3, 1);
    assert!(show(&mut tracker, 105, 705, 0, 1).skewed);
    assert!(show(&mut tracker, 134, 734, 0, 1).expired.is_empty());
    assert_eq!(show(&mut tracker, 135, 735, 0, 1).expired, vec![P]);
}

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
fn clocks_disagree_only_beyond_the_tolerance() {
    let mut cases = vec![];
    for (own, store, skewed) in [
        (10, 1_010, false),
        (10, 1_011, false),
        (10, 1_012, true),
        (10, 1_009, false),
        (10, 1_008, true),
        (0, 1_001, false),
        (0, 1_002, true),
        (0, 999, false),
        (0, 998, true),
        (100, 1_106, false),
        (100, 1_107, true),
    ] {
        let mut tracker = tracker();
        show(&mut tracker, 100, 1_000, 0, 1);
        let judged = show(&mut tracker, 100 + own, store, 0, 2).skewed;
        cases.push((own, store, judged == skewed));
    }
    assert!(cases.iter().all(|case| case.2), "{cases:?}");
}

#[test]
fn exactly_what_is_tolerated_is_no_skew() {
    // Over ten seconds of our own clock, one and a half are tolerated.
    for (store, skewed) in [(1_008_500, false), (1_008_499, true), (1_011_500, false), (1_011_501, true)] {
        let mut tracker = tracker();
        tracker.observe(&view(1_000, vec![]), seconds(100), seconds(100));
        let later = View { at: Timestamp(store), ..View::default() };
        assert_eq!(tracker.observe(&later, seconds(110), seconds(110)).skewed, skewed, "{store}");
    }
}

#[test]
fn a_slow_answer_is_no_skew() {
    let mut tracker = tracker();
    tracker.observe(&view(1_000, vec![]), seconds(100), seconds(160));
    // The store read its clock at any time between request and answer.
    for store in [1_000, 1_065, 1_124] {
        let mut again = LivenessTracker::new(Tolerance::default(), LEASE);
        again.last = tracker.last;
        let judged = again.observe(&view(store, vec![]), seconds(161), seconds(221));
        assert!(!judged.skewed, "{store}");
    }
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
fn a_jump_of_the_store_clock_makes_no_host_look_dead() {
    let mut tracker = tracker();
    let mut observe = |own: u64, store: i64, age, number| {
        let hosts = vec![beat("b", number, age)];
        let view = View { at: Timestamp(store * 1_000), hosts, ..View::default() };
        tracker.observe(&view, seconds(own), seconds(own)).alive
    };
    observe(100, 1_000, 2, 1);
    assert_eq!(observe(101, 1_301, 303, 1), vec![host("b")]);
    assert_eq!(observe(102, 1_302, 304, 1), vec![host("b")]);
    assert_eq!(observe(103, 1_303, 1, 2), vec![host("b")]);
}

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

#[test]
fn our_own_clock_that_jumps_ahead_while_a_view_is_on_its_way_kills_nobody() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 0, 1);
    let view_at = |store: i64, age: u64| view(store, vec![lease(age, 1, Some(LEASE))]);
    // The clock jumps by four seconds, which looks like a slow answer.
    let liveness = tracker.observe(&view_at(1_010, 10), seconds(110), seconds(114));
    assert_eq!((liveness.skewed, liveness.expired), (false, vec![]));
    let liveness = tracker.observe(&view_at(1_026, 26), seconds(130), seconds(130));
    assert_eq!((liveness.skewed, liveness.expired), (false, vec![]), "four seconds of its time are left");
    let liveness = tracker.observe(&view_at(1_030, 30), seconds(134), seconds(134));
    assert_eq!((liveness.skewed, liveness.expired), (false, vec![P]));
}

#[test]
fn after_a_jump_a_former_owner_may_be_at_work_for_a_whole_lease() {
    let mut tracker = tracker();
    show(&mut tracker, 100, 1_000, 1, 1);
    let until = |tracker: &LivenessTracker, changed_at: i64, now| {
        tracker.former_owner_until(P, Timestamp(changed_at * 1_000), seconds(now))
    };
    assert_eq!(until(&tracker, 1_001, 101), None);
    // The store's clock was set forward after the view, before the claim.
    assert_eq!(until(&tracker, 1_500, 101), Some(seconds(131)));
    // It was set forward between two views, in the first of which the lease was another one.
    assert!(show(&mut tracker, 105, 1_600, 0, 2).skewed);
    assert_eq!(until(&tracker, 1_601, 106), Some(seconds(135)));
    // A lease that is written after the jump is counted by the new clock.
    show(&mut tracker, 110, 1_605, 0, 3);
    assert_eq!(until(&tracker, 1_606, 111), None);
}

#[test]
fn after_a_jump_nobody_waits_for_a_lease_of_long_ago() {
    let mut tracker = tracker();
    let absurd = lease(1, 1, Some(Duration::from_secs(86_400 * 365)));
    tracker.observe(&view(1_000, vec![absurd]), seconds(100), seconds(100));
    let until = |tracker: &LivenessTracker| tracker.former_owner_until(P, Timestamp(9_000_000), seconds(120));
    // It may have been the former owner's.
    show(&mut tracker, 110, 1_010, 1, 2);
    assert_eq!(until(&tracker), Some(seconds(120 + 86_400 * 365)));
    show(&mut tracker, 120, 1_020, 1, 3);
    assert_eq!(until(&tracker), Some(seconds(150)));
    assert!(show(&mut tracker, 130, 1_500, 1, 3).skewed);
    assert_eq!(tracker.former_owner_until(P, Timestamp(1_501_000), seconds(131)), Some(seconds(160)));
}

#[test]
fn a_second_jump_shortens_no_wait() {
    let mut tracker = tracker();
    let long = lease(1, 1, Some(LEASE * 10));
    tracker.observe(&view(1_000, vec![long]), seconds(100), seconds(100));
    assert!(show(&mut tracker, 110, 9_000, 1, 2).skewed);
    assert!(show(&mut tracker, 120, 1_020, 1, 2).skewed);
    assert_eq!(tracker.former_owner_until(P, Timestamp(1_020_000), seconds(121)), Some(seconds(410)));
}

#[test]
fn the_lease_of_another_sdk_counts_with_the_foreign_expiry() {
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
