//! The state of a link, for both directions: inbound (`Request`, `Sender`, `PendingSender`) and outbound (`Reply`,
//! `Receiver`).

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ephor_amqp::connection::{LinkId, SessionId};
use ephor_core::ids::{HubName, PartitionId};
use ephor_core::time::Monotonic;
use ephor_hub::{Hub, HubReceiver, IdleProbe, Producer, StoredBatch};
use ephor_wire::address::Address;
use ephor_wire::annotations::RuntimeMetrics;
use futures_util::future::AbortHandle;
use tokio::sync::{Mutex, OwnedSemaphorePermit, oneshot};

use super::blocked_queues::BlockedOn;
use super::tally::Charge;
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
    pub(super) producer: Producer,
    /// The one partition that it sends to, if the address names one.
    pub(super) partition: Option<PartitionId>,
    /// Set if the sender is an idempotent producer.
    pub(super) numbered: Option<NumberedLink>,
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

pub(super) struct ReceiverLink {
    pub(super) address: Address,
    /// The grant that covers it.
    pub(super) grant: GrantRef,
    pub(super) hub: Hub,
    /// True if events carry runtime metrics about the end of the log.
    pub(super) metrics: bool,
    pub(super) state: ReceiverState,
    /// The queue in which it waits for room or a window.
    pub(super) queued_for: Option<BlockedOn<SessionId>>,
    /// It waits for its permit to read the log, or reads it.
    pub(super) reads_log: bool,
    /// The permit to read the log that it keeps while there is no room for the events that it would bring.
    pub(super) kept_log_permits: Option<OwnedSemaphorePermit>,
    /// The peer drains its credit.
    pub(super) draining: bool,
    /// The bytes that it holds of what was read from the log.
    pub(super) held: Charge,
    /// Tells whether the hub's receiver waits: it has reached the end of the log, or is idle. `None` until it
    /// is open.
    pub(super) idle_probe: Option<IdleProbe>,
}

/// The state of the hub's receiver.
pub(super) enum ReceiverState {
    /// It is being opened, or polls for events in a future. Dropping the link cancels that.
    Polling(AbortHandle),
    /// It takes no events until it may send, but would be notified of its end. Dropping the link cancels
    /// that, too.
    Blocked { abort: AbortHandle, resume: oneshot::Sender<()> },
    /// Placeholder while the receiver moves from one state to another.
    Moving,
    /// It has brought events, and not all of them have been sent.
    Sending { receiver: Box<HubReceiver>, batch: StoredBatch, sent: usize, metrics: Option<RuntimeMetrics> },
}

impl ReceiverLink {
    /// True if the hub's receiver is polling and may bring events at once.
    pub(super) fn is_polling(&self) -> bool {
        let waits = self.idle_probe.as_ref().is_none_or(IdleProbe::is_idle);
        matches!(self.state, ReceiverState::Polling(_)) && (self.reads_log || !waits)
    }

    /// True if there is no event for it now, neither here nor on its way from the hub.
    pub(super) fn has_nothing_to_send(&self) -> bool {
        let at_the_end = self.idle_probe.as_ref().is_some_and(IdleProbe::is_idle);
        let passive = matches!(self.state, ReceiverState::Polling(_) | ReceiverState::Blocked { .. });
        let waits_for_room = self.queued_for.is_some() || self.kept_log_permits.is_some();
        passive && at_the_end && !self.reads_log && !waits_for_room
    }

    /// Lets an idle receiver poll for events, or for whatever blocks it.
    pub(super) fn resume(&mut self) {
        if let ReceiverState::Blocked { abort, resume } =
            std::mem::replace(&mut self.state, ReceiverState::Moving)
        {
            // The other end cannot be gone: the receiver waits for it, or is about to report its end.
            let _ = resume.send(());
            self.state = ReceiverState::Polling(abort);
        }
    }

    /// Reports the peer as alive to the hub's receiver: the connection is alive, though the peer takes no
    /// events.
    pub(super) fn report_alive(&self) {
        if let ReceiverState::Sending { receiver, .. } = &self.state {
            receiver.heard();
        }
    }
}

impl Drop for ReceiverLink {
    fn drop(&mut self) {
        if let ReceiverState::Polling(abort) | ReceiverState::Blocked { abort, .. } = &self.state {
            abort.abort();
        }
    }
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

/// The number of receivers in `polling` that are polling, and have not reached the end of the log.
pub(super) fn count_polling(polling: &[LinkId], links: &BTreeMap<LinkId, Link>) -> usize {
    let is_polling =
        |link: &&LinkId| matches!(links.get(link), Some(Link::Receiver(found)) if found.is_polling());
    polling.iter().filter(is_polling).count()
}
