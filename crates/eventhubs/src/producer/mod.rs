//! Sends events: one or many, to a partition, by key, or to any partition.
//!
//! Events are packed into messages as large as the hub accepts. Each target, the hub as a whole or one
//! partition, has a link of its own and a task that owns it (`sender.rs`), which sends and retries in order.
//! `producer_trait.rs` implements the interface that all hubs share.

mod batches;
mod error;
mod producer_trait;
mod sender;

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::producer::Target;
use ephor_wire::address::Address;
use tokio::sync::{OwnedMutexGuard, mpsc, oneshot};

use crate::client::Shared;
use crate::connection::Outgoing;
use batches::{Batches, Ready};
use sender::{Job, Sender};

pub use error::{SendError, SendFailure};

/// The default number of messages of one link that the hub has not answered yet.
pub const DEFAULT_IN_FLIGHT: usize = 64;
/// The maximum number of such messages. More would only take memory.
pub const MAX_IN_FLIGHT: usize = 1_024;

/// Options of a producer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ProducerOptions {
    /// The maximum number of messages in flight on one link: [`DEFAULT_IN_FLIGHT`]; at least 1, at most
    /// [`MAX_IN_FLIGHT`].
    ///
    /// It matters to callers that send before an earlier send has returned. Their messages are stored in the
    /// order in which they were begun, also when a connection is lost; but if the hub refuses one
    /// temporarily, later messages in flight may be stored before it. With 1 they never are.
    pub in_flight: usize,
}

impl Default for ProducerOptions {
    fn default() -> Self {
        Self { in_flight: DEFAULT_IN_FLIGHT }
    }
}

/// Sends to a hub. Clones share their links.
///
/// When a send returns, the hub has stored its events. Once a send waits for the hub, dropping its future
/// does not cancel it.
///
/// It is also a [`Producer`](ephor_core::producer::Producer), as those of other hubs are.
#[derive(Clone)]
pub struct EventHubProducer(Arc<Inner>);

struct Inner {
    shared: Arc<Shared>,
    options: ProducerOptions,
    /// The links by partition; `None` for the hub as a whole.
    links: Mutex<BTreeMap<Option<PartitionId>, Handle>>,
}

/// A handle to the task of one link.
#[derive(Clone)]
struct Handle {
    jobs: mpsc::Sender<Job>,
    /// The maximum message size of the link; 0 until it is known.
    limit: Arc<AtomicUsize>,
    /// Held by the send that hands over its first message next; the others wait in the order in which they
    /// came.
    turns: Arc<tokio::sync::Mutex<()>>,
}

/// Held until the first message of a send is queued at the link's task.
type Turn = OwnedMutexGuard<()>;

impl EventHubProducer {
    pub(crate) fn new(shared: Arc<Shared>, options: ProducerOptions) -> Self {
        let options = ProducerOptions { in_flight: options.in_flight.clamp(1, MAX_IN_FLIGHT) };
        Self(Arc::new(Inner { shared, options, links: Mutex::new(BTreeMap::new()) }))
    }

    /// Sends one event to the partition that its key chooses, or to any.
    pub async fn send(&self, event: NewEvent) -> Result<(), SendError> {
        self.send_batch(Target::Any, [event]).await.map(|_| ())
    }

    /// Sends one event to a partition.
    pub async fn send_to(&self, partition: PartitionId, event: NewEvent) -> Result<(), SendError> {
        self.send_batch(Target::Partition(partition), [event]).await.map(|_| ())
    }

    /// Sends events in as few messages as possible, and returns their number. A message is stored whole or
    /// not at all; the next one is sent when the one before is stored.
    ///
    /// The order is kept among events for one partition and among those with one key; with [`Target::Any`],
    /// events with different keys go in separate messages and may overtake each other, and so may those
    /// without a key.
    pub async fn send_batch(
        &self,
        target: Target<'_>,
        events: impl IntoIterator<Item = NewEvent, IntoIter: Send>,
    ) -> Result<usize, SendError> {
        let partition = match target {
            Target::Partition(partition) => Some(partition),
            Target::Any | Target::Key(_) => None,
        };
        let handle = self.handle(partition);
        let (turn, limit) = handle.begin().await.map_err(|failure| SendError { sent: 0, failure })?;
        let mut turn = Some(turn);
        let mut batches = Batches::new(limit);
        let mut count = 0;
        for (index, mut event) in events.into_iter().enumerate() {
            if let Target::Key(key) = target {
                event.partition_key = Some(key.into());
            }
            let key = event.partition_key.clone().filter(|_| partition.is_none());
            let pushed = batches.push(index, key, &event);
            // The number of events before the oldest one that is not stored.
            let stored = |of: usize| batches.first().map_or(of, |first| first.min(of));
            let ready = pushed.map_err(|why| SendError {
                sent: stored(index),
                failure: SendFailure::Event { index, why },
            })?;
            if let Some(Ready { message, first, events }) = ready {
                let failed = |failure| SendError { sent: stored(first), failure };
                handle.send(message, &mut turn).await.map_err(failed)?;
                count += events;
            }
        }
        for Ready { message, first, events } in batches.into_rest() {
            let failed = |failure| SendError { sent: first, failure };
            handle.send(message, &mut turn).await.map_err(failed)?;
            count += events;
        }
        Ok(count)
    }

    fn handle(&self, partition: Option<PartitionId>) -> Handle {
        let mut links = self.0.links.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(handle) = links.get(&partition).filter(|handle| !handle.jobs.is_closed()) {
            return handle.clone();
        }
        let hub = self.0.shared.endpoint.hub.clone();
        let address = match partition {
            Some(partition) => Address::Partition { hub, partition },
            None => Address::Hub { hub },
        };
        let in_flight = self.0.options.in_flight;
        let (jobs, receiver) = mpsc::channel(in_flight);
        let limit = Arc::new(AtomicUsize::new(0));
        let handle = Handle { jobs, limit: limit.clone(), turns: Arc::default() };
        let sender = Sender::new(self.0.shared.clone(), address, partition, receiver, in_flight, limit);
        sender.start();
        links.insert(partition, handle.clone());
        handle
    }
}

impl Handle {
    /// Waits for sends that began earlier, and for the maximum message size of the link. All sends wait for
    /// the latter at the same time, so that with an unreachable hub none waits for the attempts of others.
    async fn begin(&self) -> Result<(Turn, usize), SendFailure> {
        let turn = async { Ok(self.turns.clone().lock_owned().await) };
        tokio::try_join!(biased; turn, self.limit())
    }

    async fn limit(&self) -> Result<usize, SendFailure> {
        match self.limit.load(Ordering::Relaxed) {
            0 => self.ask(Job::Limit, &mut None).await,
            known => Ok(known),
        }
    }

    async fn send(&self, message: Outgoing, turn: &mut Option<Turn>) -> Result<(), SendFailure> {
        self.ask(|reply| Job::Send(message, reply), turn).await
    }

    async fn ask<T>(
        &self,
        job: impl FnOnce(oneshot::Sender<Result<T, SendFailure>>) -> Job,
        turn: &mut Option<Turn>,
    ) -> Result<T, SendFailure> {
        let (reply, answer) = oneshot::channel();
        self.jobs.send(job(reply)).await.map_err(|_| SendFailure::gone())?;
        // The message has its place in the queue; let the next send begin.
        drop(turn.take());
        answer.await.map_err(|_| SendFailure::gone())?
    }
}

impl fmt::Debug for EventHubProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let endpoint = &self.0.shared.endpoint;
        write!(f, "EventHubProducer({}/{})", endpoint.namespace, endpoint.hub)
    }
}
