//! Tests that a view of the store is converted to the fleet that balancing takes as input.

use super::*;

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

fn entry(
    number: usize,
    state: HostState,
    max_partitions: Option<u32>,
    wants: Vec<HandoverRequest>,
) -> HostEntry {
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
    let want = HandoverRequest { partition: PartitionId(0), owner: host(0), epoch: Epoch::FIRST };
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
