//! One AMQP connection and all links on it, owned by one task.
//!
//! ```text
//!   receivers, producers ── Command (bounded) ────────►┐
//!                        ── Signals ──────────────────►│ task ◄──► driver ◄──► socket
//!                        ◄── DeliveryQueue, oneshot ───┘
//! ```
//!
//! A [`ConnectionHandle`] lives as long as its connection. When that is lost, every user on it gets an error, and
//! the next one that asks the [`ReconnectingConnection`] gets a new one, which is dialled when the backoff is over;
//! all users wait for the same dial. When no user is left, the connection is closed gracefully.
//!
//! | file | owns |
//! |---|---|
//! | `redial.rs` | the time of the next dial: one backoff for all users |
//! | `lifecycle.rs` | the lifecycle: the dial, the hub's `open` and the end, each logged once |
//! | `task.rs` | the event loop: commands, events of the connection, timers |
//! | `traffic.rs` | counts of bytes and answers, and deadlines that are extended while they grow |
//! | `signals.rs` | signals without a queue: more credit, link released, connection abandoned |
//! | `sessions.rs` | the assignment of links to sessions |
//! | `tokens.rs` | the tokens that were put on `$cbs`, and their renewal |
//! | `requests.rs` | requests and responses on `$cbs` and `$management` |
//! | `receiving.rs`, `sending.rs` | the links that carry events |
//! | `send_turns.rs` | the order in which sender links send |

mod lifecycle;
mod receiving;
mod redial;
mod requests;
mod send_turns;
mod sending;
mod sessions;
mod signals;
mod task;
mod tokens;
mod traffic;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ephor_core::epoch::Epoch;
use ephor_core::failure_policy::Backoff;
use ephor_core::panics;
use ephor_wire::address::Address;
use ephor_wire::management::Query;
use ephor_wire::selector::Start;
use tokio::sync::{mpsc, oneshot};

use crate::delivery_queue::DeliveryQueueWriter;
use crate::dial_limit::DialLimit;
use crate::endpoint::Endpoint;
use crate::failure_classes::Failure;
use lifecycle::{Lifecycle, ReconnectState};
use signals::Signals;
pub(crate) use traffic::{Deadline, Traffic};

/// The maximum length of the command queue. Every queued command has a caller that awaits its reply.
const MAX_QUEUED_COMMANDS: usize = 4_096;

/// Identifies a link of this process across all connections; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LinkKey(u64);

impl LinkKey {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// The specification of a receiver link.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverSpec {
    pub(crate) address: Address,
    pub(crate) start: Start,
    pub(crate) epoch: Option<Epoch>,
    /// The receiver's name; empty if it has none.
    pub(crate) name: String,
}

/// An encoded message to send.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) format: u32,
    pub(crate) bytes: Bytes,
}

/// A command to a connection's task.
pub(crate) enum Command {
    /// Send a request to `$management`; the answer is a response.
    Query { query: Query, reply: oneshot::Sender<Result<Bytes, Failure>> },
    /// Open a receiver link.
    Receive { key: LinkKey, spec: ReceiverSpec, queue: DeliveryQueueWriter },
    /// Open a sender link; the answer is the maximum message size of the link.
    Attach { key: LinkKey, address: Address, opened: oneshot::Sender<Result<usize, Failure>> },
    /// Send a message on such a link.
    Send { key: LinkKey, message: Outgoing, reply: oneshot::Sender<Result<(), Failure>> },
}

impl Command {
    fn fail(self, failure: Failure) {
        // If the receiver of the reply is gone, nobody needs the failure.
        match self {
            Self::Query { reply, .. } => drop(reply.send(Err(failure))),
            Self::Receive { queue, .. } => queue.end(failure),
            Self::Attach { opened, .. } => drop(opened.send(Err(failure))),
            Self::Send { reply, .. } => drop(reply.send(Err(failure))),
        }
    }
}

/// A handle to a connection, for its users.
pub(crate) struct ConnectionHandle {
    commands: mpsc::Sender<Command>,
    signals: Arc<Signals>,
    lifecycle: Arc<Lifecycle>,
}

impl ConnectionHandle {
    #[expect(clippy::disallowed_methods, reason = "a socket needs a task, and sockets are not simulated")]
    fn start(reconnect: Arc<ReconnectState>) -> Arc<Self> {
        let (commands, receiver) = mpsc::channel(MAX_QUEUED_COMMANDS);
        let signals = Arc::new(Signals::default());
        let lifecycle = Arc::new(Lifecycle::new(reconnect));
        let (run, watched) = (task::run(lifecycle.clone(), receiver, signals.clone()), lifecycle.clone());
        tokio::spawn(async move {
            // Callers that wait get an error because the connection is gone; the next one gets a new
            // connection.
            if let Err(panicked) = panics::caught_async(run).await {
                tracing::error!(%panicked, "the task of a connection panicked");
                watched.end(&Failure::lost("its task panicked"));
            }
        });
        Arc::new(Self { commands, signals, lifecycle })
    }

    /// Posts a command. If that fails, the waiting caller gets the failure.
    pub(crate) fn post(&self, command: Command) {
        match self.commands.try_send(command) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(command)) => {
                command.fail(Failure::lost("too many commands wait for this connection"));
            }
            Err(mpsc::error::TrySendError::Closed(command)) => {
                let why = self.lifecycle.failure().cloned();
                command.fail(why.unwrap_or_else(|| Failure::lost("the connection has ended")));
            }
        }
    }

    /// Asks the task to refill the credit of a receiver.
    pub(crate) fn refill(&self, key: LinkKey) {
        self.signals.refill(key);
    }

    /// Marks a link as no longer wanted.
    pub(crate) fn release(&self, key: LinkKey) {
        self.signals.release(key);
    }

    /// Abandons the connection, because it did not answer in time.
    pub(crate) fn abandon(&self, why: &str) {
        self.lifecycle.end(&Failure::lost(why));
        self.signals.abandon(why);
    }

    /// True if the connection is lost, or was never made. The next one is dialled when the backoff is
    /// over; its users need no backoff of their own.
    pub(crate) fn is_over(&self) -> bool {
        // A runtime that shuts down drops the task without recording a failure.
        self.lifecycle.failure().is_some() || self.commands.is_closed()
    }

    /// The traffic of the connection, and of those before it.
    pub(crate) fn traffic(&self) -> &Traffic {
        &self.lifecycle.reconnect.traffic
    }

    /// True if the hub has sent `open`.
    pub(crate) fn was_opened(&self) -> bool {
        self.lifecycle.was_opened()
    }

    /// The number of dials in a row that the hub did not answer, if this connection has ended.
    pub(crate) fn unanswered_dials(&self) -> u32 {
        self.lifecycle.unanswered()
    }

    /// The number of failures in a row, after one more failure on this connection: a user that arrives in the
    /// middle of an outage also counts the unanswered dials before it.
    pub(crate) fn failures_after(&self, failures: u32) -> u32 {
        failures.saturating_add(1).max(self.unanswered_dials())
    }
}

/// Holds the current connection, and replaces it when it has ended.
pub(crate) struct ReconnectingConnection {
    reconnect: Arc<ReconnectState>,
    current: Mutex<Option<Arc<ConnectionHandle>>>,
}

impl ReconnectingConnection {
    pub(crate) fn new(endpoint: Arc<Endpoint>, limit: Arc<DialLimit>, backoff: Backoff) -> Self {
        let reconnect = Arc::new(ReconnectState::new(endpoint, limit, backoff));
        Self { reconnect, current: Mutex::new(None) }
    }

    /// The traffic of the connections of this slot.
    pub(crate) fn traffic(&self) -> &Arc<Traffic> {
        &self.reconnect.traffic
    }

    /// The current connection, or a new one. It may still be dialling, or waiting for its backoff.
    pub(crate) fn current(&self) -> Arc<ConnectionHandle> {
        let mut current = self.current.lock().unwrap_or_else(PoisonError::into_inner);
        match &*current {
            Some(connection) if !connection.is_over() => connection.clone(),
            _ => current.insert(ConnectionHandle::start(self.reconnect.clone())).clone(),
        }
    }
}
