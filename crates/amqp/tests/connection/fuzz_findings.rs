//! Regression tests for bugs that fuzzing found; and, for `byte_splits.rs` as well, a recorded conversation
//! with all kinds of frames and an owner that answers it.
//!
//! `ephor-fuzz` runs mutations of such conversations, for both sides.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{Config, Event, Sent, ServerSasl};
use ephor_amqp::frame::{Protocol, TYPE_SASL};
use ephor_amqp::performative::{Attach, Error, Outcome, Role, Sasl, SaslInit};

use crate::client_and_server::{Pair, config, linked};
use crate::raw_peer;

/// The bytes of a client in a conversation with all kinds of frames.
pub(crate) fn conversation(seed: u64) -> Vec<u8> {
    let mut random = fastrand::Rng::with_seed(seed);
    let mut small = config("s");
    small.limits.frame = 1_024;
    let mut pair = Pair::new(config("c"), small);
    let mut written = Vec::new();
    let mut owner = Owner { connection: pair.server, events: Vec::new() };
    let (mut senders, mut sessions, mut sent, mut rounds) = (Vec::new(), Vec::new(), 0, 0);
    loop {
        let bytes = pair.client.output().to_vec();
        pair.client.wrote(bytes.len());
        written.extend(&bytes);
        owner.connection.input().extend_from_slice(&bytes);
        owner.serve();
        let bytes = owner.connection.output().to_vec();
        owner.connection.wrote(bytes.len());
        pair.client.input().extend_from_slice(&bytes);
        while let Some(event) = pair.client.next_event() {
            match event {
                Event::Opened(_) => {
                    for name in ["a", "b"] {
                        let session = pair.client.begin().expect("a session");
                        sessions.push(session);
                        senders.extend(pair.client.attach(session, Attach::sender(name, "there")));
                        pair.client.attach(session, Attach::receiver(name, "back"));
                    }
                }
                Event::Attached { link, attach } if attach.role == Role::Sender => pair.client.grant(link, 5),
                Event::Delivery(delivery) if !delivery.settled => {
                    pair.client.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
                }
                Event::Closed(_) => return written,
                _ => {}
            }
        }
        for &link in &senders {
            let message = vec![sent as u8; random.usize(0..3_000)];
            if let Sent::Sent(_) = pair.client.send(link, 0, random.bool(), &[&message]) {
                sent += 1;
            }
        }
        rounds += 1;
        match rounds {
            20 => pair.client.detach(senders[0], Some(Error::new("amqp:x", "enough"))),
            21 => pair.client.end(sessions[1], None),
            22 => pair.client.close(None),
            _ => {}
        }
    }
}

/// Accepts everything: accepts links, grants credit, settles, and sends back a little.
pub(crate) struct Owner {
    pub(crate) connection: Connection,
    events: Vec<Event>,
}

impl Owner {
    pub(crate) fn server(config: Config) -> Self {
        let connection = Connection::server(config, ServerSasl::default(), Duration::ZERO);
        Self { connection, events: Vec::new() }
    }

    /// Feeds the bytes in pieces, and returns all events.
    pub(crate) fn feed(mut self, mut bytes: &[u8], piece: &mut dyn FnMut() -> usize) -> Vec<Event> {
        while !bytes.is_empty() {
            let (now, later) = bytes.split_at(piece().min(bytes.len()));
            self.connection.input().extend_from_slice(now);
            self.serve();
            bytes = later;
        }
        self.events
    }

    fn serve(&mut self) {
        while let Some(event) = self.connection.next_event() {
            self.answer(&event);
            self.events.push(event);
        }
    }

    fn answer(&mut self, event: &Event) {
        let connection = &mut self.connection;
        match event {
            Event::AttachRequested { link, attach, .. } => {
                connection.accept(*link, attach.answer());
                if attach.role == Role::Sender {
                    connection.grant(*link, 1_000);
                }
            }
            Event::Delivery(delivery) if !delivery.settled => {
                connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
            }
            Event::Credit { link, drain } => {
                for number in 0..3 {
                    let message = [7; 2_000];
                    let settled = number % 2 == 0;
                    if !matches!(connection.send(*link, 0, settled, &[&message]), Sent::Sent(_)) {
                        break;
                    }
                }
                if *drain {
                    connection.drained(*link);
                }
            }
            _ => {}
        }
    }
}

#[test]
fn a_conversation_has_everything_in_it() {
    let events = Owner::server(config("s")).feed(&conversation(1), &mut || usize::MAX);
    let has = |wanted: &str| {
        assert!(events.iter().any(|event| format!("{event:?}").starts_with(wanted)), "{wanted}: {events:?}");
    };
    for wanted in
        ["Opened", "Begun", "AttachRequested", "Credit", "Delivery", "Detached", "Ended", "Closed(ByPeer"]
    {
        has(wanted);
    }
}

#[test]
fn no_event_follows_the_end_not_even_room() {
    let mut linked = linked(Role::Receiver, config("c"), config("s"));
    linked.pair.client.grant(linked.client_link, u32::MAX);
    linked.pair.pump();
    let (server, link) = (&mut linked.pair.server, linked.server_link);
    while let Sent::Sent(_) = server.send(link, 0, true, &[&[0; 10_000]]) {}
    server.input().extend_from_slice(&[0xff; 8]);
    assert!(matches!(server.next_event(), Some(Event::Closed(_))));
    server.wrote(server.output_length());
    assert_eq!(server.next_event(), None);
}

#[test]
fn a_wrong_header_gets_the_right_one_in_pieces_as_at_once() {
    for wrong in [&b"GET / HTTP/1.1"[..], b"G"] {
        let sasl = ServerSasl { optional: false, ..ServerSasl::default() };
        let mut server = Connection::server(config("s"), sasl, Duration::ZERO);
        let init = SaslInit { mechanism: "ANONYMOUS".into(), initial_response: None, hostname: None };
        let mut body = Vec::new();
        Sasl::Init(init).write(&mut body);
        server.input().extend_from_slice(&Protocol::Sasl.header());
        server.input().extend_from_slice(&raw_peer::frame(TYPE_SASL, 0, &body));
        assert_eq!(server.next_event(), None);
        server.input().extend_from_slice(wrong);
        assert!(matches!(server.next_event(), Some(Event::Closed(_))));
        assert!(server.output().ends_with(&Protocol::Amqp.header()), "SASL is over: {wrong:?}");
    }
}
