//! Tests of messages that are nested a hundred thousand levels deep, claim to be huge, or have sections
//! that readers cannot decode: they are rejected, and their links stay attached.

use ephor_amqp::connection::Event;
use ephor_amqp::performative::{Attach, Outcome};
use ephor_core::event::NewEvent;
use ephor_wire::batch::MESSAGE_FORMAT;

use crate::client::{Client, encoded, rejection};
use crate::process_resources::{MIB, alone, memory, run};
use crate::server::{HUB, Server};

const LEVELS: usize = 100_000;

/// Nested lists.
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

/// A map, list or array that claims four billion items, in few bytes.
fn counted(code: u8) -> Vec<u8> {
    vec![code, 0, 0, 0, 6, 255, 255, 255, 255, 0x40, 0x40]
}

/// A map of one symbol and this value.
fn map(value: &[u8]) -> Vec<u8> {
    let size = (4 + 3 + value.len()) as u32;
    [&[0xd1][..], &size.to_be_bytes(), &2u32.to_be_bytes(), b"\xa3\x01k", value].concat()
}

/// An array of 255 nulls.
const NULLS: [u8; 4] = [0xe0, 2, 255, 0x40];

/// A list of so many arrays of 255 nulls.
fn bomb(arrays: usize) -> Vec<u8> {
    let size = (4 + 4 * arrays) as u32;
    [&[0xd0][..], &size.to_be_bytes(), &(arrays as u32).to_be_bytes(), &NULLS.repeat(arrays)].concat()
}

/// An array of so many arrays of 255 nulls.
fn array_bomb(arrays: usize) -> Vec<u8> {
    let (size, elements) = ((5 + 3 * arrays) as u32, NULLS[1..].repeat(arrays));
    [&[0xf0][..], &size.to_be_bytes(), &(arrays as u32).to_be_bytes(), &[0xe0], &elements].concat()
}

/// Sections that can stand before or after a body, each with something invalid in it.
fn bad_sections() -> Vec<(&'static str, Vec<u8>)> {
    let described = [[0x00, 0x44].repeat(LEVELS), vec![0x40]].concat();
    let nulls = [0xf0, 0, 0, 0, 5, 255, 255, 255, 255, 0x40];
    vec![
        ("a header of lists in lists", section(0x70, &lists(LEVELS))),
        ("a header of four billion", section(0x70, &counted(0xd0))),
        ("a header with an unknown format code", section(0x70, b"\xc0\x02\x01\x47")),
        ("a header whose durable is a number", section(0x70, b"\xc0\x03\x01\x50\x01")),
        ("a header whose priority is of 32 bits", section(0x70, b"\xc0\x04\x02\x41\x52\x04")),
        ("a header whose ttl is of 64 bits", section(0x70, b"\xc0\x05\x03\x40\x40\x53\x04")),
        ("a header whose first-acquirer is text", section(0x70, b"\xc0\x07\x04\x40\x40\x40\xa1\x01y")),
        ("a header whose delivery-count is signed", section(0x70, b"\xc0\x07\x05\x40\x40\x40\x40\x54\x01")),
        ("a header of six fields", section(0x70, b"\xc0\x07\x06\x40\x40\x40\x40\x40\x40")),
        ("delivery annotations of lists in lists", section(0x71, &map(&lists(LEVELS)))),
        ("delivery annotations of four billion nulls", section(0x71, &map(&nulls))),
        ("annotations that are described again and again", section(0x72, &map(&described))),
        ("annotations of four billion nulls", section(0x72, &map(&nulls))),
        ("properties of fourteen fields", section(0x73, &[vec![0xc0, 15, 14], vec![0x40; 14]].concat())),
        ("properties whose message-id is a list", section(0x73, b"\xc0\x02\x01\x45")),
        ("an application property without a name", section(0x74, b"\xc1\x03\x02\x40\x40")),
        ("application properties of lists in lists", section(0x74, &map(&lists(LEVELS)))),
        ("a footer of lists in lists", section(0x78, &map(&lists(LEVELS)))),
        ("a footer that is described again and again", section(0x78, &map(&described))),
        ("a footer of four billion", section(0x78, &counted(0xd1))),
        ("a footer of four billion nulls", section(0x78, &map(&nulls))),
        ("a footer with an unknown format code", section(0x78, &map(&[0x47]))),
        ("delivery annotations of 66 million nulls", section(0x71, &map(&bomb(200_000)))),
        ("annotations of 66 million nulls", section(0x72, &map(&bomb(200_000)))),
        ("application properties of 66 million nulls", section(0x74, &map(&bomb(200_000)))),
        ("a footer of 66 million nulls", section(0x78, &map(&bomb(200_000)))),
        ("an application property that is a list", section(0x74, b"\xc1\x05\x02\xa1\x01k\x45")),
        ("annotations that are described by null", section(0x72, &map(&[0x00, 0x40, 0x40]))),
        ("a footer whose key is a list", section(0x78, b"\xc1\x03\x02\x45\x40")),
    ]
}

fn bad_messages() -> Vec<(&'static str, Vec<u8>)> {
    let data = section(0x75, &[0xa0, 1, b'x']);
    let with = |mut section: Vec<u8>| {
        section.extend(&data);
        section
    };
    let header = section(0x70, &[0x45]);
    let footer = section(0x78, &[0xc1, 1, 0]);
    let around = bad_sections().into_iter().map(|(what, section)| match section[2] {
        0x78 => (what, [&data[..], &section].concat()),
        _ => (what, with(section)),
    });
    let mut messages = vec![
        ("a header twice", [&header[..], &header, &data].concat()),
        ("a header behind the body", [&data[..], &header].concat()),
        ("a footer twice", [&data[..], &footer, &footer].concat()),
        ("a footer before and after the body", [&footer[..], &data, &footer].concat()),
        ("properties before the header", [&section(0x73, &[0x45])[..], &header, &data].concat()),
        (
            "a body that is described again and again",
            section(0x77, &[[0x00, 0x44].repeat(LEVELS), vec![0x40]].concat()),
        ),
        ("a body of four billion nulls", section(0x77, &[0xf0, 0, 0, 0, 5, 255, 255, 255, 255, 0x40])),
        ("a body of 66 million nulls", section(0x77, &bomb(260_000))),
        ("a body of 76 million nulls in arrays of an array", section(0x77, &array_bomb(300_000))),
        ("a body of lists in lists", section(0x77, &lists(LEVELS))),
        ("a body that is described by null", section(0x77, &[0x00, 0x40, 0x40])),
        ("a body of descriptors of descriptors", section(0x77, &vec![0x00; LEVELS])),
        ("annotations that are lists in lists", with(section(0x72, &lists(LEVELS)))),
        ("properties of four billion", with(section(0x73, &counted(0xd0)))),
        ("annotations of four billion", with(section(0x72, &counted(0xd1)))),
        ("application properties of four billion", with(section(0x74, &counted(0xd1)))),
        ("a body of four billion", section(0x77, &counted(0xd0))),
        ("an array of four billion", section(0x77, &counted(0xf0))),
        ("a symbol of four gigabytes", section(0x77, &[0xb3, 255, 255, 255, 255, b'x'])),
        ("data of minus one byte", section(0x75, &[0xb0, 255, 255, 255, 255, b'x'])),
    ];
    messages.extend(around);
    messages
}

#[test]
fn a_message_with_anything_that_readers_cannot_decode_is_rejected() {
    let _alone = alone();
    run(async {
        let server = Server::start().await;
        let mut client = Client::of(&server).await;
        let sender = client.sender(HUB).await;
        let before = memory();
        for (what, message) in bad_messages() {
            let rejected = client.send(sender, 0, &message).await;
            assert_eq!(rejection(rejected).0, "com.microsoft:argument-error", "{what}");
            // The same as one event of a batch, whose envelope is valid.
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
        let mut unauthenticated = Client::unauthenticated(server.address).await;
        for node in ["$cbs", "$management"] {
            let (link, _) = unauthenticated.attach(Attach::sender(format!("to {node}"), node)).await.unwrap();
            while unauthenticated.connection().credit(link) == 0 {
                unauthenticated.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
            }
            for request in
                [section(0x74, &lists(7_000)), section(0x74, &[0; 60_000]), section(0x74, &counted(0xd1))]
            {
                let rejected = unauthenticated.send(link, 0, &request).await;
                assert_eq!(rejection(rejected).0, "amqp:decode-error");
            }
        }
        assert_eq!(unauthenticated.put_development_token().await.0, 202);
    });
}
