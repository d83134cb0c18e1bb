//! Reports the memory of a connection, for both directions, to the budget of all connections, and applies
//! back-pressure when that is used up.

use ephor_amqp::connection::{Blocked, Sent};
use ephor_amqp::performative::{Error, condition};
use ephor_runtime::environment::Environment;
use tokio::io::{AsyncRead, AsyncWrite};

use super::ConnectionTask;
use super::link::Link;
use super::receiver::ReceiverState;
use crate::admission::Cost;
use crate::budget::{ASK_AGAIN_AFTER, Share, Usage};

/// Waits until the budget has room for a connection, or it is time to ask again.
pub(super) async fn relieved(share: &Share, environment: &dyn Environment) {
    tokio::select! {
        () = share.relieved() => {}
        () = environment.sleep_until(environment.now() + ASK_AGAIN_AFTER) => {}
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Reports the memory that is used for this peer. While it is too much, nothing is read from the peer.
    /// Caches and read-ahead are released as soon as the connection has to wait.
    pub(super) fn report_memory(&mut self) {
        let mut usage = self.usage();
        let mut keeps_too_much = self.share.report(usage);
        let waits = self.share.waits();
        let waited = std::mem::replace(&mut self.waits, waits);
        if waits && !waited {
            self.scratch = Vec::new();
            self.driver.connection().release_memory();
            self.give_back_held_events();
            usage = self.usage();
            keeps_too_much = self.share.report(usage);
        }
        if !self.ticket.is_admitted() && !self.may_still_renew() {
            let connection = self.driver.connection();
            let (sessions, structure) = (connection.sessions(), connection.footprint());
            self.ticket.report(Cost { bytes: usage.bytes + structure, sessions });
        }
        let many_in_flight = self.bytes_in_flight >= self.max_bytes_in_flight();
        self.driver.connection().pause_reading(keeps_too_much || many_in_flight);
    }

    fn usage(&mut self) -> Usage {
        let kept = self.bytes_in_flight
            + self.answers.bytes
            + self.held.get()
            + self.reading.get()
            + self.scratch.capacity();
        let buffered = self.driver.connection().buffered();
        let since = [buffered.oldest.map(|oldest| self.began + oldest), self.answers.oldest()];
        let since = since.into_iter().flatten().min();
        let unended = buffered.unended + self.answers.bytes;
        let output_since = buffered.output_since.map(|since| self.began + since);
        Usage { bytes: buffered.bytes + kept, unended, since, output: buffered.output, output_since }
    }

    /// Makes receivers that hold unsent events give them back, because others need the room.
    fn give_back_held_events(&mut self) {
        let mut sending = Vec::new();
        for (id, link) in &mut self.links {
            match link {
                Link::Receiver(found) if found.held.get() > 0 => match &found.state {
                    // It polls, and then gives back what it holds.
                    ReceiverState::Blocked { .. } => found.resume(),
                    ReceiverState::Sending { .. } => sending.push(*id),
                    _ => {}
                },
                _ => {}
            }
        }
        for link in sending {
            self.hold_back(link, &Sent::Blocked(Blocked::Room));
        }
    }

    /// Closes the connection because its incomplete deliveries, answers that it does not take, or output that
    /// it does not read, use memory that others need.
    pub(super) async fn close_for_memory(self) {
        if let Some(suppressed) = self.shared.log_limits.evictions.allow(self.shared.environment.now()) {
            let (peer, tracking, limits) = (self.peer, &self.tracking, &self.shared.limits);
            tracing::warn!(
                %peer, tracking, buffered_bytes = limits.buffered_bytes, suppressed,
                "closed the connection with the oldest incomplete message, answer that was not taken or output that was not read: `buffered_bytes` is used up"
            );
        }
        let text = "The server is out of memory for incomplete messages, unread responses and output that is \
                    not read, and this connection held the oldest. Reconnect and send it again.";
        // Every client reconnects after this condition; most treat an exceeded limit as final.
        self.close_now(Error::new(condition::CONNECTION_FORCED, text)).await;
    }

    /// Logs that limits of all connections together are reached. The peer has been refused already.
    pub(super) fn report_refused(&self) {
        let (totals, tokens) = (&self.shared.totals, &self.shared.tokens);
        for (limit, name) in
            [(&totals.links, "total_links"), (&totals.sessions, "total_sessions"), (tokens, "total_tokens")]
        {
            let refused = limit.take_refused();
            if refused > 0
                && let Some(suppressed) = self.shared.log_limits.totals.allow(self.shared.environment.now())
            {
                let (peer, max) = (self.peer, limit.max());
                tracing::warn!(
                    %peer, max, refused, suppressed,
                    "the limit `{name}` of all connections together is reached: close unused clients, or raise it"
                );
            }
        }
    }
}
