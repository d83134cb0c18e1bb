//! Tests that state reduction loses no behaviour: a full state and its reduced state have the same steps.

use ephor_core::rules::Rules;
use ephor_model::action::{self, Action};
use ephor_model::bounds::Bounds;
use ephor_model::protocol::Protocol;
use ephor_model::state::State;
use ephor_model::state_reduction;

#[test]
fn who_forgets_takes_the_same_steps_as_who_remembers() {
    let bounds = Bounds { changes: 100, seeks: 3, stops: 1, failures: 3, events: 2, ..Bounds::default() };
    for hosts in [2, 3] {
        let bounds = Bounds { hosts, ..bounds };
        let reduced = Protocol::new(bounds, Rules::KEPT).named();
        let full = Protocol { reduces: false, ..Protocol::new(bounds, Rules::KEPT).named() };
        for seed in 0..200 {
            walk(&reduced, &full, seed);
        }
    }
}

fn walk(reduced: &Protocol, full: &Protocol, seed: u64) {
    let mut random = fastrand::Rng::with_seed(seed);
    let (mut short, mut long) = (State::default(), State::default());
    for step in 0..300 {
        let mut actions = vec![];
        action::possible(reduced, &short, &mut actions);
        let mut of_full = vec![];
        action::possible(full, &long, &mut of_full);
        assert_eq!(actions, of_full, "seed {seed}, step {step}:\n{short:?}\n{long:?}");
        // Time passes more often than it would by chance, so that things grow old.
        let index = if random.u8(..4) == 0 { actions.len() - 1 } else { random.usize(..actions.len()) };
        let action: Action = actions[index];
        if let Action::Look(host, _) = action {
            assert_eq!(reduced.host_views(&short, host), full.host_views(&long, host));
        }
        short = reduced.step(&short, action, false).state;
        long = full.step(&long, action, false).state;
        let mut folded = long;
        state_reduction::reduce(&mut folded);
        assert_eq!(short, folded, "seed {seed}, step {step}: {action:?}");
        if short.partitions.iter().any(|kept| kept.fence > 200) {
            return;
        }
    }
}
