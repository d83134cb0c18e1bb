//! Checks that only an unresponsive owner's lease is stolen; answers of the owner forbid it.

use std::time::Duration;

use ephor::HostId;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HandoverReply;
use ephor_core::time::{Monotonic, Timestamp};

use super::{Check, Exemption, Judge, JudgeState, Promise};

/// The default time limit of a handover, less what clocks may run fast.
const HANDOVER_TIMEOUT: Duration = Duration::from_secs(29);
/// A healthy host has read the store within this time.
const SEEN_AFTER: Duration = Duration::from_secs(12);
/// For this long after the store's clock was set, the ages that it reports are wrong.
const AGES_ARE_WRONG: Duration = Duration::from_secs(120);
/// The most that a clock gains while an owner drains: two percent of the longest stop.
const MAX_CLOCK_GAIN: Duration = Duration::from_secs(3);

impl Judge {
    /// Returns a violation if a lease is stolen as unresponsive while its owner and the taker are healthy. What a
    /// host that is gone abandoned, or what a restored copy gives back to it, nobody answers for.
    pub(super) fn stolen_from_healthy_owner(
        &self,
        state: &JudgeState,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        // A healthy owner that is asked has answered and handed over within that time.
        let (owner, taker) = (change.from.as_ref()?, change.to.as_ref()?);
        let healthy = |host: &HostId| {
            state.hosts.get(host).is_some_and(|host_facts| self.is_healthy(state, host_facts.machine))
        };
        let exempt = self.is_exempt(
            Check::StolenFromHealthy,
            [
                (Exemption::ProcessGone, !state.runs(owner) || !state.runs(taker)),
                (Exemption::Unhealthy, !healthy(owner) || !healthy(taker)),
            ],
        );
        (!exempt).then(|| {
            let stops = self.words_about_its_stop(state, change);
            let what = format!("stolen as unresponsive from a healthy owner{stops}");
            (Promise::OneOwner, what)
        })
    }

    /// Returns a violation if a taker has not asked, has not waited long enough, or has an answer that
    /// forbids the steal.
    pub(super) fn stolen_against_the_answer(
        &self,
        state: &JudgeState,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        let (now, partition) = (self.handle.now(), change.partition);
        let (owner, taker) = (change.from.as_ref()?, change.to.as_ref()?);
        let (from, to) = (state.hosts.get(owner)?, state.hosts.get(taker)?);
        let set = state.store_set_at.is_some_and(|at| now.since(at) < AGES_ARE_WRONG);
        let unhealthy = !self.is_healthy(state, to.machine);
        let exemptions = [(Exemption::Unhealthy, unhealthy), (Exemption::StoreClockSet, set)];
        if self.is_exempt(Check::StolenWithoutWaiting, exemptions) {
            return None;
        }
        let asked = to.wants.iter().find(|(want, _)| want.partition == partition && want.owner == *owner);
        let waited = asked.map(|(_, since)| now.since(*since));
        if waited.is_none_or(|waited| waited < HANDOVER_TIMEOUT) {
            let what = format!("stolen as unresponsive {waited:?} after it was asked for");
            return Some((Promise::OneOwner, what));
        }
        let of_it = || from.answers.iter().filter(|(it, _)| it.partition == partition);
        let drains = || of_it().find(|(it, _)| matches!(it.reply, HandoverReply::DrainingUntil(_)));
        // An owner that drains for another host drains for the taker, too.
        let answer = of_it().find(|(it, _)| it.asker == *taker).or_else(drains);
        let (answer, since) = answer?;
        let exempt = self.is_exempt(
            Check::StolenAgainstAnswer,
            [
                // A stopped host has left: its answers count no more.
                (Exemption::ProcessGone, from.stopped.is_some()),
                (Exemption::AnswerYoung, now.since(*since) <= SEEN_AFTER),
                (Exemption::StoreUnreached, !state.reached_the_store(from.machine, *since)),
            ],
        );
        if exempt {
            return None;
        }
        let forbids = match answer.reply {
            HandoverReply::No => true,
            HandoverReply::DrainingUntil(until) => {
                now.since(*since) < HANDOVER_TIMEOUT || self.is_still_draining(state, change, until, *since)
            }
        };
        forbids.then(|| {
            let said = match answer.reply {
                HandoverReply::No => "No".to_owned(),
                HandoverReply::DrainingUntil(until) => {
                    let left = until.since(self.store_time());
                    format!("that it drains, {:?} ago and for {left:?} more", now.since(*since))
                }
            };
            let what = format!("stolen as unresponsive although its owner had answered {said}");
            (Promise::OneOwner, what)
        })
    }

    /// True if a living owner has announced that it drains until then, and the taker could know that this
    /// time is not over: not in its last 3 s.
    fn is_still_draining(
        &self,
        state: &JudgeState,
        change: &OwnershipChange,
        until: Timestamp,
        since: Monotonic,
    ) -> bool {
        let host_facts = |host: &Option<HostId>| host.as_ref().and_then(|host| state.hosts.get(host));
        let (Some(from), Some(to)) = (host_facts(&change.from), host_facts(&change.to)) else { return false };
        let told_at = from.draining.get(&change.partition).map(|draining| draining.told_at);
        let seen = told_at.is_some_and(|told_at| self.handle.now().since(told_at) > SEEN_AFTER);
        let exempt = self.is_exempt(
            Check::StolenFromDraining,
            [
                (Exemption::ProcessGone, from.dead),
                (Exemption::AnswerYoung, !seen),
                (Exemption::TimeFault, !state.time_passed_normally(to.machine, since)),
                (Exemption::StoreClockSet, state.store_set_at.is_some_and(|at| at >= since)),
            ],
        );
        !exempt && until.since(self.store_time()) > MAX_CLOCK_GAIN
    }
}
