//! Sessions of a connection: beginning and ending them (`begin`, `end`).
//!
//! ```text
//!   begin ─► BeginSent ─answer─► Open ─our end─► Ending ─► (gone, the peer's end has come)
//!   the peer's begin ─────────────► ┘└── the peer's end ─► (gone, answered)
//! ```
//!
//! A window is a number of transfer frames. Ours is renewed when half of it is used, and a peer that exceeds
//! it is tolerated; the peer's window is never exceeded.

use std::collections::BTreeMap;

use super::dispatch::{Handled, Violation};
use super::event::Event;
use super::link::LinkState;
use super::slots::{LinkId, SessionId};
use super::{Config, Connection};
use crate::performative::{Begin, End, Error, condition};
use crate::shared_limit::Permit;

/// The number of transfer frames that we announce to send at most, as in Event Hubs. It is a hint alone: what
/// is sent is limited by the peer's window.
pub(super) const OUTGOING_WINDOW: u32 = 65_536;

/// The state of a channel of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Channel {
    /// It has a session.
    Begun(SessionId),
    /// It had a session, which has ended.
    Ended,
}

/// The state of a handle of the peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handle {
    /// Never used.
    Unused,
    /// It has a link.
    Attached(LinkId),
    /// It had a link, which was detached.
    Detached,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum SessionState {
    BeginSent,
    Open,
    /// Our `end` is written; everything is ignored until the peer's comes.
    Ending {
        /// The owner has been notified already.
        reported: bool,
    },
}

impl SessionState {
    #[inline]
    pub(super) fn is_ending(self) -> bool {
        matches!(self, Self::Ending { .. })
    }
}

pub(super) struct Session {
    pub(super) state: SessionState,
    pub(super) channel: u16,
    /// The peer's channel, once it is known.
    pub(super) peer_channel: Option<u16>,
    /// Links by the peer's handles.
    pub(super) handles_in: Vec<Handle>,
    /// Links by our handles.
    pub(super) handles_out: Vec<Option<LinkId>>,
    pub(super) peer_handle_max: u32,
    pub(super) next_incoming_id: u32,
    /// The number of frames that the peer may send before our next flow.
    pub(super) incoming_left: u32,
    pub(super) next_outgoing_id: u32,
    /// The number of frames that we may send before the peer's next flow.
    pub(super) peer_window: u32,
    pub(super) next_delivery_id: u32,
    /// Unsettled deliveries that we sent, by number.
    pub(super) unsettled_out: BTreeMap<u32, LinkId>,
    /// The number of received deliveries that have not been settled.
    pub(super) unsettled_in: usize,
    /// The first and the last accepted delivery whose disposition has not been written yet.
    pub(super) accepted: Option<(u32, u32)>,
    /// The link whose delivery is unfinished: its rest waits for the window, or for room in the output.
    pub(super) unfinished: Option<LinkId>,
    /// That delivery has a window, and waits for room in the output.
    pub(super) waits_for_room: bool,
    /// A message was refused, so [`Event::Window`] has to report when the session can send again.
    pub(super) wanted: bool,
    /// Its permit in the limit on the sessions of all connections.
    _permit: Permit,
}

impl Session {
    fn new(channel: u16, config: &Config, permit: Permit) -> Self {
        Self {
            state: SessionState::BeginSent,
            channel,
            peer_channel: None,
            handles_in: Vec::new(),
            handles_out: Vec::new(),
            peer_handle_max: u32::MAX,
            next_incoming_id: 0,
            incoming_left: config.limits.window,
            next_outgoing_id: config.first_transfer,
            peer_window: 0,
            next_delivery_id: config.first_delivery,
            unsettled_out: BTreeMap::new(),
            unsettled_in: 0,
            accepted: None,
            unfinished: None,
            waits_for_room: false,
            wanted: false,
            _permit: permit,
        }
    }

    /// Stores the values of the peer's `begin`.
    fn on_begin(&mut self, peer_channel: u16, begin: &Begin) {
        self.state = SessionState::Open;
        self.peer_channel = Some(peer_channel);
        self.peer_handle_max = begin.handle_max.unwrap_or(u32::MAX);
        self.next_incoming_id = begin.next_outgoing_id;
        self.peer_window = begin.incoming_window;
    }

    #[inline]
    pub(super) fn handle(&self, handle: u32) -> Handle {
        self.handles_in.get(handle as usize).copied().unwrap_or(Handle::Unused)
    }
}

impl Connection {
    /// Begins a session. Links may be attached at once. `None` if the connection is not open, or if the peer,
    /// our limits, or the limits of all connections allow no more sessions.
    pub fn begin(&mut self) -> Option<SessionId> {
        if !self.is_open() || self.sessions.len() >= self.config.limits.sessions {
            return None;
        }
        let channel = self.free_channel(None)?;
        let permit = self.config.shared.sessions.take()?;
        let session = self.add_session(channel, permit);
        self.write_begin(session);
        Some(session)
    }

    pub(super) fn on_begin(&mut self, peer_channel: u16, begin: Begin) -> Handled<Option<Event>> {
        let limits = &self.config.limits;
        if peer_channel > limits.channel_max {
            let description = format!("begin on channel {peer_channel}, beyond {}", limits.channel_max);
            return Err(Violation::of_connection(condition::FRAMING_ERROR, description));
        }
        if let Some(Channel::Begun(_)) = self.channels_in.get(peer_channel) {
            let description = format!("a second begin on channel {peer_channel}");
            return Err(Violation::of_connection(condition::NOT_ALLOWED, description));
        }
        let by_peer = begin.remote_channel.is_none();
        let session = match begin.remote_channel {
            None if self.sessions.len() >= limits.sessions => {
                let description = format!("more sessions than the {} that are allowed", limits.sessions);
                return Err(Violation::of_connection(condition::RESOURCE_LIMIT_EXCEEDED, description));
            }
            None => {
                let channel = self.free_channel(Some(peer_channel)).ok_or_else(|| {
                    let description = "all channels that the peer allows are in use";
                    Violation::of_connection(condition::RESOURCE_LIMIT_EXCEEDED, description)
                })?;
                let Some(permit) = self.config.shared.sessions.take() else {
                    self.refuse_begin(channel, peer_channel);
                    return Ok(None);
                };
                self.add_session(channel, permit)
            }
            Some(ours) => {
                let found = self.channels_out.get(ours);
                let asked = found.filter(|&id| {
                    self.sessions.get(id).is_some_and(|session| session.peer_channel.is_none())
                });
                asked.ok_or_else(|| {
                    let description = format!("begin answers channel {ours}, where no session was requested");
                    Violation::of_connection(condition::NOT_ALLOWED, description)
                })?
            }
        };
        self.channels_in.set(peer_channel, Channel::Begun(session));
        if let Some(found) = self.sessions.get_mut(session) {
            let before = found.state;
            found.on_begin(peer_channel, &begin);
            if before.is_ending() {
                found.state = before;
            }
        }
        if by_peer {
            self.write_begin(session);
        }
        Ok(Some(Event::Begun { session, by_peer }))
    }

    /// Ends a session with all its links, with or without a reason. [`Event::Ended`] reports that the peer
    /// agreed.
    pub fn end(&mut self, session: SessionId, error: Option<Error>) {
        self.start_end(session, error, false);
    }

    fn start_end(&mut self, session: SessionId, error: Option<Error>, reported: bool) {
        let Some(found) = self.sessions.get_mut(session) else { return };
        if !found.state.is_ending() {
            found.state = SessionState::Ending { reported };
            self.forget_links(session);
            self.write_end(session, error);
        }
    }

    /// Writes the end of every link and session, for a connection that is about to be closed with this error.
    /// The owner gets no event: the end of the connection says it all.
    pub(super) fn end_everything(&mut self, error: &Error) {
        let open = |session: &Session| (!session.state.is_ending()).then_some(session.channel);
        let channels: Vec<u16> = self.sessions.values().filter_map(open).collect();
        for channel in channels {
            let Some(session) = self.channels_out.get(channel) else { continue };
            for link in self.links_of(session) {
                if self.links.get(link).is_some_and(|link| link.state == LinkState::Attached) {
                    self.write_detach(link, true, Some(error.clone()));
                }
            }
            self.write_end(session, Some(error.clone()));
        }
    }

    /// Ends a session because the peer violated the protocol.
    pub(super) fn fail_session(&mut self, session: SessionId, error: Error) {
        let Some(found) = self.sessions.get(session) else { return };
        if found.state.is_ending() {
            return;
        }
        self.detach_all(session, Some(&error));
        self.start_end(session, Some(error.clone()), true);
        self.events.push_back(Event::Ended { session, error: Some(error) });
    }

    pub(super) fn on_end(&mut self, session: SessionId, error: Option<Error>) {
        let Some(found) = self.sessions.get(session) else { return };
        let before = found.state;
        self.detach_all(session, error.as_ref());
        if !before.is_ending() {
            self.write_end(session, None);
        }
        self.remove_session(session);
        if before != (SessionState::Ending { reported: true }) {
            self.events.push_back(Event::Ended { session, error });
        }
    }

    fn add_session(&mut self, channel: u16, permit: Permit) -> SessionId {
        let session = self.sessions.insert(Session::new(channel, &self.config, permit));
        self.channels_out.set(channel, session);
        session
    }

    fn remove_session(&mut self, session: SessionId) {
        self.forget_links(session);
        self.waiting_for_others.remove(&session);
        let Some(found) = self.sessions.remove(session) else { return };
        self.handle_slots -= found.handles_in.len() + found.handles_out.len();
        self.channels_out.remove(found.channel);
        if let Some(channel) = found.peer_channel {
            self.channels_in.set(channel, Channel::Ended);
            self.channels_in.forget_many(|channel| channel == Channel::Ended);
        }
    }

    /// The wanted channel if it is free, because most peers expect that; otherwise the first free one.
    fn free_channel(&self, wanted: Option<u16>) -> Option<u16> {
        let is_free =
            |channel: &u16| *channel <= self.peer_channel_max && self.channels_out.get(*channel).is_none();
        wanted.filter(is_free).or_else(|| (0..=self.peer_channel_max).find(is_free))
    }

    fn write_begin(&mut self, session: SessionId) {
        let limits = &self.config.limits;
        let Some(found) = self.sessions.get(session) else { return };
        let begin = Begin {
            remote_channel: found.peer_channel,
            next_outgoing_id: self.config.first_transfer,
            incoming_window: limits.window,
            outgoing_window: OUTGOING_WINDOW,
            handle_max: Some(limits.handle_max),
            ..Begin::default()
        };
        self.write(found.channel, |into| begin.write(into));
    }

    fn write_end(&mut self, session: SessionId, error: Option<Error>) {
        self.write_acceptance(session);
        let Some(channel) = self.sessions.get(session).map(|session| session.channel) else { return };
        let error = self.clipped(error);
        self.write(channel, |into| End { error }.write(into));
    }
}
