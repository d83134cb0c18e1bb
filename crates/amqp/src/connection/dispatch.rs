//! Splits bytes into frames, dispatches them, and handles protocol violations.

use bytes::Buf;

use super::event::{Closed, Event};
use super::incomplete_deliveries::UnendedDeliveries;
use super::session::Channel;
use super::slots::{LinkId, SessionId, Table};
use super::{Connection, Phase, Side};
use crate::frame::{FrameHeader, TYPE_AMQP, TYPE_SASL};
use crate::performative::{BadPerformative, Error, Performative, Sasl, Transfer, condition};

/// The result of decoding the next frame.
pub(super) enum Step {
    /// An event for the owner.
    Event(Event),
    /// No event, and there may be more frames.
    Again,
    /// No event until more input comes.
    Wait,
}

/// A protocol violation of the peer, with the connection, session or link that is ended because of it.
#[derive(Debug)]
pub(super) enum Violation {
    Connection(Error),
    Session(SessionId, Error),
    Link(LinkId, Error),
}

impl Violation {
    pub(super) fn of_connection(condition: &'static str, description: impl Into<String>) -> Box<Self> {
        Box::new(Self::Connection(Error::new(condition, description)))
    }

    pub(super) fn of_session(
        session: SessionId,
        condition: &'static str,
        description: impl Into<String>,
    ) -> Box<Self> {
        Box::new(Self::Session(session, Error::new(condition, description)))
    }

    pub(super) fn of_link(
        link: LinkId,
        condition: &'static str,
        description: impl Into<String>,
    ) -> Box<Self> {
        Box::new(Self::Link(link, Error::new(condition, description)))
    }
}

/// Boxed, so that the frequent success does not have the size of the rare error.
pub(super) type Handled<T = ()> = Result<T, Box<Violation>>;

impl Connection {
    /// Decodes and handles the next frame.
    #[inline]
    pub(super) fn step(&mut self) -> Step {
        match self.phase {
            // Deliveries that were decoded ahead would take as much memory again as the pause saves.
            Phase::Open if self.paused => Step::Wait,
            Phase::Open | Phase::Opening | Phase::Sasl | Phase::Closing => match self.frame() {
                Ok(step) => step,
                Err(violation) => {
                    self.end_violator(*violation);
                    Step::Again
                }
            },
            Phase::Header { after_sasl } => {
                let Some(&header) = self.input.first_chunk::<8>() else {
                    return self.on_partial_header(after_sasl);
                };
                self.input.advance(header.len());
                self.on_header(header, after_sasl)
            }
            Phase::Decision => Step::Wait,
            Phase::Broken | Phase::Closed => {
                self.input.clear();
                Step::Wait
            }
        }
    }

    /// Handles fewer bytes than a header. If they cannot become one, the rest is not awaited.
    fn on_partial_header(&mut self, after_sasl: bool) -> Step {
        let begun = self.input.len().min(4);
        if self.input[..begun] == b"AMQP"[..begun] {
            return Step::Wait;
        }
        let mut header = [b' '; 8];
        header[..begun].copy_from_slice(&self.input[..begun]);
        self.on_header(header, after_sasl)
    }

    #[inline]
    fn frame(&mut self) -> Handled<Step> {
        let limits = &self.config.limits;
        let limit = match self.phase {
            Phase::Open | Phase::Closing => limits.frame,
            // A client has chosen its server, and does not know the size of its first frames.
            _ if matches!(self.side, Side::Client(_)) => limits.frame,
            _ => limits.frame_before_open,
        };
        let header = match FrameHeader::read(&self.input, limit) {
            Ok(Some(header)) if self.input.len() >= header.size => header,
            Ok(_) => return Ok(Step::Wait),
            Err(bad) => return Err(Violation::of_connection(condition::FRAMING_ERROR, bad.to_string())),
        };
        let mut frame = self.input.split_to(header.size).freeze();
        self.clock.received = true;
        if header.size == header.body && header.kind == TYPE_AMQP {
            return Ok(Step::Again);
        }
        frame.advance(header.body);
        match (header.kind, self.phase) {
            (TYPE_AMQP, Phase::Open) => {
                if let Some((transfer, payload)) = Transfer::read_plain(&frame) {
                    let transfer = Transfer { delivery_tag: None, ..transfer };
                    frame.advance(payload);
                    return self.on_transfer(header.channel, transfer, frame).map(Step::from);
                }
                let (performative, end) = Performative::read(&frame).map_err(undecodable)?;
                if let Performative::Transfer(transfer) = performative {
                    let transfer = Transfer { delivery_tag: None, ..transfer };
                    frame.advance(end);
                    return self.on_transfer(header.channel, transfer, frame).map(Step::from);
                }
                self.on_performative(header.channel, performative).map(Step::from)
            }
            (TYPE_AMQP, Phase::Opening) => match Performative::read(&frame).map_err(undecodable)?.0 {
                Performative::Open(open) => Ok(Step::Event(self.on_open(open))),
                Performative::Close(close) => Ok(Step::Event(self.on_close(close.error))),
                other => Err(Violation::of_connection(
                    condition::NOT_ALLOWED,
                    format!("{} before open", other.name()),
                )),
            },
            (TYPE_AMQP, Phase::Closing) => match Performative::read(&frame) {
                Ok((Performative::Close(close), _)) => Ok(Step::Event(self.on_close(close.error))),
                _ => Ok(Step::Again),
            },
            (TYPE_SASL, Phase::Sasl) => {
                let frame = Sasl::read(&frame).map_err(undecodable)?;
                self.on_sasl(frame).map(Step::from)
            }
            (kind, _) => Err(Violation::of_connection(
                condition::FRAMING_ERROR,
                format!("unexpected frame of type {kind}"),
            )),
        }
    }

    fn on_performative(&mut self, channel: u16, performative: Performative<'_>) -> Handled<Option<Event>> {
        match performative {
            Performative::Open(_) => Err(Violation::of_connection(condition::NOT_ALLOWED, "a second open")),
            Performative::Close(close) => Ok(Some(self.on_close(close.error))),
            Performative::Begin(begin) => self.on_begin(channel, *begin),
            other => {
                let Some(session) = self.session_on(channel, other.name())? else { return Ok(None) };
                match other {
                    Performative::Attach(attach) => self.on_attach(session, attach),
                    Performative::Flow(flow) => self.on_flow(session, flow),
                    Performative::Disposition(disposition) => {
                        self.on_disposition(session, disposition);
                        Ok(None)
                    }
                    Performative::Detach(detach) => self.on_detach(session, detach),
                    Performative::End(end) => {
                        self.on_end(session, end.error);
                        Ok(None)
                    }
                    _ => Ok(None),
                }
            }
        }
    }

    /// The session of a frame. `None` if it has ended: Azure's Python SDK detaches links after the end of
    /// their session.
    #[inline]
    pub(super) fn session_on(&self, channel: u16, what: &'static str) -> Handled<Option<SessionId>> {
        match self.channels_in.get(channel) {
            Some(Channel::Begun(session)) => Ok(Some(session)),
            Some(Channel::Ended) => Ok(None),
            None => Err(Violation::of_connection(
                condition::NOT_ALLOWED,
                format!("{what} on channel {channel}, which has no session"),
            )),
        }
    }

    /// Writes a frame. If it is larger than the peer accepts, the connection fails.
    pub(super) fn write(&mut self, channel: u16, body: impl FnOnce(&mut Vec<u8>)) {
        if let Err(too_large) = self.output.frame(TYPE_AMQP, channel, self.peer_frame, body) {
            let description =
                format!("a frame of {} bytes is needed, and {} are allowed", too_large.0, self.peer_frame);
            self.fail(Error::new(condition::FRAME_SIZE_TOO_SMALL, description));
        }
    }

    /// Shortens an error so that it fits into any frame.
    pub(super) fn clipped(&self, error: Option<Error>) -> Option<Error> {
        const ROOM: usize = 1024;
        // Half of the smallest frame is left for the other fields.
        let room = if self.peer_frame as usize >= 2 * ROOM { ROOM } else { 256 };
        error.map(|mut error| {
            if let Some(text) = &mut error.description
                && text.len() > room
            {
                let end = (0..=room).rev().find(|&end| text.is_char_boundary(end)).unwrap_or(0);
                text.truncate(end);
            }
            error.info = error.info.filter(|info| info.as_bytes().len() < room);
            error
        })
    }

    fn end_violator(&mut self, violation: Violation) {
        match violation {
            Violation::Connection(error) => self.fail(error),
            Violation::Session(session, error) => self.fail_session(session, error),
            Violation::Link(link, error) => self.fail_link(link, error),
        }
    }

    /// Fails the connection because of a violation of the peer, or a timeout.
    pub(super) fn fail(&mut self, error: Error) {
        self.phase = match self.phase {
            Phase::Broken | Phase::Closed => return,
            Phase::Opening | Phase::Open => {
                self.write_close(Some(error.clone()));
                Phase::Broken
            }
            // Our `close` is written already.
            Phase::Closing => Phase::Broken,
            // The protocol is not agreed on: the reason cannot be sent, and there is nothing to wait for.
            Phase::Header { .. } | Phase::Sasl | Phase::Decision => Phase::Closed,
        };
        self.input.clear();
        self.forget_everything();
        self.events.push_back(Event::Closed(Closed::Failed(error)));
    }

    /// Ends the connection because the transport is gone, or unresponsive.
    pub(super) fn lose(&mut self, why: String) {
        match self.phase {
            Phase::Broken | Phase::Closed => {}
            Phase::Closing => self.events.push_back(Event::Closed(Closed::ByUs)),
            _ => self.events.push_back(Event::Closed(Closed::Lost(why))),
        }
        self.phase = Phase::Closed;
        self.input.clear();
        self.output.discard();
        self.forget_everything();
    }

    pub(super) fn forget_everything(&mut self) {
        self.sessions = Default::default();
        self.links = Default::default();
        self.channels_in = Table::default();
        self.channels_out = Table::default();
        self.handle_slots = 0;
        self.accepting.clear();
        self.waiting_for_room.clear();
        self.waiting_for_others.clear();
        self.unended = UnendedDeliveries::default();
    }
}

impl From<Option<Event>> for Step {
    #[inline]
    fn from(event: Option<Event>) -> Self {
        event.map_or(Self::Again, Self::Event)
    }
}

fn undecodable(bad: BadPerformative) -> Box<Violation> {
    let condition = match bad {
        BadPerformative::Malformed(_) | BadPerformative::NotDescribed => condition::DECODE_ERROR,
        BadPerformative::Unknown => condition::NOT_IMPLEMENTED,
        BadPerformative::Field { .. } | BadPerformative::Missing { .. } => condition::INVALID_FIELD,
    };
    Violation::of_connection(condition, bad.to_string())
}
