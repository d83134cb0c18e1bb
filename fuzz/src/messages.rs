//! Fuzzes the decoding of AMQP messages to events, in strict and in lenient mode.

use bytes::Bytes;
use ephor_amqp::Sections;
use ephor_amqp::validate::validate;
use ephor_core::event::NewEvent;
use ephor_wire::message::{Decoded, decode, decode_leniently, encode, size_bound};

/// Runs one input.
pub fn run(data: &[u8]) {
    let message = Bytes::copy_from_slice(data);
    let strict = decode(&message);
    let Ok(sections) = Sections::scan(&message) else {
        return assert!(strict.is_err(), "a message without valid sections cannot be decoded");
    };
    let lenient = decode_leniently(&message, &sections);
    assert!(lenient.body.len() <= message.len());
    match strict {
        Ok(decoded) => {
            let properties = decoded.properties.iter().count() + decoded.system_properties.iter().count();
            assert!(properties <= data.len(), "more properties than bytes");
            // Compared as text, since NaN is not equal to itself.
            assert_eq!(format!("{lenient:?}"), format!("{decoded:?}"), "the lenient reader returns the same");
            encode_again(decoded);
        }
        Err(malformed) => {
            assert!(malformed.at <= data.len(), "{malformed}");
            assert!(lenient.properties.is_empty() && lenient.system_properties.is_empty());
        }
    }
}

/// An event that can be encoded is decoded unchanged.
fn encode_again(decoded: Decoded) {
    let Some((event, first)) = encoded(decoded) else { return };
    validate(&first).expect("every section of an encoded event is valid");
    assert!(first.len() <= size_bound(&event), "the size is within its bound");
    let again = decode(&Bytes::from(first.clone())).expect("an encoded event can be decoded");
    assert_eq!(again.body, event.body);
    let (_, second) = encoded(again).expect("a decoded event can be encoded");
    assert_eq!(first, second);
}

fn encoded(decoded: Decoded) -> Option<(NewEvent, Vec<u8>)> {
    let Decoded { body, properties, system_properties } = decoded;
    let event = NewEvent { body, partition_key: None, properties, system_properties };
    let mut bytes = b"before".to_vec();
    let written = encode(&event, &mut bytes);
    assert!(bytes.starts_with(b"before"));
    if written.is_err() {
        assert_eq!(bytes.len(), 6, "a refused event leaves nothing");
        return None;
    }
    Some((event, bytes.split_off(6)))
}
