//! Tests that the judge detects every mutation, that is, every rule that can be switched off, within 2,000
//! seeds, and for the right reason. With `--nocapture` each test prints the number of seeds.

use ephor_core::rules::Rules;
use ephor_sim::{mutations, run};

/// A mutation has to be noticed within this many seeds.
const SEEDS: u64 = 2_000;

/// Plays seeds until the judge notices, and checks that its verdict fits, and that there is none without the
/// mutation.
fn is_caught(name: &str, fitting: &[&str]) {
    let mutation = mutations::find(name).expect("a mutation of this name");
    let noticed = |seed| Some((seed, run::play(seed, mutation.rules).violation?.to_string()));
    let Some((seed, violation)) = (0..SEEDS).find_map(noticed) else {
        panic!("{SEEDS} seeds, and nobody noticed: {}", mutation.what);
    };
    println!("{name}: {} seeds: {violation}", seed + 1);
    assert!(fitting.iter().any(|words| violation.contains(words)), "{name}, seed {seed}: {violation}");
    assert!(
        run::play(seed, Rules::default()).violation.is_none(),
        "seed {seed} fails without the mutation, too"
    );
}

#[test]
fn checkpoints_without_the_fence_are_caught() {
    is_caught("fence", &["was accepted after", "the checkpoint moved back"]);
}

#[test]
fn a_taker_that_keeps_the_epoch_is_caught() {
    is_caught("epoch", &["the epoch went from"]);
}

#[test]
fn a_release_before_the_final_checkpoint_is_caught() {
    is_caught("order", &["but saved only up to"]);
}

#[test]
fn an_owner_that_is_dead_by_the_wall_clock_of_another_is_caught() {
    is_caught("clock", &["claimed as expired", "is in a call in", "runs after"]);
}

#[test]
fn a_deadline_that_counts_from_the_answer_is_caught() {
    is_caught("deadline", &["after the lease was last granted"]);
}

#[test]
fn an_ask_in_the_owners_record_is_caught() {
    is_caught("ask", &["balanced", "not even", "moved", "unresponsive", "stolen"]);
}

#[test]
fn a_renewal_of_what_nobody_serves_is_caught() {
    is_caught(
        "renewal",
        &["was never finished", "owned by", "not even", "may own", "given away as saved", "renewed although"],
    );
}

#[test]
fn a_checkpoint_that_is_read_before_the_claim_is_caught() {
    is_caught("checkpoint", &["was called with", "the checkpoint moved back"]);
}

#[test]
fn events_that_are_delivered_after_the_loss_are_caught() {
    is_caught("prefetch", &["after the lease was last granted", "is in a call in", "runs after"]);
}

#[test]
fn epochs_that_begin_again_are_caught() {
    is_caught("restart", &["the epoch went from"]);
}

#[test]
fn a_seek_that_the_next_save_undoes_is_caught() {
    is_caught("seek", &["the epoch went from", "seek", "sought", "the checkpoint moved"]);
}

#[test]
fn a_share_of_who_cannot_serve_is_caught() {
    is_caught("unhealthy", &["cannot serve", "not even"]);
}

#[test]
fn a_checkpoint_that_is_written_over_without_proof_is_caught() {
    is_caught("rewind", &["reported events as gone", "the checkpoint moved back"]);
}
