//! Frames of the peer that were decoded: what they change, which answers they need and which events are due.

use std::collections::BTreeMap;

use ephor_amqp::connection::{LinkId, SessionId};
use ephor_amqp::performative::{Attach, Begin, Detach, Flow, Role, condition as conditions};

use super::expected_events::{Expected, condition};
use super::output::Wanted;
use super::{LinkState, Model, Phase, SessionState, distance};
use crate::coverage::{LinkCover, SessionCover};
use crate::decoded_frames::{Body, Frame, Kind};

impl Model {
    /// Handles a frame that the connection has decoded.
    pub(crate) fn read(&mut self, frame: &Frame) {
        let channel = frame.channel;
        match (self.phase, &frame.body) {
            (Phase::Over, _) => return,
            (Phase::Closing, Body::Close(_)) => {
                self.expected.push_back(Expected::ClosedByUs);
                self.phase = Phase::Over;
                return;
            }
            (Phase::Closing, _) => return,
            (Phase::Open, _) => {}
        }
        self.cover_session(channel, frame.body.kind(), &frame.body);
        match &frame.body {
            Body::Heartbeat => {}
            Body::Close(error) => {
                self.wanted.push_back(Wanted::Close { condition: None });
                self.expected.push_back(Expected::ClosedByPeer { condition: condition(error.as_ref()) });
                self.forget_everything();
            }
            Body::Begin(begin) => self.read_begin(channel, begin),
            body => match self.channels_in.get(&channel) {
                None => self.fail(conditions::NOT_ALLOWED),
                Some(None) => {}
                Some(Some(session)) => self.read_in_session(*session, body),
            },
        }
    }

    fn read_in_session(&mut self, id: SessionId, body: &Body) {
        let handle = match body {
            Body::Attach(attach) => Some(attach.handle),
            Body::Flow(flow) => flow.handle,
            Body::Transfer(part) => Some(part.handle),
            Body::Detach(detach) => Some(detach.handle),
            _ => None,
        };
        if let Some(handle) = handle
            && !self.session(id).is_ending()
        {
            let state = match body {
                Body::Attach(attach) => self.attach_cover(id, attach),
                _ => self.link_cover(id, handle),
            };
            self.coverage.link(body.kind(), state);
        }
        match body {
            Body::Attach(attach) => self.read_attach(id, attach),
            Body::Flow(flow) => self.read_flow(id, flow),
            Body::Transfer(part) => self.read_transfer(id, part),
            Body::Disposition(disposition) => self.read_disposition(id, disposition),
            Body::Detach(detach) => self.read_detach(id, detach),
            Body::End(error) => self.read_end(id, condition(error.as_ref())),
            Body::Heartbeat | Body::Begin(_) | Body::Close(_) => {}
        }
    }

    fn read_begin(&mut self, channel: u16, begin: &Begin) {
        if channel > self.limits.channel_max {
            return self.fail(conditions::FRAMING_ERROR);
        }
        if let Some(Some(_)) = self.channels_in.get(&channel) {
            return self.fail(conditions::NOT_ALLOWED);
        }
        let Some(ours) = begin.remote_channel else {
            if self.sessions.len() >= self.limits.sessions
                || self.sessions.len() > usize::from(self.peer_channel_max)
            {
                return self.fail(conditions::RESOURCE_LIMIT_EXCEEDED);
            }
            if !self.shared_session_free() {
                self.wanted.push_back(Wanted::RefusedBegin { peer_channel: channel });
                self.channels_in.insert(channel, None);
                return;
            }
            let begin = Box::new(begin.clone());
            self.expected.push_back(Expected::BegunByPeer { peer_channel: channel, begin });
            return;
        };
        let asked = self
            .sessions
            .iter_mut()
            .find(|(_, session)| session.channel == Some(ours) && session.peer_channel.is_none());
        let Some((&id, session)) = asked else { return self.fail(conditions::NOT_ALLOWED) };
        if session.state == SessionState::BeginSent {
            session.state = SessionState::Open;
        }
        session.peer_channel = Some(channel);
        session.peer_handle_max = begin.handle_max.unwrap_or(u32::MAX);
        session.next_incoming_id = begin.next_outgoing_id;
        session.seen_incoming_id = begin.next_outgoing_id;
        session.window = begin.incoming_window;
        self.channels_in.insert(channel, Some(id));
        self.expected.push_back(Expected::Begun { session: id });
    }

    /// The link that an `attach` answers: the oldest one of this name and role without an answer.
    fn answered(&self, session: SessionId, attach: &Attach) -> Option<LinkId> {
        let asked = self.links.iter().filter(|(_, link)| {
            link.session == session
                && link.peer_handle.is_none()
                && link.role == attach.role.other()
                && link.name == attach.name
        });
        asked.min_by_key(|(_, link)| link.age).map(|(id, _)| *id)
    }

    fn read_attach(&mut self, session: SessionId, attach: &Attach) {
        let handle = attach.handle;
        if self.session(session).is_ending() {
            return;
        }
        if handle > self.limits.handle_max {
            return self.fail(conditions::FRAMING_ERROR);
        }
        if let Some(Some(_)) = self.session(session).handles_in.get(&handle) {
            return self.fail_session(session, conditions::HANDLE_IN_USE);
        }
        if let Some(id) = self.answered(session, attach) {
            self.session_mut(session).handles_in.insert(handle, Some(id));
            let link = self.link_mut(id);
            link.peer_handle = Some(handle);
            if link.state != LinkState::AttachSent {
                return;
            }
            let terminus = match link.role {
                Role::Sender => attach.target.is_some(),
                Role::Receiver => attach.source.is_some(),
            };
            if !terminus {
                link.state = LinkState::Refused;
                return;
            }
            link.state = LinkState::Attached;
            if link.role == Role::Receiver {
                link.delivery_count = attach.initial_delivery_count.unwrap_or(0);
            }
            self.expected.push_back(Expected::Attached { link: id });
            return;
        }
        if self.links.len() >= self.limits.links || !self.has_free_handle(session) {
            return self.fail_session(session, conditions::RESOURCE_LIMIT_EXCEEDED);
        }
        if !self.shared_link_free() {
            let (name, role) = (attach.name.clone(), attach.role.other());
            self.wanted.push_back(Wanted::RefusedAttach { name, role });
            self.session_mut(session).handles_in.insert(handle, None);
            return;
        }
        self.expected.push_back(Expected::AttachRequested { session, attach: Box::new(attach.clone()) });
    }

    fn read_flow(&mut self, id: SessionId, flow: &Flow) {
        if self.session(id).is_ending() {
            return;
        }
        let first = self.first_transfer;
        let session = self.session_mut(id);
        let in_flight = distance(flow.next_incoming_id.unwrap_or(first), session.next_outgoing_id);
        session.window = flow.incoming_window.saturating_sub(in_flight);
        session.earlier_window = session.earlier_window.max(session.window);
        let channel = session.channel;
        let Some(handle) = flow.handle else {
            if flow.echo {
                self.wanted.push_back(Wanted::SessionFlow { channel });
            }
            return;
        };
        match session.handles_in.get(&handle).copied() {
            None => self.fail_session(id, conditions::UNATTACHED_HANDLE),
            Some(None) if flow.echo => self.wanted.push_back(Wanted::SessionFlow { channel }),
            Some(None) => {}
            Some(Some(link)) => self.read_link_flow(link, flow),
        }
    }

    fn read_link_flow(&mut self, id: LinkId, flow: &Flow) {
        let link = self.link_mut(id);
        if matches!(link.state, LinkState::Detaching { .. } | LinkState::Refused) {
            return;
        }
        let attached = link.state == LinkState::Attached;
        match link.role {
            Role::Sender => {
                if let Some(credit) = flow.link_credit {
                    let seen = flow.delivery_count.unwrap_or(link.delivery_count);
                    link.credit = credit.saturating_sub(distance(seen, link.delivery_count));
                }
                link.draining = flow.drain == Some(true);
                let drain = link.draining;
                if attached {
                    self.expected.push_back(Expected::Credit { link: id, drain });
                }
            }
            Role::Receiver => {
                // The count follows that of the sender, which counts a delivery when it begins.
                let begun = u32::from(link.incoming.is_some());
                let sent = flow.delivery_count.map_or(link.delivery_count, |sent| sent.wrapping_sub(begun));
                let returned = distance(link.delivery_count, sent);
                if !link.draining {
                    link.drain_taken_back &= flow.link_credit != Some(0);
                    link.delivery_count = link.delivery_count.wrapping_add(returned);
                    if returned > 0 && link.credit > 0 && !flow.echo && attached {
                        self.want_link_flow(id);
                    }
                } else if returned >= link.credit || flow.link_credit == Some(0) {
                    link.delivery_count = sent;
                    link.credit = 0;
                    link.draining = false;
                    self.expected.push_back(Expected::Drained { link: id });
                }
            }
        }
        if flow.echo && attached {
            self.want_link_flow(id);
        }
    }

    fn read_detach(&mut self, session: SessionId, detach: &Detach) {
        let found = self.session(session);
        let id = match found.handles_in.get(&detach.handle) {
            Some(Some(link)) => *link,
            Some(None) => return,
            None if found.is_ending() => return,
            None => return self.fail_session(session, conditions::UNATTACHED_HANDLE),
        };
        let state = self.link(id).state;
        if state == LinkState::Requested {
            self.wanted.push_back(Wanted::Attach { link: id, terminus: false });
        }
        if !matches!(state, LinkState::Detaching { .. }) {
            self.want_detach(id, None, detach.closed);
        }
        self.remove_link(id);
        if state != (LinkState::Detaching { reported: true }) {
            let links = BTreeMap::from([(id, condition(detach.error.as_ref()))]);
            self.expected.push_back(Expected::Detached { links });
        }
    }

    fn read_end(&mut self, id: SessionId, why: Option<String>) {
        self.expect_detached(id, why.clone());
        let state = self.session(id).state;
        if !self.session(id).is_ending() {
            self.wanted.push_back(Wanted::End { session: id, condition: None });
        }
        self.remove_session(id);
        if state != (SessionState::Ending { reported: true }) {
            self.expected.push_back(Expected::Ended { session: id, condition: why });
        }
    }

    /// The end of every link of a session is due, unless it was reported already.
    fn expect_detached(&mut self, session: SessionId, why: Option<String>) {
        let links = self.links.iter().filter(|(_, link)| {
            link.session == session && link.state != (LinkState::Detaching { reported: true })
        });
        let links: BTreeMap<_, _> = links.map(|(id, _)| (*id, why.clone())).collect();
        if !links.is_empty() {
            self.expected.push_back(Expected::Detached { links });
        }
    }

    /// The peer violated the protocol on the connection.
    pub(super) fn fail(&mut self, why: &str) {
        self.wanted.push_back(Wanted::Close { condition: Some(why.to_owned()) });
        self.expected.push_back(Expected::Failed { condition: why.to_owned() });
        self.forget_everything();
    }

    pub(super) fn fail_session(&mut self, id: SessionId, why: &str) {
        self.expect_detached(id, Some(why.to_owned()));
        self.start_end(id, Some(why.to_owned()), true);
        self.expected.push_back(Expected::Ended { session: id, condition: Some(why.to_owned()) });
    }

    pub(super) fn fail_link(&mut self, id: LinkId, why: &str) {
        self.start_detach(id, Some(why.to_owned()), true);
        let links = BTreeMap::from([(id, Some(why.to_owned()))]);
        self.expected.push_back(Expected::Detached { links });
    }

    fn cover_session(&mut self, channel: u16, kind: Kind, body: &Body) {
        let answered = match body {
            Body::Begin(begin) => begin.remote_channel,
            _ => None,
        };
        let asked = self.sessions.values().find(|it| answered.is_some() && it.channel == answered);
        let on = self.channels_in.get(&channel).map(|id| id.map(|id| self.session(id)));
        let state = match (asked, on) {
            (Some(asked), _) if asked.state == SessionState::BeginSent => SessionCover::BeginSent,
            (Some(asked), _) if asked.is_ending() => SessionCover::Ending,
            (_, None) => SessionCover::Unused,
            (_, Some(None)) => SessionCover::Ended,
            (_, Some(Some(session))) if session.is_ending() => SessionCover::Ending,
            (_, Some(Some(session))) if session.window == 0 => SessionCover::NoWindow,
            (_, Some(Some(_))) => SessionCover::Open,
        };
        self.coverage.session(kind, state);
    }

    fn attach_cover(&self, session: SessionId, attach: &Attach) -> LinkCover {
        match self.answered(session, attach).map(|link| self.link(link).state) {
            Some(LinkState::Detaching { .. }) => LinkCover::DetachingUnanswered,
            _ => self.link_cover(session, attach.handle),
        }
    }

    fn link_cover(&self, session: SessionId, handle: u32) -> LinkCover {
        let session = self.session(session);
        let id = match session.handles_in.get(&handle) {
            None => return LinkCover::Unused,
            Some(None) => return LinkCover::Detached,
            Some(Some(id)) => *id,
        };
        let link = self.link(id);
        match (link.state, link.role) {
            (LinkState::Requested | LinkState::AttachSent, _) => LinkCover::Requested,
            (LinkState::Refused, _) => LinkCover::Refused,
            (LinkState::Detaching { .. }, _) => LinkCover::Detaching,
            (_, Role::Sender) if session.outgoing.iter().any(|it| it.link == id) => {
                LinkCover::SenderInDelivery
            }
            (_, Role::Sender) if link.draining => LinkCover::SenderDraining,
            (_, Role::Sender) => LinkCover::Sender,
            (_, Role::Receiver) if link.incoming.is_some() => LinkCover::ReceiverInDelivery,
            (_, Role::Receiver) if link.draining => LinkCover::ReceiverDraining,
            (_, Role::Receiver) if link.credit == 0 => LinkCover::ReceiverNoCredit,
            (_, Role::Receiver) => LinkCover::Receiver,
        }
    }
}
