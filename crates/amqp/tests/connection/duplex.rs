//! Tests large messages in both directions on one connection, over a transport with a small buffer.
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Event, LinkId, Sent, ServerSasl};
use ephor_amqp::driver::Driver;
use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Attach, Outcome, Role};
use tokio::io::DuplexStream;
use tokio::time::Instant;

const MIB: usize = 1 << 20;
const MESSAGES: usize = 5;

fn config(message: usize) -> Config {
    let limits =
        Limits { message: 2 * message as u64, incomplete: 2 * message.max(4 * MIB), ..Limits::default() };
    Config { limits, ..Config::new("peer") }
}

/// The messages that one side has sent and received.
#[derive(Default)]
struct Side {
    out: Option<LinkId>,
    sent: usize,
    settled: usize,
    got: usize,
    /// The highest length of its output.
    max_output: usize,
}

/// Sends messages of this size and receives those of the peer, until both have all.
async fn exchange(mut driver: Driver<DuplexStream>, asks: bool, bytes: usize) -> Side {
    let mut side = Side::default();
    let message = vec![7; bytes];
    while let Some(event) = driver.next().await {
        let connection = driver.connection();
        match event {
            Event::Opened(_) if asks => {
                let session = connection.begin().unwrap();
                side.out = connection.attach(session, Attach::sender("up", "there"));
                connection.attach(session, Attach::receiver("down", "there"));
            }
            Event::AttachRequested { link, attach, .. } => {
                connection.accept(link, attach.answer());
                match attach.role {
                    Role::Sender => connection.grant(link, 100),
                    Role::Receiver => side.out = Some(link),
                }
            }
            Event::Attached { link, attach } if attach.role == Role::Sender => connection.grant(link, 100),
            Event::Delivery(delivery) => {
                assert_eq!(delivery.payload.len(), bytes);
                connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
                side.got += 1;
            }
            Event::Settled { first, last, outcome, .. } => {
                assert_eq!(outcome, Some(Outcome::Accepted));
                side.settled += (last - first) as usize + 1;
            }
            Event::Closed(closed) => assert_eq!((side.settled, side.got), (MESSAGES, MESSAGES), "{closed:?}"),
            _ => {}
        }
        while let Some(link) = side.out.filter(|_| side.sent < MESSAGES) {
            let Sent::Sent(_) = connection.send(link, 0, false, &[&message]) else { break };
            side.sent += 1;
        }
        side.max_output = side.max_output.max(connection.output_length());
        if asks && (side.settled, side.got) == (MESSAGES, MESSAGES) {
            connection.close(None);
        }
    }
    side
}

#[tokio::test(start_paused = true)]
async fn large_messages_go_both_ways_at_once_however_little_the_transport_holds() {
    for (bytes, width) in [(MIB, 1_000), (4 * MIB, 64 << 10), (16 * MIB, 256 << 10)] {
        let (ours, theirs) = tokio::io::duplex(width);
        let client = Connection::client(config(bytes), ClientSasl::Anonymous, Duration::ZERO);
        let server = Connection::server(config(bytes), ServerSasl::default(), Duration::ZERO);
        let began = Instant::now();
        let (one, other) = tokio::join!(
            exchange(Driver::new(ours, client), true, bytes),
            exchange(Driver::new(theirs, server), false, bytes)
        );
        // Time is virtual: it passes while nothing else can happen.
        assert_eq!(began.elapsed(), Duration::ZERO, "both stopped, {bytes} bytes each, {width} on the way");
        // The limit of waiting output, and a frame.
        let most = Limits::default().output + Limits::default().frame_out as usize + 1_000;
        assert!(one.max_output.max(other.max_output) <= most, "{} {}", one.max_output, other.max_output);
    }
}
