//! A connection with its sessions and links, as a state machine without I/O, for clients and servers.
//!
//! ```text
//! Header ─► Sasl ─► Decision ─► Header ─► Opening ─► Open ─► Closing ─► Closed
//!    └─ a peer without SASL ─────────────────┘         │        (our close is out)
//!                protocol violation, in any state ───┴─► Broken ─► Closed
//! ```
//!
//! The owner moves bytes and time in and out, polls for events, and gives commands:
//!
//! ```text
//!  socket ─► input() ─► next_event() ─► owner ─► accept, grant, send, settle … ─► output() ─► socket
//!                                         on_time(now) at next_deadline()
//! ```
//!
//! * Input is decoded when an event is polled, and no further: there is no queue of deliveries. A message of
//!   one frame is a slice of the input buffer.
//! * A protocol violation is answered with `detach`, `end` or `close` and the reason, and reported to the
//!   owner. Commands for a link or session that is gone do nothing, because the peer may have ended it first.
//! * Output waits in one buffer. When a peer does not read, [`Connection::send`] returns [`Blocked::Room`],
//!   and [`Event::Room`] reports that there is room again; far beyond that, nothing is read
//!   ([`Connection::wants_input`]).
//!
//! | file | owns |
//! |---|---|
//! | `handshake.rs` | protocol headers, SASL, `open` and `close` |
//! | `dispatch.rs` | splits bytes into frames and dispatches them; handles protocol violations |
//! | `session.rs`, `link.rs` | `begin` and `end`, `attach` and `detach` |
//! | `refused_by_shared_limits.rs` | refuses sessions and links beyond the limits of all connections together |
//! | `flow.rs` | windows and credit, in both directions |
//! | `sending.rs` | outbound (to the peer): messages, and their outcomes |
//! | `receiving.rs` | inbound (from the peer): messages, and their outcomes |
//! | `outgoing_memory.rs` | decides whether there is memory for the rest of a large outgoing message |
//! | `incomplete_deliveries.rs` | incomplete deliveries: their size and age |
//! | `footprint.rs` | the memory of sessions and links themselves |
//! | `heartbeats_and_timeouts.rs` | heartbeats and timeouts |
//! | `output.rs` | the output buffer, and its high and low mark |
//! | `slots.rs` | the ids of sessions and links, and the tables of channels |
//! | `config.rs`, `event.rs` | the configuration; the events, and the results of `send` |

mod config;
mod dispatch;
mod event;
mod flow;
#[cfg(test)]
mod flow_tests;
mod footprint;
mod handshake;
mod heartbeats_and_timeouts;
mod incomplete_deliveries;
mod link;
mod outgoing_memory;
mod output;
mod receiving;
mod refused_by_shared_limits;
mod sending;
mod session;
mod slots;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::BytesMut;

pub use config::{ClientSasl, Config, SERVICE_MECHANISMS, ServerSasl, SharedLimits};
pub use event::{Blocked, Closed, Delivery, Event, Sent};
pub use incomplete_deliveries::Buffered;
pub use slots::{LinkId, SessionId};

use crate::frame::MIN_MAX_FRAME_SIZE;
use crate::limits::Limits;
use crate::performative::Role;
use heartbeats_and_timeouts::Clock;
use incomplete_deliveries::UnendedDeliveries;
use link::Link;
use output::Output;
use session::{Channel, Session};
use slots::{Slots, Table};

/// The phase of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer's protocol header is expected; after SASL, the second one.
    Header { after_sasl: bool },
    /// A frame of the SASL layer is expected.
    Sasl,
    /// The owner decides whether to admit the client.
    Decision,
    /// The peer's `open` is expected.
    Opening,
    /// The connection is open.
    Open,
    /// Our `close` is written, and the peer's is expected; everything else is ignored.
    Closing,
    /// The connection failed, or was closed before it was open. The peer has been told, and its input is
    /// discarded.
    Broken,
    /// The connection is over.
    Closed,
}

/// The side of the handshake.
#[derive(Debug)]
enum Side {
    Server(ServerSasl),
    Client(ClientSasl),
}

/// A connection to one peer.
pub struct Connection {
    side: Side,
    config: Config,
    phase: Phase,
    clock: Clock,
    input: BytesMut,
    output: Output,
    events: VecDeque<Event>,
    sessions: Slots<Session>,
    links: Slots<Link>,
    /// The number of links that there have been.
    link_count: u64,
    /// Sessions by the peer's channels.
    channels_in: Table<Channel>,
    /// Sessions by our channels.
    channels_out: Table<SessionId>,
    /// Slots for handles that all sessions have, in both directions.
    handle_slots: usize,
    /// Our `open` is written.
    open_sent: bool,
    /// The largest frame that the peer takes.
    peer_frame: u32,
    /// The largest transfer frame that is written.
    transfer_frame: usize,
    peer_channel_max: u16,
    /// Sessions with accepted deliveries whose disposition has not been written yet.
    accepting: Vec<SessionId>,
    /// Sessions with a window whose unfinished delivery waits for room in the output.
    waiting_for_room: VecDeque<SessionId>,
    /// Sessions that were refused because the unwritten rests of other deliveries take too much memory.
    waiting_for_others: BTreeSet<SessionId>,
    /// Deliveries that have begun and not ended.
    unended: UnendedDeliveries,
    /// The owner has paused the reading.
    paused: bool,
    /// The number of sessions that were visited to continue a delivery.
    #[cfg(test)]
    visited: usize,
}

impl Connection {
    /// The server's side. It writes nothing before the client does.
    pub fn server(config: Config, sasl: ServerSasl, now: Duration) -> Self {
        Self::new(Side::Server(sasl), config, now)
    }

    /// The client's side. It writes first.
    pub fn client(config: Config, sasl: ClientSasl, now: Duration) -> Self {
        let mut connection = Self::new(Side::Client(sasl), config, now);
        connection.greet();
        connection
    }

    fn new(side: Side, config: Config, now: Duration) -> Self {
        Self {
            side,
            phase: Phase::Header { after_sasl: false },
            clock: Clock::start(now, config.limits.time_to_open),
            input: BytesMut::new(),
            output: Output::new(config.limits.output),
            events: VecDeque::new(),
            sessions: Slots::default(),
            links: Slots::default(),
            link_count: 0,
            channels_in: Table::default(),
            channels_out: Table::default(),
            handle_slots: 0,
            open_sent: false,
            peer_frame: MIN_MAX_FRAME_SIZE,
            transfer_frame: MIN_MAX_FRAME_SIZE as usize,
            peer_channel_max: 0,
            accepting: Vec::new(),
            waiting_for_room: VecDeque::new(),
            waiting_for_others: BTreeSet::new(),
            unended: UnendedDeliveries::default(),
            paused: false,
            #[cfg(test)]
            visited: 0,
            config,
        }
    }

    /// The buffer to which bytes from the peer are appended. Do nothing else with it.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// True if more should be read from the peer. It is false while a server decides whether to admit the
    /// client; and, unless the connection is closing, while two frames of input wait to be decoded, while too
    /// much output waits for the peer ([`Limits::output_to_pause_reading`]), and while the owner has paused the
    /// reading.
    pub fn wants_input(&self) -> bool {
        let unread = self.output.len() >= self.config.limits.output_to_pause_reading;
        match self.phase {
            Phase::Decision | Phase::Closed => false,
            Phase::Closing | Phase::Broken => true,
            _ => !unread && !self.paused && self.input.len() < self.config.limits.frame as usize * 2,
        }
    }

    /// The next event, decoded from the input so far. Poll until there is none, because one event may be
    /// followed by more at once.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match self.step() {
                dispatch::Step::Event(event) => return Some(event),
                dispatch::Step::Again => {
                    if let Some(event) = self.notice_output() {
                        return Some(event);
                    }
                }
                dispatch::Step::Wait if self.events.is_empty() => return self.notice_output(),
                dispatch::Step::Wait => {}
            }
        }
    }

    /// Reports the end of the transport. Take all events before, and poll once more after it.
    pub fn on_lost(&mut self, why: impl Into<String>) {
        self.lose(why.into());
    }

    /// Bytes for the peer; report with [`Self::wrote`] how many were written.
    pub fn output(&mut self) -> &[u8] {
        self.write_acceptances();
        self.output.pending()
    }

    /// The number of bytes that wait, without dispositions that can still be merged.
    pub fn output_length(&self) -> usize {
        self.output.len()
    }

    /// True if there is something to write.
    pub fn has_output(&self) -> bool {
        self.output.len() > 0 || !self.accepting.is_empty()
    }

    /// Reports that the transport took the first `count` bytes of [`Self::output`].
    pub fn wrote(&mut self, count: usize) {
        let resumed = self.output.wrote(count);
        self.continue_in_room();
        // Nothing is sent after the end.
        if resumed && self.phase == Phase::Open {
            self.events.push_back(Event::Room);
        }
    }

    /// True if so much output waits that nothing should be sent. [`Event::Room`] reports the change, but only
    /// after a [`Sent::Blocked`].
    pub fn is_congested(&mut self) -> bool {
        self.output.is_congested()
    }

    /// True if sessions can be begun.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// True if the connection is over and everything is written: the transport can be closed.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Closed && self.output.len() == 0
    }

    /// The number of messages that a link may still carry.
    pub fn credit(&self, link: LinkId) -> u32 {
        self.links.get(link).map_or(0, |link| link.credit)
    }

    /// Our role on a link.
    pub fn role(&self, link: LinkId) -> Option<Role> {
        self.links.get(link).map(|link| link.role)
    }

    /// The session of a link.
    pub fn session_of(&self, link: LinkId) -> Option<SessionId> {
        self.links.get(link).map(|link| link.session)
    }

    /// The number of links.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Replaces the limits, for a peer that has authenticated, or whose authentication has expired. Those
    /// that the peer was told should stay the same: `frame`, `channel_max`, `handle_max` and `window`. Links
    /// that are attached keep their message size.
    pub fn set_limits(&mut self, limits: Limits) {
        self.output.set_high(limits.output);
        self.config.limits = limits;
    }

    /// Pauses or resumes reading from the peer. No timeouts for missing input run while it is paused.
    pub fn pause_reading(&mut self, paused: bool) {
        self.clock.resumed |= self.paused && !paused;
        self.paused = paused;
        if paused {
            self.clock.paused_since.get_or_insert(self.clock.now);
        }
    }

    /// Releases buffers that are kept for the next bytes. For a connection that is idle, or has to save
    /// memory.
    pub fn release_memory(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.output.release();
    }

    /// The configuration.
    pub fn config(&self) -> &Config {
        &self.config
    }
}

impl std::fmt::Debug for Connection {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter
            .debug_struct("Connection")
            .field("phase", &self.phase)
            .field("sessions", &self.sessions.len())
            .field("links", &self.links.len())
            .field("input", &self.input.len())
            .field("output", &self.output.len())
            .finish_non_exhaustive()
    }
}
