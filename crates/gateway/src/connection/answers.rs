//! Outbound (hub → peer): tracks the size and age of answers to requests until the peer takes them.
//!
//! Only the peer can end this wait, by granting credit. So waiting answers count like incomplete deliveries,
//! and a link on which none is taken for `time_to_read` is detached.

use std::collections::BTreeSet;

use ephor_amqp::connection::LinkId;
use ephor_core::time::Monotonic;
use ephor_wire::condition::{Condition, Refusal};
use tokio::io::{AsyncRead, AsyncWrite};

use super::ConnectionTask;
use super::link::Link;

/// The approximate size of an answer beside its message.
const ANSWER_OVERHEAD: usize = 128;

/// The waiting answers of a connection.
#[derive(Debug, Default)]
pub(super) struct WaitingAnswers {
    /// The size of all of them.
    pub(super) bytes: usize,
    /// The links that have some, by the time at which the peer last took one, or at which the first began to
    /// wait.
    by_age: BTreeSet<(Monotonic, LinkId)>,
}

impl WaitingAnswers {
    /// The size that an answer counts as.
    pub(super) fn size(message: &[u8]) -> usize {
        message.len() + ANSWER_OVERHEAD
    }

    /// The earliest time since which a link has waited.
    pub(super) fn oldest(&self) -> Option<Monotonic> {
        self.by_age.first().map(|(since, _)| *since)
    }

    fn change(&mut self, link: LinkId, from: Option<Monotonic>, to: Option<Monotonic>) {
        if let Some(from) = from {
            self.by_age.remove(&(from, link));
        }
        if let Some(to) = to {
            self.by_age.insert((to, link));
        }
    }
}

impl<S: AsyncRead + AsyncWrite + Unpin> ConnectionTask<S> {
    /// Updates the time since which a link's answers wait. `taken`: the peer has just taken some.
    pub(super) fn note_waiting(&mut self, id: LinkId, taken: bool) {
        let Some(Link::Reply(link)) = self.links.get_mut(&id) else { return };
        let before = link.waiting_since;
        link.waiting_since = match before {
            _ if link.waiting.is_empty() => None,
            Some(since) if !taken => Some(since),
            _ => Some(self.shared.environment.now()),
        };
        if link.waiting_since != before {
            self.answers.change(id, before, link.waiting_since);
            self.timer_is_stale |= before.is_none();
        }
    }

    /// Drops the waiting answers of a link that is going away.
    pub(super) fn forget_answers(&mut self, id: LinkId) {
        self.blocked_replies.remove(&id);
        if let Some(Link::Reply(link)) = self.links.get_mut(&id) {
            let bytes = link.waiting.drain(..).map(|message| WaitingAnswers::size(&message)).sum::<usize>();
            self.answers.bytes = self.answers.bytes.saturating_sub(bytes);
            self.note_waiting(id, false);
        }
    }

    /// The time at which the next link has waited too long.
    pub(super) fn answers_due(&self) -> Option<Monotonic> {
        Some(self.answers.oldest()? + self.shared.limits.time_to_read)
    }

    /// Detaches links on which answers have waited too long.
    pub(super) fn give_up_late_answers(&mut self) {
        let (now, timeout) = (self.shared.environment.now(), self.shared.limits.time_to_read);
        while let Some((since, id)) = self.answers.by_age.first().copied()
            && since + timeout <= now
        {
            let text = format!(
                "Responses have waited for {timeout:?} on this link, and none was read. Attach it again, and grant \
                 credit for the responses before you send requests."
            );
            self.forget_answers(id);
            // In any case, so that the loop ends.
            self.answers.change(id, Some(since), None);
            // Clients attach again after this condition.
            self.detach(id, Refusal::new(Condition::DetachForced, text));
        }
    }
}
