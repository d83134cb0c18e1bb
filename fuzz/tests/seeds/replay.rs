//! Tests that run every input of the corpus, and some mutations of it, through its target; that the gateway's
//! seeds are answered; and that each target gets its turn and can be run by cargo-fuzz.

use std::panic::catch_unwind;

use ephor_amqp::performative::{Outcome, Performative};
use ephor_fuzz::{TARGETS, Target, corpus, frames, gateway, mutate, turn};

/// The default number of mutations; `EPHOR_FUZZ_CASES` overrides it.
const CASES: u64 = 1_000;
/// The maximum size of all files of the corpus.
const MAX_BYTES: usize = 512 << 10;

fn cases() -> u64 {
    std::env::var("EPHOR_FUZZ_CASES").ok().and_then(|count| count.parse().ok()).unwrap_or(CASES)
}

fn inputs(target: Target) -> Vec<Vec<u8>> {
    corpus::read(target.name).unwrap().into_iter().map(|(_, bytes)| bytes).collect()
}

#[test]
fn every_input_of_the_corpus_keeps_the_promises() {
    let mut bytes = 0;
    for target in TARGETS {
        for (name, input) in corpus::read(target.name).unwrap() {
            bytes += input.len();
            let played = catch_unwind(|| (target.run)(&input));
            assert!(played.is_ok(), "corpus/{}/{name} failed: see the panic above", target.name);
        }
    }
    assert!(bytes <= MAX_BYTES, "the corpus has {bytes} bytes: keep the smallest inputs only");
    gateway::answers();
}

#[test]
fn mutations_of_the_corpus_keep_the_promises() {
    let corpus = TARGETS.map(inputs);
    for case in 0..cases() {
        let turn = turn(&TARGETS, case);
        let (target, input) = (TARGETS[turn], mutate::input(&corpus[turn], case));
        let played = catch_unwind(|| (target.run)(&input));
        assert!(played.is_ok(), "case {case} of {} failed: see the panic above", target.name);
    }
    gateway::answers();
}

/// A summary of a gateway's answers: accepted deliveries, messages, and links that it detached with an error.
#[derive(Debug, Default, PartialEq)]
struct Said {
    accepted: usize,
    messages: usize,
    ended: usize,
}

fn said_to_seed(name: &str) -> Said {
    let seed = std::fs::read(corpus::folder("gateway").join(format!("seed-{name}"))).unwrap();
    let answer = gateway::answer_to(&seed);
    let mut said = Said::default();
    for frame in frames::split(&answer).into_iter().filter(|frame| frame.len() > 8) {
        match Performative::read(&answer[frame.start + 8..frame.end]) {
            Ok((Performative::Disposition(these), _)) if these.outcome == Some(Outcome::Accepted) => {
                said.accepted += 1 + (these.last.unwrap_or(these.first) - these.first) as usize;
            }
            Ok((Performative::Transfer(part), _)) if !part.more => said.messages += 1,
            Ok((Performative::Detach(detach), _)) if detach.error.is_some() => said.ended += 1,
            _ => {}
        }
    }
    said
}

/// Seeds do not wait for answers, so an event that is stored while the peer disconnects gets none. At least
/// one attempt must get all.
fn says(name: &str, wanted: impl Fn(&Said) -> bool) {
    const ATTEMPTS: usize = 500;
    let last = (0..ATTEMPTS).map(|_| said_to_seed(name)).find(&wanted);
    assert!(last.is_some(), "{name}: {:?}, after {ATTEMPTS} attempts", said_to_seed(name));
}

#[test]
fn the_seeds_of_the_gateway_get_behind_the_door() {
    // Two events and two batches are stored.
    says("sending", |said| *said == Said { accepted: 4, messages: 0, ended: 0 });
    // A token and an event; the answer to the token, and events; a receiver without an epoch is displaced by
    // one with an epoch, and one with a lower epoch is refused.
    says("receiving", |said| said.accepted == 2 && said.messages > 1 && said.ended == 2);
    // A token and two descriptions.
    says("asking", |said| *said == Said { accepted: 3, messages: 3, ended: 0 });
    // Two new events, a repeated one, and one of a producer that continues.
    says("numbering", |said| *said == Said { accepted: 4, messages: 0, ended: 0 });
    // An unauthenticated peer is refused everywhere.
    says("a-stranger", |said| said.messages == 2 && said.ended == 2);
}

#[test]
fn a_case_is_the_same_each_time() {
    let inputs = inputs(TARGETS[0]);
    for case in 0..100 {
        assert_eq!(mutate::input(&inputs, case), mutate::input(&inputs, case));
    }
    assert!((0..100).map(|case| mutate::input(&inputs, case)).any(|input| !inputs.contains(&input)));
}

#[test]
fn every_target_has_its_turn() {
    let turns: Vec<_> = (0..100).map(|case| turn(&TARGETS, case)).collect();
    assert!((0..TARGETS.len()).all(|target| turns.contains(&target)), "{turns:?}");
    assert_eq!(turn(&TARGETS[3..4], 12_345), 0);
}

#[test]
fn every_target_can_be_run_by_cargo_fuzz() {
    let manifest =
        std::fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/fuzz_targets/Cargo.toml")).unwrap();
    for Target { name, .. } in TARGETS {
        assert!(
            manifest.contains(&format!("name = \"{name}\"\n")),
            "no [[bin]] for {name} in fuzz_targets/Cargo.toml"
        );
        let path = format!("{}/fuzz_targets/src/{name}.rs", env!("CARGO_MANIFEST_DIR"));
        let source = std::fs::read_to_string(&path).unwrap_or_else(|error| panic!("{path}: {error}"));
        assert!(source.contains("ephor_fuzz::"), "{path} plays nothing");
    }
}
