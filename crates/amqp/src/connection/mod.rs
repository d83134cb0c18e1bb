//! One connection with its sessions and links, as a state machine without I/O, for both roles.
//!
//! ```text
//! Header ─► Sasl ─► Decision ─► Header ─► Opening ─► Open ─► Closing ─► Closed
//!    └─ a peer without SASL ─────────────────┘         │        (ours is out)
//!                        a rule is broken, anywhere ───┴─► Broken ─► Closed
//! ```
//!
//! The owner moves bytes and time in and out, takes events, and gives commands:
//!
//! ```text
//!  socket ─► input() ─► next_event() ─► owner ─► accept, grant, send, settle … ─► output() ─► socket
//!                                         on_time(now) at next_deadline()
//! ```
//!
//! * Input is read when an event is asked for, and no further: there is no queue of deliveries. A message
//!   that came in one frame is a part of the input buffer.
//! * Whatever breaks a rule is answered by `detach`, `end` or `close` with the reason, and told to the
//!   owner. Commands for what is gone do nothing: the peer was faster.
//! * Output waits in one buffer. When a peer does not read, [`Connection::send`] says so
//!   ([`Blocked::Room`]), later [`Event::Room`] says that it goes on; far beyond that, nothing is read
//!   ([`Connection::wants_input`]).
//!
//! | file | owns |
//! |---|---|
//! | `handshake.rs` | protocol headers, SASL, `open` and `close` |
//! | `dispatch.rs` | from bytes to frames to whom they concern; what a broken rule leads to |
//! | `session.rs`, `link.rs` | `begin` and `end`, `attach` and `detach` |
//! | `refusing.rs` | sessions and links for which all connections together have no place |
//! | `flow.rs` | windows and credit, both ways |
//! | `sending.rs`, `receiving.rs` | messages, and what becomes of them |
//! | `memory.rs` | whether there is memory for the rest of a message |
//! | `held.rs` | deliveries that have begun and not ended: how much, and for how long |
//! | `clock.rs` | heartbeats and patience |
//! | `output.rs` | bytes on their way, and when they are too many |

mod clock;
mod config;
mod dispatch;
mod event;
mod flow;
mod handshake;
mod held;
mod link;
mod memory;
mod output;
mod receiving;
mod refusing;
mod sending;
mod session;
mod slots;
#[cfg(test)]
mod work;

use std::collections::{BTreeSet, VecDeque};
use std::time::Duration;

use bytes::BytesMut;

pub use config::{ClientSasl, Config, SERVICE_MECHANISMS, ServerSasl, SharedLimits};
pub use event::{Blocked, Closed, Delivery, Event, Sent};
pub use held::Buffered;
pub use slots::{LinkId, SessionId};

use crate::frame::MIN_MAX_FRAME_SIZE;
use crate::limits::Limits;
use crate::performative::Role;
use clock::Clock;
use held::Held;
use link::Link;
use output::Output;
use session::{Channel, Session};
use slots::{Slots, Table};

/// Where a connection stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    /// The peer's protocol header comes next; the second one after SASL.
    Header { after_sasl: bool },
    /// A frame of the SASL layer comes next.
    Sasl,
    /// The owner decides whether to let the client in.
    Decision,
    /// The peer's `open` comes next.
    Opening,
    /// Everything goes.
    Open,
    /// Our `close` is out, the peer's comes next; everything else is passed over.
    Closing,
    /// A rule was broken. The peer has been told, and nothing that it says matters any more.
    Broken,
    /// Nothing comes and nothing is added.
    Closed,
}

/// Which side of the handshake this is.
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
    /// By the peer's numbers.
    channels_in: Table<Channel>,
    /// By ours.
    channels_out: Table<SessionId>,
    /// Our `open` is out.
    open_sent: bool,
    /// The largest frame that the peer takes.
    peer_frame: u32,
    /// The largest frame with a message that is written.
    transfer_frame: usize,
    peer_channel_max: u16,
    /// Sessions with deliveries whose acceptance has not been written yet.
    accepting: Vec<SessionId>,
    /// Sessions with a delivery of which the rest has a window and waits for room in the output.
    waiting_for_room: VecDeque<SessionId>,
    /// Sessions that were refused because too much of other deliveries could not be written yet.
    waiting_for_others: BTreeSet<SessionId>,
    /// Deliveries that have begun and not ended.
    held: Held,
    /// Nothing more is to be read for now.
    paused: bool,
    /// How many sessions were looked at to go on with a delivery.
    #[cfg(test)]
    looked_at: usize,
}

impl Connection {
    /// The server's side. It says nothing before the client does.
    pub fn server(config: Config, sasl: ServerSasl, now: Duration) -> Self {
        Self::new(Side::Server(sasl), config, now)
    }

    /// The client's side. It speaks first.
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
            channels_in: Table::default(),
            channels_out: Table::default(),
            open_sent: false,
            peer_frame: MIN_MAX_FRAME_SIZE,
            transfer_frame: MIN_MAX_FRAME_SIZE as usize,
            peer_channel_max: 0,
            accepting: Vec::new(),
            waiting_for_room: VecDeque::new(),
            waiting_for_others: BTreeSet::new(),
            held: Held::default(),
            paused: false,
            #[cfg(test)]
            looked_at: 0,
            config,
        }
    }

    /// Where bytes from the peer are appended. Only ever append.
    pub fn input(&mut self) -> &mut BytesMut {
        &mut self.input
    }

    /// Whether more should be read from the peer. Not before all events have been taken, not while a
    /// server decides whom to let in, not from one that lets too much wait that it asked for, and not while
    /// the owner has paused it.
    pub fn wants_input(&self) -> bool {
        let deaf = self.output.len() >= self.config.limits.output_when_deaf;
        match self.phase {
            Phase::Decision | Phase::Closed => false,
            Phase::Closing | Phase::Broken => true,
            _ => !deaf && !self.paused && self.input.len() < self.config.limits.frame as usize * 2,
        }
    }

    /// The next thing to know, from what has come in so far. An event may be followed by more at once:
    /// ask until there is none.
    #[inline]
    pub fn next_event(&mut self) -> Option<Event> {
        loop {
            if let Some(event) = self.events.pop_front() {
                return Some(event);
            }
            match self.step() {
                dispatch::Step::Event(event) => return Some(event),
                dispatch::Step::Again => {}
                dispatch::Step::Wait if self.events.is_empty() => return None,
                dispatch::Step::Wait => {}
            }
        }
    }

    /// The transport ended. Take all events before, and then once more.
    pub fn on_lost(&mut self, why: impl Into<String>) {
        self.lose(why.into());
    }

    /// Bytes for the peer; say with [`Self::wrote`] how many it took.
    pub fn output(&mut self) -> &[u8] {
        self.write_acceptances();
        self.output.pending()
    }

    /// How many bytes wait, leaving out what can still be put together with more.
    pub fn output_length(&self) -> usize {
        self.output.len()
    }

    /// Whether there is something to write.
    pub fn has_output(&self) -> bool {
        self.output.len() > 0 || !self.accepting.is_empty()
    }

    /// The transport took the first `count` bytes of [`Self::output`].
    pub fn wrote(&mut self, count: usize) {
        let resumed = self.output.wrote(count);
        self.continue_in_room();
        // After the end there is nothing left to send.
        if resumed && self.phase == Phase::Open {
            self.events.push_back(Event::Room);
        }
    }

    /// Whether so much waits for the peer that nothing should be sent. [`Event::Room`] tells when that
    /// changes, but only after a [`Sent::Blocked`].
    pub fn is_congested(&mut self) -> bool {
        self.output.is_congested()
    }

    /// Whether there can be sessions.
    pub fn is_open(&self) -> bool {
        self.phase == Phase::Open
    }

    /// Whether it is over and everything is written: the transport can be closed.
    pub fn is_finished(&self) -> bool {
        self.phase == Phase::Closed && self.output.len() == 0
    }

    /// How many more messages a link may carry now.
    pub fn credit(&self, link: LinkId) -> u32 {
        self.links.get(link).map_or(0, |link| link.credit)
    }

    /// What we do on a link.
    pub fn role(&self, link: LinkId) -> Option<Role> {
        self.links.get(link).map(|link| link.role)
    }

    /// The session of a link.
    pub fn session_of(&self, link: LinkId) -> Option<SessionId> {
        self.links.get(link).map(|link| link.session)
    }

    /// How many links there are.
    pub fn links(&self) -> usize {
        self.links.len()
    }

    /// Other limits from now on: for a peer that has shown who it is, or whose time is over. What it has
    /// been told of them should stay as it was: `frame`, `channel_max`, `handle_max` and `window`. Links
    /// that are attached keep the size of their messages.
    pub fn set_limits(&mut self, limits: Limits) {
        self.output.set_high(limits.output);
        self.config.limits = limits;
    }

    /// Stops reading from the peer, or goes on. Meanwhile it is not held against the peer that nothing comes.
    pub fn pause_reading(&mut self, paused: bool) {
        self.clock.resumed |= self.paused && !paused;
        self.paused = paused;
        if paused {
            self.clock.paused_since.get_or_insert(self.clock.now);
        }
    }

    /// Gives back memory that is kept for the next bytes. For a connection that has been quiet.
    pub fn release_memory(&mut self) {
        if self.input.is_empty() {
            self.input = BytesMut::new();
        }
        self.output.release();
    }

    /// How it was told to be.
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
