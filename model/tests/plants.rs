//! Each bug that is planted gives a counterexample, and its story is told in words.

#![allow(clippy::print_stdout, reason = "what was found is worth reading")]

use ephor_core::rules::Rules;
use ephor_model::bounds::Bounds;
use ephor_model::plants;
use ephor_model::protocol::Protocol;
use ephor_model::search::{Findings, search_shortest};

fn found(rules: Rules) -> Findings {
    let bounds = Bounds { partitions: 1, changes: 3, messages: 2, failures: 1, ..Bounds::default() };
    search_shortest(|| Protocol { recovers: false, ..Protocol::new(bounds, rules) }.named())
}

/// The promise that each breaks first, and words that its story must hold.
const EXPECTED: [(&str, &str, &str); 9] = [
    ("fence", "no save under an older epoch", "the store saves 1 finished of p0"),
    ("epoch", "an epoch is given out once", "its owner stopped renewing"),
    ("order", "given away as settled means saved", "settled"),
    ("clock", "nobody delivers", "is at work on p0"),
    ("deadline", "nobody delivers", "is at work on p0"),
    ("checkpoint", "right behind the checkpoint", "serves p0 in e2 from event 0 on"),
    ("prefetch", "nobody delivers", "is at work on p0"),
    ("restart", "an epoch is given out once", "the store gives p0"),
    ("seek", "an epoch is given out once", "a person moves p0 back"),
];

#[test]
fn every_planted_bug_gives_a_story() {
    for (name, promise, words) in EXPECTED {
        let plant = plants::find(name).expect("in the table");
        let findings = found(plant.rules);
        let (broken, story) = findings.broken.clone().unwrap_or_else(|| panic!("{name} was not seen"));
        println!("{name}: {broken} is broken after {} steps:\n  {}", findings.depth, story.join("\n  "));
        assert!(broken.contains(promise), "{name} breaks {broken:?}");
        assert!(story.iter().any(|line| line.contains(words)), "{name}: {story:#?}");
        assert!(story.iter().all(|line| line.starts_with("tick ")), "{name}: {story:#?}");
    }
    assert_eq!(EXPECTED.len(), plants::all().count());
}
