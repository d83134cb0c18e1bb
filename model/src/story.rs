//! A way through the states, told in words: who did what, what the store said, and when a tick passed.

use stateright::Path;

use crate::action::Action;
use crate::protocol::{NAMES, Protocol};
use crate::recovery;
use crate::state::State;

/// So many lines of an attempt that does not succeed are enough to see why.
const ATTEMPT: usize = 40;

/// Tells a way, one line for each thing that happened.
pub fn tell(protocol: &Protocol, path: Path<State, Action>) -> Vec<String> {
    let mut lines = vec![];
    let mut now = 0;
    for (state, action) in path.into_vec() {
        let Some(action) = action else {
            lines.extend(at_work(protocol, &state).into_iter().map(|line| format!("tick {now}: {line}")));
            if !recovery::comes_right(protocol, &state) {
                let attempt = recovery::attempt(protocol, &state);
                lines.extend(attempt.into_iter().take(ATTEMPT).map(|line| format!("from then on: {line}")));
            }
            break;
        };
        let words = protocol.turn(&state, action, true).words.unwrap_or_default();
        if action == Action::Tick {
            now += 1;
            continue;
        }
        lines.extend(words.into_iter().map(|line| format!("tick {now}: {line}")));
    }
    lines
}

/// Who would deliver what in the end.
fn at_work(protocol: &Protocol, state: &State) -> Vec<String> {
    let mut lines = vec![];
    for partition in 0..protocol.bounds.partitions {
        for host in (0..protocol.bounds.hosts).filter(|host| protocol.delivers(state, *host, partition)) {
            let epoch = state.hosts[host].slots[partition].map_or(0, |slot| slot.epoch);
            lines.push(format!("{} is at work on p{partition} in e{epoch}", NAMES[host]));
        }
    }
    lines
}
