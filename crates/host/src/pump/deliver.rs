//! Delivers events to the processor, applies the failure policy, and writes the checkpoints that are due by
//! the checkpoint policy.

use std::panic::AssertUnwindSafe;
use std::time::Duration;

use ephor_core::checkpoint::{Position, Unsaved};
use ephor_core::event::Event;
use ephor_core::failure_policy::AfterFailure;
use ephor_core::time::Monotonic;
use futures_util::FutureExt;

use super::interrupts::{Interrupt, InterruptMask, LazyTimer};
use super::open::panicked;
use super::{Ending, Pump};
use crate::context::Checkpointed;
use crate::error::{CheckpointError, PartitionError, ProcessorError};
use crate::processor::{CloseReason, EventProcessor};
use crate::pump_activity::PumpState;

/// The number of times in a row that a batch may run into `process_timeout` before the partition is
/// released, so that another host can try.
const MAX_TIMEOUTS: u32 = 3;
/// The cooldown of the partition after that.
const STALLED_PAUSE: Duration = Duration::from_secs(30);
/// The minimum time before a failed checkpoint by policy is retried.
const CHECKPOINT_RETRY: Duration = Duration::from_secs(1);

/// The outcome of a batch.
enum Delivered {
    /// Finished, or skipped.
    Done,
    /// To be retried event by event.
    OneByOne,
}

/// The outcome of a call.
enum Called {
    Finished,
    Failed(ProcessorError),
}

impl<P: EventProcessor> Pump<P> {
    /// Delivers a batch, event by event if the failure policy asks for it.
    pub(super) async fn deliver_all(&mut self, events: &[Event]) -> Result<(), Ending> {
        if let Delivered::OneByOne = self.deliver(events).await? {
            for event in events {
                self.deliver(std::slice::from_ref(event)).await?;
            }
        }
        Ok(())
    }

    /// Delivers a batch until it is finished or the policy gives up on it.
    async fn deliver(&mut self, batch: &[Event]) -> Result<Delivered, Ending> {
        let (Some(first), Some(last)) = (batch.first(), batch.last()) else { return Ok(Delivered::Done) };
        let (mut failures, mut timeouts) = (0, 0);
        loop {
            self.may_deliver().await?;
            let error = match self.call(batch).await? {
                Called::Finished => {
                    self.finished(batch, last);
                    self.checkpoint_if_due().await?;
                    return Ok(Delivered::Done);
                }
                Called::Failed(error) => error,
            };
            failures += 1;
            timeouts = if matches!(error, ProcessorError::TimedOut { .. }) { timeouts + 1 } else { 0 };
            self.meters.failures.increment(1);
            self.services.count_failure();
            let wall = self.services.environment.wall();
            self.context.progress().failed(failures, &error, wall);
            self.set_state(PumpState::Failing);
            // Whatever ends the pump now, this batch is not finished.
            self.given_up = true;
            if matches!(error, ProcessorError::Panicked { .. }) {
                // The state of the instance is unknown, so a new one takes over.
                self.open_processor().await?;
            }
            self.report_error(PartitionError::Processing {
                first: first.sequence,
                last: last.sequence,
                attempt: failures,
                error: error.clone(),
            })
            .await?;
            // Only for the policy that retries for ever: the others have an end of their own.
            let for_ever = self.services.options.failure.retries_for_ever();
            self.checkpoint_if_due().await?;
            if for_ever && timeouts >= MAX_TIMEOUTS {
                return Err(Ending::Failed { reason: CloseReason::ProcessorFailed, pause: STALLED_PAUSE });
            }
            match self.services.options.failure.after(failures, batch.len(), self.random()) {
                AfterFailure::Again(wait) => self.wait(self.now() + wait).await?,
                AfterFailure::OneByOne(wait) => {
                    self.wait(self.now() + wait).await?;
                    return Ok(Delivered::OneByOne);
                }
                AfterFailure::Skip => {
                    for event in batch {
                        self.meters.skipped.increment(1);
                        let (sequence, error) = (event.sequence, error.clone());
                        self.report_error(PartitionError::Skipped { sequence, attempts: failures, error })
                            .await?;
                    }
                    self.note_finished(last, batch.len() as u64);
                    self.checkpoint_if_due().await?;
                    return Ok(Delivered::Done);
                }
                AfterFailure::Close(pause) => {
                    return Err(Ending::Failed { reason: CloseReason::ProcessorFailed, pause });
                }
            }
        }
    }

    /// Delivers an empty batch on an idle partition. There is nothing to redeliver if it fails.
    pub(super) async fn deliver_nothing(&mut self) -> Result<(), Ending> {
        self.may_deliver().await?;
        if let Called::Failed(error) = self.call(&[]).await? {
            self.meters.failures.increment(1);
            self.services.count_failure();
            if matches!(error, ProcessorError::Panicked { .. }) {
                self.open_processor().await?;
            }
            let next = self.expected.unwrap_or_default();
            self.report_error(PartitionError::Processing { first: next, last: next, attempt: 1, error })
                .await?;
        }
        Ok(())
    }

    /// Waits while paused. An error after the deadline and while draining: then nothing may be
    /// delivered.
    async fn may_deliver(&mut self) -> Result<(), Ending> {
        loop {
            match self.guard.check(InterruptMask::Everything) {
                None => return Ok(()),
                Some(Interrupt::Paused) => self.stay_paused().await?,
                Some(Interrupt::Lost(_)) if !self.services.rules.loss_comes_before_delivery() => {
                    return Ok(());
                }
                Some(other) => return Err(self.ending(other)),
            }
        }
    }

    /// Calls `process_events` once. The call is dropped at its next await when the partition is
    /// lost, when a drain runs out of time, and at `process_timeout`.
    async fn call(&mut self, batch: &[Event]) -> Result<Called, Ending> {
        let Self { guard, context, activity, processor, services, .. } = self;
        let Some(processor) = processor.as_mut() else {
            return Err(Ending::Failed { reason: CloseReason::ProcessorFailed, pause: STALLED_PAUSE });
        };
        if let Some(last) = batch.last() {
            context.progress().delivering(last);
        }
        let timeout = services.options.process_timeout;
        let now = services.now();
        let until = timeout.map_or(Monotonic::NEVER, |timeout| now + timeout);
        let limit = timeout.map(|_| services.environment.sleep_until(until));
        let limit = async {
            match limit {
                Some(limit) => limit.await,
                None => std::future::pending().await,
            }
        };
        // Only the mutation gets here with a lost partition, and then it carries the call through.
        let interruptible =
            services.rules.loss_comes_before_delivery() || guard.check(InterruptMask::Loss).is_none();
        activity.call_starts(now, until);
        let ended = tokio::select! {
            biased;
            interrupt = guard.wait(InterruptMask::DrainDeadline), if interruptible => Err(interrupt),
            result = AssertUnwindSafe(async { processor.process_events(context, batch).await }).catch_unwind() => Ok(match result {
                Ok(Ok(())) => Called::Finished,
                Ok(Err(error)) => Called::Failed(error.into()),
                Err(panic) => Called::Failed(panicked(&*panic)),
            }),
            () = limit => Ok(Called::Failed(ProcessorError::TimedOut { after: timeout.unwrap_or_default() })),
        };
        activity.call_ended();
        context.progress().returned();
        ended.map_err(|interrupt| {
            self.given_up = true;
            self.context.cancel();
            self.ending(interrupt)
        })
    }

    /// Notes that the batch up to `last` is finished or skipped.
    fn note_finished(&mut self, last: &Event, events: u64) {
        self.given_up = false;
        let had_failed = self.context.progress().finished(last, events, self.now());
        if had_failed {
            self.set_state(PumpState::Running);
        }
    }

    fn finished(&mut self, batch: &[Event], last: &Event) {
        let events = batch.len() as u64;
        self.note_finished(last, events);
        self.meters.processed.increment(events);
        self.services.count_events(events);
        let lag = self.context.lag();
        self.meters.lag_events.set(lag.events as f64);
        self.meters.lag_seconds.set(lag.seconds());
    }

    /// Writes a checkpoint if the policy asks for one now.
    pub(super) async fn checkpoint_if_due(&mut self) -> Result<(), Ending> {
        let now = self.now();
        let position = {
            let progress = self.context.progress();
            let due = self.services.options.checkpoint.due(&progress.unsaved, now);
            let not_before = self.checkpoint_not_before.max(progress.throttle.not_before);
            progress.finished.clone().filter(|_| due && now >= not_before)
        };
        let Some(position) = position else { return Ok(()) };
        match self.save_unless_lost(position).await? {
            Ok(Checkpointed::Refused) => Err(Ending::Lost(CloseReason::LeaseLost)),
            Ok(_) => {
                // Also if the stored checkpoint is ahead of it: nothing more is due until the next
                // event.
                self.context.progress().unsaved = Unsaved::default();
                Ok(())
            }
            Err(error) => {
                self.checkpoint_not_before = now + CHECKPOINT_RETRY;
                self.report_error(PartitionError::Checkpoint { error }).await
            }
        }
    }

    /// Writes the checkpoint that a policy would write later, before a wait that may be long.
    pub(super) async fn checkpoint_now_if_by_policy(&mut self) -> Result<(), Ending> {
        let policy = &self.services.options.checkpoint;
        let by_policy = policy.every.is_some() || policy.every_events.is_some();
        let position = {
            let progress = self.context.progress();
            progress.finished.clone().filter(|_| by_policy && progress.unsaved.events > 0)
        };
        let Some(position) = position else { return Ok(()) };
        match self.save_unless_lost(position).await? {
            Ok(Checkpointed::Refused) => Err(Ending::Lost(CloseReason::LeaseLost)),
            Ok(_) => Ok(()),
            Err(error) => self.report_error(PartitionError::Checkpoint { error }).await,
        }
    }

    /// Saves a position. A drain waits for it, because a drain would save next.
    async fn save_unless_lost(
        &mut self,
        position: Position,
    ) -> Result<Result<Checkpointed, CheckpointError>, Ending> {
        let context = self.context.clone();
        tokio::select! {
            biased;
            interrupt = self.guard.wait(InterruptMask::DrainDeadline) => Err(self.ending(interrupt)),
            result = context.save(position) => Ok(result),
        }
    }

    /// Passes an error to the processor, whose reaction does not matter here.
    pub(super) async fn process_error(&mut self, error: &PartitionError) -> Result<(), Ending> {
        let Self { guard, context, activity, processor, pending_errors, services, .. } = self;
        let Some(processor) = processor.as_mut() else {
            pending_errors.push(error.clone());
            return Ok(());
        };
        let timeout = services.options.process_timeout;
        let now = services.now();
        let until = timeout.map_or(Monotonic::NEVER, |timeout| now + timeout);
        let mut timer = LazyTimer::default();
        let limit = timer.until(&*services.environment, until);
        activity.call_starts(now, until);
        let ended = tokio::select! {
            biased;
            interrupt = guard.wait(InterruptMask::DrainDeadline) => Err(interrupt),
            // If the error handler panics, only the log is left.
            heard = AssertUnwindSafe(async { processor.process_error(context, error).await }).catch_unwind() => Ok(heard),
            () = limit => Ok(Ok(())),
        };
        activity.call_ended();
        match ended {
            Ok(Ok(())) => Ok(()),
            Ok(Err(panic)) => {
                tracing::error!(partition = %self.context.partition(), error = %panicked(&*panic), "process_error panicked");
                Ok(())
            }
            Err(interrupt) => Err(self.ending(interrupt)),
        }
    }
}
