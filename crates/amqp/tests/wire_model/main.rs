//! A model of the wire: random conversations between two ends, and between one end and a peer that writes its
//! frames by hand, beside a plain model of what may be sent, must arrive, is settled and is reported.
//!
//! ```sh
//! ./check wire 100000                                                                      # the long form
//! EPHOR_WIRE_SEED=17 cargo test -p ephor-amqp --test wire_model -- --nocapture             # one conversation
//! ```
//!
//! A conversation that fails is reduced to the steps that it needs, and printed with its seed.
//!
//! | to read about | open |
//! |---|---|
//! | what is allowed, due and reported | [`model`] |
//! | one end: a connection, its application, and the model that watches both | [`endpoint`], [`application`] |
//! | two ends | [`steps`], [`conversation`], [`ending`] |
//! | one end and a peer that writes its frames by hand | [`raw_steps`], [`raw_peer`], [`raw_session`], [`raw_conversation`] |
//! | decoding and encoding frames | [`decoded_frames`], [`hand_written_frames`] |
//! | the limits and habits that are drawn | [`settings`] |
//! | which frame met which state | [`coverage`] |

mod application;
mod conversation;
mod coverage;
mod decoded_frames;
mod ending;
mod endpoint;
mod hand_written_frames;
mod model;
mod raw_conversation;
mod raw_peer;
mod raw_session;
mod raw_steps;
mod settings;
mod shrink;
mod steps;

use std::fmt::{Debug, Display};

use conversation::Totals;
use fastrand::Rng;
use shrink::{Failure, attempt, list, shrink};

/// The conversations of the short form.
const CONVERSATIONS: u64 = 6_000;

/// With so many, every combination of a frame and a state that can be reached has to be met.
const ENOUGH_FOR_COVERAGE: u64 = 50_000;

fn number(variable: &str) -> Option<u64> {
    std::env::var(variable).ok().map(|text| text.parse().expect("a number"))
}

/// Plays the conversation of a seed; a failure comes with everything that is needed to understand it.
fn play(seed: u64) -> Result<Totals, String> {
    let mut random = Rng::with_seed(seed);
    let settings = settings::draw(&mut random);
    if seed % 4 < 2 {
        let steps = steps::draw(&mut random);
        let shown = format!("two ends\n{}\n{}", settings[0], settings[1]);
        return play_steps(&shown, &steps, |steps| conversation::play(&settings, steps));
    }
    let (is_client, wild) = (random.bool(), seed % 4 == 3);
    let steps = raw_steps::draw(&mut random, wild);
    let [settings, _] = settings;
    let shown =
        format!("one end ({}) and a raw peer\n{settings}", if is_client { "client" } else { "server" });
    play_steps(&shown, &steps, |steps| raw_conversation::play(&settings, is_client, steps))
}

/// Plays the steps. A failing list is reduced.
fn play_steps<S: Clone + Debug>(
    settings: &dyn Display,
    steps: &[S],
    play: impl Fn(&[S]) -> Totals,
) -> Result<Totals, String> {
    let play = |steps: &[S]| attempt(|| play(steps));
    play(steps).map_err(|failure| {
        let fewer = shrink(steps, &failure, |steps| play(steps).err());
        let Failure(now) = play(&fewer).err().unwrap_or_else(|| failure.clone());
        let (count, of, Failure(before)) = (fewer.len(), steps.len(), &failure);
        format!("{settings}\n{count} of {of} steps:\n{}{now}\n(before: {before})", list(&fewer))
    })
}

#[test]
fn every_conversation_agrees_with_the_model() {
    let one = number("EPHOR_WIRE_SEED");
    let from = one.or_else(|| number("EPHOR_WIRE_FROM")).unwrap_or(0);
    let count = if one.is_some() { 1 } else { number("EPHOR_WIRE_CONVERSATIONS").unwrap_or(CONVERSATIONS) };
    let mut totals = Totals::default();
    for seed in from..from + count {
        match play(seed) {
            Ok(found) => totals.add(&found),
            Err(text) => panic!(
                "conversation {} of {count}: {text}\nreplay: EPHOR_WIRE_SEED={seed} cargo test -p ephor-amqp --test \
                 wire_model -- --nocapture",
                seed - from + 1
            ),
        }
    }
    let Totals { coverage, delivered, settled } = &totals;
    let missing = coverage.missing();
    eprintln!("{coverage}");
    eprintln!(
        "{count} conversations, {delivered} deliveries, {settled} settlements, 0 violations; {} combinations of a \
         frame and a state never met",
        missing.len()
    );
    assert!(count < ENOUGH_FOR_COVERAGE || missing.is_empty(), "never met: {missing:#?}");
}

#[test]
fn a_failing_conversation_is_reduced_to_the_steps_that_it_needs() {
    let play = |steps: &[u32]| {
        let needed = [3, 17, 40].iter().all(|step| steps.contains(step));
        attempt(|| assert!(!needed, "step {} of {}", steps[0], steps.len())).err()
    };
    let steps: Vec<u32> = (0..50).collect();
    let failure = play(&steps).expect("it fails");
    assert_eq!(shrink(&steps, &failure, play), [3, 17, 40]);
    assert!(list(&["RunUntilIdle"]).contains("1  \"RunUntilIdle\""));
}
