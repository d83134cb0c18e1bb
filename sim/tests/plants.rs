//! Every planted bug is noticed within 2,000 seeds, and for the right reason. With `--nocapture` each test
//! says how many it took.

#![allow(clippy::print_stdout, reason = "a test that says how many seeds it took")]

use ephor_core::rules::Rules;
use ephor_sim::{plants, run};

/// The bug has to be noticed within this many seeds.
const SEEDS: u64 = 2_000;

/// Plays seeds until the judge notices, and sees that what it says fits, and that without the bug it says
/// nothing.
fn is_caught(name: &str, fitting: &[&str]) {
    let plant = plants::find(name).expect("a plant of this name");
    let noticed = |seed| Some((seed, run::play(seed, plant.rules).violation?.to_string()));
    let Some((seed, violation)) = (0..SEEDS).find_map(noticed) else {
        panic!("{SEEDS} seeds, and nobody noticed: {}", plant.what);
    };
    println!("{name}: {} seeds: {violation}", seed + 1);
    assert!(fitting.iter().any(|words| violation.contains(words)), "{name}, seed {seed}: {violation}");
    assert!(run::play(seed, Rules::default()).violation.is_none(), "seed {seed} fails without the bug, too");
}

#[test]
fn checkpoints_without_the_fence_are_caught() {
    is_caught("fence", &["was accepted after", "the checkpoint moved back"]);
}

#[test]
fn a_thief_that_keeps_the_epoch_is_caught() {
    is_caught("epoch", &["the epoch went from"]);
}

#[test]
fn a_release_before_the_final_checkpoint_is_caught() {
    is_caught("order", &["but saved only up to"]);
}

#[test]
fn a_deadline_that_counts_from_the_answer_is_caught() {
    is_caught("deadline", &["after the lease was last granted"]);
}

#[test]
fn epochs_that_begin_again_are_caught() {
    is_caught("restart", &["the epoch went from"]);
}
