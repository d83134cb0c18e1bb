//! Measures the time that a client takes to send a message and a server takes to receive it, through the
//! connection state machines, without a socket; for messages of four sizes.
//!
//! `cargo run --release -p ephor-amqp --example transfer_cost`

#![allow(clippy::print_stdout, clippy::disallowed_methods, reason = "it measures and prints")]

use std::time::{Duration, Instant};

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Config, Event, LinkId, Sent, ServerSasl};
use ephor_amqp::performative::Attach;

const MESSAGES: usize = 2_000_000;
const BATCH: usize = 64;

fn carry(from: &mut Connection, to: &mut Connection) {
    let bytes = from.output();
    to.input().extend_from_slice(bytes);
    let length = bytes.len();
    from.wrote(length);
}

/// A sender with the largest possible credit, and its receiver.
fn linked() -> (Connection, LinkId, Connection) {
    let mut client = Connection::client(Config::new("c"), ClientSasl::Skip, Duration::ZERO);
    let mut server = Connection::server(Config::new("s"), ServerSasl::default(), Duration::ZERO);
    let mut link = None;
    loop {
        carry(&mut client, &mut server);
        while let Some(event) = server.next_event() {
            if let Event::AttachRequested { link, attach, .. } = event {
                server.accept(link, attach.answer());
                server.grant(link, u32::MAX);
            }
        }
        carry(&mut server, &mut client);
        while let Some(event) = client.next_event() {
            match event {
                Event::Opened(_) => {
                    let session = client.begin().expect("a session");
                    link = client.attach(session, Attach::sender("l", "there"));
                }
                Event::Credit { .. } => return (client, link.expect("a link"), server),
                _ => {}
            }
        }
    }
}

fn main() {
    for size in [0, 100, 1_024, 16_384] {
        let message = vec![7; size];
        let (mut client, link, mut server) = linked();
        let (mut encoding, mut carrying, mut decoding) = (Vec::new(), Vec::new(), Vec::new());
        let mut received = 0;
        let messages = MESSAGES.min(2_000_000_000 / (size + 100));
        while received < messages {
            let start = Instant::now();
            let mut sent = 0;
            while sent < BATCH
                && let Sent::Sent(_) = client.send(link, 0, true, &[&message])
            {
                sent += 1;
            }
            let encoded = Instant::now();
            carry(&mut client, &mut server);
            let copied = Instant::now();
            while let Some(event) = server.next_event() {
                if let Event::Delivery(delivery) = event {
                    received += 1;
                    assert_eq!(delivery.payload.len(), size);
                }
            }
            if sent > 0 {
                let each = |time: Duration| time.as_nanos() as f64 / sent as f64;
                decoding.push(each(copied.elapsed()));
                encoding.push(each(encoded - start));
                carrying.push(each(copied - encoded));
            }
            carry(&mut server, &mut client);
            while client.next_event().is_some() {}
        }
        println!(
            "{size:6} bytes: encode {:6.1} ns, decode {:6.1} ns (and {:6.1} ns to carry)",
            median(encoding),
            median(decoding),
            median(carrying)
        );
    }
}

/// The median, so that a few batches that other processes delay do not count.
fn median(mut times: Vec<f64>) -> f64 {
    times.sort_by(f64::total_cmp);
    times[times.len() / 2]
}
