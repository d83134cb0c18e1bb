//! Receivers on their way to the peer.
//!
//! ```text
//! Away (opening) ─► accepted ─► WithoutCredit ─► Away (waits for events) ─► Here (sends them) ─┐
//!                                 ▲                ▲                         │ no window or room: waits
//!                                 └─ no credit ────┴───── all sent ──────────┘◄───────────────┘
//! ```
//!
//! A receiver without credit takes no event, and hears when another receiver takes its place.

use ephor_amqp::connection::{Blocked, LinkId, Sent};
use ephor_amqp::performative::Attach;
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

/// What has become of a receiver.
pub(super) enum News {
    /// It is open, or not.
    Opened { link: LinkId, attach: Box<Attach>, opened: Result<HubReceiver, Refusal> },
    /// It has credit now.
    Granted { link: LinkId, receiver: Box<HubReceiver> },
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
            News::Granted { link, receiver } => self.ask(link, receiver),
            News::Batch { link, receiver, batch } => {
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
        }
    }

    fn on_receiver_opened(&mut self, link: LinkId, attach: &Attach, opened: Result<HubReceiver, Refusal>) {
        let Some(Link::Receiver(found)) = self.links.get(&link) else { return };
        match opened {
            Ok(receiver) => {
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

    /// Waits for as many events as there is credit for.
    fn ask(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) {
        let missed = receiver.take_missed();
        if missed > 0 {
            tracing::warn!(peer = %self.peer, partition = %receiver.partition(), missed, "a receiver passed over events that are gone");
        }
        let credit = self.driver.connection().credit(link) as usize;
        let state = match credit {
            0 => self.wait_for_credit(link, receiver),
            credit => self.wait_for(async move {
                let batch = receiver.next(credit.min(READ_EVENTS), READ_BYTES).await;
                News::Batch { link, receiver, batch }
            }),
        };
        if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
            found.state = state;
        }
    }

    fn wait_for_credit(&mut self, link: LinkId, mut receiver: Box<HubReceiver>) -> Reading {
        let (granted, on_grant) = oneshot::channel();
        let waiting = self.wait_for(async move {
            let ended = tokio::select! {
                biased;
                error = receiver.disconnected() => Some(error),
                _ = on_grant => None,
            };
            match ended {
                Some(error) => News::Batch { link, receiver, batch: Err(error) },
                None => News::Granted { link, receiver },
            }
        });
        match waiting {
            Reading::Away(abort) => Reading::WithoutCredit { abort, granted },
            other => other,
        }
    }

    /// Sends what a receiver has brought, as far as the peer lets it.
    fn deliver(&mut self, link: LinkId) {
        let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { return };
        let Reading::Here { batch, sent, metrics, .. } = &mut found.state else { return };
        let connection = self.driver.connection();
        for event in batch.events().skip(*sent) {
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
                Sent::Blocked(Blocked::Credit) => return,
                Sent::Blocked(_) => {
                    if !std::mem::replace(&mut found.in_line, true) {
                        self.blocked.push_back(link);
                    }
                    return;
                }
                // Its end is on its way to us.
                Sent::Gone => return,
            }
        }
        let here = std::mem::replace(&mut found.state, Reading::Nowhere);
        if let Reading::Here { receiver, .. } = here {
            self.ask(link, receiver);
        }
    }

    pub(super) fn on_credit(&mut self, link: LinkId, drain: bool) {
        match self.links.get_mut(&link) {
            Some(Link::Receiver(found)) => {
                if matches!(found.state, Reading::WithoutCredit { .. })
                    && self.driver.connection().credit(link) > 0
                    && let Reading::WithoutCredit { abort, granted } =
                        std::mem::replace(&mut found.state, Reading::Nowhere)
                {
                    // It cannot be gone: the receiver waits for it, or is on its way to us with its end.
                    let _ = granted.send(());
                    found.state = Reading::Away(abort);
                }
                if drain && !self.draining.contains(&link) {
                    self.draining.push(link);
                }
                self.deliver(link);
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

    /// There is room, or a window is open: those who waited get it in turn.
    pub(super) fn on_room(&mut self) {
        for _ in 0..self.blocked.len() {
            let Some(link) = self.blocked.pop_front() else { break };
            if let Some(Link::Receiver(found)) = self.links.get_mut(&link) {
                found.in_line = false;
                self.deliver(link);
            }
        }
        let replies: Vec<_> = self.waiting_replies().collect();
        for link in replies {
            self.send_replies(link);
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
            let blocked = match self.links.get(&link) {
                Some(Link::Receiver(found)) => found.in_line,
                _ => continue,
            };
            match blocked {
                true => self.draining.push(link),
                false => self.driver.connection().drained(link),
            }
        }
    }
}
