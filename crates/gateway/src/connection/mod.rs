//! One connection: the engine, its links, the receivers behind them and the sends in flight, in one task.
//!
//! ```text
//! loop: told to go? ─ a token ran out? ─ sends that are done ─ news of receivers ─ the peer
//!       └─ after each turn: how much is kept, and whether the peer is read from ─┘
//! ```
//!
//! That is the order in which things are looked at. Outcomes come before more work; news comes before the
//! peer because output that waits bounds it: when the peer does not read, receivers are not asked, and the
//! peer's turn comes. While too much is on its way to the disk the peer has no turn at all.
//!
//! | file | owns |
//! |---|---|
//! | `standing.rs` | who the peer is to us: a stranger, or one that was let in; tokens that run out |
//! | `attach.rs` | what a link is for, and whether it may be |
//! | `sending.rs` | deliveries on their way to the hub, and their outcomes |
//! | `receiving.rs` | receivers on their way to the peer: credit, windows, room |
//! | `log_reads.rs` | their turns to read the log |
//! | `draining.rs` | those whose peer wants its credit used up or back |
//! | `lines.rs` | who of them waits for what, in turn |
//! | `tally.rs` | sums of what is kept |
//! | `memory.rs` | what the peer takes of what all share, and what follows from that |
//! | `requests.rs` | `$cbs` and `$management` |
//! | `answers.rs` | their answers, until the peer takes them |
//! | `ending.rs` | senders whose hub is gone |
//! | `link.rs` | what is known of a link |

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

/// Signs of life of receivers that wait for credit are given this often, and the wall clock is looked at,
/// which may jump: far more often than a receiver is forgotten.
const LOOK_AFTER: Duration = Duration::from_secs(30);

type NewsFuture = Pin<Box<dyn Future<Output = Result<News, Aborted>> + Send>>;

/// A connection and all that hangs on it.
pub(crate) struct Conversation<S> {
    driver: Driver<S>,
    shared: Arc<Shared>,
    peer: SocketAddr,
    ticket: Ticket,
    share: Share,
    /// It keeps more than its part of what all may keep.
    waits: bool,
    /// When the connection's time began.
    began: Monotonic,
    access: Access,
    links: BTreeMap<LinkId, Link>,
    /// In the order in which they came: so are the answers.
    sends: FuturesOrdered<BoxFuture<'static, Done>>,
    bytes_in_flight: usize,
    news: FuturesUnordered<NewsFuture>,
    /// Receivers that wait for room or a window.
    lines: Lines<LinkId, SessionId>,
    /// Those whose turn it was, and who may still look for events.
    asked: Vec<LinkId>,
    /// Turns to read the log.
    log_reads: Arc<Semaphore>,
    /// Those who keep their turn until there is room.
    log_readers: Vec<LinkId>,
    /// What those who read the log at this moment may bring.
    reading: Tally,
    /// What receivers keep of what they have read from the log.
    held: Tally,
    /// Answers that wait for credit.
    answers: WaitingAnswers,
    /// Links whose answers wait for room or a window.
    blocked_replies: BTreeSet<LinkId>,
    /// Receivers whose peer wants its credit used up or back, and that may have come to that.
    draining: BTreeSet<LinkId>,
    /// Where an event is put together before it goes out.
    scratch: Vec<u8>,
    acknowledgement_delay: Duration,
    /// A token that counts has to be here by then.
    authorize_by: Monotonic,
    timer: Option<(Monotonic, BoxFuture<'static, ()>)>,
    /// Something has changed that the timer may depend on.
    look_at_timer: bool,
    /// What our refusals are called in the peer's log and in ours.
    tracking: String,
}

/// What a turn of the loop is about.
enum Turn {
    Stop,
    Evicted,
    /// Others need the memory of its deliveries that have not ended.
    Hoards,
    /// There is memory again.
    Relieved,
    Time,
    Done(Done),
    News(Result<News, Aborted>),
    Event(Option<Event>),
    /// A receiver that is drained has come to the end of what there is.
    Drained,
    /// The next in line may go on.
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

    /// Serves the peer until it or we have enough.
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
                    // What the budget was told may be old, and others may have been faster.
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
        // Both are looked at whenever the task wakes: receivers move on by themselves.
        let drained = poll_fn(|_| ready(draining.iter().any(at_the_end)));
        let asked = &self.asked;
        let line = poll_fn(|_| ready(asking(asked, links) < ASKED_AT_ONCE));
        let waits = self.share.waits();
        tokio::select! {
            biased;
            // A sender that is gone means the same.
            _ = stopped.wait_for(|stopped| *stopped) => Turn::Stop,
            () = self.ticket.evicted(), if !admitted => Turn::Evicted,
            () = self.share.evicted() => Turn::Hoards,
            () = self.share.relieved(), if waits => Turn::Relieved,
            () = time => Turn::Time,
            Some(done) = self.sends.next(), if !self.sends.is_empty() => Turn::Done(done),
            Some(news) = self.news.next(), if !self.news.is_empty() => Turn::News(news),
            () = drained, if !draining.is_empty() => Turn::Drained,
            () = line, if self.lines.is_ready() => Turn::Line,
            // Also while nothing is read: output and heartbeats go out.
            event = self.driver.next() => Turn::Event(event),
        }
    }

    /// Answers what is on its way to the disk, and says goodbye.
    async fn stop(mut self, why: Error) {
        // Receivers give up their places first: whoever takes over need not wait.
        self.links.retain(|_, link| !matches!(link, Link::Receiver(_)));
        self.news.clear();
        while let Some(done) = self.sends.next().await {
            self.on_done(done);
        }
        self.driver.connection().close(Some(why));
        self.driver.finish().await;
    }

    /// Says goodbye, and does not wait until it is heard: others need the place.
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
            // What is kept is looked at after every turn. Links of ours are answers only, and what we send is
            // settled.
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
        // The places of its receivers are free at once. Sends go on; nobody is left to be told.
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

    /// For whoever asks whether a token counts.
    fn moment(&self) -> Moment {
        Moment::of(&*self.shared.environment)
    }

    /// A refusal as the peer gets it, with where and when behind it.
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

    /// Detaches a link for a reason of ours.
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

/// A refusal for a link that asks for what nobody can have.
fn not_allowed(text: &str) -> Refusal {
    Refusal::new(Condition::NotAllowed, text)
}

/// A rejected delivery.
fn rejected(refusal: &Refusal) -> ephor_amqp::performative::Outcome {
    ephor_amqp::performative::Outcome::rejected(refusals::error(refusal))
}
