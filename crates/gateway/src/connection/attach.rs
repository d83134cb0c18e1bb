//! Attaches links in both directions: decides from the address what a link is for, and whether it is
//! accepted.

use std::collections::VecDeque;
use std::sync::Arc;

use ephor_amqp::connection::{LinkId, SessionId};
use ephor_amqp::performative::{Attach, ReceiverSettles, Role};
use ephor_amqp::{Encoded, Value};
use ephor_core::epoch::Epoch;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::receivers::known_name;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_hub::Hub;
use ephor_wire::address::{Address, InvalidAddress, MAX_ADDRESS_LENGTH};
use ephor_wire::condition::{Condition, Refusal, error_texts as texts};
use ephor_wire::names::{
    EPOCH, GEOREPLICATION, IDEMPOTENT_PRODUCER, RECEIVER_NAME, RECEIVER_NAME_OF_RUST_SDK, RUNTIME_METRICS,
    TRACKING_ID,
};
use ephor_wire::sas::Claims;
use ephor_wire::selector::Start;
use tokio::io::{AsyncRead, AsyncWrite};

use super::ConnectionTask;
use super::authentication::{MAX_ACCEPTED_LINKS_UNAUTHENTICATED, MAX_REQUEST_BYTES};
use super::link::{Link, Node, NumberedLink, PendingSender, ReplyLink, RequestLink, SenderLink};
use super::outbound::{READ_BYTES, ReceiverEvent};
use super::receiver::{ReceiverLink, ReceiverState};
use super::requests::REQUEST_CREDIT;
use crate::access::GrantRef;
use crate::admission::Stage;
use crate::error_mapping::{entity, hub_refusal, open_refusal};
use crate::idempotence::{self, Commit};

/// Deliveries that a sender may send before they are settled. Their bytes are bounded by pausing the reading.
pub(super) const SENDER_CREDIT: u32 = 1000;

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    pub(super) fn on_attach(&mut self, session: SessionId, link: LinkId, attach: Attach) {
        if let Err(refusal) = self.check_attach(&attach) {
            return self.refuse(link, refusal, None);
        }
        let address = match attach.role {
            Role::Sender => attach.target.as_ref().and_then(|target| target.address.as_deref()),
            Role::Receiver => attach.source.as_ref().and_then(|source| source.address.as_deref()),
        };
        let parsed = address.ok_or(InvalidAddress::NoHub).and_then(Address::parse);
        let address = match parsed {
            Ok(address) => address,
            Err(invalid) => {
                let refusal = self.refusal_of_address(invalid, address.unwrap_or_default(), attach.role);
                return self.refuse(link, refusal, None);
            }
        };
        let node = match &address {
            Address::Cbs => Some(Node::Cbs),
            Address::Management { hub } => Some(Node::Management { hub: hub.clone() }),
            _ => None,
        };
        match (node, attach.role) {
            (Some(node), Role::Sender) => {
                self.ticket.advance(Stage::Attached);
                self.accept(link, attach.answer(), MAX_REQUEST_BYTES, []);
                self.driver.connection().grant(link, REQUEST_CREDIT);
                self.links.insert(link, Link::Request(RequestLink { node, session }));
            }
            (Some(node), Role::Receiver) => {
                let target = attach.target.as_ref().and_then(|target| target.address.clone());
                self.accept(link, attach.answer(), MAX_REQUEST_BYTES, []);
                let reply =
                    ReplyLink { node, session, target, waiting: VecDeque::new(), waiting_since: None };
                self.links.insert(link, Link::Reply(reply));
            }
            (None, Role::Sender) => {
                if let Err(refusal) = self.attach_sender(link, attach, &address) {
                    self.refuse(link, refusal, Some(&address));
                }
            }
            (None, Role::Receiver) => {
                if let Err(refusal) = self.attach_receiver(link, attach, &address) {
                    self.refuse(link, refusal, Some(&address));
                }
            }
        }
    }

    /// The refusal of an address that cannot be parsed. A peer with a token for the hub learns which partitions
    /// there are, if the address has an id that no partition has.
    fn refusal_of_address(&self, invalid: InvalidAddress, address: &str, role: Role) -> Refusal {
        let (InvalidAddress::Partition, Some((parent, _))) = (invalid, Address::without_partition(address))
        else {
            return Refusal::of_address(invalid, address);
        };
        let needed = if role == Role::Sender { Claims::SEND } else { Claims::LISTEN };
        let namespace = &self.shared.namespace;
        if let Err(refusal) = self.access.check_any_part(needed, &parent, namespace.name(), self.moment()) {
            return refusal;
        }
        let name = parent.hub().map(|hub| hub.as_str()).unwrap_or_default();
        match namespace.hub(name) {
            Ok(hub) => texts::no_such_partition(hub.partition_count()),
            Err(error) => hub_refusal(&error, &entity(namespace.name(), &parent)),
        }
    }

    /// Checks the limits of all links: short names, no transactions, and few links for an unauthenticated peer.
    fn check_attach(&self, attach: &Attach) -> Result<(), Refusal> {
        if attach.target.as_ref().is_some_and(|target| target.coordinator) {
            return Err(Refusal::new(Condition::NotImplemented, "Transactions are not supported."));
        }
        let source = attach.source.as_ref().and_then(|source| source.address.as_deref());
        let target = attach.target.as_ref().and_then(|target| target.address.as_deref());
        let names = [Some(attach.name.as_str()), source, target];
        if let Some(long) = names.into_iter().flatten().find(|name| name.len() > MAX_ADDRESS_LENGTH) {
            let text = format!(
                "A name or address has {} bytes; at most {MAX_ADDRESS_LENGTH} are allowed.",
                long.len()
            );
            return Err(Refusal::new(Condition::InvalidField, text));
        }
        if !self.ticket.is_admitted() && self.links.len() >= MAX_ACCEPTED_LINKS_UNAUTHENTICATED {
            let text = format!(
                "Without a token a connection has at most {MAX_ACCEPTED_LINKS_UNAUTHENTICATED} links."
            );
            return Err(Refusal::new(Condition::ResourceLimitExceeded, text));
        }
        Ok(())
    }

    /// Accepts a link with this answer.
    pub(super) fn accept(
        &mut self,
        link: LinkId,
        answer: Attach,
        max_message_size: u64,
        properties: impl IntoIterator<Item = (&'static str, Value<'static>)>,
    ) {
        let mut pairs = vec![(TRACKING_ID, Value::String(&self.tracking))];
        for pair in properties {
            pairs.push(pair);
        }
        let properties = Encoded::map(pairs);
        let answer =
            Attach { max_message_size: Some(max_message_size), properties: Some(properties), ..answer };
        self.driver.connection().accept(link, answer);
    }

    /// Answers a link that had to wait, unless it was detached meanwhile.
    pub(super) fn on_producer_settled(&mut self, link: LinkId, attach: Attach) {
        let Some(Link::PendingSender(pending)) = self.forget_link(link) else { return };
        if let Err(refusal) = self.attach_sender(link, attach, &pending.address) {
            self.refuse(link, refusal, Some(&pending.address));
        }
    }

    fn attach_sender(&mut self, link: LinkId, attach: Attach, address: &Address) -> Result<(), Refusal> {
        let partition = match address {
            Address::Hub { .. } => None,
            Address::Partition { partition, .. } => Some(*partition),
            _ => return Err(not_allowed("Events are sent to a hub or to one of its partitions.")),
        };
        let (hub, grant) = self.hub_for(Claims::SEND, address, partition)?;
        let desired = attach.desired_capabilities.as_ref();
        let idempotent = desired.is_some_and(|desired| desired.has_name(IDEMPOTENT_PRODUCER));
        let numbered = match (idempotent, partition) {
            (false, _) => None,
            (true, Some(partition)) => {
                let properties = attach.properties.as_ref();
                let (producers, random) = (&self.shared.producers, || self.shared.environment.random());
                let (producer, epoch) =
                    producers.attach(&idempotence::scope(&hub), partition, properties, random)?;
                if let Some(commit) = idempotence::awaited(&producer, properties) {
                    self.attach_later(link, attach, address.clone(), commit);
                    return Ok(());
                }
                Some(NumberedLink { producer, epoch, turn: Arc::default() })
            }
            // .NET attaches such a link to learn the largest message, and sends nothing on it.
            (true, None) => None,
        };
        let asked = attach.properties.as_ref();
        let properties = numbered.as_ref().map(|numbered| numbered.producer.properties(asked));
        let limit = self.shared.hub_info.get(&hub).max_event_bytes;
        // Whatever was asked for, the outcome of a delivery is final, as with the service.
        let answer = Attach { receiver_settles: Some(ReceiverSettles::First), ..attach.answer() };
        self.accept(link, answer, limit, properties.into_iter().flatten());
        self.driver.connection().grant(link, SENDER_CREDIT);
        let producer = hub.producer();
        let needs_partition = idempotent && partition.is_none();
        let address = address.clone();
        let sender = SenderLink { address, grant, producer, partition, numbered, needs_partition };
        self.links.insert(link, Link::Sender(sender));
        self.timer_is_stale = true;
        Ok(())
    }

    /// Answers a sender after the earlier batches of its producer are settled.
    fn attach_later(&mut self, link: LinkId, attach: Attach, address: Address, commit: Commit) {
        let attach = Box::new(attach);
        let abort = self.push_receiver_event(async move {
            commit.settled().await;
            ReceiverEvent::ProducerSettled { link, attach }
        });
        self.links.insert(link, Link::PendingSender(PendingSender { address, abort }));
    }

    fn attach_receiver(&mut self, link: LinkId, attach: Attach, address: &Address) -> Result<(), Refusal> {
        let Address::Consumer { group, partition, .. } = address else {
            return Err(not_allowed("Events are received from a partition, within a consumer group."));
        };
        let (hub, grant) = self.hub_for(Claims::LISTEN, address, Some(*partition))?;
        let filter = attach.source.as_ref().and_then(|source| source.filter.as_ref());
        let start = Start::from_filter(filter.map(Encoded::as_bytes).unwrap_or_default())
            .map_err(|invalid| Refusal::from(&invalid))?;
        let property = |name| attach.properties.as_ref()?.get(name);
        let epoch = match property(EPOCH) {
            None | Some(Value::Null) => None,
            Some(value) => {
                let number = value.integer().and_then(|number| u64::try_from(number).ok());
                let bad = || Refusal::new(Condition::ArgumentError, "The epoch is not a number from 0 on.");
                Some(Epoch::from_stored(number.ok_or_else(bad)?))
            }
        };
        let name = [RECEIVER_NAME, RECEIVER_NAME_OF_RUST_SDK]
            .into_iter()
            .find_map(|name| property(name)?.text())
            .unwrap_or_default();
        let name = known_name(name).to_owned();
        let desired = attach.desired_capabilities.as_ref();
        let metrics = desired.is_some_and(|desired| desired.has_name(RUNTIME_METRICS));
        let last_number_epoch = desired.is_some_and(|desired| desired.has_name(GEOREPLICATION));
        let spec = ReceiverSpec { group: group.clone(), partition: *partition, start, epoch, name };
        let entity = entity(self.shared.namespace.name(), address);
        let opening = {
            let (hub, log_reads) = (hub.clone(), self.shared.log_reads.clone());
            async move {
                // A position by time has to be searched in the log.
                let by_time = matches!(spec.start, Start::EnqueuedTime { .. });
                let _permit = if by_time { log_reads.acquire_owned().await.ok() } else { None };
                let opened = spec.open(&hub).await.map_err(|error| open_refusal(&error, &entity));
                ReceiverEvent::Opened { link, attach: Box::new(attach), opened }
            }
        };
        let state = ReceiverState::Opening(self.push_receiver_event(opening));
        let receiver = ReceiverLink {
            address: address.clone(),
            grant,
            hub,
            metrics,
            last_number_epoch,
            state,
            draining: false,
            held: self.held.charge(),
            idle_probe: None,
        };
        self.links.insert(link, Link::Receiver(Box::new(receiver)));
        self.timer_is_stale = true;
        Ok(())
    }

    /// The hub of an address, if it exists, has the partition, and the peer is authorized.
    fn hub_for(
        &self,
        needed: Claims,
        address: &Address,
        partition: Option<PartitionId>,
    ) -> Result<(Hub, GrantRef), Refusal> {
        let namespace = &self.shared.namespace;
        // Before the lookup, so that an unauthorized peer does not learn whether a hub exists.
        let grant =
            self.access.check(needed, address, GrantRef::default(), namespace.name(), self.moment())?;
        let name = address.hub().map(|hub| hub.as_str()).unwrap_or_default();
        let found = namespace.hub(name);
        let hub = found.map_err(|error| hub_refusal(&error, &entity(namespace.name(), address)))?;
        let partitions = hub.partition_count();
        match partition {
            Some(partition) if partition.0 >= partitions => Err(texts::no_such_partition(partitions)),
            _ => Ok((hub, grant)),
        }
    }
}

/// The refusal of a link that asks for something that no peer may have.
fn not_allowed(text: &str) -> Refusal {
    Refusal::new(Condition::NotAllowed, text)
}

/// The parameters of a receiver to open.
struct ReceiverSpec {
    group: ConsumerGroup,
    partition: PartitionId,
    start: Start,
    epoch: Option<Epoch>,
    name: String,
}

impl ReceiverSpec {
    async fn open(self, hub: &Hub) -> Result<ephor_hub::HubReceiver, ephor_core::source::OpenError> {
        let last = hub.partition_properties(self.partition).await?.last.map(|last| last.sequence);
        let request = OpenRequest {
            group: self.group,
            partition: self.partition,
            start: self.start.position(last),
            epoch: self.epoch,
            receiver: self.name,
            prefetch_events: 1,
            prefetch_bytes: READ_BYTES,
        };
        hub.receiver_at_event(request).await
    }
}
