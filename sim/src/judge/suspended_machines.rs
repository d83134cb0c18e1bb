//! Checks that healthy hosts keep their leases, also after their machine was suspended for less than the
//! lease duration.

use std::time::Duration;

use ephor::{Epoch, HostId, PartitionId};
use ephor_core::history::OwnershipChange;
use ephor_core::time::Monotonic;

use super::{Check, Exemption, Judge, JudgeState, Promise};
use crate::executor::Machine;

/// A host that is awake for this long before its lease is over renews it.
const RENEWS_WITHIN: Duration = Duration::from_secs(5);
/// The precision of deadlines.
const MARGIN: Duration = Duration::from_secs(1);
/// For this long after the store's clock was set, or after it was restored, the ages that it reports are
/// wrong.
const AGES_ARE_WRONG: Duration = Duration::from_secs(120);

impl Judge {
    /// Notes that a machine falls asleep.
    pub fn note_sleep(&self, machine: Machine) {
        let now = self.handle.now();
        let mut state = self.state();
        let machine_facts = state.machines.entry(machine).or_default();
        machine_facts.fault_until = machine_facts.fault_until.max(now);
        machine_facts.time_fault_until = machine_facts.time_fault_until.max(now);
    }

    /// Notes that a machine wakes up.
    pub fn note_wake_up(&self, machine: Machine) {
        let now = self.handle.now();
        let mut state = self.state();
        let machine_facts = state.machines.entry(machine).or_default();
        machine_facts.fault_until = machine_facts.fault_until.max(now);
        machine_facts.time_fault_until = machine_facts.time_fault_until.max(now);
        machine_facts.woke_at = Some(now);
    }

    /// True if a call of user code runs on this machine.
    pub fn is_in_a_call(&self, machine: Machine) -> bool {
        let state = self.state();
        state.partitions.values().any(|facts| facts.call.is_some_and(|call| call.machine == machine))
    }

    /// Returns a violation if a lease is claimed as expired although its owner serves it, or closes in order
    /// to give it away, and could have renewed it.
    pub(super) fn expired_although_healthy(
        &self,
        state: &JudgeState,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        let facts = state.partitions.get(&change.partition)?;
        let served = facts.open.contains(&facts.epoch) || facts.closing_to_give_away == Some(facts.epoch);
        let owner = change.from.as_ref().filter(|_| served)?;
        self.ran_out_although_healthy(state, change.partition, owner, facts.epoch)
    }

    /// Returns a violation if a lease has run out although no fault but sleep affected its owner, and it was
    /// awake and open early enough to renew it.
    pub(super) fn ran_out_although_healthy(
        &self,
        state: &JudgeState,
        partition: PartitionId,
        owner: &HostId,
        epoch: Epoch,
    ) -> Option<(Promise, String)> {
        let now = self.handle.now();
        let host_facts = state.hosts.get(owner)?;
        let facts = state.partitions.get(&partition)?;
        let lost = facts.epoch != epoch || facts.owner.as_ref() != Some(owner);
        // A host abandons what it could not release when the time of its stop is over.
        let stop_is_over = host_facts.stopping.is_some() && self.stops_in_time(host_facts).is_none();
        let grant = facts.grant(epoch, host_facts.machine)?;
        let machine_facts = state.machines.get(&host_facts.machine).copied().unwrap_or_default();
        let set = state.store_set_at.is_some_and(|at| now.since(at) < AGES_ARE_WRONG);
        let lease = host_facts.config.manager_options();
        let over = grant.at + (lease.lease_duration - lease.fence_margin);
        let awake_since = machine_facts.woke_at.map_or(grant.at, |woke| woke.max(grant.at));
        // A host that learns late of its lease renews it with its next regular renewal.
        let opened = facts.opened_at.filter(|(of, _)| *of == epoch).map_or(grant.at, |(_, at)| at);
        let could = over.since(awake_since) >= RENEWS_WITHIN
            && over.since(opened) >= lease.renew_interval + RENEWS_WITHIN;
        let age = now.since(grant.at);
        // The answer to the last renewal may have come when the lease was over.
        let over = now + MARGIN >= over;
        let exempt = self.is_exempt(
            Check::LeaseRunsOut,
            [
                (Exemption::ProcessGone, !state.runs(owner)),
                (Exemption::PartitionLost, lost),
                (Exemption::MachinePaused, self.handle.is_paused(host_facts.machine)),
                (Exemption::StopIsOver, stop_is_over),
                (Exemption::MachineFault, machine_facts.fault_except_sleep_until > grant.at),
                (Exemption::StoreUnreached, !state.reached_the_store(host_facts.machine, grant.at)),
                (Exemption::StoreClockSet, set),
                (Exemption::StoreRestoredRecently, state.restored_recently(now)),
                (Exemption::AwakeTooLate, !could),
            ],
        );
        (over && !exempt).then(|| {
            let awake = now.since(awake_since);
            let what = format!(
                "a lease ran out {age:?} after it was granted although its host was awake for {awake:?}"
            );
            (Promise::LoopNeverDies, what)
        })
    }
}

impl JudgeState {
    /// Exempts leases that run out, and calls that a stop cuts short, within 120 s after the store was
    /// restored from a copy.
    pub(super) fn restored_recently(&self, now: Monotonic) -> bool {
        self.restored_at.is_some_and(|at| now.since(at) < AGES_ARE_WRONG)
    }
}
