//! A plain model of one end of a connection: queues, counters and sets, from the specification and the public
//! contract of `Connection`.
//!
//! ```text
//! the application's commands ─► commands.rs ─┐                    ┌─► output.rs: may this frame be written?
//! frames that were decoded ─► input.rs ┼─► sessions, links ─┤
//!                             deliveries.rs                 └─► expected_events.rs: is this the event that comes next?
//! ```
//!
//! A violation is a panic: `main.rs` catches it, reduces the conversation and prints it.

mod commands;
mod deliveries;
mod expected_events;
mod input;
mod output;

use std::collections::{BTreeMap, VecDeque};

use ephor_amqp::connection::{LinkId, SessionId, SharedLimits};
use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Outcome, Role};

use crate::coverage::Coverage;

pub(crate) use commands::Message;
pub(crate) use expected_events::Expected;
pub(crate) use output::Wanted;

/// The phase of the connection, after both `open`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Phase {
    Open,
    /// Our `close` is written, and the peer's has not come.
    Closing,
    /// Nothing of the peer is read any more.
    Over,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum SessionState {
    BeginSent,
    Open,
    /// Our `end` is written.
    Ending {
        reported: bool,
    },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum LinkState {
    Requested,
    AttachSent,
    /// The peer has answered without a terminus; its `detach` follows.
    Refused,
    Attached,
    /// Our `detach` is written.
    Detaching {
        reported: bool,
    },
}

/// A delivery that was given to `send`, and whose frames have not all been written.
#[derive(Debug)]
pub(crate) struct Outgoing {
    pub(crate) link: LinkId,
    pub(crate) id: u32,
    pub(crate) format: u32,
    pub(crate) settled: bool,
    pub(crate) payload: Vec<u8>,
    /// The bytes that were written; `None` before its first frame.
    pub(crate) written: Option<usize>,
    /// Our handle, once a frame was written.
    pub(crate) handle: Option<u32>,
    /// Its link is gone. Frames that were written before may be looked at later.
    pub(crate) dropped: bool,
}

#[derive(Debug)]
pub(crate) struct Session {
    pub(crate) state: SessionState,
    /// Our channel, once its `begin` was seen.
    pub(crate) channel: Option<u16>,
    pub(crate) peer_channel: Option<u16>,
    pub(crate) end_written: bool,
    pub(crate) peer_handle_max: u32,
    /// Our handles.
    pub(crate) handles_out: BTreeMap<u32, LinkId>,
    /// The peer's handles; `None` for one whose link was detached.
    pub(crate) handles_in: BTreeMap<u32, Option<LinkId>>,
    pub(crate) next_incoming_id: u32,
    /// The value of `next_incoming_id` when the output was last looked at.
    pub(crate) seen_incoming_id: u32,
    /// The value of `next_incoming_id` in our last flow.
    pub(crate) told_incoming_id: Option<u32>,
    pub(crate) next_outgoing_id: u32,
    /// The number of transfers that the peer takes.
    pub(crate) window: u32,
    /// The largest window since the output was last looked at: a later flow may have closed it again.
    pub(crate) earlier_window: u32,
    pub(crate) next_delivery_id: u32,
    pub(crate) unsettled_out: BTreeMap<u32, LinkId>,
    pub(crate) outgoing: VecDeque<Outgoing>,
    pub(crate) unsettled_in: BTreeMap<u32, LinkId>,
    /// Settled by the application; the disposition has not been seen.
    pub(crate) settled_in: BTreeMap<u32, Outcome>,
    /// The peer waits for our settlement of these.
    pub(crate) settle_second: BTreeMap<u32, Option<Outcome>>,
}

impl Session {
    pub(crate) fn is_ending(&self) -> bool {
        matches!(self.state, SessionState::Ending { .. })
    }
}

/// An incoming delivery whose end has not come.
#[derive(Debug)]
pub(crate) struct Incoming {
    pub(crate) id: u32,
    pub(crate) format: u32,
    pub(crate) settled: bool,
    pub(crate) size: u64,
    pub(crate) bytes: Vec<u8>,
}

#[derive(Debug)]
pub(crate) struct Link {
    /// Grows with each link, so that the older one of two is known.
    pub(crate) age: u64,
    pub(crate) session: SessionId,
    pub(crate) name: String,
    pub(crate) role: Role,
    pub(crate) state: LinkState,
    pub(crate) handle: Option<u32>,
    pub(crate) peer_handle: Option<u32>,
    pub(crate) delivery_count: u32,
    pub(crate) credit: u32,
    pub(crate) draining: bool,
    /// The receiver has granted credit before the answer to its drain came; it may still come.
    pub(crate) drain_taken_back: bool,
    pub(crate) message_limit: u64,
    pub(crate) incoming: Option<Incoming>,
}

/// The model of one end.
pub(crate) struct Model {
    pub(crate) limits: Limits,
    pub(crate) shared: SharedLimits,
    /// Permits of the shared limits that other connections hold: sessions and links.
    pub(crate) held_elsewhere: (usize, usize),
    pub(crate) first_transfer: u32,
    pub(crate) first_delivery: u32,
    /// The largest frame that the peer takes.
    pub(crate) peer_frame: u32,
    pub(crate) peer_channel_max: u16,
    pub(crate) phase: Phase,
    pub(crate) sessions: BTreeMap<SessionId, Session>,
    /// Sessions that are over. Frames that were written before may be looked at later.
    pub(crate) gone: Vec<Session>,
    pub(crate) links: BTreeMap<LinkId, Link>,
    /// The peer's channels; `None` for one whose session has ended.
    pub(crate) channels_in: BTreeMap<u16, Option<SessionId>>,
    pub(crate) expected: VecDeque<Expected>,
    pub(crate) wanted: VecDeque<Wanted>,
    /// Flows without a link that may be written in addition.
    pub(crate) spare_flows: usize,
    pub(crate) ages: u64,
    pub(crate) coverage: Coverage,
    /// Deliveries and settlements that were reported to the application.
    pub(crate) delivered: u64,
    pub(crate) settled: u64,
}

/// The number of steps from `earlier` to `later`, or 0 if that is more than half of all numbers.
pub(crate) fn distance(earlier: u32, later: u32) -> u32 {
    let distance = later.wrapping_sub(earlier);
    if distance > u32::MAX / 2 { 0 } else { distance }
}

/// True if `id` lies in the range, which may wrap around.
pub(crate) fn in_range(id: u32, first: u32, last: u32) -> bool {
    id.wrapping_sub(first) <= last.wrapping_sub(first) && last.wrapping_sub(first) <= u32::MAX / 2
}

impl Model {
    pub(crate) fn new(
        config: &ephor_amqp::connection::Config,
        peer_frame: u32,
        peer_channel_max: u16,
    ) -> Self {
        Self {
            limits: config.limits.clone(),
            shared: config.shared.clone(),
            held_elsewhere: (0, 0),
            first_transfer: config.first_transfer,
            first_delivery: config.first_delivery,
            peer_frame,
            peer_channel_max: peer_channel_max.min(config.limits.channel_max),
            phase: Phase::Open,
            sessions: BTreeMap::new(),
            gone: Vec::new(),
            links: BTreeMap::new(),
            channels_in: BTreeMap::new(),
            expected: VecDeque::new(),
            wanted: VecDeque::new(),
            spare_flows: 0,
            ages: 0,
            coverage: Coverage::default(),
            delivered: 0,
            settled: 0,
        }
    }

    pub(crate) fn session(&self, id: SessionId) -> &Session {
        self.sessions.get(&id).expect("a session of the model")
    }

    pub(crate) fn session_mut(&mut self, id: SessionId) -> &mut Session {
        self.sessions.get_mut(&id).expect("a session of the model")
    }

    pub(crate) fn link(&self, id: LinkId) -> &Link {
        self.links.get(&id).expect("a link of the model")
    }

    pub(crate) fn link_mut(&mut self, id: LinkId) -> &mut Link {
        self.links.get_mut(&id).expect("a link of the model")
    }

    pub(crate) fn is_attached(&self, link: LinkId, role: Role) -> bool {
        self.links.get(&link).is_some_and(|link| link.role == role && link.state == LinkState::Attached)
    }

    fn new_session(&self, state: SessionState) -> Session {
        Session {
            state,
            channel: None,
            peer_channel: None,
            end_written: false,
            peer_handle_max: u32::MAX,
            handles_out: BTreeMap::new(),
            handles_in: BTreeMap::new(),
            next_incoming_id: 0,
            seen_incoming_id: 0,
            told_incoming_id: None,
            next_outgoing_id: self.first_transfer,
            window: 0,
            earlier_window: 0,
            next_delivery_id: self.first_delivery,
            unsettled_out: BTreeMap::new(),
            outgoing: VecDeque::new(),
            unsettled_in: BTreeMap::new(),
            settled_in: BTreeMap::new(),
            settle_second: BTreeMap::new(),
        }
    }

    /// True if one of our handles is free that both sides allow.
    fn has_free_handle(&self, session: SessionId) -> bool {
        let most = self.session(session).peer_handle_max.min(self.limits.handle_max);
        self.links_of(session).len() as u64 <= u64::from(most)
    }

    fn shared_session_free(&self) -> bool {
        self.sessions.len() + self.held_elsewhere.0 < self.shared.sessions.max()
    }

    fn shared_link_free(&self) -> bool {
        self.links.len() + self.held_elsewhere.1 < self.shared.links.max()
    }

    /// The bytes of incoming deliveries that have not ended.
    pub(crate) fn incomplete(&self) -> usize {
        self.links
            .values()
            .filter_map(|link| link.incoming.as_ref())
            .map(|incoming| incoming.bytes.len())
            .sum()
    }

    /// The deliveries that have begun and whose rest has not been written.
    pub(crate) fn unfinished(&self) -> impl Iterator<Item = &Outgoing> {
        self.sessions.values().flat_map(|session| session.outgoing.iter()).filter(|it| !it.dropped)
    }

    /// Forgets the deliveries of a link, in either direction.
    fn forget_deliveries(&mut self, id: LinkId) {
        let link = self.link_mut(id);
        link.incoming = None;
        let session = link.session;
        let Some(session) = self.sessions.get_mut(&session) else { return };
        session.unsettled_in.retain(|_, of| *of != id);
        session.unsettled_out.retain(|_, of| *of != id);
        session.outgoing.iter_mut().filter(|outgoing| outgoing.link == id).for_each(|outgoing| {
            outgoing.dropped = true;
        });
    }

    fn remove_link(&mut self, id: LinkId) {
        self.forget_deliveries(id);
        let Some(link) = self.links.remove(&id) else { return };
        let Some(session) = self.sessions.get_mut(&link.session) else { return };
        session.handles_out.retain(|_, of| *of != id);
        if let Some(handle) = link.peer_handle {
            session.handles_in.insert(handle, None);
        }
    }

    pub(crate) fn links_of(&self, session: SessionId) -> Vec<LinkId> {
        self.links.iter().filter(|(_, link)| link.session == session).map(|(id, _)| *id).collect()
    }

    fn remove_session(&mut self, id: SessionId) {
        for link in self.links_of(id) {
            self.remove_link(link);
        }
        let Some(session) = self.sessions.remove(&id) else { return };
        if let Some(channel) = session.peer_channel {
            self.channels_in.insert(channel, None);
        }
        self.gone.push(session);
    }

    fn forget_everything(&mut self) {
        let sessions: Vec<SessionId> = self.sessions.keys().copied().collect();
        sessions.into_iter().for_each(|session| self.remove_session(session));
        self.links.clear();
        self.channels_in.clear();
        self.phase = Phase::Over;
    }
}
