//! Tests of handover requests between hosts, and of ties: every host makes the same decision.

use super::*;

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
    assert!(plan(&even).is_done());
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
fn with_equal_views_no_two_hosts_claim_the_same_partition() {
    let fleet = fleet((0..5).map(member).collect(), &[None; 17]);
    let plan = plan(&fleet);
    let mut claimed: Vec<PartitionId> = (0..5).flat_map(|me| plan.claims_of(&fleet, me)).collect();
    claimed.sort_unstable();
    assert_eq!(claimed, (0..17).map(PartitionId).collect::<Vec<_>>());
}
