//! Forgetting changes nothing: a state that remembers every age takes the same steps as one that forgets those
//! that nothing depends on, and what is left of it after forgetting is the same state.

use ephor_core::rules::Rules;
use ephor_model::action::{self, Action};
use ephor_model::bounds::Bounds;
use ephor_model::fold;
use ephor_model::protocol::Protocol;
use ephor_model::state::State;

#[test]
fn who_forgets_takes_the_same_steps_as_who_remembers() {
    let bounds = Bounds { changes: 100, seeks: 3, stops: 1, failures: 3, events: 2, ..Bounds::default() };
    for hosts in [2, 3] {
        let bounds = Bounds { hosts, ..bounds };
        let forgetful = Protocol::new(bounds, Rules::KEPT).named();
        let elephant = Protocol { forgets: false, ..Protocol::new(bounds, Rules::KEPT).named() };
        for seed in 0..200 {
            walk(&forgetful, &elephant, seed);
        }
    }
}

fn walk(forgetful: &Protocol, elephant: &Protocol, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut short, mut long) = (State::default(), State::default());
    for step in 0..300 {
        let mut actions = vec![];
        action::possible(forgetful, &short, &mut actions);
        let mut of_elephant = vec![];
        action::possible(elephant, &long, &mut of_elephant);
        assert_eq!(actions, of_elephant, "seed {seed}, step {step}:\n{short:?}\n{long:?}");
        // Time passes more often than it would by chance, so that things grow old.
        let index = if random.u8(..4) == 0 { actions.len() - 1 } else { random.usize(..actions.len()) };
        let action: Action = actions[index];
        if let Action::Look(host, _) = action {
            assert_eq!(forgetful.outlooks(&short, host), elephant.outlooks(&long, host));
        }
        short = forgetful.turn(&short, action, false).state;
        long = elephant.turn(&long, action, false).state;
        let mut folded = long;
        fold::forget(&mut folded);
        assert_eq!(short, folded, "seed {seed}, step {step}: {action:?}");
        if short.partitions.iter().any(|kept| kept.seal > 200) {
            return;
        }
    }
}
