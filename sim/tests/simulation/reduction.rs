//! Tests of the reduction: a failing seed becomes small, and its story can be understood.

use ephor_core::rules::Rules;
use ephor_sim::attempt::attempt;
use ephor_sim::mutations::{self, Mutation};
use ephor_sim::reduce::{Limits, Reduced, reduce};
use ephor_sim::scenario::Scenario;
use ephor_sim::story::Story;

fn reduced(name: &str) -> (&'static Mutation, Reduced) {
    let mutation = mutations::find(name).expect("a mutation of this name");
    let failing = (0..100).find(|seed| attempt(Scenario::draw(*seed), mutation.rules).broken.is_some());
    let scenario = Scenario::draw(failing.expect("a failing seed"));
    (mutation, reduce(scenario, mutation.rules, Limits::default()).expect("what fails, fails again"))
}

/// Checks that the result is small, breaks the same promise, and needs everything that is left.
fn is_minimal(mutation: &Mutation, reduced: &Reduced) {
    let Reduced { scenario, broken, injections_before, .. } = reduced;
    assert!(reduced.complete, "{} plays were not enough", reduced.plays);
    assert!(
        *injections_before >= 20 && scenario.injections.len() <= 4,
        "{injections_before} faults became {:?}",
        scenario.injections
    );
    let again = attempt(scenario.clone(), mutation.rules);
    assert_eq!(again.broken.as_ref(), Some(broken));
    assert_eq!(again.history.fingerprint(), reduced.history.fingerprint());
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

/// Checks that the story is short, in words, with a beginning and an end.
fn reads_well(mutation: &Mutation, reduced: &Reduced) {
    let story = Story::new(reduced, Some(mutation)).to_string();
    assert!(story.contains(mutation.what), "{story}");
    assert!(story.lines().count() < 100, "{story}");
    assert_eq!(story.matches("VIOLATION").count(), 1, "{story}");
    for injection in &reduced.scenario.injections {
        assert!(story.contains(&format!("{:>9.3} s", injection.at.as_secs_f64())), "{injection:?}:\n{story}");
    }
    if let Some(partition) = reduced.broken.partition() {
        assert!(story.contains(&format!("WHAT HAPPENS TO {partition:?}")), "{story}");
        assert!(story.contains(&format!("{partition:?} goes from nobody to host-")), "{story}");
    }
    for program in ["Some(", "Finished {", "None"] {
        assert!(!story.contains(program), "{program} is not for people:\n{story}");
    }
}

#[test]
fn a_takeover_in_an_old_epoch_is_reduced_and_told() {
    let (mutation, reduced) = reduced("epoch");
    is_minimal(mutation, &reduced);
    reads_well(mutation, &reduced);
}

#[test]
fn a_release_before_the_final_checkpoint_is_reduced_and_told() {
    let (mutation, reduced) = reduced("order");
    is_minimal(mutation, &reduced);
    reads_well(mutation, &reduced);
}

#[test]
fn a_seek_that_keeps_the_epoch_is_reduced_and_told() {
    let (mutation, reduced) = reduced("seek");
    is_minimal(mutation, &reduced);
    reads_well(mutation, &reduced);
}

#[test]
fn the_same_seed_is_reduced_to_the_same_story() {
    let ((mutation, first), (_, second)) = (reduced("order"), reduced("order"));
    assert_eq!(
        Story::new(&first, Some(mutation)).to_string(),
        Story::new(&second, Some(mutation)).to_string()
    );
    assert_eq!(first.plays, second.plays);
}

#[test]
fn a_reduction_ends_where_its_limits_say() {
    let mutation = mutations::find("epoch").expect("a mutation of this name");
    let limits = Limits { plays: 5, ..Limits::default() };
    let reduced = reduce(Scenario::draw(0), mutation.rules, limits).expect("a failing seed");
    assert!(reduced.plays <= 5 && !reduced.complete);
    let limits = Limits { keep_going: &|| false, ..Limits::default() };
    let reduced = reduce(Scenario::draw(0), mutation.rules, limits).expect("a failing seed");
    assert_eq!((reduced.plays, reduced.scenario.injections.len()), (1, reduced.injections_before));
}

#[test]
fn what_does_not_fail_is_not_reduced() {
    let scenario = Scenario { injections: vec![], ..Scenario::draw(10_000) };
    assert!(reduce(scenario, Rules::default(), Limits::default()).is_none());
}
