//! Serves one connection in one task: the AMQP engine, its links, the hub's receivers that serve them, and
//! the sends in flight.
//!
//! Directions are named from the peer's point of view. A *sender* is a link on which the peer sends (inbound:
//! peer → hub, `sending.rs`); a *receiver* is a link on which the peer receives (outbound: hub → peer,
//! `receiving.rs`).
//!
//! ```text
//! loop: shutdown, eviction ─ timer (expired tokens) ─ finished sends ─ events of receivers ─ the peer
//!       └─ after each turn: memory is reported, and reading from the peer is paused or resumed ─┘
//! ```
//!
//! That is the order in which the loop polls. Outcomes of sends come before more work. Events of receivers
//! ([`News`]) come before the peer because waiting output bounds them: when the peer does not read, receivers
//! are not polled, and the peer's turn comes. While too much is on its way to the disk, nothing is read from
//! the peer; output and heartbeats still go out.
//!
//! | file | owns |
//! |---|---|
//! | `standing.rs` | both directions: authentication: limits before and after the first valid token; expiry of tokens |
//! | `attach.rs` | both directions: the purpose of a link, and the checks before it is accepted |
//! | `sending.rs` | inbound (peer → hub): deliveries on their way to the hub, and their outcomes |
//! | `receiving.rs` | outbound (hub → peer): events on their way to the peer: credit, windows, room in the output |
//! | `log_reads.rs` | outbound: limits how many receivers read the log at a time |
//! | `draining.rs` | outbound: receivers whose peer drains its credit |
//! | `lines.rs` | outbound: FIFO queues of receivers that wait for room or a window |
//! | `tally.rs` | outbound: sums of bytes that are read and held |
//! | `memory.rs` | both directions: reports the connection's memory to the budget, and applies back-pressure |
//! | `requests.rs` | inbound: requests to `$cbs` and `$management` |
//! | `answers.rs` | outbound: their answers, until the peer takes them |
//! | `ending.rs` | inbound: senders whose hub was closed or deleted |
//! | `link.rs` | both directions: the state of a link |

mod answers;
mod attach;
mod draining;
mod ending;
mod lines;
mod link;
mod log_reads;
mod memory;
mod receiving;
mod requests;
mod sending;
mod standing;
mod tally;

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
use ephor_wire::condition::{Condition, Refusal};
use futures_util::StreamExt;
use futures_util::future::Aborted;
use futures_util::stream::{FuturesOrdered, FuturesUnordered};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{Semaphore, watch};

use crate::access::{Access, Moment};
use crate::admission::Ticket;
use crate::budget::Share;
use crate::gateway::Shared;
use crate::refusals::{self, tracked};
use answers::WaitingAnswers;
use lines::{Line, Lines};
use link::Link;
pub(crate) use log_reads::LOG_READS_AT_ONCE;
use receiving::{ASKED_AT_ONCE, News, asking};
use sending::Done;
use tally::Tally;

/// The interval at which the wall clock is checked, which may jump, and at which receivers that hold unsent
/// events are reported as alive. It is far shorter than the time after which the hub forgets a receiver.
const LOOK_AFTER: Duration = Duration::from_secs(30);

type NewsFuture = Pin<Box<dyn Future<Output = Result<News, Aborted>> + Send>>;

/// The task of a connection, with all its state.
pub(crate) struct Conversation<S> {
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
    news: FuturesUnordered<NewsFuture>,
    /// Receivers that wait for room in the output, or for a session window.
    lines: Lines<LinkId, SessionId>,
    /// Receivers that were taken out of `lines` and may still be polling for events.
    asked: Vec<LinkId>,
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
    /// The deadline for a valid token.
    authorize_by: Monotonic,
    timer: Option<(Monotonic, BoxFuture<'static, ()>)>,
    /// Something changed that the timer may depend on.
    look_at_timer: bool,
    /// The id that our refusals have in the peer's log and in ours.
    tracking: String,
}

/// The event that a turn of the loop handles.
enum Turn {
    Stop,
    Evicted,
    /// The connection is evicted: others need the memory of its incomplete deliveries.
    Hoards,
    /// The memory budget has room again.
    Relieved,
    Time,
    Done(Done),
    News(Result<News, Aborted>),
    Event(Option<Event>),
    /// A receiver that is being drained has no more events.
    Drained,
    /// The next receiver of a queue may go on.
    Line,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    pub(crate) fn new(shared: Arc<Shared>, stream: S, peer: SocketAddr, ticket: Ticket) -> Self {
        let limits = standing::of_a_stranger(&shared.limits);
        let config =
            Config { limits, shared: shared.totals.clone(), ..Config::new(shared.container.clone()) };
        let sasl = ServerSasl { ask: !shared.policy.is_open(), ..ServerSasl::default() };
        let connection = Connection::server(config, sasl, Duration::ZERO);
        let environment = &shared.environment;
        Self {
            driver: Driver::new(stream, connection),
            peer,
            ticket,
            share: shared.budget.share(),
            waits: false,
            began: environment.now(),
            access: Access::new(shared.policy.clone(), shared.limits.tokens, shared.tokens.clone()),
            links: BTreeMap::new(),
            sends: FuturesOrdered::new(),
            bytes_in_flight: 0,
            news: FuturesUnordered::new(),
            lines: Lines::default(),
            asked: Vec::new(),
            log_reads: Arc::new(Semaphore::new(ASKED_AT_ONCE)),
            log_readers: Vec::new(),
            reading: Tally::default(),
            held: Tally::default(),
            answers: WaitingAnswers::default(),
            blocked_replies: BTreeSet::new(),
            draining: BTreeSet::new(),
            scratch: Vec::new(),
            acknowledgement_delay: Duration::ZERO,
            authorize_by: environment.now() + shared.limits.time_to_authorize,
            timer: None,
            look_at_timer: true,
            tracking: format!("{:016x}{:016x}_G0", environment.random(), environment.random()),
            shared,
        }
    }

    /// Serves the peer until one side closes the connection.
    pub(crate) async fn run(mut self, mut stopped: watch::Receiver<bool>) {
        loop {
            if std::mem::take(&mut self.look_at_timer) {
                self.set_timer();
            }
            match self.turn(&mut stopped).await {
                Turn::Stop => {
                    let text = "The service is stopping; connect again.";
                    return self.stop(Error::new(condition::CONNECTION_FORCED, text)).await;
                }
                Turn::Evicted => {
                    let text = "Too many connections have not shown a token, and this one has to go.";
                    return self.go(Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)).await;
                }
                Turn::Hoards => return self.go_for_others().await,
                Turn::Time => self.on_time(),
                Turn::Done(done) => self.on_done(done),
                Turn::News(Ok(news)) => self.on_news(news),
                Turn::News(Err(Aborted)) => {}
                Turn::Event(Some(event)) => {
                    let pause = self.pause_behind(&event);
                    self.on_event(event);
                    if let Some(pause) = pause {
                        pause.await;
                    }
                }
                Turn::Event(None) => return,
                Turn::Drained => {}
                Turn::Relieved => {
                    self.share.take_relief();
                    // The usage that the budget knows may be old, and other connections may have been faster.
                    self.account();
                    if !self.share.waits() {
                        self.on_room(Line::Room);
                    }
                }
                Turn::Line => self.advance_lines(),
            }
            if !self.draining.is_empty() {
                self.drain();
            }
            self.account();
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
        let (links, draining) = (&self.links, &self.draining);
        let at_the_end = |link: &LinkId| match links.get(link) {
            Some(Link::Receiver(found)) => found.has_nothing_to_send(),
            _ => true,
        };
        // Both are polled whenever the task wakes, because the state of receivers changes without a
        // notification.
        let drained = poll_fn(|_| ready(draining.iter().any(at_the_end)));
        let asked = &self.asked;
        let line = poll_fn(|_| ready(asking(asked, links) < ASKED_AT_ONCE));
        let waits = self.share.waits();
        tokio::select! {
            biased;
            // The same if the sender of the signal was dropped.
            _ = stopped.wait_for(|stopped| *stopped) => Turn::Stop,
            () = self.ticket.evicted(), if !admitted => Turn::Evicted,
            () = self.share.evicted() => Turn::Hoards,
            () = self.share.relieved(), if waits => Turn::Relieved,
            () = time => Turn::Time,
            Some(done) = self.sends.next(), if !self.sends.is_empty() => Turn::Done(done),
            Some(news) = self.news.next(), if !self.news.is_empty() => Turn::News(news),
            () = drained, if !draining.is_empty() => Turn::Drained,
            () = line, if self.lines.is_ready() => Turn::Line,
            // Also while reading is paused: output and heartbeats go out.
            event = self.driver.next() => Turn::Event(event),
        }
    }

    /// Shuts down gracefully: waits for the sends in flight, acknowledges them, and closes the connection.
    async fn stop(mut self, why: Error) {
        // Receivers end first, so that a successor need not wait.
        self.links.retain(|_, link| !matches!(link, Link::Receiver(_)));
        self.news.clear();
        while let Some(done) = self.sends.next().await {
            self.on_done(done);
        }
        self.driver.connection().close(Some(why));
        self.driver.finish().await;
    }

    /// Closes the connection, and does not wait for the peer, because others need the place.
    async fn go(mut self, why: Error) {
        tracing::debug!(peer = %self.peer, error = %why, "a connection has to go");
        self.driver.connection().close(Some(why));
        self.driver.write_now().await;
    }

    fn on_event(&mut self, event: Event) {
        match event {
            Event::Authenticate(init) => self.on_sasl(&init),
            Event::Opened(open) => self.on_opened(&open),
            Event::AttachRequested { session, link, attach } => self.on_attach(session, link, *attach),
            Event::Delivery(delivery) => self.on_delivery(delivery),
            Event::Credit { link, drain } => self.on_credit(link, drain),
            Event::Room => self.on_room(Line::Room),
            Event::Window { session } => self.on_room(Line::Window(session)),
            Event::Detached { link, error } => {
                if let Some(error) = error {
                    tracing::debug!(peer = %self.peer, %error, "a link was detached");
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
                if let Some(muffled) = self.shared.noise.connections.hear(self.shared.environment.now()) {
                    let tracking = &self.tracking;
                    tracing::info!(peer = %self.peer, tracking, %error, muffled, "a connection was closed");
                }
            }
            closed => tracing::debug!(peer = %self.peer, ?closed, "a connection ended"),
        }
        // The hub's receivers are released at once. Sends go on, but their outcomes are not reported to
        // anybody.
        self.links.clear();
        self.news.clear();
        self.lines.clear();
        self.asked.clear();
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
        if let Some(muffled) = self.shared.noise.links.hear(self.shared.environment.now()) {
            let tracking = &self.tracking;
            tracing::info!(peer = %self.peer, tracking, %error, muffled, "a link was refused");
        }
        self.driver.connection().refuse(link, error);
    }

    /// Detaches a link from this end.
    fn detach(&mut self, link: LinkId, refusal: Refusal) {
        let Some(found) = self.forget_link(link) else { return };
        let error = self.error(refusal, found.address());
        if let Some(muffled) = self.shared.noise.links.hear(self.shared.environment.now()) {
            let tracking = &self.tracking;
            tracing::info!(peer = %self.peer, tracking, %error, muffled, "a link was detached");
        }
        self.driver.connection().detach(link, Some(error));
    }
}

fn ready(is_so: bool) -> Poll<()> {
    if is_so { Poll::Ready(()) } else { Poll::Pending }
}

/// The refusal of a link that asks for something that no peer may have.
fn not_allowed(text: &str) -> Refusal {
    Refusal::new(Condition::NotAllowed, text)
}

/// A rejected delivery.
fn rejected(refusal: &Refusal) -> ephor_amqp::performative::Outcome {
    ephor_amqp::performative::Outcome::rejected(refusals::error(refusal))
}
