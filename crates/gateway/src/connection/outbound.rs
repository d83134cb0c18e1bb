//! Outbound (hub → peer): sends events of the hub's receivers to the peer, within its credit and window.
//!
//! The states of a receiver and their transitions are drawn in `receiver.rs`. One that may not send takes no
//! event, but is notified when another receiver takes over its partition. While the peer does not read, a few
//! receivers hold the events that they were about to send; the others give them back. Only a few receivers of
//! a connection, and a few of all connections, read the log at a time. So what is buffered for a peer is
//! bounded, however many receivers it has.

use ephor_amqp::connection::{Blocked, LinkId, Sent, SessionId};
use ephor_amqp::performative::{Attach, SenderSettles};
use ephor_core::position::SequenceNumber;
use ephor_core::source::{ReceiveError, Receiver};
use ephor_hub::{HubReceiver, StoredBatch, offset_of};
use ephor_wire::annotations::{MAX_ADDED_BYTES, RuntimeMetrics, Stamp, deliver};
use ephor_wire::condition::Refusal;
use futures_util::future::{AbortHandle, abortable};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::{OwnedSemaphorePermit, oneshot};

use super::ConnectionTask;
use super::blocked_queues::BlockedOn;
use super::event_log_reads::LogReadPermits;
use super::link::Link;
use super::receiver::ReceiverState;
use crate::error_mapping::receive_refusal;

/// About this many bytes of events are taken from a partition at once: as much as one write, so that
/// partitions take turns.
pub(super) const READ_BYTES: usize = 64 << 10;

/// At most this many events are taken at once, however small they are.
const MAX_READ_EVENTS: usize = 4096;

/// The bytes that the receivers of one connection may hold while there is no room in the output.
const MAX_HELD_BYTES: usize = 4 << 20;

/// At most this many queued receivers poll for events at once, and at most this many receivers of a
/// connection read the log. More would only bring events that then have to wait.
pub(super) const MAX_CONCURRENT_POLLS: usize = 8;

/// An event of a receiver, or of a link that is not answered yet.
pub(super) enum ReceiverEvent {
    /// It was opened, or could not be.
    Opened { link: LinkId, attach: Box<Attach>, opened: Result<HubReceiver, Refusal> },
    /// The earlier batches of an idempotent producer are settled, and its new link can be answered.
    ProducerSettled { link: LinkId, attach: Box<Attach> },
    /// It may send now.
    Resumed { link: LinkId, receiver: Box<HubReceiver> },
    /// Its next events are not in memory, and have to be read from the log.
    NeedsLog { link: LinkId, receiver: Box<HubReceiver> },
    /// It has its permit to read the log.
    LogPermits { link: LinkId, receiver: Box<HubReceiver>, permits: LogReadPermits },
    /// It has read the log.
    LogRead { link: LinkId, receiver: Box<HubReceiver>, read: Result<(), ReceiveError> },
    /// It has events, or has ended.
    Batch { link: LinkId, receiver: Box<HubReceiver>, batch: Result<StoredBatch, ReceiveError> },
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Waits for an event of a receiver, concurrently with everything else.
    pub(super) fn push_receiver_event(
        &mut self,
        event: impl Future<Output = ReceiverEvent> + Send + 'static,
    ) -> AbortHandle {
        let (event, abort) = abortable(event);
        self.receiver_events.push(Box::pin(event));
        abort
    }

    /// Moves a receiver to a state.
    pub(super) fn set_state(&mut self, link: LinkId, state: ReceiverState) {
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            found.state = state;
        }
    }

    pub(super) fn on_receiver_event(&mut self, event: ReceiverEvent) {
        match event {
            ReceiverEvent::Opened { link, attach, opened } => self.on_receiver_opened(link, &attach, opened),
            ReceiverEvent::ProducerSettled { link, attach } => self.on_producer_settled(link, *attach),
            ReceiverEvent::Resumed { link, receiver } => self.poll_events(link, receiver),
            ReceiverEvent::NeedsLog { link, receiver } => self.wait_for_log(link, receiver),
            ReceiverEvent::LogPermits { link, receiver, permits } => self.read_log(link, receiver, permits),
            ReceiverEvent::LogRead { link, receiver, read } => self.on_log_read(link, receiver, read),
            ReceiverEvent::Batch { link, receiver, batch } => {
                self.on_batch(link, receiver, batch);
            }
        }
    }

    fn on_batch(
        &mut self,
        link: LinkId,
        receiver: Box<HubReceiver>,
        batch: Result<StoredBatch, ReceiveError>,
    ) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        match batch {
            Ok(batch) => {
                let retrieved_at = self.shared.environment.wall();
                let last = if found.metrics { receiver.last_enqueued() } else { None };
                let metrics = last.map(|last| RuntimeMetrics { last, retrieved_at });
                found.state = ReceiverState::Sending { receiver, batch, sent: 0, metrics };
                self.deliver(link);
            }
            Err(error) => self.on_receiver_ended(link, &error),
        }
    }

    pub(super) fn on_receiver_ended(&mut self, link: LinkId, error: &ReceiveError) {
        let Some(Link::Receiver(found)) = self.links.get(&link) else { return };
        let refusal = receive_refusal(error, &self.shared.namespace, &found.hub, &found.address);
        self.detach(link, refusal);
    }

    fn on_receiver_opened(&mut self, link: LinkId, attach: &Attach, opened: Result<HubReceiver, Refusal>) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        match opened {
            Ok(receiver) => {
                found.idle_probe = Some(receiver.idle_probe());
                // More than senders are told: .NET and Go enforce it on what they receive, and a message becomes
                // larger by what the hub adds. The service tells both the same (REC); whether it ever delivers
                // more is not known.
                let limit = self.shared.hub_info.get(&found.hub).max_event_bytes + MAX_ADDED_BYTES;
                // Whatever was asked for, events are sent settled, as by the service.
                let answer = Attach { sender_settles: Some(SenderSettles::Settled), ..attach.answer() };
                self.accept(link, answer, limit, []);
                self.poll_events(link, Box::new(receiver));
            }
            Err(refusal) => {
                let address = found.address.clone();
                self.forget_link(link);
                self.refuse(link, refusal, Some(&address));
            }
        }
    }

    /// Decides how a receiver goes on: polls for as many events as there is credit for, if they could be sent,
    /// reads the log, or waits.
    pub(super) fn poll_events(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let missed = receiver.take_missed();
        if missed > 0 {
            tracing::warn!(peer = %self.peer, partition = %receiver.partition(), missed, "skipped deleted events");
        }
        self.note_held(link, receiver.ahead_bytes());
        let obstacle = self.driver.connection().obstacle(link, true);
        if self.has_log_permit(link) {
            return self.use_log_permit(link, receiver, obstacle);
        }
        match obstacle {
            // Events that are read meanwhile are sent as soon as there is room. But queued receivers are not
            // overtaken.
            Some(Sent::Blocked(Blocked::Room))
                if !self.is_holding_much() && !self.queues.waits_for_room() =>
            {
                self.wait_for_events(link, receiver);
            }
            None => self.wait_for_events(link, receiver),
            Some(obstacle) => self.wait_in_queue(link, receiver, &obstacle),
        }
    }

    /// Waits in the queue without taking events. Events that were read ahead are given back if others need
    /// the room.
    pub(super) fn wait_in_queue(&mut self, link: LinkId, mut receiver: Box<HubReceiver>, obstacle: &Sent) {
        if self.is_holding_much() {
            receiver.give_back_ahead();
            self.note_held(link, 0);
        }
        self.enqueue_blocked(link, obstacle);
        self.wait_blocked(link, receiver, None);
        self.check_drained(link);
    }

    /// True if the receivers hold so many bytes that the next one has to give its events back.
    pub(super) fn is_holding_much(&self) -> bool {
        self.held.get() >= MAX_HELD_BYTES || self.share.waits()
    }

    fn note_held(&mut self, link: LinkId, bytes: usize) {
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            found.held.set(bytes);
        }
    }

    fn wait_for_events(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let credit = self.driver.connection().credit(link) as usize;
        let abort = self.push_receiver_event(async move {
            match receiver.next_in_memory(credit.min(MAX_READ_EVENTS), READ_BYTES).await {
                Ok(Some(batch)) => ReceiverEvent::Batch { link, receiver, batch: Ok(batch) },
                Ok(None) => ReceiverEvent::NeedsLog { link, receiver },
                Err(error) => ReceiverEvent::Batch { link, receiver, batch: Err(error) },
            }
        });
        self.set_state(link, ReceiverState::Polling(abort));
        self.check_drained(link);
    }

    /// Takes no events until [`ReceiverLink::resume`](super::receiver::ReceiverLink::resume) is called, but is
    /// notified if the receiver is disconnected. It keeps its permit to read the log, if it has one.
    pub(super) fn wait_blocked(
        &mut self,
        link: LinkId,
        mut receiver: Box<HubReceiver>,
        permit: Option<OwnedSemaphorePermit>,
    ) {
        let (resume, resumed) = oneshot::channel();
        let abort = self.push_receiver_event(async move {
            let ended = tokio::select! {
                biased;
                error = receiver.disconnected() => Some(error),
                _ = resumed => None,
            };
            match ended {
                Some(error) => ReceiverEvent::Batch { link, receiver, batch: Err(error) },
                None => ReceiverEvent::Resumed { link, receiver },
            }
        });
        self.set_state(link, ReceiverState::Blocked { abort, resume, permit });
    }

    /// Queues a receiver that lacks room or a window. One that lacks credit is notified by
    /// [`Self::on_credit`].
    fn enqueue_blocked(&mut self, link: LinkId, obstacle: &Sent) {
        let blocked_on = match obstacle {
            Sent::Blocked(Blocked::Room) => BlockedOn::Room,
            Sent::Blocked(Blocked::Window) => match self.driver.connection().session_of(link) {
                Some(session) => BlockedOn::Window(session),
                None => return,
            },
            _ => return,
        };
        if matches!(self.links.get(&link), Some(Link::Receiver(_))) {
            self.queues.enqueue(link, blocked_on);
        }
    }

    /// Forgets a link, and removes it from its queue.
    pub(super) fn forget_link(&mut self, link: LinkId) -> Option<Link> {
        let gone = self.links.remove(&link)?;
        if let Link::Receiver(_) = &gone {
            self.queues.remove(link);
            self.share.forget_want();
        }
        Some(gone)
    }

    /// Sends the events that a receiver has brought, as far as the peer allows.
    fn deliver(&mut self, link: LinkId) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let last_number_epoch = found.last_number_epoch;
        let ReceiverState::Sending { batch, sent, metrics, .. } = &mut found.state else { return };
        // They would wait in the output, from which they cannot be given back.
        if !self.share.admit(batch.bytes()) {
            return self.hold_back(link, &Sent::Blocked(Blocked::Room));
        }
        let connection = self.driver.connection();
        let mut stopped = None;
        for event in batch.events().skip(*sent) {
            // Before it is encoded: a peer may grant credit often, and the event may be large.
            stopped = connection.obstacle(link, true);
            if stopped.is_some() {
                break;
            }
            let offset = offset_of(event.sequence.0);
            let stamp = Stamp {
                sequence: event.sequence,
                offset: &offset,
                enqueued_at: event.enqueued_at,
                partition_key: event.partition_key,
                metrics: metrics.as_ref(),
                last_number_epoch,
            };
            self.scratch.clear();
            if let Err(error) = deliver(event.message, &stamp, &mut self.scratch) {
                // It was validated before it was stored.
                tracing::error!(address = %found.address, sequence = %event.sequence, %error,
                    "skipped a stored event that is invalid");
                *sent += 1;
                continue;
            }
            match connection.send(link, 0, true, &[&self.scratch]) {
                Sent::Sent(_) => *sent += 1,
                obstacle => {
                    stopped = Some(obstacle);
                    break;
                }
            }
        }
        if let Some(obstacle) = stopped {
            return self.hold_back(link, &obstacle);
        }
        let sending = std::mem::replace(&mut found.state, ReceiverState::Moving);
        if let ReceiverState::Sending { receiver, .. } = sending {
            self.poll_events(link, receiver);
        }
    }

    /// Called when the remaining events cannot be sent now. They are held if they only lack room and fit, and
    /// given back otherwise.
    pub(super) fn hold_back(&mut self, link: LinkId, obstacle: &Sent) {
        self.enqueue_blocked(link, obstacle);
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let ReceiverState::Sending { batch, sent, receiver, .. } = &found.state else { return };
        // A batch keeps its whole frame in memory; while more of the frame lies ahead, `ahead_bytes` counts it.
        let (before, bytes) = (found.held.get(), receiver.ahead_bytes().max(batch.memory()));
        let fits = self.held.get() - before + bytes <= MAX_HELD_BYTES && !self.share.waits();
        if matches!(obstacle, Sent::Blocked(Blocked::Room)) && fits {
            found.held.set(bytes);
            return;
        }
        let first = SequenceNumber(batch.first().0 + *sent as u64);
        let sending = std::mem::replace(&mut found.state, ReceiverState::Moving);
        if let ReceiverState::Sending { mut receiver, .. } = sending {
            receiver.give_back(first);
            self.note_held(link, 0);
            self.wait_blocked(link, receiver, None);
            self.check_drained(link);
        }
    }

    pub(super) fn on_credit(&mut self, link: LinkId, drain: bool) {
        match self.links.get_mut(&link) {
            Some(Link::Receiver(found)) => {
                found.draining = drain;
                // Queued receivers wait for their turn.
                if !self.queues.contains(link) {
                    self.resume(link);
                }
                self.check_drained(link);
            }
            Some(Link::Reply(_)) => {
                self.send_replies(link);
                if drain {
                    self.driver.connection().drained(link);
                }
            }
            _ => {}
        }
    }

    /// Continues a receiver that can probably send: sends the events that it holds, or polls for more.
    fn resume(&mut self, link: LinkId) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        match &found.state {
            ReceiverState::Sending { .. } => self.deliver(link),
            ReceiverState::Blocked { .. } => match self.driver.connection().obstacle(link, true) {
                Some(obstacle) => self.enqueue_blocked(link, &obstacle),
                None => found.resume(),
            },
            _ => {}
        }
    }

    /// There is room in the output, or a window opened: the receivers that waited for it continue in turn.
    pub(super) fn on_room(&mut self, blocked_on: BlockedOn<SessionId>) {
        self.queues.mark_ready(blocked_on);
        self.advance_queues();
        if blocked_on == BlockedOn::Room {
            self.resume_log_readers();
        }
        for link in std::mem::take(&mut self.blocked_replies) {
            self.send_replies(link);
        }
    }

    /// Continues the receivers whose turn it is; they may be queued again. Only a few of them poll the hub at
    /// once: there may be a window for one event, and a thousand receivers that wait for it.
    pub(super) fn advance_queues(&mut self) {
        let links = &self.links;
        self.polling
            .retain(|link| matches!(links.get(link), Some(Link::Receiver(found)) if found.is_polling()));
        while self.polling.len() < MAX_CONCURRENT_POLLS
            && let Some(link) = self.queues.next()
        {
            self.resume(link);
            if let Some(Link::Receiver(found)) = self.links.get(&link) {
                if found.state.is_running() {
                    self.polling.push(link);
                }
                self.check_drained(link);
            }
        }
    }
}
