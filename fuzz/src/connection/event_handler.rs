//! Handles the events of a connection under test as a client or a server would, with one of several
//! behaviours.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Delivery, Event, LinkId, Sent, ServerSasl};
use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Attach, Error, Outcome, Role, Secret};

/// The side that the engine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// The engine answers.
    Server,
    /// The engine begins.
    Client,
}

/// The configuration of an engine, and the behaviour of its owner.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// The side of the engine.
    pub side: Side,
    /// Everything else, by bits: 1 and 2 select the SASL mode, 4 narrow limits, 8 refuses and detaches links,
    /// 16 rejects deliveries, 32 drains credit, 64 closes after a while.
    pub bits: u8,
}

impl Setup {
    fn has(self, bit: u8) -> bool {
        self.bits & bit != 0
    }

    fn limits(self) -> Limits {
        if !self.has(4) {
            return Limits::default();
        }
        Limits {
            frame_before_open: 512,
            frame: 1_024,
            frame_out: 600,
            channel_max: 1,
            handle_max: 2,
            links: 4,
            window: 4,
            message: 4_096,
            unsettled: 4,
            incomplete: 6_000,
            output: 3_000,
            output_to_pause_reading: 8_000,
            ..Limits::default()
        }
    }

    fn connection(self) -> Connection {
        let config = Config { limits: self.limits(), ..Config::new("here") };
        match (self.side, self.bits & 3) {
            (Side::Server, sasl) => {
                let sasl =
                    ServerSasl { ask: sasl & 1 != 0, optional: sasl & 2 == 0, ..ServerSasl::default() };
                Connection::server(config, sasl, Duration::ZERO)
            }
            (Side::Client, 0) => Connection::client(config, ClientSasl::Anonymous, Duration::ZERO),
            (Side::Client, 1) => Connection::client(config, ClientSasl::Skip, Duration::ZERO),
            (Side::Client, _) => {
                let sasl = ClientSasl::Plain { user: "me".into(), password: Secret::new(*b"secret") };
                Connection::client(config, sasl, Duration::ZERO)
            }
        }
    }
}

/// A connection with its owner, and all events so far.
pub struct Owner {
    /// The engine.
    pub connection: Connection,
    /// The events so far.
    pub told: Vec<Event>,
    setup: Setup,
    deliveries: usize,
}

impl Owner {
    /// Creates a connection.
    pub fn new(setup: Setup) -> Self {
        Self { connection: setup.connection(), told: Vec::new(), setup, deliveries: 0 }
    }

    /// Feeds bytes to the connection, and reacts to its events.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.connection.input().extend_from_slice(bytes);
        while let Some(event) = self.connection.next_event() {
            self.answer(&event);
            self.told.push(event);
        }
    }

    /// Lets the peer read all output, including the output that this leads to.
    pub fn write(&mut self, into: &mut Vec<u8>) {
        while self.connection.has_output() {
            let output = self.connection.output();
            into.extend_from_slice(output);
            let count = output.len();
            self.connection.wrote(count);
            self.hear(&[]);
        }
    }

    fn answer(&mut self, event: &Event) {
        let (setup, connection) = (self.setup, &mut self.connection);
        match event {
            Event::Authenticate(init) => connection.authenticated(init.mechanism != "EXTERNAL"),
            // The same links as in the recording, so that a server's answers match them.
            Event::Opened(_) if setup.side == Side::Client => {
                for name in ["a", "b"] {
                    let Some(session) = connection.begin() else { return };
                    connection.attach(session, Attach::sender(name, "there"));
                    connection.attach(session, Attach::receiver(name, "back"));
                }
            }
            Event::Attached { link, attach } if attach.role == Role::Sender => connection.grant(*link, 5),
            Event::AttachRequested { link, attach, .. } => self.asked_for_a_link(*link, attach),
            Event::Delivery(delivery) => self.take(delivery),
            Event::Oversized { link, delivery, size, limit } => {
                assert!(size > limit, "{size} bytes are no more than {limit}");
                let outcome = Outcome::rejected(Error::too_large(*delivery, *size, *limit));
                connection.settle(*link, *delivery, *delivery, &outcome);
            }
            Event::Credit { link, drain } => {
                self.send(*link);
                if *drain {
                    self.connection.drained(*link);
                }
            }
            _ => {}
        }
    }

    fn asked_for_a_link(&mut self, link: LinkId, attach: &Attach) {
        if self.setup.has(8) && attach.name.len().is_multiple_of(2) {
            return self.connection.refuse(link, Error::new("amqp:not-found", "no such thing"));
        }
        self.connection.accept(link, Attach { max_message_size: Some(4_096), ..attach.answer() });
        if attach.role == Role::Sender {
            self.connection.grant(link, if self.setup.has(4) { 3 } else { 1_000 });
        }
    }

    fn take(&mut self, delivery: &Delivery) {
        self.deliveries += 1;
        let outcome = match self.setup.has(16) {
            true => Outcome::rejected(Error::new("amqp:x", "no")),
            false => Outcome::Accepted,
        };
        if !delivery.settled {
            self.connection.settle(delivery.link, delivery.id, delivery.id, &outcome);
        }
        if self.setup.has(32) && self.deliveries == 2 {
            self.connection.drain(delivery.link);
        }
        match self.deliveries {
            4 if self.setup.has(8) => self.connection.detach(delivery.link, None),
            6 if self.setup.has(8) => {
                if let Some(session) = self.connection.session_of(delivery.link) {
                    self.connection.end(session, Some(Error::new("amqp:x", "enough")));
                }
            }
            8 if self.setup.has(64) => self.connection.close(Some(Error::new("amqp:x", "enough"))),
            _ => {}
        }
    }

    fn send(&mut self, link: LinkId) {
        for number in 0..3 {
            let message = [7; 700];
            if !matches!(self.connection.send(link, 0, number % 2 == 0, &[&message]), Sent::Sent(_)) {
                return;
            }
        }
    }
}
