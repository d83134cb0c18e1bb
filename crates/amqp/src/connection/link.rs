//! Links of a connection: attaching and detaching them (`attach`, `detach`).
//!
//! ```text
//!   the peer's attach ─► Requested ─accept─► Attached ─detach─► Detaching ─► (gone, the peer detached)
//!   attach ─► AttachSent ─answer──────────────► ┘└── the peer's detach ────► (gone, answered)
//!               └─answer without a terminus─► Refused ─ the peer's detach ─► (gone, answered)
//! ```
//!
//! A link is refused as the service does: with an `attach` without source and target, and then a `detach`
//! with the reason. SDKs do not understand a `detach` alone.

use std::time::Duration;

use super::Connection;
use super::dispatch::{Handled, Violation};
use super::event::Event;
use super::footprint::grow;
use super::outgoing_memory::MessageSize;
use super::sending::Unfinished;
use super::session::Handle;
use super::slots::{LinkId, SessionId};
use crate::performative::{Attach, Detach, Error, Role, condition};
use crate::shared_limit::Permit;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LinkState {
    Requested,
    AttachSent,
    Refused,
    Attached,
    /// Our `detach` is written; everything is ignored until the peer's comes.
    Detaching {
        /// The owner has been notified already.
        reported: bool,
    },
}

/// An incoming delivery whose end has not come yet.
pub(super) struct Incomplete {
    pub(super) id: u32,
    pub(super) format: u32,
    pub(super) settled: bool,
    /// The number of bytes that have come.
    pub(super) size: u64,
    /// The bytes that have come; empty once they are too many.
    pub(super) bytes: Vec<u8>,
    /// The time at which it began.
    pub(super) began: Duration,
    /// The same in reading time, which stands still while reading is paused.
    pub(super) began_reading: Duration,
    /// The reading time at which the last part came.
    pub(super) received_at: Duration,
}

pub(super) struct Link {
    /// Grows with each link of the connection.
    number: u64,
    pub(super) state: LinkState,
    pub(super) session: SessionId,
    pub(super) name: String,
    /// Our role.
    pub(super) role: Role,
    pub(super) handle: u32,
    /// The peer's handle, once it is known.
    pub(super) peer_handle: Option<u32>,
    pub(super) delivery_count: u32,
    pub(super) credit: u32,
    /// As sender: the peer drains its credit. As receiver: we drain ours.
    pub(super) draining: bool,
    pub(super) message_limit: u64,
    /// The number of received deliveries that have not been settled.
    pub(super) unsettled_in: usize,
    pub(super) incoming: Option<Incomplete>,
    pub(super) outgoing: Option<Unfinished>,
    /// The size of its last message, if it was refused because of rests of other messages.
    pub(super) refused: Option<MessageSize>,
    /// Its permit in the limit on the links of all connections.
    _permit: Permit,
}

impl Connection {
    /// Attaches a link. Name, role, modes, source, target and the rest are taken from `attach`; the handle is
    /// chosen here. [`Event::Attached`] or [`Event::Detached`] follows. `None` if the session is gone, or if
    /// the peer, our limits, or the limits of all connections allow no more links.
    pub fn attach(&mut self, session: SessionId, mut attach: Attach) -> Option<LinkId> {
        let state = self.sessions.get(session)?.state;
        if state.is_ending() || self.links.len() >= self.config.limits.links {
            return None;
        }
        let handle = self.free_handle(session, None)?;
        let permit = self.config.shared.links.take()?;
        let link = self.add_link(session, &attach, attach.role, handle, LinkState::AttachSent, permit);
        self.set_our_side(link, &attach);
        attach.handle = handle;
        let channel = self.sessions.get(session)?.channel;
        self.write(channel, |into| attach.write(into));
        Some(link)
    }

    /// Accepts a link that the peer asked for, with [`Attach::answer`] or something like it. Name, handle and
    /// role are set here. Grant credit, or check it, right after.
    pub fn accept(&mut self, link: LinkId, mut answer: Attach) {
        let Some(found) = self.links.get_mut(link) else { return };
        if found.state != LinkState::Requested {
            return;
        }
        found.state = LinkState::Attached;
        answer.name.clone_from(&found.name);
        (answer.handle, answer.role) = (found.handle, found.role);
        let (credit, drain) = (found.credit, found.draining);
        if found.role == Role::Sender && credit > 0 {
            self.events.push_back(Event::Credit { link, drain });
        }
        self.set_our_side(link, &answer);
        let Some(channel) = self.channel_of(link) else { return };
        self.write(channel, |into| answer.write(into));
    }

    /// Refuses a link that the peer asked for. The owner gets no further event for it.
    pub fn refuse(&mut self, link: LinkId, error: Error) {
        let Some(found) = self.links.get_mut(link) else { return };
        if found.state != LinkState::Requested {
            return;
        }
        found.state = LinkState::Detaching { reported: true };
        self.write_bare_attach(link);
        self.write_detach(link, true, Some(error));
        self.forget_name(link);
    }

    /// Detaches a link, with or without a reason. [`Event::Detached`] reports that the peer agreed.
    pub fn detach(&mut self, link: LinkId, error: Option<Error>) {
        self.start_detach(link, error, false);
    }

    /// Detaches a link because the peer violated the protocol, or was too slow.
    pub(super) fn fail_link(&mut self, link: LinkId, error: Error) {
        let Some(found) = self.links.get(link) else { return };
        if !matches!(found.state, LinkState::Detaching { .. }) {
            self.start_detach(link, Some(error.clone()), true);
            self.events.push_back(Event::Detached { link, error: Some(error) });
        }
    }

    fn start_detach(&mut self, link: LinkId, error: Option<Error>, reported: bool) {
        let Some(found) = self.links.get_mut(link) else { return };
        match found.state {
            LinkState::Detaching { .. } => return,
            LinkState::Requested => {
                found.state = LinkState::Detaching { reported };
                self.write_bare_attach(link);
            }
            LinkState::AttachSent | LinkState::Refused | LinkState::Attached => {
                found.state = LinkState::Detaching { reported };
            }
        }
        self.forget_messages(link);
        self.write_detach(link, true, error);
        self.forget_name(link);
    }

    /// Frees the name of a link that only waits for the peer's `detach`, because some peers take their time.
    fn forget_name(&mut self, link: LinkId) {
        if let Some(found) = self.links.get_mut(link)
            && found.peer_handle.is_some()
        {
            found.name = String::new();
        }
    }

    pub(super) fn on_attach(&mut self, session: SessionId, attach: Box<Attach>) -> Handled<Option<Event>> {
        let limits = &self.config.limits;
        let Some(found) = self.sessions.get(session) else { return Ok(None) };
        if found.state.is_ending() {
            return Ok(None);
        }
        let handle = attach.handle;
        if handle > limits.handle_max {
            let description = format!("attach with handle {handle}, beyond {}", limits.handle_max);
            return Err(Violation::of_connection(condition::FRAMING_ERROR, description));
        }
        if let Handle::Attached(_) = found.handle(handle) {
            let description = format!("a second attach with handle {handle}");
            return Err(Violation::of_session(session, condition::HANDLE_IN_USE, description));
        }
        let role = attach.role.other();
        // Names may repeat, so only an answer is looked up by its name. A link that was detached before its
        // answer may have the same name as the next one, and is answered first.
        let asked = found.handles_out.iter().flatten().filter_map(|&id| {
            let link = self.links.get(id)?;
            let asked = link.peer_handle.is_none() && link.role == role && link.name == attach.name;
            asked.then_some((link.number, id))
        });
        if let Some((_, link)) = asked.min() {
            self.set_peer_handle(session, link, handle);
            return Ok(self.on_answer(link, attach));
        }
        let free = self.free_handle(session, Some(handle));
        let (true, Some(ours)) = (self.links.len() < limits.links, free) else {
            let description = format!("more links than the {} that are allowed", limits.links);
            return Err(Violation::of_session(session, condition::RESOURCE_LIMIT_EXCEEDED, description));
        };
        let Some(permit) = self.config.shared.links.take() else {
            self.refuse_attach(session, ours, &attach);
            return Ok(None);
        };
        let link = self.add_link(session, &attach, role, ours, LinkState::Requested, permit);
        self.set_peer_handle(session, link, handle);
        self.set_peer_side(link, &attach);
        Ok(Some(Event::AttachRequested { session, link, attach }))
    }

    fn on_answer(&mut self, link: LinkId, attach: Box<Attach>) -> Option<Event> {
        let found = self.links.get_mut(link)?;
        if found.state != LinkState::AttachSent {
            return None;
        }
        let terminus = match found.role {
            Role::Sender => attach.target.is_some(),
            Role::Receiver => attach.source.is_some(),
        };
        if !terminus {
            // The reason follows in a detach.
            found.state = LinkState::Refused;
            return None;
        }
        found.state = LinkState::Attached;
        self.set_peer_side(link, &attach);
        Some(Event::Attached { link, attach })
    }

    pub(super) fn on_detach(&mut self, session: SessionId, detach: Detach) -> Handled<Option<Event>> {
        let handle = detach.handle;
        let Some(found) = self.sessions.get(session) else { return Ok(None) };
        let link = match found.handle(handle) {
            Handle::Attached(link) => link,
            // A second detach is wrong, but harmless.
            Handle::Detached => return Ok(None),
            Handle::Unused if found.state.is_ending() => return Ok(None),
            Handle::Unused => {
                let description = format!("detach of handle {handle}, which has no link");
                return Err(Violation::of_session(session, condition::UNATTACHED_HANDLE, description));
            }
        };
        let Some(state) = self.links.get(link).map(|link| link.state) else { return Ok(None) };
        let reported = match state {
            LinkState::Detaching { reported } => reported,
            LinkState::Requested => {
                self.write_bare_attach(link);
                self.write_detach(link, detach.closed, None);
                false
            }
            LinkState::AttachSent | LinkState::Refused | LinkState::Attached => {
                self.write_detach(link, detach.closed, None);
                false
            }
        };
        self.remove_link(link);
        Ok((!reported).then_some(Event::Detached { link, error: detach.error }))
    }

    fn add_link(
        &mut self,
        session: SessionId,
        attach: &Attach,
        role: Role,
        handle: u32,
        state: LinkState,
        permit: Permit,
    ) -> LinkId {
        self.link_count += 1;
        let link = self.links.insert(Link {
            number: self.link_count,
            state,
            session,
            name: attach.name.clone(),
            role,
            handle,
            peer_handle: None,
            delivery_count: 0,
            credit: 0,
            draining: false,
            message_limit: self.config.limits.message,
            unsettled_in: 0,
            incoming: None,
            outgoing: None,
            refused: None,
            _permit: permit,
        });
        if let Some(session) = self.sessions.get_mut(session) {
            self.handle_slots += grow(&mut session.handles_out, handle, None);
            session.handles_out[handle as usize] = Some(link);
        }
        link
    }

    fn set_peer_handle(&mut self, session: SessionId, link: LinkId, handle: u32) {
        if let Some(found) = self.links.get_mut(link) {
            found.peer_handle = Some(handle);
        }
        if let Some(session) = self.sessions.get_mut(session) {
            self.handle_slots += grow(&mut session.handles_in, handle, Handle::Unused);
            session.handles_in[handle as usize] = Handle::Attached(link);
        }
    }

    /// Stores the values of our own `attach`.
    fn set_our_side(&mut self, link: LinkId, attach: &Attach) {
        let most = self.config.limits.message;
        let Some(found) = self.links.get_mut(link) else { return };
        match found.role {
            Role::Sender => found.delivery_count = attach.initial_delivery_count.unwrap_or(0),
            Role::Receiver => {
                let announced = attach.max_message_size.filter(|&size| size > 0);
                found.message_limit = announced.unwrap_or(most).min(most);
            }
        }
    }

    /// Stores the values of the peer's `attach`.
    fn set_peer_side(&mut self, link: LinkId, attach: &Attach) {
        let Some(found) = self.links.get_mut(link) else { return };
        if found.role == Role::Receiver {
            found.delivery_count = attach.initial_delivery_count.unwrap_or(0);
        }
    }

    /// The wanted handle if it is free, because most peers expect that; otherwise the first free one.
    fn free_handle(&self, session: SessionId, wanted: Option<u32>) -> Option<u32> {
        let found = self.sessions.get(session)?;
        let most = found.peer_handle_max.min(self.config.limits.handle_max);
        let is_free = |handle: &u32| {
            *handle <= most && found.handles_out.get(*handle as usize).is_none_or(Option::is_none)
        };
        wanted.filter(is_free).or_else(|| (0..=most).find(is_free))
    }

    pub(super) fn channel_of(&self, link: LinkId) -> Option<u16> {
        let link = self.links.get(link)?;
        self.sessions.get(link.session).map(|session| session.channel)
    }

    /// Reports the end of every link of a session to the owner.
    pub(super) fn detach_all(&mut self, session: SessionId, error: Option<&Error>) {
        // There may be many events, and the peer chose the length of the error.
        let error = self.clipped(error.cloned());
        for link in self.links_of(session) {
            let reported = self
                .links
                .get(link)
                .is_some_and(|link| link.state == LinkState::Detaching { reported: true });
            if !reported {
                self.events.push_back(Event::Detached { link, error: error.clone() });
            }
        }
    }

    pub(super) fn links_of(&self, session: SessionId) -> Vec<LinkId> {
        let links = self.sessions.get(session).map(|session| &session.handles_out);
        links.into_iter().flatten().copied().flatten().collect()
    }

    /// Forgets every link of a session.
    pub(super) fn forget_links(&mut self, session: SessionId) {
        for link in self.links_of(session) {
            self.remove_link(link);
        }
    }

    fn remove_link(&mut self, link: LinkId) {
        self.forget_messages(link);
        let Some(found) = self.links.remove(link) else { return };
        let Some(session) = self.sessions.get_mut(found.session) else { return };
        session.handles_out[found.handle as usize] = None;
        if let Some(handle) = found.peer_handle {
            session.handles_in[handle as usize] = Handle::Detached;
        }
    }

    fn write_bare_attach(&mut self, link: LinkId) {
        let (Some(found), Some(channel)) = (self.links.get(link), self.channel_of(link)) else { return };
        let attach = Attach { handle: found.handle, ..Attach::new(found.name.clone(), found.role) };
        self.write(channel, |into| attach.write(into));
    }

    pub(super) fn write_detach(&mut self, link: LinkId, closed: bool, error: Option<Error>) {
        let (Some(found), Some(channel)) = (self.links.get(link), self.channel_of(link)) else { return };
        let (session, handle) = (found.session, found.handle);
        self.write_acceptance(session);
        let error = self.clipped(error);
        self.write(channel, |into| Detach { handle, closed, error }.write(into));
    }
}
