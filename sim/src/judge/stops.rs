//! Checks graceful shutdown: calls in flight get the promised time, no new call begins, and nobody takes the
//! host's partitions meanwhile.

use std::time::Duration;

use ephor::HostId;
use ephor_core::history::OwnershipChange;
use ephor_core::time::Monotonic;

use super::docket::Seat;
use super::{Caller, Docket, Judge, Promise, Span};

/// After a stop, no call begins later than this, unless the host offers its partitions first.
const LAST_CALL: Duration = Duration::from_secs(3);
/// At most this many store calls in a row fail before a stopping host ends its offer.
const OFFER_CALLS: u32 = 2;
/// A request sent while the store was bad is answered within this time after it is good again. Its caller may
/// have given up by then.
const UNHEARD: Duration = Duration::from_secs(6);
/// The precision of deadlines.
const MARGIN: Duration = Duration::from_secs(1);

/// A host that was told to stop.
#[derive(Clone, Debug)]
pub(super) struct Stopping {
    /// The virtual time at which it was told.
    told: Monotonic,
    /// The same time by its own clock.
    reading: Monotonic,
    /// The time for calls in flight.
    within: Duration,
}

impl Judge {
    /// Notes that a host is told to stop, and to leave calls in flight this much time.
    pub fn told_to_stop(&self, host: &HostId, within: Duration) {
        let now = self.handle.now();
        let mut docket = self.docket();
        let Some(seat) = docket.seats.get_mut(host) else { return };
        let reading = self.reading(seat.machine);
        seat.stopping = Some(Stopping { told: now, reading, within });
        self.history.tell(format_args!("{host} is told to stop within {within:?}"));
    }

    /// The time since a host was told to stop, and the time that it has. `None` if it is not stopping, or
    /// that time is over.
    pub(super) fn stops_in_time(&self, seat: &Seat) -> Option<(Duration, Duration)> {
        let stopping = seat.stopping.as_ref().filter(|_| !seat.dead && seat.stopped.is_none())?;
        let age = self.reading(seat.machine).since(stopping.reading);
        (age < stopping.within).then_some((age, stopping.within))
    }

    /// Returns a violation if a call begins long after its host was told to stop.
    ///
    /// Exempt: a machine whose time did not pass normally since then (`Docket::in_time`), because its host
    /// could not measure it.
    pub(super) fn begins_after_a_stop(&self, docket: &Docket, caller: &Caller) -> Option<(Promise, String)> {
        let seat = docket.seats.get(&caller.host)?;
        let Stopping { told, reading, within, .. } = seat.stopping.as_ref()?;
        let age = self.reading(caller.machine).since(*reading);
        let latest = if self.wakes { LAST_CALL } else { self.latest_offer(docket, seat, *told, *within) };
        (age > latest && docket.in_time(caller.machine, *told)).then(|| {
            let what = format!("a call began {age:?} after its host was told to stop");
            (Promise::StopMeansStopped, what)
        })
    }

    /// The latest time for a call after a stop if the store sends no notifications: half of the stop's time
    /// and 3 s, so that other hosts can ask for the partitions. If the store is bad, two store timeouts and 3
    /// s after it became bad, or after the stop if it was bad before, if that is sooner.
    fn latest_offer(&self, docket: &Docket, seat: &Seat, told: Monotonic, within: Duration) -> Duration {
        let longest = within / 2 + LAST_CALL;
        let file = docket.machines.get(&seat.machine).copied().unwrap_or_default();
        let (bad_for_all, changed_at) = docket.common;
        if !file.store_is_bad && !bad_for_all {
            return longest;
        }
        let since = if file.store_is_bad { file.store_changed_at } else { changed_at };
        let in_vain = seat.style.manager_options().store_timeout * OFFER_CALLS;
        longest.min(since.since(told) + in_vain + LAST_CALL)
    }

    /// Returns a violation if a stop gives a call in flight less time than it promised.
    ///
    /// Exempt:
    /// - a call at its own limit (`process_timeout`);
    /// - a call whose handover was agreed before and ends sooner; it goes by the end of that handover, and is
    ///   not checked at all if the store's clock was set right before that agreement;
    /// - a call whose lease is lost, or is over within 1 s by the machine's own clock;
    /// - a machine whose clock stood still since the last renewal, or that may not have received its answer;
    /// - events of a log that the hub does not have any more;
    /// - the first 120 s after the store was restored from a copy;
    /// - a machine whose time did not pass normally since the call began (`Docket::in_time`).
    pub(super) fn cut_short_by_a_stop(
        &self,
        docket: &Docket,
        caller: &Caller,
        span: Option<Span>,
    ) -> Option<String> {
        let seat = docket.seats.get(&caller.host)?;
        let Stopping { reading, within, .. } = seat.stopping.as_ref()?;
        let case = docket.cases.get(&caller.partition)?;
        let call = case.call.filter(|call| (call.machine, call.epoch) == (caller.machine, caller.epoch))?;
        let own = self.reading(caller.machine);
        let stop = *reading + *within;
        // A handover that was agreed before the stop sets the deadline, if it ends sooner.
        let draining = docket.draining(&caller.host, caller.partition, caller.epoch);
        let until = draining.map_or(Some(stop), |draining| draining.call_until.map(|it| it.min(stop)))?;
        let (age, left) = (own.since(call.reading), until.since(own));
        let limit = seat.style.process_timeout.is_some_and(|limit| age >= limit);
        let ours = case.epoch == caller.epoch && case.owner.as_ref() == Some(&caller.host);
        let lease = seat.style.manager_options();
        let usable = lease.lease_duration - lease.fence_margin;
        let grant = case.granted.get(&caller.epoch)?;
        let in_force = own.since(grant.reading) + MARGIN < usable
            && !docket.misled(caller.machine, grant.at)
            && docket.has_heard_of(caller.machine, grant.at, MARGIN, UNHEARD);
        let excused = span.is_some_and(|span| span.life != docket.life())
            || docket.was_restored_lately(self.handle.now())
            || !docket.in_time(caller.machine, call.begun);
        (left > MARGIN && !limit && ours && in_force && !excused).then(|| {
            format!("a call in flight was given up after {age:?}, and its stop left it {left:?} more")
        })
    }

    /// The part of a violation's text about a host whose lease is stolen while it stops.
    pub(super) fn while_stopping(&self, docket: &Docket, change: &OwnershipChange) -> String {
        let seat = change.from.as_ref().and_then(|from| docket.seats.get(from));
        let stops = seat.and_then(|seat| self.stops_in_time(seat));
        stops.map_or(String::new(), |(age, within)| {
            format!(", but that it was told to stop within {within:?}, {age:?} ago")
        })
    }
}
