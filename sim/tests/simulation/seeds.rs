//! Tests of the simulation: no seed breaks a promise, two runs of a seed are the same, and changes without
//! faults take the fewest moves. The long form is the `ephor-sim` command; the mutations that it must
//! detect are in `mutations.rs`.

use ephor_core::rules::Rules;
use ephor_sim::judge::{Check, ExemptionCounts};
use ephor_sim::rebalance_cost::{self, Change};
use ephor_sim::run;
use ephor_sim::scenario::Scenario;

#[test]
fn no_seed_breaks_a_promise() {
    let (mut injections, mut events) = (0, 0);
    let mut exemptions = ExemptionCounts::default();
    for seed in 10_000..10_040 {
        let outcome = run::play(seed, Rules::default());
        assert_eq!(outcome.violation, None, "seed {seed}:\n{}", outcome.history.tail(40));
        injections += outcome.injections;
        exemptions.add(&outcome.exemptions);
        events += outcome.figures.finished + outcome.figures.skipped;
    }
    // If a hub is created again or hosts are full, events may be lost; most runs finish them all.
    assert!(injections >= 40 * 20, "{injections} faults");
    assert!(events >= 40 * 2_000, "{events} events");
    let evaluated = Check::ALL.iter().filter(|check| exemptions.evaluated(**check) > 0).count();
    assert!(evaluated * 3 >= Check::ALL.len() * 2, "most checks have something to check:\n{exemptions}");
}

#[test]
fn leases_alone_keep_every_promise_where_the_hub_does_not_fence_readers() {
    let mut events = 0;
    for seed in 10_000..10_016 {
        let scenario = Scenario { hub_fences: false, ..Scenario::draw(seed) };
        let outcome = run::play_scenario(scenario, Rules::default());
        assert_eq!(outcome.violation, None, "seed {seed}:\n{}", outcome.history.tail(40));
        events += outcome.figures.finished + outcome.figures.skipped;
    }
    assert!(events >= 16 * 2_000, "{events} events");
}

#[test]
fn one_seed_played_twice_is_one_history_to_the_byte() {
    for seed in [3, 7, 8] {
        let (first, second) = (run::play(seed, Rules::default()), run::play(seed, Rules::default()));
        assert!(first.history.len() > 500, "there is something to compare");
        assert_eq!(first.history.text(), second.history.text());
        assert_eq!(first.steps, second.steps, "seed {seed}: the steps differ");
    }
    let (a, b) = (run::play(1, Rules::default()), run::play(2, Rules::default()));
    assert_ne!(a.history.fingerprint(), b.history.fingerprint());
}

#[test]
fn without_trouble_every_change_takes_the_fewest_moves() {
    let moves = rebalance_cost::measure(0, 24);
    for ((change, wakes), tally) in &moves.0 {
        assert!(tally.changes > 0);
        assert_eq!(tally.moves, tally.fewest, "{change:?}, wakes {wakes}:\n{moves}");
    }
}

#[test]
fn nobody_reads_for_no_longer_than_promised() {
    let moves = rebalance_cost::measure(100, 24);
    for ((change, wakes), tally) in &moves.0 {
        let longest = tally.gaps.last().copied().unwrap_or_default().as_secs_f64();
        let promised = match (change, wakes) {
            // Stop and handover: under a second if the store can notify hosts.
            (Change::Join | Change::Stop, true) => 1.0,
            // Otherwise within one fast scan, and a few store calls.
            (Change::Join | Change::Stop, false) => 1.1,
            // A crash: the lease, and one slow scan.
            (Change::Crash, _) => 35.5,
        };
        assert!(longest <= promised, "{change:?}, wakes {wakes}:\n{moves}");
    }
}
