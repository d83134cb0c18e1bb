//! Checks how calls of user code end and how the host reacts: limits, failures, skips, and its reports about
//! them.

use std::time::Duration;

use ephor::{Checkpointed, CloseReason, FailurePolicy, PartitionError, PartitionId, SequenceNumber};
use ephor_core::lease::LeaseToken;

use super::partition_facts::{DeferredCheckpoint, FailingBatch, PartitionFacts};
use super::store_side::next_of;
use super::{Caller, Check, Exemption, Judge, JudgeState, Promise, Span};
use crate::executor::Machine;

/// A call ends at most this long after its limit.
const LIMIT_GRACE: Duration = Duration::from_secs(1);
/// A call that is blocked for this long beyond its limit has been noticed, and no renewal for it is in
/// flight.
const STUCK_GRACE: Duration = Duration::from_secs(20);
/// A write sent over a bad connection to the store is carried out within this time, or never.
const MAX_WRITE_DELAY: Duration = Duration::from_secs(90);
/// No planned change of owner cancels a call that is younger than this.
const DRAIN_WAIT: Duration = Duration::from_secs(5);
/// A machine without faults for this long is healthy: twice the time of a handover.
const HEALTHY_AFTER: Duration = Duration::from_secs(60);
/// A host whose store hung at its stop has noticed and made up for it within this time, and the others have
/// read it.
const HANG_SETTLES: Duration = Duration::from_secs(12);
/// A deferred checkpoint is written at most this long after it is due.
const DEFERRED_GRACE: Duration = Duration::from_secs(3);
/// A batch that times out this often in a row is to be given to another host.
const MAX_TIMEOUTS: u32 = 3;

/// The receiver of a report about a failed call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ReportTarget {
    /// The host's error handler.
    Handler,
    /// The processor.
    Processor,
}

impl Judge {
    /// Notes that a processor is open, and must be closed one day.
    pub fn serves(&self, caller: &Caller) {
        let mut state = self.state();
        let facts = state.partitions.entry(caller.partition).or_default();
        facts.serving.insert(caller.epoch, caller.host.clone());
    }

    /// Notes that the call in flight panics. Its processor must not be used again, not even closed.
    pub fn panics(&self, caller: &Caller, span: Option<Span>) {
        let mut state = self.state();
        let facts = state.partitions.entry(caller.partition).or_default();
        facts.serving.remove(&caller.epoch);
        facts.failing_batch.count_failure(caller, span);
        facts.failing_batch.timeouts = 0;
    }

    /// Notes that a call returned an error.
    pub fn failed(&self, caller: &Caller, span: Option<Span>) {
        let mut state = self.state();
        let facts = state.partitions.entry(caller.partition).or_default();
        facts.failing_batch.count_failure(caller, span);
        facts.failing_batch.timeouts = 0;
    }

    /// Checks a call that was dropped before it returned: it has reached its limit, or it had at least 5 s
    /// and, in a stop, the promised time (`Judge::cut_short_by_a_stop`). A host whose process is gone is not
    /// checked.
    pub fn dropped(&self, caller: &Caller, span: Option<Span>) {
        let violation = {
            let mut state = self.state();
            let Some(host_facts) = state.hosts.get(&caller.host).filter(|host_facts| !host_facts.dead) else {
                return;
            };
            let limit = host_facts.config.process_timeout;
            let stop_is_over = host_facts.stopping.is_some() && self.stops_in_time(host_facts).is_none();
            let stop_is_over = stop_is_over || host_facts.stopped.is_some();
            let healthy = self.is_healthy(&state, caller.machine);
            let own_time = self.own_time(caller.machine);
            let cut_short = self.cut_short_by_a_stop(&state, caller, span);
            let facts = state.partitions.entry(caller.partition).or_default();
            let Some(call) = facts.call.filter(|call| call.machine == caller.machine) else {
                // Another host, which had stood still, made a call meanwhile: the age of this one is unknown.
                if caller.epoch == facts.epoch {
                    facts.failing_batch.count_failure(caller, span);
                }
                return;
            };
            let age = own_time.since(call.own_time);
            if limit.is_some_and(|limit| age >= limit) {
                facts.failing_batch.count_failure(caller, span);
                facts.failing_batch.timeouts += 1;
                None
            } else {
                let ours = facts.epoch == caller.epoch && facts.owner.as_ref() == Some(&caller.host);
                let exempt = self.is_exempt(
                    Check::CallCancelledEarly,
                    [
                        (Exemption::PartitionLost, !ours),
                        (Exemption::StopIsOver, stop_is_over),
                        (Exemption::Unhealthy, !healthy),
                    ],
                );
                let too_young = (!exempt && age < DRAIN_WAIT)
                    .then(|| format!("the host cancelled a call after {age:?} without a reason"));
                cut_short.or(too_young)
            }
        };
        if let Some(what) = violation {
            self.report_violation(Promise::StopMeansStopped, Some(caller.partition), what);
        }
    }

    /// Checks a `close` that was dropped before it returned: a healthy host that closes in order to give a
    /// partition away keeps its lease until it has closed. `Judge::ran_out_although_healthy` lists the
    /// exemptions.
    pub fn close_was_dropped(&self, caller: &Caller) {
        let violation = {
            let state = self.state();
            let facts = state.partitions.get(&caller.partition);
            let closing_to_give_away =
                facts.is_some_and(|facts| facts.closing_to_give_away == Some(caller.epoch));
            let over = closing_to_give_away
                .then(|| self.ran_out_although_healthy(&state, caller.partition, &caller.host, caller.epoch));
            over.flatten()
        };
        if let Some((promise, what)) = violation {
            self.report_violation(
                promise,
                Some(caller.partition),
                format!("the host dropped a close: {what}"),
            );
        }
    }

    /// Notes an error that the host reports to a processor.
    pub fn note_error_report(&self, caller: &Caller, error: &PartitionError) {
        match error {
            PartitionError::Processing { .. } => {
                self.failure_was_reported(caller.partition, ReportTarget::Processor)
            }
            PartitionError::Skipped { sequence, .. } => self.skipped(caller, *sequence),
            PartitionError::Source { .. }
            | PartitionError::PositionGone { .. }
            | PartitionError::Gaps { .. }
            | PartitionError::Checkpoint { .. } => {}
            unknown => self.does_not_know(unknown),
        }
    }

    /// Notes that a failed call was reported to this receiver.
    pub fn failure_was_reported(&self, partition: PartitionId, to: ReportTarget) {
        let mut state = self.state();
        let facts = state.partitions.entry(partition).or_default();
        facts.failing_batch.unreported_to.retain(|target| *target != to);
    }

    /// Returns a violation if an earlier failure was not reported before the next call, or if a batch that
    /// keeps timing out is tried again.
    pub(super) fn after_failure(
        &self,
        state: &mut JudgeState,
        caller: &Caller,
        span: Option<Span>,
    ) -> Option<(Promise, String)> {
        let policy = state.hosts.get(&caller.host)?.config.failure;
        let failing_batch = &mut state.partitions.entry(caller.partition).or_default().failing_batch;
        if !failing_batch.is_of(caller) {
            return None;
        }
        if let Some(target) = std::mem::take(&mut failing_batch.unreported_to).first() {
            let what =
                format!("the host did not report a failed call to the {target:?} before the next call");
            return Some((Promise::LoopNeverDies, what));
        }
        let for_ever = match policy {
            FailurePolicy::Retry(_) => true,
            FailurePolicy::SkipAfter { .. } | FailurePolicy::Close { .. } => false,
            unknown => return Some((Promise::LoopNeverDies, format!("the judge does not know {unknown:?}"))),
        };
        (for_ever && failing_batch.span == span && failing_batch.timeouts >= MAX_TIMEOUTS).then(|| {
            let what = format!("the host retries a batch that timed out {} times", failing_batch.timeouts);
            (Promise::LoopNeverDies, what)
        })
    }

    /// Returns a violation if a call goes on beyond its limit and 1 s.
    pub(super) fn beyond_its_limit(&self, state: &JudgeState, caller: &Caller) -> Option<(Promise, String)> {
        let limit = state.hosts.get(&caller.host)?.config.process_timeout?;
        let call = state.partitions.get(&caller.partition)?.call?;
        let same = (call.machine, call.epoch) == (caller.machine, caller.epoch);
        let age = self.own_time(caller.machine).since(call.own_time);
        let time_fault = !state.time_passed_normally(caller.machine, call.begun);
        let exempt = self.is_exempt(Check::CallLimit, [(Exemption::TimeFault, time_fault)]);
        (same && age > limit + LIMIT_GRACE && !exempt).then(|| {
            let what = format!("a call has run for {age:?}, longer than its limit of {limit:?}");
            (Promise::LoopNeverDies, what)
        })
    }

    /// Returns a violation if a lease is renewed although its call has blocked its thread far (20 s) beyond
    /// its limit. Such a lease must run out, so that another host can take over.
    pub(super) fn renewed_while_stuck(
        &self,
        state: &JudgeState,
        token: &LeaseToken,
    ) -> Option<(Promise, String)> {
        let host_facts = state.hosts.get(&token.owner)?;
        let limit = host_facts.config.process_timeout?;
        let call = state.partitions.get(&token.partition)?.call?;
        let same = (call.machine, call.epoch) == (host_facts.machine, token.epoch);
        let (now, age) = (self.handle.now(), self.own_time(host_facts.machine).since(call.own_time));
        let machine_facts = state.machines.get(&host_facts.machine).copied().unwrap_or_default();
        let fault = machine_facts.fault_until.max(machine_facts.time_fault_until) > call.blocked_until;
        // A host that has slept checks twice before it calls anything stuck.
        let woke = machine_facts.woke_at.is_some_and(|woke| now.since(woke) <= STUCK_GRACE);
        // A renewal from before the call may land late.
        let reached = state.reached_the_store(host_facts.machine, call.begun.before(MAX_WRITE_DELAY));
        let exempt = self.is_exempt(
            Check::RenewedWhileStuck,
            [
                (Exemption::MachineFault, fault),
                (Exemption::AwakeTooLate, woke),
                (Exemption::StoreUnreached, !reached),
            ],
        );
        (same && !exempt && now < call.blocked_until && age > limit + STUCK_GRACE).then(|| {
            let what = format!(
                "a lease was renewed although its call has blocked for {age:?}, and its limit is {limit:?}"
            );
            (Promise::LoopNeverDies, what)
        })
    }

    /// Returns what is wrong with a skipped event: it was not the next one, the policy skips nothing, or the
    /// event did not fail by itself as often as the policy says.
    pub(super) fn wrong_skip(
        &self,
        state: &JudgeState,
        caller: &Caller,
        sequence: SequenceNumber,
    ) -> Option<String> {
        let policy = state.hosts.get(&caller.host)?.config.failure;
        let facts = state.partitions.get(&caller.partition)?;
        // An owner that has lost the partition without knowing it skips nothing for others.
        let lost = facts.epoch != caller.epoch;
        if self.is_exempt(Check::SkippedEvent, [(Exemption::PartitionLost, lost)]) {
            return None;
        }
        let failing_batch = &facts.failing_batch;
        let alone = failing_batch.span.is_some_and(|span| (span.first, span.last) == (sequence, sequence));
        let expected = facts.read_progress.get(&caller.epoch).and_then(|progress| progress.next);
        if expected.is_some_and(|expected| expected.next != sequence) {
            return Some(format!("the host skipped {sequence:?}, but {expected:?} was next"));
        }
        let FailurePolicy::SkipAfter { attempts, .. } = policy else {
            return Some(format!("the host skipped {sequence:?}, but the failure policy skips nothing"));
        };
        let failures = if failing_batch.is_of(caller) && alone { failing_batch.failures } else { 0 };
        (failures < attempts).then(|| {
            format!("the host skipped {sequence:?} after {failures} failures of its own, not {attempts}")
        })
    }

    /// Checks the host's answer to a manual checkpoint up to this event.
    pub fn checkpoint_was_answered(&self, caller: &Caller, next: SequenceNumber, answer: &Checkpointed) {
        let violation = {
            let mut state = self.state();
            let now = self.handle.now();
            let healthy = self.is_healthy(&state, caller.machine);
            let present = state.log_generation();
            let facts = state.partitions.entry(caller.partition).or_default();
            let ours = facts.epoch == caller.epoch && facts.owner.as_ref() == Some(&caller.host);
            let exempt = self.is_exempt(
                Check::CheckpointAnswer,
                [(Exemption::PartitionLost, !ours), (Exemption::Unhealthy, !healthy)],
            );
            match answer {
                Checkpointed::Saved(checkpoint) | Checkpointed::Unchanged(checkpoint) => {
                    let said = next_of(&checkpoint.position, facts);
                    let stored = facts.known_saved.filter(|position| position.log_generation == present);
                    let behind = stored.is_some_and(|stored| stored.next < said);
                    (!exempt && behind).then(|| {
                        format!("the host reported a checkpoint up to {said:?}, but the store has {stored:?}")
                    })
                }
                Checkpointed::Deferred => {
                    let progress = facts.read_progress.entry(caller.epoch).or_default();
                    if progress.deferred.is_none_or(|deferred| deferred.next < next) {
                        let since = progress.deferred.map_or(now, |deferred| deferred.since);
                        progress.deferred = Some(DeferredCheckpoint { next, since });
                    }
                    None
                }
                Checkpointed::Refused => {
                    (!exempt).then(|| "the host refused a checkpoint of a healthy owner".to_owned())
                }
                Checkpointed::Nothing => None,
                unknown => Some(format!("the judge does not know {unknown:?}")),
            }
        };
        if let Some(what) = violation {
            self.report_violation(Promise::AtLeastOnceInOrder, Some(caller.partition), what);
        }
    }

    /// Returns a violation if a deferred checkpoint is still not written 3 s after it is due.
    pub(super) fn deferred_checkpoint_is_overdue(
        &self,
        state: &JudgeState,
        caller: &Caller,
    ) -> Option<(Promise, String)> {
        let spacing = state.hosts.get(&caller.host)?.config.checkpoint.spacing;
        let deferred = state.partitions.get(&caller.partition)?.read_progress.get(&caller.epoch)?.deferred?;
        let age = self.handle.now().since(deferred.since);
        let fault = !state.free_of_faults(caller.machine, deferred.since);
        let exempt = self.is_exempt(Check::DeferredCheckpointInTime, [(Exemption::MachineFault, fault)]);
        (age > spacing + DEFERRED_GRACE && !exempt).then(|| {
            let what = format!("a deferred checkpoint has waited for {age:?} without a reason");
            (Promise::AtLeastOnceInOrder, what)
        })
    }

    /// Checks that the reason for which a processor is closed is true, and that it was cancelled before if
    /// its lease is lost.
    pub fn check_close_reason(&self, caller: &Caller, reason: CloseReason, cancelled: bool) {
        let violation = {
            let mut state = self.state();
            let restored = state.restored_at.is_some();
            let sought = reason == CloseReason::Seek;
            let exempt =
                sought && self.is_exempt(Check::CloseReason, [(Exemption::StoreWasRestored, restored)]);
            let lost = (reason == CloseReason::LeaseLost)
                .then(|| self.ran_out_although_healthy(&state, caller.partition, &caller.host, caller.epoch));
            let facts = state.partitions.entry(caller.partition).or_default();
            facts.serving.remove(&caller.epoch);
            facts.closing_to_give_away = reason.still_owner().then_some(caller.epoch);
            // A partition that another host has taken and given back already looks the same here.
            let moved = facts.last_seek_epoch > caller.epoch || facts.owner.is_none();
            let stop = |what: &str| Some((Promise::StopMeansStopped, what.to_owned()));
            if !reason.still_owner() && !cancelled {
                stop("the host closed a processor as lost without cancelling it first")
            } else if sought && !moved && !exempt {
                stop("the host closed a processor because of a seek, but nobody moved the position")
            } else {
                lost.flatten()
            }
        };
        if let Some((promise, what)) = violation {
            self.report_violation(promise, Some(caller.partition), what);
        }
    }

    /// True if this machine is healthy: no fault affected it, and the store was good for it, for 60 s
    /// (`HEALTHY_AFTER`), and the store was not restored within 60 s. If the store only hung at a stop, 12 s
    /// are enough (`HANG_SETTLES`).
    pub(super) fn is_healthy(&self, state: &JudgeState, machine: Machine) -> bool {
        let now = self.handle.now();
        self.is_healthy_but_for_hangs(state, machine)
            && state.hung_until(machine).is_none_or(|until| until + HANG_SETTLES <= now)
    }

    /// The same, but the store may have hung at a stop until now.
    pub(super) fn is_healthy_but_for_hangs(&self, state: &JudgeState, machine: Machine) -> bool {
        let now = self.handle.now();
        state.free_of_faults_but_hangs(machine, now.before(HEALTHY_AFTER)) && !state.in_restore_grace(now)
    }
}

impl FailingBatch {
    /// Counts one more failure of this batch, which is not yet reported.
    fn count_failure(&mut self, caller: &Caller, span: Option<Span>) {
        if !self.is_of(caller) || self.span != span {
            let of = Some((caller.host.clone(), caller.epoch));
            *self = Self { of, span, ..Self::default() };
        }
        self.failures += 1;
        self.unreported_to = vec![ReportTarget::Handler, ReportTarget::Processor];
    }
}

impl FailingBatch {
    fn is_of(&self, caller: &Caller) -> bool {
        self.of.as_ref().is_some_and(|(host, epoch)| (host, *epoch) == (&caller.host, caller.epoch))
    }
}

impl PartitionFacts {
    /// Processors that were opened and not closed although their epoch is over: a newer one has begun, or
    /// nobody owns the partition. Processors that panicked are not among them.
    pub(super) fn left_open(&self) -> impl Iterator<Item = (&ephor::Epoch, &ephor::HostId)> {
        self.serving.iter().filter(|(epoch, _)| **epoch != self.epoch || self.owner.is_none())
    }
}
