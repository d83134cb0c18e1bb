//! Checks that healthy hosts keep their leases, also after a machine slept for less than a lease.

use std::time::Duration;

use ephor::{Epoch, HostId, PartitionId};
use ephor_core::history::OwnershipChange;
use ephor_core::time::Monotonic;

use super::{Docket, Judge, Promise};
use crate::executor::Machine;

/// A host that is awake for this long before its lease is over renews it.
const RENEWS_WITHIN: Duration = Duration::from_secs(5);
/// The precision of deadlines.
const MARGIN: Duration = Duration::from_secs(1);
/// For this long after the store's clock was set, or after it was restored, the ages that it reports are
/// wrong.
const FORGOTTEN: Duration = Duration::from_secs(120);

impl Judge {
    /// Notes that a machine falls asleep.
    pub fn falls_asleep(&self, machine: Machine) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.disturbed_until = file.disturbed_until.max(now);
        file.stood_until = file.stood_until.max(now);
    }

    /// Notes that a machine wakes up.
    pub fn wakes_up(&self, machine: Machine) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let file = docket.machines.entry(machine).or_default();
        file.disturbed_until = file.disturbed_until.max(now);
        file.stood_until = file.stood_until.max(now);
        file.woke_at = Some(now);
    }

    /// True if a call of user code runs on this machine.
    pub fn is_in_a_call(&self, machine: Machine) -> bool {
        let docket = self.docket();
        docket.cases.values().any(|case| case.call.is_some_and(|call| call.machine == machine))
    }

    /// Returns a violation if a lease is claimed as expired although its owner serves it, or closes in order
    /// to give it away, and could have renewed it.
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

    /// Returns a violation if a lease has run out although no fault but sleep affected its owner.
    ///
    /// Exempt:
    /// - an owner that is dead, stopped or paused now, or does not own the partition in this epoch any more;
    /// - an owner whose stop has used up its time: it abandons what it could not release;
    /// - an owner that another fault than sleep affected, or that did not reach the store, since the last
    ///   renewal;
    /// - the first 120 s after the store's clock was set or the store was restored, because ages are wrong
    ///   then;
    /// - an owner that woke up less than 5 s before the end of the lease, less its margin;
    /// - an owner that opened the partition less than the renewal interval and 5 s before that end.
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
        // A host abandons what it could not release when the time of its stop is over.
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
        // A host that learns late of its lease renews it with its next regular renewal.
        let opened = case.opened_at.filter(|(of, _)| *of == epoch).map_or(grant.at, |(_, at)| at);
        let could = over.since(awake_since) >= RENEWS_WITHIN
            && over.since(opened) >= lease.renew_interval + RENEWS_WITHIN;
        let age = now.since(grant.at);
        // The answer to the last renewal may have come when the lease was over.
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
    /// Exempts leases that run out, and calls that a stop cuts short, within 120 s after the store was
    /// restored from a copy.
    pub(super) fn was_restored_lately(&self, now: Monotonic) -> bool {
        self.restored_at.is_some_and(|at| now.since(at) < FORGOTTEN)
    }
}
