//! Sender links: from the client to the hub.

use std::collections::{BTreeMap, VecDeque};

use ephor_amqp::connection::{LinkId, Sent};
use ephor_amqp::performative::{Attach, Outcome, ReceiverSettles, SenderSettles, Source};
use ephor_wire::address::Address;
use ephor_wire::condition::{Condition, Refusal};
use tokio::sync::oneshot;

use super::sessions::Kind;
use super::task::{Owner, Task};
use super::tokens::Waiter;
use super::{Key, Outgoing};
use crate::failure::Failure;

/// The maximum message size of a hub that announces none.
const USUAL_MESSAGE_SIZE: u64 = 1 << 20;

type Reply = oneshot::Sender<Result<(), Failure>>;

/// The state of a sender link, from the command to its end.
pub(super) struct Outlet {
    address: String,
    audience: String,
    link: Option<LinkId>,
    opened: Option<oneshot::Sender<Result<usize, Failure>>>,
    /// Messages that are not sent yet. The producer bounds their number.
    queue: VecDeque<(Outgoing, Reply)>,
    /// Messages that are sent and not settled yet, by delivery id.
    unsettled: BTreeMap<u32, Reply>,
}

impl Outlet {
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
        key: Key,
        address: &Address,
        opened: oneshot::Sender<Result<usize, Failure>>,
    ) {
        if opened.is_closed() {
            return;
        }
        let audience = address.audience(self.endpoint.namespace.as_str());
        let outlet = Outlet {
            address: address.to_string(),
            audience: audience.clone(),
            link: None,
            opened: Some(opened),
            queue: VecDeque::new(),
            unsettled: BTreeMap::new(),
        };
        self.senders.insert(key, outlet);
        self.authorize(audience, Waiter::Sender(key));
    }

    pub(super) fn attach_sender(&mut self, key: Key) {
        let Some(outlet) = self.senders.get_mut(&key) else { return };
        let container = &self.endpoint.container;
        let mut attach = Attach::sender(format!("{container}-{}", key.0), &outlet.address);
        attach.source = Some(Source::from(container));
        attach.sender_settles = Some(SenderSettles::Unsettled);
        attach.receiver_settles = Some(ReceiverSettles::First);
        let connection = self.driver.connection();
        let session = self.sessions.place(connection, Kind::Senders, 1);
        let link = session.and_then(|session| Some((session, connection.attach(session, attach)?)));
        match link {
            Some((session, link)) => {
                outlet.link = Some(link);
                self.links.insert(link, (Owner::Sender(key), session));
            }
            None => {
                if let Some(session) = session {
                    self.sessions.left(session);
                }
                self.end_sender(key, Failure::lost("the hub allows no more links on this connection"));
            }
        }
    }

    pub(super) fn on_sender_attached(&mut self, key: Key, max_message_size: Option<u64>) {
        let Some(outlet) = self.senders.get_mut(&key) else { return };
        let size = max_message_size.filter(|&size| size > 0).unwrap_or(USUAL_MESSAGE_SIZE);
        if let Some(opened) = outlet.opened.take() {
            opened.send(Ok(usize::try_from(size).unwrap_or(usize::MAX))).ok();
        }
    }

    pub(super) fn send(&mut self, key: Key, message: Outgoing, reply: Reply) {
        match self.senders.get_mut(&key) {
            Some(outlet) => {
                outlet.queue.push_back((message, reply));
                self.pump_sender(key);
            }
            None => drop(reply.send(Err(Failure::lost("the link is gone")))),
        }
    }

    pub(super) fn pump_sender(&mut self, key: Key) {
        let Some(outlet) = self.senders.get_mut(&key) else { return };
        let Some(link) = outlet.link else { return };
        let connection = self.driver.connection();
        while let Some((message, _)) = outlet.queue.front() {
            match connection.send(link, message.format, false, &[&message.bytes]) {
                Sent::Sent(delivery) => {
                    let Some((_, reply)) = outlet.queue.pop_front() else { return };
                    outlet.unsettled.insert(delivery, reply);
                }
                // The end of a link is reported as an event of its own.
                Sent::Blocked(_) | Sent::Gone => return,
            }
        }
    }

    pub(super) fn on_sender_settled(
        &mut self,
        key: Key,
        (first, last): (u32, u32),
        outcome: Option<&Outcome>,
    ) {
        let Some(outlet) = self.senders.get_mut(&key) else { return };
        let outcome = outcome_of(outcome);
        let mut delivery = first;
        loop {
            if let Some(reply) = outlet.unsettled.remove(&delivery) {
                reply.send(outcome.clone()).ok();
            }
            if delivery == last {
                break;
            }
            delivery = delivery.wrapping_add(1);
        }
        self.pump_sender(key);
    }

    pub(super) fn close_sender(&mut self, key: Key) {
        let Some(outlet) = self.senders.get(&key) else { return };
        match outlet.link {
            Some(link) => self.connection().detach(link, None),
            None => self.end_sender(key, Failure::lost("closed before it was open")),
        }
    }

    pub(super) fn end_sender(&mut self, key: Key, failure: Failure) {
        if let Some(outlet) = self.senders.remove(&key) {
            self.unauthorize(&outlet.audience);
            self.renew_if_unauthorized(&outlet.audience, &failure);
            outlet.fail(&failure);
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
            "the hub rejected the message and does not say why",
        ))),
        Some(Outcome::Released | Outcome::Modified { .. }) => {
            Err(Failure::refused(Refusal::new(Condition::ServerBusy, "the hub gave the message back")))
        }
    }
}
