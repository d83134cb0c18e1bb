//! A machine that sleeps, and wakes before its leases are over: it keeps them. And so does whoever is well.

use std::time::Duration;

use ephor::{Epoch, HostId, PartitionId};
use ephor_core::history::OwnershipChange;
use ephor_core::time::Monotonic;

use super::{Docket, Judge, Promise};
use crate::executor::Machine;

/// Who is awake for so long before its lease is over has renewed it.
const RENEWS_WITHIN: Duration = Duration::from_secs(5);
/// Deadlines are looked at this exactly.
const MARGIN: Duration = Duration::from_secs(1);
/// A store whose clock was set, or that was restored, tells wrong ages for so long.
const FORGOTTEN: Duration = Duration::from_secs(120);

impl Judge {
    /// A machine falls asleep.
    pub fn falls_asleep(&self, machine: Machine) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.disturbed_until = file.disturbed_until.max(now);
        file.stood_until = file.stood_until.max(now);
    }

    /// A machine that slept is awake again.
    pub fn wakes_up(&self, machine: Machine) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.disturbed_until = file.disturbed_until.max(now);
        file.stood_until = file.stood_until.max(now);
        file.woke_at = Some(now);
    }

    /// Whether a machine is in a call of user code.
    pub fn is_in_a_call(&self, machine: Machine) -> bool {
        let docket = self.docket();
        docket.cases.values().any(|case| case.call.is_some_and(|call| call.machine == machine))
    }

    /// A lease is taken as expired whose owner serves it, and could have renewed it.
    pub(super) fn expired_in_good_health(
        &self,
        docket: &Docket,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        let case = docket.cases.get(&change.partition)?;
        let served = case.open.contains(&case.epoch) || case.gives_away == Some(case.epoch);
        let owner = change.from.as_ref().filter(|_| served)?;
        self.ran_out_in_good_health(docket, change.partition, owner, case.epoch)
    }

    /// The lease of an owner to whom nothing happened, but that it slept for a while, is over.
    pub(super) fn ran_out_in_good_health(
        &self,
        docket: &Docket,
        partition: PartitionId,
        owner: &HostId,
        epoch: Epoch,
    ) -> Option<(Promise, String)> {
        let now = self.handle.now();
        let seat = docket.seats.get(owner).filter(|seat| !seat.dead && seat.stopped.is_none())?;
        let case = docket.cases.get(&partition)?;
        if case.epoch != epoch || case.owner.as_ref() != Some(owner) || self.handle.is_paused(seat.machine) {
            return None;
        }
        // What cannot be given up when a stop is over is abandoned.
        if seat.stopping.is_some() && self.stops_in_time(seat).is_none() {
            return None;
        }
        let grant = case.granted.get(&epoch)?;
        let file = docket.machines.get(&seat.machine).copied().unwrap_or_default();
        let well = file.troubled_until <= grant.at && docket.reached_the_store(seat.machine, grant.at);
        let set = docket.store_set_at.is_some_and(|at| now.since(at) < FORGOTTEN);
        let lease = seat.style.manager_options();
        let over = grant.at + (lease.lease_duration - lease.fence_margin);
        let awake_since = file.woke_at.map_or(grant.at, |woke| woke.max(grant.at));
        // Who learns late of its lease renews it when it is the lease's turn.
        let opened = case.opened_at.filter(|(of, _)| *of == epoch).map_or(grant.at, |(_, at)| at);
        let could = over.since(awake_since) >= RENEWS_WITHIN
            && over.since(opened) >= lease.renew_interval + RENEWS_WITHIN;
        let age = now.since(grant.at);
        // The answer to the last renewal may have come when its time was over.
        let over = now + MARGIN >= over;
        (over && well && !set && !docket.was_restored_lately(now) && could).then(|| {
            let awake = now.since(awake_since);
            let what = format!(
                "its lease ran out {age:?} after it was granted, and its host was awake for {awake:?}"
            );
            (Promise::LoopNeverDies, what)
        })
    }
}

impl Docket {
    /// Whether the store was restored from a copy not long ago.
    pub(super) fn was_restored_lately(&self, now: Monotonic) -> bool {
        self.restored_at.is_some_and(|at| now.since(at) < FORGOTTEN)
    }
}
