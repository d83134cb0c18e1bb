//! Checks how calls of user code end and how the host reacts: limits, failures, skips, and its reports about
//! them.

use std::time::Duration;

use ephor::{Checkpointed, CloseReason, FailurePolicy, PartitionError, PartitionId, SequenceNumber};
use ephor_core::lease::LeaseToken;

use super::case::{Case, Owed, Trouble};
use super::store_side::next_of;
use super::{Caller, Docket, Judge, Promise, Span};
use crate::executor::Machine;

/// A call ends at most this long after its limit.
const LIMIT_GRACE: Duration = Duration::from_secs(1);
/// A call that is blocked for this long beyond its limit has been noticed, and no renewal for it is in
/// flight.
const STUCK_GRACE: Duration = Duration::from_secs(20);
/// A write sent over a bad connection to the store is carried out within this time, or never.
const LATEST_WRITE: Duration = Duration::from_secs(90);
/// No planned change of owner cancels a call that is younger than this.
const A_DRAIN_WAITS: Duration = Duration::from_secs(5);
/// A machine without faults for this long is healthy: twice the time of a handover.
const WELL: Duration = Duration::from_secs(60);
/// A deferred checkpoint is written at most this long after it is due.
const TURN_GRACE: Duration = Duration::from_secs(3);
/// A batch that times out this often in a row is to be given to another host.
const MOST_TIMEOUTS: u32 = 3;

/// The receiver of a report about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The host's error handler.
    Handler,
    /// The processor.
    Processor,
}

impl Judge {
    /// Notes that a processor is open, and must be closed one day.
    pub fn serves(&self, caller: &Caller) {
        let mut docket = self.docket();
        let case = docket.cases.entry(caller.partition).or_default();
        case.serving.insert(caller.epoch, caller.host.clone());
    }

    /// Notes that the call in flight panics. Its processor must not be used again, not even closed.
    pub fn panics(&self, caller: &Caller, span: Option<Span>) {
        let mut docket = self.docket();
        let case = docket.cases.entry(caller.partition).or_default();
        case.serving.remove(&caller.epoch);
        case.trouble.again(caller, span);
        case.trouble.timeouts = 0;
    }

    /// Notes that a call returned an error.
    pub fn failed(&self, caller: &Caller, span: Option<Span>) {
        let mut docket = self.docket();
        let case = docket.cases.entry(caller.partition).or_default();
        case.trouble.again(caller, span);
        case.trouble.timeouts = 0;
    }

    /// Checks a call that was dropped before it returned: it has reached its limit, or it had at least 5 s
    /// and, in a stop, the promised time (`Judge::cut_short_by_a_stop` lists its own exemptions).
    ///
    /// Exempt from the 5 s: a host that has lost the partition or has stopped, and a machine that is not
    /// healthy (`Judge::is_well`). A host whose process is gone is not checked at all.
    pub fn dropped(&self, caller: &Caller, span: Option<Span>) {
        let objection = {
            let mut docket = self.docket();
            let Some(seat) = docket.seats.get(&caller.host).filter(|seat| !seat.dead) else { return };
            let limit = seat.style.process_timeout;
            let well = self.is_well(&docket, caller.machine) && seat.stopped.is_none();
            let reading = self.reading(caller.machine);
            let cut_short = self.cut_short_by_a_stop(&docket, caller, span);
            let case = docket.cases.entry(caller.partition).or_default();
            let Some(call) = case.call.filter(|call| call.machine == caller.machine) else {
                // Another host, which had stood still, made a call meanwhile: the age of this one is unknown.
                if caller.epoch == case.epoch {
                    case.trouble.again(caller, span);
                }
                return;
            };
            let age = reading.since(call.reading);
            if limit.is_some_and(|limit| age >= limit) {
                case.trouble.again(caller, span);
                case.trouble.timeouts += 1;
                None
            } else {
                let ours = case.epoch == caller.epoch && case.owner.as_ref() == Some(&caller.host);
                let too_young = (ours && well && age < A_DRAIN_WAITS)
                    .then(|| format!("a call was given up after {age:?}, although nothing was in the way"));
                cut_short.or(too_young)
            }
        };
        if let Some(what) = objection {
            self.object(Promise::StopMeansStopped, Some(caller.partition), what);
        }
    }

    /// Checks a `close` that was dropped before it returned: a healthy host that closes in order to give a
    /// partition away keeps its lease until it has closed. `Judge::ran_out_in_good_health` lists the
    /// exemptions.
    pub fn close_was_dropped(&self, caller: &Caller) {
        let objection = {
            let docket = self.docket();
            let case = docket.cases.get(&caller.partition);
            let gives_away = case.is_some_and(|case| case.gives_away == Some(caller.epoch));
            let over = gives_away
                .then(|| self.ran_out_in_good_health(&docket, caller.partition, &caller.host, caller.epoch));
            over.flatten()
        };
        if let Some((promise, what)) = objection {
            self.object(promise, Some(caller.partition), format!("a close was dropped: {what}"));
        }
    }

    /// Notes an error that the host reports to a processor.
    pub fn hears(&self, caller: &Caller, error: &PartitionError) {
        match error {
            PartitionError::Processing { .. } => self.tells_of_failure(caller.partition, Told::Processor),
            PartitionError::Skipped { sequence, .. } => self.skipped(caller, *sequence),
            _ => {}
        }
    }

    /// Notes that a failed call was reported to this receiver.
    pub fn tells_of_failure(&self, partition: PartitionId, told: Told) {
        let mut docket = self.docket();
        let case = docket.cases.entry(partition).or_default();
        case.trouble.untold.retain(|untold| *untold != told);
    }

    /// Returns a violation if an earlier failure was not reported before the next call, or if a batch that
    /// keeps timing out is tried again.
    pub(super) fn after_trouble(
        &self,
        docket: &mut Docket,
        caller: &Caller,
        span: Option<Span>,
    ) -> Option<(Promise, String)> {
        let policy = docket.seats.get(&caller.host)?.style.failure;
        let trouble = &mut docket.cases.entry(caller.partition).or_default().trouble;
        if !trouble.is_of(caller) {
            return None;
        }
        if let Some(untold) = std::mem::take(&mut trouble.untold).first() {
            let what = format!("a call failed, and the {untold:?} was not told before the next one");
            return Some((Promise::LoopNeverDies, what));
        }
        let for_ever = matches!(policy, FailurePolicy::Retry(_));
        (for_ever && trouble.span == span && trouble.timeouts >= MOST_TIMEOUTS).then(|| {
            let what =
                format!("the same batch ran into its limit {} times, and is tried on", trouble.timeouts);
            (Promise::LoopNeverDies, what)
        })
    }

    /// Returns a violation if a call goes on beyond its limit and 1 s. Exempt: a machine whose time did not
    /// pass normally since the call began (`Docket::in_time`).
    pub(super) fn beyond_its_limit(&self, docket: &Docket, caller: &Caller) -> Option<(Promise, String)> {
        let limit = docket.seats.get(&caller.host)?.style.process_timeout?;
        let call = docket.cases.get(&caller.partition)?.call?;
        let same = (call.machine, call.epoch) == (caller.machine, caller.epoch);
        let age = self.reading(caller.machine).since(call.reading);
        (same && age > limit + LIMIT_GRACE && docket.in_time(caller.machine, call.begun)).then(|| {
            let what = format!("a call goes on after {age:?}, and its limit is {limit:?}");
            (Promise::LoopNeverDies, what)
        })
    }

    /// Returns a violation if a lease is renewed although its call has blocked its thread far (20 s) beyond
    /// its limit. Such a lease must run out, so that another host can take over.
    ///
    /// Exempt: a machine with another fault at the same time, one that woke up less than 20 s ago, and one
    /// that did not reach the store all the time from 90 s before the call began, because a renewal may land
    /// late.
    pub(super) fn renewed_while_stuck(
        &self,
        docket: &Docket,
        token: &LeaseToken,
    ) -> Option<(Promise, String)> {
        let seat = docket.seats.get(&token.owner)?;
        let limit = seat.style.process_timeout?;
        let call = docket.cases.get(&token.partition)?.call?;
        let same = (call.machine, call.epoch) == (seat.machine, token.epoch);
        let (now, age) = (self.handle.now(), self.reading(seat.machine).since(call.reading));
        // True if nothing else is wrong with the machine.
        let file = docket.machines.get(&seat.machine).copied().unwrap_or_default();
        let alone = file.disturbed_until <= call.blocked_until
            && file.stood_until <= call.blocked_until
            // A host that has slept checks twice before it calls anything stuck.
            && file.woke_at.is_none_or(|woke| now.since(woke) > STUCK_GRACE)
            && docket.reached_the_store(seat.machine, call.begun.before(LATEST_WRITE));
        (same && alone && now < call.blocked_until && age > limit + STUCK_GRACE).then(|| {
            let what = format!("renewed although its call has been blocked for {age:?}, limit {limit:?}");
            (Promise::LoopNeverDies, what)
        })
    }

    /// Returns what is wrong with a skipped event: it was not the next one, the policy skips nothing, or the
    /// event did not fail by itself as often as the policy says. Exempt: an owner of an older epoch.
    pub(super) fn skipped_by_right(
        &self,
        docket: &Docket,
        caller: &Caller,
        sequence: SequenceNumber,
    ) -> Option<String> {
        let policy = docket.seats.get(&caller.host)?.style.failure;
        let case = docket.cases.get(&caller.partition)?;
        if case.epoch != caller.epoch {
            // An owner that has lost the partition without knowing it skips nothing for others.
            return None;
        }
        let trouble = &case.trouble;
        let alone = trouble.span.is_some_and(|span| (span.first, span.last) == (sequence, sequence));
        let expected = case.readings.get(&caller.epoch).and_then(|reading| reading.next);
        if expected.is_some_and(|expected| expected.next != sequence) {
            return Some(format!("{sequence:?} is skipped, and {expected:?} was next"));
        }
        let FailurePolicy::SkipAfter { attempts, .. } = policy else {
            return Some(format!("{sequence:?} is skipped, and the policy skips nothing"));
        };
        let failures = if trouble.is_of(caller) && alone { trouble.failures } else { 0 };
        (failures < attempts)
            .then(|| format!("{sequence:?} is skipped after {failures} failures of its own, not {attempts}"))
    }

    /// Checks the host's answer to a manual checkpoint up to this event. Exempt: a host that has lost the
    /// partition, and a machine that is not healthy (`Judge::is_well`).
    pub fn was_told(&self, caller: &Caller, next: SequenceNumber, answer: &Checkpointed) {
        let objection = {
            let mut docket = self.docket();
            let now = self.handle.now();
            let well = self.is_well(&docket, caller.machine);
            let present = docket.life();
            let case = docket.cases.entry(caller.partition).or_default();
            let ours = case.epoch == caller.epoch && case.owner.as_ref() == Some(&caller.host);
            match answer {
                Checkpointed::Saved(checkpoint) | Checkpointed::Unchanged(checkpoint) => {
                    let said = next_of(&checkpoint.position, case);
                    let stored = case.standing.filter(|standing| standing.life == present);
                    let behind = stored.is_some_and(|stored| stored.next < said);
                    (ours && well && behind)
                        .then(|| format!("said to be saved up to {said:?}, and is not: {stored:?}"))
                }
                Checkpointed::Deferred => {
                    let reading = case.readings.entry(caller.epoch).or_default();
                    if reading.owed.is_none_or(|owed| owed.next < next) {
                        let since = reading.owed.map_or(now, |owed| owed.since);
                        reading.owed = Some(Owed { next, since });
                    }
                    None
                }
                Checkpointed::Refused => {
                    (ours && well).then(|| "a checkpoint was refused to an owner who is well".to_owned())
                }
                _ => None,
            }
        };
        if let Some(what) = objection {
            self.object(Promise::AtLeastOnceInOrder, Some(caller.partition), what);
        }
    }

    /// Returns a violation if a deferred checkpoint is still not written 3 s after it is due. Exempt: a
    /// machine that a fault affected since it was deferred.
    pub(super) fn turn_is_overdue(&self, docket: &Docket, caller: &Caller) -> Option<(Promise, String)> {
        let spacing = docket.seats.get(&caller.host)?.style.checkpoint.spacing;
        let owed = docket.cases.get(&caller.partition)?.readings.get(&caller.epoch)?.owed?;
        let age = self.handle.now().since(owed.since);
        (age > spacing + TURN_GRACE && docket.undisturbed(caller.machine, owed.since)).then(|| {
            let what = format!("a checkpoint waits for its turn for {age:?}, and nothing is in the way");
            (Promise::AtLeastOnceInOrder, what)
        })
    }

    /// Checks that the reason for which a processor is closed is true, and that it was cancelled before if
    /// its lease is lost. Exempt from the check of seeks: every run in which the store was restored, until
    /// its end.
    pub fn closes_by_right(&self, caller: &Caller, reason: CloseReason, cancelled: bool) {
        let objection = {
            let mut docket = self.docket();
            let restored = docket.restored_at.is_some();
            let lost = (reason == CloseReason::LeaseLost)
                .then(|| self.ran_out_in_good_health(&docket, caller.partition, &caller.host, caller.epoch));
            let case = docket.cases.entry(caller.partition).or_default();
            case.serving.remove(&caller.epoch);
            case.gives_away = reason.still_owner().then_some(caller.epoch);
            // A partition that another host has taken and given back already looks the same here.
            let moved = case.sought_in > caller.epoch || case.owner.is_none();
            let stop = |what: &str| Some((Promise::StopMeansStopped, what.to_owned()));
            if !reason.still_owner() && !cancelled {
                stop("closed as lost, and the signal to give up had not come")
            } else if reason == CloseReason::Seek && !moved && !restored {
                stop("closed because of a seek, and nobody has moved the position")
            } else {
                lost.flatten()
            }
        };
        if let Some((promise, what)) = objection {
            self.object(promise, Some(caller.partition), what);
        }
    }

    /// True if this machine is healthy: no fault affected it, and the store was good for it, for 60 s
    /// (`WELL`), and the store was not restored within 60 s.
    pub(super) fn is_well(&self, docket: &Docket, machine: Machine) -> bool {
        let now = self.handle.now();
        docket.undisturbed(machine, now.before(WELL)) && !docket.in_amnesty(now)
    }
}

impl Trouble {
    /// Counts one more failure of this batch, which is not yet reported.
    fn again(&mut self, caller: &Caller, span: Option<Span>) {
        if !self.is_of(caller) || self.span != span {
            let of = Some((caller.host.clone(), caller.epoch));
            *self = Self { of, span, ..Self::default() };
        }
        self.failures += 1;
        self.untold = vec![Told::Handler, Told::Processor];
    }
}

impl Trouble {
    fn is_of(&self, caller: &Caller) -> bool {
        self.of.as_ref().is_some_and(|(host, epoch)| (host, *epoch) == (&caller.host, caller.epoch))
    }
}

impl Case {
    /// Processors that were opened and not closed although their epoch is over: a newer one has begun, or
    /// nobody owns the partition. Processors that panicked are not among them.
    pub(super) fn left_open(&self) -> impl Iterator<Item = (&ephor::Epoch, &ephor::HostId)> {
        self.serving.iter().filter(|(epoch, _)| **epoch != self.epoch || self.owner.is_none())
    }
}
