//! The actions that hosts, store and network can take in a state of the model.

use crate::bounds::{Bounds, USABLE};
use crate::protocol::Protocol;
use crate::state::{MAX_MESSAGES, State};

/// One action.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A tick passes.
    Tick,
    /// A host scans the store and acts on one of its possible views (`host_view`).
    Look(usize, usize),
    /// A host renews what it serves.
    Renew(usize),
    /// A host delivers the next event of a partition and finishes it.
    Deliver(usize, usize),
    /// A host saves a checkpoint of the finished events.
    Save(usize, usize),
    /// A host closes a partition that it hands over or releases.
    Handoff(usize, usize),
    /// A processor fails: its host releases the partition.
    Fail(usize, usize),
    /// A pump finds that its deadline is over.
    Notice(usize, usize),
    /// A host begins to stop.
    Stop(usize),
    /// An operator seeks a partition back to its beginning.
    Seek(usize),
    /// A request arrives at the store, or an answer at its host.
    Arrive(usize),
    /// A call of a host times out. Its outcome is unknown.
    GiveUp(usize),
    /// A request or an answer is lost.
    Lose(usize),
}

/// Lists the actions that are possible in a state.
pub fn possible(protocol: &Protocol, state: &State, actions: &mut Vec<Action>) {
    for index in 0..MAX_MESSAGES {
        let Some(message) = state.messages[index] else { continue };
        actions.push(Action::Arrive(index));
        if !message.awaited {
            actions.push(Action::Lose(index));
        } else if protocol.bounds.unknowns.is_none_or(|most| state.unknowns < most) {
            let lost = message.is_answer();
            actions.push(if lost { Action::Lose(index) } else { Action::GiveUp(index) });
        }
    }
    for host in 0..protocol.bounds.hosts {
        of_host(protocol, state, host, actions);
    }
    if state.seeks < protocol.bounds.seeks && state.partitions[0].lease.is_some() {
        actions.push(Action::Seek(0));
    }
    if protocol.bounds.ticks.is_none_or(|most| state.ticks < most) {
        actions.push(Action::Tick);
    }
}

fn of_host(protocol: &Protocol, state: &State, host: usize, actions: &mut Vec<Action>) {
    let Bounds { hosts, partitions, .. } = protocol.bounds;
    if !state.awaits(host, |message| message.of_manager()) {
        let host_views = protocol.host_views(state, host);
        actions.extend((0..host_views.len()).map(|host_view| Action::Look(host, host_view)));
        let others_stay = (0..hosts).any(|other| other != host && !state.hosts[other].leaving);
        if state.stops < protocol.bounds.stops && !state.hosts[host].leaving && others_stay {
            actions.push(Action::Stop(host));
        }
    }
    // The renewer's interval is a tick: a lease that was renewed in this tick is not renewed again.
    let due = state.hosts[host].slots.iter().flatten().any(|slot| (1..USABLE).contains(&slot.left));
    if due && !state.awaits(host, |message| message.of_renewer()) {
        actions.push(Action::Renew(host));
    }
    for partition in 0..partitions {
        let Some(slot) = state.hosts[host].slots[partition] else { continue };
        if slot.left == 0 {
            actions.push(Action::Notice(host, partition));
        }
        if state.pump_waits(host, partition) {
            continue;
        }
        if protocol.delivers(state, host, partition) && slot.finished < protocol.bounds.events_of(partition) {
            actions.push(Action::Deliver(host, partition));
        }
        if slot.unsaved && slot.left > 0 {
            actions.push(Action::Save(host, partition));
        }
        match slot.disposition {
            Some(_) => actions.push(Action::Handoff(host, partition)),
            None if slot.left > 0 && state.failures < protocol.bounds.failures => {
                actions.push(Action::Fail(host, partition));
            }
            _ => {}
        }
    }
}
