//! Checks the calls of user code: order of events, one call at a time, and valid leases.

use std::time::Duration;

use ephor::{Epoch, Event, HostId, PartitionId, SequenceNumber};
use ephor_core::time::Monotonic;

use super::case::{Call, Case, Reading, Standing};
use super::{Docket, Judge, Promise, Turn};
use crate::events::life_of;
use crate::executor::Machine;

/// A processor that is called, on behalf of an epoch.
#[derive(Clone, Debug)]
pub struct Caller {
    /// The partition.
    pub partition: PartitionId,
    /// The epoch in which it is served.
    pub epoch: Epoch,
    /// The host that serves it.
    pub host: HostId,
    /// The machine of that host.
    pub machine: Machine,
}

/// A range of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Span {
    /// The generation of the hub's log.
    pub life: usize,
    /// The first event.
    pub first: SequenceNumber,
    /// The last event.
    pub last: SequenceNumber,
    /// True if no event in between is missing, and all are of one log.
    pub whole: bool,
}

impl Span {
    /// The range of these events; `None` if there are none.
    pub fn of(events: &[Event]) -> Option<Self> {
        let (first, last) = (events.first()?, events.last()?);
        let life = life_of(first);
        let follows =
            |pair: &[Event]| pair[0].sequence.next() == pair[1].sequence && life_of(&pair[1]) == life;
        let whole = events.windows(2).all(follows);
        Some(Self { life, first: first.sequence, last: last.sequence, whole })
    }

    fn events(self) -> impl Iterator<Item = SequenceNumber> {
        (self.first.0..=self.last.0).map(SequenceNumber)
    }
}

/// A checkpoint that the policy asks for is written within this time, if no fault prevents it.
const CHECKPOINT_GRACE: Duration = Duration::from_secs(2);

impl Judge {
    /// Notes that a processor is opened.
    pub fn opened(&self, caller: &Caller) {
        let Caller { partition, epoch, host, .. } = caller;
        self.history.tell(format_args!("{} opens {partition:?} in {epoch:?}", host.name));
        let mut docket = self.docket();
        docket.turns.push(Turn { at: self.handle.now(), partition: *partition, opens: true });
        let case = docket.cases.entry(*partition).or_default();
        case.open.insert(*epoch);
        case.opened_at = Some((*epoch, self.handle.now()));
        // A restored store may give an epoch out again.
        case.close_failed.take_if(|failed| failed == epoch);
        if let Some(grant) = case.granted.get_mut(epoch) {
            // The host may have learned of its lease only after its clock had jumped: then its time counts
            // from there.
            let learned = self.reading(caller.machine).before(self.handle.now().since(grant.at));
            grant.reading = grant.reading.max(learned);
        }
        drop(docket);
        self.runs(caller);
    }

    /// Notes that a processor is closed.
    pub fn closed(&self, caller: &Caller, reason: &str) {
        let Caller { partition, epoch, host, .. } = caller;
        self.history.tell(format_args!("{} closes {partition:?} in {epoch:?}: {reason}", host.name));
        let mut docket = self.docket();
        docket.turns.push(Turn { at: self.handle.now(), partition: *partition, opens: false });
        let case = docket.cases.entry(*partition).or_default();
        case.open.remove(epoch);
        case.closing = Some(*epoch);
    }

    /// Notes that a processor failed to close: its events must not be saved as finished.
    pub fn did_not_close(&self, caller: &Caller) {
        self.docket().cases.entry(caller.partition).or_default().close_failed = Some(caller.epoch);
    }

    /// Checks a call that begins with these events.
    pub fn begins(&self, caller: &Caller, span: Option<Span>) {
        let Caller { partition, epoch, host, .. } = caller;
        if let Some(Span { first, last, .. }) = span {
            let name = &host.name;
            self.history
                .tell(format_args!("{name} is called with {partition:?} {first:?} to {last:?} in {epoch:?}"));
        }
        let objections = {
            let mut docket = self.docket();
            let mut objections = self.overlaps(&docket, caller);
            objections.extend(self.after_trouble(&mut docket, caller, span));
            objections.extend(self.turn_is_overdue(&docket, caller));
            objections.extend(self.comes_too_late(&docket, caller));
            objections.extend(self.checkpoint_is_overdue(&docket, caller));
            objections.extend(self.begins_after_a_stop(&docket, caller));
            if docket.held.contains(&(caller.partition, caller.machine)) {
                objections
                    .push((Promise::StopMeansStopped, "a call began while a person holds it".to_owned()));
            }
            let present = docket.life();
            let another = docket.has_it_from_another_time(caller, self.handle.now());
            let case = docket.cases.entry(caller.partition).or_default();
            if let Some(Span { first, last, .. }) = span.filter(|span| !span.whole) {
                let what = format!("one call with {first:?} to {last:?}, and events in between are missing");
                objections.push((Promise::AtLeastOnceInOrder, what));
            }
            if let Some(span) = span.filter(|span| span.life == present && !another) {
                objections.extend(out_of_order(case, caller.epoch, span));
            }
            let call = Call {
                machine: caller.machine,
                incarnation: caller.host.incarnation,
                epoch: caller.epoch,
                begun: self.handle.now(),
                reading: self.reading(caller.machine),
                blocked_until: self.handle.now(),
            };
            case.call = Some(call);
            objections
        };
        for (promise, what) in objections {
            self.object(promise, Some(caller.partition), what);
        }
        self.runs(caller);
    }

    /// Returns a violation if two calls run at a time.
    ///
    /// Exempt:
    /// - the other call's machine is paused now;
    /// - the other call blocks its thread, and belongs to another run of a host;
    /// - one of the two machines is `Docket::misled` (its clock stood still, until its next renewal) or
    ///   `Docket::was_overtaken` (the store's clock was set, 60 s);
    /// - the first 60 s after the store was restored (`Docket::in_amnesty`).
    fn overlaps(&self, docket: &Docket, caller: &Caller) -> Vec<(Promise, String)> {
        let Some(case) = docket.cases.get(&caller.partition) else { return vec![] };
        let Some(call) = case.call else { return vec![] };
        let granted = |epoch| case.granted.get(&epoch).copied().unwrap_or_default().at;
        let now = self.handle.now();
        let excused = self.handle.is_paused(call.machine)
            || (now < call.blocked_until && call.incarnation != caller.host.incarnation)
            || docket.misled(call.machine, granted(call.epoch))
            || docket.misled(caller.machine, granted(caller.epoch))
            || docket.was_overtaken(call.machine, now)
            || docket.was_overtaken(caller.machine, now)
            || docket.in_amnesty(now);
        if excused {
            return vec![];
        }
        let (other, of) = (self.handle.name_of(call.machine), call.epoch);
        let what = format!("a call in {:?} while {other} is in a call in {of:?}", caller.epoch);
        vec![(Promise::OneOwner, what)]
    }

    /// Returns a violation if a call begins after the deadline of its lease: by the machine's own clock in
    /// any case, and by true time unless its clock has stood still (`Docket::misled`).
    fn comes_too_late(&self, docket: &Docket, caller: &Caller) -> Option<(Promise, String)> {
        let lease = docket.seats.get(&caller.host)?.style.manager_options();
        let grant = docket.cases.get(&caller.partition)?.granted.get(&caller.epoch)?;
        let own = self.reading(caller.machine).since(grant.reading);
        let usable = lease.lease_duration - lease.fence_margin;
        if own > usable {
            let what = format!("a call began {own:?} after the lease was last granted, by its own clock");
            return Some((Promise::OneOwner, what));
        }
        let age = self.handle.now().since(grant.at);
        (age > lease.lease_duration && !docket.misled(caller.machine, grant.at)).then(|| {
            let what = format!("a call began {age:?} after the lease was last granted");
            (Promise::OneOwner, what)
        })
    }

    /// Returns a violation if a call begins although a checkpoint of the policy has been due for more than 2
    /// s.
    ///
    /// Exempt: a machine that a fault affected since the first unsaved event was finished, and events of
    /// which the first unsaved one was finished before a restore of the store or within 60 s after it.
    fn checkpoint_is_overdue(&self, docket: &Docket, caller: &Caller) -> Option<(Promise, String)> {
        let policy = &docket.seats.get(&caller.host)?.style.checkpoint;
        let reading = docket.cases.get(&caller.partition)?.readings.get(&caller.epoch)?;
        let (since, events) = reading.unsaved?;
        let by_count = policy.every_events.filter(|most| events >= *most).map(|_| Duration::ZERO);
        let due = [by_count, policy.every].into_iter().flatten().min()?;
        let age = self.handle.now().since(since);
        let late = age > due.max(policy.spacing) + CHECKPOINT_GRACE;
        // A checkpoint saved before the restore is lost with it, and the host does not know.
        let restored = docket.in_amnesty(since);
        (late && !restored && docket.undisturbed(caller.machine, since)).then(|| {
            let what = format!("no checkpoint for {age:?}, although the policy asks for one");
            (Promise::AtLeastOnceInOrder, what)
        })
    }

    /// Checks that user code of this epoch may run at this moment.
    ///
    /// Exempt from the check of epochs: the first 60 s after the store was restored, and a machine that is
    /// `Docket::misled` or `Docket::was_overtaken`. Exempt from "runs after it has stopped": partitions
    /// that the stopped host reported as abandoned.
    pub fn runs(&self, caller: &Caller) {
        let now = self.handle.now();
        let objection = {
            let mut docket = self.docket();
            let too_long = self.beyond_its_limit(&docket, caller);
            let stopped = docket.seats.get(&caller.host).and_then(|seat| seat.stopped.as_ref());
            let gone = stopped.is_some_and(|abandoned| !abandoned.contains(&caller.partition));
            let amnesty = docket.in_amnesty(now);
            let granted = docket
                .cases
                .get(&caller.partition)
                .and_then(|case| case.granted.get(&caller.epoch))
                .copied()
                .unwrap_or_default();
            let misled =
                docket.misled(caller.machine, granted.at) || docket.was_overtaken(caller.machine, now);
            let case = docket.cases.entry(caller.partition).or_default();
            let unknown = caller.epoch > case.epoch;
            if !unknown {
                case.begun = case.begun.max(caller.epoch);
            }
            if gone {
                Some((
                    Promise::StopMeansStopped,
                    format!("code of {} runs after it has stopped", caller.host),
                ))
            } else if unknown && !amnesty && !misled {
                let what =
                    format!("code of {:?} runs, and the store knows only {:?}", caller.epoch, case.epoch);
                Some((Promise::OneOwner, what))
            } else if caller.epoch < case.begun && !amnesty && !misled {
                let what = format!("code of {:?} runs after {:?} has begun", caller.epoch, case.begun);
                Some((Promise::OneOwner, what))
            } else {
                too_long
            }
        };
        if let Some((promise, what)) = objection {
            self.object(promise, Some(caller.partition), what);
        }
    }

    /// Notes that the call in flight blocks its thread for this long.
    pub fn blocks(&self, caller: &Caller, duration: Duration) {
        self.history.tell(format_args!(
            "{} blocks on {:?} in {:?} for {duration:?}",
            caller.host.name, caller.partition, caller.epoch
        ));
        let until = self.handle.now() + duration;
        self.disturbed(caller.machine, duration);
        self.stands(caller.machine, duration);
        let mut docket = self.docket();
        if let Some(call) = docket.cases.entry(caller.partition).or_default().call.as_mut() {
            call.blocked_until = until;
        }
    }

    /// Notes that a call returned `Ok`.
    pub fn finished(&self, caller: &Caller, span: Span) {
        let now = self.handle.now();
        let (Caller { partition, epoch, host, .. }, Span { first, last, .. }) = (caller, span);
        let name = &host.name;
        self.history.tell(format_args!("{name} finishes {partition:?} {first:?} to {last:?} in {epoch:?}"));
        let mut docket = self.docket();
        let present = docket.life();
        let another = docket.has_it_from_another_time(caller, now);
        let case = docket.cases.entry(caller.partition).or_default();
        let total = span.last.0 - span.first.0 + 1;
        let mut fresh = 0;
        if span.life == present && caller.epoch >= case.sought_in {
            fresh = span.events().filter(|event| case.done.insert(*event)).count() as u64;
        }
        let mut of_another = Reading::default();
        let readings = &mut case.readings;
        let reading = if another { &mut of_another } else { readings.entry(caller.epoch).or_default() };
        reading.next = Some(Standing { life: span.life, next: span.last.next() });
        reading.said_at = None;
        // A processor that checkpoints manually may have saved these events already.
        let saved = case.standing.is_some_and(|it| (it.life, it.next) >= (span.life, span.last.next()));
        if !saved {
            let (since, unsaved) = *reading.unsaved.get_or_insert((now, 0));
            reading.unsaved = Some((since, unsaved + total));
        }
        docket.figures.finished += total;
        docket.figures.repeated += total - fresh;
    }

    /// Notes that the processor is about to checkpoint up to this event, which means that these events are
    /// done.
    pub fn vouches(&self, caller: &Caller, span: Span) {
        let mut docket = self.docket();
        let present = docket.life();
        let case = docket.cases.entry(caller.partition).or_default();
        if span.life == present && caller.epoch >= case.sought_in {
            case.done.extend(span.events());
        }
    }

    /// Checks and notes that the failure policy skipped an event.
    pub fn skipped(&self, caller: &Caller, sequence: SequenceNumber) {
        let Caller { partition, epoch, .. } = caller;
        self.history.tell(format_args!("{partition:?} skips {sequence:?} in {epoch:?}"));
        let mut docket = self.docket();
        if let Some(what) = self.skipped_by_right(&docket, caller, sequence) {
            drop(docket);
            self.object(Promise::AtLeastOnceInOrder, Some(*partition), what);
            return;
        }
        docket.figures.skipped += 1;
        let present = docket.life();
        let case = docket.cases.entry(*partition).or_default();
        let reading = case.readings.entry(*epoch).or_default();
        let life = reading.next.map_or(present, |standing| standing.life);
        reading.next = Some(Standing { life, next: sequence.next() });
        if life == present {
            case.done.insert(sequence);
        }
    }

    /// Notes that a call has returned or was dropped.
    pub fn ended(&self, caller: &Caller) {
        let mut docket = self.docket();
        let case = docket.cases.entry(caller.partition).or_default();
        if case.call.is_some_and(|call| (call.machine, call.epoch) == (caller.machine, caller.epoch)) {
            case.call = None;
        }
    }
}

impl Docket {
    /// Exempts a host whose epoch a restored store has given to another host, too, for 60 s after the
    /// restore: its calls are not compared with the progress of the present owner.
    fn has_it_from_another_time(&self, caller: &Caller, now: Monotonic) -> bool {
        let case = self.cases.get(&caller.partition);
        let again =
            case.filter(|case| case.epoch == caller.epoch && case.owner.as_ref() != Some(&caller.host));
        self.in_amnesty(now) && again.is_some()
    }
}

/// Returns a violation if a call does not begin at the next unfinished event.
fn out_of_order(case: &mut Case, epoch: Epoch, span: Span) -> Option<(Promise, String)> {
    let kept = case.kept;
    let reading = case.readings.entry(epoch).or_default();
    let expected = match reading.next {
        Some(standing) if standing.life == span.life => standing.next,
        // Without a checkpoint, reading begins at the oldest event that there was at that time.
        None => span.first.min(kept),
        Some(_) => {
            let what = format!("{epoch:?} went on in another log without a word, at {:?}", span.first);
            return Some((Promise::AtLeastOnceInOrder, what));
        }
    };
    (span.first != expected).then(|| {
        let what = format!("{epoch:?} was called with {:?}, expected {expected:?}", span.first);
        (Promise::AtLeastOnceInOrder, what)
    })
}
