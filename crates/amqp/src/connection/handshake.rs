//! The handshake and the end of a connection: protocol headers, SASL, `open` and `close`.
//!
//! A server waits for the client's header: a server that wrote first made every second connection of Azure's
//! Python SDK fail.

use super::dispatch::{Handled, Step, Violation};
use super::event::{Closed, Event};
use super::{ClientSasl, Connection, Phase, Side};
use crate::frame::{MIN_MAX_FRAME_SIZE, Protocol, TYPE_AMQP, TYPE_SASL};
use crate::performative::{
    Close, Error, Open, Sasl, SaslCode, SaslInit, SaslMechanisms, SaslOutcome, Secret, condition,
};

/// The additional data of an accepted authentication, as Event Hubs sends it.
const WELCOME: &[u8] = b"Welcome!";

impl Connection {
    /// Writes the first bytes of a client.
    pub(super) fn greet(&mut self) {
        match self.side {
            Side::Client(ClientSasl::Skip) => {
                self.header(Protocol::Amqp);
                self.write_open();
                self.phase = Phase::Header { after_sasl: true };
            }
            Side::Client(_) => self.header(Protocol::Sasl),
            Side::Server(_) => {}
        }
    }

    fn header(&mut self, protocol: Protocol) {
        self.output.bytes().extend_from_slice(&protocol.header());
    }

    /// Handles the peer's complete header.
    pub(super) fn on_header(&mut self, header: [u8; 8], after_sasl: bool) -> Step {
        self.clock.received = true;
        let found = Protocol::of(header);
        match (&self.side, found) {
            (Side::Server(_), Some(Protocol::Amqp)) if after_sasl => {
                self.header(Protocol::Amqp);
                self.phase = Phase::Opening;
            }
            (Side::Server(sasl), Some(Protocol::Amqp)) if sasl.optional => {
                self.header(Protocol::Amqp);
                self.phase = Phase::Opening;
            }
            (Side::Server(sasl), Some(Protocol::Sasl)) if !after_sasl => {
                let mechanisms = Sasl::Mechanisms(SaslMechanisms { names: sasl.mechanisms.clone() });
                self.header(Protocol::Sasl);
                self.write_sasl(&mechanisms);
                self.phase = Phase::Sasl;
            }
            (Side::Client(_), Some(Protocol::Amqp)) if after_sasl => self.phase = Phase::Opening,
            (Side::Client(_), Some(Protocol::Sasl)) if !after_sasl => self.phase = Phase::Sasl,
            (side, _) => {
                // The specification demands the header that would have been right, and then the end.
                if let Side::Server(sasl) = side {
                    let right = if sasl.optional || after_sasl { Protocol::Amqp } else { Protocol::Sasl };
                    self.header(right);
                }
                return self.not_amqp(header);
            }
        }
        Step::Again
    }

    /// Ends the connection at once, because no further input of such a peer could be decoded.
    fn not_amqp(&mut self, header: [u8; 8]) -> Step {
        self.phase = Phase::Closed;
        self.input.clear();
        // A TLS record with a handshake or an alert, of any version.
        let tls = matches!(header, [0x16 | 0x15, 3, ..]);
        let guess = match header {
            _ if tls => ", which looks like TLS",
            [b'G', b'E', b'T', b' ', ..] | [b'P', b'O', b'S', b'T', ..] | [b'H', b'T', b'T', b'P', ..] => {
                ", which looks like HTTP"
            }
            [b'A', b'M', b'Q', b'P', ..] => ", another version of AMQP",
            _ => "",
        };
        let why = format!("the peer began with \"{}\"{guess}", header.escape_ascii());
        Step::Event(Event::Closed(if tls { Closed::SpokeTls(why) } else { Closed::Lost(why) }))
    }

    pub(super) fn on_sasl(&mut self, frame: Sasl) -> Handled<Option<Event>> {
        match (&self.side, frame) {
            (Side::Server(sasl), Sasl::Init(init)) => {
                if !sasl.mechanisms.contains(&init.mechanism) {
                    self.authenticated_as(SaslCode::Auth);
                } else if sasl.ask {
                    self.phase = Phase::Decision;
                    return Ok(Some(Event::Authenticate(init)));
                } else {
                    self.authenticated_as(SaslCode::Ok);
                }
                Ok(None)
            }
            (Side::Client(sasl), Sasl::Mechanisms(offered)) => {
                let (mechanism, initial_response) = match sasl {
                    ClientSasl::Plain { user, password } => {
                        let mut response = format!("\0{user}\0").into_bytes();
                        response.extend_from_slice(password.expose());
                        ("PLAIN", Secret::new(response))
                    }
                    ClientSasl::Anonymous | ClientSasl::Skip => ("ANONYMOUS", Secret::default()),
                };
                if !offered.names.iter().any(|name| name == mechanism) {
                    let description = format!("the server offers {:?}, not {mechanism}", offered.names);
                    return Err(Violation::of_connection(condition::UNAUTHORIZED_ACCESS, description));
                }
                let hostname = self.config.hostname.clone();
                let initial_response = Some(initial_response);
                self.write_sasl(&Sasl::Init(SaslInit {
                    mechanism: mechanism.into(),
                    initial_response,
                    hostname,
                }));
                Ok(None)
            }
            (Side::Client(_), Sasl::Outcome(SaslOutcome { code: SaslCode::Ok, .. })) => {
                self.header(Protocol::Amqp);
                self.write_open();
                self.phase = Phase::Header { after_sasl: true };
                Ok(None)
            }
            (Side::Client(_), Sasl::Outcome(SaslOutcome { code, .. })) => {
                let description = format!("the server rejected the authentication: {code:?}");
                Err(Violation::of_connection(condition::UNAUTHORIZED_ACCESS, description))
            }
            _ => Err(Violation::of_connection(
                condition::NOT_ALLOWED,
                "a SASL frame that only the other side may send",
            )),
        }
    }

    /// Answers [`Event::Authenticate`].
    pub fn authenticated(&mut self, accepted: bool) {
        if self.phase == Phase::Decision {
            self.authenticated_as(if accepted { SaslCode::Ok } else { SaslCode::Auth });
        }
    }

    fn authenticated_as(&mut self, code: SaslCode) {
        let additional_data = (code == SaslCode::Ok).then(|| WELCOME.to_vec());
        self.write_sasl(&Sasl::Outcome(SaslOutcome { code, additional_data }));
        if code == SaslCode::Ok {
            self.phase = Phase::Header { after_sasl: true };
        } else {
            self.phase = Phase::Broken;
            let error = Error::new(condition::UNAUTHORIZED_ACCESS, "the authentication failed");
            self.events.push_back(Event::Closed(Closed::Failed(error)));
        }
    }

    fn write_sasl(&mut self, frame: &Sasl) {
        self.output.frame(TYPE_SASL, 0, u32::MAX, |into| frame.write(into)).ok();
    }

    fn write_open(&mut self) {
        let open = self.config.open();
        self.output.frame(TYPE_AMQP, 0, u32::MAX, |into| open.write(into)).ok();
        self.open_sent = true;
    }

    pub(super) fn on_open(&mut self, open: Box<Open>) -> Event {
        let limits = &self.config.limits;
        self.peer_frame = open.max_frame_size.unwrap_or(u32::MAX).max(MIN_MAX_FRAME_SIZE);
        self.transfer_frame = self.peer_frame.min(limits.frame_out.max(MIN_MAX_FRAME_SIZE)) as usize;
        self.peer_channel_max = open.channel_max.unwrap_or(u16::MAX).min(limits.channel_max);
        self.clock.set_heartbeat(open.idle_time_out);
        if !self.open_sent {
            self.write_open();
        }
        self.phase = Phase::Open;
        Event::Opened(open)
    }

    /// Closes the connection, with or without a reason. [`Event::Closed`] reports that the peer agreed.
    pub fn close(&mut self, error: Option<Error>) {
        match self.phase {
            Phase::Closing | Phase::Broken | Phase::Closed => return,
            Phase::Open => {
                self.write_close(error);
                self.phase = Phase::Closing;
            }
            // There is no peer yet that could agree.
            Phase::Opening => {
                self.write_close(error);
                self.phase = Phase::Broken;
                self.events.push_back(Event::Closed(Closed::ByUs));
            }
            Phase::Header { .. } | Phase::Sasl | Phase::Decision => {
                self.phase = Phase::Closed;
                self.events.push_back(Event::Closed(Closed::ByUs));
            }
        }
        self.forget_everything();
    }

    pub(super) fn on_close(&mut self, error: Option<Error>) -> Event {
        let by_us = self.phase == Phase::Closing;
        if !by_us {
            self.write_close(None);
        }
        self.phase = Phase::Closed;
        self.input.clear();
        self.forget_everything();
        Event::Closed(if by_us { Closed::ByUs } else { Closed::ByPeer(error) })
    }

    pub(super) fn write_close(&mut self, error: Option<Error>) {
        self.write_acceptances();
        if !self.open_sent {
            self.write_open();
        }
        let error = self.clipped(error);
        // It is small, and a peer that does not accept it cannot use anything else.
        self.output.frame(TYPE_AMQP, 0, u32::MAX, |into| Close { error }.write(into)).ok();
    }
}
