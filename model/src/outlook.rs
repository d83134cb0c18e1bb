//! What a host sees when it looks, and what the plan says of it: the real [`Watch`], [`Fleet`] and [`plan`].
//!
//! Two things are left open, so that whatever the real fleet would do is among what is tried. A heartbeat may be
//! seen fresh or old, whether its host is well or not. And where the plan has to choose among equals, it does so by
//! names: all ways of naming hosts and numbering partitions are tried, which makes hosts alike to the model and
//! lets it take states that differ in names only for the same.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use ephor_core::balance::{Fleet, plan};
use ephor_core::expiry::{Tolerance, Watch};
use ephor_core::host_record::{HostRecord, HostState, HostStatistics, Want};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::LeaseVersion;
use ephor_core::store::{HostEntry, View};

use crate::bounds::{LEASE, NOW, OVERDUE, STORE_NOW, ticks};
use crate::protocol::Protocol;
use crate::state::{EachPartition, Lease, MOST_PARTITIONS, State};
use crate::turn::Turn;

/// All that a plan depends on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Glance {
    me: usize,
    /// A bit for each host that stops.
    leaving: u8,
    /// A bit for each partition and host that asks for it.
    wants: EachPartition<u8>,
    leases: EachPartition<Option<Lease>>,
}

/// What the plan says to one host.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Outlook {
    /// A bit for each host that is alive and takes part.
    pub members: u8,
    /// What to claim.
    pub claims: EachPartition<bool>,
    /// Whom to ask for what.
    pub asks: EachPartition<Option<u8>>,
    /// A bit for each host that may have what it asks for.
    pub grants: EachPartition<u8>,
    /// Who should have what we own.
    pub heirs: EachPartition<Option<u8>>,
}

/// Which name each host bears, and which number each partition.
struct Naming {
    hosts: Vec<usize>,
    partitions: Vec<usize>,
}

/// What was worked out before.
pub type Memory = RwLock<BTreeMap<Glance, Arc<[Outlook]>>>;

impl Protocol {
    /// What a host may see when it looks: at least one thing.
    pub fn outlooks(&self, state: &State, me: usize) -> Arc<[Outlook]> {
        let glance = glance(state, me);
        let known = self.memory.read().unwrap_or_else(PoisonError::into_inner).get(&glance).cloned();
        known.unwrap_or_else(|| {
            let worked_out = self.work_out(&glance);
            let mut memory = self.memory.write().unwrap_or_else(PoisonError::into_inner);
            memory.entry(glance).or_insert(worked_out).clone()
        })
    }

    /// The first is the one in which all heartbeats are fresh and all names are as they are.
    fn work_out(&self, glance: &Glance) -> Arc<[Outlook]> {
        let mut outlooks: Vec<Outlook> = vec![];
        for stale in 0..1_u8 << self.bounds.hosts {
            if stale & bit(glance.me) != 0 {
                continue;
            }
            for naming in self.namings() {
                let outlook = self.outlook(glance, stale, &naming);
                if !outlooks.contains(&outlook) {
                    outlooks.push(outlook);
                }
            }
        }
        outlooks.into()
    }

    fn namings(&self) -> Vec<Naming> {
        let all = permutations(self.bounds.hosts).into_iter().flat_map(|hosts| {
            let partitions = permutations(self.bounds.partitions);
            partitions.into_iter().map(move |partitions| Naming { hosts: hosts.clone(), partitions })
        });
        if self.alike { all.collect() } else { all.take(1).collect() }
    }

    fn outlook(&self, glance: &Glance, stale: u8, naming: &Naming) -> Outlook {
        let hosts = self.bounds.hosts;
        let id = |host: usize| self.ids[naming.hosts[host]].clone();
        let number = |partition: usize| Turn::id(naming.partitions[partition]);
        let view = self.view(glance, stale, 0, &id, &number);
        let mut watch = Watch::new(Tolerance::default(), ticks(LEASE));
        // It has watched all along: nobody is quicker to find an owner dead.
        for ago in (1..=2 * LEASE).rev() {
            let then = NOW.before(ticks(ago));
            watch.observe(&self.view(glance, stale, ago, &id, &number), then, then);
        }
        let judgement = watch.observe(&view, NOW, NOW);
        let partitions: Vec<PartitionId> = (0..self.bounds.partitions).map(Turn::id).collect();
        let mut fleet = Fleet::read(&view, &judgement, &partitions, ticks(OVERDUE), &self.rules);
        let mut outlook = Outlook::default();
        let Some(me) = fleet.member(&id(glance.me)) else { return outlook };
        fleet.members[me].takes_part = glance.leaving & bit(glance.me) == 0;
        let plan = plan(&fleet);
        let host_of = |member: usize| (0..hosts).find(|host| id(*host) == fleet.members[member].id);
        let member_of = |host: usize| fleet.member(&id(host));
        let small = |host: usize| u8::try_from(host).unwrap_or(u8::MAX);
        for host in 0..hosts {
            if member_of(host).is_some_and(|member| fleet.members[member].takes_part) {
                outlook.members |= bit(host);
            }
        }
        let claims = plan.claims_of(&fleet, me);
        for partition in 0..self.bounds.partitions {
            let number = number(partition);
            outlook.claims[partition] = claims.contains(&number);
            let ask = plan.asks_of(me).find(|step| step.partition == number);
            outlook.asks[partition] = ask.and_then(|step| host_of(step.from)).map(small);
            let heir = plan.moves.iter().find(|step| step.partition == number && step.from == me);
            outlook.heirs[partition] = heir.and_then(|step| host_of(step.to)).map(small);
            for asker in 0..hosts {
                if member_of(asker).is_some_and(|member| plan.grants(number, me, member)) {
                    outlook.grants[partition] |= bit(asker);
                }
            }
        }
        outlook
    }

    /// What the store shows now, or showed so many ticks ago: what has not been written since was as it is,
    /// and all else was another.
    fn view(
        &self,
        glance: &Glance,
        stale: u8,
        ago: u8,
        id: &impl Fn(usize) -> HostId,
        number: &impl Fn(usize) -> PartitionId,
    ) -> View {
        let at = STORE_NOW - ticks(ago);
        let mut view = View { at, ..View::default() };
        for host in 0..self.bounds.hosts {
            let asked = (0..self.bounds.partitions).filter(|p| glance.wants[*p] & bit(host) != 0);
            let wants = asked.map(|partition| Want {
                partition: number(partition),
                owner: id(host),
                epoch: ephor_core::epoch::Epoch::NONE,
            });
            let leaving = glance.leaving & bit(host) != 0;
            let is_stale = stale & bit(host) != 0;
            let record = HostRecord {
                id: id(host),
                beat: u64::from(if is_stale { ago.saturating_sub(LEASE) } else { ago }),
                state: if leaving { HostState::Draining } else { HostState::Active },
                lease_duration: ticks(LEASE),
                max_partitions: None,
                wants: wants.collect(),
                answers: vec![],
                statistics: HostStatistics::default(),
                software: String::new(),
                hub: None,
            };
            let age = if is_stale { ticks(LEASE.saturating_sub(ago)) } else { ticks(0) };
            view.hosts.push(HostEntry { record, age, age_known: true });
        }
        view.hosts.sort_by(|a, b| a.record.id.cmp(&b.record.id));
        let mut state = State::default();
        for (partition, lease) in glance.leases.iter().enumerate() {
            state.partitions[partition].lease = *lease;
            if let Some(record) = self.lease_record(&state, partition) {
                let rename = |host: Option<u8>| host.map(|host| id(usize::from(host)));
                let lease = lease.as_ref();
                let mut seen = record.seen_at(at);
                if lease.is_some_and(|lease| lease.age < ago) {
                    seen.version = LeaseVersion::revision(u64::from(ago));
                }
                seen.partition = number(partition);
                // The planted bug, which believes that its clock, a lease ahead, is the store's.
                if !self.rules.ages_are_the_stores {
                    seen.age += ticks(LEASE);
                }
                seen.owner = rename(lease.and_then(|lease| lease.owner));
                seen.previous = rename(lease.and_then(|lease| lease.previous));
                seen.heir = rename(lease.and_then(|lease| lease.heir));
                view.leases.push(seen);
            }
        }
        view.leases.sort_by_key(|lease| lease.partition);
        view
    }
}

/// The bit of a host.
pub fn bit(host: usize) -> u8 {
    1 << host
}

fn glance(state: &State, me: usize) -> Glance {
    let mut glance = Glance { me, leaving: 0, wants: [0; MOST_PARTITIONS], leases: [None; MOST_PARTITIONS] };
    for (host, record) in state.hosts.iter().enumerate() {
        if record.leaving {
            glance.leaving |= bit(host);
        }
        for (partition, asked) in record.asks.iter().enumerate() {
            if asked.is_some() {
                glance.wants[partition] |= bit(host);
            }
        }
    }
    for (partition, kept) in state.partitions.iter().enumerate() {
        // A plan does not look at epochs.
        glance.leases[partition] = kept.lease.map(|lease| Lease { epoch: 1, ..lease });
    }
    glance
}

/// All orders of the first few numbers, the natural one first.
pub fn permutations(count: usize) -> Vec<Vec<usize>> {
    match count {
        0 => vec![vec![]],
        _ => {
            let mut all: Vec<Vec<usize>> = permutations(count - 1)
                .into_iter()
                .flat_map(|shorter| {
                    (0..count).map(move |place| {
                        let mut longer = shorter.clone();
                        longer.insert(place, count - 1);
                        longer
                    })
                })
                .collect();
            all.sort_unstable();
            all
        }
    }
}
