//! Writes the answer to a session or link that exceeds the limits of all connections together, and its end.
//! The limits are checked in `session.rs` and `link.rs`.
//!
//! The peer gets an answer and the end at once, and nothing of the request is kept. Frames that it sends
//! there before it has received the end are ignored, as after any other end. Its other sessions and links go
//! on.

use super::Connection;
use super::footprint::grow;
use super::session::{Channel, Handle, OUTGOING_WINDOW};
use super::slots::SessionId;
use crate::performative::{Attach, Begin, Detach, End, Error, condition};
use crate::shared_limit::SharedLimit;

fn full(limit: &SharedLimit, what: &str) -> Error {
    let max = limit.max();
    let text = format!(
        "all connections together have the {max} {what} that the server allows; close some, or try again later"
    );
    Error::new(condition::RESOURCE_LIMIT_EXCEEDED, text)
}

impl Connection {
    /// Answers the peer's `begin` on our channel, and ends the session.
    pub(super) fn refuse_begin(&mut self, channel: u16, peer_channel: u16) {
        let limits = &self.config.limits;
        let begin = Begin {
            remote_channel: Some(peer_channel),
            incoming_window: limits.window,
            outgoing_window: OUTGOING_WINDOW,
            handle_max: Some(limits.handle_max),
            ..Begin::default()
        };
        self.write(channel, |into| begin.write(into));
        let error = self.clipped(Some(full(&self.config.shared.sessions, "sessions")));
        self.write(channel, |into| End { error }.write(into));
        self.channels_in.set(peer_channel, Channel::Ended);
        self.channels_in.forget_many(|channel| channel == Channel::Ended);
    }

    /// Answers the peer's `attach` with our handle, without a terminus, and detaches the link.
    pub(super) fn refuse_attach(&mut self, session: SessionId, handle: u32, attach: &Attach) {
        let Some(found) = self.sessions.get_mut(session) else { return };
        let channel = found.channel;
        self.handle_slots += grow(&mut found.handles_in, attach.handle, Handle::Unused);
        found.handles_in[attach.handle as usize] = Handle::Detached;
        self.write_acceptance(session);
        let answer = Attach { handle, ..Attach::new(attach.name.clone(), attach.role.other()) };
        self.write(channel, |into| answer.write(into));
        let error = self.clipped(Some(full(&self.config.shared.links, "links")));
        self.write(channel, |into| Detach { handle, closed: true, error }.write(into));
    }
}
