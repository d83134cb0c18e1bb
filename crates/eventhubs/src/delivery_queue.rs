//! The delivery queue between a connection and one receiver, with the state of their link.
//!
//! ```text
//!   connection's task ── push ──► [ deliveries, bounded by credit ] ── take ──► receiver
//!                                   (a hub that sends far more than it was granted loses the link)
//!                     ── opened, ended ──►  phase                  ◄── abandon
//! ```
//!
//! The connection's side holds a [`DeliveryQueueWriter`]: if its task ends in any way, the receiver
//! learns that the link ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ephor_wire::condition::Condition;

use crate::credit::{Credit, Waiting};
use crate::failure_classes::Failure;

enum Phase {
    Opening,
    Open,
    Ended(Failure),
}

struct State {
    phase: Phase,
    deliveries: VecDeque<Bytes>,
    bytes: usize,
    /// The credit that the hub still has, as far as known.
    outstanding: u32,
    credit: Credit,
    waker: Option<Waker>,
    /// The receiver was dropped or is closing.
    abandoned: bool,
    /// The connection has been asked to refill the credit, and has not yet done so.
    credit_requested: bool,
    /// The receiver wants events.
    started: bool,
}

/// The queue, shared by a receiver and the connection that serves it.
pub(crate) struct DeliveryQueue(Mutex<State>);

/// The result of taking deliveries.
pub(crate) struct Taken {
    /// True if the connection should refill the credit.
    pub(crate) needs_credit: bool,
}

impl DeliveryQueue {
    pub(crate) fn new(credit: Credit) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            phase: Phase::Opening,
            deliveries: VecDeque::new(),
            bytes: 0,
            outstanding: 0,
            credit,
            waker: None,
            abandoned: false,
            credit_requested: false,
            started: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Ready when the link is open, or with the reason why it did not open.
    pub(crate) fn poll_opened(&self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut state = self.state();
        match &state.phase {
            Phase::Open => Poll::Ready(Ok(())),
            Phase::Ended(failure) => Poll::Ready(Err(failure.clone())),
            Phase::Opening => state.wait(context),
        }
    }

    /// Ready when the link has ended, with the reason.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<Failure> {
        let mut state = self.state();
        match &state.phase {
            Phase::Ended(failure) => Poll::Ready(failure.clone()),
            Phase::Opening | Phase::Open => state.wait(context),
        }
    }

    /// Takes at most `max` waiting deliveries; an error if no more will come.
    pub(crate) fn poll_take(
        &self,
        context: &mut Context<'_>,
        max: usize,
        mut each: impl FnMut(Bytes),
    ) -> Poll<Result<Taken, Failure>> {
        let mut state = self.state();
        if state.deliveries.is_empty() {
            return match &state.phase {
                Phase::Ended(failure) => Poll::Ready(Err(failure.clone())),
                Phase::Opening | Phase::Open => state.wait(context),
            };
        }
        let count = state.deliveries.len().min(max.max(1));
        let mut taken = 0;
        for delivery in state.deliveries.drain(..count) {
            taken += delivery.len();
            each(delivery);
        }
        state.bytes -= taken;
        let needs_credit = !state.credit_requested && state.credit.is_low(state.waiting(), state.outstanding);
        state.credit_requested |= needs_credit;
        Poll::Ready(Ok(Taken { needs_credit }))
    }

    /// The receiver wants events from now on. Before this the hub gets no credit, so that no event delays the
    /// answers for which the receiver waits.
    pub(crate) fn start(&self) {
        self.state().started = true;
    }

    /// The receiver wants no more events.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        state.deliveries = VecDeque::new();
        state.bytes = 0;
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.state().abandoned
    }

    /// The flow control, for the next link of the receiver.
    pub(crate) fn credit(&self) -> Credit {
        self.state().credit.clone()
    }
}

impl State {
    fn wait<T>(&mut self, context: &mut Context<'_>) -> Poll<T> {
        match &mut self.waker {
            Some(waker) => waker.clone_from(context.waker()),
            none => *none = Some(context.waker().clone()),
        }
        Poll::Pending
    }

    fn waiting(&self) -> Waiting {
        Waiting { events: self.deliveries.len(), bytes: self.bytes }
    }
}

/// More events wait than may: the hub has sent far more than its credit allows, or events became much larger
/// than those before, for which it got its credit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{} events with {} bytes wait unread, far more than the prefetch; reattaching the link", .0.events, .0.bytes)]
pub(crate) struct Overdrawn(Waiting);

/// The connection's side of a delivery queue.
pub(crate) struct DeliveryQueueWriter(Arc<DeliveryQueue>);

impl DeliveryQueueWriter {
    pub(crate) fn new(queue: Arc<DeliveryQueue>) -> Self {
        Self(queue)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }

    /// The hub accepted the link.
    pub(crate) fn opened(&self) {
        self.0.state().phase = Phase::Open;
        self.wake();
    }

    /// Queues a delivery. Call [`Self::wake`] when there are no more for now. An error if too much waits
    /// already: then nothing is queued, and the link has to end.
    pub(crate) fn push(&self, delivery: Bytes) -> Result<(), Overdrawn> {
        let mut state = self.0.state();
        state.credit.note_size(delivery.len());
        if state.abandoned {
            return Ok(());
        }
        if state.credit.is_exceeded_by(state.waiting()) {
            return Err(Overdrawn(state.waiting()));
        }
        state.bytes += delivery.len();
        state.deliveries.push_back(delivery);
        Ok(())
    }

    /// The credit to grant to the hub, if it should change. `outstanding` is its current credit.
    pub(crate) fn grant(&self, outstanding: u32) -> Option<u32> {
        let mut state = self.0.state();
        state.credit_requested = false;
        if !state.started {
            return None;
        }
        let granted = state.credit.grant(state.waiting(), outstanding);
        state.outstanding = granted.unwrap_or(outstanding);
        granted
    }

    pub(crate) fn wake(&self) {
        let waker = self.0.state().waker.take();
        if let Some(waker) = waker {
            waker.wake();
        }
    }

    /// The link has ended. If another receiver took it over, waiting deliveries are discarded.
    pub(crate) fn end(&self, failure: Failure) {
        let mut state = self.0.state();
        if let Phase::Ended(_) = state.phase {
            return;
        }
        if failure.condition() == Some(&Condition::LinkStolen) {
            state.deliveries = VecDeque::new();
            state.bytes = 0;
        }
        state.phase = Phase::Ended(failure);
        drop(state);
        self.wake();
    }
}

impl Drop for DeliveryQueueWriter {
    fn drop(&mut self) {
        self.end(Failure::lost("the connection has ended"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_sends_far_more_than_it_was_granted_fills_no_memory() {
        let queue = DeliveryQueue::new(Credit::new(10, 1 << 20));
        let writer = DeliveryQueueWriter::new(queue.clone());
        writer.opened();
        assert_eq!(writer.grant(0), None, "the receiver is not ready");
        queue.start();
        assert_eq!(writer.grant(0), Some(10));
        for _ in 0..20 {
            writer.push(Bytes::from_static(b"event")).unwrap();
        }
        for _ in 0..1_000 {
            assert_eq!(
                writer.push(Bytes::from_static(b"event")),
                Err(Overdrawn(Waiting { events: 20, bytes: 100 }))
            );
        }
        assert_eq!(queue.state().deliveries.len(), 20);
        // After a receiver has taken its deliveries, more may come.
        let mut context = Context::from_waker(Waker::noop());
        assert!(queue.poll_take(&mut context, 100, drop).is_ready());
        writer.push(Bytes::from_static(b"event")).unwrap();
    }

    #[test]
    fn large_events_of_a_hub_fill_no_memory_although_they_are_few() {
        const MIB: usize = 1 << 20;
        let queue = DeliveryQueue::new(Credit::new(300, 16 * MIB));
        let writer = DeliveryQueueWriter::new(queue.clone());
        writer.opened();
        queue.start();
        let large = Bytes::from(vec![0; 8 * MIB]);
        let queued = (0..600).take_while(|_| writer.push(large.clone()).is_ok()).count();
        assert_eq!(queued, 8, "four times the prefetch of 16 MiB");
        let error = writer.push(large).unwrap_err().to_string();
        assert!(error.starts_with("8 events with 67108864 bytes wait unread"), "{error}");
    }
}
