//! One TCP connection and everything on it, owned by one task.
//!
//! ```text
//!   receivers, producers ── Command (bounded) ──►┐
//!                        ── Attention ──────────►│ task ◄──► driver ◄──► socket
//!                        ◄── Inbox, oneshot ─────┘
//! ```
//!
//! A line lives as long as its connection. When that is lost, everyone on it is told, and the next who asks its
//! [`Slot`] gets a new one, which is dialled when the backoff of the slot is over; whoever asks meanwhile waits for the
//! same dial. When nobody holds it any more, the connection is closed in good order.
//!
//! | file | owns |
//! |---|---|
//! | `redial.rs` | when to dial again: one backoff, whoever waits |
//! | `life.rs` | the dial, the hub's `open` and the end, told once each |
//! | `task.rs` | the loop: commands, events of the connection, time |
//! | `attention.rs` | what can be said without a queue: more credit, no longer wanted, given up |
//! | `sessions.rs` | which link lives in which session |
//! | `tokens.rs` | what has been put on `$cbs`, and when it is to be renewed |
//! | `requests.rs` | questions and answers, on `$cbs` and `$management` |
//! | `receiving.rs`, `sending.rs` | the links that carry events |

mod attention;
mod life;
mod receiving;
mod redial;
mod requests;
mod sending;
mod sessions;
mod task;
mod tokens;

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use ephor_core::epoch::Epoch;
use ephor_core::failure::Backoff;
use ephor_core::panics;
use ephor_wire::address::Address;
use ephor_wire::management::Query;
use ephor_wire::selector::Start;
use tokio::sync::{mpsc, oneshot};

use crate::dial_limit::DialLimit;
use crate::endpoint::Endpoint;
use crate::failure::Failure;
use crate::inbox::Keeper;
use attention::Attention;
use life::{Life, Place};

/// So many commands wait for a connection. Each of them is somebody's who waits for its answer.
const MOST_COMMANDS: usize = 4_096;

/// Names a link of this process, across all connections, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn new() -> Self {
        static NEXT: AtomicU64 = AtomicU64::new(0);
        Self(NEXT.fetch_add(1, Ordering::Relaxed))
    }
}

/// A receiver as it is wanted.
#[derive(Clone, Debug)]
pub(crate) struct ReceiverWish {
    pub(crate) address: Address,
    pub(crate) start: Start,
    pub(crate) epoch: Option<Epoch>,
    /// Empty if it has none.
    pub(crate) name: String,
}

/// A message on its way.
#[derive(Clone)]
pub(crate) struct Outgoing {
    pub(crate) format: u32,
    pub(crate) bytes: Bytes,
}

/// What a connection is asked to do.
pub(crate) enum Command {
    /// Ask `$management`; the answer is a response.
    Ask { query: Query, reply: oneshot::Sender<Result<Bytes, Failure>> },
    /// Open a link that receives.
    Receive { key: Key, wish: ReceiverWish, inbox: Keeper },
    /// Open a link that sends; the answer is the largest message that it takes.
    Attach { key: Key, address: Address, opened: oneshot::Sender<Result<usize, Failure>> },
    /// Send on such a link.
    Send { key: Key, message: Outgoing, reply: oneshot::Sender<Result<(), Failure>> },
}

impl Command {
    fn fail(self, failure: Failure) {
        // Whoever does not listen any more does not need to know.
        match self {
            Self::Ask { reply, .. } => drop(reply.send(Err(failure))),
            Self::Receive { inbox, .. } => inbox.end(failure),
            Self::Attach { opened, .. } => drop(opened.send(Err(failure))),
            Self::Send { reply, .. } => drop(reply.send(Err(failure))),
        }
    }
}

/// A connection, to those who use it.
pub(crate) struct Line {
    commands: mpsc::Sender<Command>,
    attention: Arc<Attention>,
    life: Arc<Life>,
}

impl Line {
    #[expect(clippy::disallowed_methods, reason = "a socket needs a task, and sockets are not simulated")]
    fn start(place: Arc<Place>) -> Arc<Self> {
        let (commands, receiver) = mpsc::channel(MOST_COMMANDS);
        let attention = Arc::new(Attention::default());
        let life = Arc::new(Life::new(place));
        let (run, watched) = (task::run(life.clone(), receiver, attention.clone()), life.clone());
        tokio::spawn(async move {
            // Whoever waits for it hears that the connection is gone; whoever asks next gets a new one.
            if let Err(panicked) = panics::caught_async(run).await {
                tracing::error!(%panicked, "the task of a connection panicked");
                watched.end(&Failure::lost("its task panicked"));
            }
        });
        Arc::new(Self { commands, attention, life })
    }

    /// Gives a command. If that is not possible, whoever waits for its answer is told.
    pub(crate) fn post(&self, command: Command) {
        match self.commands.try_send(command) {
            Ok(()) => {}
            Err(mpsc::error::TrySendError::Full(command)) => {
                command.fail(Failure::lost("too much waits for this connection"));
            }
            Err(mpsc::error::TrySendError::Closed(command)) => {
                let why = self.life.failure().cloned();
                command.fail(why.unwrap_or_else(|| Failure::lost("the connection is gone")));
            }
        }
    }

    /// Asks to look at the credit of a receiver.
    pub(crate) fn refill(&self, key: Key) {
        self.attention.refill(key);
    }

    /// Says that a link is no longer wanted.
    pub(crate) fn release(&self, key: Key) {
        self.attention.release(key);
    }

    /// Gives the connection up: it did not answer in time.
    pub(crate) fn condemn(&self, why: &str) {
        self.life.end(&Failure::lost(why));
        self.attention.condemn(why);
    }

    /// Whether the connection is lost, or never came about. The next one is dialled when it is time; who asks for it
    /// needs no backoff of its own.
    pub(crate) fn is_over(&self) -> bool {
        // A runtime that shuts down drops the task, which then tells nobody.
        self.life.failure().is_some() || self.commands.is_closed()
    }

    /// Whether the hub has said `open`.
    pub(crate) fn was_opened(&self) -> bool {
        self.life.was_opened()
    }

    /// Dials in a row that the hub did not answer, if this connection is over.
    pub(crate) fn unanswered_dials(&self) -> u32 {
        self.life.unanswered()
    }

    /// How often in a row something failed, with one failure more on this connection: who comes in the middle of an
    /// outage learns of it from the next dial.
    pub(crate) fn failures_after(&self, failures: u32) -> u32 {
        failures.saturating_add(1).max(self.unanswered_dials())
    }
}

/// The place of one connection, which comes and goes.
pub(crate) struct Slot {
    place: Arc<Place>,
    line: Mutex<Option<Arc<Line>>>,
}

impl Slot {
    pub(crate) fn new(endpoint: Arc<Endpoint>, limit: Arc<DialLimit>, backoff: Backoff) -> Self {
        let place = Arc::new(Place::new(endpoint, limit, backoff));
        Self { place, line: Mutex::new(None) }
    }

    /// The connection that is there, or a new one. It may still be on its way, or wait for its turn.
    pub(crate) fn line(&self) -> Arc<Line> {
        let mut line = self.line.lock().unwrap_or_else(PoisonError::into_inner);
        match &*line {
            Some(line) if !line.is_over() => line.clone(),
            _ => line.insert(Line::start(self.place.clone())).clone(),
        }
    }
}
