//! Tests that balancing is even, needs the fewest moves, and is stable, when all hosts share one view.

mod fleets_of_views;
mod requests_and_ties;

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::epoch::Epoch;
use crate::host_record::{HandoverRequest, HostRecord, HostState, HostStatistics};
use crate::ids::Incarnation;
use crate::lease::{Lease, LeaseVersion};
use crate::store::HostEntry;
use crate::time::Timestamp;

fn host(number: usize) -> HostId {
    HostId { name: format!("host-{number}").parse().unwrap(), incarnation: Incarnation(number as u64) }
}

fn member(number: usize) -> Member {
    Member { id: host(number), takes_part: true, max: None }
}

/// A fleet whose members and owners are given by number.
fn fleet(members: Vec<Member>, holders: &[Option<usize>]) -> Fleet {
    let slots = holders
        .iter()
        .enumerate()
        .map(|(i, &holder)| PartitionSlot {
            partition: PartitionId(i as u32),
            holder,
            preferred_owner: None,
            overdue: false,
        })
        .collect();
    Fleet { members, slots, wants: vec![] }
}

/// Carries out the whole plan at once, as a fleet does over a few scans. Returns the number of
/// moves.
fn carry_out(fleet: &mut Fleet) -> usize {
    let plan = plan(fleet);
    for (partition, to) in &plan.claims {
        fleet.slots[partition.0 as usize].holder = Some(*to);
    }
    for step in &plan.moves {
        let slot = &mut fleet.slots[step.partition.0 as usize];
        assert_eq!(slot.holder, Some(step.from));
        assert_ne!(step.from, step.to);
        slot.holder = Some(step.to);
    }
    plan.moves.len()
}

/// Settles a fleet, and checks that it is even and stable. Returns the number of moves.
fn settle(fleet: &mut Fleet) -> usize {
    let moves = carry_out(fleet);
    let plan = plan(fleet);
    assert!(plan.is_done(), "one round balances a shared view: {plan:?}");
    let (held, hosts) = (fleet.held(), fleet.members.len());
    let (least, most) = (fleet.slots.len() / hosts, fleet.slots.len().div_ceil(hosts));
    assert!(held.iter().all(|&n| (least..=most).contains(&(n as usize))), "{held:?}");
    moves
}

/// Removes a member: its partitions become free, and later members move up by one index.
fn leave(fleet: &mut Fleet, gone: usize) {
    fleet.members.remove(gone);
    for slot in &mut fleet.slots {
        slot.holder = match slot.holder {
            Some(h) if h == gone => None,
            Some(h) if h > gone => Some(h - 1),
            other => other,
        };
    }
}

/// The fewest moves that make these holdings even: everything above a share has to move, and as
/// many hosts as possible keep the larger share.
fn fewest_moves(held: &[u32], partitions: usize) -> usize {
    let (least, extra) = ((partitions / held.len()) as u32, partitions % held.len());
    let mut sorted = held.to_vec();
    sorted.sort_unstable_by(|a, b| b.cmp(a));
    let above = |(i, &n): (usize, &u32)| n.saturating_sub(least + u32::from(i < extra)) as usize;
    sorted.iter().enumerate().map(above).sum()
}

#[test]
fn joins_leaves_and_crashes_end_even_with_the_fewest_moves() {
    for partitions in 1..=64 {
        for hosts in 1..=16 {
            let mut fleet = fleet((0..hosts).map(member).collect(), &vec![None; partitions]);
            assert_eq!(settle(&mut fleet), 0, "a first start moves nothing");
            for step in 0..6 {
                // Three join, one leaves, one joins, two crash at once.
                match step {
                    0 | 1 | 2 | 4 => fleet.members.push(member(100 + step)),
                    3 => leave(&mut fleet, 0),
                    _ => {
                        leave(&mut fleet, 0);
                        if fleet.members.len() > 1 {
                            leave(&mut fleet, 0);
                        }
                    }
                }
                let least = fewest_moves(&fleet.held(), partitions);
                assert_eq!(settle(&mut fleet), least, "{partitions} partitions, {hosts} hosts, step {step}");
            }
        }
    }
}

#[test]
fn a_balanced_fleet_moves_nothing_for_a_thousand_intervals() {
    let mut fleet = fleet((0..7).map(member).collect(), &[None; 32]);
    settle(&mut fleet);
    let before = fleet.clone();
    assert_eq!((0..1_000).map(|_| carry_out(&mut fleet)).sum::<usize>(), 0);
    assert_eq!(fleet, before);
}

#[test]
fn hosts_beyond_the_partitions_are_standbys() {
    let mut fleet = fleet((0..5).map(member).collect(), &[None; 3]);
    settle(&mut fleet);
    let mut held = fleet.held();
    held.sort_unstable();
    assert_eq!(held, [0, 0, 1, 1, 1]);
}

#[test]
fn maxima_are_respected_and_what_nobody_may_own_is_counted() {
    let mut members: Vec<Member> = (0..3).map(member).collect();
    members[0].max = Some(1);
    members[1].max = Some(2);
    let mut open = fleet(members.clone(), &[None; 9]);
    carry_out(&mut open);
    assert_eq!(open.held(), [1, 2, 6]);
    members[2].max = Some(3);
    let open = fleet(members, &[None; 9]);
    let plan = plan(&open);
    assert_eq!((plan.shares.clone(), plan.without_owner), (vec![1, 2, 3], 3));
    assert_eq!(plan.claims.len(), 6);
}

#[test]
fn a_lowered_maximum_moves_the_surplus_away() {
    let mut members: Vec<Member> = (0..2).map(member).collect();
    members[0].max = Some(1);
    let plan = plan(&fleet(members, &[Some(0), Some(0), Some(0), Some(1)]));
    assert_eq!(plan.moves.len(), 2);
    assert!(plan.moves.iter().all(|step| (step.from, step.to) == (0, 1)));
}

#[test]
fn who_takes_no_part_gives_everything_and_gets_nothing() {
    let mut members: Vec<Member> = (0..3).map(member).collect();
    members[1].takes_part = false;
    let fleet = fleet(members, &[Some(1), Some(1), Some(0), None]);
    let plan = plan(&fleet);
    assert_eq!(plan.shares[1], 0);
    assert_eq!(plan.moves.iter().filter(|step| step.from == 1).count(), 2);
    assert!(plan.claims.iter().all(|(_, to)| *to != 1));
    assert!(plan.claims_of(&fleet, 1).is_empty());
}

#[test]
fn nobody_to_take_part_means_that_nothing_moves() {
    let mut only = member(0);
    only.takes_part = false;
    let plan = plan(&fleet(vec![only], &[Some(0), None]));
    assert_eq!((plan.moves.len(), plan.claims.len(), plan.without_owner), (0, 0, 1));
    assert!(!plan.is_done() || plan.claims.is_empty());
}

#[test]
fn who_lost_a_partition_to_a_seek_gets_it_back() {
    for partitions in 2..20 {
        let mut fleet = fleet((0..3).map(member).collect(), &vec![None; partitions]);
        settle(&mut fleet);
        for sought in 0..partitions {
            let mut after = fleet.clone();
            after.slots[sought].preferred_owner = after.slots[sought].holder.take();
            let plan = plan(&after);
            assert_eq!(plan.claims, [(PartitionId(sought as u32), fleet.slots[sought].holder.unwrap())]);
            assert!(plan.moves.is_empty());
        }
    }
}

#[test]
fn who_lost_its_extra_partition_to_a_seek_gets_it_back_whoever_it_is() {
    for extra in 0..3 {
        let mut holders: Vec<_> = (0..3).map(Some).collect();
        holders.push(Some(extra));
        let mut fleet = fleet((0..3).map(member).collect(), &holders);
        assert!(plan(&fleet).is_done());
        fleet.slots[3].preferred_owner = fleet.slots[3].holder.take();
        assert_eq!(plan(&fleet).claims, [(PartitionId(3), extra)]);
    }
}

#[test]
fn a_successor_gets_what_was_left_to_it_as_far_as_its_share_goes() {
    // Host 2 stops: it had 6 of 12 partitions and names successors for them.
    let holders: Vec<_> = [Some(0); 3].into_iter().chain([Some(1); 3]).chain([None; 6]).collect();
    for successors in [[0, 0, 0, 1, 1, 1], [1, 0, 1, 0, 1, 0]] {
        let mut fleet = fleet((0..2).map(member).collect(), &holders);
        for (slot, successor) in fleet.slots[6..].iter_mut().zip(successors) {
            slot.preferred_owner = Some(successor);
        }
        let claims: Vec<usize> = plan(&fleet).claims.iter().map(|(_, to)| *to).collect();
        assert_eq!(claims, successors);
    }
    let mut greedy = fleet((0..2).map(member).collect(), &holders);
    for slot in &mut greedy.slots[6..] {
        slot.preferred_owner = Some(0);
    }
    let claims = plan(&greedy).claims;
    assert_eq!(claims.iter().filter(|(_, to)| *to == 0).count(), 3);
}

#[test]
fn a_plan_is_done_when_nothing_is_to_claim_and_nothing_to_move() {
    let claims_only = plan(&fleet(vec![member(0)], &[None]));
    assert!(!claims_only.is_done() && claims_only.moves.is_empty());
    let moves_only = plan(&fleet((0..2).map(member).collect(), &[Some(0), Some(0)]));
    assert!(!moves_only.is_done() && moves_only.claims.is_empty());
    assert!(plan(&fleet(vec![member(0)], &[Some(0)])).is_done());
}

#[test]
fn what_has_been_free_for_too_long_is_anybodys() {
    let mut fleet = fleet((0..2).map(member).collect(), &[None, None, None, None]);
    let plan = plan(&fleet);
    let mine = plan.claims_of(&fleet, 0);
    assert_eq!(mine.len(), 2);
    for slot in &mut fleet.slots {
        slot.overdue = true;
    }
    assert_eq!(plan.claims_of(&fleet, 0).len(), 4);
    fleet.members[0].max = Some(3);
    assert_eq!(plan.claims_of(&fleet, 0).len(), 3);
    fleet.slots[0].holder = Some(0);
    assert_eq!(plan.claims_of(&fleet, 0).len(), 2);
}

proptest! {
    #[test]
    fn any_start_settles_in_one_round_with_the_fewest_moves(
        hosts in 1usize..9,
        holders in proptest::collection::vec(proptest::option::of(0usize..8), 1..40),
        maxima in proptest::collection::vec(proptest::option::of(1u32..12), 9),
    ) {
        let members: Vec<Member> =
            (0..hosts).map(|n| Member { max: maxima[n], ..member(n) }).collect();
        let holders: Vec<_> = holders.into_iter().map(|h| h.filter(|&h| h < hosts)).collect();
        let mut fleet = fleet(members, &holders);
        let before = fleet.held();
        let expected = plan(&fleet);
        // Nobody is above its maximum, and everything that can be placed is.
        let capacity: usize =
            fleet.members.iter().map(|m| m.max.map_or(holders.len(), |max| max as usize)).sum();
        prop_assert_eq!(
            expected.shares.iter().sum::<u32>() as usize,
            holders.len().min(capacity)
        );
        for (member, share) in fleet.members.iter().zip(&expected.shares) {
            prop_assert!(member.max.is_none_or(|max| *share <= max));
        }
        // As even as the maxima allow: no host that could take more has two fewer than another.
        for (i, a) in expected.shares.iter().enumerate() {
            for b in &expected.shares {
                let full = fleet.members[i].max.is_some_and(|max| *a >= max);
                prop_assert!(full || a + 1 >= *b, "{:?}", expected.shares);
            }
        }
        let moves = carry_out(&mut fleet);
        let forced: u32 =
            before.iter().zip(&expected.shares).map(|(held, share)| held.saturating_sub(*share)).sum();
        prop_assert!(moves <= forced as usize);
        prop_assert!(plan(&fleet).moves.is_empty());
        prop_assert!(plan(&fleet).claims.is_empty());
    }
}
