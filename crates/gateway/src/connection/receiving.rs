//! Receivers on their way to the peer.
//!
//! ```text
//! Away (opening) ─► accepted ─► Idle ─► Away (waits for events) ─► Here (sends them) ─┐
//!                                 ▲         ▲                       │ no room: waits in line
//!                                 │         └────── all sent ───────┤◄───────────────────┘
//!                                 └── no credit, no window ─────────┘ the rest is given back
//! ```
//!
//! A receiver that may not send takes no event, and hears when another receiver takes its place. While the
//! peer does not read, a few receivers hold what they were about to send; the others give it back. So what
//! waits for a peer is bounded, however many receivers it has.

use std::collections::BTreeMap;

use ephor_amqp::connection::{Blocked, LinkId, Sent};
use ephor_amqp::performative::Attach;
use ephor_core::position::SequenceNumber;
use ephor_core::source::{ReceiveError, Receiver};
use ephor_hub::{HubReceiver, StoredBatch, offset_of};
use ephor_wire::annotations::{RuntimeMetrics, Stamp, deliver};
use ephor_wire::condition::Refusal;
use futures_util::future::abortable;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::oneshot;

use super::Conversation;
use super::link::{Link, Reading};
use crate::refusals::of_receive;

/// About so many bytes of events are taken from a partition at once: a write's worth, so that partitions
/// take turns.
pub(super) const READ_BYTES: usize = 64 << 10;

/// More events are not taken at once, however small they are.
const READ_EVENTS: usize = 4096;

/// What receivers of one connection may hold while there is no room for it.
const HELD_BYTES: usize = 4 << 20;

/// So many of those in line are asked for events at once: more would only bring what then has to wait.
pub(super) const ASKED_AT_ONCE: usize = 8;

/// What has become of a receiver.
pub(super) enum News {
    /// It is open, or not.
    Opened { link: LinkId, attach: Box<Attach>, opened: Result<HubReceiver, Refusal> },
    /// It may send now.
    GoOn { link: LinkId, receiver: Box<HubReceiver> },
    /// It has events, or has come to its end.
    Batch { link: LinkId, receiver: Box<HubReceiver>, batch: Result<StoredBatch, ReceiveError> },
}

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Waits for news beside everything else.
    pub(super) fn wait_for(&mut self, news: impl Future<Output = News> + Send + 'static) -> Reading {
        let (news, abort) = abortable(news);
        self.news.push(Box::pin(news));
        Reading::Away(abort)
    }

    pub(super) fn on_news(&mut self, news: News) {
        match news {
            News::Opened { link, attach, opened } => self.on_receiver_opened(link, &attach, opened),
            News::GoOn { link, receiver } => self.ask(link, receiver),
            News::Batch { link, receiver, batch } => {
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
                found.state = Reading::Here { receiver, batch, sent: 0, metrics };
                self.deliver(link);
            }
            Err(error) => {
                let namespace = &self.shared.namespace;
                let refusal = of_receive(&error, namespace, &found.hub, &found.address);
                self.detach(link, refusal);
            }
        }
    }

    fn on_receiver_opened(&mut self, link: LinkId, attach: &Attach, opened: Result<HubReceiver, Refusal>) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        match opened {
            Ok(receiver) => {
                found.lookout = Some(receiver.lookout());
                let limit = self.shared.hubs.of(&found.hub).max_event_bytes;
                self.accept(link, attach, limit, []);
                self.ask(link, Box::new(receiver));
            }
            Err(refusal) => {
                let address = found.address.clone();
                self.links.remove(&link);
                self.refuse(link, refusal, Some(&address));
            }
        }
    }

    /// Waits for as many events as there is credit for, if they could go out.
    fn ask(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let missed = receiver.take_missed();
        if missed > 0 {
            tracing::warn!(peer = %self.peer, partition = %receiver.partition(), missed, "a receiver passed over events that are gone");
        }
        let obstacle = self.driver.connection().obstacle(link, true);
        let state = match obstacle {
            // What is read meanwhile goes out as soon as there is room.
            Some(Sent::Blocked(Blocked::Room)) if self.held_bytes < HELD_BYTES => {
                self.wait_for_events(link, receiver)
            }
            None => self.wait_for_events(link, receiver),
            Some(obstacle) => {
                let state = self.stay_idle(link, receiver);
                self.stand_in_line(link, &obstacle);
                state
            }
        };
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            found.state = state;
        }
    }

    fn wait_for_events(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) -> Reading {
        let credit = self.driver.connection().credit(link) as usize;
        self.wait_for(async move {
            let batch = receiver.next(credit.min(READ_EVENTS), READ_BYTES).await;
            News::Batch { link, receiver, batch }
        })
    }

    /// Takes nothing, and hears of its end, until it is told to go on.
    fn stay_idle(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) -> Reading {
        let (go_on, told) = oneshot::channel();
        let waiting = self.wait_for(async move {
            let ended = tokio::select! {
                biased;
                error = receiver.disconnected() => Some(error),
                _ = told => None,
            };
            match ended {
                Some(error) => News::Batch { link, receiver, batch: Err(error) },
                None => News::GoOn { link, receiver },
            }
        });
        match waiting {
            Reading::Away(abort) => Reading::Idle { abort, go_on },
            other => other,
        }
    }

    /// Who lacks credit hears of it by itself; the others are told in turn.
    fn stand_in_line(&mut self, link: LinkId, obstacle: &Sent) {
        if !matches!(obstacle, Sent::Blocked(Blocked::Window | Blocked::Room)) {
            return;
        }
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link)
            && !std::mem::replace(&mut found.in_line, true)
        {
            self.blocked.push_back(link);
        }
    }

    /// Sends what a receiver has brought, as far as the peer lets it.
    fn deliver(&mut self, link: LinkId) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let Reading::Here { batch, sent, metrics, .. } = &mut found.state else { return };
        let connection = self.driver.connection();
        let mut stopped = None;
        for event in batch.events().skip(*sent) {
            // Before it is put together: a peer may ask often, and the event may be large.
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
            };
            self.scratch.clear();
            if let Err(error) = deliver(event.message, &stamp, &mut self.scratch) {
                // It was looked at before it was stored.
                tracing::error!(address = %found.address, sequence = %event.sequence, %error, "a stored event is no message and is passed over");
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
        let here = std::mem::replace(&mut found.state, Reading::Nowhere);
        if let Reading::Here { receiver, .. } = here {
            self.ask(link, receiver);
        }
    }

    /// The rest cannot go out now. It is kept if there will be room for it soon, and otherwise given back.
    fn hold_back(&mut self, link: LinkId, obstacle: &Sent) {
        self.stand_in_line(link, obstacle);
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let Reading::Here { batch, sent, .. } = &found.state else { return };
        let bytes: usize = batch.events().skip(*sent).map(|event| event.message.len()).sum();
        if matches!(obstacle, Sent::Blocked(Blocked::Room)) && self.held_bytes + bytes <= HELD_BYTES {
            self.held_bytes += bytes;
            return;
        }
        let first = SequenceNumber(batch.first().0 + *sent as u64);
        let here = std::mem::replace(&mut found.state, Reading::Nowhere);
        if let Reading::Here { mut receiver, .. } = here {
            receiver.give_back(first);
            let state = self.stay_idle(link, receiver);
            if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
                found.state = state;
            }
        }
    }

    pub(super) fn on_credit(&mut self, link: LinkId, drain: bool) {
        match self.links.get(&link) {
            Some(Link::Receiver(found)) => {
                if drain && !self.draining.contains(&link) {
                    self.draining.push(link);
                }
                // Those in line wait for their turn.
                if !found.in_line {
                    self.go_on(link);
                }
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

    /// It may send, as far as is known: it sends what it has, or asks for more.
    fn go_on(&mut self, link: LinkId) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        match &found.state {
            Reading::Here { .. } => self.deliver(link),
            Reading::Idle { .. } => {
                if let Some(obstacle) = self.driver.connection().obstacle(link, true) {
                    return self.stand_in_line(link, &obstacle);
                }
                if let Reading::Idle { abort, go_on } = std::mem::replace(&mut found.state, Reading::Nowhere)
                {
                    // It cannot be gone: the receiver waits for it, or is on its way to us with its end.
                    let _ = go_on.send(());
                    found.state = Reading::Away(abort);
                }
            }
            Reading::Away(_) | Reading::Nowhere => {}
        }
    }

    /// There is room, or a window is open: those who waited get it in turn.
    pub(super) fn on_room(&mut self) {
        self.advance_line();
        let replies: Vec<_> = self.waiting_replies().collect();
        for link in replies {
            self.send_replies(link);
        }
    }

    /// Each in line goes on or stands in line again. Of those that would ask the hub only a few do so at once:
    /// there may be a window for one event, and a thousand who want it.
    pub(super) fn advance_line(&mut self) {
        self.held_bytes = 0;
        self.line_moves = false;
        let mut asking = asking(&self.links);
        for _ in 0..self.blocked.len() {
            let Some(link) = self.blocked.pop_front() else { break };
            let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { continue };
            found.in_line = false;
            if matches!(found.state, Reading::Idle { .. }) {
                if let Some(obstacle) = self.driver.connection().obstacle(link, true) {
                    self.stand_in_line(link, &obstacle);
                    continue;
                }
                if asking >= ASKED_AT_ONCE {
                    self.line_moves = true;
                    self.stand_in_line(link, &Sent::Blocked(Blocked::Room));
                    continue;
                }
                asking += 1;
            }
            self.go_on(link);
        }
    }

    /// Sends what there is to those who want their credit back, and gives back the rest.
    pub(super) fn drain(&mut self) {
        /// Beyond it the peer's turn comes first.
        const MOST_NEWS: usize = 64;
        for _ in 0..MOST_NEWS {
            match self.news.next().now_or_never().flatten() {
                Some(Ok(news)) => self.on_news(news),
                Some(Err(_)) => {}
                None => break,
            }
        }
        for link in std::mem::take(&mut self.draining) {
            match self.links.get(&link) {
                Some(Link::Receiver(found)) if found.has_nothing_to_send() => {
                    self.driver.connection().drained(link)
                }
                Some(Link::Receiver(_)) => self.draining.push(link),
                _ => {}
            }
        }
    }
}

/// How many receivers look for events, and have not come to the end of what there is.
pub(super) fn asking(links: &BTreeMap<LinkId, Link>) -> usize {
    let is_asking = |link: &&Link| matches!(link, Link::Receiver(found) if found.is_asking());
    links.values().filter(is_asking).count()
}
