//! Inbound (from the peer): receives messages, and settles them.
//!
//! A message of one frame is passed to the owner as a slice of the input buffer. The frames of a larger one
//! are assembled, up to the size that the link allows. A delivery that grows beyond it is not kept; at its end
//! the owner rejects it, as the service does. The link is detached if such a delivery was sent settled, has far
//! more than the allowed size, or came in one frame. Overdrawn credit is tolerated, because Azure's
//! Python SDK ignores credit; a peer is limited because nothing is read ahead of the owner.

use bytes::Bytes;

use super::Connection;
use super::dispatch::{Handled, Violation};
use super::event::{Delivery, Event};
use super::link::{Incomplete, LinkState};
use super::sending::write_accepted;
use super::session::Handle;
use super::slots::{LinkId, SessionId};
use crate::performative::{Disposition, Error, Outcome, Role, Transfer, condition};

/// A delivery that is this many times larger than its link allows is not read to its end.
const MAX_OVERSIZE_FACTOR: u64 = 16;

impl Connection {
    #[inline]
    pub(super) fn on_transfer(
        &mut self,
        channel: u16,
        transfer: Transfer<'static>,
        payload: Bytes,
    ) -> Handled<Option<Event>> {
        let Some(id) = self.session_on(channel, "transfer")? else { return Ok(None) };
        let Some(session) = self.sessions.get_mut(id) else { return Ok(None) };
        if session.state.is_ending() {
            return Ok(None);
        }
        let handle = session.handle(transfer.handle);
        if handle == Handle::Unused {
            let description = format!("transfer for handle {}, which has no link", transfer.handle);
            return Err(Violation::of_session(id, condition::UNATTACHED_HANDLE, description));
        }
        // A transfer for a detached handle uses the session's window, too.
        session.next_incoming_id = session.next_incoming_id.wrapping_add(1);
        session.incoming_left = session.incoming_left.saturating_sub(1);
        if session.incoming_left <= self.config.limits.window / 2 {
            self.write_session_flow(id);
        }
        let Handle::Attached(link_id) = handle else { return Ok(None) };
        let Some(link) = self.links.get_mut(link_id) else { return Ok(None) };
        if matches!(link.state, LinkState::Detaching { .. } | LinkState::Refused) {
            return Ok(None);
        }
        if link.role == Role::Sender {
            let description = "transfer on a link on which the peer is the receiver";
            return Err(Violation::of_link(link_id, condition::NOT_ALLOWED, description));
        }
        if link.incoming.is_some() || transfer.more || transfer.aborted {
            return self.on_part(link_id, transfer, payload);
        }
        let Some(delivery) = transfer.delivery_id else { return Err(no_delivery_id(link_id)) };
        let size = payload.len() as u64;
        if size > link.message_limit {
            return Err(too_large(link_id, delivery, size, link.message_limit));
        }
        let settled = transfer.settled == Some(true);
        let format = transfer.message_format.unwrap_or(0);
        self.deliver(link_id, delivery, format, settled, payload).map(Some)
    }

    /// Handles one frame of a delivery that has several.
    fn on_part(&mut self, id: LinkId, transfer: Transfer<'_>, payload: Bytes) -> Handled<Option<Event>> {
        let limit = self.config.limits.incomplete;
        let (now, reading) = (self.clock.now, self.clock.reading_time());
        let Some(link) = self.links.get_mut(id) else { return Ok(None) };
        if link.incoming.is_none() {
            let Some(delivery) = transfer.delivery_id else { return Err(no_delivery_id(id)) };
            link.incoming = Some(Incomplete {
                id: delivery,
                format: transfer.message_format.unwrap_or(0),
                settled: false,
                size: 0,
                bytes: Vec::new(),
                began: now,
                began_reading: reading,
                received_at: reading,
            });
            self.unended.begin(id, now, self.config.limits.time_to_finish);
        }
        let Some(incoming) = &mut link.incoming else { return Ok(None) };
        if let Some(other) = transfer.delivery_id
            && other != incoming.id
        {
            let description = format!("delivery {other} before the end of delivery {}", incoming.id);
            return Err(Violation::of_link(id, condition::NOT_ALLOWED, description));
        }
        incoming.settled |= transfer.settled == Some(true);
        incoming.received_at = reading;
        if transfer.aborted {
            self.unended.forget_incoming(&incoming.bytes);
            self.unended.end(id, incoming.began);
            link.incoming = None;
            link.delivery_count = link.delivery_count.wrapping_add(1);
            // The owner gets no event, so the credit that the delivery used is granted again here.
            self.grant_again(id);
            return Ok(None);
        }
        incoming.size += payload.len() as u64;
        if incoming.size > link.message_limit {
            return self.on_part_of_oversized(id, transfer.more);
        }
        self.unended.append_incoming(&mut incoming.bytes, &payload, link.message_limit);
        if self.unended.incoming_bytes > limit {
            let description = format!("more than {limit} bytes of deliveries that have not ended");
            return Err(Violation::of_link(id, condition::RESOURCE_LIMIT_EXCEEDED, description));
        }
        if transfer.more {
            return Ok(self.unended.notice(self.config.limits.incomplete_notice));
        }
        let Some(Incomplete { id: delivery, format, settled, bytes, began, .. }) = link.incoming.take()
        else {
            return Ok(None);
        };
        self.unended.forget_incoming(&bytes);
        self.unended.end(id, began);
        self.deliver(id, delivery, format, settled, bytes.into()).map(Some)
    }

    /// Handles one frame of a delivery that is too large.
    #[cold]
    fn on_part_of_oversized(&mut self, id: LinkId, more: bool) -> Handled<Option<Event>> {
        let Some(link) = self.links.get_mut(id) else { return Ok(None) };
        let Some(incoming) = &mut link.incoming else { return Ok(None) };
        let (delivery, size, limit) = (incoming.id, incoming.size, link.message_limit);
        let (kept, began) = (std::mem::take(&mut incoming.bytes), incoming.began);
        self.unended.forget_incoming(&kept);
        if incoming.settled || size > limit.saturating_mul(MAX_OVERSIZE_FACTOR) {
            return Err(too_large(id, delivery, size, limit));
        }
        if more {
            return Ok(None);
        }
        link.incoming = None;
        self.unended.end(id, began);
        link.delivery_count = link.delivery_count.wrapping_add(1);
        link.unsettled_in += 1;
        let session = link.session;
        if let Some(session) = self.sessions.get_mut(session) {
            session.unsettled_in += 1;
        }
        // The owner gets no message, so the credit that the delivery used is granted again here.
        self.grant_again(id);
        Ok(Some(Event::Oversized { link: id, delivery, size, limit }))
    }

    #[inline]
    fn deliver(
        &mut self,
        id: LinkId,
        delivery: u32,
        format: u32,
        settled: bool,
        payload: Bytes,
    ) -> Handled<Event> {
        if let Some(link) = self.links.get_mut(id) {
            link.credit = link.credit.saturating_sub(1);
            link.delivery_count = link.delivery_count.wrapping_add(1);
            if !settled && let Some(session) = self.sessions.get_mut(link.session) {
                link.unsettled_in += 1;
                session.unsettled_in += 1;
                let limit = self.config.limits.unsettled;
                if session.unsettled_in > limit {
                    let description = format!("more than {limit} unsettled deliveries");
                    return Err(Violation::of_session(
                        link.session,
                        condition::RESOURCE_LIMIT_EXCEEDED,
                        description,
                    ));
                }
            }
        }
        Ok(Event::Delivery(Delivery { link: id, id: delivery, format, settled, payload }))
    }

    /// Settles all deliveries from `first` to `last` with an outcome. Consecutive accepted deliveries are
    /// merged into one frame.
    pub fn settle(&mut self, link: LinkId, first: u32, last: u32, outcome: &Outcome) {
        let Some(found) = self.links.get_mut(link) else { return };
        let id = found.session;
        if found.role != Role::Receiver {
            return;
        }
        let Some(session) = self.sessions.get_mut(id) else { return };
        let count = (last.wrapping_sub(first) as usize).saturating_add(1).min(found.unsettled_in);
        found.unsettled_in -= count;
        session.unsettled_in = session.unsettled_in.saturating_sub(count);
        // A peer has forgotten the deliveries of a link that was detached: Azure's Go SDK ends its session when
        // it receives a disposition for one.
        if matches!(found.state, LinkState::Detaching { .. }) {
            return;
        }
        if *outcome == Outcome::Accepted {
            match &mut session.accepted {
                Some((_, end)) if end.wrapping_add(1) == first => *end = last,
                accepted => {
                    if let Some(before) = accepted.replace((first, last)) {
                        write_accepted(&mut self.output, session.channel, before);
                    } else if !self.accepting.contains(&id) {
                        self.accepting.push(id);
                    }
                }
            }
            return;
        }
        self.write_acceptance(id);
        let Some(channel) = self.sessions.get(id).map(|session| session.channel) else { return };
        let outcome = match outcome {
            Outcome::Rejected(error) => Outcome::Rejected(self.clipped(error.clone())),
            other => other.clone(),
        };
        let last = (last != first).then_some(last);
        let outcome = Some(outcome);
        let disposition = Disposition { role: Role::Receiver, first, last, settled: true, outcome };
        self.write(channel, |into| disposition.write(into));
    }

    /// Writes the pending disposition of accepted deliveries of a session.
    pub(super) fn write_acceptance(&mut self, session: SessionId) {
        let Some(found) = self.sessions.get_mut(session) else { return };
        if let Some(accepted) = found.accepted.take() {
            write_accepted(&mut self.output, found.channel, accepted);
        }
    }

    /// Writes the pending dispositions of all sessions.
    #[inline]
    pub(super) fn write_acceptances(&mut self) {
        while let Some(session) = self.accepting.pop() {
            self.write_acceptance(session);
        }
    }
}

#[cold]
fn no_delivery_id(link: LinkId) -> Box<Violation> {
    Violation::of_link(link, condition::INVALID_FIELD, "transfer: a delivery begins without delivery-id")
}

#[cold]
fn too_large(link: LinkId, delivery: u32, size: u64, limit: u64) -> Box<Violation> {
    let description = Error::too_large(delivery, size, limit).description.unwrap_or_default();
    Violation::of_link(link, condition::MESSAGE_SIZE_EXCEEDED, description)
}
