//! A simulated host that only makes balancing decisions, without pumps, calls and tasks: it reads the
//! shared state and acts on it as `host/manager.rs` and `host/ownership.rs` of `crates/host` do.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor::defaults::{
    DEFAULT_HANDOVER_TIMEOUT, DEFAULT_LEASE_DURATION, DEFAULT_RENEW_INTERVAL, DEFAULT_SLOW_SCAN,
};
use ephor_core::balance::{Fleet, Plan};
use ephor_core::epoch::Epoch;
use ephor_core::expiry::LivenessTracker;
use ephor_core::handover::{self, NextStep, PendingHandoverRequest};
use ephor_core::host_record::{HandoverAnswer, HandoverReply, HostRecord, HostState, HostStatistics};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken, TransferRequest};
use ephor_core::store::View;
use ephor_core::time::Monotonic;
use fastrand::Rng;

use super::shared_state::SharedState;

pub(super) struct Host {
    pub(super) id: HostId,
    pub(super) random: Rng,
    pub(super) crashed: bool,
    pub(super) scans: u64,
    /// The time at which the last scan began.
    pub(super) last_scan: Monotonic,
    /// The number of the next scan; earlier ones that were scheduled do not count. `None` while it scans.
    pub(super) next: Option<u64>,
    pub(super) next_at: Monotonic,
    /// True if something ended while it scanned: it scans again soon.
    pub(super) scan_soon: bool,
    pub(super) busy: bool,
    pub(super) serves: BTreeMap<PartitionId, Epoch>,
    draining: BTreeSet<PartitionId>,
    asks: BTreeMap<PartitionId, PendingHandoverRequest>,
    answers: BTreeMap<PartitionId, HandoverAnswer>,
    beat: u64,
    written: Option<(Monotonic, HostRecord)>,
    pub(super) tracker: Option<LivenessTracker>,
}

/// The steps that follow from a scan.
#[derive(Default)]
pub(super) struct Steps {
    pub(super) claims: Vec<ClaimRequest>,
    pub(super) handovers: Vec<TransferRequest>,
    /// True if it began to serve partitions that were handed to it.
    pub(super) adopted: bool,
}

impl Host {
    pub(super) fn new(id: HostId, random: Rng, tracker: Option<LivenessTracker>) -> Self {
        Self {
            id,
            random,
            crashed: false,
            scans: 0,
            last_scan: Monotonic(0),
            next: None,
            next_at: Monotonic(0),
            scan_soon: false,
            busy: true,
            serves: BTreeMap::new(),
            draining: BTreeSet::new(),
            asks: BTreeMap::new(),
            answers: BTreeMap::new(),
            beat: 0,
            written: None,
            tracker,
        }
    }

    /// Writes its record if there is news in it, or if it is due.
    pub(super) fn heartbeat(&mut self, shared: &mut SharedState, now: Monotonic) {
        let record = HostRecord {
            id: self.id.clone(),
            beat: self.beat,
            state: HostState::Active,
            lease_duration: DEFAULT_LEASE_DURATION,
            max_partitions: None,
            wants: self.asks.values().map(PendingHandoverRequest::request).collect(),
            answers: self.answers.values().cloned().collect(),
            statistics: HostStatistics::default(),
            software: String::new(),
            hub: None,
        };
        let changed = self.written.as_ref().is_none_or(|(at, old)| {
            now >= *at + DEFAULT_RENEW_INTERVAL
                || (&old.wants, &old.answers) != (&record.wants, &record.answers)
        });
        if changed {
            self.beat += 1;
            let record = HostRecord { beat: self.beat, ..record };
            shared.heartbeat(&record, now);
            self.written = Some((now, record));
        }
    }

    /// Renews everything that it serves.
    pub(super) fn renew(&mut self, shared: &mut SharedState, now: Monotonic) {
        let id = &self.id;
        self.serves.retain(|partition, epoch| {
            let token = LeaseToken { partition: *partition, owner: id.clone(), epoch: *epoch };
            shared.renew(&token, DEFAULT_LEASE_DURATION, now)
        });
    }

    /// Carries out its own part of a plan.
    pub(super) fn carry_out(
        &mut self,
        shared: &SharedState,
        fleet: &Fleet,
        plan: &Plan,
        now: Monotonic,
    ) -> Steps {
        let (Some(me), Some(number)) = (fleet.member(&self.id), shared.number(&self.id)) else {
            return Steps::default();
        };
        let view = shared.view();
        let mut steps = Steps::default();
        for (partition, epoch) in shared.owned_by(number) {
            steps.adopted |= self.serves.insert(partition, epoch).is_none();
        }
        self.answer(view, fleet, plan, me, &mut steps);
        self.ask(view, fleet, plan, me, now, &mut steps);
        for partition in plan.claims_of(fleet, me) {
            let expired = view.lease(partition).is_some_and(|lease| lease.owner.is_some());
            let cause = if expired { ClaimCause::Expired } else { ClaimCause::Unowned };
            steps.claims.push(self.claim_request(view, partition, cause));
        }
        self.busy = !plan.is_done() || !self.asks.is_empty() || !self.answers.is_empty();
        steps
    }

    /// Answers hosts that ask for its partitions, and agrees to handovers.
    fn answer(&mut self, view: &View, fleet: &Fleet, plan: &Plan, me: usize, steps: &mut Steps) {
        self.answers.retain(|partition, answer| {
            view.host(&answer.asker).is_some_and(|asker| {
                asker.record.wants.iter().any(|want| want.partition == *partition && want.owner == self.id)
            })
        });
        for entry in &view.hosts {
            let asker = &entry.record.id;
            for want in entry.record.wants.iter().filter(|want| want.owner == self.id) {
                let partition = want.partition;
                let ours = self.serves.get(&partition) == Some(&want.epoch);
                if !ours || self.draining.contains(&partition) {
                    continue;
                }
                let granted = fleet.member(asker).is_some_and(|asker| plan.grants(partition, me, asker));
                let reply = if granted {
                    self.draining.insert(partition);
                    let token = LeaseToken { partition, owner: self.id.clone(), epoch: want.epoch };
                    let duration = entry.record.lease_duration;
                    let handover =
                        TransferRequest { token, to: asker.clone(), duration, checkpoint_saved: true };
                    steps.handovers.push(handover);
                    HandoverReply::DrainingUntil(view.at + DEFAULT_HANDOVER_TIMEOUT)
                } else {
                    HandoverReply::No
                };
                self.answers.insert(partition, HandoverAnswer { partition, asker: asker.clone(), reply });
            }
        }
    }

    /// Keeps, withdraws and adds requests; steals the leases of unresponsive owners.
    fn ask(&mut self, view: &View, fleet: &Fleet, plan: &Plan, me: usize, now: Monotonic, steps: &mut Steps) {
        let mut asks = std::mem::take(&mut self.asks);
        let planned: BTreeSet<PartitionId> = plan.asks_of(me).map(|step| step.partition).collect();
        asks.retain(|partition, ask| {
            let answers = view.host(&ask.owner).map_or(&[][..], |owner| &owner.record.answers);
            let (lease, patience, grace) =
                (view.lease(*partition), DEFAULT_HANDOVER_TIMEOUT, DEFAULT_SLOW_SCAN);
            match handover::next_step(ask, lease, answers, &self.id, now, view.at, patience, grace) {
                NextStep::Withdraw => false,
                NextStep::Steal => {
                    steps.claims.push(self.claim_request(view, *partition, ClaimCause::Unresponsive));
                    false
                }
                NextStep::Wait => planned.contains(partition) || ask.draining_since.is_some(),
            }
        });
        self.asks = asks;
        for step in plan.asks_of(me) {
            let Some(lease) = view.lease(step.partition) else { continue };
            if self.asks.contains_key(&step.partition) || self.serves.contains_key(&step.partition) {
                continue;
            }
            let owner = fleet.members[step.from].id.clone();
            let (partition, epoch) = (step.partition, lease.epoch);
            let ask = PendingHandoverRequest {
                partition,
                owner,
                epoch,
                asked_at: now,
                draining_since: None,
                announced_end: None,
            };
            self.asks.insert(step.partition, ask);
        }
    }

    fn claim_request(&self, view: &View, partition: PartitionId, cause: ClaimCause) -> ClaimRequest {
        ClaimRequest {
            partition,
            host: self.id.clone(),
            duration: DEFAULT_LEASE_DURATION,
            seen: view.lease(partition).map(|lease| lease.version.clone()),
            above: Epoch::NONE,
            cause,
        }
    }

    /// A claim of a partition that nobody owns.
    pub(super) fn first_claim(&self, shared: &SharedState, partition: PartitionId) -> ClaimRequest {
        self.claim_request(shared.view(), partition, ClaimCause::Unowned)
    }

    /// Notes that a handover is over.
    pub(super) fn handed_over(&mut self, partition: PartitionId) {
        self.serves.remove(&partition);
        self.draining.remove(&partition);
    }

    /// Shortens an interval by up to a quarter, so that hosts do not scan in step.
    pub(super) fn jitter(&mut self, interval: Duration) -> Duration {
        let millis = u64::try_from(interval.as_millis()).unwrap_or(u64::MAX);
        Duration::from_millis(millis - self.random.u64(0..(millis / 4).max(1)))
    }
}
