//! Reports the memory of a connection, for both directions, to the budget of all connections, and applies
//! back-pressure when that is used up.

use ephor_amqp::connection::{Blocked, Sent};
use ephor_amqp::performative::{Error, condition};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Conversation;
use super::link::{Link, Reading};
use crate::budget::Usage;

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Reports the memory that is used for this peer. While it is too much, nothing is read from the peer.
    /// Caches and read-ahead are released as soon as the connection has to wait.
    pub(super) fn account(&mut self) {
        let kept = self.bytes_in_flight
            + self.answers.bytes
            + self.held.get()
            + self.reading.get()
            + self.scratch.capacity();
        let buffered = self.driver.connection().buffered();
        let since = [buffered.oldest.map(|oldest| self.began + oldest), self.answers.oldest()];
        let since = since.into_iter().flatten().min();
        let unended = buffered.unended + self.answers.bytes;
        let usage = Usage { bytes: buffered.bytes + kept, unended, since };
        let keeps_too_much = self.share.tell(usage);
        let waits = self.share.waits();
        let many_in_flight = self.bytes_in_flight >= self.may_be_in_flight();
        self.driver.connection().pause_reading(keeps_too_much || many_in_flight);
        let waited = std::mem::replace(&mut self.waits, waits);
        if waits && !waited {
            self.scratch = Vec::new();
            self.driver.connection().release_memory();
            self.give_back_what_is_held();
        }
    }

    /// Makes receivers that hold unsent events give them back, because others need the room.
    fn give_back_what_is_held(&mut self) {
        let mut here = Vec::new();
        for (id, link) in &mut self.links {
            match link {
                Link::Receiver(found) if found.held.get() > 0 => match &found.state {
                    // It polls, and then gives back what it holds.
                    Reading::Idle { .. } => found.go_on(),
                    Reading::Here { .. } => here.push(*id),
                    Reading::Away(_) | Reading::Nowhere => {}
                },
                _ => {}
            }
        }
        for link in here {
            self.hold_back(link, &Sent::Blocked(Blocked::Room));
        }
    }

    /// Closes the connection because its incomplete deliveries, or answers that it does not take, use memory
    /// that others need.
    pub(super) async fn go_for_others(self) {
        if let Some(muffled) = self.shared.noise.hoarders.hear(self.shared.environment.now()) {
            let (peer, tracking, limits) = (self.peer, &self.tracking, &self.shared.limits);
            tracing::warn!(%peer, tracking, buffered_bytes = limits.buffered_bytes, muffled, "closed the connection with the oldest incomplete message or answer that was not taken: `buffered_bytes` is used up");
        }
        let text = "The server is out of memory for incomplete messages and answers that are not taken, and this \
                    connection held the oldest. Reconnect and send it again.";
        // Every client reconnects after this condition; most treat an exceeded limit as final.
        self.go(Error::new(condition::CONNECTION_FORCED, text)).await;
    }

    /// Logs that limits of all connections together are reached. The peer has been refused already.
    pub(super) fn report_refused(&self) {
        let (totals, tokens) = (&self.shared.totals, &self.shared.tokens);
        for (limit, name) in
            [(&totals.links, "total_links"), (&totals.sessions, "total_sessions"), (tokens, "total_tokens")]
        {
            let refused = limit.take_refused();
            if refused > 0
                && let Some(muffled) = self.shared.noise.totals.hear(self.shared.environment.now())
            {
                let (peer, max) = (self.peer, limit.max());
                tracing::warn!(%peer, max, refused, muffled, "refused what exceeds `{name}` of all connections together: close unused clients, or raise it");
            }
        }
    }
}
