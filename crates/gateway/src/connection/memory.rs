//! What a connection takes of what all share, and what follows when that is used up.

use ephor_amqp::connection::{Blocked, Sent};
use ephor_amqp::performative::{Error, condition};
use tokio::io::{AsyncRead, AsyncWrite};

use super::Conversation;
use super::link::{Link, Reading};
use crate::budget::Usage;

impl<S: AsyncRead + AsyncWrite + Unpin> Conversation<S> {
    /// Tells how much is kept for this peer. While that is too much it is not read from. What is kept to be faster is given
    /// back as soon as anything has to wait.
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

    /// Those who keep what they have read, and may not send it, give it back: others need the room.
    fn give_back_what_is_held(&mut self) {
        let mut here = Vec::new();
        for (id, link) in &mut self.links {
            match link {
                Link::Receiver(found) if found.held.get() > 0 => match &found.state {
                    // It comes by, and finds that it has to.
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

    /// Goes because its deliveries that have not ended, or answers that it does not take, take what others need.
    pub(super) async fn go_for_others(self) {
        if let Some(muffled) = self.shared.noise.hoarders.hear(self.shared.environment.now()) {
            let (peer, tracking, limits) = (self.peer, &self.tracking, &self.shared.limits);
            tracing::warn!(%peer, tracking, buffered_bytes = limits.buffered_bytes, muffled, "closed the connection with the oldest incomplete message or answer that was not taken: `buffered_bytes` is used up");
        }
        let text = "The server is out of memory for incomplete messages and answers that are not taken, and this \
                    connection held the oldest. Reconnect and send it again.";
        // Every client reconnects after this one; a limit that is exceeded most of them take for final.
        self.go(Error::new(condition::CONNECTION_FORCED, text)).await;
    }

    /// Tells people that the limits of all connections together are reached. The peer has heard it.
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
