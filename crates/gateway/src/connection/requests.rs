//! Serves requests to `$cbs` and `$management`: inbound (peer → hub) on one link, answered outbound (hub →
//! peer) on another.
//!
//! An answer is sent on the link of the same session whose source is the requested node, when that link has
//! credit: some SDKs grant one credit at a time. The request is settled first.

use ephor_amqp::connection::{Blocked, Delivery, LinkId, Sent, SessionId};
use ephor_core::ids::HubName;
use ephor_core::source::{EventSource, PartitionProperties};
use ephor_core::time::Monotonic;
use ephor_hub::HubError;
use ephor_wire::address::Address;
use ephor_wire::cbs::{self, PutToken};
use ephor_wire::condition::{Condition, Refusal, RequestTracking, error_texts as texts};
use ephor_wire::management::{HubDescription, PartitionDescription, Query};
use ephor_wire::request_response::{Request, write_refusal};
use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncWrite};

use super::ConnectionTask;
use super::answers::WaitingAnswers;
use super::inbound::{DELIVERY_OVERHEAD, Done};
use super::link::{Link, Node, ReplyLink, RequestLink};
use crate::error_mapping::{entity, hub_refusal};
use crate::hub_info_cache::identity;

/// At most this many answers wait for credit on one link. If there are more, the link is detached.
const MAX_WAITING_ANSWERS: usize = 64;

/// At most this many bytes of answers wait for credit on one connection.
const MAX_WAITING_BYTES: usize = 1 << 20;
const MAX_WAITING_BYTES_UNAUTHENTICATED: usize = 32 << 10;

/// The credit for requests is granted again when it falls below this.
const LOW_CREDIT: u32 = 50;
/// Requests that a peer may send before they are settled: as many as the service allows.
pub(super) const REQUEST_CREDIT: u32 = 100;

/// An answer, and the link that it goes to.
pub(super) struct Reply {
    node: Node,
    session: SessionId,
    /// The `reply-to` of the request: the address of the link for answers.
    reply_to: Option<String>,
    message: Vec<u8>,
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(super) fn on_request(&mut self, delivery: &Delivery, not_before: Monotonic) {
        let Some(Link::Request(RequestLink { node, session })) = self.links.get(&delivery.link) else {
            return;
        };
        let (node, session) = (node.clone(), *session);
        let (link, id) = (delivery.link, (!delivery.settled).then_some(delivery.id));
        let (outcome, reply) = match self.answered(&node, &delivery.payload) {
            Ok((message, reply_to)) => (Ok(()), Some(Reply { node, session, reply_to, message })),
            Err(refusal) => (Err(refusal), None),
        };
        let pause = self.pause(not_before);
        let done =
            Done { link, delivery: id, outcome, bytes: delivery.payload.len() + DELIVERY_OVERHEAD, reply };
        self.bytes_in_flight += done.bytes;
        self.sends.push_back(Box::pin(async move {
            if let Some(pause) = pause {
                pause.await;
            }
            done
        }));
        if self.driver.connection().credit(link) < LOW_CREDIT {
            self.driver.connection().grant(link, REQUEST_CREDIT);
        }
    }

    /// The answer to a request, and the address that it goes to. A request that is none, or that asks
    /// `$management` for something that does not exist, is rejected and not answered, as by the service.
    fn answered(&mut self, node: &Node, message: &[u8]) -> Result<(Vec<u8>, Option<String>), Refusal> {
        let request = Request::read(message).map_err(|error| {
            Refusal::new(Condition::DecodeError, format!("The request cannot be read: {error}."))
        })?;
        let (mut answer, id) = (Vec::new(), request.id.as_ref());
        let answered = match node {
            Node::Cbs => self.put_token(&request).map(|()| cbs::write_accepted(id, &mut answer)),
            Node::Management { hub } => {
                let query = Query::of(&request, hub.as_ref());
                if let Err(refusal) = &query
                    && refusal.condition == Condition::NotAllowed
                {
                    self.log_refused_request(node, refusal);
                    return Err(refusal.clone());
                }
                query.and_then(|query| self.describe(&query, &request, &mut answer))
            }
        };
        if let Err(refusal) = answered {
            self.log_refused_request(node, &refusal);
            answer.clear();
            match node {
                Node::Cbs => cbs::write_refused(id, &refusal, &mut answer),
                Node::Management { .. } => write_refusal(id, &refusal, &mut answer),
            }
        }
        Ok((answer, request.reply_to.map(str::to_owned)))
    }

    fn log_refused_request(&self, node: &Node, refusal: &Refusal) {
        if let Some(suppressed) = self.shared.log_limits.requests.allow(self.shared.environment.now()) {
            let Refusal { condition, text } = refusal;
            tracing::info!(peer = %self.peer, ?node, %condition, text, suppressed, "request refused");
        }
    }

    /// Takes a token, unless it is for a hub that does not exist.
    fn put_token(&mut self, request: &Request<'_>) -> Result<(), Refusal> {
        let put = PutToken::of(request)?;
        let (at, namespace) = (self.moment(), &self.shared.namespace);
        let mut missing = None;
        let exists = |hub: &HubName| match namespace.hub(hub.as_str()) {
            Err(HubError::NotFound { .. }) => {
                missing = Some(hub.clone());
                // The hub is missing, not what the token is for at it.
                Err(texts::not_found(put.audience.trim_end_matches("/$management")))
            }
            // Whatever else is wrong with it is told when a link attaches.
            _ => Ok(()),
        };
        self.access.put(&put, at, exists).map_err(|reason| {
            let named = reason.names_the_request();
            let refusal = Refusal::from(reason);
            if !named {
                return refusal;
            }
            let entity = missing.as_ref().map(|hub| (namespace.name().as_str(), hub.as_str()));
            refusal.tracked(&RequestTracking { id: &self.tracking, entity, at: self.now() })
        })?;
        self.admit_if_authenticated();
        Ok(())
    }

    /// Describes a hub or a partition, and what is particular to ours to our own client only.
    fn describe(&mut self, query: &Query, request: &Request<'_>, into: &mut Vec<u8>) -> Result<(), Refusal> {
        let (name, at) = (query.hub(), self.moment());
        let namespace = self.shared.namespace.name();
        self.access.check_description(name, request.security_token, namespace, at)?;
        self.admit_if_authenticated();
        let namespace = &self.shared.namespace;
        let address = Address::Hub { hub: name.clone() };
        let found = namespace.hub(name.as_str());
        let hub = found.map_err(|error| hub_refusal(&error, &entity(namespace.name(), &address)))?;
        let id = request.id.as_ref();
        match query {
            Query::Hub { .. } => {
                let (partitions, log) = identity(&hub);
                let created_at = self.shared.hub_info.get(&hub).created_at;
                let log = log.filter(|_| self.is_our_client);
                HubDescription { hub: hub.name().clone(), created_at, partitions, log }.write(id, into);
            }
            Query::OddPartition { .. } => return Err(texts::no_such_partition(hub.partition_count())),
            Query::Partition { partition, .. } => {
                // An embedded hub answers at once.
                let Some(Ok(mut partition)) = hub.partition_properties(*partition).now_or_never() else {
                    return Err(texts::no_such_partition(hub.partition_count()));
                };
                if !self.is_our_client {
                    let PartitionProperties { id, first, last, .. } = partition;
                    partition = PartitionProperties::without_gap(id, first, last);
                }
                PartitionDescription { hub: hub.name().clone(), partition }.write(id, into);
            }
        }
        Ok(())
    }

    /// Queues an answer on the right link, and sends it if there is credit.
    pub(super) fn reply(&mut self, reply: Reply) {
        let fits = |link: &ReplyLink| link.session == reply.session && link.node == reply.node;
        let named = |link: &ReplyLink| reply.reply_to.is_some() && link.target == reply.reply_to;
        let replies = || {
            self.links.iter().filter_map(|(id, link)| match link {
                Link::Reply(link) if fits(link) => Some((*id, link)),
                _ => None,
            })
        };
        // The link that the request names, or else the last that fits: not all SDKs name it correctly.
        let found = replies().find(|(_, link)| named(link)).or_else(|| replies().next_back());
        let Some((id, _)) = found else {
            return tracing::debug!(peer = %self.peer, node = ?reply.node, "no link takes the response to a request");
        };
        let Some(Link::Reply(link)) = self.links.get_mut(&id) else { return };
        let bytes = WaitingAnswers::size(&reply.message);
        let max =
            if self.ticket.is_admitted() { MAX_WAITING_BYTES } else { MAX_WAITING_BYTES_UNAUTHENTICATED };
        if link.waiting.len() >= MAX_WAITING_ANSWERS || self.answers.bytes + bytes > max {
            let waiting = link.waiting.len();
            let text = format!(
                "{waiting} responses wait for credit on this link, and more on others: grant credit first."
            );
            self.forget_answers(id);
            return self.detach(id, Refusal::new(Condition::ResourceLimitExceeded, text));
        }
        link.waiting.push_back(reply.message);
        self.answers.bytes += bytes;
        self.send_replies(id);
    }

    /// Sends the waiting answers, as far as there is credit.
    pub(super) fn send_replies(&mut self, id: LinkId) {
        let Some(Link::Reply(link)) = self.links.get_mut(&id) else { return };
        let connection = self.driver.connection();
        let mut taken = false;
        while let Some(message) = link.waiting.front() {
            match connection.send(id, 0, true, &[message]) {
                Sent::Sent(_) => {
                    let bytes = WaitingAnswers::size(message);
                    self.answers.bytes = self.answers.bytes.saturating_sub(bytes);
                    link.waiting.pop_front();
                    taken = true;
                }
                Sent::Blocked(Blocked::Room | Blocked::Window) => {
                    self.blocked_replies.insert(id);
                    break;
                }
                // Credit is reported by an event.
                Sent::Blocked(_) => break,
                Sent::Gone => {
                    self.forget_answers(id);
                    self.forget_link(id);
                    return;
                }
            }
        }
        self.note_waiting(id, taken);
    }
}
