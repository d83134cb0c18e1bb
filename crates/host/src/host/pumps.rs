//! Starts a pump for each lease, and handles its end.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::failure::Backoff;
use ephor_core::ids::HostId;
use ephor_core::lease::{Lease, LeaseToken, ReleaseCause};
use ephor_core::time::Monotonic;
use tokio::sync::watch;

use super::changes::OwnershipReason;
use super::foreign::Foreign;
use super::manager::{Cooldown, Manager};
use super::shared::Slot;
use crate::context::PartitionContext;
use crate::lease_state::LeaseState;
use crate::processor::CloseReason;
use crate::pump::guard::{Control, Disposition, Drain};
use crate::pump::state::PumpState;
use crate::pump::{Outcome, PumpArgs, PumpEnd};

/// The number of times that a partition is claimed back from a foreign reader before it is left
/// alone.
pub(crate) const MAX_FOREIGN_ATTEMPTS: u32 = 5;
/// The backoff before a partition is claimed back from a foreign reader.
pub(crate) const FOREIGN_BACKOFF: Backoff =
    Backoff { first: Duration::from_secs(1), max: Duration::from_secs(8) };
/// The most doublings of the pause after a processor did not open: from 5 to 80 s.
const MAX_OPEN_DOUBLINGS: u32 = 4;
/// The lifetime of a pump after which earlier failures are forgotten.
pub(crate) const FAILURES_FORGOTTEN_AFTER: Duration = Duration::from_secs(60);
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
        let shared = self.shared.clone();
        let (partition, epoch, now) = (token.partition, token.epoch, shared.now());
        self.mark_served(partition, epoch);
        self.observe_epoch(partition, epoch);
        // Only the previous owner itself, once it has closed the partition, knows that nobody is at
        // work.
        let unaware = lease.previous_owner.as_ref() != Some(&shared.me);
        let after_a_jump = self.liveness_tracker.former_owner_until(partition, lease.acquired_at, now);
        let after_a_jump = after_a_jump.filter(|_| lease.previous_owner.is_some()).unwrap_or(now);
        let deliver_from = if unaware { (now + lease.takeover_delay).max(after_a_jump) } else { now };
        let state = Arc::new(LeaseState::new(token, until));
        let context = PartitionContext::new(
            state,
            shared.store.clone(),
            shared.environment.clone(),
            self.log.clone(),
            checkpoint,
            shared.options.checkpoint.spacing,
        );
        let paused = shared.status().paused.contains(&partition);
        let (control, receiver) = watch::channel(Control { paused, stop: None });
        let args = PumpArgs {
            shared: shared.clone(),
            context: context.clone(),
            control: receiver,
            origin: self.origin.clone(),
            deliver_from,
        };
        let (pump, ends) = ((shared.run_pump)(args), self.end_sender.clone());
        let reporter = shared.reporter.clone();
        let task = shared.environment.spawn(Box::pin(async move {
            let end = reporter.catch_panics("pump of a partition", pump).await;
            let end = end.unwrap_or(PumpEnd {
                // The store panicked, or the drop of the user's own values did.
                partition,
                epoch,
                opened: true,
                settled: false,
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
            control,
            _task: task,
            since: shared.environment.wall(),
            started: now,
            reason,
            over_since: None,
        };
        {
            // It may have been paused or resumed meanwhile. Under one lock with the new slot, so
            // that a later change finds the slot.
            let mut slots = shared.slots();
            let paused = shared.status().paused.contains(&partition);
            slot.control.send_modify(|control| control.paused = paused);
            // Won by a scan that was in progress when the host was stopped.
            if let Some(until) = *shared.stop.borrow() {
                slot.stop(Drain { until, disposition: Disposition::Undecided });
            }
            slots.insert(partition, slot);
        }
        self.announce(partition, epoch, from, Some(shared.me.clone()), reason);
    }

    /// Handles a pump that ended.
    pub(super) fn pump_ended(&mut self, end: PumpEnd) {
        let PumpEnd { partition, epoch, opened, outcome, .. } = end;
        let now = self.shared.now();
        let slot = self.shared.slots().remove(&partition);
        let lived = slot.map_or(Duration::ZERO, |slot| now.since(slot.started));
        let me = self.shared.me.clone();
        if opened {
            self.health.recovered();
            if let Some(cooldown) = self.cooldowns.get_mut(&partition) {
                cooldown.unopened = 0;
            }
        }
        if lived >= FAILURES_FORGOTTEN_AFTER {
            self.cooldowns.remove(&partition);
        }
        let (to, reason) = match outcome {
            Outcome::GivenAway { reason: CloseReason::Handover, to, .. } => (to, OwnershipReason::HandedOver),
            Outcome::GivenAway { .. } => (None, OwnershipReason::Released(ReleaseCause::Shutdown)),
            Outcome::Lost { reason } => (None, OwnershipReason::Lost(reason)),
            Outcome::Displaced { epoch: newer, by } => {
                let attempts = self
                    .cooldowns
                    .get(&partition)
                    .and_then(|cooldown| cooldown.foreign.as_ref())
                    .map_or(1, |foreign| foreign.attempts + 1);
                let wait = if attempts <= MAX_FOREIGN_ATTEMPTS {
                    FOREIGN_BACKOFF.delay(attempts, self.shared.environment.random())
                } else {
                    self.shared.manager.lease_duration * 2
                };
                let newer = newer.unwrap_or(epoch);
                let foreign = Some(Foreign { epoch: newer, by, attempts, reported: false });
                self.cooldowns.insert(partition, Cooldown { until: now + wait, foreign, unopened: 0 });
                (None, OwnershipReason::Lost(CloseReason::Disconnected))
            }
            Outcome::Failed { reason, pause, .. } => {
                let cause = match reason {
                    CloseReason::SourceFailed => ReleaseCause::SourceFailed,
                    _ => ReleaseCause::ProcessorFailed,
                };
                if reason == CloseReason::SourceFailed {
                    // The hub may have been created again or changed: ask it again.
                    self.refresh_at = now;
                }
                // Without a pause it is the hub that has changed, and no failure of ours. And a
                // host that serves another partition is healthy: then it is this partition that has
                // a problem.
                let ours = !opened || reason == CloseReason::SourceFailed;
                if ours && !pause.is_zero() && !self.serves_any() {
                    self.health.failed(now, self.shared.environment.random());
                }
                let unopened = if opened || reason == CloseReason::SourceFailed {
                    0
                } else {
                    self.cooldowns.get(&partition).map_or(0, |cooldown| cooldown.unopened) + 1
                };
                // Longer each time, until another host finds it free for too long and tries it.
                let until = now + pause * 2_u32.pow(unopened.saturating_sub(1).min(MAX_OPEN_DOUBLINGS));
                self.cooldowns.insert(partition, Cooldown { until, foreign: None, unopened });
                (None, OwnershipReason::Released(cause))
            }
        };
        self.announce(partition, epoch, Some(me), to, reason);
    }

    fn serves_any(&self) -> bool {
        let slots = self.shared.slots();
        slots.values().any(|slot| {
            matches!(
                slot.context.inner().lease.pump_state(),
                PumpState::Running | PumpState::Failing | PumpState::Paused
            )
        })
    }
}
