//! Who owns a connection: answers what comes, in one of several moods.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Delivery, Event, LinkId, Sent, ServerSasl};
use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Attach, Error, Outcome, Role, Secret};

/// Which side the engine is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Side {
    /// It answers.
    Server,
    /// It speaks first.
    Client,
}

/// How an engine is set up, and what its owner is like.
#[derive(Clone, Copy, Debug)]
pub struct Setup {
    /// Which side it is on.
    pub side: Side,
    /// All else, by bits: 1 and 2 what is done about SASL, 4 narrow limits, 8 no patience with links,
    /// 16 rejects what it gets, 32 wants its credit back, 64 closes after a while.
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
            output_when_deaf: 8_000,
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

/// A connection with an owner, and all that it was told.
pub struct Owner {
    /// The engine.
    pub connection: Connection,
    /// What it was told.
    pub told: Vec<Event>,
    setup: Setup,
    deliveries: usize,
}

impl Owner {
    /// A new connection.
    pub fn new(setup: Setup) -> Self {
        Self { connection: setup.connection(), told: Vec::new(), setup, deliveries: 0 }
    }

    /// Hears some bytes, and answers what they lead to.
    pub fn hear(&mut self, bytes: &[u8]) {
        self.connection.input().extend_from_slice(bytes);
        while let Some(event) = self.connection.next_event() {
            self.answer(&event);
            self.told.push(event);
        }
    }

    /// The peer reads all that waits, of which more may come.
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
            // As in the recording, so that a server's answers find what they answer.
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
