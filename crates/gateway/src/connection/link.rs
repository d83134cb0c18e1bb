//! What is known of a link.

use std::collections::VecDeque;
use std::sync::Arc;

use ephor_amqp::connection::SessionId;
use ephor_core::ids::{HubName, PartitionId};
use ephor_core::time::Monotonic;
use ephor_hub::{Hub, HubReceiver, Lookout, Producer, StoredBatch};
use ephor_wire::address::Address;
use ephor_wire::annotations::RuntimeMetrics;
use futures_util::future::AbortHandle;
use tokio::sync::{Mutex, OwnedSemaphorePermit, oneshot};

use super::lines::Line;
use super::tally::Charge;
use crate::access::Cover;
use crate::idempotence::Numbered;

/// A node that answers requests.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Node {
    /// Where tokens are put.
    Cbs,
    /// Where a hub and its partitions are described.
    Management {
        /// The hub of the address, if it names one.
        hub: Option<HubName>,
    },
}

/// What a link is for.
pub(super) enum Link {
    /// The peer sends requests.
    Request(RequestLink),
    /// The peer gets answers.
    Reply(ReplyLink),
    /// The peer sends events.
    Sender(SenderLink),
    /// The peer is going to send events, and hears of it when what its producer sent before is settled.
    Awaiting(Awaiting),
    /// The peer receives events.
    Receiver(Box<ReceiverLink>),
}

pub(super) struct RequestLink {
    pub(super) node: Node,
    pub(super) session: SessionId,
}

pub(super) struct ReplyLink {
    pub(super) node: Node,
    pub(super) session: SessionId,
    /// What the peer calls its end: some requests name it.
    pub(super) target: Option<String>,
    /// Answers that wait for credit.
    pub(super) waiting: VecDeque<Vec<u8>>,
    /// Since when, or since the peer last took one.
    pub(super) waiting_since: Option<Monotonic>,
}

pub(super) struct SenderLink {
    pub(super) address: Address,
    /// Which token covers it.
    pub(super) cover: Cover,
    pub(super) producer: Producer,
    /// The one partition that it sends to.
    pub(super) partition: Option<PartitionId>,
    /// Who numbers its events.
    pub(super) numbered: Option<NumberedLink>,
}

/// A link that is not answered yet. Dropping it ends the wait.
pub(super) struct Awaiting {
    pub(super) address: Address,
    pub(super) abort: AbortHandle,
}

impl Drop for Awaiting {
    fn drop(&mut self) {
        self.abort.abort();
    }
}

/// A link of a producer that numbers its events.
#[derive(Clone)]
pub(super) struct NumberedLink {
    pub(super) producer: Arc<Numbered>,
    /// The epoch of this link.
    pub(super) epoch: i16,
    /// Held by the delivery whose numbers are looked at. The next one has its turn when it is known where the one
    /// before it goes, so numbers are looked at in the order in which they came.
    pub(super) turn: Arc<Mutex<()>>,
}

pub(super) struct ReceiverLink {
    pub(super) address: Address,
    /// Which token covers it.
    pub(super) cover: Cover,
    pub(super) hub: Hub,
    /// Whether it wants to be told how far the log is.
    pub(super) metrics: bool,
    pub(super) state: Reading,
    /// The line in which it waits for room or a window.
    pub(super) in_line: Option<Line<SessionId>>,
    /// It waits until it may read the log, or reads it.
    pub(super) reads_log: bool,
    /// Its turn to read the log came when there was no room for what it would bring.
    pub(super) log_turn: Option<OwnedSemaphorePermit>,
    /// The peer wants its credit used up or back.
    pub(super) draining: bool,
    /// What it keeps of what was read from the log.
    pub(super) held: Charge,
    /// Sees whether the hub's receiver has come to the end of what there is; none until it is open.
    pub(super) lookout: Option<Lookout>,
}

/// Where the hub's receiver is.
pub(super) enum Reading {
    /// It is being opened, or waits for events. Dropping a link ends that.
    Away(AbortHandle),
    /// It takes nothing until it may send, and would hear of its end. Dropping a link ends that as well.
    Idle { abort: AbortHandle, go_on: oneshot::Sender<()> },
    /// On its way from one to the other.
    Nowhere,
    /// It has brought events that have not all been sent.
    Here { receiver: Box<HubReceiver>, batch: StoredBatch, sent: usize, metrics: Option<RuntimeMetrics> },
}

impl ReceiverLink {
    /// Whether the hub's receiver looks for events and may bring some at once.
    pub(super) fn is_asking(&self) -> bool {
        let waits = self.lookout.as_ref().is_none_or(Lookout::sees_it_wait);
        matches!(self.state, Reading::Away(_)) && (self.reads_log || !waits)
    }

    /// Whether there is no event for it now: neither here nor on its way from the hub.
    pub(super) fn has_nothing_to_send(&self) -> bool {
        let at_the_end = self.lookout.as_ref().is_some_and(Lookout::sees_it_wait);
        let passive = matches!(self.state, Reading::Away(_) | Reading::Idle { .. });
        let waits_for_room = self.in_line.is_some() || self.log_turn.is_some();
        passive && at_the_end && !self.reads_log && !waits_for_room
    }

    /// Tells one that takes nothing to ask for events, or for what it waits for.
    pub(super) fn go_on(&mut self) {
        if let Reading::Idle { abort, go_on } = std::mem::replace(&mut self.state, Reading::Nowhere) {
            // It cannot be gone: the receiver waits for it, or is on its way to us with its end.
            let _ = go_on.send(());
            self.state = Reading::Away(abort);
        }
    }

    /// The peer is alive, though it takes nothing: the connection is.
    pub(super) fn heard(&self) {
        if let Reading::Here { receiver, .. } = &self.state {
            receiver.heard();
        }
    }
}

impl Drop for ReceiverLink {
    fn drop(&mut self) {
        if let Reading::Away(abort) | Reading::Idle { abort, .. } = &self.state {
            abort.abort();
        }
    }
}

impl Link {
    /// What it is about, for links that are about a hub.
    pub(super) fn address(&self) -> Option<&Address> {
        match self {
            Self::Sender(sender) => Some(&sender.address),
            Self::Receiver(receiver) => Some(&receiver.address),
            Self::Awaiting(awaiting) => Some(&awaiting.address),
            Self::Request(_) | Self::Reply(_) => None,
        }
    }
}
