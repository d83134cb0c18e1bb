//! Checks the final state after all faults have ended: every partition is owned, balanced and processed to
//! the end. Also checks each stop.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ephor::{HostId, PartitionId, SequenceNumber, StopReport};
use ephor_core::time::Monotonic;

use super::partition_facts::PartitionFacts;
use super::{Check, Exemption, Judge, Promise};
use crate::executor::Machine;
use crate::scenario::SETTLE_TIME;

/// A host that leaves does not see a partition that is handed to it this shortly before its end.
const LATE_HANDOVER: Duration = Duration::from_secs(1);

/// A host that runs at the end.
#[derive(Clone, Debug)]
pub struct RunningHost {
    /// The host.
    pub host: HostId,
    /// The most partitions that it may own.
    pub max: Option<u32>,
    /// True if it should own partitions: it is neither drained nor unhealthy.
    pub takes_part: bool,
}

/// The state at the end of a run.
#[derive(Clone, Debug)]
pub struct FinalState {
    /// The newest event of each partition.
    pub ends: Vec<(PartitionId, Option<SequenceNumber>)>,
    /// The hosts that run.
    pub running: Vec<RunningHost>,
}

impl FinalState {
    /// The number of partitions that nobody may own, because every host is at its maximum.
    fn without_room(&self) -> usize {
        let takers = self.running.iter().filter(|running| running.takes_part);
        let room: Option<u32> = takers.map(|running| running.max).sum();
        room.map_or(0, |room| self.ends.len().saturating_sub(room as usize))
    }
}

impl Judge {
    /// Checks a host that has stopped: it owns nothing but what it reports as abandoned, has abandoned nothing,
    /// and its report is true. If the store hung during the stop, it may abandon partitions that it closed before
    /// the hang was over, and own those that it reports as lost. It may own what another host handed to it
    /// after the order to stop, less than 1 s before its end or while the store hung.
    pub fn stopped(&self, host: &HostId, report: &StopReport) {
        let now = self.handle.now();
        let mut violation = None;
        let kept = {
            let mut state = self.state();
            let abandoned: BTreeSet<PartitionId> = report.abandoned.iter().copied().collect();
            let Some(host_facts) = state.hosts.get_mut(host) else { return };
            let machine = host_facts.machine;
            let told_at = host_facts.stopping.as_ref().map(|stopping| stopping.told_at);
            host_facts.stopped = Some(abandoned.clone());
            let unhealthy = !self.is_healthy_but_for_hangs(&state, machine);
            let hung_until = state.hung_until(machine).filter(|until| told_at.is_none_or(|at| *until > at));
            let healthy = !unhealthy;
            let closed_in_time = |partition: &PartitionId| {
                let closed_at = state.partitions.get(partition).map_or(Monotonic(0), |facts| facts.closed_at);
                hung_until.is_none_or(|until| closed_at >= until)
            };
            let lost = |partition: &PartitionId| hung_until.is_some() && report.lost.contains(partition);
            let unknown = |facts: &PartitionFacts| {
                let granted_at = facts.last_grant(facts.epoch).map(|grant| grant.at);
                granted_at.filter(|at| told_at.is_some_and(|told_at| *at >= told_at)).is_some_and(|at| {
                    now.since(at) < LATE_HANDOVER || hung_until.is_some_and(|until| at < until)
                })
            };
            let owned = || state.partitions.iter().filter(|(_, facts)| facts.owner.as_ref() == Some(host));
            self.is_exempt(
                Check::StoppedOwnsNothing,
                [
                    (Exemption::Unhealthy, unhealthy),
                    (Exemption::StoreHung, hung_until.is_some()),
                    (Exemption::HandedOverLate, owned().any(|(_, facts)| unknown(facts))),
                ],
            );
            let kept = owned()
                .filter(|(_, facts)| !unknown(facts))
                .map(|(partition, _)| *partition)
                .find(|partition| !abandoned.contains(partition) && !lost(partition));
            if healthy && let Some(partition) = abandoned.iter().find(|partition| closed_in_time(partition)) {
                violation = Some(format!("{host} stopped and abandoned {partition:?} without a reason"));
            }
            let restored =
                self.is_exempt(Check::StopReport, [(Exemption::StoreRestored, state.in_restore_grace(now))]);
            let untrue = |list: &[PartitionId], checkpoint_saved: bool| {
                let other = Some((host.clone(), !checkpoint_saved));
                let given = |partition: &&PartitionId| {
                    state.partitions.get(*partition).is_some_and(|it| it.last_given_away == other)
                };
                list.iter().find(given).filter(|_| !restored).copied()
            };
            let wrong = untrue(&report.drained, true).or_else(|| untrue(&report.unsaved, false));
            if let Some(partition) = wrong {
                violation =
                    Some(format!("{host} stopped, but its report is wrong about {partition:?}: {report}"));
            }
            kept.filter(|_| healthy)
        };
        if let Some(what) = violation {
            self.report_violation(Promise::StopMeansStopped, None, what);
        }
        if kept.is_some() {
            let what = format!("{host} stopped and still owns the partition without reporting it");
            self.report_violation(Promise::StopMeansStopped, kept, what);
        }
    }

    /// Checks that a stop that is over now took no longer than `longest`.
    pub fn stopped_in_time(&self, machine: Machine, begun: Monotonic, longest: Duration) {
        let took = self.handle.now().since(begun);
        let time_fault = !self.state().time_passed_normally(machine, begun);
        let exempt = self.is_exempt(Check::StopInTime, [(Exemption::TimeFault, time_fault)]);
        if took > longest && !exempt {
            let what = format!("{} took {took:?} to stop", self.handle.name_of(machine));
            self.report_violation(Promise::StopMeansStopped, None, what);
        }
    }

    /// Checks the final state: every event is finished, the load is even, and every processor was closed.
    pub fn check_final_state(&self, end: &FinalState) {
        let violations = self.unfinished(end).into_iter().chain(self.uneven(end)).chain(self.left_open());
        let violations = violations.chain(self.unreported_gaps()).collect::<Vec<_>>();
        for (promise, partition, what) in violations {
            self.report_violation(promise, partition, what);
        }
    }

    /// Processors that were never closed although their epoch is over, and their host runs.
    fn left_open(&self) -> Vec<(Promise, Option<PartitionId>, String)> {
        let state = self.state();
        let mut violations = vec![];
        for (partition, facts) in &state.partitions {
            if let Some((epoch, host)) = facts.left_open().find(|(_, host)| state.runs(host)) {
                let what = format!("{host} never closed the processor that it opened in {epoch:?}");
                violations.push((Promise::StopMeansStopped, Some(*partition), what));
            }
        }
        violations
    }

    /// Events that were sent and never finished.
    fn unfinished(&self, end: &FinalState) -> Vec<(Promise, Option<PartitionId>, String)> {
        let state = self.state();
        let mut violations = vec![];
        for (partition, last) in &end.ends {
            let sent = last.map_or(0, |last| last.0 + 1);
            let facts = state.partitions.get(partition);
            let running = |owner: &HostId| end.running.iter().any(|running| running.host == *owner);
            // A late claim may have taken it for a host that has no room to serve it.
            let renewed = facts.is_some_and(|facts| {
                facts
                    .last_grant(facts.epoch)
                    .is_some_and(|grant| self.handle.now().since(grant.at) < SETTLE_TIME)
            });
            let served = renewed && facts.is_some_and(|facts| facts.owner.as_ref().is_some_and(running));
            let no_room = end.without_room() > 0 && !served;
            if self.is_exempt(Check::Finished, [(Exemption::NoRoom, no_room)]) {
                continue;
            }
            let kept = facts.map_or(0, |facts| facts.oldest_kept.0);
            let done = |event: u64| {
                let event = SequenceNumber(event);
                facts.is_some_and(|facts| facts.done.contains(&event) || facts.is_gone(event))
            };
            if let Some(missing) = (kept..sent).find(|event| !done(*event)) {
                let what = format!("event {missing} of {sent} was never finished");
                violations.push((Promise::AtLeastOnceInOrder, Some(*partition), what));
            }
        }
        violations
    }

    /// The partitions with events that should be finished and are not, each with the number of those that are.
    pub fn behind(&self, end: &FinalState) -> BTreeMap<PartitionId, usize> {
        let partitions = self.unfinished(end).into_iter().filter_map(|(_, partition, _)| partition);
        let partitions = partitions.collect::<Vec<_>>();
        let state = self.state();
        let done =
            |partition: PartitionId| state.partitions.get(&partition).map_or(0, |facts| facts.done.len());
        partitions.into_iter().map(|partition| (partition, done(partition))).collect()
    }

    /// The partition with the most events that nobody has finished yet.
    pub fn furthest_behind(&self, ends: &[(PartitionId, Option<SequenceNumber>)]) -> Option<PartitionId> {
        let state = self.state();
        let behind = |partition: &PartitionId, last: Option<SequenceNumber>| {
            let done = state.partitions.get(partition).map_or(0, |facts| facts.done.len() as u64);
            last.map_or(0, |last| last.0 + 1).saturating_sub(done)
        };
        ends.iter().max_by_key(|(partition, last)| behind(partition, *last)).map(|(partition, _)| *partition)
    }

    /// Returns a violation for each way in which the load is less even than the hosts' maxima allow.
    pub fn uneven(&self, end: &FinalState) -> Vec<(Promise, Option<PartitionId>, String)> {
        let state = self.state();
        let mut owned: BTreeMap<&HostId, u32> =
            end.running.iter().map(|running| (&running.host, 0)).collect();
        let mut violations = vec![];
        let mut unowned = vec![];
        for (partition, _) in &end.ends {
            let owner = state.partitions.get(partition).and_then(|facts| facts.owner.as_ref());
            match owner.and_then(|owner| owned.get_mut(owner)) {
                Some(count) => *count += 1,
                None => unowned.push((*partition, owner.cloned())),
            }
        }
        if unowned.len() > end.without_room() {
            let (partition, owner) = unowned.swap_remove(0);
            let what = format!("the partition is owned by {owner:?}, which does not run");
            violations.push((Promise::BalancedAndStill, Some(partition), what));
        }
        let share = |running: &&RunningHost| owned[&running.host];
        for running in &end.running {
            // A host that should own nothing may keep partitions that nobody else has room for.
            let surplus = u32::try_from(end.without_room()).unwrap_or(u32::MAX);
            let limit = if running.takes_part { running.max } else { Some(surplus) };
            if limit.is_some_and(|limit| owned[&running.host] > limit) {
                let what = format!("{} owns {}, but may own {limit:?}", running.host, owned[&running.host]);
                violations.push((Promise::BalancedAndStill, None, what));
            }
        }
        let takers: Vec<&RunningHost> = end.running.iter().filter(|running| running.takes_part).collect();
        let most = takers.iter().map(share).max().unwrap_or_default();
        // A host with room has at most one partition less than the host with the most.
        let behind = |running: &&&RunningHost| {
            running.max.is_none_or(|max| share(running) < max) && share(running) + 1 < most
        };
        if takers.iter().any(|running| behind(&running)) {
            violations.push((Promise::BalancedAndStill, None, format!("the load is not even: {owned:?}")));
        }
        violations
    }
}
