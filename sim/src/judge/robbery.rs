//! Robbery: only silence permits it, and what the owner has said counts.

use std::time::Duration;

use ephor::HostId;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::Reply;

use super::{Docket, Judge, Promise};

/// The time that a handover may take by default, less what clocks may run fast.
const A_HANDOVER: Duration = Duration::from_secs(29);
/// Who is well has looked at the store within this time.
const LONG_ENOUGH_TO_BE_SEEN: Duration = Duration::from_secs(12);
/// A store whose clock was set lately tells wrong ages.
const CLOCK_FORGOTTEN: Duration = Duration::from_secs(120);

impl Judge {
    /// Only silence permits theft, and who is well does not stay silent.
    pub(super) fn robbed_in_good_health(
        &self,
        docket: &Docket,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        // Who is asked, and well, has answered and handed over within that time.
        let well = |host: &Option<HostId>| {
            let seat = host.as_ref().and_then(|host| docket.seats.get(host));
            seat.is_some_and(|seat| !seat.dead && self.is_well(docket, seat.machine))
        };
        (well(&change.from) && well(&change.to)).then(|| {
            let stops = self.while_stopping(docket, change);
            let what = format!("taken as silent from an owner to whom nothing had happened{stops}");
            (Promise::OneOwner, what)
        })
    }

    /// Who robs has asked, has waited, and has no answer that forbids it.
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
            // Whatever it said, it has left.
            return None;
        }
        let answer = from.answers.iter().find(|(it, _)| it.partition == partition && it.asker == *taker);
        let (answer, since) = answer.filter(|(_, since)| {
            let seen = now.since(*since) > LONG_ENOUGH_TO_BE_SEEN;
            seen && docket.reached_the_store(from.machine, *since)
        })?;
        let forbids = answer.reply == Reply::No || now.since(*since) < A_HANDOVER;
        forbids.then(|| {
            let what = format!("taken as silent, and its owner had answered {:?}", answer.reply);
            (Promise::OneOwner, what)
        })
    }
}
