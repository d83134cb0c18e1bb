//! What a connection has received for one receiver, and how that link stands.
//!
//! ```text
//!   connection's task ── push ──► [ deliveries, bounded by credit ] ── take ──► receiver
//!                                   (a hub that sends far more than it was granted loses the link)
//!                     ── opened, ended ──►  phase                  ◄── abandon
//! ```
//!
//! The connection's side holds a [`Keeper`]: whatever becomes of the task, the receiver hears that the link ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ephor_wire::condition::Condition;

use crate::credit::{Credit, Waiting};
use crate::failure::Failure;

enum Phase {
    Opening,
    Open,
    Ended(Failure),
}

struct State {
    phase: Phase,
    deliveries: VecDeque<Bytes>,
    bytes: usize,
    /// What the hub may still send, as far as is known.
    outstanding: u32,
    credit: Credit,
    waker: Option<Waker>,
    /// The receiver is gone or goes.
    abandoned: bool,
    /// The connection has been asked to look at the credit, and has not yet.
    asked: bool,
}

/// Shared by a receiver and the connection that serves it.
pub(crate) struct Inbox(Mutex<State>);

/// What a receiver took.
pub(crate) struct Taken {
    /// Whether the connection should look at the credit.
    pub(crate) ask: bool,
}

impl Inbox {
    pub(crate) fn new(credit: Credit) -> Arc<Self> {
        Arc::new(Self(Mutex::new(State {
            phase: Phase::Opening,
            deliveries: VecDeque::new(),
            bytes: 0,
            outstanding: 0,
            credit,
            waker: None,
            abandoned: false,
            asked: false,
        })))
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Whether the link is open, or why it did not open.
    pub(crate) fn poll_opened(&self, context: &mut Context<'_>) -> Poll<Result<(), Failure>> {
        let mut state = self.state();
        match &state.phase {
            Phase::Open => Poll::Ready(Ok(())),
            Phase::Ended(failure) => Poll::Ready(Err(failure.clone())),
            Phase::Opening => state.wait(context),
        }
    }

    /// Whether the link is over.
    pub(crate) fn poll_ended(&self, context: &mut Context<'_>) -> Poll<()> {
        let mut state = self.state();
        match &state.phase {
            Phase::Ended(_) => Poll::Ready(()),
            Phase::Opening | Phase::Open => state.wait(context).map(|_: Result<(), Failure>| ()),
        }
    }

    /// Takes what has come, at most so many; an error when nothing will come any more.
    pub(crate) fn poll_take(
        &self,
        context: &mut Context<'_>,
        most: usize,
        mut each: impl FnMut(Bytes),
    ) -> Poll<Result<Taken, Failure>> {
        let mut state = self.state();
        if state.deliveries.is_empty() {
            return match &state.phase {
                Phase::Ended(failure) => Poll::Ready(Err(failure.clone())),
                Phase::Opening | Phase::Open => state.wait(context),
            };
        }
        let count = state.deliveries.len().min(most.max(1));
        let mut taken = 0;
        for delivery in state.deliveries.drain(..count) {
            taken += delivery.len();
            each(delivery);
        }
        state.bytes -= taken;
        let ask = !state.asked && state.credit.is_low(state.waiting(), state.outstanding);
        state.asked |= ask;
        Poll::Ready(Ok(Taken { ask }))
    }

    /// The receiver wants no more.
    pub(crate) fn abandon(&self) {
        let mut state = self.state();
        state.abandoned = true;
        state.deliveries = VecDeque::new();
        state.bytes = 0;
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.state().abandoned
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

/// A hub has sent far more events than it was granted.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the hub sends more events than it was granted ({most} wait unread); the link is opened anew")]
pub(crate) struct Overdrawn {
    most: usize,
}

/// The connection's side of an inbox.
pub(crate) struct Keeper(Arc<Inbox>);

impl Keeper {
    pub(crate) fn new(inbox: Arc<Inbox>) -> Self {
        Self(inbox)
    }

    pub(crate) fn is_abandoned(&self) -> bool {
        self.0.is_abandoned()
    }

    /// The hub accepted the link.
    pub(crate) fn opened(&self) {
        self.0.state().phase = Phase::Open;
        self.wake();
    }

    /// Lays a delivery down. Wake the receiver when there are no more for now. An error if the hub sends far more
    /// than it was granted: then nothing is laid down, and the link has to end.
    pub(crate) fn push(&self, delivery: Bytes) -> Result<(), Overdrawn> {
        let mut state = self.0.state();
        state.credit.saw(delivery.len());
        if state.abandoned {
            return Ok(());
        }
        let most = state.credit.most_waiting();
        if state.deliveries.len() >= most {
            return Err(Overdrawn { most });
        }
        state.bytes += delivery.len();
        state.deliveries.push_back(delivery);
        Ok(())
    }

    /// What the hub is to be granted, if that should change; it has this much now.
    pub(crate) fn grant(&self, outstanding: u32) -> Option<u32> {
        let mut state = self.0.state();
        state.asked = false;
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

    /// The link is over. Whoever gave way to another hands out nothing more.
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

impl Drop for Keeper {
    fn drop(&mut self) {
        self.end(Failure::lost("the connection is gone"));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hub_that_sends_far_more_than_it_was_granted_fills_no_memory() {
        let inbox = Inbox::new(Credit::new(10, 1 << 20));
        let keeper = Keeper::new(inbox.clone());
        keeper.opened();
        assert_eq!(keeper.grant(0), Some(10));
        for _ in 0..20 {
            keeper.push(Bytes::from_static(b"event")).unwrap();
        }
        for _ in 0..1_000 {
            assert_eq!(keeper.push(Bytes::from_static(b"event")), Err(Overdrawn { most: 20 }));
        }
        assert_eq!(inbox.state().deliveries.len(), 20);
        // Whoever has taken what came may get more.
        let mut context = Context::from_waker(Waker::noop());
        assert!(inbox.poll_take(&mut context, 100, drop).is_ready());
        keeper.push(Bytes::from_static(b"event")).unwrap();
    }
}
