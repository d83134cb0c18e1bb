//! The event loop of a connection: handles commands, signals, AMQP events and timers.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Closed, Delivery, Event, LinkId, SessionId};
use ephor_amqp::driver::Driver;
use ephor_amqp::performative::{Attach, Error, Outcome};
use futures_util::StreamExt;
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until, timeout_at};

use super::lifecycle::Lifecycle;
use super::receiving::ReceiverLink;
use super::requests::{Pair, PairName};
use super::send_turns::Turns;
use super::sending::SenderLink;
use super::sessions::Sessions;
use super::signals::{PendingSignals, Signals};
use super::tokens::Tokens;
use super::traffic::Metered;
use super::{Command, LinkKey};
use crate::endpoint::{Endpoint, Transport};
use crate::failure_classes::Failure;

/// The time limit for closing a connection gracefully.
const MAX_CLOSE_TIME: Duration = Duration::from_secs(10);

const UNUSED: &str = "the connection was closed because it was unused";

/// The user of a link.
#[derive(Clone, Copy, Debug)]
pub(super) enum Owner {
    Receiver(LinkKey),
    Sender(LinkKey),
    Request(PairName),
}

/// A connection and all links on it.
pub(super) struct Task {
    pub(super) endpoint: Arc<Endpoint>,
    pub(super) driver: Driver<Metered>,
    /// The user and the session of each link.
    pub(super) links: BTreeMap<LinkId, (Owner, SessionId)>,
    pub(super) sessions: Sessions,
    pub(super) tokens: Tokens,
    pub(super) cbs: Pair,
    pub(super) management: Pair,
    pub(super) receivers: BTreeMap<LinkKey, ReceiverLink>,
    pub(super) senders: BTreeMap<LinkKey, SenderLink>,
    /// The order in which the senders send.
    pub(super) turns: Turns<SessionId>,
    /// Receivers that got deliveries in this turn.
    pub(super) fresh: BTreeSet<LinkKey>,
    open: bool,
    pub(super) lifecycle: Arc<Lifecycle>,
}

/// Connects, and serves until the connection has ended or nobody uses it any more.
pub(super) async fn run(
    lifecycle: Arc<Lifecycle>,
    mut commands: mpsc::Receiver<Command>,
    signals: Arc<Signals>,
) {
    let dialled = tokio::select! {
        biased;
        why = signals.abandoned() => Err(Failure::lost(why)),
        () = lifecycle.until_due() => match commands.sender_strong_count() {
            0 => {
                let failure = Failure::lost(UNUSED);
                lifecycle.end_unused(&failure);
                Err(failure)
            }
            _ => tokio::select! {
                biased;
                why = signals.abandoned() => Err(Failure::lost(why)),
                dialled = lifecycle.dial() => dialled,
            },
        },
    };
    match dialled {
        Ok(transport) => {
            let mut task = Task::new(lifecycle, transport);
            let failure = task.serve(&mut commands, &signals).await;
            fail_commands(&mut commands, &failure, &task.lifecycle);
            task.fail_everything(&failure);
        }
        Err(failure) => fail_commands(&mut commands, &failure, &lifecycle),
    }
}

/// Refuses all further commands, with the reason: their callers need another connection.
fn fail_commands(commands: &mut mpsc::Receiver<Command>, failure: &Failure, lifecycle: &Lifecycle) {
    lifecycle.end(failure);
    commands.close();
    while let Ok(command) = commands.try_recv() {
        command.fail(failure.clone());
    }
}

impl Task {
    pub(super) fn new(lifecycle: Arc<Lifecycle>, stream: Box<dyn Transport>) -> Self {
        let transport = Metered { stream, traffic: lifecycle.reconnect.traffic.clone() };
        let endpoint = lifecycle.reconnect.endpoint.clone();
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
            turns: Turns::default(),
            fresh: BTreeSet::new(),
            open: false,
            lifecycle,
        }
    }

    pub(super) fn connection(&mut self) -> &mut Connection {
        self.driver.connection()
    }

    async fn serve(&mut self, commands: &mut mpsc::Receiver<Command>, signals: &Signals) -> Failure {
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
                pending = signals.next() => {
                    if let Some(failure) = self.apply_signals(pending) {
                        return failure;
                    }
                }
                command = commands.recv(), if self.open => match command {
                    Some(command) => self.on_command(command),
                    None => {
                        self.connection().close(None);
                        let failure = Failure::lost(UNUSED);
                        self.lifecycle.end_unused(&failure);
                        self.close_gracefully().await;
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
        fail_commands(commands, &failure, &self.lifecycle);
        self.fail_everything(&failure);
        self.close_gracefully().await;
        failure
    }

    /// Flushes the connection until the last byte is sent, within a time limit: the TLS close has none of its
    /// own.
    async fn close_gracefully(&mut self) {
        let out = async { while self.driver.next().await.is_some() {} };
        timeout_at(Instant::now() + MAX_CLOSE_TIME, out).await.ok();
    }

    fn on_command(&mut self, command: Command) {
        match command {
            Command::Query { query, reply } => self.query_management(query, reply),
            Command::Receive { key, spec, queue } => self.open_receiver(key, spec, queue),
            Command::Attach { key, address, opened } => self.open_sender(key, &address, opened),
            Command::Send { key, message, reply } => self.send(key, message, reply),
        }
    }

    fn apply_signals(&mut self, pending: PendingSignals) -> Option<Failure> {
        if let Some(why) = pending.abandoned_for {
            return Some(Failure::lost(why));
        }
        for key in pending.released {
            self.close_receiver(key);
            self.close_sender(key);
        }
        for key in pending.refill {
            self.refill(key);
        }
        None
    }

    /// Handles an event of the connection; a failure if the connection has ended.
    pub(super) fn on_event(&mut self, event: Event) -> Option<Failure> {
        if matches!(event, Event::Opened(_) | Event::Attached { .. } | Event::Settled { .. }) {
            self.lifecycle.reconnect.traffic.answered();
        }
        match event {
            Event::Delivery(delivery) => self.on_delivery(delivery),
            Event::Oversized { link, delivery, size, limit } => {
                let outcome = Outcome::rejected(Error::too_large(delivery, size, limit));
                self.connection().settle(link, delivery, delivery, &outcome);
            }
            Event::Opened(open) => {
                self.lifecycle.opened(&open.container_id);
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
            Event::Closed(Closed::SpokeTls(_)) => {
                return Some(self.lifecycle.confirm_mismatch(self.endpoint.wants_tls()));
            }
            Event::Closed(closed) => return Some(Failure::of_closed(closed)),
            // A client accepts no links from the hub, and drains none.
            Event::AttachRequested { link, .. } => {
                let error = Error::new(
                    ephor_amqp::performative::condition::NOT_ALLOWED,
                    "this is a client; it accepts no links",
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
        self.sessions.link_ended(session);
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
        self.give_turns();
    }

    /// Refills the credit of receivers that got deliveries, and wakes them.
    fn after_turn(&mut self) {
        for key in std::mem::take(&mut self.fresh) {
            self.refill(key);
            if let Some(receiver) = self.receivers.get(&key) {
                receiver.queue.wake();
            }
        }
    }

    fn fail_everything(&mut self, failure: &Failure) {
        for (_, receiver) in std::mem::take(&mut self.receivers) {
            receiver.queue.end(failure.clone());
        }
        for (_, sender) in std::mem::take(&mut self.senders) {
            sender.fail(failure);
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
