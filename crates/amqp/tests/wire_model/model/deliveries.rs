//! Transfers and dispositions of the peer: what must be handed out, and what is settled.

use ephor_amqp::connection::{LinkId, SessionId};
use ephor_amqp::performative::{Disposition, Role, condition as conditions};

use super::expected_events::Expected;
use super::{Incoming, LinkState, Model, in_range};
use crate::decoded_frames::Part;

/// An unsettled delivery that is larger than this many times the limit of its link is not read to its end.
const MAX_OVERSIZE_FACTOR: u64 = 16;

impl Model {
    pub(super) fn read_transfer(&mut self, session: SessionId, part: &Part) {
        let found = self.session_mut(session);
        if found.is_ending() {
            return;
        }
        let Some(&handle) = found.handles_in.get(&part.handle) else {
            return self.fail_session(session, conditions::UNATTACHED_HANDLE);
        };
        found.next_incoming_id = found.next_incoming_id.wrapping_add(1);
        let Some(id) = handle else { return };
        let link = self.link_mut(id);
        if matches!(link.state, LinkState::Detaching { .. } | LinkState::Refused) {
            return;
        }
        if link.role == Role::Sender {
            return self.fail_link(id, conditions::NOT_ALLOWED);
        }
        let whole = link.incoming.is_none() && !part.more && !part.aborted;
        let mut incoming = match (link.incoming.take(), part.delivery_id) {
            (None, None) => return self.fail_link(id, conditions::INVALID_FIELD),
            (Some(incoming), Some(other)) if other != incoming.id => {
                link.incoming = Some(incoming);
                return self.fail_link(id, conditions::NOT_ALLOWED);
            }
            (Some(incoming), _) => incoming,
            (None, Some(delivery)) => {
                let format = part.format.unwrap_or(0);
                Incoming { id: delivery, format, settled: false, size: 0, bytes: Vec::new() }
            }
        };
        incoming.settled |= part.settled;
        if part.aborted {
            link.delivery_count = link.delivery_count.wrapping_add(1);
            return self.grant_again(id);
        }
        incoming.size += part.payload.len() as u64;
        let limit = link.message_limit;
        if incoming.size > limit {
            if whole || incoming.settled || incoming.size > limit.saturating_mul(MAX_OVERSIZE_FACTOR) {
                return self.fail_link(id, conditions::MESSAGE_SIZE_EXCEEDED);
            }
            if part.more {
                incoming.bytes.clear();
                link.incoming = Some(incoming);
                return;
            }
            return self.read_oversized(session, id, &incoming);
        }
        incoming.bytes.extend_from_slice(&part.payload);
        if part.more {
            link.incoming = Some(incoming);
        } else if whole || self.incomplete() + incoming.bytes.len() <= self.limits.incomplete {
            return self.deliver(session, id, incoming);
        } else {
            return self.fail_link(id, conditions::RESOURCE_LIMIT_EXCEEDED);
        }
        if self.incomplete() > self.limits.incomplete {
            self.fail_link(id, conditions::RESOURCE_LIMIT_EXCEEDED);
        }
    }

    /// The application gets no message, so that the credit that the delivery used is granted again; but not while the
    /// sender has to return it.
    fn grant_again(&mut self, id: LinkId) {
        if !self.is_attached(id, Role::Receiver) {
            return;
        }
        let link = self.link_mut(id);
        match link.draining {
            true => link.credit = link.credit.saturating_sub(1),
            false => self.want_link_flow(id),
        }
    }

    fn read_oversized(&mut self, session: SessionId, id: LinkId, incoming: &Incoming) {
        let link = self.link_mut(id);
        link.delivery_count = link.delivery_count.wrapping_add(1);
        let (size, limit) = (incoming.size, link.message_limit);
        self.session_mut(session).unsettled_in.insert(incoming.id, id);
        self.grant_again(id);
        self.expected.push_back(Expected::Oversized { link: id, id: incoming.id, size, limit });
    }

    fn deliver(&mut self, session: SessionId, id: LinkId, incoming: Incoming) {
        let limit = self.limits.unsettled;
        let link = self.link_mut(id);
        link.credit = link.credit.saturating_sub(1);
        link.delivery_count = link.delivery_count.wrapping_add(1);
        let Incoming { id: number, format, settled, bytes, .. } = incoming;
        if !settled {
            let session = self.session_mut(session);
            session.unsettled_in.insert(number, id);
            if session.unsettled_in.len() > limit {
                let session = self.link(id).session;
                return self.fail_session(session, conditions::RESOURCE_LIMIT_EXCEEDED);
            }
        }
        self.expected.push_back(Expected::Delivery { link: id, id: number, format, settled, payload: bytes });
    }

    pub(super) fn read_disposition(&mut self, id: SessionId, disposition: &Disposition) {
        let Disposition { role, first, last, settled, outcome } = disposition;
        if *role == Role::Sender || (!settled && outcome.is_none()) {
            return;
        }
        let last = last.unwrap_or(*first);
        let session = self.session_mut(id);
        let mut deliveries: Vec<(LinkId, u32)> = session
            .unsettled_out
            .iter()
            .filter(|(number, _)| in_range(**number, *first, last))
            .map(|(number, link)| (*link, *number))
            .collect();
        // In the order in which they were sent, also where numbers wrap around.
        deliveries.sort_by_key(|(_, number)| number.wrapping_sub(*first));
        for (_, number) in &deliveries {
            session.unsettled_out.remove(number);
            if !settled {
                session.settle_second.insert(*number, outcome.clone());
            }
        }
        if !deliveries.is_empty() {
            self.expected.push_back(Expected::Settled { deliveries, outcome: outcome.clone() });
        }
    }
}
