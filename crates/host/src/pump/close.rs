//! Ends a pump: closes the processor, writes the final checkpoint, and releases or hands over the
//! partition.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::ids::HostId;
use ephor_core::lease::{ReleaseCause, ReleaseRequest, TransferRequest};
use ephor_core::store::GiveUpOutcome;
use ephor_core::time::Monotonic;
use futures_util::FutureExt;

use super::interrupts::{Interrupt, InterruptMask};
use super::open::panicked;
use super::{Ending, Pump};
use crate::context::{Checkpointed, PartitionContext};
use crate::error::{HostError, ProcessorError};
use crate::host_services::HostServices;
use crate::lease_state::loss_reason;
use crate::limits::CLOSE_GRACE;
use crate::processor::{CloseReason, EventProcessor};
use crate::pump_activity::PumpState;
use crate::pump_interface::{Disposition, Outcome, PumpEnd};

/// The pause between attempts at the final checkpoint.
const FINAL_CHECKPOINT_RETRY: Duration = Duration::from_millis(500);

impl<P: EventProcessor> Pump<P> {
    /// Closes the processor and carries out the ending.
    pub(super) async fn finish(mut self, ending: Ending) -> PumpEnd {
        self.set_state(PumpState::Closing);
        self.report_last_gaps();
        let until = self.until(&ending);
        let (reason, disposition) = match &ending {
            Ending::Drain(drain) => match &drain.disposition {
                Disposition::HandOver { .. } => (CloseReason::Handover, Some(drain.disposition.clone())),
                Disposition::Release { .. } | Disposition::Undecided => {
                    (CloseReason::Shutdown, Some(drain.disposition.clone()))
                }
            },
            Ending::Failed { reason, .. } => (*reason, Some(Disposition::Release { successor: None })),
            Ending::Lost(reason) => (*reason, None),
            Ending::Displaced { .. } => (CloseReason::Disconnected, None),
        };
        let Some(disposition) = disposition else {
            let lease = self.context.lease();
            let in_time = self.now() < lease.deadline();
            lease.end();
            self.context.cancel();
            let unexplained = reason == CloseReason::LeaseLost && in_time;
            let reason = if unexplained {
                find_loss_reason(self.services.clone(), self.context.clone()).await
            } else {
                reason
            };
            self.close(reason, until).await;
            let outcome = match ending {
                Ending::Displaced { epoch, by } => Outcome::Displaced { epoch, by },
                _ => Outcome::Lost { reason },
            };
            return self.end(outcome, false);
        };

        let closed = self.close(reason, until).await;
        #[cfg(not(feature = "mutations"))]
        let early = None;
        #[cfg(feature = "mutations")]
        let early = self.give_away_early(&disposition, reason, closed).await;
        let checkpoint_saved = self.final_checkpoint(closed, until).await;
        // The receiver of the partition may have left meanwhile.
        let decided_by = self.now() + self.services.manager.store_timeout.saturating_mul(2);
        let disposition = self.guard.decided_disposition(decided_by).await.unwrap_or(disposition);
        let given = match early {
            Some(given) => given,
            None => self.give_away(&disposition, reason, checkpoint_saved).await,
        };
        self.context.lease().end();
        self.context.cancel();
        let confirmed = given == Some(GiveUpOutcome::Done);
        let outcome = match ending {
            _ if given == Some(GiveUpOutcome::NotOurs) => Outcome::Lost { reason: CloseReason::LeaseLost },
            Ending::Failed { reason, pause } => Outcome::Failed { reason, pause, confirmed },
            _ => Outcome::GivenAway { reason, to: receiver_of(disposition), confirmed },
        };
        self.end(outcome, checkpoint_saved)
    }

    /// The time by which the processor must have closed: the end of the drain, or else one handover
    /// timeout from now.
    fn until(&self, ending: &Ending) -> Monotonic {
        match ending {
            Ending::Drain(drain) => drain.until,
            _ => self.now() + self.services.manager.handover_timeout,
        }
    }

    /// Calls `close`. True if it succeeded, or if there was nothing to close.
    async fn close(&mut self, reason: CloseReason, until: Monotonic) -> bool {
        let Some(mut processor) = self.processor.take() else { return true };
        let context = self.context.clone();
        let started = self.now();
        let until = until.max(started + CLOSE_GRACE);
        self.activity.call_starts(started, until);
        let environment = self.services.environment.clone();
        let limit = environment.sleep_until(until);
        let still_owner = reason.still_owner();
        let guard = &mut self.guard;
        // Once the partition is lost, there is nothing more to lose: `close` may use its time. Until then, another
        // stop may shorten the time of the drain.
        let give_up = async {
            if !still_owner {
                std::future::pending::<()>().await;
            }
            if let Interrupt::Drain(_) = guard.wait(InterruptMask::DrainDeadline).await {
                tokio::select! {
                    biased;
                    _ = guard.wait(InterruptMask::Loss) => {}
                    () = environment.sleep_until(started + CLOSE_GRACE) => {}
                }
            }
        };
        let call = AssertUnwindSafe(async { processor.close(&context, reason).await }).catch_unwind();
        let error = tokio::select! {
            biased;
            () = give_up => Some(ProcessorError::TimedOut { after: environment.now().since(started) }),
            result = call => match result {
                Ok(Ok(())) => None,
                Ok(Err(error)) => Some(error.into()),
                Err(panic) => Some(panicked(&*panic)),
            },
            () = limit => Some(ProcessorError::TimedOut { after: environment.now().since(started) }),
        };
        self.activity.call_ended();
        match error {
            None => true,
            Some(error) => {
                let partition = context.partition();
                self.services.reporter.report(&HostError::CloseFailed { partition, error });
                false
            }
        }
    }

    /// Saves the deferred checkpoint, and the finished position if the policy asks for it and
    /// `close` succeeded. True if everything finished is saved.
    async fn final_checkpoint(&mut self, closed: bool, until: Monotonic) -> bool {
        let finished_too = closed && self.services.options.checkpoint.on_close;
        let Some(position) = self.context.pending_checkpoint(finished_too) else {
            return self.context.progress().nothing_unsaved();
        };
        let started = self.now();
        loop {
            match self.context.save(position.clone()).await {
                Ok(Checkpointed::Refused) => break,
                Ok(_) => return self.context.progress().nothing_unsaved(),
                Err(_) => {
                    let retry_at = self.now() + FINAL_CHECKPOINT_RETRY;
                    self.services.environment.sleep_until(retry_at).await;
                    // Another stop may have shortened the time of the drain.
                    let over =
                        self.now() >= until || self.guard.check(InterruptMask::DrainDeadline).is_some();
                    let grace_is_over = self.now() >= started + CLOSE_GRACE;
                    if (over && grace_is_over) || !self.context.lease().is_ours(self.now()) {
                        break;
                    }
                }
            }
        }
        let partition = self.context.partition();
        self.services.reporter.report(&HostError::FinalCheckpointMissing { partition });
        false
    }

    /// The mutation: gives the lease away before the final checkpoint.
    #[cfg(feature = "mutations")]
    async fn give_away_early(
        &mut self,
        disposition: &Disposition,
        reason: CloseReason,
        checkpoint_saved: bool,
    ) -> Option<Option<GiveUpOutcome>> {
        if self.services.rules.final_checkpoint_comes_first() {
            return None;
        }
        Some(self.give_away(disposition, reason, checkpoint_saved).await)
    }

    /// Transfers or releases the lease. `None` if the store did not answer.
    async fn give_away(
        &mut self,
        disposition: &Disposition,
        reason: CloseReason,
        checkpoint_saved: bool,
    ) -> Option<GiveUpOutcome> {
        let (store, token) = (&self.services.store, self.context.lease().token().clone());
        let result = match disposition {
            Disposition::HandOver { to, duration } => {
                let request =
                    TransferRequest { token, to: to.clone(), duration: *duration, checkpoint_saved };
                store.transfer(&request).await
            }
            Disposition::Release { .. } | Disposition::Undecided => {
                let cause = match reason {
                    CloseReason::ProcessorFailed => ReleaseCause::ProcessorFailed,
                    CloseReason::SourceFailed => ReleaseCause::SourceFailed,
                    _ => ReleaseCause::Shutdown,
                };
                let successor = if let Disposition::Release { successor } = disposition {
                    successor.clone()
                } else {
                    None
                };
                let request = ReleaseRequest { token, cause, successor, checkpoint_saved };
                store.release(&request).await
            }
        };
        result.ok()
    }

    fn end(&self, outcome: Outcome, checkpoint_saved: bool) -> PumpEnd {
        PumpEnd {
            partition: self.context.partition(),
            epoch: self.context.epoch(),
            opened: self.opened,
            checkpoint_saved,
            given_up: self.given_up,
            outcome,
        }
    }
}

/// Finds the reason of a loss. A refused write does not tell it, but the store does: it may be a
/// seek. One view serves all partitions that were lost before it was requested.
async fn find_loss_reason(services: Arc<HostServices>, context: PartitionContext) -> CloseReason {
    let noticed = services.now();
    let mut last = services.loss_view.lock().await;
    let fresh = last.as_ref().filter(|(sent, _)| *sent >= noticed).map(|(_, view)| view.clone());
    let view = match fresh {
        Some(view) => view,
        None => {
            let (store, sent) = (&services.store, services.now());
            let view = store.view().await;
            let view = view.ok().map(Arc::new);
            *last = Some((sent, view.clone()));
            view
        }
    };
    drop(last);
    let lease = view.as_ref().and_then(|view| view.lease(context.partition()));
    loss_reason(lease, context.host())
}

fn receiver_of(disposition: Disposition) -> Option<HostId> {
    match disposition {
        Disposition::HandOver { to, .. } => Some(to),
        Disposition::Release { .. } | Disposition::Undecided => None,
    }
}
