//! Tests of the balance on a shared view: it is even, takes the fewest moves, and is stable.

use std::time::Duration;

use proptest::prelude::*;

use super::*;
use crate::epoch::Epoch;
use crate::host_record::{HostRecord, HostState, HostStatistics, Want};
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
    assert!(plan.settled(), "one round settles a shared view: {plan:?}");
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
fn a_settled_fleet_moves_nothing_for_a_thousand_intervals() {
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
    assert_eq!((plan.shares.clone(), plan.unplaced), (vec![1, 2, 3], 3));
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
    assert_eq!((plan.moves.len(), plan.claims.len(), plan.unplaced), (0, 0, 1));
    assert!(!plan.settled() || plan.claims.is_empty());
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
        assert!(plan(&fleet).settled());
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
fn a_plan_is_settled_when_nothing_is_to_claim_and_nothing_to_move() {
    let claims_only = plan(&fleet(vec![member(0)], &[None]));
    assert!(!claims_only.settled() && claims_only.moves.is_empty());
    let moves_only = plan(&fleet((0..2).map(member).collect(), &[Some(0), Some(0)]));
    assert!(!moves_only.settled() && moves_only.claims.is_empty());
    assert!(plan(&fleet(vec![member(0)], &[Some(0)])).settled());
}

#[test]
fn requests_that_stand_are_kept() {
    let start = fleet((0..2).map(member).collect(), &[Some(0), Some(0), Some(0), Some(0)]);
    for asked in 0..4 {
        let mut fleet = start.clone();
        fleet.wants = vec![(PartitionId(asked), 1)];
        let plan = plan(&fleet);
        assert!(plan.grants(PartitionId(asked), 0, 1));
        assert!(!plan.grants(PartitionId(asked), 1, 0));
        assert_eq!(plan.moves.len(), 2);
        assert_eq!(plan.asks_of(1).count(), 2);
        assert_eq!(plan.asks_of(0).count(), 0);
    }
}

#[test]
fn requests_that_no_longer_fit_are_not_granted() {
    let mut even = fleet((0..2).map(member).collect(), &[Some(0), Some(0), Some(1), Some(1)]);
    even.wants = vec![(PartitionId(0), 1), (PartitionId(2), 1), (PartitionId(9), 1)];
    assert!(plan(&even).settled());
    // Two want the same partition, and one wants more than its share.
    let mut start = fleet((0..3).map(member).collect(), &[Some(0); 6]);
    start.wants = (0..6).map(|p| (PartitionId(p), 1)).chain([(PartitionId(0), 2)]).collect();
    start.wants.sort_unstable();
    let plan = plan(&start);
    assert_eq!(plan.moves.len(), 4);
    assert_eq!(plan.asks_of(1).count(), 2);
    assert_eq!(plan.asks_of(2).count(), 2);
}

#[test]
fn nobody_gives_who_has_nothing_above_its_share() {
    // Shares are two each: host 0 gives, and host 1, which is asked, does not.
    let holders: Vec<_> = [Some(0); 4].into_iter().chain([Some(1); 2]).collect();
    let mut fleet = fleet((0..3).map(member).collect(), &holders);
    fleet.wants = vec![(PartitionId(4), 2)];
    let plan = plan(&fleet);
    assert!(!plan.grants(PartitionId(4), 1, 2));
    assert!(plan.moves.len() == 2 && plan.moves.iter().all(|step| (step.from, step.to) == (0, 2)));
}

#[test]
fn who_has_granted_a_request_has_that_much_less_to_give() {
    // Shares are three each: host 0 and host 1 have one to give, and host 2 has asked host 0.
    let holders: Vec<_> = [Some(0); 4].into_iter().chain([Some(1); 4]).chain([Some(2)]).collect();
    for asked in 0..8 {
        let mut fleet = fleet((0..3).map(member).collect(), &holders);
        fleet.wants = vec![(PartitionId(asked), 2)];
        let mut givers: Vec<usize> = plan(&fleet).moves.iter().map(|step| step.from).collect();
        givers.sort_unstable();
        assert_eq!(givers, [0, 1]);
    }
}

#[test]
fn every_version_breaks_ties_alike() {
    // Known values of SplitMix64, and of our own hash: hosts of two versions must agree.
    assert_eq!(mix(0), 0xe220_a839_7b1d_cdaf);
    assert_eq!(mix(1_234_567), 6_457_827_717_110_365_317);
    assert_eq!(tie_breaker(&host(1)), 0x3ef6666605ddfad9);
    assert_eq!(tie_breaker(&host(2)), 0xb2f39cadaad72cf);
}

#[test]
fn ties_do_not_always_fall_to_the_same_place() {
    let mut extra = [0; 3];
    for incarnation in 0..300 {
        let members: Vec<Member> = (0..3)
            .map(|n| {
                let mut member = member(n);
                member.id.incarnation = Incarnation(incarnation * 3 + n as u64);
                member
            })
            .collect();
        let shares = shares(&members, &[0, 0, 0], 4);
        extra[shares.iter().position(|&share| share == 2).unwrap()] += 1;
    }
    assert!(extra.iter().all(|&times| times > 50), "{extra:?}");
}

#[test]
fn ties_are_spread_over_the_partitions_of_the_giver() {
    // Two new hosts ask one owner, for different partitions, and not only for the lowest ones.
    let plan = plan(&fleet((0..3).map(member).collect(), &[Some(0); 12]));
    let mut asked: Vec<u32> = plan.moves.iter().map(|step| step.partition.0).collect();
    asked.sort_unstable();
    asked.dedup();
    assert_eq!(asked.len(), 8);
    assert_ne!(asked, (0..8).collect::<Vec<_>>());
}

#[test]
fn the_largest_surplus_gives_first_and_the_largest_need_takes_first() {
    let mut members: Vec<Member> = (0..4).map(member).collect();
    members[3].max = Some(1);
    // Host 0 has 6, host 1 has 5. By what they hold, the shares are 4, 3, 3 and 1 (the maximum).
    let holders: Vec<_> = [Some(0); 6].into_iter().chain([Some(1); 5]).collect();
    let plan = plan(&fleet(members, &holders));
    assert_eq!(plan.shares, [4, 3, 3, 1]);
    assert_eq!(plan.moves.iter().filter(|step| step.from == 0).count(), 2);
    assert_eq!(plan.asks_of(2).count(), 3);
    assert_eq!(plan.asks_of(3).count(), 1);
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

#[test]
fn with_equal_views_no_two_hosts_claim_the_same_partition() {
    let fleet = fleet((0..5).map(member).collect(), &[None; 17]);
    let plan = plan(&fleet);
    let mut claimed: Vec<PartitionId> = (0..5).flat_map(|me| plan.claims_of(&fleet, me)).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, (0..17).map(PartitionId).collect::<Vec<_>>());
}

fn lease(partition: u32, owner: Option<usize>, age: u64) -> Lease {
    Lease {
        partition: PartitionId(partition),
        owner: owner.map(host),
        epoch: Epoch::FIRST,
        duration: owner.map(|_| Duration::from_secs(30)),
        acquired_at: Timestamp(0),
        age: Duration::from_secs(age),
        age_known: true,
        version: LeaseVersion::revision(1),
        previous_owner: None,
        takeover_delay: Duration::ZERO,
        successor: None,
    }
}

fn entry(number: usize, state: HostState, max_partitions: Option<u32>, wants: Vec<Want>) -> HostEntry {
    let record = HostRecord {
        id: host(number),
        beat: 1,
        state,
        lease_duration: Duration::from_secs(30),
        max_partitions,
        wants,
        answers: vec![],
        statistics: HostStatistics::default(),
        software: String::new(),
        hub: None,
    };
    HostEntry { record, age: Duration::ZERO, age_known: true }
}

#[test]
fn a_view_is_read_into_a_fleet() {
    let want = Want { partition: PartitionId(0), owner: host(0), epoch: Epoch::FIRST };
    let mut sought = lease(3, None, 1);
    sought.previous_owner = Some(host(0));
    sought.takeover_delay = Duration::from_secs(1);
    let mut stale = lease(4, None, 12);
    stale.previous_owner = Some(host(0));
    let mut bequeathed = lease(6, None, 1);
    bequeathed.successor = Some(host(2));
    let view = View {
        hosts: vec![
            entry(1, HostState::Draining, None, vec![]),
            entry(2, HostState::Active, Some(4), vec![want]),
            entry(3, HostState::Active, None, vec![]),
        ],
        leases: vec![
            lease(0, Some(0), 5),
            lease(1, Some(3), 39),
            lease(2, Some(3), 40),
            sought,
            stale,
            bequeathed,
            lease(9, Some(0), 0),
        ],
        ..View::default()
    };
    // host-0 has a lease but no record; host-3 is dead.
    let liveness = Liveness {
        expired: vec![PartitionId(1), PartitionId(2)],
        alive: vec![host(0), host(1), host(2)],
        ..Liveness::default()
    };
    let partitions: Vec<_> = (0..7).map(PartitionId).collect();
    let fleet = Fleet::read(&view, &liveness, &partitions, Duration::from_secs(10), &Rules::default());
    assert_eq!(
        fleet.members,
        [member(0), Member { takes_part: false, ..member(1) }, Member { max: Some(4), ..member(2) }]
    );
    let slots: Vec<_> = fleet.slots.iter().map(|s| (s.holder, s.preferred_owner, s.overdue)).collect();
    assert_eq!(
        slots,
        [
            (Some(0), None, false),
            (None, None, false),
            (None, None, true),
            (None, Some(0), false),
            (None, None, true),
            (None, None, false),
            (None, Some(2), false),
        ]
    );
    assert_eq!(fleet.wants, [(PartitionId(0), 2)]);
    assert_eq!(fleet.member(&host(2)), Some(2));
    assert_eq!(fleet.member(&host(3)), None);
    assert_eq!(fleet.held(), [1, 0, 0]);
}

#[test]
fn only_the_mutation_counts_who_cannot_serve() {
    let states = [HostState::Unhealthy, HostState::Draining, HostState::Active];
    let hosts = states.iter().enumerate().map(|(number, state)| entry(number, *state, None, vec![]));
    let view = View { hosts: hosts.collect(), ..View::default() };
    let liveness = Liveness { alive: vec![host(0), host(1), host(2)], ..Liveness::default() };
    let counted = |rules: &Rules| {
        let fleet = Fleet::read(&view, &liveness, &[], Duration::ZERO, rules);
        fleet.members.iter().map(|member| member.takes_part).collect::<Vec<_>>()
    };
    assert_eq!(counted(&Rules::default()), [false, false, true]);
    let rules = Rules { unhealthy_hosts_do_not_count: false, ..Rules::default() };
    assert_eq!(counted(&rules), [true, false, true]);
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
