//! The user's code of the simulation: slow, failing, and watched at every step.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::environment::Environment;
use ephor::{BoxError, CloseReason, Event, EventProcessor, PartitionContext, PartitionError};
use fastrand::Rng;

use crate::executor::Machine;
use crate::faults::happens;
use crate::judge::Judge;

/// How well the user's code works at the moment.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct ProcessorFaults {
    /// A call takes up to this long.
    pub call: Duration,
    /// A call fails.
    pub fail: f64,
    /// A call panics.
    pub panic: f64,
    /// `open` fails.
    pub open_fails: f64,
    /// `close` fails.
    pub close_fails: f64,
    /// A call checkpoints by hand: all of its batch, or a part of it.
    pub by_hand: f64,
}

/// A processor on one machine.
pub struct SimProcessor {
    pub(crate) judge: Judge,
    pub(crate) machine: Machine,
    pub(crate) environment: Arc<dyn Environment>,
    pub(crate) faults: Arc<Mutex<ProcessorFaults>>,
    pub(crate) random: Rng,
}

/// Tells the judge when a call is over, however it ends.
struct CallEnds<'a> {
    judge: &'a Judge,
    context: &'a PartitionContext,
    machine: Machine,
}

impl Drop for CallEnds<'_> {
    fn drop(&mut self) {
        self.judge.ended(self.context.partition(), self.context.epoch(), self.machine);
    }
}

impl SimProcessor {
    fn faults(&self) -> ProcessorFaults {
        *self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Works for a while, in steps, and is seen at each of them.
    async fn work(&mut self, context: &PartitionContext, most: Duration) {
        let whole = Duration::from_micros(self.random.u64(0..=most.as_micros() as u64));
        for _ in 0..3 {
            let until = self.environment.now() + whole / 3;
            self.environment.sleep_until(until).await;
            self.judge.runs(context.partition(), context.epoch());
        }
    }
}

impl EventProcessor for SimProcessor {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        let who = context.host().name.to_string();
        self.judge.opened(context.partition(), context.epoch(), &who);
        self.work(context, Duration::from_millis(20)).await;
        let faults = self.faults();
        if happens(&mut self.random, faults.open_fails) {
            self.judge.closed(context.partition(), context.epoch(), &who, "did not open");
            return Err("does not open".into());
        }
        Ok(())
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        let (partition, epoch) = (context.partition(), context.epoch());
        let range = events.first().zip(events.last()).map(|(first, last)| (first.sequence, last.sequence));
        self.judge.begins(partition, epoch, self.machine, range);
        let judge = self.judge.clone();
        let _ends = CallEnds { judge: &judge, context, machine: self.machine };
        let faults = self.faults();
        self.work(context, faults.call).await;
        if happens(&mut self.random, faults.panic) {
            // Not `panic!`: a thousand backtraces on the screen help nobody.
            std::panic::resume_unwind(Box::new("the processor panics"));
        }
        if happens(&mut self.random, faults.fail) {
            return Err("the processor fails".into());
        }
        if let Some((first, last)) = range.filter(|_| happens(&mut self.random, faults.by_hand)) {
            // What a checkpoint covers is done, by the processor's own word. How
            // it ended is the store's to tell; a failure changes nothing here.
            if self.random.bool() {
                self.judge.vouches(partition, first, last);
                let _ = context.checkpoint().await;
            } else {
                let event = &events[self.random.usize(0..events.len())];
                self.judge.vouches(partition, first, event.sequence);
                let _ = context.checkpoint_at(event).await;
            }
            self.judge.runs(partition, epoch);
        }
        if let Some((first, last)) = range {
            self.judge.finished(partition, epoch, first, last);
        }
        Ok(())
    }

    async fn process_error(&mut self, context: &PartitionContext, error: &PartitionError) {
        if let PartitionError::Skipped { sequence, .. } = error {
            self.judge.skipped(context.partition(), context.epoch(), *sequence);
        }
    }

    async fn close(&mut self, context: &PartitionContext, reason: CloseReason) -> Result<(), BoxError> {
        let who = context.host().name.to_string();
        self.judge.closed(context.partition(), context.epoch(), &who, &format!("{reason:?}"));
        let until = self.environment.now() + Duration::from_millis(self.random.u64(0..=30));
        self.environment.sleep_until(until).await;
        let faults = self.faults();
        if happens(&mut self.random, faults.close_fails) {
            return Err("does not close".into());
        }
        Ok(())
    }
}
