//! The simulation's own processor, for runs without a user's own (`user_code.rs`): it is slow or fails, and
//! reports every step to the judge.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::environment::{Environment, TaskHandle};
use ephor::{BoxError, CloseReason, Event, EventProcessor, PartitionContext, PartitionError, SequenceNumber};
use fastrand::Rng;
use futures_util::FutureExt;

use crate::call_faults::happens;
use crate::executor::{Handle, Machine};
use crate::judge::{Caller, Judge, Promise, Span};

/// The faults of the user code at the moment. Numbers without a unit are probabilities.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorFaults {
    /// A call takes up to this long.
    pub call: Duration,
    /// Closing takes up to this long.
    pub close: Duration,
    /// A call fails.
    pub fail: f64,
    /// A call panics.
    pub panic: f64,
    /// A call blocks its thread, for up to a minute and a half.
    pub block: f64,
    /// A call does not return as long as this is set.
    pub hang: f64,
    /// `open` fails.
    pub open_fails: f64,
    /// `close` fails.
    pub close_fails: f64,
    /// A call checkpoints manually: all of its batch, or a part of it.
    pub by_hand: f64,
    /// A call checkpoints the same twice, or an old event, or after the processor was closed.
    pub odd: f64,
}

/// A processor on one machine.
pub struct SimProcessor {
    pub(crate) judge: Judge,
    pub(crate) handle: Handle,
    pub(crate) machine: Machine,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) faults: Arc<Mutex<ProcessorFaults>>,
    pub(crate) random: Rng,
    /// An event that was finished a while ago.
    pub(crate) old: Option<Event>,
    /// True once it has panicked: it must not be called any more.
    pub(crate) panicked: bool,
    /// Tasks that write checkpoints later. They end with the process, not with the partition.
    pub(crate) late_checkpoints: Arc<Mutex<Vec<TaskHandle>>>,
}

/// Reports to the judge that a call is over, however it ends.
pub(crate) struct CallGuard {
    pub(crate) judge: Judge,
    pub(crate) caller: Caller,
    pub(crate) span: Option<Span>,
    /// True if the call returned.
    pub(crate) returned: bool,
}

impl CallGuard {
    pub(crate) fn new(judge: &Judge, caller: &Caller, span: Option<Span>) -> Self {
        Self { judge: judge.clone(), caller: caller.clone(), span, returned: false }
    }

    /// Reports the result of the call, and returns it.
    pub(crate) fn returns(mut self, result: Result<(), BoxError>) -> Result<(), BoxError> {
        self.returned = true;
        if result.is_err() {
            self.judge.failed(&self.caller, self.span);
        }
        result
    }
}

impl Drop for CallGuard {
    fn drop(&mut self) {
        if !self.returned && std::thread::panicking() {
            self.judge.panics(&self.caller, self.span);
        } else if !self.returned {
            self.judge.dropped(&self.caller, self.span);
        }
        self.judge.ended(&self.caller);
    }
}

/// Reports to the judge a close that failed or was dropped.
struct CloseGuard {
    judge: Judge,
    caller: Caller,
    succeeded: bool,
    /// True if the close returned.
    returned: bool,
}

impl CloseGuard {
    fn new(judge: &Judge, caller: &Caller) -> Self {
        Self { judge: judge.clone(), caller: caller.clone(), succeeded: false, returned: false }
    }

    fn returns(mut self, result: Result<(), BoxError>) -> Result<(), BoxError> {
        (self.succeeded, self.returned) = (result.is_ok(), true);
        result
    }
}

impl Drop for CloseGuard {
    fn drop(&mut self) {
        if !self.succeeded {
            self.judge.did_not_close(&self.caller);
        }
        if !self.returned {
            self.judge.close_was_dropped(&self.caller);
        }
    }
}

impl SimProcessor {
    fn faults(&self) -> ProcessorFaults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn caller(&self, context: &PartitionContext) -> Caller {
        Caller {
            partition: context.partition(),
            epoch: context.epoch(),
            host: context.host().clone(),
            machine: self.machine,
        }
    }

    async fn sleep(&self, duration: Duration) {
        self.environment.sleep_until(self.environment.now() + duration).await;
    }

    /// Works for a while, in steps, and reports each step to the judge.
    async fn work(&mut self, caller: &Caller, max: Duration) {
        let total = Duration::from_micros(self.random.u64(0..=max.as_micros() as u64));
        for _ in 0..3 {
            self.sleep(total / 3).await;
            self.judge.runs(caller);
        }
    }

    /// Blocks the thread, hangs, panics or fails, with the present probabilities.
    async fn inject_faults(&mut self, caller: &Caller, faults: ProcessorFaults) -> Result<(), BoxError> {
        if happens(&mut self.random, faults.block) {
            let duration = Duration::from_millis(self.random.u64(100..90_000));
            self.judge.blocks(caller, duration);
            self.handle.block(duration);
            // The poll ends here, and the task is not polled again until the block is over.
            self.handle.sleep(Duration::from_nanos(1)).await;
        }
        loop {
            let hang = self.faults().hang;
            if !happens(&mut self.random, hang) {
                break;
            }
            self.sleep(Duration::from_secs(1)).await;
            self.judge.runs(caller);
        }
        if happens(&mut self.random, faults.panic) {
            self.panicked = true;
            // Not `panic!`, which would print a backtrace for each of thousands.
            std::panic::resume_unwind(Box::new("the processor panics"));
        }
        if happens(&mut self.random, faults.fail) {
            return Err("the processor fails".into());
        }
        Ok(())
    }

    /// Checkpoints manually. The events that a checkpoint covers count as done. Its outcome is judged by the
    /// store's steps; a failure changes nothing here.
    async fn checkpoint(&mut self, context: &PartitionContext, caller: &Caller, events: &[Event]) {
        let Some(span) = Span::of(events) else { return };
        let index = if self.random.bool() { events.len() - 1 } else { self.random.usize(0..events.len()) };
        self.judge.about_to_checkpoint(caller, Span { last: events[index].sequence, ..span });
        let all = index + 1 == events.len() && self.random.bool();
        let saved =
            if all { context.checkpoint().await } else { context.checkpoint_at(&events[index]).await };
        self.judge.runs(caller);
        if let Ok(answer) = saved {
            self.judge.checkpoint_was_answered(caller, events[index].sequence.next(), &answer);
        }
    }

    /// The work of one call, with its faults.
    async fn work_through(
        &mut self,
        context: &PartitionContext,
        caller: &Caller,
        events: &[Event],
    ) -> Result<(), BoxError> {
        let faults = self.faults();
        self.work(caller, faults.call).await;
        self.inject_faults(caller, faults).await?;
        if happens(&mut self.random, faults.by_hand) {
            self.checkpoint(context, caller, events).await;
        }
        if happens(&mut self.random, faults.odd) {
            self.checkpoint_oddly(context, caller, events).await;
        }
        Ok(())
    }

    /// Reports a violation if a processor that has panicked is called again.
    fn check_not_panicked(&self, caller: &Caller) {
        if self.panicked {
            let what = "a processor was called again after it had panicked".to_owned();
            self.judge.report_violation(Promise::LoopNeverDies, Some(caller.partition), what);
        }
    }

    /// Checkpoints the same event twice, or an old one, or after the call.
    async fn checkpoint_oddly(&mut self, context: &PartitionContext, caller: &Caller, events: &[Event]) {
        let (Some(span), Some(last)) = (Span::of(events), events.last().cloned()) else { return };
        match (self.random.u32(0..3), self.old.clone()) {
            (0, _) => {
                self.judge.about_to_checkpoint(caller, span);
                let _ = context.checkpoint().await;
                let _ = context.checkpoint().await;
            }
            (1, Some(old)) => {
                let _ = context.checkpoint_at(&old).await;
            }
            _ => {
                self.judge.about_to_checkpoint(caller, span);
                let (context, environment) = (context.clone(), self.environment.clone());
                let after = Duration::from_millis(self.random.u64(0..60_000));
                let task = self.environment.spawn(Box::pin(async move {
                    environment.sleep_until(environment.now() + after).await;
                    let _ = context.checkpoint_at(&last).await;
                }));
                self.late_checkpoints.lock().unwrap_or_else(PoisonError::into_inner).push(task);
            }
        }
        self.judge.runs(caller);
    }
}

impl EventProcessor for SimProcessor {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let caller = self.caller(context);
        self.judge.opened(&caller);
        self.work(&caller, Duration::from_millis(20)).await;
        let faults = self.faults();
        if happens(&mut self.random, faults.open_fails) {
            self.judge.closed(&caller, "did not open");
            return Err("does not open".into());
        }
        self.judge.serves(&caller);
        Ok(())
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let caller = self.caller(context);
        let span = Span::of(events);
        self.check_not_panicked(&caller);
        self.judge.begins(&caller, span);
        let call = CallGuard::new(&self.judge, &caller, span);
        let result = self.work_through(context, &caller, events).await;
        call.returns(result)?;
        if let Some(span) = span {
            self.judge.finished(&caller, span);
        }
        if self.old.is_none() || self.random.u32(0..8) == 0 {
            self.old = events.last().cloned();
        }
        Ok(())
    }

    async fn process_error(&mut self, context: &PartitionContext, error: &PartitionError) {
        let caller = self.caller(context);
        self.check_not_panicked(&caller);
        self.judge.note_error_report(&caller, error);
    }

    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        let caller = self.caller(context);
        self.check_not_panicked(&caller);
        self.judge.closed(&caller, &format!("{reason:?}"));
        self.judge.check_close_reason(&caller, reason, context.cancelled().now_or_never().is_some());
        let faults = self.faults();
        let call = CloseGuard::new(&self.judge, &caller);
        let pause = Duration::from_millis(self.random.u64(0..=faults.close.as_millis() as u64));
        self.sleep(pause).await;
        if reason.still_owner() && happens(&mut self.random, faults.by_hand) {
            // Up to the last finished batch.
            if let Ok(answer) = context.checkpoint().await {
                self.judge.checkpoint_was_answered(&caller, SequenceNumber(0), &answer);
            }
        }
        let fails = happens(&mut self.random, faults.close_fails);
        call.returns(if fails { Err("does not close".into()) } else { Ok(()) })
    }
}
