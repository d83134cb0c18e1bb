//! Computes the views that a host may get in a scan, and its plan for each, by the real
//! [`LivenessTracker`], [`Fleet`] and [`plan`].
//!
//! Two things are left open, so that the search covers everything a real fleet could do. A heartbeat may be seen fresh or
//! stale, whether its host is healthy or not. And since the plan breaks ties by names, all permutations of the names of
//! hosts and the numbers of partitions are tried. So hosts are symmetric, and states that differ only in names count as one.

use std::collections::BTreeMap;
use std::sync::{Arc, PoisonError, RwLock};

use ephor_core::balance::{Fleet, plan};
use ephor_core::expiry::{LivenessTracker, Tolerance};
use ephor_core::host_record::{HandoverRequest, HostRecord, HostState, HostStatistics};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::LeaseVersion;
use ephor_core::store::{HostEntry, View};

use crate::bounds::{LEASE, NOW, OVERDUE, STORE_NOW, ticks};
use crate::protocol::Protocol;
use crate::state::{EachPartition, Lease, MAX_PARTITIONS, State};
use crate::step::Step;

/// The input of a plan.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlanInput {
    me: usize,
    /// A bit for each stopping host.
    leaving: u8,
    /// A bit for each partition and host that asks for it.
    wants: EachPartition<u8>,
    leases: EachPartition<Option<Lease>>,
}

/// A view of one host: what the plan tells it to do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct HostView {
    /// A bit for each host that is alive and takes part.
    pub members: u8,
    /// The partitions to claim.
    pub claims: EachPartition<bool>,
    /// The owners to ask, by partition.
    pub asks: EachPartition<Option<u8>>,
    /// A bit for each host that may have the partition it asks for.
    pub grants: EachPartition<u8>,
    /// The hosts that should have the partitions we own.
    pub successors: EachPartition<Option<u8>>,
}

/// A permutation of the names of hosts and the numbers of partitions.
struct Naming {
    hosts: Vec<usize>,
    partitions: Vec<usize>,
}

/// The views that were computed before.
pub type PlanCache = RwLock<BTreeMap<PlanInput, Arc<[HostView]>>>;

impl Protocol {
    /// Returns the possible views of a host: at least one.
    pub fn host_views(&self, state: &State, me: usize) -> Arc<[HostView]> {
        let plan_input = plan_input(state, me);
        let known = self.plan_cache.read().unwrap_or_else(PoisonError::into_inner).get(&plan_input).cloned();
        known.unwrap_or_else(|| {
            let computed = self.compute_host_views(&plan_input);
            let mut plan_cache = self.plan_cache.write().unwrap_or_else(PoisonError::into_inner);
            plan_cache.entry(plan_input).or_insert(computed).clone()
        })
    }

    /// The first is the view with fresh heartbeats and unchanged names.
    fn compute_host_views(&self, plan_input: &PlanInput) -> Arc<[HostView]> {
        let mut host_views: Vec<HostView> = vec![];
        for stale in 0..1_u8 << self.bounds.hosts {
            if stale & bit(plan_input.me) != 0 {
                continue;
            }
            for naming in self.namings() {
                let host_view = self.host_view(plan_input, stale, &naming);
                if !host_views.contains(&host_view) {
                    host_views.push(host_view);
                }
            }
        }
        host_views.into()
    }

    fn namings(&self) -> Vec<Naming> {
        let all = permutations(self.bounds.hosts).into_iter().flat_map(|hosts| {
            let partitions = permutations(self.bounds.partitions);
            partitions.into_iter().map(move |partitions| Naming { hosts: hosts.clone(), partitions })
        });
        if self.symmetric { all.collect() } else { all.take(1).collect() }
    }

    fn host_view(&self, plan_input: &PlanInput, stale: u8, naming: &Naming) -> HostView {
        let hosts = self.bounds.hosts;
        let id = |host: usize| self.ids[naming.hosts[host]].clone();
        let number = |partition: usize| Step::id(naming.partitions[partition]);
        let view = self.view(plan_input, stale, 0, &id, &number);
        let mut tracker = LivenessTracker::new(Tolerance::default(), ticks(LEASE));
        // It has watched for two leases: no host could find an owner dead earlier.
        for ago in (1..=2 * LEASE).rev() {
            let then = NOW.before(ticks(ago));
            tracker.observe(&self.view(plan_input, stale, ago, &id, &number), then, then);
        }
        let mut liveness = tracker.observe(&view, NOW, NOW);
        // The mutation: goes by its own clock, which is a lease ahead of the store's.
        if !self.rules.ages_are_the_stores {
            liveness.expired =
                view.leases.iter().filter(|l| l.owner.is_some()).map(|l| l.partition).collect();
        }
        let partitions: Vec<PartitionId> = (0..self.bounds.partitions).map(Step::id).collect();
        let mut fleet = Fleet::read(&view, &liveness, &partitions, ticks(OVERDUE), &self.rules);
        let mut host_view = HostView::default();
        let Some(me) = fleet.member(&id(plan_input.me)) else { return host_view };
        fleet.members[me].takes_part = plan_input.leaving & bit(plan_input.me) == 0;
        let plan = plan(&fleet);
        let host_of = |member: usize| (0..hosts).find(|host| id(*host) == fleet.members[member].id);
        let member_of = |host: usize| fleet.member(&id(host));
        let small = |host: usize| u8::try_from(host).unwrap_or(u8::MAX);
        for host in 0..hosts {
            if member_of(host).is_some_and(|member| fleet.members[member].takes_part) {
                host_view.members |= bit(host);
            }
        }
        let claims = plan.claims_of(&fleet, me);
        for partition in 0..self.bounds.partitions {
            let number = number(partition);
            host_view.claims[partition] = claims.contains(&number);
            let ask = plan.asks_of(me).find(|step| step.partition == number);
            host_view.asks[partition] = ask.and_then(|step| host_of(step.from)).map(small);
            let successor = plan.moves.iter().find(|step| step.partition == number && step.from == me);
            host_view.successors[partition] = successor.and_then(|step| host_of(step.to)).map(small);
            for asker in 0..hosts {
                if member_of(asker).is_some_and(|member| plan.grants(number, me, member)) {
                    host_view.grants[partition] |= bit(asker);
                }
            }
        }
        host_view
    }

    /// Returns the view of the store `ago` ticks ago: records that were not written since are unchanged, all others had
    /// another version.
    fn view(
        &self,
        plan_input: &PlanInput,
        stale: u8,
        ago: u8,
        id: &impl Fn(usize) -> HostId,
        number: &impl Fn(usize) -> PartitionId,
    ) -> View {
        let at = STORE_NOW - ticks(ago);
        let mut view = View { at, ..View::default() };
        for host in 0..self.bounds.hosts {
            let asked = (0..self.bounds.partitions).filter(|p| plan_input.wants[*p] & bit(host) != 0);
            let wants = asked.map(|partition| HandoverRequest {
                partition: number(partition),
                owner: id(host),
                epoch: ephor_core::epoch::Epoch::NONE,
            });
            let leaving = plan_input.leaving & bit(host) != 0;
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
        for (partition, lease) in plan_input.leases.iter().enumerate() {
            state.partitions[partition].lease = *lease;
            if let Some(record) = self.lease_record(&state, partition) {
                let rename = |host: Option<u8>| host.map(|host| id(usize::from(host)));
                let lease = lease.as_ref();
                let mut seen = record.seen_at(at);
                if lease.is_some_and(|lease| lease.age < ago) {
                    seen.version = LeaseVersion::revision(u64::from(ago));
                }
                seen.partition = number(partition);
                seen.owner = rename(lease.and_then(|lease| lease.owner));
                seen.previous_owner = rename(lease.and_then(|lease| lease.previous_owner));
                seen.successor = rename(lease.and_then(|lease| lease.successor));
                view.leases.push(seen);
            }
        }
        view.leases.sort_by_key(|lease| lease.partition);
        view
    }
}

/// Returns the bit of a host.
pub fn bit(host: usize) -> u8 {
    1 << host
}

fn plan_input(state: &State, me: usize) -> PlanInput {
    let mut plan_input =
        PlanInput { me, leaving: 0, wants: [0; MAX_PARTITIONS], leases: [None; MAX_PARTITIONS] };
    for (host, record) in state.hosts.iter().enumerate() {
        if record.leaving {
            plan_input.leaving |= bit(host);
        }
        for (partition, asked) in record.asks.iter().enumerate() {
            if asked.is_some() {
                plan_input.wants[partition] |= bit(host);
            }
        }
    }
    for (partition, kept) in state.partitions.iter().enumerate() {
        // A plan does not depend on epochs.
        plan_input.leases[partition] = kept.lease.map(|lease| Lease { epoch: 1, ..lease });
    }
    plan_input
}

/// Returns all permutations of the numbers below `count`, the identity first.
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
