//! Sender links of a connection: they carry messages from the client to the hub.

use std::collections::{BTreeMap, VecDeque};

use ephor_amqp::connection::{Blocked, LinkId, Sent};
use ephor_amqp::performative::{Attach, Outcome, ReceiverSettles, SenderSettles, Source};
use ephor_wire::address::Address;
use ephor_wire::condition::{Condition, Refusal};
use tokio::sync::oneshot;

use super::send_turns::Turn;
use super::sessions::Kind;
use super::task::{Owner, Task};
use super::tokens::Waiter;
use super::{LinkKey, Outgoing};
use crate::failure_classes::Failure;

/// The maximum message size of a hub that announces none.
const DEFAULT_MAX_MESSAGE_SIZE: u64 = 1 << 20;

type Reply = oneshot::Sender<Result<(), Failure>>;

/// The state of a sender link, from the command to its end.
pub(super) struct SenderLink {
    address: String,
    audience: String,
    link: Option<LinkId>,
    opened: Option<oneshot::Sender<Result<usize, Failure>>>,
    /// Messages that are not sent yet. The producer bounds their number.
    queue: VecDeque<(Outgoing, Reply)>,
    /// Messages that are sent and not settled yet, by delivery id.
    unsettled: BTreeMap<u32, Reply>,
    /// Nobody wants it any more. It stays until the hub has answered the `detach`, without messages.
    released: bool,
}

impl SenderLink {
    pub(super) fn fail(self, failure: &Failure) {
        if let Some(opened) = self.opened {
            opened.send(Err(failure.clone())).ok();
        }
        let replies = self.unsettled.into_values().chain(self.queue.into_iter().map(|(_, reply)| reply));
        for reply in replies {
            reply.send(Err(failure.clone())).ok();
        }
    }
}

impl Task {
    pub(super) fn open_sender(
        &mut self,
        key: LinkKey,
        address: &Address,
        opened: oneshot::Sender<Result<usize, Failure>>,
    ) {
        if opened.is_closed() {
            return;
        }
        let audience = address.audience(self.endpoint.namespace.as_str());
        let sender = SenderLink {
            address: address.to_string(),
            audience: audience.clone(),
            link: None,
            opened: Some(opened),
            queue: VecDeque::new(),
            unsettled: BTreeMap::new(),
            released: false,
        };
        self.senders.insert(key, sender);
        self.authorize(audience, Waiter::Sender(key));
    }

    pub(super) fn attach_sender(&mut self, key: LinkKey) {
        let Some(sender) = self.senders.get_mut(&key) else { return };
        let container = &self.endpoint.container;
        let mut attach = Attach::sender(format!("{container}-{}", key.0), &sender.address);
        attach.source = Some(Source::from(container));
        attach.sender_settles = Some(SenderSettles::Unsettled);
        attach.receiver_settles = Some(ReceiverSettles::First);
        let connection = self.driver.connection();
        let session = self.sessions.assign(connection, Kind::Senders, 1);
        let link = session.and_then(|session| Some((session, connection.attach(session, attach)?)));
        match link {
            Some((session, link)) => {
                sender.link = Some(link);
                self.links.insert(link, (Owner::Sender(key), session));
            }
            None => {
                if let Some(session) = session {
                    self.sessions.link_ended(session);
                }
                self.end_sender(key, Failure::lost("the hub allows no more links on this connection"));
            }
        }
    }

    pub(super) fn on_sender_attached(&mut self, key: LinkKey, max_message_size: Option<u64>) {
        let Some(sender) = self.senders.get_mut(&key) else { return };
        let size = max_message_size.filter(|&size| size > 0).unwrap_or(DEFAULT_MAX_MESSAGE_SIZE);
        if let Some(opened) = sender.opened.take() {
            opened.send(Ok(usize::try_from(size).unwrap_or(usize::MAX))).ok();
        }
    }

    pub(super) fn send(&mut self, key: LinkKey, message: Outgoing, reply: Reply) {
        match self.senders.get_mut(&key) {
            Some(sender) if !sender.released => {
                sender.queue.push_back((message, reply));
                self.pump_sender(key);
            }
            _ => drop(reply.send(Err(Failure::lost("the link has ended")))),
        }
    }

    /// Sends the messages of a link, unless others of its session stand in line before it.
    pub(super) fn pump_sender(&mut self, key: LinkKey) {
        let Some(sender) = self.senders.get(&key).filter(|sender| !sender.queue.is_empty()) else { return };
        let link = sender.link.and_then(|link| self.links.get(&link));
        let Some(&(_, session)) = link else { return };
        if !self.turns.is_free(session) || self.take_turn(key) != Turn::Done {
            self.turns.stand(key, session);
        }
    }

    /// There may be room again: everybody in line gets a turn.
    pub(super) fn give_turns(&mut self) {
        let line = self.turns.take().give(|key| self.take_turn(key));
        self.turns.put_back(line);
    }

    /// Sends as many messages of a link as it can.
    fn take_turn(&mut self, key: LinkKey) -> Turn {
        let Some(sender) = self.senders.get_mut(&key) else { return Turn::Done };
        let Some(link) = sender.link else { return Turn::Done };
        let connection = self.driver.connection();
        let mut sent = false;
        while let Some((message, _)) = sender.queue.front() {
            match connection.send(link, message.format, false, &[&message.bytes]) {
                Sent::Sent(delivery) => {
                    let Some((_, reply)) = sender.queue.pop_front() else { break };
                    sender.unsettled.insert(delivery, reply);
                    sent = true;
                }
                // The hub grants it to this link alone, and the end of a link is an event of its own.
                Sent::Blocked(Blocked::Credit) | Sent::Gone => break,
                Sent::Blocked(by) => return Turn::Blocked { by, sent },
            }
        }
        Turn::Done
    }

    pub(super) fn on_sender_settled(
        &mut self,
        key: LinkKey,
        (first, last): (u32, u32),
        outcome: Option<&Outcome>,
    ) {
        let Some(sender) = self.senders.get_mut(&key) else { return };
        let outcome = outcome_of(outcome);
        let mut delivery = first;
        loop {
            if let Some(reply) = sender.unsettled.remove(&delivery) {
                reply.send(outcome.clone()).ok();
            }
            if delivery == last {
                break;
            }
            delivery = delivery.wrapping_add(1);
        }
        self.pump_sender(key);
    }

    /// Closes a sender that is no longer wanted. Its messages are dropped at once: nobody waits for their
    /// outcomes, and a hub that does not answer would keep them in memory, one link after the other.
    pub(super) fn close_sender(&mut self, key: LinkKey) {
        let Some(sender) = self.senders.get_mut(&key) else { return };
        sender.released = true;
        (sender.queue, sender.unsettled) = (VecDeque::new(), BTreeMap::new());
        self.turns.leave(key);
        match sender.link {
            Some(link) => self.connection().detach(link, None),
            None => self.end_sender(key, Failure::lost("closed before it was open")),
        }
    }

    pub(super) fn end_sender(&mut self, key: LinkKey, failure: Failure) {
        if let Some(sender) = self.senders.remove(&key) {
            self.turns.leave(key);
            self.unauthorize(&sender.audience);
            self.renew_if_unauthorized(&sender.audience, &failure);
            sender.fail(&failure);
        }
    }
}

/// The result of a send, from the outcome of its delivery.
pub(super) fn outcome_of(outcome: Option<&Outcome>) -> Result<(), Failure> {
    match outcome {
        // Settled without an outcome counts as accepted.
        Some(Outcome::Accepted) | None => Ok(()),
        Some(Outcome::Rejected(Some(error))) => Err(Failure::of_error(Some(error.clone()))),
        Some(Outcome::Rejected(None)) => Err(Failure::refused(Refusal::new(
            Condition::NotAllowed,
            "the hub rejected the message without a reason",
        ))),
        Some(Outcome::Released | Outcome::Modified { .. }) => {
            Err(Failure::refused(Refusal::new(Condition::ServerBusy, "the hub released the message")))
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;
    use std::time::Duration;

    use bytes::Bytes;
    use ephor_amqp::Connection;
    use ephor_amqp::connection::{Config, Event, ServerSasl};
    use ephor_amqp::driver::Driver;
    use ephor_core::failure_policy::Backoff;
    use tokio::io::{DuplexStream, duplex};

    use super::super::lifecycle::{Lifecycle, ReconnectState};
    use super::*;
    use crate::dial_limit::DialLimit;
    use crate::endpoint::Endpoint;

    fn lifecycle() -> Arc<Lifecycle> {
        let limit = Duration::from_secs(60);
        let endpoint = Endpoint {
            namespace: "localhost".parse().unwrap(),
            hub: "homes".parse().unwrap(),
            address: ("localhost".to_owned(), 1),
            tls: None,
            credential: None,
            container: "client".to_owned(),
            connect_time: limit,
            idle_time: limit,
            answer_time: limit,
        };
        let (dials, backoff) = (DialLimit::of(&endpoint.address), Backoff { first: limit, max: limit });
        Arc::new(Lifecycle::new(Arc::new(ReconnectState::new(Arc::new(endpoint), dials, backoff))))
    }

    /// A hub that accepts a link and grants no credit. Then nobody polls it any more.
    async fn accept_one(stream: DuplexStream) -> Driver<DuplexStream> {
        let connection = Connection::server(Config::new("hub"), ServerSasl::default(), Duration::ZERO);
        let mut driver = Driver::new(stream, connection);
        loop {
            if let Some(Event::AttachRequested { link, attach, .. }) = driver.next().await {
                driver.connection().accept(link, attach.answer());
                driver.write_now().await;
                return driver;
            }
        }
    }

    #[tokio::test]
    async fn a_link_that_was_given_up_keeps_no_message_while_the_hub_does_not_answer() {
        let (ours, theirs) = duplex(1 << 16);
        let mut task = Task::new(lifecycle(), Box::new(ours));
        let (key, (opened, mut limit)) = (LinkKey::new(), oneshot::channel());
        let mut opened = Some(opened);
        let mut hub = std::pin::pin!(accept_one(theirs));
        let mut silent = None;
        while limit.try_recv().is_err() {
            tokio::select! {
                event = task.driver.next() => assert!(task.on_event(event.unwrap()).is_none()),
                driver = &mut hub, if silent.is_none() => silent = Some(driver),
            }
            if task.connection().is_open()
                && let Some(opened) = opened.take()
            {
                task.open_sender(key, &Address::Hub { hub: "homes".parse().unwrap() }, opened);
            }
        }
        let bytes = Bytes::from(vec![7; 1_000]);
        let message = || Outgoing { format: 0, bytes: bytes.clone() };
        let (reply, _outcome) = oneshot::channel();
        task.send(key, message(), reply);
        assert!(!bytes.is_unique(), "it waits for credit");
        task.close_sender(key);
        assert!(bytes.is_unique(), "the message is kept until the hub answers");
        let (reply, mut outcome) = oneshot::channel();
        task.send(key, message(), reply);
        assert!(bytes.is_unique() && outcome.try_recv().unwrap().is_err());
    }
}
