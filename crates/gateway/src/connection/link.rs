//! The state of a link, for both directions: inbound (`Request`, `Sender`, `PendingSender`) and outbound
//! (`Reply`, `Receiver`, see `receiver.rs`).

use std::collections::VecDeque;
use std::sync::Arc;

use ephor_amqp::connection::SessionId;
use ephor_core::ids::{HubName, PartitionId};
use ephor_core::time::Monotonic;
use ephor_hub::HubProducer;
use ephor_wire::address::Address;
use futures_util::future::AbortHandle;
use tokio::sync::Mutex;

use super::receiver::ReceiverLink;
use crate::access::GrantRef;
use crate::idempotence::NumberedProducer;

/// A node that answers requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// `$cbs`, which takes tokens.
    Cbs,
    /// `$management`, which describes a hub and its partitions.
    Management {
        /// The hub of the address, if it names one.
        hub: Option<HubName>,
    },
}

/// A link, by its purpose.
pub(super) enum Link {
    /// Inbound: the peer sends requests.
    Request(RequestLink),
    /// Outbound: the peer gets answers.
    Reply(ReplyLink),
    /// Inbound: the peer sends events.
    Sender(SenderLink),
    /// Inbound: the peer is going to send events. Its attach is answered when the earlier batches of its
    /// producer are settled.
    PendingSender(PendingSender),
    /// Outbound: the peer receives events.
    Receiver(Box<ReceiverLink>),
}

pub(super) struct RequestLink {
    pub(super) node: Node,
    pub(super) session: SessionId,
}

pub(super) struct ReplyLink {
    pub(super) node: Node,
    pub(super) session: SessionId,
    /// The address of the peer's end, because some requests name it in `reply-to`.
    pub(super) target: Option<String>,
    /// Answers that wait for credit.
    pub(super) waiting: VecDeque<Vec<u8>>,
    /// The time since which they wait, or at which the peer last took one.
    pub(super) waiting_since: Option<Monotonic>,
}

pub(super) struct SenderLink {
    pub(super) address: Address,
    /// The grant that covers it.
    pub(super) grant: GrantRef,
    pub(super) producer: HubProducer,
    /// The one partition that it sends to, if the address names one.
    pub(super) partition: Option<PartitionId>,
    /// Set if the sender is an idempotent producer.
    pub(super) numbered: Option<NumberedLink>,
    /// It asked to be an idempotent producer of the whole hub. Nothing can be sent on it: events are numbered
    /// for one partition.
    pub(super) needs_partition: bool,
}

/// A link that is not answered yet. Dropping it cancels the wait.
pub(super) struct PendingSender {
    pub(super) address: Address,
    pub(super) abort: AbortHandle,
}

impl Drop for PendingSender {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// A link of an idempotent producer.
#[derive(Clone)]
pub(super) struct NumberedLink {
    pub(super) producer: Arc<NumberedProducer>,
    /// The epoch of this link.
    pub(super) epoch: i16,
    /// Held by the delivery whose numbers are being claimed, until it is in the hub's queue or settled. So
    /// numbers are claimed in the order in which the deliveries came.
    pub(super) turn: Arc<Mutex<()>>,
}

impl Link {
    /// The address, for links to a hub.
    pub(super) fn address(&self) -> Option<&Address> {
        match self {
            Self::Sender(sender) => Some(&sender.address),
            Self::Receiver(receiver) => Some(&receiver.address),
            Self::PendingSender(pending) => Some(&pending.address),
            Self::Request(_) | Self::Reply(_) => None,
        }
    }
}
