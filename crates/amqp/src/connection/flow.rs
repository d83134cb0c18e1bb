//! Flow control: windows of sessions and credit of links, in both directions.
//!
//! Numbers of frames and of deliveries wrap around at 2^32. They are compared by their distance, and a
//! distance of more than half is an error of the peer and counts as 0.

use super::Connection;
use super::dispatch::{Handled, Violation};
use super::event::Event;
use super::link::LinkState;
use super::session::{Handle, OUTGOING_WINDOW};
use super::slots::{LinkId, SessionId};
use crate::performative::{Flow, Role, condition};

/// The number of steps from `earlier` to `later`.
fn distance(earlier: u32, later: u32) -> u32 {
    let distance = later.wrapping_sub(earlier);
    if distance > u32::MAX / 2 { 0 } else { distance }
}

impl Connection {
    /// Allows the peer to send this many more messages on a link, however many it was allowed before.
    pub fn grant(&mut self, link: LinkId, credit: u32) {
        let Some(found) = self.links.get_mut(link) else { return };
        if found.role == Role::Receiver && found.state == LinkState::Attached {
            found.credit = credit;
            found.draining = false;
            self.write_link_flow(link);
        }
    }

    /// Asks the peer to use up the credit of a link now or to return it: [`Event::Drained`]. A [`Self::grant`]
    /// before that event takes the request back; the peer may answer it nevertheless, so that another drain has
    /// to wait for a message.
    pub fn drain(&mut self, link: LinkId) {
        let Some(found) = self.links.get_mut(link) else { return };
        if found.role == Role::Receiver && found.state == LinkState::Attached {
            found.draining = true;
            self.write_link_flow(link);
        }
    }

    /// Returns the credit of a link that the peer drains: there is nothing more to send now.
    pub fn drained(&mut self, link: LinkId) {
        let Some(found) = self.links.get_mut(link) else { return };
        if found.role == Role::Sender && found.state == LinkState::Attached && found.draining {
            found.delivery_count = found.delivery_count.wrapping_add(found.credit);
            found.credit = 0;
            self.write_link_flow(link);
            if let Some(found) = self.links.get_mut(link) {
                found.draining = false;
            }
        }
    }

    pub(super) fn on_flow(&mut self, id: SessionId, flow: Flow) -> Handled<Option<Event>> {
        let Some(session) = self.sessions.get_mut(id) else { return Ok(None) };
        if session.state.is_ending() {
            return Ok(None);
        }
        let seen = flow.next_incoming_id.unwrap_or(self.config.first_transfer);
        let in_flight = distance(seen, session.next_outgoing_id);
        session.peer_window = flow.incoming_window.saturating_sub(in_flight);
        let window_open = session.peer_window > 0;
        let link = match flow.handle {
            None => None,
            Some(handle) => match session.handle(handle) {
                Handle::Attached(link) => Some(link),
                // Its session fields are still valid.
                Handle::Detached => None,
                Handle::Unused => {
                    let description = format!("flow for handle {handle}, which has no link");
                    return Err(Violation::of_session(id, condition::UNATTACHED_HANDLE, description));
                }
            },
        };
        if window_open {
            self.continue_delivery(id);
            self.notify_window(id);
        }
        match link {
            Some(link) => Ok(self.on_link_flow(link, flow)),
            None => {
                if flow.echo {
                    self.write_session_flow(id);
                }
                Ok(None)
            }
        }
    }

    fn on_link_flow(&mut self, link: LinkId, flow: Flow) -> Option<Event> {
        let found = self.links.get_mut(link)?;
        if matches!(found.state, LinkState::Detaching { .. } | LinkState::Refused) {
            return None;
        }
        let attached = found.state == LinkState::Attached;
        let mut regrants = false;
        let event = match found.role {
            Role::Sender => {
                if let Some(credit) = flow.link_credit {
                    // A peer that has not received our attach does not know the initial delivery count.
                    let seen = flow.delivery_count.unwrap_or(found.delivery_count);
                    found.credit = credit.saturating_sub(distance(seen, found.delivery_count));
                }
                found.draining = flow.drain == Some(true);
                attached.then_some(Event::Credit { link, drain: found.draining })
            }
            Role::Receiver => {
                // The sender counts a delivery at its beginning, we do at its end.
                let begun = u32::from(found.incoming.is_some());
                let sent = flow.delivery_count.map_or(found.delivery_count, |sent| sent.wrapping_sub(begun));
                // All messages before the flow have come, so the sender has returned this much credit.
                let returned = distance(found.delivery_count, sent);
                let drained = found.draining && (returned >= found.credit || flow.link_credit == Some(0));
                if drained {
                    found.delivery_count = sent;
                    found.credit = 0;
                    found.draining = false;
                } else if !found.draining {
                    found.delivery_count = found.delivery_count.wrapping_add(returned);
                }
                // Credit that was granted after the drain went with the credit that was returned.
                regrants = !drained && !found.draining && returned > 0 && found.credit > 0;
                drained.then_some(Event::Drained { link })
            }
        };
        if (flow.echo || regrants) && attached {
            self.write_link_flow(link);
        }
        event
    }

    /// Grants the credit again that a delivery used, because the owner gets no message for it. A sender that has
    /// to return its credit gets none.
    pub(super) fn grant_again(&mut self, link: LinkId) {
        let Some(found) = self.links.get_mut(link) else { return };
        match found.state {
            LinkState::Attached if found.draining => found.credit = found.credit.saturating_sub(1),
            LinkState::Attached => self.write_link_flow(link),
            _ => {}
        }
    }

    /// Notifies the owner that a session can send again, if it was refused because of the window, of
    /// unsettled deliveries, or of memory.
    pub(super) fn notify_window(&mut self, session: SessionId) {
        #[cfg(test)]
        {
            self.visited += 1;
        }
        let Some(found) = self.sessions.get_mut(session) else { return };
        let ending = found.state.is_ending();
        if found.wanted && !ending && found.peer_window > 0 && found.unfinished.is_none() {
            found.wanted = false;
            self.events.push_back(Event::Window { session });
        }
    }

    pub(super) fn write_session_flow(&mut self, session: SessionId) {
        let Some((channel, flow)) = self.session_flow(session) else { return };
        self.write(channel, |into| flow.write(into));
    }

    fn write_link_flow(&mut self, link: LinkId) {
        let Some(found) = self.links.get(link) else { return };
        let (session, handle) = (found.session, found.handle);
        let (count, credit, drain) = (found.delivery_count, found.credit, found.draining);
        let Some((channel, flow)) = self.session_flow(session) else { return };
        let flow = Flow {
            handle: Some(handle),
            delivery_count: Some(count),
            link_credit: Some(credit),
            available: Some(0),
            drain: drain.then_some(true),
            ..flow
        };
        self.write(channel, |into| flow.write(into));
    }

    /// The session fields of a flow. Sending it renews our window.
    fn session_flow(&mut self, session: SessionId) -> Option<(u16, Flow)> {
        let window = self.config.limits.window;
        let found = self.sessions.get_mut(session)?;
        found.incoming_left = window;
        let flow = Flow {
            next_incoming_id: found.peer_channel.map(|_| found.next_incoming_id),
            incoming_window: window,
            next_outgoing_id: found.next_outgoing_id,
            outgoing_window: OUTGOING_WINDOW,
            ..Flow::default()
        };
        Some((found.channel, flow))
    }
}
