//! Serves one connection in one task: the AMQP engine, its links, the hub's receivers that serve them, and
//! the sends in flight.
//!
//! Directions are named from the peer's point of view. A *sender* is a link on which the peer sends (inbound:
//! peer → hub, `inbound.rs`); a *receiver* is a link on which the peer receives (outbound: hub → peer,
//! `outbound.rs`).
//!
//! ```text
//! loop: shutdown, eviction ─ timer (expired tokens) ─ finished sends ─ events of receivers ─ the peer
//!       └─ after each turn: memory is reported, and reading from the peer is paused or resumed ─┘
//! ```
//!
//! That is the order in which the loop polls. Outcomes of sends come before more work. Events of receivers
//! ([`ReceiverEvent`]) come before the peer because waiting output bounds them: when the peer does not read, receivers
//! are not polled, and the peer's turn comes. While too much is on its way to the disk, nothing is read from
//! the peer; output and heartbeats still go out.
//!
//! | file | owns |
//! |---|---|
//! | `authentication.rs` | both directions: limits before and after the first valid token; expiry of tokens |
//! | `attach.rs` | both directions: the purpose of a link, and the checks before it is accepted |
//! | `inbound.rs` | inbound (peer → hub): deliveries on their way to the hub, and their outcomes |
//! | `receiver.rs` | outbound: a receiver link, its states and their transitions |
//! | `outbound.rs` | outbound (hub → peer): events on their way to the peer: credit, windows, room in the output |
//! | `event_log_reads.rs` | outbound: limits how many receivers read the log at a time |
//! | `draining.rs` | outbound: receivers whose peer drains its credit |
//! | `blocked_queues.rs` | outbound: FIFO queues of receivers that wait for room or a window |
//! | `byte_counter.rs` | outbound: sums of bytes that are read and held |
//! | `memory_usage.rs` | both directions: reports the connection's memory to the budget, and applies back-pressure |
//! | `requests.rs` | inbound: requests to `$cbs` and `$management` |
//! | `answers.rs` | outbound: their answers, until the peer takes them |
//! | `deleted_hubs.rs` | inbound: senders whose hub was closed or deleted |
//! | `link.rs` | both directions: the state of a link |

mod answers;
mod attach;
mod authentication;
mod blocked_queues;
mod byte_counter;
mod deleted_hubs;
mod draining;
mod event_log_reads;
mod inbound;
mod link;
mod memory_usage;
mod outbound;
mod receiver;
mod requests;

use std::collections::{BTreeMap, BTreeSet};
use std::future::poll_fn;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::Poll;
use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{Closed, Config, Event, LinkId, ServerSasl, SessionId};
use ephor_amqp::driver::Driver;
use ephor_amqp::performative::{Error, condition};
use ephor_core::BoxFuture;
use ephor_core::time::{Monotonic, Timestamp};
use ephor_wire::address::Address;
use ephor_wire::condition::{Refusal, error_texts as texts};
use futures_util::StreamExt;
use futures_util::future::Aborted;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};

use crate::access::{Access, Moment};
use crate::admission::Ticket;
use crate::budget::Share;
use crate::error_mapping::tracked;
use crate::gateway::Shared;
use answers::WaitingAnswers;
use blocked_queues::{BlockedOn, BlockedQueues};
use byte_counter::Tally;
pub(crate) use event_log_reads::MAX_CONCURRENT_LOG_READS;
use inbound::Done;
use link::Link;
use outbound::{MAX_CONCURRENT_POLLS, ReceiverEvent};
use receiver::count_polling;

/// The interval at which the wall clock is checked, which may jump, and at which receivers that hold unsent
/// events are reported as alive. It is far shorter than the time after which the hub forgets a receiver.
const CHECK_INTERVAL: Duration = Duration::from_secs(30);

type ReceiverEventFuture = Pin<Box<dyn Future<Output = Result<ReceiverEvent, Aborted>> + Send>>;

/// The task of a connection, with all its state.
pub(crate) struct ConnectionTask<S> {
    driver: Driver<S>,
    shared: Arc<Shared>,
    peer: SocketAddr,
    ticket: Ticket,
    share: Share,
    /// It buffers more than its share of the budget.
    waits: bool,
    /// The time at which the connection began; the AMQP engine counts from it.
    began: Monotonic,
    access: Access,
    links: BTreeMap<LinkId, Link>,
    /// In the order in which the deliveries came, which is the order of their outcomes.
    sends: FuturesOrdered<BoxFuture<'static, Done>>,
    bytes_in_flight: usize,
    receiver_events: FuturesUnordered<ReceiverEventFuture>,
    /// Receivers that wait for room in the output, or for a session window.
    queues: BlockedQueues<LinkId, SessionId>,
    /// Receivers that were taken out of `queues` and may still be polling for events.
    polling: Vec<LinkId>,
    /// Permits of this connection to read the log.
    log_reads: Arc<Semaphore>,
    /// Receivers that keep their permit to read the log until there is room.
    log_readers: Vec<LinkId>,
    /// Bytes that log reads in progress may bring.
    reading: Tally,
    /// Bytes that receivers hold of what they have read from the log.
    held: Tally,
    /// Answers to requests that wait for credit.
    answers: WaitingAnswers,
    /// Links whose answers wait for room in the output, or for a session window.
    blocked_replies: BTreeSet<LinkId>,
    /// Receivers whose peer drains its credit, and that may have no more events to send.
    draining: BTreeSet<LinkId>,
    /// Buffer in which an event is encoded before it is sent.
    scratch: Vec<u8>,
    acknowledgement_delay: Duration,
    /// The time at which it is checked whether an unauthenticated peer has a link.
    attach_by: Monotonic,
    /// The time until which a peer whose last token expired keeps what an authenticated one may have.
    renew_by: Option<Monotonic>,
    /// The peer is our own client, which is told more about a hub than the service tells.
    is_our_client: bool,
    timer: Option<(Monotonic, BoxFuture<'static, ()>)>,
    /// Something changed that the timer may depend on.
    timer_is_stale: bool,
    /// The id that our refusals have in the peer's log and in ours.
    tracking: String,
}

/// The event that a turn of the loop handles.
enum Turn {
    Stop,
    Evicted,
    /// The connection is evicted: others need the memory that its peer does not free.
    EvictedForMemory,
    /// The memory budget has room again, or may have.
    Relieved,
    Time,
    Done(Done),
    ReceiverEvent(Result<ReceiverEvent, Aborted>),
    Event(Option<Event>),
    /// A receiver that is being drained has no more events.
    Drained,
    /// The next receiver of a queue may go on.
    QueueReady,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(crate) fn new(shared: Arc<Shared>, stream: S, peer: SocketAddr, ticket: Ticket) -> Self {
        let limits = authentication::unauthenticated_limits(&shared.limits);
        let config =
            Config { limits, shared: shared.totals.clone(), ..Config::new(shared.container.clone()) };
        let sasl = ServerSasl { ask: !shared.policy.is_open(), ..ServerSasl::default() };
        let connection = Connection::server(config, sasl, Duration::ZERO);
        let environment = &shared.environment;
        Self {
            driver: Driver::new(stream, connection),
            peer,
            ticket,
            share: shared.budget.share(peer),
            waits: false,
            began: environment.now(),
            access: Access::new(shared.policy.clone(), shared.limits.tokens, shared.tokens.clone()),
            links: BTreeMap::new(),
            sends: FuturesOrdered::new(),
            bytes_in_flight: 0,
            receiver_events: FuturesUnordered::new(),
            queues: BlockedQueues::default(),
            polling: Vec::new(),
            log_reads: Arc::new(Semaphore::new(MAX_CONCURRENT_POLLS)),
            log_readers: Vec::new(),
            reading: Tally::default(),
            held: Tally::default(),
            answers: WaitingAnswers::default(),
            blocked_replies: BTreeSet::new(),
            draining: BTreeSet::new(),
            scratch: Vec::new(),
            acknowledgement_delay: Duration::ZERO,
            attach_by: environment.now() + shared.limits.time_without_links,
            renew_by: None,
            is_our_client: false,
            timer: None,
            timer_is_stale: true,
            tracking: format!("{:016x}{:016x}_G0", environment.random(), environment.random()),
            shared,
        }
    }

    /// Serves the peer until one side closes the connection.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            if std::mem::take(&mut self.timer_is_stale) {
                self.set_timer();
            }
            match self.turn(&mut stopped).await {
                Turn::Stop => {
                    let text = "The server is shutting down; reconnect.";
                    return self.stop(Error::new(condition::CONNECTION_FORCED, text)).await;
                }
                Turn::Evicted => {
                    let error = self.error_of_eviction();
                    return self.close_now(error).await;
                }
                Turn::EvictedForMemory => return self.close_for_memory().await,
                Turn::Time => self.on_time(),
                Turn::Done(done) => self.on_done(done),
                Turn::ReceiverEvent(Ok(event)) => self.on_receiver_event(event),
                Turn::ReceiverEvent(Err(Aborted)) | Turn::Drained => {}
                Turn::Event(Some(event)) => {
                    let pause = self.pause_after(&event);
                    self.on_event(event);
                    if let Some(pause) = pause {
                        pause.await;
                    }
                }
                Turn::Event(None) => return,
                Turn::Relieved => {
                    self.share.take_relief();
                    // The usage that the budget knows may be old, and other connections may have been faster.
                    self.report_memory();
                    if !self.share.waits() {
                        self.on_room(BlockedOn::Room);
                    }
                }
                Turn::QueueReady => self.advance_queues(),
            }
            if !self.draining.is_empty() {
                self.drain();
            }
            self.report_memory();
            self.report_refused();
        }
    }

    async fn turn(&mut self, stopped: &mut watch::Receiver<bool>) -> Turn {
        let admitted = self.ticket.is_admitted();
        let time = async {
            match &mut self.timer {
                Some((_, timer)) => timer.await,
                None => std::future::pending().await,
            }
        };
        let (links, draining, queues, polling) = (&self.links, &self.draining, &self.queues, &self.polling);
        let at_the_end = |link: &LinkId| match links.get(link) {
            Some(Link::Receiver(found)) => found.has_nothing_to_send(queues.contains(*link)),
            _ => true,
        };
        // Both are polled whenever the task wakes, because the state of receivers changes without a
        // notification.
        let drained = poll_fn(|_| ready(draining.iter().any(at_the_end)));
        let queue_ready = poll_fn(|_| ready(count_polling(polling, links) < MAX_CONCURRENT_POLLS));
        let waits = self.share.waits();
        tokio::select! {
            biased;
            // The same if the sender of the signal was dropped.
            _ = stopped.wait_for(|stopped| *stopped) => Turn::Stop,
            () = self.ticket.evicted(), if !admitted => Turn::Evicted,
            () = self.share.evicted() => Turn::EvictedForMemory,
            () = memory_usage::relieved(&self.share, &*self.shared.environment), if waits => Turn::Relieved,
            () = time => Turn::Time,
            Some(done) = self.sends.next(), if !self.sends.is_empty() => Turn::Done(done),
            Some(event) = self.receiver_events.next(), if !self.receiver_events.is_empty() => {
                Turn::ReceiverEvent(event)
            }
            () = drained, if !draining.is_empty() => Turn::Drained,
            () = queue_ready, if queues.is_ready() => Turn::QueueReady,
            // Also while reading is paused: output and heartbeats go out.
            event = self.driver.next() => Turn::Event(event),
        }
    }

    /// Shuts down gracefully: waits for the sends in flight, acknowledges them, and closes the connection.
    async fn stop(mut self, why: Error) {
        // Receivers end first, so that a successor need not wait.
        self.links.retain(|_, link| !matches!(link, Link::Receiver(_)));
        self.receiver_events.clear();
        while let Some(done) = self.sends.next().await {
            self.on_done(done);
        }
        self.driver.connection().close(Some(why));
        self.driver.finish().await;
    }

    /// Closes the connection, and does not wait for the peer, because others need the place.
    async fn close_now(mut self, why: Error) {
        tracing::debug!(peer = %self.peer, error = %why, "evicting a connection");
        self.driver.connection().close(Some(why));
        self.driver.write_now().await;
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Authenticate(init) => self.on_sasl(&init),
            Event::Opened(open) => self.on_opened(&open),
            Event::AttachRequested { session, link, attach } => self.on_attach(session, link, *attach),
            Event::Delivery(delivery) => self.on_delivery(delivery),
            Event::Oversized { link, delivery, size, limit } => {
                self.reject(link, delivery, texts::too_large(delivery, size, limit));
            }
            Event::Credit { link, drain } => self.on_credit(link, drain),
            Event::Room => self.on_room(BlockedOn::Room),
            Event::Window { session } => self.on_room(BlockedOn::Window(session)),
            Event::Detached { link, error } => {
                if let Some(error) = error {
                    tracing::debug!(peer = %self.peer, %error, "link detached");
                }
                self.forget_answers(link);
                self.forget_link(link);
            }
            Event::Closed(closed) => self.on_closed(&closed),
            // Memory usage is updated after every turn. All links are attached by the peer, and everything
            // that is sent is settled already.
            Event::Unended
            | Event::Begun { .. }
            | Event::Ended { .. }
            | Event::Attached { .. }
            | Event::Drained { .. }
            | Event::Settled { .. } => {}
        }
    }

    fn on_closed(&mut self, closed: &Closed) {
        match closed {
            Closed::Failed(error) => {
                if let Some(suppressed) =
                    self.shared.log_limits.connections.allow(self.shared.environment.now())
                {
                    let tracking = &self.tracking;
                    tracing::info!(peer = %self.peer, tracking, %error, suppressed, "connection failed");
                }
            }
            closed => tracing::debug!(peer = %self.peer, ?closed, "connection ended"),
        }
        // The hub's receivers are released at once. Sends go on, but their outcomes are not reported to
        // anybody.
        self.links.clear();
        self.receiver_events.clear();
        self.queues.clear();
        self.polling.clear();
        self.log_readers.clear();
        self.blocked_replies.clear();
        self.answers = WaitingAnswers::default();
        self.draining.clear();
    }

    fn now(&self) -> Timestamp {
        self.shared.environment.wall()
    }

    /// The current time, for checks of tokens.
    fn moment(&self) -> Moment {
        Moment::of(&*self.shared.environment)
    }

    /// A refusal as it is sent to the peer, with tracking id, entity and time appended.
    fn error(&self, refusal: Refusal, address: Option<&Address>) -> Error {
        let namespace = self.shared.namespace.name();
        tracked(refusal, &self.tracking, namespace, address, self.now())
    }

    fn refuse(&mut self, link: LinkId, refusal: Refusal, address: Option<&Address>) {
        let error = self.error(refusal, address);
        if let Some(suppressed) = self.shared.log_limits.links.allow(self.shared.environment.now()) {
            let tracking = &self.tracking;
            tracing::info!(peer = %self.peer, tracking, %error, suppressed, "link refused");
        }
        self.driver.connection().refuse(link, error);
    }

    /// Detaches a link from this end.
    fn detach(&mut self, link: LinkId, refusal: Refusal) {
        let Some(found) = self.forget_link(link) else { return };
        let error = self.error(refusal, found.address());
        if let Some(suppressed) = self.shared.log_limits.links.allow(self.shared.environment.now()) {
            let tracking = &self.tracking;
            tracing::info!(peer = %self.peer, tracking, %error, suppressed, "link detached");
        }
        self.driver.connection().detach(link, Some(error));
    }
}

fn ready(is_so: bool) -> Poll<()> {
    if is_so { Poll::Ready(()) } else { Poll::Pending }
}
