//! Checks lease theft: only an unresponsive owner's lease may be stolen, and the owner's answers count.

use std::time::Duration;

use ephor::HostId;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::Reply;
use ephor_core::time::{Monotonic, Timestamp};

use super::{Docket, Judge, Promise};

/// The default time limit of a handover, less what clocks may run fast.
const A_HANDOVER: Duration = Duration::from_secs(29);
/// A healthy host has read the store within this time.
const LONG_ENOUGH_TO_BE_SEEN: Duration = Duration::from_secs(12);
/// For this long after the store's clock was set, the ages that it reports are wrong.
const CLOCK_FORGOTTEN: Duration = Duration::from_secs(120);
/// The most that a clock gains while an owner drains: two percent of the longest stop.
const RUNS_FAST: Duration = Duration::from_secs(3);

impl Judge {
    /// Returns a violation if a lease is stolen as unresponsive while its owner and the taker are healthy.
    ///
    /// Exempt: an owner or a taker that is not healthy (`Judge::is_well`, 60 s), that has stopped, or whose process is
    /// gone: what it abandoned, or what a restored copy gives back to it, nobody answers for.
    pub(super) fn robbed_in_good_health(
        &self,
        docket: &Docket,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        // A healthy owner that is asked has answered and handed over within that time.
        let well = |host: &Option<HostId>| {
            let seat = host.as_ref().and_then(|host| docket.seats.get(host));
            seat.is_some_and(|seat| {
                !seat.dead && seat.stopped.is_none() && self.is_well(docket, seat.machine)
            })
        };
        (well(&change.from) && well(&change.to)).then(|| {
            let stops = self.while_stopping(docket, change);
            let what = format!("taken as silent from an owner to whom nothing had happened{stops}");
            (Promise::OneOwner, what)
        })
    }

    /// Returns a violation if a thief has not asked, has not waited long enough, or has an answer that
    /// forbids the theft.
    ///
    /// Exempt:
    /// - a taker that is not healthy (`Judge::is_well`, 60 s): it may not have seen the answer;
    /// - the first 120 s after the store's clock was set, because ages are wrong then;
    /// - an answer of an owner that has stopped since, because it has left;
    /// - an answer that is younger than 12 s, or whose owner has not reached the store all the time since,
    ///   because the taker may not have seen it.
    pub(super) fn robbed_against_its_word(
        &self,
        docket: &Docket,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        let (now, partition) = (self.handle.now(), change.partition);
        let (owner, taker) = (change.from.as_ref()?, change.to.as_ref()?);
        let (from, to) = (docket.seats.get(owner)?, docket.seats.get(taker)?);
        if !self.is_well(docket, to.machine)
            || docket.store_set_at.is_some_and(|at| now.since(at) < CLOCK_FORGOTTEN)
        {
            return None;
        }
        let asked = to.wants.iter().find(|(want, _)| want.partition == partition && want.owner == *owner);
        let waited = asked.map(|(_, since)| now.since(*since));
        if waited.is_none_or(|waited| waited < A_HANDOVER) {
            let what = format!("taken as silent {waited:?} after it was asked for");
            return Some((Promise::OneOwner, what));
        }
        if from.stopped.is_some() {
            // A stopped host has left: its answers count no more.
            return None;
        }
        let of_it = || from.answers.iter().filter(|(it, _)| it.partition == partition);
        let drains = || of_it().find(|(it, _)| matches!(it.reply, Reply::DrainingUntil(_)));
        // An owner that drains for another host drains for the taker, too.
        let answer = of_it().find(|(it, _)| it.asker == *taker).or_else(drains);
        let (answer, since) = answer.filter(|(_, since)| {
            let seen = now.since(*since) > LONG_ENOUGH_TO_BE_SEEN;
            seen && docket.reached_the_store(from.machine, *since)
        })?;
        let forbids = match answer.reply {
            Reply::No => true,
            Reply::DrainingUntil(until) => {
                now.since(*since) < A_HANDOVER || self.is_still_draining(docket, change, until, *since)
            }
        };
        forbids.then(|| {
            let said = match answer.reply {
                Reply::No => "No".to_owned(),
                Reply::DrainingUntil(until) => {
                    let left = until.since(self.store_time());
                    format!("that it drains, {:?} ago and for {left:?} more", now.since(*since))
                }
            };
            let what = format!("taken as silent, and its owner had answered {said}");
            (Promise::OneOwner, what)
        })
    }

    /// True if a living owner has announced that it drains until then, and the taker could know that this
    /// time is not over.
    ///
    /// Exempt: an announcement that is younger than 12 s, a taker whose time did not pass normally since the
    /// answer (`Docket::in_time`), a store whose clock was set since, and the last 3 s before the announced
    /// end.
    fn is_still_draining(
        &self,
        docket: &Docket,
        change: &OwnershipChange,
        until: Timestamp,
        since: Monotonic,
    ) -> bool {
        let seat = |host: &Option<HostId>| host.as_ref().and_then(|host| docket.seats.get(host));
        let (Some(from), Some(to)) = (seat(&change.from), seat(&change.to)) else { return false };
        let told = from.draining.get(&change.partition).map(|draining| draining.told_at);
        let seen = told.is_some_and(|told| self.handle.now().since(told) > LONG_ENOUGH_TO_BE_SEEN);
        let in_time = docket.in_time(to.machine, since) && docket.store_set_at.is_none_or(|at| at < since);
        !from.dead && seen && in_time && until.since(self.store_time()) > RUNS_FAST
    }
}
