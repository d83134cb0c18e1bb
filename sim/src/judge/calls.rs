//! How calls of the user's code end, and what the host makes of that: limits, failures, skips, and the words of the host
//! about them.

use std::time::Duration;

use ephor::{Checkpointed, CloseReason, FailurePolicy, PartitionError, PartitionId, SequenceNumber};
use ephor_core::lease::LeaseToken;

use super::case::{Case, Owed, Trouble};
use super::store_side::next_of;
use super::{Caller, Docket, Judge, Promise, Span};
use crate::executor::Machine;

/// A call is given up within this time after its limit.
const LIMIT_GRACE: Duration = Duration::from_secs(1);
/// A call that is blocked for so long beyond its limit was noticed, and no renewal is on its way any more.
const STUCK_GRACE: Duration = Duration::from_secs(20);
/// What was sent over a bad way to the store has landed after this time, or never does.
const LATEST_WRITE: Duration = Duration::from_secs(90);
/// No planned change of owner gives up a call that is younger than this.
const A_DRAIN_WAITS: Duration = Duration::from_secs(5);
/// Who had nothing to complain of for so long is well: a handover's time twice.
const WELL: Duration = Duration::from_secs(60);
/// What waits for its turn is written within this time after it.
const TURN_GRACE: Duration = Duration::from_secs(3);
/// A batch that runs into its limit so often in a row is somebody else's turn.
const MOST_TIMEOUTS: u32 = 3;

/// Who is told of a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    /// The host's error handler.
    Handler,
    /// The processor.
    Processor,
}

impl Judge {
    /// A processor is open, and will be closed one day.
    pub fn serves(&self, caller: &Caller) {
        let mut docket = self.docket();
        let case = docket.cases.entry(caller.partition).or_default();
        case.serving.insert(caller.epoch, caller.host.clone());
    }

    /// The call under way panics: its processor is not to be used again, not even closed.
    pub fn panics(&self, caller: &Caller, span: Option<Span>) {
        let mut docket = self.docket();
        let case = docket.cases.entry(caller.partition).or_default();
        case.serving.remove(&caller.epoch);
        case.trouble.again(caller, span);
        case.trouble.timeouts = 0;
    }

    /// A call returned an error.
    pub fn failed(&self, caller: &Caller, span: Option<Span>) {
        let mut docket = self.docket();
        let case = docket.cases.entry(caller.partition).or_default();
        case.trouble.again(caller, span);
        case.trouble.timeouts = 0;
    }

    /// A call was dropped before it returned.
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
                // Somebody else, who has stood still, called in between: how long this one took is not known.
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

    /// A `close` was dropped before it returned: whoever is well and closes in order to give away keeps its lease so long.
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

    /// A processor hears of something that went wrong.
    pub fn hears(&self, caller: &Caller, error: &PartitionError) {
        match error {
            PartitionError::Processing { .. } => self.tells_of_failure(caller.partition, Told::Processor),
            PartitionError::Skipped { sequence, .. } => self.skipped(caller, *sequence),
            _ => {}
        }
    }

    /// Somebody is told that a call failed.
    pub fn tells_of_failure(&self, partition: PartitionId, told: Told) {
        let mut docket = self.docket();
        let case = docket.cases.entry(partition).or_default();
        case.trouble.untold.retain(|untold| *untold != told);
    }

    /// Whatever failed before was told, and is not tried for ever.
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

    /// A call that goes on although its limit is over.
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

    /// Whose call blocks its thread far beyond its limit has its lease run out, so that another host goes on.
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
        // Nothing else is wrong with the machine.
        let file = docket.machines.get(&seat.machine).copied().unwrap_or_default();
        let alone = file.disturbed_until <= call.blocked_until
            && file.stood_until <= call.blocked_until
            // Whoever has slept looks twice before it calls anything stuck.
            && file.woke_at.is_none_or(|woke| now.since(woke) > STUCK_GRACE)
            && docket.reached_the_store(seat.machine, call.begun.before(LATEST_WRITE));
        (same && alone && now < call.blocked_until && age > limit + STUCK_GRACE).then(|| {
            let what = format!("renewed although its call has been blocked for {age:?}, limit {limit:?}");
            (Promise::LoopNeverDies, what)
        })
    }

    /// The failure policy gives up on an event: by right?
    pub(super) fn skipped_by_right(
        &self,
        docket: &Docket,
        caller: &Caller,
        sequence: SequenceNumber,
    ) -> Option<String> {
        let policy = docket.seats.get(&caller.host)?.style.failure;
        let case = docket.cases.get(&caller.partition)?;
        if case.epoch != caller.epoch {
            // Whoever has lost it without knowing skips nothing for anybody.
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

    /// The host says how a checkpoint by hand up to this event ended.
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

    /// A checkpoint that waited for its turn is still not written.
    pub(super) fn turn_is_overdue(&self, docket: &Docket, caller: &Caller) -> Option<(Promise, String)> {
        let spacing = docket.seats.get(&caller.host)?.style.checkpoint.spacing;
        let owed = docket.cases.get(&caller.partition)?.readings.get(&caller.epoch)?.owed?;
        let age = self.handle.now().since(owed.since);
        (age > spacing + TURN_GRACE && docket.undisturbed(caller.machine, owed.since)).then(|| {
            let what = format!("a checkpoint waits for its turn for {age:?}, and nothing is in the way");
            (Promise::AtLeastOnceInOrder, what)
        })
    }

    /// Whether the reason for which a processor is closed is true, and it was told to give up in time.
    pub fn closes_by_right(&self, caller: &Caller, reason: CloseReason, cancelled: bool) {
        let objection = {
            let mut docket = self.docket();
            let restored = docket.restored_at.is_some();
            let lost = (reason == CloseReason::LeaseLost)
                .then(|| self.ran_out_in_good_health(&docket, caller.partition, &caller.host, caller.epoch));
            let case = docket.cases.entry(caller.partition).or_default();
            case.serving.remove(&caller.epoch);
            case.gives_away = reason.still_owner().then_some(caller.epoch);
            // What somebody has taken and given back already looks the same from afar.
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

    /// Whether nothing has happened to this machine for a while that could explain anything.
    pub(super) fn is_well(&self, docket: &Docket, machine: Machine) -> bool {
        let now = self.handle.now();
        docket.undisturbed(machine, now.before(WELL)) && !docket.in_amnesty(now)
    }
}

impl Trouble {
    /// One more failure of this batch, which nobody was told of yet.
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
    /// Processors that were opened and neither closed nor gone with their process, of other epochs than the present one.
    pub(super) fn left_open(&self) -> impl Iterator<Item = (&ephor::Epoch, &ephor::HostId)> {
        self.serving.iter().filter(|(epoch, _)| **epoch != self.epoch || self.owner.is_none())
    }
}
