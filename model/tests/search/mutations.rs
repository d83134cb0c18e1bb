//! Tests that the model finds a counterexample for every mutation (a rule that can be switched off) that it
//! can show; `src/mutations.rs` lists the others.

use ephor_core::rules::Rules;
use ephor_model::bounds::Bounds;
use ephor_model::mutations;
use ephor_model::protocol::Protocol;
use ephor_model::search::{Findings, search_shortest};

fn found(rules: Rules) -> Findings {
    let bounds = Bounds { partitions: 1, changes: 3, messages: 2, failures: 1, ..Bounds::default() };
    search_shortest(|| Protocol { recovers: false, ..Protocol::new(bounds, rules) }.named())
}

/// The property that each violates first, and a text that its counterexample must contain.
const EXPECTED: [(&str, &str, &str); 9] = [
    ("fence", "no save under an older epoch", "the store saves position 1 of p0"),
    ("epoch", "an epoch is assigned once", "its owner stopped renewing"),
    ("order", "a partition given away as saved is saved", "saved"),
    ("clock", "no host delivers", "is delivering p0"),
    ("deadline", "no host delivers", "is delivering p0"),
    ("checkpoint", "right after the checkpoint", "serves p0 in e2 from event 0 on"),
    ("prefetch", "no host delivers", "is delivering p0"),
    ("restart", "an epoch is assigned once", "the store gives p0"),
    ("seek", "an epoch is assigned once", "a person moves p0 back"),
];

#[test]
fn every_mutation_gives_a_counterexample() {
    for (name, promise, trace) in EXPECTED {
        let mutation = mutations::find(name).expect("in the table");
        let findings = found(mutation.rules);
        let (violation, steps) = findings.violation.clone().unwrap_or_else(|| panic!("{name} was not seen"));
        println!("{name}: {violation} is violated after {} steps:\n  {}", findings.depth, steps.join("\n  "));
        assert!(violation.contains(promise), "{name} violates {violation:?}");
        assert!(steps.iter().any(|line| line.contains(trace)), "{name}: {steps:#?}");
        assert!(steps.iter().all(|line| line.starts_with("tick ")), "{name}: {steps:#?}");
    }
    assert_eq!(EXPECTED.len(), mutations::all().count());
}
