//! Wraps a user's own processor, reports every call to the judge, and adds faults to the calls: delays,
//! hangs, panics and errors.
//!
//! The work of user code within a call cannot be seen, so it may checkpoint at any moment every event that it
//! was called with. A checkpoint that came too soon shows in the user's own results in the end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::environment::Environment;
use ephor::{BoxError, CloseReason, Event, EventProcessor, PartitionContext, PartitionError};
use fastrand::Rng;
use futures_util::FutureExt;

use crate::call_faults::happens;
use crate::executor::Machine;
use crate::judge::{Caller, Judge, Span};
use crate::processor::{CallGuard, ProcessorFaults};
use crate::user_code::Skipped;

/// Watches the user code on one machine.
#[derive(Clone)]
pub(crate) struct CallObserver {
    pub(crate) judge: Judge,
    pub(crate) machine: Machine,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) skipped: Arc<Mutex<Skipped>>,
    /// The faults that the simulation adds to its calls.
    pub(crate) faults: Arc<Mutex<ProcessorFaults>>,
}

impl CallObserver {
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

    /// Runs a call of user code, and reports to the judge whenever it is polled.
    async fn observe_polls<T>(&self, caller: &Caller, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        poll_fn(|context| {
            self.judge.runs(caller);
            call.as_mut().poll(context)
        })
        .await
    }
}

/// A user's processor, and its observer.
pub(crate) struct ObservedProcessor<P> {
    inner: P,
    observer: CallObserver,
    random: Rng,
}

impl<P> ObservedProcessor<P> {
    pub(crate) fn new(inner: P, observer: CallObserver) -> Self {
        let random = Rng::with_seed(observer.environment.random());
        Self { inner, observer, random }
    }

    fn faults(&self) -> ProcessorFaults {
        *self.observer.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Takes long, hangs, panics or fails in place of the user code, with the present probabilities.
    async fn inject_faults(&mut self) -> Result<(), BoxError> {
        let faults = self.faults();
        if !faults.call.is_zero() {
            let pause = self.random.u64(0..=faults.call.as_micros() as u64);
            self.observer.sleep(Duration::from_micros(pause)).await;
        }
        loop {
            let hang = self.faults().hang;
            if !happens(&mut self.random, hang) {
                break;
            }
            self.observer.sleep(Duration::from_secs(1)).await;
        }
        if happens(&mut self.random, faults.panic) {
            std::panic::resume_unwind(Box::new("the call panics"));
        }
        if happens(&mut self.random, faults.fail) {
            return Err("the call fails".into());
        }
        Ok(())
    }
}

impl<P: EventProcessor> ObservedProcessor<P> {
    /// The user's call, with the faults before or after it.
    async fn work_through(
        &mut self,
        context: &PartitionContext,
        caller: &Caller,
        events: &[Event],
    ) -> Result<(), BoxError> {
        let before = self.random.bool();
        if before {
            self.inject_faults().await?;
        }
        self.observer.observe_polls(caller, self.inner.process_events(context, events)).await?;
        if before { Ok(()) } else { self.inject_faults().await }
    }
}

impl<P: EventProcessor> EventProcessor for ObservedProcessor<P> {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let caller = self.observer.caller(context);
        self.observer.judge.opened(&caller);
        let faults = self.faults();
        let opened = if happens(&mut self.random, faults.open_fails) {
            Err("does not open".into())
        } else {
            self.observer.observe_polls(&caller, self.inner.open(context)).await
        };
        match &opened {
            Ok(()) => self.observer.judge.serves(&caller),
            Err(_) => self.observer.judge.closed(&caller, "did not open"),
        }
        opened
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let caller = self.observer.caller(context);
        let (judge, span) = (self.observer.judge.clone(), Span::of(events));
        judge.begins(&caller, span);
        let call = CallGuard::new(&judge, &caller, span);
        if let Some(span) = span {
            judge.about_to_checkpoint(&caller, span);
        }
        let result = self.work_through(context, &caller, events).await;
        call.returns(result)?;
        if let Some(span) = span {
            judge.finished(&caller, span);
        }
        Ok(())
    }

    async fn process_error(&mut self, context: &PartitionContext, error: &PartitionError) {
        self.observer.judge.note_error_report(&self.observer.caller(context), error);
        if let PartitionError::Skipped { sequence, .. } = error {
            let skipped = (self.observer.judge.log_generation(), context.partition(), *sequence);
            self.observer.skipped.lock().unwrap_or_else(PoisonError::into_inner).insert(skipped);
        }
        self.inner.process_error(context, error).await;
    }

    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        let caller = self.observer.caller(context);
        self.observer.judge.closed(&caller, &format!("{reason:?}"));
        self.observer.judge.check_close_reason(&caller, reason, context.cancelled().now_or_never().is_some());
        let closed = self.inner.close(context, reason).await;
        let faults = self.faults();
        let closed =
            if happens(&mut self.random, faults.close_fails) { Err("does not close".into()) } else { closed };
        if closed.is_err() {
            self.observer.judge.did_not_close(&caller);
        }
        closed
    }
}
