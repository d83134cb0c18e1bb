//! Checks the operations that the store executed: changes of ownership, renewals and checkpoints.

use std::time::Duration;

use ephor::memory::StoreEvent;
use ephor::{Epoch, HostId, PartitionId, SequenceNumber, StartPosition};
use ephor_core::checkpoint::{Checkpoint, Position};
use ephor_core::history::{ChangeReason, OwnershipChange};
use ephor_core::lease::{ClaimCause, LeaseToken, ReleaseCause};

use super::hub_side::used_up_epochs;
use super::partition_facts::{Grant, LogPosition, PartitionFacts, ReadProgress};
use super::{Check, Exemption, Judge, JudgeState, Promise};
use crate::executor::Machine;

impl Judge {
    /// Checks a step that the store carried out.
    pub fn check_store_step(&self, event: &StoreEvent) {
        match event {
            StoreEvent::Renewed { token } => {
                let LeaseToken { partition, owner, epoch } = token;
                self.history.append(format_args!("{} renews {partition:?} in {epoch:?}", owner.name));
                let grant = self.grant(&token.owner);
                let mut state = self.state();
                let facts = state.partitions.entry(token.partition).or_default();
                facts.granted.extend(grant.map(|(machine, grant)| ((token.epoch, machine), grant)));
                let violation = self.renewed_while_stuck(&state, token);
                drop(state);
                if let Some((promise, what)) = violation {
                    self.report_violation(promise, Some(token.partition), what);
                }
            }
            StoreEvent::Saved { token, checkpoint } => self.saved(token, checkpoint),
            StoreEvent::Changed { change, checkpoint_saved } => {
                self.ownership_changed(change, *checkpoint_saved)
            }
        }
    }

    /// Notes that an operator is about to move a partition's position.
    pub fn note_expected_seek(&self, partition: PartitionId, next: SequenceNumber) {
        self.state().partitions.entry(partition).or_default().expected_seek = Some(next);
    }

    /// A grant of a lease from now on, and the machine of its owner.
    fn grant(&self, owner: &HostId) -> Option<(Machine, Grant)> {
        let machine = self.state().hosts.get(owner)?.machine;
        Some((machine, Grant { at: self.handle.now(), own_time: self.own_time(machine) }))
    }

    fn saved(&self, token: &LeaseToken, checkpoint: &Checkpoint) {
        let partition = token.partition;
        self.history.append(format_args!(
            "{} saves {partition:?} at {:?} in {:?}",
            token.owner.name, checkpoint.position, token.epoch
        ));
        let mut violations = vec![];
        {
            let mut state = self.state();
            state.figures.saves += 1;
            let machine = state.hosts.get(&token.owner).map(|host_facts| host_facts.machine);
            let healthy = machine.is_some_and(|machine| self.is_healthy(&state, machine));
            let log_generation = state.log_generation_of(checkpoint);
            let present = state.log_generation();
            let facts = state.partitions.entry(partition).or_default();
            let next = next_of(&checkpoint.position, facts);
            if token.epoch != facts.epoch {
                let what = format!("a save in {:?} was accepted after {:?} began", token.epoch, facts.epoch);
                violations.push((Promise::OneOwner, what));
            }
            if let Some(old) =
                facts.stored_position.filter(|old| (log_generation, next) < (old.log_generation, old.next))
            {
                let what = format!("the checkpoint moved back from {:?} to {next:?}", old.next);
                violations.push((Promise::CheckpointsNeverMoveBack, what));
            }
            let initially_there = partition.0 < self.initial_partitions;
            let begins =
                facts.stored_position.is_none() && self.initial == StartPosition::Latest && initially_there;
            let goes_on = facts
                .stored_position
                .is_none_or(|old| (log_generation, next) > (old.log_generation, old.next));
            let close_failed = facts.failed_to_close(&token.owner, token.epoch);
            let progress = facts.read_progress.entry(token.epoch).or_default();
            progress.unsaved = None;
            let deferred = progress.deferred.take_if(|deferred| deferred.next <= next);
            if let Some(later) = &mut progress.deferred {
                // A checkpoint that was asked for meanwhile is due next.
                later.since = self.handle.now();
            }
            let exempt = close_failed
                && self.is_exempt(Check::SavedAfterFailedClose, [(Exemption::Unhealthy, !healthy)]);
            if close_failed && !exempt && deferred.is_none() && goes_on {
                let what =
                    format!("a checkpoint up to {next:?} was written although the processor did not close");
                violations.push((Promise::AtLeastOnceInOrder, what));
            }
            // The checkpoints of other SDKs cannot express a start position: there, a start is stored as if
            // it had been reached. A save of events finished before the move may still be in flight; it is
            // not ahead of them.
            let ahead =
                progress.next.is_none_or(|reads| reads.log_generation != log_generation || next > reads.next);
            let stored_as_reached = self.shared_with_other_sdks && ((progress.moving && ahead) || begins);
            // A retry of the same save may land late.
            let repeated = facts.stored_position == Some(LogPosition { log_generation, next });
            if (matches!(checkpoint.position, Position::Start(_)) && !repeated) || stored_as_reached {
                progress.next = Some(LogPosition { log_generation, next });
                if std::mem::take(&mut progress.moving) || begins {
                    facts.excuse_before(next);
                }
            }
            if log_generation == present {
                let from = facts
                    .stored_position
                    .filter(|old| old.log_generation == log_generation)
                    .map_or(SequenceNumber(0), |old| old.next);
                let from = from.max(facts.oldest_kept);
                let unfinished =
                    |event: &SequenceNumber| !facts.done.contains(event) && !facts.is_gone(*event);
                let missing = (from.0..next.0).map(SequenceNumber).find(unfinished);
                // The owner from before the restore does not know of the seek or of the other owner.
                let reissued = facts.reissued.contains(&token.epoch);
                if let Some(missing) = missing
                    && !self.is_exempt(Check::CoveredByCheckpoint, [(Exemption::EpochReissued, reissued)])
                {
                    let what =
                        format!("a checkpoint up to {next:?} covers {missing:?}, which nobody finished");
                    violations.push((Promise::AtLeastOnceInOrder, what));
                }
            }
            facts.stored_position = Some(LogPosition { log_generation, next });
            facts.known_saved = facts.stored_position;
        }
        for (promise, what) in violations {
            self.report_violation(promise, Some(partition), what);
        }
    }

    fn ownership_changed(&self, change: &OwnershipChange, checkpoint_saved: bool) {
        let name = |host: &Option<HostId>| host.as_ref().map_or("nobody".into(), ToString::to_string);
        let partition = change.partition;
        self.history.append(format_args!(
            "{partition:?} goes from {} to {} in {:?}: {}{}",
            name(&change.from),
            name(&change.to),
            change.epoch,
            change.reason,
            if checkpoint_saved { ", saved" } else { "" }
        ));
        let grant = change.to.as_ref().and_then(|owner| self.grant(owner));
        let mut violations = vec![];
        {
            let mut state = self.state();
            state.last_change = self.handle.now();
            *state.figures.changes.entry(reason_name(&change.reason)).or_default() += 1;
            let released = matches!(change.reason, ChangeReason::Released(_));
            let given = released || change.reason == ChangeReason::HandedOver;
            state.figures.unsaved += u64::from(given && !checkpoint_saved);
            if change.reason == ChangeReason::Claimed(ClaimCause::Expired) {
                violations.extend(self.taken_too_early(&state, change));
                violations.extend(self.expired_although_healthy(&state, change));
            }
            if given && !checkpoint_saved {
                violations.extend(self.unsaved_although_healthy(&state, change));
            }
            violations.extend(used_up_epochs(change));
            if change.reason == ChangeReason::Claimed(ClaimCause::AboveForeignReader) {
                violations.extend(self.not_above_foreign_reader(&state, change));
            }
            if change.reason == ChangeReason::Claimed(ClaimCause::Unresponsive) {
                violations.extend(self.stolen_from_healthy_owner(&state, change));
                violations.extend(self.stolen_against_the_answer(&state, change));
            }
            let present = state.log_generation();
            let restore_grace = state.in_restore_grace(self.handle.now());
            let facts = state.partitions.entry(partition).or_default();
            let says_saved = given && checkpoint_saved;
            if says_saved
                && !self.is_exempt(Check::SavedAsGivenAway, [(Exemption::StoreRestored, restore_grace)])
            {
                violations.extend(checkpoint_behind(facts));
            }
            // A partition that was released because nobody served it may be saved all the same.
            let reported = given && change.reason != ChangeReason::Released(ReleaseCause::Unserved);
            facts.last_given_away =
                change.from.clone().filter(|_| reported).map(|from| (from, checkpoint_saved));
            if !released {
                if change.epoch <= facts.epoch {
                    let what = format!("the epoch went from {:?} to {:?}", facts.epoch, change.epoch);
                    violations.push((Promise::OneOwner, what));
                }
                facts.epoch = facts.epoch.max(change.epoch);
                if matches!(change.reason, ChangeReason::Seek { .. }) {
                    carry_out_seek(facts, present, change.epoch);
                }
                let machine = grant.map(|(machine, _)| machine);
                let to_another =
                    |(epoch, of): &(Epoch, Machine)| *epoch == change.epoch && Some(*of) != machine;
                if facts.granted.keys().any(to_another) {
                    facts.reissued.insert(change.epoch);
                }
                let next = facts.stored_position;
                facts.known_saved = next;
                facts.read_progress.insert(change.epoch, ReadProgress { next, ..ReadProgress::default() });
                facts.granted.extend(grant.map(|(machine, grant)| ((change.epoch, machine), grant)));
            }
            facts.owner = change.to.clone();
        }
        for (promise, what) in violations {
            self.report_violation(promise, Some(partition), what);
        }
    }

    /// Returns a violation if a lease is claimed as expired before it is over.
    ///
    /// Half a lease is enough if the store's clock was set after the last renewal.
    fn taken_too_early(&self, state: &JudgeState, change: &OwnershipChange) -> Option<(Promise, String)> {
        let now = self.handle.now();
        let facts = state.partitions.get(&change.partition)?;
        let owner = state.hosts.get(change.from.as_ref()?)?;
        let lease = owner.config.lease;
        let granted = facts.grant(facts.epoch, owner.machine)?.at;
        let age = now.since(granted);
        // A host that began to watch after the store's clock was set waits for half a lease without a
        // renewal.
        let half = state.store_set_at.is_some_and(|set| set >= granted);
        let lasts = if half { lease / 2 } else { lease };
        // Clocks may run two percent fast, and the store's clock counts whole milliseconds.
        let least = lasts.mul_f64(0.95).saturating_sub(Duration::from_millis(100));
        // A restored store assigns its version numbers again: a taker that read nothing meanwhile may take a
        // new version for the one that it knows.
        let taker = state.hosts.get(change.to.as_ref()?)?.machine;
        let unaware = state.restored_at.is_some_and(|at| !state.free_of_faults(taker, at));
        // Both clocks that it could compare jumped since the renewal: no host could know better.
        let both = half && !state.time_passed_normally(taker, granted);
        let exempt = self.is_exempt(
            Check::ClaimedTooEarly,
            [
                (Exemption::StoreRestored, state.in_restore_grace(now)),
                (Exemption::StoreWasRestored, unaware),
                (Exemption::BothClocksJumped, both),
            ],
        );
        (age < least && !exempt).then(|| {
            let what = format!("claimed as expired {age:?} after it was granted, but it lasts {lease:?}");
            (Promise::OneOwner, what)
        })
    }

    /// Returns a violation if a healthy host gives a partition away with finished events that are not saved,
    /// although the policy asks for a checkpoint on close, or with a deferred checkpoint that is not written.
    fn unsaved_although_healthy(
        &self,
        state: &JudgeState,
        change: &OwnershipChange,
    ) -> Option<(Promise, String)> {
        let from = change.from.as_ref()?;
        let host_facts = state.hosts.get(from)?;
        let facts = state.partitions.get(&change.partition)?;
        let unserved = change.reason == ChangeReason::Released(ReleaseCause::Unserved);
        let close_failed = facts.failed_to_close(from, facts.epoch);
        let asked = host_facts.config.checkpoint.on_close && !close_failed;
        let progress = facts.read_progress.get(&facts.epoch);
        let unsaved = progress.is_some_and(|progress| progress.unsaved.is_some());
        let deferred = progress.is_some_and(|progress| progress.deferred.is_some());
        let healthy = self.is_healthy(state, host_facts.machine);
        let exempt = self.is_exempt(
            Check::GivenAwayUnsaved,
            [
                (Exemption::Unserved, unserved),
                (Exemption::Unhealthy, !healthy),
                (Exemption::CloseFailed, close_failed && !deferred),
            ],
        );
        ((asked && unsaved || deferred) && !exempt).then(|| {
            let what =
                "a healthy host gave a partition away with finished events that are not saved".to_owned();
            (Promise::StopMeansStopped, what)
        })
    }
}

impl JudgeState {
    /// The generation of the log that a checkpoint belongs to.
    fn log_generation_of(&self, checkpoint: &Checkpoint) -> usize {
        let named = checkpoint.log.as_ref();
        self.logs.iter().rposition(|log| named.is_none() || log.as_ref() == named).unwrap_or_default()
    }
}

/// The next event to read after this position.
pub(super) fn next_of(position: &Position, facts: &PartitionFacts) -> SequenceNumber {
    match position.start() {
        StartPosition::Sequence { number, inclusive } => {
            if inclusive {
                number
            } else {
                number.next()
            }
        }
        _ => facts.oldest_kept,
    }
}

/// Returns a violation if a partition was given away as saved with finished events that are not saved.
fn checkpoint_behind(facts: &PartitionFacts) -> Option<(Promise, String)> {
    let finished = facts.read_progress.get(&facts.epoch)?.next?;
    let saved = facts
        .known_saved
        .filter(|saved| saved.log_generation == finished.log_generation)
        .map_or(SequenceNumber(0), |it| it.next);
    let began = facts.read_progress.get(&facts.epoch)?.unsaved.is_some();
    (began && saved < finished.next).then(|| {
        let (finished, what) = (finished.next, "given away as saved");
        (
            Promise::StopMeansStopped,
            format!("{what}, finished up to {finished:?} but saved only up to {saved:?}"),
        )
    })
}

/// Carries out an operator's seek: events after the new position must be processed again.
fn carry_out_seek(facts: &mut PartitionFacts, log_generation: usize, epoch: Epoch) {
    let Some(next) = facts.expected_seek.take() else { return };
    facts.stored_position = Some(LogPosition { log_generation, next });
    facts.seek(next, epoch);
}

/// The name of a reason in the table of changes.
fn reason_name(reason: &ChangeReason) -> String {
    match reason {
        ChangeReason::Seek { .. } => "sought".into(),
        other => other.to_string(),
    }
}
