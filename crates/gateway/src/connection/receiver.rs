//! Outbound (hub → peer): a receiver link and its state.
//!
//! ```text
//! Opening ─────────► may it send? ─ yes ─► Polling ─ events ──────► Sending ─ all are sent ─► may it send?
//! Resuming ────────►   │                     │                        └─ it may not, and gives
//!    ▲                 │                     │                           them back ─────────► Blocked
//!    │                 │                     └─ events on disk ──► ReadingLog ─ has read ───► may it send?
//!    │ resume()        │ no: credit, window or room                   └─ no room: keeps its
//!    │                 ▼     is missing                                  permit ────────────► Blocked
//!    └────────────── Blocked
//! ```
//!
//! A receiver that may not send and keeps its events stays Sending. One that would read the log while others
//! wait to do so goes from Polling to Blocked.
//!
//! "May it send?" is `poll_events` (`outbound.rs`); a receiver that resumes with a permit goes on to ReadingLog.
//! In each state but Sending the hub's receiver is in a future of the connection, which reports a
//! [`ReceiverEvent`](super::outbound::ReceiverEvent) when it ends; dropping the link cancels the future. Queues
//! of receivers that wait for room or for a window are kept elsewhere
//! ([`BlockedQueues`](super::blocked_queues::BlockedQueues)); a receiver in one is Sending or Blocked, or was
//! resumed early to give back what it holds.

use std::collections::BTreeMap;

use ephor_amqp::connection::LinkId;
use ephor_hub::{Hub, HubReceiver, IdleProbe, StoredBatch};
use ephor_wire::address::Address;
use ephor_wire::annotations::RuntimeMetrics;
use futures_util::future::AbortHandle;
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::byte_counter::Charge;
use super::link::Link;
use crate::access::GrantRef;

pub(super) struct ReceiverLink {
    pub(super) address: Address,
    /// The grant that covers it.
    pub(super) grant: GrantRef,
    pub(super) hub: Hub,
    /// True if events carry runtime metrics about the end of the log.
    pub(super) metrics: bool,
    /// The peer wants the epoch of the last sequence number among the runtime metrics.
    pub(super) last_number_epoch: bool,
    pub(super) state: ReceiverState,
    /// The peer drains its credit.
    pub(super) draining: bool,
    /// The bytes that it holds of what was read from the log.
    pub(super) held: Charge,
    /// Tells whether the hub's receiver waits: it has reached the end of the log, or is idle. `None` until it
    /// is open.
    pub(super) idle_probe: Option<IdleProbe>,
}

/// The state of a receiver.
pub(super) enum ReceiverState {
    /// The hub's receiver is being opened.
    Opening(AbortHandle),
    /// It waits for events in memory.
    Polling(AbortHandle),
    /// It waits for its permits to read the log, or reads it.
    ReadingLog(AbortHandle),
    /// It takes no events until it may send, but would be notified of its end.
    Blocked {
        abort: AbortHandle,
        resume: oneshot::Sender<()>,
        /// The permit to read the log that it keeps while there is no room for the events that it would bring.
        permit: Option<OwnedSemaphorePermit>,
    },
    /// It was blocked, and its future is about to report that it resumes.
    Resuming { abort: AbortHandle, permit: Option<OwnedSemaphorePermit> },
    /// It has brought events, and not all of them have been sent.
    Sending { receiver: Box<HubReceiver>, batch: StoredBatch, sent: usize, metrics: Option<RuntimeMetrics> },
    /// Placeholder while the receiver moves from one state to another.
    Moving,
}

impl ReceiverState {
    /// The handle that cancels its future, if there is one.
    fn abort_handle(&self) -> Option<&AbortHandle> {
        match self {
            Self::Opening(abort)
            | Self::Polling(abort)
            | Self::ReadingLog(abort)
            | Self::Blocked { abort, .. }
            | Self::Resuming { abort, .. } => Some(abort),
            Self::Sending { .. } | Self::Moving => None,
        }
    }

    /// True if it goes on by itself: it does not have to be resumed, and holds no events.
    pub(super) fn is_running(&self) -> bool {
        match self {
            Self::Opening(_) | Self::Polling(_) | Self::ReadingLog(_) | Self::Resuming { .. } => true,
            Self::Blocked { .. } | Self::Sending { .. } | Self::Moving => false,
        }
    }

    /// The permit to read the log that it keeps.
    pub(super) fn permit(&mut self) -> Option<&mut Option<OwnedSemaphorePermit>> {
        match self {
            Self::Blocked { permit, .. } | Self::Resuming { permit, .. } => Some(permit),
            _ => None,
        }
    }
}

impl ReceiverLink {
    /// True if the hub's receiver is polling and may bring events at once.
    pub(super) fn is_polling(&self) -> bool {
        match self.state {
            ReceiverState::ReadingLog(_) => true,
            _ => self.state.is_running() && !self.idle_probe.as_ref().is_none_or(IdleProbe::is_idle),
        }
    }

    /// True if there is no event for it now, neither here nor on its way from the hub. A receiver in a queue
    /// (`is_queued`) may have some.
    pub(super) fn has_nothing_to_send(&self, is_queued: bool) -> bool {
        let passive = match &self.state {
            ReceiverState::Opening(_) | ReceiverState::Polling(_) => true,
            ReceiverState::Blocked { permit, .. } | ReceiverState::Resuming { permit, .. } => {
                permit.is_none()
            }
            ReceiverState::ReadingLog(_) | ReceiverState::Sending { .. } | ReceiverState::Moving => false,
        };
        passive && !is_queued && self.idle_probe.as_ref().is_some_and(IdleProbe::is_idle)
    }

    /// Lets a blocked receiver poll for events, or for whatever blocks it.
    pub(super) fn resume(&mut self) {
        match std::mem::replace(&mut self.state, ReceiverState::Moving) {
            ReceiverState::Blocked { abort, resume, permit } => {
                // The other end cannot be gone: the receiver waits for it, or is about to report its end.
                let _ = resume.send(());
                self.state = ReceiverState::Resuming { abort, permit };
            }
            other => self.state = other,
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
        if let Some(abort) = self.state.abort_handle() {
            abort.abort();
        }
    }
}

/// The number of receivers in `polling` that are polling, and have not reached the end of the log.
pub(super) fn count_polling(polling: &[LinkId], links: &BTreeMap<LinkId, Link>) -> usize {
    let is_polling =
        |link: &&LinkId| matches!(links.get(link), Some(Link::Receiver(found)) if found.is_polling());
    polling.iter().filter(is_polling).count()
}
