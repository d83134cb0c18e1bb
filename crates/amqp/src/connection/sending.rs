//! Outbound (to the peer): sends messages, and handles their outcomes.
//!
//! A message that fits into a frame is copied once, into the output, after a head that is built on the stack.
//! A larger one becomes several frames; if the peer's window ends in between, or the output reaches its high
//! mark, the rest is kept and follows later. A session has at most one such rest, and nothing overtakes it.
//! So the output never holds a whole large message, and two ends that send each other large messages go on
//! reading.

use std::time::Duration;

use super::Connection;
use super::event::{Blocked, Event, Sent};
use super::link::LinkState;
use super::outgoing_memory::{MemoryCheck, MessageSize};
use super::output::Output;
use super::session::Session;
use super::slots::{LinkId, SessionId};
use crate::performative::{Disposition, MAX_TRANSFER_HEAD, Outcome, Role, TransferHead, write_transfer_head};

/// The rest of a delivery that has not been written yet.
pub(super) struct Unfinished {
    bytes: Vec<u8>,
    at: usize,
    settled: bool,
    /// The time at which the delivery began.
    began: Duration,
}

/// The state of a delivery that has begun.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Rest {
    Nothing,
    NeedsWindow,
    NeedsRoom,
}

/// The common fields of the frames of a delivery.
#[derive(Clone, Copy)]
struct Frames {
    handle: u32,
    settled: bool,
    max: usize,
}

impl Connection {
    /// Sends a message, whose bytes are the concatenated `parts`. An unsettled one is settled by the peer:
    /// [`Event::Settled`].
    ///
    /// The tag of a delivery is its number.
    #[inline]
    pub fn send(&mut self, link: LinkId, format: u32, settled: bool, parts: &[&[u8]]) -> Sent {
        if let Some(obstacle) = self.obstacle(link, settled) {
            return obstacle;
        }
        let Some(found) = self.links.get_mut(link) else { return Sent::Gone };
        let session_id = found.session;
        let Some(session) = self.sessions.get_mut(session_id) else { return Sent::Gone };
        let total = parts.iter().map(|part| part.len()).sum::<usize>();
        let id = session.next_delivery_id;
        let head = TransferHead {
            channel: session.channel,
            handle: found.handle,
            begins: Some((id, format)),
            settled,
            more: false,
        };
        if let Some(accepted) = session.accepted.take() {
            // The disposition of a message is written before the reply to it.
            write_accepted(&mut self.output, session.channel, accepted);
        }
        let mut buffer = [0; MAX_TRANSFER_HEAD];
        let length = write_transfer_head(&mut buffer, head, total);
        if length + total <= self.transfer_frame {
            let output = self.output.bytes();
            output.reserve(length + total);
            output.extend_from_slice(&buffer[..length]);
            for part in parts {
                output.extend_from_slice(part);
            }
            session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
            session.peer_window -= 1;
        } else {
            let frames = Frames { handle: found.handle, settled, max: self.transfer_frame };
            let needed = total / (self.transfer_frame - MAX_TRANSFER_HEAD) + 1;
            let size = MessageSize { bytes: total, frames: needed };
            let incomplete = self.config.limits.incomplete;
            let memory = size.check_memory(&self.unended, &self.output, session.peer_window, incomplete);
            match memory {
                MemoryCheck::Free | MemoryCheck::OverLimit => found.refused = None,
                MemoryCheck::NeedsRoom => {
                    self.output.wanted = true;
                    return Sent::Blocked(Blocked::Room);
                }
                MemoryCheck::NeedsOthers => {
                    found.refused = Some(size);
                    session.wanted = true;
                    self.waiting_for_others.insert(session_id);
                    return Sent::Blocked(Blocked::Window);
                }
            }
            let written = write_frames(&mut self.output, session, frames, Some((id, format)), parts, total);
            if written < total {
                let bytes = rest_of(parts, total, written);
                let began = self.clock.now;
                self.unended.outgoing_bytes += bytes.len();
                self.unended.begin(link, began, self.config.limits.time_to_finish);
                if memory == MemoryCheck::OverLimit {
                    self.unended.over_limit = Some(link);
                }
                found.outgoing = Some(Unfinished { bytes, at: 0, settled, began });
                session.unfinished = Some(link);
                if session.peer_window > 0 {
                    session.waits_for_room = true;
                    self.waiting_for_room.push_back(session_id);
                }
            }
        }
        found.credit -= 1;
        found.delivery_count = found.delivery_count.wrapping_add(1);
        session.next_delivery_id = id.wrapping_add(1);
        if !settled {
            session.unsettled_out.insert(id, link);
        }
        Sent::Sent(id)
    }

    /// The reason why [`Self::send`] cannot send now, if there is one. As there, an event reports when that
    /// has changed; so the owner need not build a message only to find that it cannot be sent.
    #[inline]
    pub fn obstacle(&mut self, link: LinkId, settled: bool) -> Option<Sent> {
        let Some(found) = self.links.get(link) else { return Some(Sent::Gone) };
        if found.state != LinkState::Attached || found.role != Role::Sender {
            return Some(Sent::Gone);
        }
        let (id, refused) = (found.session, found.refused);
        let Some(session) = self.sessions.get_mut(id) else { return Some(Sent::Gone) };
        // So that the owner does not read and copy the same message again only to be refused again.
        let needs_others = refused.is_some_and(|size| {
            let (window, incomplete) = (session.peer_window, self.config.limits.incomplete);
            size.check_memory(&self.unended, &self.output, window, incomplete) == MemoryCheck::NeedsOthers
        });
        let blocked = if found.credit == 0 {
            Blocked::Credit
        } else if self.output.is_congested() {
            self.output.wanted = true;
            Blocked::Room
        } else if session.peer_window == 0 || session.unfinished.is_some() {
            session.wanted = true;
            Blocked::Window
        } else if needs_others {
            session.wanted = true;
            self.waiting_for_others.insert(id);
            Blocked::Window
        } else if !settled && session.unsettled_out.len() >= self.config.limits.unsettled {
            session.wanted = true;
            Blocked::Unsettled
        } else {
            return None;
        };
        Some(Sent::Blocked(blocked))
    }

    /// Continues the unfinished delivery of a session, as far as its window and the output allow.
    pub(super) fn continue_delivery(&mut self, id: SessionId) {
        let rest = self.write_rest(id);
        let Some(session) = self.sessions.get_mut(id) else { return };
        if rest == Rest::NeedsRoom && !session.waits_for_room {
            session.waits_for_room = true;
            self.waiting_for_room.push_back(id);
        }
    }

    /// Continues deliveries that wait for room in the output, until there is none.
    pub(super) fn continue_in_room(&mut self) {
        while !self.output.is_congested()
            && let Some(id) = self.waiting_for_room.pop_front()
        {
            if let Some(session) = self.sessions.get_mut(id) {
                session.waits_for_room = false;
                self.continue_delivery(id);
                self.notify_window(id);
            }
        }
    }

    /// Writes the rest of the unfinished delivery of a session.
    fn write_rest(&mut self, id: SessionId) -> Rest {
        #[cfg(test)]
        {
            self.visited += 1;
        }
        let Some(session) = self.sessions.get_mut(id) else { return Rest::Nothing };
        let Some(link_id) = session.unfinished else { return Rest::Nothing };
        let Some(link) = self.links.get_mut(link_id) else { return Rest::Nothing };
        let Some(rest) = &mut link.outgoing else { return Rest::Nothing };
        if session.peer_window == 0 {
            return Rest::NeedsWindow;
        }
        if self.output.is_congested() {
            return Rest::NeedsRoom;
        }
        let frames = Frames { handle: link.handle, settled: rest.settled, max: self.transfer_frame };
        let left = rest.bytes.len() - rest.at;
        let written = write_frames(&mut self.output, session, frames, None, &[&rest.bytes[rest.at..]], left);
        rest.at += written;
        if written < left {
            return if session.peer_window == 0 { Rest::NeedsWindow } else { Rest::NeedsRoom };
        }
        self.unended.outgoing_bytes -= rest.bytes.len();
        self.unended.end(link_id, rest.began);
        link.outgoing = None;
        session.unfinished = None;
        self.notify_sessions_waiting_for_others();
        Rest::Nothing
    }

    /// Notifies sessions that were refused because of rests of other messages, of which there are fewer now.
    fn notify_sessions_waiting_for_others(&mut self) {
        for session in std::mem::take(&mut self.waiting_for_others) {
            self.notify_window(session);
        }
    }

    /// Forgets the unfinished deliveries of a link, in either direction, and its unsettled ones.
    pub(super) fn forget_messages(&mut self, id: LinkId) {
        let Some(link) = self.links.get_mut(id) else { return };
        if let Some(incomplete) = link.incoming.take() {
            self.unended.forget_incoming(&incomplete.bytes);
            self.unended.end(id, incomplete.began);
        }
        let session_id = link.session;
        let Some(session) = self.sessions.get_mut(session_id) else { return };
        session.unsettled_in = session.unsettled_in.saturating_sub(std::mem::take(&mut link.unsettled_in));
        if link.role == Role::Sender {
            session.unsettled_out.retain(|_, of| *of != id);
        }
        if let Some(rest) = link.outgoing.take() {
            self.unended.outgoing_bytes -= rest.bytes.len();
            self.unended.end(id, rest.began);
            session.unfinished = None;
            let waited = std::mem::take(&mut session.waits_for_room);
            if waited {
                self.waiting_for_room.retain(|waiting| *waiting != session_id);
            }
            self.notify_sessions_waiting_for_others();
        }
        self.notify_window(session_id);
    }

    pub(super) fn on_disposition(&mut self, id: SessionId, disposition: Disposition) {
        let Disposition { role, first, last, settled, outcome } = disposition;
        let last = last.unwrap_or(first);
        let Some(session) = self.sessions.get_mut(id) else { return };
        if role == Role::Sender {
            // The peer does not wait for our disposition. The delivery counts until our owner settles it or
            // its link goes: the owner still has it.
            return;
        }
        if !settled && outcome.is_none() {
            return;
        }
        // Consecutive deliveries of the same link become one event.
        let mut runs: Vec<(LinkId, u32, u32)> = Vec::new();
        let mut take = |from: u32, to: u32| {
            let ids: Vec<u32> = session.unsettled_out.range(from..=to).map(|(&id, _)| id).collect();
            for id in ids {
                let Some(link) = session.unsettled_out.remove(&id) else { continue };
                match runs.last_mut() {
                    Some((same, _, end)) if *same == link && end.wrapping_add(1) == id => *end = id,
                    _ => runs.push((link, id, id)),
                }
            }
        };
        if first <= last {
            take(first, last);
        } else if last.wrapping_sub(first) < u32::MAX / 2 {
            take(first, u32::MAX);
            take(0, last);
        }
        let channel = session.channel;
        // There may be many events, and the peer chose the length of the error.
        let outcome = match outcome {
            Some(Outcome::Rejected(error)) if runs.len() > 1 => Some(Outcome::Rejected(self.clipped(error))),
            outcome => outcome,
        };
        for (link, first, last) in runs {
            if !settled {
                // The receiver settles second: it waits for our settlement.
                let last = (last != first).then_some(last);
                let ours =
                    Disposition { role: Role::Sender, first, last, settled: true, outcome: outcome.clone() };
                self.write(channel, |into| ours.write(into));
            }
            self.events.push_back(Event::Settled { link, first, last, outcome: outcome.clone() });
        }
        self.notify_window(id);
    }
}

/// The bytes of a message after the first `written`.
#[cold]
fn rest_of(parts: &[&[u8]], total: usize, written: usize) -> Vec<u8> {
    let mut rest = Vec::with_capacity(total - written);
    let mut skip = written;
    for part in parts {
        rest.extend_from_slice(&part[skip.min(part.len())..]);
        skip = skip.saturating_sub(part.len());
    }
    rest
}

/// Writes as many frames of a delivery as the peer's window and the output allow, and returns the number of
/// payload bytes written.
fn write_frames(
    output: &mut Output,
    session: &mut Session,
    frames: Frames,
    mut begins: Option<(u32, u32)>,
    parts: &[&[u8]],
    total: usize,
) -> usize {
    let mut written = 0;
    let mut parts = parts.iter();
    let mut part: &[u8] = &[];
    let mut buffer = [0; MAX_TRANSFER_HEAD];
    while written < total && session.peer_window > 0 && !output.is_congested() {
        let left = total - written;
        let head = |more| TransferHead {
            channel: session.channel,
            handle: frames.handle,
            begins,
            settled: frames.settled,
            more,
        };
        // The length of a head does not depend on its payload.
        let room = frames.max - write_transfer_head(&mut buffer, head(false), 0);
        let payload = left.min(room);
        let length = write_transfer_head(&mut buffer, head(left > room), payload);
        let bytes = output.bytes();
        bytes.extend_from_slice(&buffer[..length]);
        let mut missing = payload;
        while missing > 0 {
            if part.is_empty() {
                let Some(next) = parts.next() else { break };
                part = next;
                continue;
            }
            let (now, later) = part.split_at(missing.min(part.len()));
            bytes.extend_from_slice(now);
            missing -= now.len();
            part = later;
        }
        begins = None;
        written += payload;
        session.next_outgoing_id = session.next_outgoing_id.wrapping_add(1);
        session.peer_window -= 1;
    }
    written
}

/// Writes the disposition that these deliveries are accepted.
pub(super) fn write_accepted(output: &mut Output, channel: u16, (first, last): (u32, u32)) {
    let last = (last != first).then_some(last);
    let outcome = Some(Outcome::Accepted);
    let disposition = Disposition { role: Role::Receiver, first, last, settled: true, outcome };
    output.frame(crate::frame::TYPE_AMQP, channel, u32::MAX, |into| disposition.write(into)).ok();
}
