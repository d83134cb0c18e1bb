//! Sends requests to `$cbs` and `$management`, and matches the responses to them.
//!
//! Each of the two nodes uses a pair of links in one session: one for requests, one for responses. A pair is
//! attached on first use, and again after the hub has detached it; the service allows only one pair for
//! `$cbs` on a connection.

use std::collections::{BTreeMap, VecDeque};

use bytes::Bytes;
use ephor_amqp::connection::{LinkId, Sent};
use ephor_amqp::performative::{Attach, Outcome, Role, Target};
use ephor_wire::address::Address;
use ephor_wire::management::Query;
use ephor_wire::request_response::{RequestId, Response};
use tokio::sync::oneshot;

use super::sending::outcome_of;
use super::sessions::Kind;
use super::task::{Owner, Task};
use super::tokens::Waiter;
use crate::credential::Token;
use crate::failure_classes::Failure;

/// The maximum number of requests without a response.
const MAX_PENDING_REQUESTS: usize = 2_048;

/// The credit of the response link.
const ANSWER_CREDIT: u32 = 100;

/// The node that a pair of links is attached to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum PairName {
    Cbs,
    Management,
}

impl PairName {
    fn address(self) -> Address {
        match self {
            Self::Cbs => Address::Cbs,
            Self::Management => Address::Management { hub: None },
        }
    }
}

/// The purpose of a request, to route its response.
pub(super) enum Purpose {
    /// This token was put for this audience.
    Token(String, Token),
    /// A caller's request, with the token of this audience.
    Query(String, oneshot::Sender<Result<Bytes, Failure>>),
}

struct QueuedRequest {
    id: u64,
    purpose: Purpose,
    bytes: Vec<u8>,
}

pub(super) struct Pair {
    name: PairName,
    sender: Option<LinkId>,
    receiver: Option<LinkId>,
    /// The number of the two links that are attached.
    attached: usize,
    /// Requests that are not sent yet.
    queue: VecDeque<QueuedRequest>,
    /// Requests without a response, by id, with the id of the delivery that carried them.
    waiting: BTreeMap<u64, (u32, Purpose)>,
    next: u64,
}

impl Pair {
    pub(super) fn new(name: PairName) -> Self {
        Self {
            name,
            sender: None,
            receiver: None,
            attached: 0,
            queue: VecDeque::new(),
            waiting: BTreeMap::new(),
            next: 0,
        }
    }

    /// Forgets the links, and returns the purposes of all open requests.
    pub(super) fn take_all(&mut self) -> Vec<Purpose> {
        let before = std::mem::replace(self, Self { next: self.next, ..Self::new(self.name) });
        let sent = before.waiting.into_values().map(|(_, purpose)| purpose);
        sent.chain(before.queue.into_iter().map(|request| request.purpose)).collect()
    }

    fn is_full(&mut self) -> bool {
        if self.queue.len() + self.waiting.len() < MAX_PENDING_REQUESTS {
            return false;
        }
        let wanted = |purpose: &Purpose| !matches!(purpose, Purpose::Query(_, reply) if reply.is_closed());
        self.queue.retain(|request| wanted(&request.purpose));
        self.waiting.retain(|_, (_, purpose)| wanted(purpose));
        self.queue.len() + self.waiting.len() >= MAX_PENDING_REQUESTS
    }
}

impl Task {
    pub(super) fn pair(&mut self, name: PairName) -> &mut Pair {
        match name {
            PairName::Cbs => &mut self.cbs,
            PairName::Management => &mut self.management,
        }
    }

    pub(super) fn query_management(&mut self, query: Query, reply: oneshot::Sender<Result<Bytes, Failure>>) {
        self.authorize(self.management_audience(&query), Waiter::Query(query, reply));
    }

    /// The audience of the token that such a request needs.
    pub(super) fn management_audience(&self, query: &Query) -> String {
        let address = Address::Management { hub: Some(query.hub().clone()) };
        address.audience(self.endpoint.namespace.as_str())
    }

    /// Sends a request; `write` encodes it with the given id and reply address.
    pub(super) fn request(
        &mut self,
        name: PairName,
        purpose: Purpose,
        write: impl FnOnce(&RequestId, &str, &mut Vec<u8>),
    ) {
        let reply_to = self.reply_address(name);
        let pair = self.pair(name);
        if pair.is_full() {
            return self.fail_purpose(purpose, &Failure::lost("too many requests wait for this hub"));
        }
        let id = pair.next;
        pair.next += 1;
        let mut bytes = Vec::new();
        write(&RequestId::number(id), &reply_to, &mut bytes);
        pair.queue.push_back(QueuedRequest { id, purpose, bytes });
        if pair.sender.is_none() && pair.receiver.is_none() {
            self.attach_pair(name);
        }
        self.pump_requests(name);
    }

    fn reply_address(&self, name: PairName) -> String {
        match name {
            PairName::Cbs => format!("{}-cbs", self.endpoint.container),
            PairName::Management => format!("{}-management", self.endpoint.container),
        }
    }

    fn attach_pair(&mut self, name: PairName) {
        let address = name.address().to_string();
        let reply_to = self.reply_address(name);
        let connection = self.driver.connection();
        let session = self.sessions.assign(connection, Kind::Requests, 2);
        let links = session.and_then(|session| {
            let mut receiver = Attach::receiver(format!("{reply_to}-receiver"), &address);
            receiver.target = Some(Target::to(&reply_to));
            let mut sender = Attach::sender(format!("{reply_to}-sender"), &address);
            sender.source = Some(ephor_amqp::performative::Source::from(&reply_to));
            let receiver = connection.attach(session, receiver)?;
            let sender = connection.attach(session, sender)?;
            Some((session, sender, receiver))
        });
        let Some((session, sender, receiver)) = links else {
            let failure = Failure::lost("the hub allows no more links on this connection");
            for purpose in self.pair(name).take_all() {
                self.fail_purpose(purpose, &failure);
            }
            return;
        };
        self.links.insert(sender, (Owner::Request(name), session));
        self.links.insert(receiver, (Owner::Request(name), session));
        let pair = self.pair(name);
        (pair.sender, pair.receiver) = (Some(sender), Some(receiver));
    }

    pub(super) fn on_pair_attached(&mut self, name: PairName, link: LinkId) {
        if self.connection().role(link) == Some(Role::Receiver) {
            self.connection().grant(link, ANSWER_CREDIT);
        }
        self.pair(name).attached += 1;
        self.pump_requests(name);
    }

    /// If one of the two links ends, the other is closed as well.
    pub(super) fn on_pair_detached(&mut self, name: PairName, failure: &Failure) {
        let pair = self.pair(name);
        let links = [pair.sender, pair.receiver];
        for purpose in pair.take_all() {
            self.fail_purpose(purpose, failure);
        }
        for link in links.into_iter().flatten() {
            if let Some((_, session)) = self.links.remove(&link) {
                self.sessions.link_ended(session);
                self.connection().detach(link, None);
            }
        }
    }

    pub(super) fn pump_requests(&mut self, name: PairName) {
        let connection = self.driver.connection();
        let pair = match name {
            PairName::Cbs => &mut self.cbs,
            PairName::Management => &mut self.management,
        };
        let (Some(sender), 2) = (pair.sender, pair.attached) else { return };
        while let Some(request) = pair.queue.front() {
            match connection.send(sender, 0, false, &[&request.bytes]) {
                Sent::Sent(delivery) => {
                    let Some(QueuedRequest { id, purpose, .. }) = pair.queue.pop_front() else { return };
                    pair.waiting.insert(id, (delivery, purpose));
                }
                // The end of a link is reported as an event of its own.
                Sent::Blocked(_) | Sent::Gone => return,
            }
        }
    }

    pub(super) fn on_request_settled(
        &mut self,
        name: PairName,
        (first, last): (u32, u32),
        outcome: Option<&Outcome>,
    ) {
        let Err(failure) = outcome_of(outcome) else { return };
        let span = last.wrapping_sub(first);
        let refused = |delivery: u32| delivery.wrapping_sub(first) <= span;
        let waiting = &mut self.pair(name).waiting;
        let ids: Vec<u64> =
            waiting.iter().filter(|(_, (delivery, _))| refused(*delivery)).map(|(id, _)| *id).collect();
        let purposes: Vec<Purpose> =
            ids.iter().filter_map(|id| waiting.remove(id)).map(|(_, purpose)| purpose).collect();
        for purpose in purposes {
            self.fail_purpose(purpose, &failure);
        }
    }

    pub(super) fn on_response(&mut self, name: PairName, message: &Bytes) {
        self.lifecycle.reconnect.traffic.answered();
        if let Some(link) = self.pair(name).receiver
            && self.connection().credit(link) < ANSWER_CREDIT / 2
        {
            self.connection().grant(link, ANSWER_CREDIT);
        }
        let response = match Response::read(message) {
            Ok(response) => response,
            Err(malformed) => {
                tracing::warn!(pair = ?name, reason = %malformed, "cannot decode a response of the hub");
                return;
            }
        };
        let id = response.id.as_ref().and_then(RequestId::as_number);
        let Some((_, purpose)) = id.and_then(|id| self.pair(name).waiting.remove(&id)) else { return };
        match purpose {
            Purpose::Query(audience, reply) => {
                if let Err(refusal) = response.accepted() {
                    self.renew_if_unauthorized(&audience, &Failure::refused(refusal));
                }
                drop(reply.send(Ok(message.clone())));
            }
            Purpose::Token(audience, token) => match response.accepted() {
                Ok(()) => self.on_token_accepted(&audience, token),
                Err(refusal) => self.on_token_refused(&audience, &Failure::refused(refusal)),
            },
        }
    }

    pub(super) fn fail_purpose(&mut self, purpose: Purpose, failure: &Failure) {
        match purpose {
            Purpose::Token(audience, _) => self.on_token_refused(&audience, failure),
            Purpose::Query(_, reply) => drop(reply.send(Err(failure.clone()))),
        }
    }
}
