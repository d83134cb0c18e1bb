//! A processor of the user's own, watched from outside: the judge hears of every call.
//!
//! What the user's code does within a call cannot be seen. So whatever it was called with it may
//! checkpoint at any moment; whether that was too soon is asked of its own results in the end.

use std::future::poll_fn;
use std::pin::pin;
use std::sync::{Arc, Mutex, PoisonError};

use ephor::environment::Environment;
use ephor::{BoxError, CloseReason, Event, EventProcessor, PartitionContext, PartitionError};

use crate::executor::Machine;
use crate::guest::Skipped;
use crate::judge::{Caller, Judge, Span};
use crate::processor::CallEnds;

/// How the user's code on one machine is watched.
#[derive(Clone)]
pub(crate) struct Watch {
    pub(crate) judge: Judge,
    pub(crate) machine: Machine,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) skipped: Arc<Mutex<Skipped>>,
}

impl Watch {
    fn caller(&self, context: &PartitionContext) -> Caller {
        Caller {
            partition: context.partition(),
            epoch: context.epoch(),
            host: context.host().clone(),
            machine: self.machine,
        }
    }

    /// A call of the user's code, seen whenever it runs.
    async fn seen<T>(&self, caller: &Caller, call: impl Future<Output = T>) -> T {
        let mut call = pin!(call);
        poll_fn(|context| {
            self.judge.runs(caller);
            call.as_mut().poll(context)
        })
        .await
    }
}

/// A processor of the user's, and who watches it.
pub(crate) struct Watched<P> {
    pub(crate) inner: P,
    pub(crate) watch: Watch,
}

impl<P: EventProcessor> EventProcessor for Watched<P> {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let caller = self.watch.caller(context);
        self.watch.judge.opened(&caller);
        let opened = self.watch.seen(&caller, self.inner.open(context)).await;
        if opened.is_err() {
            self.watch.judge.closed(&caller, "did not open");
        }
        opened
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let caller = self.watch.caller(context);
        let (judge, span) = (&self.watch.judge, Span::of(events));
        judge.begins(&caller, span);
        let _ends = CallEnds { judge: judge.clone(), caller: caller.clone() };
        if let Some(span) = span {
            judge.vouches(&caller, span);
        }
        self.watch.seen(&caller, self.inner.process_events(context, events)).await?;
        if let Some(span) = span {
            judge.finished(&caller, span);
        }
        Ok(())
    }

    async fn process_error(&mut self, context: &PartitionContext, error: &PartitionError) {
        if let PartitionError::Skipped { sequence, .. } = error {
            self.watch.judge.skipped(&self.watch.caller(context), *sequence);
            let skipped = (self.watch.judge.life(), context.partition(), *sequence);
            self.watch.skipped.lock().unwrap_or_else(PoisonError::into_inner).insert(skipped);
        }
        self.inner.process_error(context, error).await;
    }

    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        let caller = self.watch.caller(context);
        self.watch.judge.closed(&caller, &format!("{reason:?}"));
        self.inner.close(context, reason).await
    }
}
