//! The event loop of a connection.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Delivery, Event, LinkId, SessionId};
use ephor_amqp::driver::Driver;
use ephor_amqp::performative::{Attach, Error, Outcome};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::attention::{Attention, Wishes};
use super::life::Life;
use super::receiving::Inlet;
use super::requests::{Pair, PairName};
use super::sending::Outlet;
use super::sessions::Sessions;
use super::tokens::Tokens;
use super::{Command, Key};
use crate::endpoint::{Endpoint, Transport};
use crate::failure::Failure;

/// The time limit for closing a connection gracefully.
const TIME_FOR_GOODBYE: Duration = Duration::from_secs(10);

const UNUSED: &str = "the connection was closed, since nobody used it";

/// The user of a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    Receiver(Key),
    Sender(Key),
    Request(PairName),
}

/// A connection and all links on it.
pub(super) struct Task {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) driver: Driver<Box<dyn Transport>>,
    /// The user and the session of each link.
    pub(super) links: BTreeMap<LinkId, (Owner, SessionId)>,
    pub(super) sessions: Sessions,
    pub(super) tokens: Tokens,
    pub(super) cbs: Pair,
    pub(super) management: Pair,
    pub(super) receivers: BTreeMap<Key, Inlet>,
    pub(super) senders: BTreeMap<Key, Outlet>,
    /// Receivers that got deliveries in this turn.
    pub(super) fresh: BTreeSet<Key>,
    open: bool,
    life: Arc<Life>,
}

/// Connects, and serves until the connection has ended or nobody uses it any more.
pub(super) async fn run(life: Arc<Life>, mut commands: mpsc::Receiver<Command>, attention: Arc<Attention>) {
    let dialled = tokio::select! {
        biased;
        why = attention.condemned() => Err(Failure::lost(why)),
        () = life.until_due() => match commands.sender_strong_count() {
            0 => {
                let failure = Failure::lost(UNUSED);
                life.end_unused(&failure);
                Err(failure)
            }
            _ => tokio::select! {
                biased;
                why = attention.condemned() => Err(Failure::lost(why)),
                dialled = life.dial() => dialled,
            },
        },
    };
    match dialled {
        Ok(transport) => {
            let mut task = Task::new(life, transport);
            let failure = task.serve(&mut commands, &attention).await;
            turn_away(&mut commands, &failure, &task.life);
            task.fail_everything(&failure);
        }
        Err(failure) => turn_away(&mut commands, &failure, &life),
    }
}

/// Refuses all further commands, with the reason: their callers need another connection.
fn turn_away(commands: &mut mpsc::Receiver<Command>, failure: &Failure, life: &Life) {
    life.end(failure);
    commands.close();
    while let Ok(command) = commands.try_recv() {
        command.fail(failure.clone());
    }
}

impl Task {
    fn new(life: Arc<Life>, transport: Box<dyn Transport>) -> Self {
        let endpoint = life.place.endpoint.clone();
        let connection = Connection::client(endpoint.config(), ClientSasl::Anonymous, Duration::ZERO);
        Self {
            endpoint,
            driver: Driver::new(transport, connection),
            links: BTreeMap::new(),
            sessions: Sessions::default(),
            tokens: Tokens::default(),
            cbs: Pair::new(PairName::Cbs),
            management: Pair::new(PairName::Management),
            receivers: BTreeMap::new(),
            senders: BTreeMap::new(),
            fresh: BTreeSet::new(),
            open: false,
            life,
        }
    }

    pub(super) fn connection(&mut self) -> &mut Connection {
        self.driver.connection()
    }

    async fn serve(&mut self, commands: &mut mpsc::Receiver<Command>, attention: &Attention) -> Failure {
        loop {
            // Handle everything that was read in one go, so that receivers are woken only once.
            while let Some(event) = self.connection().next_event() {
                if let Some(failure) = self.on_event(event) {
                    return self.end(failure, commands).await;
                }
            }
            self.after_turn();
            let renewal = self.tokens.next_renewal();
            // Commands take precedence over frames from the hub, whose number is bounded by credit.
            tokio::select! {
                biased;
                wishes = attention.next() => {
                    if let Some(failure) = self.heed(wishes) {
                        return failure;
                    }
                }
                command = commands.recv(), if self.open => match command {
                    Some(command) => self.on_command(command),
                    None => {
                        self.connection().close(None);
                        let failure = Failure::lost(UNUSED);
                        self.life.end_unused(&failure);
                        self.say_goodbye().await;
                        return failure;
                    }
                },
                Some((audience, token)) = self.tokens.fetching.next(), if !self.tokens.fetching.is_empty() => {
                    self.on_token(&audience, token);
                }
                () = sleep_until(renewal.unwrap_or_else(Instant::now)), if renewal.is_some() => {
                    if let Some(failure) = self.renew() {
                        return failure;
                    }
                }
                event = self.driver.next() => match event {
                    Some(event) => if let Some(failure) = self.on_event(event) {
                        return self.end(failure, commands).await;
                    },
                    None => return Failure::lost("the connection ended"),
                },
            }
        }
    }

    /// Fails everything first, then closes the connection gracefully. Nobody waits for the close, because an
    /// unresponsive hub may not answer.
    async fn end(&mut self, failure: Failure, commands: &mut mpsc::Receiver<Command>) -> Failure {
        turn_away(commands, &failure, &self.life);
        self.fail_everything(&failure);
        self.say_goodbye().await;
        failure
    }

    /// Flushes the connection until the last byte is sent, within a time limit: the TLS close has none of its
    /// own.
    async fn say_goodbye(&mut self) {
        let out = async { while self.driver.next().await.is_some() {} };
        timeout_at(Instant::now() + TIME_FOR_GOODBYE, out).await.ok();
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Ask { query, reply } => self.ask_management(query, reply),
            Command::Receive { key, wish, inbox } => self.open_receiver(key, wish, inbox),
            Command::Attach { key, address, opened } => self.open_sender(key, &address, opened),
            Command::Send { key, message, reply } => self.send(key, message, reply),
        }
    }

    fn heed(&mut self, wishes: Wishes) -> Option<Failure> {
        if let Some(why) = wishes.condemned {
            return Some(Failure::lost(why));
        }
        for key in wishes.released {
            self.close_receiver(key);
            self.close_sender(key);
        }
        for key in wishes.refill {
            self.refill(key);
        }
        None
    }

    /// Handles an event of the connection; a failure if the connection has ended.
    fn on_event(&mut self, event: Event) -> Option<Failure> {
        match event {
            Event::Delivery(delivery) => self.on_delivery(delivery),
            Event::Opened(open) => {
                self.life.opened(&open.container_id);
                self.open = true;
            }
            Event::Attached { link, attach } => self.on_attached(link, &attach),
            Event::Detached { link, error } => self.on_detached(link, error),
            Event::Credit { link, .. } => match self.owner(link) {
                Some(Owner::Sender(key)) => self.pump_sender(key),
                Some(Owner::Request(name)) => self.pump_requests(name),
                Some(Owner::Receiver(_)) | None => {}
            },
            Event::Settled { link, first, last, outcome } => self.on_settled(link, (first, last), outcome),
            Event::Window { .. } | Event::Room => self.pump_everything(),
            Event::Ended { session, .. } => self.sessions.ended(session),
            Event::Closed(closed) if closed.peer_speaks_tls() => {
                return Some(self.life.confirmed(self.endpoint.wants_tls()));
            }
            Event::Closed(closed) => return Some(Failure::of_closed(closed)),
            // A client accepts no links from the hub, and drains none.
            Event::AttachRequested { link, .. } => {
                let error = Error::new(
                    ephor_amqp::performative::condition::NOT_ALLOWED,
                    "this is a client; it takes no links",
                );
                self.connection().refuse(link, error);
            }
            Event::Begun { .. } | Event::Drained { .. } | Event::Unended | Event::Authenticate(_) => {}
        }
        None
    }

    pub(super) fn owner(&self, link: LinkId) -> Option<Owner> {
        self.links.get(&link).map(|(owner, _)| *owner)
    }

    fn on_delivery(&mut self, delivery: Delivery) {
        if !delivery.settled {
            self.connection().settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
        }
        match self.owner(delivery.link) {
            Some(Owner::Receiver(key)) => self.on_event_delivered(key, delivery.payload),
            Some(Owner::Request(name)) => self.on_response(name, &delivery.payload),
            Some(Owner::Sender(_)) | None => {}
        }
    }

    fn on_attached(&mut self, link: LinkId, attach: &Attach) {
        match self.owner(link) {
            Some(Owner::Receiver(key)) => self.on_receiver_attached(key),
            Some(Owner::Sender(key)) => self.on_sender_attached(key, attach.max_message_size),
            Some(Owner::Request(name)) => self.on_pair_attached(name, link),
            None => {}
        }
    }

    fn on_detached(&mut self, link: LinkId, error: Option<Error>) {
        let Some((owner, session)) = self.links.remove(&link) else { return };
        self.sessions.left(session);
        let failure = Failure::of_error(error);
        tracing::debug!(?owner, reason = %failure, "link ended");
        match owner {
            Owner::Receiver(key) => self.end_receiver(key, failure),
            Owner::Sender(key) => self.end_sender(key, failure),
            Owner::Request(name) => self.on_pair_detached(name, &failure),
        }
    }

    fn on_settled(&mut self, link: LinkId, deliveries: (u32, u32), outcome: Option<Outcome>) {
        match self.owner(link) {
            Some(Owner::Sender(key)) => self.on_sender_settled(key, deliveries, outcome.as_ref()),
            Some(Owner::Request(name)) => self.on_request_settled(name, deliveries, outcome.as_ref()),
            Some(Owner::Receiver(_)) | None => {}
        }
    }

    fn pump_everything(&mut self) {
        self.pump_requests(PairName::Cbs);
        self.pump_requests(PairName::Management);
        for key in self.senders.keys().copied().collect::<Vec<_>>() {
            self.pump_sender(key);
        }
    }

    /// Refills the credit of receivers that got deliveries, and wakes them.
    fn after_turn(&mut self) {
        for key in std::mem::take(&mut self.fresh) {
            self.refill(key);
            if let Some(inlet) = self.receivers.get(&key) {
                inlet.inbox.wake();
            }
        }
    }

    fn fail_everything(&mut self, failure: &Failure) {
        for (_, inlet) in std::mem::take(&mut self.receivers) {
            inlet.inbox.end(failure.clone());
        }
        for (_, outlet) in std::mem::take(&mut self.senders) {
            outlet.fail(failure);
        }
        for name in [PairName::Management, PairName::Cbs] {
            for purpose in self.pair(name).take_all() {
                self.fail_purpose(purpose, failure);
            }
        }
        for waiter in self.tokens.take_waiters() {
            self.fail_waiter(waiter, failure);
        }
        self.links.clear();
    }
}
