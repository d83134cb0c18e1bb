//! State reduction: drops parts of a state that no later step reads, and maps equivalent states to one.
//!
//! It makes the search finite although time is not bounded. `tests/search/state_reduction.rs` tests that it changes nothing: a
//! full state takes the same steps.

use crate::bounds::{GRACE, LEASE, OVERDUE, PATIENCE, USABLE};
use crate::host_view::permutations;
use crate::protocol::Protocol;
use crate::state::{Asked, Call, Disposition, Message, Slot, State};

/// Advances time by a tick.
pub fn tick(state: &mut State) {
    for host in &mut state.hosts {
        for slot in host.slots.iter_mut().flatten() {
            slot.left = slot.left.saturating_sub(1);
            slot.takeover_delay = slot.takeover_delay.saturating_sub(1);
        }
        for asked in host.asks.iter_mut().flatten() {
            asked.age = asked.age.saturating_add(1);
            if let Some((age, _)) = &mut asked.draining {
                *age = age.saturating_add(1);
            }
        }
        for left in host.answers.iter_mut().flatten().filter_map(|answered| answered.draining.as_mut()) {
            *left = left.saturating_sub(1);
        }
    }
    for lease in state.partitions.iter_mut().filter_map(|partition| partition.lease.as_mut()) {
        lease.age = lease.age.saturating_add(1);
        lease.takeover_delay = lease.takeover_delay.saturating_sub(1);
    }
    for message in state.messages.iter_mut().flatten() {
        if let Call::Claim { age, .. }
        | Call::Won { age, .. }
        | Call::Renew { age, .. }
        | Call::Renewed { age, .. } = &mut message.call
        {
            *age = age.saturating_add(1);
        }
    }
}

/// Drops what nothing depends on any more.
pub fn reduce(state: &mut State) {
    for partition in &mut state.partitions {
        let Some(lease) = &mut partition.lease else { continue };
        // The age of a lease matters until it has expired; of a free one, until it is overdue.
        let most = if lease.owner.is_some() { LEASE + OVERDUE } else { OVERDUE };
        lease.age = lease.age.min(most);
        if lease.takeover_delay == 0 {
            lease.previous_owner = None;
        }
    }
    let epochs = state.partitions.map(|partition| partition.lease.map_or(0, |lease| lease.epoch));
    for host in &mut state.hosts {
        for (partition, served) in host.served.iter_mut().enumerate() {
            // An older epoch is not assigned again.
            if *served < epochs[partition] {
                *served = 0;
            }
        }
        for slot in host.slots.iter_mut().flatten().filter(|slot| slot.disposition.is_some()) {
            slot.takeover_delay = 0;
        }
        for asked in host.asks.iter_mut().flatten() {
            *asked = match asked.draining {
                // The promised time matters only if it is longer than our patience.
                Some((age, promised)) => {
                    let limit = PATIENCE.max(promised).saturating_add(GRACE);
                    let promised = if promised > PATIENCE { promised } else { 0 };
                    Asked { age: 0, draining: Some((age.min(limit), promised)), ..*asked }
                }
                None => Asked { age: asked.age.min(PATIENCE), ..*asked },
            };
        }
    }
    for left in state.hosts.iter_mut().flat_map(|host| host.answers.iter_mut().flatten()) {
        left.draining = left.draining.map(|left| if left > PATIENCE { left } else { 0 });
    }
    for message in state.messages.iter().flatten().filter(|message| message.awaited) {
        if let Call::Handoff { partition, unserved: false, .. } = message.call
            && let Some(slot) = &mut state.hosts[usize::from(message.host)].slots[usize::from(partition)]
        {
            // It is closed: it saves nothing more.
            *slot = Slot { finished: 0, unsaved: false, ..*slot };
        }
    }
    for message in state.messages.iter_mut().flatten() {
        let awaited = message.awaited;
        if let Call::Claim { age, .. }
        | Call::Won { age, .. }
        | Call::Renew { age, .. }
        | Call::Renewed { age, .. } = &mut message.call
        {
            *age = if awaited { (*age).min(USABLE) } else { 0 };
        }
    }
}

/// Sorts the messages, empty places last.
pub fn sort(state: &mut State) {
    state.messages.sort_unstable_by_key(|message| (message.is_none(), *message));
}

/// Returns the representative of all states that differ only in names: the smallest.
pub fn representative(protocol: &Protocol, state: &State) -> State {
    let mut first = *state;
    for (hosts, partitions) in &protocol.renamings {
        let other = renamed(state, hosts, partitions);
        if other < first {
            first = other;
        }
    }
    first
}

/// Returns all permutations of names, without the identity.
pub fn renamings(hosts: usize, partitions: usize) -> Vec<(Vec<usize>, Vec<usize>)> {
    // Partitions are not permuted: only the first has events.
    let of_partitions: Vec<Vec<usize>> = permutations(partitions).into_iter().take(1).collect();
    permutations(hosts)
        .iter()
        .flat_map(|hosts| of_partitions.iter().map(|partitions| (hosts.clone(), partitions.clone())))
        .skip(1)
        .collect()
}

fn renamed(state: &State, hosts: &[usize], partitions: &[usize]) -> State {
    let mut new = *state;
    let host = |old: u8| crate::scan::small(hosts[usize::from(old)]);
    let disposition = |old: Disposition| match old {
        Disposition::HandOver(to) => Disposition::HandOver(host(to)),
        Disposition::Release(successor) => Disposition::Release(successor.map(host)),
    };
    for (from, to) in hosts.iter().enumerate() {
        let (old, record) = (&state.hosts[from], &mut new.hosts[*to]);
        record.leaving = old.leaving;
        for (from, to) in partitions.iter().enumerate() {
            record.slots[*to] = old.slots[from].map(|mut slot| {
                slot.disposition = slot.disposition.map(disposition);
                slot
            });
            record.asks[*to] = old.asks[from].map(|asked| Asked { owner: host(asked.owner), ..asked });
            record.answers[*to] = old.answers[from].map(|mut answered| {
                answered.asker = host(answered.asker);
                answered
            });
            record.served[*to] = old.served[from];
        }
    }
    for (from, to) in partitions.iter().enumerate() {
        new.partitions[*to] = state.partitions[from];
        if let Some(lease) = &mut new.partitions[*to].lease {
            lease.owner = lease.owner.map(host);
            lease.previous_owner = lease.previous_owner.map(host);
            lease.successor = lease.successor.map(host);
        }
    }
    for message in new.messages.iter_mut().flatten() {
        *message = renamed_message(message, &host, &disposition, partitions);
    }
    sort(&mut new);
    new
}

fn renamed_message(
    message: &Message,
    host: &impl Fn(u8) -> u8,
    disposition: &impl Fn(Disposition) -> Disposition,
    partitions: &[usize],
) -> Message {
    let mut new = *message;
    new.host = host(message.host);
    let number = |old: &mut u8| *old = crate::scan::small(partitions[usize::from(*old)]);
    match &mut new.call {
        Call::Claim { partition, .. } | Call::Won { partition, .. } | Call::Save { partition, .. } => {
            number(partition);
        }
        Call::Handoff { partition, disposition: to, .. } => {
            number(partition);
            *to = disposition(*to);
        }
        Call::Renew { epochs, .. } => {
            let old = *epochs;
            for (from, to) in partitions.iter().enumerate() {
                epochs[*to] = old[from];
            }
        }
        Call::Renewed { epochs, .. } => {
            let old = *epochs;
            for (from, to) in partitions.iter().enumerate() {
                epochs[*to] = old[from];
            }
        }
    }
    new
}
