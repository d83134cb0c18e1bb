//! Describes a counterexample as text: the actions of the hosts, the answers of the store, and the ticks.

use stateright::Path;

use crate::action::Action;
use crate::protocol::{NAMES, Protocol};
use crate::recovery;
use crate::state::State;

/// The most lines of a failed recovery that are printed.
const ATTEMPT: usize = 40;

/// Describes a path, one line for each event.
pub fn describe(protocol: &Protocol, path: Path<State, Action>) -> Vec<String> {
    let mut lines = vec![];
    let mut now = 0;
    for (state, action) in path.into_vec() {
        let Some(action) = action else {
            lines.extend(at_work(protocol, &state).into_iter().map(|line| format!("tick {now}: {line}")));
            if !recovery::recovers_from(protocol, &state) {
                let attempt = recovery::attempt(protocol, &state);
                lines.extend(attempt.into_iter().take(ATTEMPT).map(|line| format!("afterwards: {line}")));
            }
            break;
        };
        let trace = protocol.step(&state, action, true).trace.unwrap_or_default();
        if action == Action::Tick {
            now += 1;
            continue;
        }
        lines.extend(trace.into_iter().map(|line| format!("tick {now}: {line}")));
    }
    lines
}

/// Lists the hosts that deliver in the last state.
fn at_work(protocol: &Protocol, state: &State) -> Vec<String> {
    let mut lines = vec![];
    for partition in 0..protocol.bounds.partitions {
        for host in (0..protocol.bounds.hosts).filter(|host| protocol.delivers(state, *host, partition)) {
            let epoch = state.hosts[host].slots[partition].map_or(0, |slot| slot.epoch);
            lines.push(format!("{} is delivering p{partition} in e{epoch}", NAMES[host]));
        }
    }
    lines
}
