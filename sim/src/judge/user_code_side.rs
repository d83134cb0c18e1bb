//! Checks the calls of user code: events in order, one call at a time, and only under a valid lease.

use std::time::Duration;

use ephor::{Epoch, Event, HostId, PartitionId, SequenceNumber};

use super::partition_facts::{Call, LogPosition, PartitionFacts, ReadProgress};
use super::{Check, Exemption, Judge, JudgeState, ProcessorEvent, Promise};
use crate::events::log_generation_of;
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
    pub log_generation: usize,
    /// The first event.
    pub first: SequenceNumber,
    /// The last event.
    pub last: SequenceNumber,
    /// True if no event in between is missing, and all are of one log.
    pub contiguous: bool,
}

impl Span {
    /// The range of these events; `None` if there are none.
    pub fn of(events: &[Event]) -> Option<Self> {
        let (first, last) = (events.first()?, events.last()?);
        let log_generation = log_generation_of(first);
        let follows = |pair: &[Event]| {
            pair[0].sequence.next() == pair[1].sequence && log_generation_of(&pair[1]) == log_generation
        };
        let contiguous = events.windows(2).all(follows);
        Some(Self { log_generation, first: first.sequence, last: last.sequence, contiguous })
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
        self.history.append(format_args!("{} opens {partition:?} in {epoch:?}", host.name));
        let mut state = self.state();
        state.processor_events.push(ProcessorEvent {
            at: self.handle.now(),
            partition: *partition,
            opens: true,
        });
        let facts = state.partitions.entry(*partition).or_default();
        facts.open.insert(*epoch);
        facts.opened_at = Some((*epoch, self.handle.now()));
        // A restored store may give an epoch out again.
        facts.close_failed.take_if(|failed| *failed == (caller.host.clone(), *epoch));
        if let Some(grant) = facts.granted.get_mut(&(*epoch, caller.machine)) {
            // The host may have learned of its lease only after its clock had jumped: then its time counts
            // from there.
            let learned = self.own_time(caller.machine).before(self.handle.now().since(grant.at));
            grant.own_time = grant.own_time.max(learned);
        }
        drop(state);
        self.runs(caller);
    }

    /// Notes that a processor is closed.
    pub fn closed(&self, caller: &Caller, reason: &str) {
        let Caller { partition, epoch, host, .. } = caller;
        self.history.append(format_args!("{} closes {partition:?} in {epoch:?}: {reason}", host.name));
        let mut state = self.state();
        state.processor_events.push(ProcessorEvent {
            at: self.handle.now(),
            partition: *partition,
            opens: false,
        });
        let facts = state.partitions.entry(*partition).or_default();
        facts.open.remove(epoch);
        facts.last_closed = Some(*epoch);
        facts.closed_at = self.handle.now();
    }

    /// Notes that a processor failed to close: its events must not be saved as finished.
    pub fn did_not_close(&self, caller: &Caller) {
        let failed = Some((caller.host.clone(), caller.epoch));
        self.state().partitions.entry(caller.partition).or_default().close_failed = failed;
    }

    /// Checks a call that begins with these events.
    pub fn begins(&self, caller: &Caller, span: Option<Span>) {
        let Caller { partition, epoch, host, .. } = caller;
        if let Some(Span { first, last, .. }) = span {
            let name = &host.name;
            self.history.append(format_args!(
                "{name} is called with {partition:?} {first:?} to {last:?} in {epoch:?}"
            ));
        }
        let violations = {
            let mut state = self.state();
            let mut violations = self.overlaps(&state, caller);
            violations.extend(self.after_failure(&mut state, caller, span));
            violations.extend(self.deferred_checkpoint_is_overdue(&state, caller));
            violations.extend(self.begins_after_lease(&state, caller));
            violations.extend(self.checkpoint_is_overdue(&state, caller));
            violations.extend(self.begins_after_a_stop(&state, caller));
            violations.extend(self.gaps_are_overdue(&mut state, caller));
            if state.held.contains(&(caller.partition, caller.machine)) {
                violations.push((
                    Promise::StopMeansStopped,
                    "a call began while an operator holds the partition".to_owned(),
                ));
            }
            let present = state.log_generation();
            let reissued = state.epoch_was_reissued(caller, self.handle.now());
            let facts = state.partitions.entry(caller.partition).or_default();
            if let Some(Span { first, last, .. }) = span.filter(|span| !span.contiguous) {
                let what = format!("a call with {first:?} to {last:?} lacks events in between");
                violations.push((Promise::AtLeastOnceInOrder, what));
            }
            let in_order = |span: &Span| {
                let earlier = span.log_generation != present;
                let exemptions = [(Exemption::EarlierLog, earlier), (Exemption::EpochReissued, reissued)];
                !self.is_exempt(Check::OrderOfEvents, exemptions)
            };
            if let Some(span) = span.filter(in_order)
                && !facts.passes_over_gap(caller, span, self.own_time(caller.machine))
            {
                violations.extend(out_of_order(facts, caller.epoch, span));
            }
            let call = Call {
                machine: caller.machine,
                incarnation: caller.host.incarnation,
                epoch: caller.epoch,
                begun: self.handle.now(),
                own_time: self.own_time(caller.machine),
                blocked_until: self.handle.now(),
            };
            facts.call = Some(call);
            violations
        };
        for (promise, what) in violations {
            self.report_violation(promise, Some(caller.partition), what);
        }
        self.runs(caller);
    }

    /// Returns a violation if two calls run at a time.
    fn overlaps(&self, state: &JudgeState, caller: &Caller) -> Vec<(Promise, String)> {
        let Some(facts) = state.partitions.get(&caller.partition) else { return vec![] };
        let now = self.handle.now();
        let other = |exempt: &dyn Fn(Call) -> bool| facts.call.is_some_and(exempt);
        let stopped = |machine, epoch| {
            let granted = facts.grant(epoch, machine).unwrap_or_default();
            state.clock_stopped_since(machine, granted.at)
        };
        let blocked = |call: Call| now < call.blocked_until && call.incarnation != caller.host.incarnation;
        let exempt = self.is_exempt(
            Check::CallsOverlap,
            [
                (Exemption::MachinePaused, other(&|call| self.handle.is_paused(call.machine))),
                (Exemption::ThreadBlocked, other(&blocked)),
                (Exemption::ClockStopped, stopped(caller.machine, caller.epoch)),
                (Exemption::ClockStopped, other(&|call| stopped(call.machine, call.epoch))),
                (Exemption::TakeoverUnseen, state.cannot_know_of_takeover(caller.machine, now)),
                (Exemption::TakeoverUnseen, other(&|call| state.cannot_know_of_takeover(call.machine, now))),
                (Exemption::StoreRestored, state.in_restore_grace(now)),
            ],
        );
        let Some(call) = facts.call.filter(|_| !exempt) else { return vec![] };
        let (other, of) = (self.handle.name_of(call.machine), call.epoch);
        let what = format!("a call began in {:?} while {other} is in a call in {of:?}", caller.epoch);
        vec![(Promise::OneOwner, what)]
    }

    /// Returns a violation if a call begins after the deadline of its lease: by the machine's own clock in
    /// any case, and by true time unless its clock has stood still (`JudgeState::clock_stopped_since`).
    fn begins_after_lease(&self, state: &JudgeState, caller: &Caller) -> Option<(Promise, String)> {
        let lease = state.hosts.get(&caller.host)?.config.manager_options();
        let grant = state.partitions.get(&caller.partition)?.grant(caller.epoch, caller.machine)?;
        let own = self.own_time(caller.machine).since(grant.own_time);
        let usable = lease.lease_duration - lease.fence_margin;
        if own > usable {
            let what = format!("a call began {own:?} after the lease was last granted, by the owner's clock");
            return Some((Promise::OneOwner, what));
        }
        let age = self.handle.now().since(grant.at);
        let stopped = state.clock_stopped_since(caller.machine, grant.at);
        let exempt = self.is_exempt(Check::CallAfterLease, [(Exemption::ClockStopped, stopped)]);
        (age > lease.lease_duration && !exempt).then(|| {
            let what = format!("a call began {age:?} after the lease was last granted");
            (Promise::OneOwner, what)
        })
    }

    /// Returns a violation if a call begins although a checkpoint of the policy has been due for more than 2
    /// s.
    fn checkpoint_is_overdue(&self, state: &JudgeState, caller: &Caller) -> Option<(Promise, String)> {
        let policy = &state.hosts.get(&caller.host)?.config.checkpoint;
        let progress = state.partitions.get(&caller.partition)?.read_progress.get(&caller.epoch)?;
        let (since, events) = progress.unsaved?;
        let by_count = policy.every_events.filter(|most| events >= *most).map(|_| Duration::ZERO);
        let due = [by_count, policy.every].into_iter().flatten().min()?;
        let age = self.handle.now().since(since);
        let late = age > due.max(policy.spacing) + CHECKPOINT_GRACE;
        // A checkpoint saved before the restore is lost with it, and the host does not know.
        let restored = state.in_restore_grace(since);
        let exempt = self.is_exempt(
            Check::CheckpointInTime,
            [
                (Exemption::StoreRestored, restored),
                (Exemption::MachineFault, !state.free_of_faults(caller.machine, since)),
            ],
        );
        (late && !exempt).then(|| {
            let what = format!("the host wrote no checkpoint for {age:?} although the policy asks for one");
            (Promise::AtLeastOnceInOrder, what)
        })
    }

    /// Checks that user code of this epoch may run at this moment.
    pub fn runs(&self, caller: &Caller) {
        let now = self.handle.now();
        let violation = {
            let mut state = self.state();
            let too_long =
                self.beyond_its_limit(&state, caller).or_else(|| self.runs_beyond_its_stop(&state, caller));
            let stopped = state.hosts.get(&caller.host).and_then(|host_facts| host_facts.stopped.as_ref());
            let gone = stopped.is_some_and(|abandoned| {
                let abandoned = abandoned.contains(&caller.partition);
                !self.is_exempt(Check::CodeAfterStop, [(Exemption::Abandoned, abandoned)])
            });
            let granted = state
                .partitions
                .get(&caller.partition)
                .and_then(|facts| facts.grant(caller.epoch, caller.machine))
                .unwrap_or_default();
            let exempt = self.is_exempt(
                Check::EpochOfCode,
                [
                    (Exemption::ClockStopped, state.clock_stopped_since(caller.machine, granted.at)),
                    (Exemption::TakeoverUnseen, state.cannot_know_of_takeover(caller.machine, now)),
                    (Exemption::StoreRestored, state.in_restore_grace(now)),
                ],
            );
            let facts = state.partitions.entry(caller.partition).or_default();
            let unknown = caller.epoch > facts.epoch;
            if !unknown {
                facts.begun = facts.begun.max(caller.epoch);
            }
            if gone {
                Some((
                    Promise::StopMeansStopped,
                    format!("code of {} runs after it has stopped", caller.host),
                ))
            } else if unknown && !exempt {
                let what = format!(
                    "code of {:?} runs, but the store has issued only {:?}",
                    caller.epoch, facts.epoch
                );
                Some((Promise::OneOwner, what))
            } else if caller.epoch < facts.begun && !exempt {
                let what = format!("code of {:?} runs after {:?} has begun", caller.epoch, facts.begun);
                Some((Promise::OneOwner, what))
            } else {
                too_long
            }
        };
        if let Some((promise, what)) = violation {
            self.report_violation(promise, Some(caller.partition), what);
        }
    }

    /// Notes that the call in flight blocks its thread for this long.
    pub fn blocks(&self, caller: &Caller, duration: Duration) {
        self.history.append(format_args!(
            "{} blocks on {:?} in {:?} for {duration:?}",
            caller.host.name, caller.partition, caller.epoch
        ));
        let until = self.handle.now() + duration;
        self.note_fault(caller.machine, duration);
        self.note_time_fault(caller.machine, duration);
        let mut state = self.state();
        if let Some(call) = state.partitions.entry(caller.partition).or_default().call.as_mut() {
            call.blocked_until = until;
        }
    }

    /// Notes that a call returned `Ok`.
    pub fn finished(&self, caller: &Caller, span: Span) {
        let now = self.handle.now();
        let (Caller { partition, epoch, host, .. }, Span { first, last, .. }) = (caller, span);
        let name = &host.name;
        self.history.append(format_args!("{name} finishes {partition:?} {first:?} to {last:?} in {epoch:?}"));
        let mut state = self.state();
        let present = state.log_generation();
        let reissued = state.epoch_was_reissued(caller, now);
        let facts = state.partitions.entry(caller.partition).or_default();
        let total = span.last.0 - span.first.0 + 1;
        let mut fresh = 0;
        if span.log_generation == present {
            fresh = facts.finish(caller.epoch, span.events());
        }
        let mut of_another = ReadProgress::default();
        let read_progress = &mut facts.read_progress;
        let progress =
            if reissued { &mut of_another } else { read_progress.entry(caller.epoch).or_default() };
        progress.next = Some(LogPosition { log_generation: span.log_generation, next: span.last.next() });
        progress.reported_gone = None;
        // A processor that checkpoints manually may have saved these events already.
        let saved = facts
            .stored_position
            .is_some_and(|it| (it.log_generation, it.next) >= (span.log_generation, span.last.next()));
        if !saved {
            let (since, unsaved) = *progress.unsaved.get_or_insert((now, 0));
            progress.unsaved = Some((since, unsaved + total));
        }
        state.figures.finished += total;
        state.figures.repeated += total - fresh;
    }

    /// Notes that the processor is about to checkpoint up to this event, which means that these events are
    /// done.
    pub fn about_to_checkpoint(&self, caller: &Caller, span: Span) {
        let mut state = self.state();
        let present = state.log_generation();
        let facts = state.partitions.entry(caller.partition).or_default();
        if span.log_generation == present {
            facts.finish(caller.epoch, span.events());
        }
    }

    /// Checks and notes that the failure policy skipped an event.
    pub fn skipped(&self, caller: &Caller, sequence: SequenceNumber) {
        let Caller { partition, epoch, .. } = caller;
        self.history.append(format_args!("{partition:?} skips {sequence:?} in {epoch:?}"));
        let mut state = self.state();
        if let Some(what) = self.wrong_skip(&state, caller, sequence) {
            drop(state);
            self.report_violation(Promise::AtLeastOnceInOrder, Some(*partition), what);
            return;
        }
        state.figures.skipped += 1;
        let present = state.log_generation();
        let facts = state.partitions.entry(*partition).or_default();
        let progress = facts.read_progress.entry(*epoch).or_default();
        let log_generation = progress.next.map_or(present, |position| position.log_generation);
        progress.next = Some(LogPosition { log_generation, next: sequence.next() });
        if log_generation == present {
            facts.done.insert(sequence);
        }
    }

    /// Notes that a call has returned or was dropped.
    pub fn ended(&self, caller: &Caller) {
        let mut state = self.state();
        let facts = state.partitions.entry(caller.partition).or_default();
        if facts.call.is_some_and(|call| (call.machine, call.epoch) == (caller.machine, caller.epoch)) {
            facts.call = None;
        }
    }
}

/// Returns a violation if a call does not begin at the next unfinished event.
fn out_of_order(facts: &mut PartitionFacts, epoch: Epoch, span: Span) -> Option<(Promise, String)> {
    let kept = facts.oldest_kept;
    let progress = facts.read_progress.entry(epoch).or_default();
    let expected = match progress.next {
        Some(position) if position.log_generation == span.log_generation => position.next,
        // Without a checkpoint, reading begins at the oldest event that there was at that time.
        None => span.first.min(kept),
        Some(_) => {
            let what = format!("{epoch:?} continued in another log without a report, at {:?}", span.first);
            return Some((Promise::AtLeastOnceInOrder, what));
        }
    };
    (span.first != expected).then(|| {
        let what = format!("{epoch:?} was called with {:?}, expected {expected:?}", span.first);
        (Promise::AtLeastOnceInOrder, what)
    })
}
