//! A receiver of one partition that attaches again when its link or connection is lost.
//!
//! ```text
//!   Opening ─attached─► Checking ─same log─► Attached ─ ended ─► Waiting ─backoff─► Opening …   after the
//!      │ failed             │ another log        │ stolen by another receiver                    last event
//!      └─► Waiting, with    └─► Ended for good   └─► Ended for good; unless it was a stale       taken
//!          an error                                  link of our own
//! ```
//!
//! The first check finds out which log the receiver reads. No event is asked for before a check has passed: on a
//! slow connection its answer would wait behind the events.
//!
//! All state is in the receiver and not in the future of a call, so that dropping the future loses neither
//! events nor its place. A new link begins after the last event that was *taken from* the old one;
//! buffered events are returned first. An event that arrives a second time is skipped, whatever the hub does.

mod log_id_check;
mod open;
mod stale_links;

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
use crate::connection::{Command, ConnectionHandle, Deadline, LinkKey, ReceiverSpec};
use crate::credit::Credit;
use crate::delivery_queue::{DeliveryQueue, DeliveryQueueWriter};
use crate::failure_classes::Failure;
use crate::recreation_watch::{LogAnswer, log_since};
pub(crate) use open::open;
use stale_links::StaleLinks;

/// The maximum time for which closing waits for the hub to confirm.
const TIME_TO_CLOSE: Duration = Duration::from_secs(5);

/// A link that lasted this long resets the failure count.
const STABLE_AFTER: Duration = Duration::from_secs(10);

/// One link of a receiver. Dropping it releases it.
struct Link {
    connection: Arc<ConnectionHandle>,
    key: LinkKey,
    queue: Arc<DeliveryQueue>,
}

impl Drop for Link {
    fn drop(&mut self) {
        self.queue.abandon();
        self.connection.release(self.key);
    }
}

enum State {
    Opening {
        link: Link,
        timeout: Pin<Box<Sleep>>,
        deadline: Deadline,
    },
    /// The link is attached: asking the hub which log it has.
    Checking {
        link: Link,
        log: BoxFuture<'static, LogAnswer>,
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

pub(crate) struct RemoteReceiver {
    shared: Arc<Shared>,
    partition: PartitionId,
    /// The specification of the next link, including its start position.
    spec: ReceiverSpec,
    /// The flow control of the next link, which knows the size of the events of the links before it.
    credit: Credit,
    state: State,
    /// The id of the log that it reads; none before the first check, or if the hub does not tell.
    log: Option<LogId>,
    /// The number of failures in a row, without an event in between.
    failures: u32,
    stale_links: StaleLinks,
    /// The sequence number of the last event that was taken from a link.
    last: Option<SequenceNumber>,
    last_enqueued: Option<LastEnqueued>,
    /// A delivery that could not be decoded: reported after the events before it.
    unreadable: Option<Failure>,
}

impl RemoteReceiver {
    fn new(
        shared: Arc<Shared>,
        partition: PartitionId,
        spec: ReceiverSpec,
        credit: Credit,
        log: Option<LogId>,
    ) -> Self {
        let state = attach(&shared, partition, &spec, &credit);
        Self {
            log,
            shared,
            partition,
            spec,
            credit,
            state,
            failures: 0,
            stale_links: StaleLinks::default(),
            last: None,
            last_enqueued: None,
            unreadable: None,
        }
    }

    /// True if it reattaches by itself. With epoch 0 it does not: the hub would accept it even if another
    /// host owns the partition by now, so the caller checks its lease first.
    fn reattaches(&self) -> bool {
        self.spec.epoch != Some(Epoch::NONE)
    }

    /// Ready when the first link is attached, or when the attempts have failed.
    fn poll_opened(&mut self, context: &mut Context<'_>) -> Poll<Result<(), OpenError>> {
        loop {
            let Some(failure) = ready!(self.poll_attached(context)) else { return Poll::Ready(Ok(())) };
            let hopeless = failure.class() == Class::GiveUp || !self.reattaches();
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
                    self.state = attach(&self.shared, self.partition, &self.spec, &self.credit);
                }
                State::Checking { link, log } => {
                    if let Poll::Ready(failure) = link.queue.poll_ended(context) {
                        return Poll::Ready(Some(self.on_not_opened(failure)));
                    }
                    let answer = ready!(log.as_mut().poll(context));
                    if let Some(failure) = self.on_checked(answer) {
                        return Poll::Ready(Some(failure));
                    }
                }
                State::Opening { link, timeout, deadline } => match link.queue.poll_opened(context) {
                    Poll::Ready(Ok(())) => {
                        let State::Opening { link, .. } = std::mem::replace(&mut self.state, placeholder())
                        else {
                            continue;
                        };
                        let log = Box::pin(log_since(self.shared.clone(), Instant::now()));
                        self.state = State::Checking { link, log };
                    }
                    Poll::Ready(Err(failure)) => return Poll::Ready(Some(self.on_not_opened(failure))),
                    Poll::Pending => {
                        ready!(timeout.as_mut().poll(context));
                        if deadline.extend(link.connection.traffic()) {
                            timeout.as_mut().reset(deadline.at());
                            continue;
                        }
                        let failure = Failure::lost(self.shared.timeout_message());
                        if !deadline.others_are_answered() {
                            link.connection.abandon(&self.shared.timeout_message());
                        }
                        self.wait_after(&failure);
                        return Poll::Ready(Some(failure));
                    }
                },
            }
        }
    }

    /// The link ended before it could be used.
    fn on_not_opened(&mut self, failure: Failure) -> Failure {
        let failure = self.stale_links.reclassify(failure, &self.spec);
        self.wait_after(&failure);
        failure
    }

    fn wait_after(&mut self, failure: &Failure) {
        self.stale_links.note_failure(failure);
        // Only an existing link can fail.
        let Some(link) = self.state.link() else { return };
        self.failures = link.connection.failures_after(self.failures);
        self.credit = link.queue.credit();
        let until = Box::pin(sleep_until(self.shared.next_attempt(&link.connection, self.failures)));
        tracing::debug!(
            partition = %self.partition, failures = self.failures, reason = %failure, "receiver waits to reattach"
        );
        self.state = State::Waiting { until };
    }

    fn poll_receive(
        &mut self,
        context: &mut Context<'_>,
        into: &mut Vec<Event>,
        max: usize,
    ) -> Poll<Result<(), ReceiveError>> {
        loop {
            if let Some(failure) = self.unreadable.take() {
                self.wait_after(&failure);
                return Poll::Ready(Err(failure.into_source_error().into()));
            }
            match ready!(self.poll_attached(context)) {
                None => {}
                Some(failure) => match self.error_to_return(failure) {
                    Some(error) => return Poll::Ready(Err(error)),
                    None => continue,
                },
            }
            let State::Attached { link, since } = &self.state else { continue };
            let mut deliveries = Vec::new();
            match ready!(link.queue.poll_take(context, max, |delivery| deliveries.push(delivery))) {
                Ok(taken) => {
                    if taken.needs_credit {
                        link.connection.refill(link.key);
                    }
                    if self.hand_out(deliveries, into) {
                        return Poll::Ready(Ok(()));
                    }
                }
                Err(failure) => {
                    let stable = since.elapsed() >= STABLE_AFTER;
                    let failure = self.stale_links.reclassify(failure, &self.spec);
                    if let Some(error) = self.on_link_ended(&failure, stable) {
                        return Poll::Ready(Err(error));
                    }
                }
            }
        }
    }

    /// The error to return for a failed attempt; none if another attempt may help.
    fn error_to_return(&mut self, failure: Failure) -> Option<ReceiveError> {
        if let Failure::Refused(refusal) = &failure
            && refusal.condition == Condition::LinkStolen
        {
            let refusal = refusal.clone();
            self.state = State::Ended(failure);
            return Some(receive_error(Arc::unwrap_or_clone(refusal)));
        }
        // The lost link itself may hold the last free slot, until the hub notices that it is gone.
        let passes = failure.condition() == Some(&Condition::ResourceLimitExceeded);
        if !self.reattaches() {
            return Some(failure.into_source_error().into());
        }
        // The loss of the link counts as the first failure, but was no attempt.
        if (failure.class() == Class::GiveUp && !passes) || self.failures > self.shared.options.attempts {
            return Some(failure.into_source_error().into());
        }
        None
    }

    /// The link has ended, and all its deliveries are taken.
    fn on_link_ended(&mut self, failure: &Failure, stable: bool) -> Option<ReceiveError> {
        tracing::debug!(partition = %self.partition, reason = %failure, "receiver lost its link");
        if stable {
            self.failures = 0;
        }
        let at_once = self.failures == 0 && failure.class() == Class::Reopen && self.reattaches();
        self.wait_after(failure);
        if at_once {
            self.state = attach(&self.shared, self.partition, &self.spec, &self.credit);
        }
        self.error_to_return(failure.clone())
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
            self.spec.start = Start::Sequence { number, inclusive: false };
        }
        let any = into.len() > before;
        if any {
            self.failures = 0;
        }
        any
    }
}

/// Requests a link.
fn attach(shared: &Shared, partition: PartitionId, spec: &ReceiverSpec, credit: &Credit) -> State {
    let connection = shared.connection(Some(partition));
    let queue = DeliveryQueue::new(credit.clone());
    let key = LinkKey::new();
    connection.post(Command::Receive {
        key,
        spec: spec.clone(),
        queue: DeliveryQueueWriter::new(queue.clone()),
    });
    let deadline = Deadline::new(shared.answer_timeout(), connection.traffic());
    let timeout = Box::pin(sleep_until(deadline.at()));
    State::Opening { link: Link { connection, key, queue }, timeout, deadline }
}

/// A placeholder until the next assignment.
fn placeholder() -> State {
    State::Waiting { until: Box::pin(sleep_until(Instant::now())) }
}

impl Receiver for RemoteReceiver {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        max: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(async move {
            // A long backlog is always ready; reading it in a loop must not starve the connection's task.
            tokio::task::coop::consume_budget().await;
            poll_fn(|context| self.poll_receive(context, into, max)).await
        })
    }

    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.last_enqueued.clone()
    }

    fn log(&self) -> Option<LogId> {
        self.log.clone()
    }

    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            let Some(link) = self.state.link() else { return };
            link.queue.abandon();
            link.connection.release(link.key);
            // The hub does not know of a link whose connection was never established.
            if !link.connection.was_opened() {
                return;
            }
            let ended = poll_fn(|context| link.queue.poll_ended(context));
            // An unresponsive hub will detect the loss by itself.
            let timeout = TIME_TO_CLOSE.min(self.shared.options.answer_time);
            timeout_at(Instant::now() + timeout, ended).await.ok();
        })
    }
}
