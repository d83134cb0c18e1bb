//! Tests that truncated, changed and invented messages are decoded or refused, without a panic.

use bytes::Bytes;
use ephor_amqp::Sections;
use ephor_core::event::{NewEvent, Value};
use ephor_wire::message::{decode, encode};
use proptest::prelude::*;

/// A message with sections of every kind and lengths of both forms.
fn message() -> Vec<u8> {
    let event = NewEvent {
        body: vec![b'x'; 300].into(),
        properties: [("text", Value::from("t")), ("long", "l".repeat(300).as_str().into())]
            .into_iter()
            .collect(),
        system_properties: [
            ("note", Value::from("n")),
            ("list", Value::Encoded(Bytes::from_static(b"\xc0\x02\x01\x41"))),
            ("array", Value::Encoded(Bytes::from_static(b"\xf0\0\0\0\x09\0\0\0\x01\x70\0\0\0\x07"))),
            ("content-type", "text/plain".into()),
        ]
        .into_iter()
        .collect(),
        ..NewEvent::default()
    };
    let mut bytes = Vec::new();
    encode(&event, &mut bytes).expect("the event can be sent");
    bytes
}

#[test]
fn a_message_that_ends_too_early_is_refused_at_every_length() {
    let message = message();
    let found = Sections::scan(&message).expect("a message");
    assert!(decode(&Bytes::from(message.clone())).is_ok());
    // One that ends with a section is a message without a body.
    let before_the_body = [found.message_annotations, found.properties, found.application_properties];
    let ends = before_the_body.map(|section| section.expect("all sections").end);
    for length in 0..message.len() {
        match decode(&Bytes::copy_from_slice(&message[..length])) {
            Ok(decoded) => assert!(ends.contains(&length) && decoded.body.is_empty(), "{length}"),
            Err(malformed) => {
                assert!(!ends.contains(&length) && malformed.at <= length, "{length}: {malformed}");
            }
        }
    }
}

#[test]
fn any_byte_may_be_any_other() {
    let mut bytes = message();
    for at in 0..bytes.len() {
        let right = bytes[at];
        for wrong in 0..=u8::MAX {
            bytes[at] = wrong;
            let _ = decode(&Bytes::copy_from_slice(&bytes));
        }
        bytes[at] = right;
    }
}

#[test]
fn any_four_bytes_may_be_an_extreme_length() {
    let right = message();
    for at in 0..right.len() - 3 {
        for length in [0, 1, 3, 4, 5, 1_000_000, i32::MAX as u32, u32::MAX - 1, u32::MAX] {
            let mut bytes = right.clone();
            bytes[at..at + 4].copy_from_slice(&length.to_be_bytes());
            let _ = decode(&Bytes::from(bytes));
        }
    }
}

#[test]
fn no_length_of_a_section_can_be_another() {
    let message = message();
    // Every section's length, found by its descriptor and the format code after it.
    let mut lengths = Vec::new();
    for at in 0..message.len() - 4 {
        match message[at..at + 4] {
            [0x00, 0x53, 0x70..=0x78, 0xa0 | 0xc0 | 0xc1] => lengths.push(at + 4..at + 5),
            [0x00, 0x53, 0x70..=0x78, 0xb0 | 0xd0 | 0xd1] => lengths.push(at + 4..at + 8),
            _ => {}
        }
    }
    assert_eq!(lengths.len(), 4);
    for at in lengths.into_iter().flatten() {
        for change in 1..=u8::MAX {
            let mut bytes = message.clone();
            bytes[at] ^= change;
            assert!(decode(&Bytes::from(bytes)).is_err(), "byte {at} with {change:#04x} changed");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 4_000, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_changed_message_is_refused_or_read(
        event in crate::common::event(),
        changes in proptest::collection::vec((any::<proptest::sample::Index>(), any::<u8>()), 1..8),
        cut in proptest::option::of(any::<proptest::sample::Index>()),
    ) {
        let mut bytes = Vec::new();
        encode(&event, &mut bytes).unwrap();
        for (index, byte) in changes {
            let at = index.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        if let Err(malformed) = decode(&Bytes::from(bytes.clone())) {
            prop_assert!(malformed.at <= bytes.len());
        }
    }

    #[test]
    fn arbitrary_bytes_are_refused_or_read(
        section in 0x70u8..=0x78,
        mut bytes in proptest::collection::vec(any::<u8>(), 0..80),
    ) {
        let _ = decode(&Bytes::from(bytes.clone()));
        bytes.splice(0..0, [0x00, 0x53, section]);
        let _ = decode(&Bytes::from(bytes));
    }
}
