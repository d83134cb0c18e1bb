//! Tests of the time that a new owner waits for the former owner after a clock has jumped.

use super::*;

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
