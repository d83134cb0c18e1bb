//! Tests of growing fleets, on virtual time from a seed: they become stable with the fewest moves, and more
//! partitions do not cause more store calls. The last test compares `docs/scale.md` with the output of
//! `ephor-sim scale`.

use std::fs;
use std::path::Path;
use std::time::Duration;

use ephor_sim::scale::fleet_changes::{Change, Size};
use ephor_sim::scale::{self, decisions, documents, real_hosts, table};

const SECOND: Duration = Duration::from_secs(1);

fn size(hosts: usize, partitions: usize) -> Size {
    Size { hosts, partitions }
}

/// The moves if hosts join one by one: each join moves its fewest, 1/2 + 1/3 + … of all.
fn one_by_one(size: Size) -> usize {
    (1..=size.hosts).map(|hosts| size.partitions.div_ceil(hosts)).sum()
}

/// The bounds of a change: (moves, time to rest).
fn bounds(size: Size, change: Change, fewest: usize) -> (usize, Duration) {
    match change {
        // Lost claims are not moves: the winner keeps the partition.
        Change::ColdStart => (fewest + size.partitions / 10, 10 * SECOND),
        Change::SlowStart => (one_by_one(size), 20 * SECOND),
        Change::Join | Change::Stop => (fewest, 12 * SECOND),
        Change::TenthJoins => (fewest + fewest / 10, 12 * SECOND),
        // A lease, and a few scans.
        Change::Crash => (fewest, 42 * SECOND),
        Change::TenthCrashes => (fewest + fewest / 10 + 1, 42 * SECOND),
    }
}

fn assert_bounded(size: Size, change: Change, moves: usize, fewest: usize, after: Duration) {
    let (most, longest) = bounds(size, change, fewest);
    assert!(
        (fewest..=most).contains(&moves),
        "{size}: {change}: {moves} moves, fewest {fewest}, most {most}"
    );
    assert!(after <= longest, "{size}: {change}: at rest only after {after:?}");
}

fn assert_settles(size: Size, wakes: bool, seed: u64) -> real_hosts::Whole {
    let fleet = real_hosts::play(size, wakes, seed);
    assert_eq!(fleet.changes.len(), 7);
    for one in &fleet.changes {
        assert_bounded(size, one.change, one.moves, one.fewest, one.after);
    }
    fleet
}

#[test]
fn small_fleets_come_to_rest_with_the_fewest_moves() {
    for seed in 0..20 {
        for wakes in [true, false] {
            assert_settles(size(5, 16), wakes, seed);
            assert_settles(size(7, 33), wakes, seed);
        }
    }
}

#[test]
fn middle_fleets_come_to_rest_with_the_fewest_moves() {
    for wakes in [true, false] {
        for seed in 0..3 {
            assert_settles(size(10, 64), wakes, seed);
        }
        assert_settles(size(30, 256), wakes, 0);
    }
}

#[test]
fn a_hundred_hosts_with_a_thousand_partitions_come_to_rest_with_the_fewest_moves() {
    assert_settles(size(100, 1_024), true, 0);
}

#[test]
fn a_host_at_rest_asks_no_more_of_its_store_in_a_larger_fleet() {
    let few = real_hosts::play(size(3, 6), false, 1).rest;
    for large in [size(3, 96), size(30, 96)] {
        let many = real_hosts::play(large, false, 1).rest;
        assert!(few.by_kind.keys().eq(many.by_kind.keys()), "{few:?} {many:?}");
        for kind in few.by_kind.keys() {
            let (one, other) = (few.rate(kind), many.rate(kind));
            assert!((one - other).abs() <= one / 10.0, "{large}: {kind}: {one} and {other} in a minute");
        }
    }
}

#[test]
fn the_same_seed_gives_the_same_figures() {
    let one = real_hosts::play(size(8, 40), true, 3);
    assert_eq!(one, real_hosts::play(size(8, 40), true, 3));
    let alone = decisions::play(size(20, 200), 3);
    assert_eq!(alone, decisions::play(size(20, 200), 3));
    assert_ne!(alone, decisions::play(size(20, 200), 4));
}

#[test]
fn the_decisions_alone_come_to_rest_with_the_fewest_moves() {
    let fleets = (0..10).map(|seed| (size(10, 64), seed)).chain([(size(30, 256), 0), (size(100, 1_024), 0)]);
    for (size, seed) in fleets {
        let fleet = decisions::play(size, seed);
        assert_eq!(fleet.changes.len(), 6);
        for one in &fleet.changes {
            assert_bounded(size, one.change, one.moves, one.fewest, one.after);
        }
    }
}

#[test]
fn the_page_says_what_the_command_prints_and_shows_the_picture() {
    let docs = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs");
    let page = fs::read_to_string(docs.join("scale.md")).unwrap();
    assert!(page.contains(documents::BEGIN) && page.contains(documents::END));
    let scale = scale::play(false, &mut |_| {});
    for line in [table::changes(&scale), table::calls(&scale), table::decisions(&scale)].concat() {
        assert!(
            page.lines().any(|other| other == line),
            "docs/scale.md does not have this line; write it again: cargo run -p ephor-sim -- scale --write docs\n{line}"
        );
    }
    let picture = fs::read_to_string(docs.join("pictures/scale.svg")).unwrap();
    assert!(picture.starts_with("<svg ") && page.contains("pictures/scale.svg"));
}
