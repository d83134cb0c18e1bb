//! Tests that balancing makes the same decisions as slow, plain code: its moves as a reference
//! implementation, its reading of leases as a linear search. Shares and claims have no reference here.

use std::collections::BTreeMap;

use proptest::prelude::*;

use super::*;
use crate::epoch::Epoch;
use crate::lease::{Lease, LeaseVersion};
use crate::time::Timestamp;

fn reference_moves(fleet: &Fleet) -> Vec<Move> {
    let held = fleet.held();
    let mut rank = held.clone();
    for slot in fleet.slots.iter().filter(|slot| slot.holder.is_none()) {
        if let Some(preferred_owner) = slot.preferred_owner {
            rank[preferred_owner] += 1;
        }
    }
    let shares = shares(&fleet.members, &rank, fleet.slots.len());
    let part = |of: fn(u32, u32) -> u32| shares.iter().zip(&held).map(move |(share, held)| of(*share, *held));
    let mut room: Vec<u32> = part(|share, held| share.saturating_sub(held)).collect();
    let mut surplus: Vec<u32> = part(|share, held| held.saturating_sub(share)).collect();
    claims(fleet, &mut room);

    let mut holders: BTreeMap<PartitionId, usize> =
        fleet.slots.iter().filter_map(|slot| Some((slot.partition, slot.holder?))).collect();
    let mut moves = vec![];
    for &(partition, to) in &fleet.wants {
        let Some(&from) = holders.get(&partition) else { continue };
        if from != to && surplus[from] > 0 && room[to] > 0 {
            surplus[from] -= 1;
            room[to] -= 1;
            holders.remove(&partition);
            moves.push(Move { partition, from, to });
        }
    }
    let mut givers = Queue::new(fleet, &surplus);
    let mut takers = Queue::new(fleet, &room);
    while let Some(to) = takers.take() {
        let Some(from) = givers.take() else { break };
        let offers = holders.iter().filter(|(_, holder)| **holder == from);
        let Some((&partition, _)) = offers.max_by_key(|(partition, _)| mix(u64::from(partition.0))) else {
            break;
        };
        holders.remove(&partition);
        moves.push(Move { partition, from, to });
    }
    moves.sort_unstable();
    moves
}

fn member(number: usize, takes_part: bool, max: Option<u32>) -> Member {
    let name = format!("host-{number}").parse().unwrap();
    Member { id: HostId { name, incarnation: Incarnation(number as u64) }, takes_part, max }
}

/// A few names and a few incarnations, in all combinations.
fn host(number: usize) -> HostId {
    let name = format!("host-{}", number % 3).parse().unwrap();
    HostId { name, incarnation: Incarnation(number as u64 / 3) }
}

fn lease(partition: u32, owner: Option<usize>, successor: Option<usize>) -> Lease {
    Lease {
        partition: PartitionId(partition),
        owner: owner.map(host),
        epoch: Epoch::FIRST,
        duration: None,
        acquired_at: Timestamp(0),
        age: Duration::ZERO,
        age_known: true,
        version: LeaseVersion::revision(1),
        previous_owner: None,
        takeover_delay: Duration::ZERO,
        successor: successor.map(host),
    }
}

proptest! {
    #[test]
    fn the_quick_way_reads_what_the_reference_does(
        alive in proptest::collection::btree_set(0usize..9, 0..9),
        leases in proptest::collection::btree_map(
            0u32..40,
            (proptest::option::of(0usize..9), proptest::option::of(0usize..9)),
            0..40,
        ),
        partitions in proptest::collection::btree_set(0u32..40, 0..40),
    ) {
        let mut alive: Vec<HostId> = alive.into_iter().map(host).collect();
        alive.sort();
        let leases = leases.into_iter().map(|(partition, (owner, successor))| lease(partition, owner, successor));
        let view = View { leases: leases.collect(), ..View::default() };
        let liveness = Liveness { alive: alive.clone(), ..Liveness::default() };
        let partitions: Vec<PartitionId> = partitions.into_iter().map(PartitionId).collect();
        let fleet = Fleet::read(&view, &liveness, &partitions, Duration::MAX, &Rules::default());
        prop_assert_eq!(fleet.slots.len(), partitions.len());
        for (slot, partition) in fleet.slots.iter().zip(partitions) {
            let lease = view.leases.iter().find(|lease| lease.partition == partition);
            let place = |id: &HostId| alive.iter().position(|other| other == id);
            let holder = lease.and_then(|lease| lease.owner.as_ref());
            let successor = lease.filter(|lease| lease.owner.is_none()).and_then(|lease| lease.successor.as_ref());
            prop_assert_eq!(slot.partition, partition);
            prop_assert_eq!(slot.holder, holder.and_then(place));
            prop_assert_eq!(slot.preferred_owner, successor.and_then(place));
        }
    }

    #[test]
    fn the_quick_way_moves_what_the_reference_does(
        members in proptest::collection::vec((any::<bool>(), proptest::option::of(0u32..12)), 1..9),
        slots in proptest::collection::vec(
            (1u32..3, proptest::option::of(0usize..9), proptest::option::of(0usize..9), any::<bool>()),
            0..60,
        ),
        wants in proptest::collection::vec((0u32..130, 0usize..9), 0..30),
    ) {
        let hosts = members.len();
        let members: Vec<Member> =
            members.into_iter().enumerate().map(|(n, (part, max))| member(n, part || n == 0, max)).collect();
        // Partitions in order, with gaps.
        let mut next = 0;
        let slots = slots.into_iter().map(|(gap, holder, preferred_owner, overdue)| {
            next += gap;
            let known = |member: Option<usize>| member.filter(|&member| member < hosts);
            let (holder, preferred_owner) = (known(holder), known(preferred_owner));
            PartitionSlot { partition: PartitionId(next), holder, preferred_owner, overdue }
        });
        let slots = slots.collect();
        let mut wants: Vec<_> = wants.into_iter().filter(|(_, to)| *to < hosts).map(|(p, to)| (PartitionId(p), to)).collect();
        wants.sort_unstable();
        let fleet = Fleet { members, slots, wants };
        let plan = plan(&fleet);
        prop_assert_eq!(&plan.moves, &reference_moves(&fleet));
        for step in &plan.moves {
            prop_assert!(plan.grants(step.partition, step.from, step.to));
            prop_assert!(!plan.grants(step.partition, step.to, step.from));
        }
    }
}
