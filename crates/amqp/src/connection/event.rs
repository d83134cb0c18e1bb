//! Events that a connection reports to its owner, and the results of [`send`](super::Connection::send).

use std::fmt;

use bytes::Bytes;

use super::slots::{LinkId, SessionId};
use crate::performative::{Attach, Error, Open, Outcome, SaslInit};

/// An action of the peer, or a timeout.
#[derive(Clone, Debug, PartialEq)]
pub enum Event {
    /// A client sent its SASL credentials. The server's owner answers with
    /// [`super::Connection::authenticated`]; nothing more is read until then.
    Authenticate(SaslInit),
    /// The peer sent `open`. From here on there can be sessions.
    Opened(Box<Open>),
    /// The peer began a session, or answered the `begin` of ours.
    Begun {
        /// The session.
        session: SessionId,
        /// True if the peer began it.
        by_peer: bool,
    },
    /// The peer wants to attach a link: answer with [`super::Connection::accept`] or
    /// [`super::Connection::refuse`].
    AttachRequested {
        /// The session of the link.
        session: SessionId,
        /// The id of the link from now on.
        link: LinkId,
        /// The attach of the peer.
        attach: Box<Attach>,
    },
    /// The peer accepted a link of ours.
    Attached {
        /// The link.
        link: LinkId,
        /// The attach of the peer.
        attach: Box<Attach>,
    },
    /// The peer changed the credit of a link that we send on.
    Credit {
        /// The link.
        link: LinkId,
        /// True if the peer drains its credit: send what there is, then call [`super::Connection::drained`].
        drain: bool,
    },
    /// The peer has used up, or returned, the credit of a link after [`super::Connection::drain`].
    Drained {
        /// The link.
        link: LinkId,
    },
    /// Incoming deliveries whose end has not come take more memory than at the last event, or output takes
    /// more or less memory than the owner knows of, by
    /// [`Limits::incomplete_notice`](crate::limits::Limits::incomplete_notice). See
    /// [`super::Connection::buffered`].
    Unended,
    /// A session can send again after [`Blocked::Window`] or [`Blocked::Unsettled`].
    Window {
        /// The session.
        session: SessionId,
    },
    /// There is room for output again after [`Blocked::Room`].
    Room,
    /// A message was received.
    Delivery(Delivery),
    /// A message that is larger than its link allows has ended. Nothing of it was kept. The owner settles it with
    /// [`super::Connection::settle`], as rejected ([`too_large`](crate::performative::Error::too_large)).
    Oversized {
        /// The link.
        link: LinkId,
        /// The id of the delivery.
        delivery: u32,
        /// The size of the message, in bytes.
        size: u64,
        /// The size that the link allows.
        limit: u64,
    },
    /// The peer settled messages that we sent unsettled.
    Settled {
        /// The link.
        link: LinkId,
        /// The first of the deliveries.
        first: u32,
        /// The last; none in between is left out.
        last: u32,
        /// Their outcome; `None` if the peer settled without one.
        outcome: Option<Outcome>,
    },
    /// A link has ended.
    Detached {
        /// The link.
        link: LinkId,
        /// The reason: the peer's, or ours if the peer violated the protocol.
        error: Option<Error>,
    },
    /// A session has ended. Each of its links has had its own event before, unless [`super::Connection::end`]
    /// ended it.
    Ended {
        /// The session.
        session: SessionId,
        /// The reason: the peer's, or ours if the peer violated the protocol.
        error: Option<Error>,
    },
    /// The connection has ended, with all its sessions and links. This is the last event.
    Closed(Closed),
}

/// The way in which a connection ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Closed {
    /// The peer closed it.
    ByPeer(Option<Error>),
    /// We closed it, and the peer agreed or did not answer in time.
    ByUs,
    /// The peer violated the protocol, and was told so; or a server refused our credentials.
    Failed(Error),
    /// The transport ended before the protocol did, or the peer speaks neither AMQP nor TLS.
    Lost(String),
    /// The peer began with TLS where plain AMQP was expected.
    SpokeTls(String),
}

/// A received message.
#[derive(Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The link that it came on.
    pub link: LinkId,
    /// Its number in the session, by which it is settled.
    pub id: u32,
    /// The format of the payload; 0 is a message as specified.
    pub format: u32,
    /// True if it was sent settled, so that it need not be settled.
    pub settled: bool,
    /// The encoded message. If it came in one frame it is a slice of the input buffer, which it keeps in
    /// memory.
    pub payload: Bytes,
}

impl fmt::Debug for Delivery {
    /// Without the payload, which may hold bodies and tokens.
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

/// The result of [`super::Connection::send`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "a message that is not sent has to be sent later"]
pub enum Sent {
    /// It was sent, or will be; this is its delivery number.
    Sent(u32),
    /// It cannot be sent now.
    Blocked(Blocked),
    /// The link is not attached, or not any more.
    Gone,
}

/// The reason why a message cannot be sent now, and the event that reports when it can.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Blocked {
    /// The link has no credit: [`Event::Credit`].
    Credit,
    /// The session's window is used up, the rest of an earlier message has to go first, or rests of other
    /// sessions take too much memory: [`Event::Window`].
    Window,
    /// Too much output waits for the peer: [`Event::Room`].
    Room,
    /// Too many deliveries are unsettled: [`Event::Window`], once some were settled.
    Unsettled,
}
