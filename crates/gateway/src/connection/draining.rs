//! Outbound (hub → peer): drains receivers. A peer that sets `drain` wants its credit used up at once, or
//! returned.

use ephor_amqp::connection::LinkId;
use futures_util::{FutureExt, StreamExt};
use tokio::io::{AsyncRead, AsyncWrite};

use super::ConnectionTask;
use super::link::Link;
use super::receiver::ReceiverState;

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Notes a receiver whose peer drains its credit, if it may have nothing more to send. Queued receivers,
    /// and those that read the log, have something to send.
    pub(super) fn check_drained(&mut self, link: LinkId) {
        if let Some(Link::Receiver(found)) = self.links.get(&link)
            && found.draining
            && !self.queues.contains(link)
            && !matches!(found.state, ReceiverState::ReadingLog(_))
        {
            self.draining.insert(link);
        }
    }

    /// Sends what there is to draining receivers, and returns the rest of their credit.
    pub(super) fn drain(&mut self) {
        /// At most this many events of receivers are handled before the peer's turn comes.
        const MAX_RECEIVER_EVENTS: usize = 64;
        for _ in 0..MAX_RECEIVER_EVENTS {
            match self.receiver_events.next().now_or_never().flatten() {
                Some(Ok(event)) => self.on_receiver_event(event),
                Some(Err(_)) => {}
                None => break,
            }
        }
        for link in std::mem::take(&mut self.draining) {
            let Some(Link::Receiver(found)) = self.links.get_mut(&link) else { continue };
            if found.has_nothing_to_send(self.queues.contains(link)) {
                found.draining = false;
                self.driver.connection().drained(link);
            } else {
                self.check_drained(link);
            }
        }
    }
}
