//! A receiver of one partition that survives the loss of its links.
//!
//! ```text
//!   Opening ─attached─► Attached ─ ended ─► Waiting ─backoff─► Opening …   after the last event taken
//!      │ failed             │ stolen by another receiver            │ attached
//!      └─► Waiting, with    └─► Ended for good; unless it was       └─► Checking ─ same log ─► Attached …
//!          an error             a stale link of our own                    └─ another log ─► Ended for good
//! ```
//!
//! All state is in the receiver and not in the future of a call, so that dropping the future loses neither
//! events nor the reconnect. A new link begins after the last event that was *taken from* the old one;
//! buffered events are returned first. An event that arrives a second time is skipped, whatever the hub does.

mod ghosts;
mod open;
mod same_log;

use std::future::poll_fn;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use ephor_core::BoxFuture;
use ephor_core::epoch::Epoch;
use ephor_core::event::Event;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::position::SequenceNumber;
use ephor_core::source::{LastEnqueued, OpenError, ReceiveError, Receiver};
use ephor_wire::annotations::received;
use ephor_wire::condition::{Class, Condition, open_error, receive_error};
use ephor_wire::selector::Start;
use tokio::time::{Instant, Sleep, sleep_until, timeout_at};

use crate::client::Shared;
use crate::credit::Credit;
use crate::failure::Failure;
use crate::inbox::{Inbox, Keeper};
use crate::line::{Command, Key, Line, ReceiverWish};
use crate::log_watch::{Told, log_since};
use ghosts::Ghosts;
pub(crate) use open::open;

/// The maximum time for which closing waits for the hub to confirm.
const TIME_TO_CLOSE: Duration = Duration::from_secs(5);

/// A link that lasted this long resets the failure count.
const STEADY: Duration = Duration::from_secs(10);

/// One link of a receiver. Dropping it releases it.
struct Link {
    line: Arc<Line>,
    key: Key,
    inbox: Arc<Inbox>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.inbox.abandon();
        self.line.release(self.key);
    }
}

enum State {
    Opening {
        link: Link,
        patience: Pin<Box<Sleep>>,
    },
    /// The link is a reattached one: checking that the hub still has the same log.
    Checking {
        link: Link,
        log: BoxFuture<'static, Told>,
    },
    Attached {
        link: Link,
        since: Instant,
    },
    Waiting {
        until: Pin<Box<Sleep>>,
    },
    Ended(Failure),
}

impl State {
    fn link(&self) -> Option<&Link> {
        match self {
            Self::Opening { link, .. } | Self::Checking { link, .. } | Self::Attached { link, .. } => {
                Some(link)
            }
            Self::Waiting { .. } | Self::Ended(_) => None,
        }
    }
}

pub(crate) struct HubReceiver {
    shared: Arc<Shared>,
    partition: PartitionId,
    /// The specification of the next link, including its start position.
    wish: ReceiverWish,
    prefetch: (usize, usize),
    state: State,
    /// The id of the log that it was opened in, if it was known.
    log: Option<LogId>,
    /// It was attached before.
    returns: bool,
    /// The number of failures in a row, without an event in between.
    failures: u32,
    ghosts: Ghosts,
    /// The sequence number of the last event that was taken from a link.
    last: Option<SequenceNumber>,
    last_enqueued: Option<LastEnqueued>,
    /// A delivery that could not be decoded: reported after the events before it.
    unreadable: Option<Failure>,
}

impl HubReceiver {
    fn new(
        shared: Arc<Shared>,
        partition: PartitionId,
        wish: ReceiverWish,
        prefetch: (usize, usize),
    ) -> Self {
        let state = attach(&shared, partition, &wish, prefetch);
        let log = shared.log_watch.last();
        Self {
            log,
            returns: false,
            shared,
            partition,
            wish,
            prefetch,
            state,
            failures: 0,
            ghosts: Ghosts::default(),
            last: None,
            last_enqueued: None,
            unreadable: None,
        }
    }

    /// True if it reattaches by itself. With epoch 0 it does not: the hub would accept it even if another
    /// host owns the partition by now, so the caller checks its lease first.
    fn comes_back(&self) -> bool {
        self.wish.epoch != Some(Epoch::NONE)
    }

    /// Ready when the first link is attached, or when the attempts have failed.
    fn poll_opened(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OpenError>> {
        loop {
            let Some(failure) = ready!(self.poll_attached(context)) else { return Poll::Ready(Ok(())) };
            let hopeless = failure.class() == Class::GiveUp || !self.comes_back();
            if hopeless || self.failures >= self.shared.options.attempts {
                return Poll::Ready(Err(match failure {
                    Failure::Refused(refusal) => open_error(Arc::unwrap_or_clone(refusal)),
                    other => other.into_source_error().into(),
                }));
            }
        }
    }

    /// Ready when a link is attached, or when an attempt has failed; then the next attempt is scheduled.
    fn poll_attached(&mut self, context: &mut Context<'_>) -> Poll<Option<Failure>> {
        loop {
            match &mut self.state {
                State::Attached { .. } => return Poll::Ready(None),
                State::Ended(failure) => return Poll::Ready(Some(failure.clone())),
                State::Waiting { until } => {
                    ready!(until.as_mut().poll(context));
                    self.state = attach(&self.shared, self.partition, &self.wish, self.prefetch);
                }
                State::Checking { log, .. } => {
                    let told = ready!(log.as_mut().poll(context));
                    if let Some(failure) = self.on_checked(told) {
                        return Poll::Ready(Some(failure));
                    }
                }
                State::Opening { link, patience } => match link.inbox.poll_opened(context) {
                    Poll::Ready(Ok(())) => {
                        let State::Opening { link, .. } =
                            std::mem::replace(&mut self.state, waiting_for_nothing())
                        else {
                            continue;
                        };
                        let now = Instant::now();
                        self.state = match self.log.is_some() && self.returns {
                            true => {
                                State::Checking { link, log: Box::pin(log_since(self.shared.clone(), now)) }
                            }
                            false => State::Attached { link, since: now },
                        };
                        self.returns = true;
                    }
                    Poll::Ready(Err(failure)) => {
                        let failure = self.ghosts.unmask(failure, &self.wish);
                        self.wait_after(&failure);
                        return Poll::Ready(Some(failure));
                    }
                    Poll::Pending => {
                        ready!(patience.as_mut().poll(context));
                        let failure = Failure::lost(self.shared.impatience());
                        link.line.condemn(&self.shared.impatience());
                        self.wait_after(&failure);
                        return Poll::Ready(Some(failure));
                    }
                },
            }
        }
    }

    fn wait_after(&mut self, failure: &Failure) {
        self.ghosts.after(failure);
        // Only an existing link can fail.
        let Some(link) = self.state.link() else { return };
        self.failures = link.line.failures_after(self.failures);
        let until = Box::pin(sleep_until(self.shared.next_attempt(&link.line, self.failures)));
        tracing::debug!(
            partition = %self.partition, failures = self.failures, reason = %failure, "receiver waits to attach again"
        );
        self.state = State::Waiting { until };
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        into: &mut Vec<Event>,
        most: usize,
    ) -> Poll<Result<(), ReceiveError>> {
        loop {
            if let Some(failure) = self.unreadable.take() {
                self.wait_after(&failure);
                return Poll::Ready(Err(failure.into_source_error().into()));
            }
            match ready!(self.poll_attached(context)) {
                None => {}
                Some(failure) => match self.told(failure) {
                    Some(error) => return Poll::Ready(Err(error)),
                    None => continue,
                },
            }
            let State::Attached { link, since } = &self.state else { continue };
            let mut deliveries = Vec::new();
            match ready!(link.inbox.poll_take(context, most, |delivery| deliveries.push(delivery))) {
                Ok(taken) => {
                    if taken.ask {
                        link.line.refill(link.key);
                    }
                    if self.hand_out(deliveries, into) {
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(failure) => {
                    let steady = since.elapsed() >= STEADY;
                    let failure = self.ghosts.unmask(failure, &self.wish);
                    if let Some(error) = self.on_link_ended(&failure, steady) {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
    }

    /// The error to return for a failed attempt; none if another attempt may help.
    fn told(&mut self, failure: Failure) -> Option<ReceiveError> {
        if let Failure::Refused(refusal) = &failure
            && refusal.condition == Condition::LinkStolen
        {
            let refusal = refusal.clone();
            self.state = State::Ended(failure);
            return Some(receive_error(Arc::unwrap_or_clone(refusal)));
        }
        // The lost link itself may hold the last free slot, until the hub notices that it is gone.
        let passes = failure.condition() == Some(&Condition::ResourceLimitExceeded);
        if !self.comes_back() {
            return Some(failure.into_source_error().into());
        }
        // The loss of the link counts as the first failure, but was no attempt.
        if (failure.class() == Class::GiveUp && !passes) || self.failures > self.shared.options.attempts {
            return Some(failure.into_source_error().into());
        }
        None
    }

    /// The link has ended, and all its deliveries are taken.
    fn on_link_ended(&mut self, failure: &Failure, steady: bool) -> Option<ReceiveError> {
        tracing::debug!(partition = %self.partition, reason = %failure, "receiver lost its link");
        if steady {
            self.failures = 0;
        }
        let at_once = self.failures == 0 && failure.class() == Class::Reopen && self.comes_back();
        self.wait_after(failure);
        if at_once {
            self.state = attach(&self.shared, self.partition, &self.wish, self.prefetch);
        }
        self.told(failure.clone())
    }

    /// Appends the events; returns true if there are any.
    fn hand_out(&mut self, deliveries: Vec<Bytes>, into: &mut Vec<Event>) -> bool {
        let before = into.len();
        for delivery in &deliveries {
            match received(delivery) {
                Ok((event, metrics)) => {
                    if let Some(metrics) = metrics {
                        self.last_enqueued = Some(metrics.last);
                    }
                    // Skip events that the hub repeats.
                    if self.last.is_none_or(|last| event.sequence > last) {
                        self.last = Some(event.sequence);
                        into.push(event);
                    }
                }
                Err(malformed) => {
                    // Take nothing after it, so that it is requested again and not skipped.
                    let why = format!("the hub sent something that is not an event: {malformed}");
                    self.unreadable = Some(Failure::lost(why));
                    break;
                }
            }
        }
        if let Some(number) = self.last {
            self.wish.start = Start::Sequence { number, inclusive: false };
        }
        let any = into.len() > before;
        if any {
            self.failures = 0;
        }
        any
    }
}

/// Requests a link.
fn attach(shared: &Shared, partition: PartitionId, wish: &ReceiverWish, prefetch: (usize, usize)) -> State {
    let line = shared.line(Some(partition));
    let inbox = Inbox::new(Credit::new(prefetch.0, prefetch.1));
    let key = Key::new();
    line.post(Command::Receive { key, wish: wish.clone(), inbox: Keeper::new(inbox.clone()) });
    let patience = Box::pin(sleep_until(Instant::now() + shared.patience()));
    State::Opening { link: Link { line, key, inbox }, patience }
}

/// A placeholder until the next assignment.
fn waiting_for_nothing() -> State {
    State::Waiting { until: Box::pin(sleep_until(Instant::now())) }
}

impl Receiver for HubReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        most: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(async move {
            // A long backlog is always ready; reading it in a loop must not starve the connection's task.
            tokio::task::coop::consume_budget().await;
            poll_fn(|context| self.poll_receive(context, into, most)).await
        })
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(link) = self.state.link() else { return };
            link.inbox.abandon();
            link.line.release(link.key);
            // The hub does not know of a link whose connection was never established.
            if !link.line.was_opened() {
                return;
            }
            let ended = poll_fn(|context| link.inbox.poll_ended(context));
            // An unresponsive hub will detect the loss by itself.
            let patience = TIME_TO_CLOSE.min(self.shared.options.answer_time);
            timeout_at(Instant::now() + patience, ended).await.ok();
        })
    }
}
