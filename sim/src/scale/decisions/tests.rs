//! Tests that hosts that only make balancing decisions decide as real hosts do.

use super::*;
use crate::scale::real_hosts;

#[test]
fn decisions_alone_settle_as_whole_hosts_do() {
    let size = Size { hosts: 30, partitions: 256 };
    let (alone, real) = (play(size, 1), real_hosts::play(size, false, 1));
    for one in &alone.changes {
        let other = real.changes.iter().find(|other| other.change == one.change).expect("played by both");
        let apart = one.after.abs_diff(other.after);
        // The times of scans are random: the results differ by up to two scans, or by a renewal if hosts wait
        // for a lease.
        assert!(apart <= Duration::from_secs(12), "{}: {:?} and {:?}", one.change, one.after, other.after);
        assert!(one.moves.abs_diff(other.moves) <= other.moves / 5, "{one:?} {other:?}");
        assert!((one.scans - other.scans).abs() <= 6.0, "{one:?} {other:?}");
    }
}

#[test]
fn liveness_is_judged_as_a_watch_does() {
    let mut fleet = DecidingFleet::new(Size { hosts: 12, partitions: 96 }, 7, true);
    let later = Change::LATER.into_iter().filter(|change| *change != Change::Stop);
    for change in [Change::ColdStart].into_iter().chain(later) {
        fleet.settle(change);
    }
}
