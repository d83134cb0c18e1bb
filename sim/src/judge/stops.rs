//! Checks graceful shutdown: calls in flight get the promised time and end with it, no new call begins long
//! after the order, and the stop returns. Steals of the host's leases meanwhile are checked in `steals.rs`.

use std::time::Duration;

use ephor::HostId;
use ephor_core::history::OwnershipChange;
use ephor_core::time::Monotonic;

use super::state::HostFacts;
use super::{Caller, Check, Exemption, Judge, JudgeState, Promise, Span};
use crate::executor::Machine;

/// After a stop, no call begins later than this, unless the host offers its partitions first.
const LAST_CALL: Duration = Duration::from_secs(3);
/// A call in flight ends at most this long after the time that the stop left it: a host that is in a scan
/// tells its pumps up to 1 s late.
const LAST_STEP: Duration = Duration::from_secs(2);
/// At most this many store calls in a row fail before a stopping host ends its offer.
const MAX_OFFER_CALLS: u32 = 2;
/// A request sent while the store was bad is answered within this time after it is good again. Its caller may
/// have given up by then.
const MAX_ANSWER_DELAY: Duration = Duration::from_secs(6);
/// The precision of deadlines.
const MARGIN: Duration = Duration::from_secs(1);

/// A host that was told to stop.
#[derive(Clone, Debug)]
pub(super) struct Stopping {
    /// The virtual time at which it was told.
    pub(super) told_at: Monotonic,
    /// The same time by its own clock.
    own_time: Monotonic,
    /// The time for calls in flight, from then on. Another stop may shorten it.
    within: Duration,
    /// The time at which it was last told, by its own clock.
    last_told: Monotonic,
}

impl Judge {
    /// Notes that a host is told to stop, and to leave calls in flight this much time.
    pub fn told_to_stop(&self, host: &HostId, within: Duration) {
        let now = self.handle.now();
        let mut state = self.state();
        let Some(host_facts) = state.hosts.get_mut(host) else { return };
        let own = self.own_time(host_facts.machine);
        let first = Stopping { told_at: now, own_time: own, within, last_told: own };
        let stopping = host_facts.stopping.get_or_insert(first);
        stopping.within = stopping.within.min(own.since(stopping.own_time) + within);
        stopping.last_told = own;
        self.history.append(format_args!("{host} is told to stop within {within:?}"));
    }

    /// The time since a host was told to stop, and the time that it has. `None` if it is not stopping, or
    /// that time is over.
    pub(super) fn stops_in_time(&self, host_facts: &HostFacts) -> Option<(Duration, Duration)> {
        let stopping =
            host_facts.stopping.as_ref().filter(|_| !host_facts.dead && host_facts.stopped.is_none())?;
        let age = self.own_time(host_facts.machine).since(stopping.own_time);
        (age < stopping.within).then_some((age, stopping.within))
    }

    /// Returns a violation if a call begins long after its host was told to stop.
    pub(super) fn begins_after_a_stop(
        &self,
        state: &JudgeState,
        caller: &Caller,
    ) -> Option<(Promise, String)> {
        let host_facts = state.hosts.get(&caller.host)?;
        let Stopping { told_at, own_time, within, .. } = host_facts.stopping.as_ref()?;
        let age = self.own_time(caller.machine).since(*own_time);
        let latest =
            if self.wakes { LAST_CALL } else { self.latest_offer(state, host_facts, *told_at, *within) };
        let time_fault = !state.time_passed_normally(caller.machine, *told_at);
        let exempt = self.is_exempt(Check::CallAfterOrderToStop, [(Exemption::TimeFault, time_fault)]);
        (age > latest && !exempt).then(|| {
            let what = format!("a call began {age:?} after its host was told to stop");
            (Promise::StopMeansStopped, what)
        })
    }

    /// Returns a violation if a call goes on although the time that a stop left it has been over for 2 s.
    pub(super) fn runs_beyond_its_stop(
        &self,
        state: &JudgeState,
        caller: &Caller,
    ) -> Option<(Promise, String)> {
        let Stopping { told_at, own_time, within, last_told } =
            state.hosts.get(&caller.host)?.stopping.as_ref()?;
        let call = state.partitions.get(&caller.partition)?.call?;
        let same = (call.machine, call.epoch) == (caller.machine, caller.epoch);
        let over = self.own_time(caller.machine).since((*own_time + *within).max(*last_told));
        let time_fault = !state.time_passed_normally(caller.machine, *told_at);
        let exempt = self.is_exempt(Check::CallBeyondStop, [(Exemption::TimeFault, time_fault)]);
        (same && over > LAST_STEP && !exempt).then(|| {
            let what = format!("a call goes on {over:?} after the time that its host's stop left it");
            (Promise::StopMeansStopped, what)
        })
    }

    /// The latest time for a call after a stop if the store sends no notifications: one slow and two fast scans
    /// and 3 s, so that other hosts can ask for the partitions, or half of the stop's time and 3 s, if that is
    /// sooner. If the store is bad, two store timeouts and 3 s after it became bad, or after the stop if it was
    /// bad before, if that is sooner.
    fn latest_offer(
        &self,
        state: &JudgeState,
        host_facts: &HostFacts,
        told_at: Monotonic,
        within: Duration,
    ) -> Duration {
        let manager = host_facts.config.manager_options();
        let longest = (within / 2).min(manager.slow_scan + manager.fast_scan * 2) + LAST_CALL;
        let machine_facts = state.machines.get(&host_facts.machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = state.common;
        if !machine_facts.store_is_bad && !bad_for_all {
            return longest;
        }
        let since = if machine_facts.store_is_bad { machine_facts.store_changed_at } else { changed_at };
        let failing_calls = manager.store_timeout * MAX_OFFER_CALLS;
        longest.min(since.since(told_at) + failing_calls + LAST_CALL)
    }

    /// Returns a violation if a stop gives a call in flight less time than it promised. A handover that was
    /// agreed before and ends sooner sets the deadline; it is unknown if the store's clock was set right before
    /// that agreement.
    pub(super) fn cut_short_by_a_stop(
        &self,
        state: &JudgeState,
        caller: &Caller,
        span: Option<Span>,
    ) -> Option<String> {
        let host_facts = state.hosts.get(&caller.host)?;
        let Stopping { own_time, within, .. } = host_facts.stopping.as_ref()?;
        let facts = state.partitions.get(&caller.partition)?;
        let call = facts.call.filter(|call| (call.machine, call.epoch) == (caller.machine, caller.epoch))?;
        let own = self.own_time(caller.machine);
        let stop = *own_time + *within;
        // A handover that was agreed before the stop sets the deadline, if it ends sooner.
        let draining = state.draining(&caller.host, caller.partition, caller.epoch);
        let until = draining.map_or(Some(stop), |draining| draining.call_until.map(|it| it.min(stop)));
        let age = own.since(call.own_time);
        let limit = host_facts.config.process_timeout.is_some_and(|limit| age >= limit);
        let ours = facts.epoch == caller.epoch && facts.owner.as_ref() == Some(&caller.host);
        let lease = host_facts.config.manager_options();
        let usable = lease.lease_duration - lease.fence_margin;
        let grant = facts.grant(caller.epoch, caller.machine)?;
        let received = state.received_answer(caller.machine, grant.at, MARGIN, MAX_ANSWER_DELAY);
        let earlier = span.is_some_and(|span| span.log_generation != state.log_generation());
        let exempt = self.is_exempt(
            Check::CallCutShort,
            [
                (Exemption::StoreClockSet, until.is_none()),
                (Exemption::OtherDeadline, limit),
                (Exemption::PartitionLost, !ours),
                (Exemption::LeaseOver, own.since(grant.own_time) + MARGIN >= usable),
                (Exemption::ClockStopped, state.clock_stopped_since(caller.machine, grant.at)),
                (Exemption::AnswerMissed, !received),
                (Exemption::EarlierLog, earlier),
                (Exemption::StoreRestoredRecently, state.restored_recently(self.handle.now())),
                (Exemption::TimeFault, !state.time_passed_normally(caller.machine, call.begun)),
            ],
        );
        let left = until?.since(own);
        (left > MARGIN && !exempt).then(|| {
            format!("the host cancelled a call in flight after {age:?}, but its stop left it {left:?} more")
        })
    }

    /// Reports that a host that runs, or that has stopped without anybody who waited for it, has no report.
    pub fn stop_was_refused(&self, host: &HostId, error: &str) {
        let what = format!("{host} was told to stop, but it answered: {error}");
        self.report_violation(Promise::StopMeansStopped, None, what);
    }

    /// Reports a stop that has not returned although all faults ended long ago.
    pub fn stop_never_returned(&self, machine: Machine) {
        let what = format!("{} was told to stop, and the stop never returned", self.handle.name_of(machine));
        self.report_violation(Promise::StopMeansStopped, None, what);
    }

    /// The part of a violation's text about a host whose lease is stolen while it stops.
    pub(super) fn words_about_its_stop(&self, state: &JudgeState, change: &OwnershipChange) -> String {
        let host_facts = change.from.as_ref().and_then(|from| state.hosts.get(from));
        let stops = host_facts.and_then(|host_facts| self.stops_in_time(host_facts));
        stops.map_or(String::new(), |(age, within)| {
            format!(", which was told to stop within {within:?}, {age:?} ago")
        })
    }
}
