//! Starts a pump for each lease, and handles its end.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::ids::HostId;
use ephor_core::lease::{Lease, LeaseToken, ReleaseCause};
use ephor_core::time::Monotonic;
use tokio::sync::watch;

use super::manager::Manager;
use super::ownership_changes::OwnershipReason;
use super::running_host::Slot;
use crate::context::PartitionContext;
use crate::lease_state::LeaseState;
use crate::limits::FAILURES_FORGOTTEN_AFTER;
use crate::processor::CloseReason;
use crate::pump_activity::{PumpActivity, PumpState};
use crate::pump_interface::{Control, Disposition, Drain, Outcome, PumpArgs, PumpEnd};

/// The pause before a partition is claimed again whose pump has panicked.
const PANIC_PAUSE: Duration = Duration::from_secs(5);

impl Manager {
    pub(super) fn start_pump(
        &mut self,
        token: LeaseToken,
        lease: &Lease,
        checkpoint: Option<Checkpoint>,
        until: Monotonic,
        from: Option<HostId>,
        reason: OwnershipReason,
    ) {
        let running = self.running.clone();
        let (partition, epoch, now) = (token.partition, token.epoch, running.now());
        self.epochs.mark_served(partition, epoch);
        self.epochs.observe(partition, epoch);
        // Only the previous owner itself, once it has closed the partition, knows that nobody is at
        // work.
        let unaware = lease.previous_owner.as_ref() != Some(&running.me);
        let after_a_jump = self.fleet_tracker.liveness.former_owner_until(partition, lease.acquired_at, now);
        let after_a_jump = after_a_jump.filter(|_| lease.previous_owner.is_some()).unwrap_or(now);
        let deliver_from = if unaware { (now + lease.takeover_delay).max(after_a_jump) } else { now };
        let state = Arc::new(LeaseState::new(token, until));
        let context = PartitionContext::new(
            state,
            running.store.clone(),
            running.environment.clone(),
            self.hub.log().cloned(),
            checkpoint,
            running.options.checkpoint.spacing,
        );
        let activity = Arc::new(PumpActivity::default());
        let paused = running.status().paused.contains(&partition);
        let (control, receiver) = watch::channel(Control { paused, stop: None });
        let args = PumpArgs {
            services: running.services().clone(),
            context: context.clone(),
            activity: activity.clone(),
            control: receiver,
            origin: self.origin.clone(),
            deliver_from,
        };
        let (pump, ends) = ((running.run_pump)(args), self.end_sender.clone());
        let reporter = running.reporter.clone();
        let task = running.environment.spawn(Box::pin(async move {
            let end = reporter.catch_panics("pump of a partition", pump).await;
            let end = end.unwrap_or(PumpEnd {
                // The store panicked, or the drop of the user's own values did.
                partition,
                epoch,
                opened: true,
                checkpoint_saved: false,
                given_up: true,
                outcome: Outcome::Failed {
                    reason: CloseReason::ProcessorFailed,
                    pause: PANIC_PAUSE,
                    confirmed: false,
                },
            });
            // The manager may be gone already.
            let _ = ends.send(end);
        }));
        let slot = Slot {
            context,
            activity,
            control,
            _task: task,
            since: running.environment.wall(),
            started: now,
            reason,
            over_since: None,
        };
        {
            // It may have been paused or resumed meanwhile. Under one lock with the new slot, so
            // that a later change finds the slot.
            let mut slots = running.slots();
            let paused = running.status().paused.contains(&partition);
            slot.control.send_modify(|control| control.paused = paused);
            // Won by a scan that was in progress when the host was stopped.
            if let Some(until) = *running.stop.borrow() {
                slot.stop(Drain { until, disposition: Disposition::Undecided });
            }
            slots.insert(partition, slot);
        }
        self.announce(partition, epoch, from, Some(running.me.clone()), reason);
    }

    /// Handles a pump that ended.
    pub(super) fn pump_ended(&mut self, end: PumpEnd) {
        let PumpEnd { partition, epoch, opened, outcome, .. } = end;
        let now = self.running.now();
        let slot = self.running.slots().remove(&partition);
        let lived = slot.map_or(Duration::ZERO, |slot| now.since(slot.started));
        let me = self.running.me.clone();
        if opened {
            self.health.recovered();
            self.cooldowns.opened(partition);
        }
        if lived >= FAILURES_FORGOTTEN_AFTER {
            self.cooldowns.forget(partition);
        }
        let (to, reason) = match outcome {
            Outcome::GivenAway { reason: CloseReason::Handover, to, .. } => (to, OwnershipReason::HandedOver),
            Outcome::GivenAway { .. } => (None, OwnershipReason::Released(ReleaseCause::Shutdown)),
            Outcome::Lost { reason } => (None, OwnershipReason::Lost(reason)),
            Outcome::Displaced { epoch: newer, by } => {
                let (reader, rest) = ((newer.unwrap_or(epoch), by), self.running.manager.lease_duration * 2);
                let chance = || self.running.environment.random();
                self.cooldowns.displaced(partition, reader, now, rest, chance);
                (None, OwnershipReason::Lost(CloseReason::Disconnected))
            }
            Outcome::Failed { reason, pause, .. } => {
                let cause = match reason {
                    CloseReason::SourceFailed => ReleaseCause::SourceFailed,
                    _ => ReleaseCause::ProcessorFailed,
                };
                if reason == CloseReason::SourceFailed {
                    // The hub may have been created again or changed: ask it again.
                    self.hub.make_due(now);
                }
                // Without a pause it is the hub that has changed, and no failure of ours. And a
                // host that serves another partition is healthy: then it is this partition that has
                // a problem.
                let ours = !opened || reason == CloseReason::SourceFailed;
                if ours && !pause.is_zero() && !self.serves_any() {
                    self.health.failed(now, self.running.environment.random());
                }
                let is_unopened = !opened && reason != CloseReason::SourceFailed;
                self.cooldowns.failed(partition, now, pause, is_unopened);
                (None, OwnershipReason::Released(cause))
            }
        };
        self.announce(partition, epoch, Some(me), to, reason);
    }

    /// The hub was deleted and created again, and a receiver may have reconnected to the new log by
    /// itself, perhaps in the middle. So everything that started in the old log starts again.
    pub(super) fn end_pumps_of_the_old_log(&self) {
        let until = self.running.now() + self.running.manager.handover_timeout;
        let successor = Some(self.running.me.clone());
        let slots = self.running.slots();
        for slot in slots.values().filter(|slot| slot.context.inner().log.as_ref() != self.hub.log()) {
            slot.stop(Drain { until, disposition: Disposition::Release { successor: successor.clone() } });
        }
    }

    fn serves_any(&self) -> bool {
        let slots = self.running.slots();
        slots.values().any(|slot| match slot.activity.state() {
            PumpState::Running | PumpState::Failing | PumpState::Paused => true,
            PumpState::Waiting
            | PumpState::Opening
            | PumpState::Retrying
            | PumpState::Halted
            | PumpState::Closing => false,
        })
    }
}
