//! Messages that are nested a hundred thousand levels deep, or claim to be huge: they are rejected, and their
//! links go on.

use ephor_amqp::connection::Event;
use ephor_amqp::performative::{Attach, Outcome};
use ephor_core::event::NewEvent;
use ephor_wire::batch::MESSAGE_FORMAT;

use crate::client::{Client, encoded, rejection};
use crate::process::{MIB, alone, memory, run};
use crate::server::{HUB, Server};

const LEVELS: usize = 100_000;

/// Lists in lists.
fn lists(levels: usize) -> Vec<u8> {
    let mut nested = Vec::new();
    for level in 0..levels {
        nested.push(0xd0);
        nested.extend((4 + 9 * (levels - level - 1) as u32 + 1).to_be_bytes());
        nested.extend(1u32.to_be_bytes());
    }
    nested.push(0x45);
    nested
}

/// A section of a message.
fn section(descriptor: u8, value: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, descriptor][..], value].concat()
}

/// A map, list or array of four billion, in few bytes.
fn counted(code: u8) -> Vec<u8> {
    vec![code, 0, 0, 0, 6, 255, 255, 255, 255, 0x40, 0x40]
}

fn bad_messages() -> Vec<(&'static str, Vec<u8>)> {
    let data = section(0x75, &[0xa0, 1, b'x']);
    let with = |mut section: Vec<u8>| {
        section.extend(&data);
        section
    };
    vec![
        ("a body of lists in lists", section(0x77, &lists(LEVELS))),
        ("a body of descriptors of descriptors", section(0x77, &vec![0x00; LEVELS])),
        ("annotations that are lists in lists", with(section(0x72, &lists(LEVELS)))),
        ("properties of four billion", with(section(0x73, &counted(0xd0)))),
        ("annotations of four billion", with(section(0x72, &counted(0xd1)))),
        ("application properties of four billion", with(section(0x74, &counted(0xd1)))),
        ("a body of four billion", section(0x77, &counted(0xd0))),
        ("an array of four billion", section(0x77, &counted(0xf0))),
        ("a symbol of four gigabytes", section(0x77, &[0xb3, 255, 255, 255, 255, b'x'])),
        ("data of minus one byte", section(0x75, &[0xb0, 255, 255, 255, 255, b'x'])),
    ]
}

#[test]
fn a_message_that_is_nested_too_deeply_or_claims_too_much_is_rejected() {
    let _alone = alone();
    run(async {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        let sender = client.sender(HUB).await;
        let before = memory();
        for (what, message) in bad_messages() {
            let rejected = client.send(sender, 0, &message).await;
            assert_eq!(rejection(rejected).0, "com.microsoft:argument-error", "{what}");
            // The same as one event of a batch, whose envelope is fine.
            let mut batch = vec![0x00, 0x53, 0x75, 0xb0];
            batch.extend((message.len() as u32).to_be_bytes());
            batch.extend(&message);
            let rejected = client.send(sender, MESSAGE_FORMAT, &batch).await;
            assert_eq!(rejection(rejected).0, "com.microsoft:argument-error", "{what}, in a batch");
        }
        assert!(memory().saturating_sub(before) < 32 * MIB);
        let good = encoded(&NewEvent::new("x"));
        assert_eq!(client.send(sender, 0, &good).await, Outcome::Accepted);
    });
}

#[test]
fn a_request_that_is_nested_too_deeply_is_rejected() {
    let _alone = alone();
    run(async {
        let server = Server::start().await;
        let mut stranger = Client::stranger(server.address).await;
        for node in ["$cbs", "$management"] {
            let (link, _) = stranger.attach(Attach::sender(format!("to {node}"), node)).await.unwrap();
            while stranger.connection().credit(link) == 0 {
                stranger.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
            }
            for request in
                [section(0x74, &lists(7_000)), section(0x74, &[0; 60_000]), section(0x74, &counted(0xd1))]
            {
                let rejected = stranger.send(link, 0, &request).await;
                assert_eq!(rejection(rejected).0, "amqp:decode-error");
            }
        }
        assert_eq!(stranger.put_development_token().await.0, 202);
    });
}
