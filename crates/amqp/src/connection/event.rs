//! What a connection tells its owner, and what it answers.

use std::fmt;

use bytes::Bytes;

use super::slots::{LinkId, SessionId};
use crate::performative::{Attach, Error, Open, Outcome, SaslInit};

/// Something that the peer did, or that came of time.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A client says who it is. The server's owner answers with
    /// [`super::Connection::authenticated`]; nothing more is read until then.
    Authenticate(SaslInit),
    /// The peer's `open`. From here on there can be sessions.
    Opened(Box<Open>),
    /// A session began: the peer's, or one of ours was answered.
    Begun {
        /// Which.
        session: SessionId,
        /// Whether it is the peer's.
        by_peer: bool,
    },
    /// The peer wants a link: answer with [`super::Connection::accept`] or
    /// [`super::Connection::refuse`].
    AttachRequested {
        /// The session that it is in.
        session: SessionId,
        /// What it is called from now on.
        link: LinkId,
        /// What the peer wants.
        attach: Box<Attach>,
    },
    /// The peer accepted a link of ours.
    Attached {
        /// Which.
        link: LinkId,
        /// What the peer says of it.
        attach: Box<Attach>,
    },
    /// The peer gave credit on a link that we send on, or took some back.
    Credit {
        /// Which.
        link: LinkId,
        /// Whether the peer wants it used up now: send what there is, then say
        /// [`super::Connection::drained`].
        drain: bool,
    },
    /// The peer has used up, or given back, the credit of a link of which
    /// [`super::Connection::drain`] was asked.
    Drained {
        /// Which.
        link: LinkId,
    },
    /// Deliveries of which the end has not come take more than before, by
    /// [`Limits::incomplete_notice`](crate::limits::Limits::incomplete_notice):
    /// [`super::Connection::buffered`].
    Unended,
    /// A session takes messages again after [`Blocked::Window`] or [`Blocked::Unsettled`].
    Window {
        /// Which.
        session: SessionId,
    },
    /// There is room for output again after [`Blocked::Room`].
    Room,
    /// A message has come.
    Delivery(Delivery),
    /// The peer said what became of messages that we sent unsettled. They are forgotten.
    Settled {
        /// On which link.
        link: LinkId,
        /// The first of them.
        first: u32,
        /// The last; none in between is left out.
        last: u32,
        /// What became of them; `None` if the peer settled without saying.
        outcome: Option<Outcome>,
    },
    /// A link is over.
    Detached {
        /// Which.
        link: LinkId,
        /// Why: from the peer, or from us if the peer broke a rule.
        error: Option<Error>,
    },
    /// A session is over. Each of its links has had its own event before.
    Ended {
        /// Which.
        session: SessionId,
        /// Why: from the peer, or from us if the peer broke a rule.
        error: Option<Error>,
    },
    /// The connection is over, with all that was in it. There is no event after it.
    Closed(Closed),
}

/// How a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The peer closed it.
    ByPeer(Option<Error>),
    /// The peer agreed to our closing it, or was given its time to.
    ByUs,
    /// The peer broke a rule, as it has been told, or a server did not let us in.
    Failed(Error),
    /// The transport ended before the protocol did, or the peer does not speak it.
    Lost(String),
}

/// How [`Closed::Lost`] ends if the peer began with TLS in place of AMQP.
pub(super) const LOOKS_LIKE_TLS: &str = ", which looks like TLS";

impl Closed {
    /// Whether the peer began with TLS where plain AMQP was expected.
    pub fn peer_speaks_tls(&self) -> bool {
        matches!(self, Self::Lost(why) if why.ends_with(LOOKS_LIKE_TLS))
    }
}

/// A message as it came.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The link that it came on.
    pub link: LinkId,
    /// Its number in the session, by which it is settled.
    pub id: u32,
    /// What the payload is; 0 is a message as the specification has it.
    pub format: u32,
    /// Whether it needs no settling.
    pub settled: bool,
    /// Its sections. A part of the input buffer if it came in one frame: who keeps it keeps that.
    pub payload: Bytes,
}

impl fmt::Debug for Delivery {
    /// Without the payload: bodies and tokens are nobody else's business.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter
            .debug_struct("Delivery")
            .field("link", &self.link)
            .field("id", &self.id)
            .field("format", &self.format)
            .field("settled", &self.settled)
            .field("bytes", &self.payload.len())
            .finish()
    }
}

/// What became of a wish to send.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a message that is not sent has to be sent later"]
pub enum Sent {
    /// It is on its way, under this number.
    Sent(u32),
    /// Not now.
    Blocked(Blocked),
    /// The link is not attached, or no longer.
    Gone,
}

/// Why something cannot be sent now, and what will tell that it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The link has no credit: [`Event::Credit`].
    Credit,
    /// The session's window is used up: [`Event::Window`].
    Window,
    /// The peer does not read: [`Event::Room`].
    Room,
    /// Too much is unsettled: [`Event::Window`], once something was settled.
    Unsettled,
}
