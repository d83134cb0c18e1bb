//! Tests that a failing seed is shrunk to a small scenario, and that its report can be understood.

use ephor_core::rules::Rules;
use ephor_sim::failure_report::FailureReport;
use ephor_sim::mutations::{self, Mutation};
use ephor_sim::run_result::attempt;
use ephor_sim::scenario::Scenario;
use ephor_sim::shrink::{Limits, Shrunk, shrink};

fn shrunk(name: &str) -> (&'static Mutation, Shrunk) {
    let mutation = mutations::find(name).expect("a mutation of this name");
    let failing = (0..100).find(|seed| attempt(Scenario::draw(*seed), mutation.rules).broken.is_some());
    let scenario = Scenario::draw(failing.expect("a failing seed"));
    (mutation, shrink(scenario, mutation.rules, Limits::default()).expect("what fails, fails again"))
}

/// Checks that the result is small, breaks the same promise, and needs everything that is left.
fn is_minimal(mutation: &Mutation, shrunk: &Shrunk) {
    let Shrunk { scenario, broken, injections_before, .. } = shrunk;
    assert!(shrunk.complete, "{} plays were not enough", shrunk.plays);
    assert!(
        *injections_before >= 20 && scenario.injections.len() <= 4,
        "{injections_before} faults became {:?}",
        scenario.injections
    );
    let again = attempt(scenario.clone(), mutation.rules);
    assert_eq!(again.broken.as_ref(), Some(broken));
    assert_eq!(again.history.fingerprint(), shrunk.history.fingerprint());
    for left_out in 0..scenario.injections.len() {
        let mut fewer = scenario.clone();
        let injection = fewer.injections.remove(left_out);
        let other = attempt(fewer, mutation.rules).broken;
        assert_ne!(
            other.map(|other| other.promise),
            Some(broken.promise.clone()),
            "{injection:?} can be spared"
        );
    }
}

/// Checks that the report is short, in words, with a beginning and an end.
fn reads_well(mutation: &Mutation, shrunk: &Shrunk) {
    let report = FailureReport::new(shrunk, Some(mutation)).to_string();
    assert!(report.contains(mutation.what), "{report}");
    assert!(report.lines().count() < 100, "{report}");
    assert_eq!(report.matches("VIOLATION").count(), 1, "{report}");
    for injection in &shrunk.scenario.injections {
        assert!(
            report.contains(&format!("{:>9.3} s", injection.at.as_secs_f64())),
            "{injection:?}:\n{report}"
        );
    }
    if let Some(partition) = shrunk.broken.partition() {
        assert!(report.contains(&format!("WHAT HAPPENS TO {partition:?}")), "{report}");
        assert!(report.contains(&format!("{partition:?} goes from nobody to host-")), "{report}");
    }
    for program in ["Some(", "Finished {", "None"] {
        assert!(!report.contains(program), "{program} is not for people:\n{report}");
    }
}

#[test]
fn a_takeover_in_an_old_epoch_is_shrunk_and_told() {
    let (mutation, shrunk) = shrunk("epoch");
    is_minimal(mutation, &shrunk);
    reads_well(mutation, &shrunk);
}

#[test]
fn a_release_before_the_final_checkpoint_is_shrunk_and_told() {
    let (mutation, shrunk) = shrunk("order");
    is_minimal(mutation, &shrunk);
    reads_well(mutation, &shrunk);
}

#[test]
fn a_seek_that_keeps_the_epoch_is_shrunk_and_told() {
    let (mutation, shrunk) = shrunk("seek");
    is_minimal(mutation, &shrunk);
    reads_well(mutation, &shrunk);
}

#[test]
fn the_same_seed_is_shrunk_to_the_same_report() {
    let ((mutation, first), (_, second)) = (shrunk("order"), shrunk("order"));
    assert_eq!(
        FailureReport::new(&first, Some(mutation)).to_string(),
        FailureReport::new(&second, Some(mutation)).to_string()
    );
    assert_eq!(first.plays, second.plays);
}

#[test]
fn shrinking_ends_where_its_limits_say() {
    let mutation = mutations::find("epoch").expect("a mutation of this name");
    let limits = Limits { plays: 5, ..Limits::default() };
    let shrunk = shrink(Scenario::draw(0), mutation.rules, limits).expect("a failing seed");
    assert!(shrunk.plays <= 5 && !shrunk.complete);
    let limits = Limits { keep_going: &|| false, ..Limits::default() };
    let shrunk = shrink(Scenario::draw(0), mutation.rules, limits).expect("a failing seed");
    assert_eq!((shrunk.plays, shrunk.scenario.injections.len()), (1, shrunk.injections_before));
}

#[test]
fn what_does_not_fail_is_not_shrunk() {
    let scenario = Scenario { injections: vec![], ..Scenario::draw(10_000) };
    assert!(shrink(scenario, Rules::default(), Limits::default()).is_none());
}
