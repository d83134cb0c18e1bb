//! Seeds for the fuzz corpus: recorded conversations between Ephor's client and Ephor's server.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Event, Sent};
use ephor_amqp::performative::{Attach, Error, Outcome, Role, Secret};
use ephor_fuzz::connection::{Owner, Setup, Side};

use crate::Seeds;

/// The number of turns until the client disconnects, link by link.
const TURNS: usize = 6;

fn sasl(bits: u8) -> ClientSasl {
    match bits & 3 {
        0 => ClientSasl::Anonymous,
        1 => ClientSasl::Skip,
        _ => ClientSasl::Plain { user: "me".into(), password: Secret::new(*b"secret") },
    }
}

/// The bits of a server that a client with these bits can talk to: it accepts every SASL client, or asks its
/// owner, or requires SASL.
fn of_server(bits: u8) -> u8 {
    match bits & 3 {
        1 => bits & !3,
        sasl => bits & !3 | (sasl + 1),
    }
}

/// Records the bytes of client and server, with these bits for both.
fn record(bits: u8) -> (Vec<u8>, Vec<u8>) {
    let mut random = fastrand::Rng::with_seed(bits.into());
    let mut server = Owner::new(Setup { side: Side::Server, bits: of_server(bits) });
    let mut client = Connection::client(Config::new("there"), sasl(bits), Duration::ZERO);
    let (mut said, mut answered) = (Vec::new(), Vec::new());
    let (mut senders, mut sessions) = (Vec::new(), Vec::new());
    for turn in 0.. {
        let bytes = client.output().to_vec();
        client.wrote(bytes.len());
        said.extend(&bytes);
        server.hear(&bytes);
        let before = answered.len();
        server.write(&mut answered);
        client.input().extend_from_slice(&answered[before..]);
        while let Some(event) = client.next_event() {
            match event {
                Event::Opened(_) => {
                    for name in ["a", "b"] {
                        let session = client.begin().expect("a session");
                        sessions.push(session);
                        senders.extend(client.attach(session, Attach::sender(name, "there")));
                        client.attach(session, Attach::receiver(name, "back"));
                    }
                }
                Event::Attached { link, attach } if attach.role == Role::Sender => client.grant(link, 5),
                Event::Delivery(delivery) if !delivery.settled => {
                    client.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
                }
                Event::Closed(_) => return (said, answered),
                _ => {}
            }
        }
        for &link in &senders {
            let message = vec![turn as u8; random.usize(0..900)];
            let _: Sent = client.send(link, 0, random.bool(), &[&message]);
        }
        match turn {
            TURNS => client.detach(senders[0], Some(Error::new("amqp:x", "enough"))),
            7 => client.end(sessions[1], None),
            8 => client.close(None),
            _ => assert!(turn < 100, "the conversation does not end"),
        }
    }
    unreachable!("it ends with the connection")
}

const BITS: [u8; 6] = [0, 1, 2 + 4, 8, 16 + 32, 64];

pub(crate) fn said_to_a_server() -> Seeds {
    BITS.into_iter()
        .map(|bits| (format!("{bits:02}"), [vec![of_server(bits)], record(bits).0].concat()))
        .collect()
}

pub(crate) fn said_to_a_client() -> Seeds {
    BITS.into_iter().map(|bits| (format!("{bits:02}"), [vec![bits], record(bits).1].concat())).collect()
}
