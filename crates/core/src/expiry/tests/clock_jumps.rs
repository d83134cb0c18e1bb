//! Tests of clocks that jump or disagree: they expire no lease of a living owner, and no host waits for
//! years.

use super::*;

#[test]
fn a_new_watcher_takes_no_lease_after_the_store_clock_was_set_years_ahead() {
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
fn a_store_clock_set_years_ahead_or_back_costs_nobody_a_lease_and_makes_nobody_wait_for_years() {
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
