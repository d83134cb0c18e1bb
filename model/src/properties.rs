//! The properties that the model checker checks: invariants of every state, and events that must be
//! reachable.

use stateright::Property;

use crate::bounds::{MARGIN, USABLE};
use crate::protocol::Protocol;
use crate::recovery;
use crate::state::{State, Violation};

/// Lists all properties.
pub fn all(recovers: bool) -> Vec<Property<Protocol>> {
    let mut all = vec![
        Property::always("an epoch is assigned once, and epochs only grow", |_, state: &State| {
            state.violation != Some(Violation::EpochTwice)
        }),
        Property::always("no save under an older epoch than the newest", |_, state: &State| {
            state.violation != Some(Violation::OldSave)
        }),
        Property::always("a checkpoint does not move back without a seek", |_, state: &State| {
            state.violation != Some(Violation::MovedBack)
        }),
        Property::always("a save does not undo a seek", |_, state: &State| {
            state.violation != Some(Violation::SeekUndone)
        }),
        Property::always("a partition given away as saved is saved", |_, state: &State| {
            state.violation != Some(Violation::Unsaved)
        }),
        Property::always("an epoch starts right after the checkpoint", |_, state: &State| {
            state.violation != Some(Violation::WrongStart)
        }),
        Property::always("a host serves an epoch once", |_, state: &State| {
            state.violation != Some(Violation::ServedTwice)
        }),
        Property::always("no host delivers later than a margin before the end of its lease", in_time),
        Property::always("no two hosts deliver a partition at the same time", alone),
        Property::sometimes("two hosts believe that they own a partition", two_believe),
        Property::sometimes("a new owner waits until the previous one has stopped", |_, state: &State| {
            slots(state).any(|(_, _, slot)| slot.takeover_delay > 0)
        }),
        Property::sometimes(
            "a request of an owner that lost its partition is in flight",
            |_, state: &State| request_of_a_former_owner(state),
        ),
    ];
    if recovers {
        all.push(Property::always("every state recovers", recovery::recovers_from));
        all.push(Property::sometimes(
            "all partitions are owned, balanced, finished and saved",
            |protocol, state: &State| recovery::is_recovered(protocol, state),
        ));
    }
    all
}

fn slots(state: &State) -> impl Iterator<Item = (usize, usize, crate::state::Slot)> {
    state.hosts.into_iter().enumerate().flat_map(|(host, record)| {
        let slots = record.slots.into_iter().enumerate();
        slots.filter_map(move |(partition, slot)| Some((host, partition, slot?)))
    })
}

/// By the store's records, not by the host's: a host that delivers owns the lease and renewed it in time, or the lease was
/// taken away and the new owner waits.
fn in_time(protocol: &Protocol, state: &State) -> bool {
    slots(state).all(|(host, partition, slot)| {
        let Some(lease) = state.partitions[partition].lease else { return false };
        let owns = lease.owner.map(usize::from) == Some(host) && lease.epoch == slot.epoch;
        let in_time = if owns { lease.age < USABLE } else { lease.takeover_delay > MARGIN };
        in_time || !protocol.delivers(state, host, partition)
    })
}

fn alone(protocol: &Protocol, state: &State) -> bool {
    (0..protocol.bounds.partitions).all(|partition| {
        let hosts = 0..protocol.bounds.hosts;
        hosts.filter(|host| protocol.delivers(state, *host, partition)).count() <= 1
    })
}

fn two_believe(protocol: &Protocol, state: &State) -> bool {
    (0..protocol.bounds.partitions).any(|partition| {
        let believers = state.hosts.iter().filter_map(|host| host.slots[partition]);
        believers.filter(|slot| slot.left > 0).count() > 1
    })
}

fn request_of_a_former_owner(state: &State) -> bool {
    state.in_flight().any(|message| match message.call {
        crate::state::Call::Save { partition, epoch, .. } => {
            let lease = state.partitions[usize::from(partition)].lease;
            lease.is_some_and(|lease| lease.epoch > epoch)
        }
        _ => false,
    })
}
