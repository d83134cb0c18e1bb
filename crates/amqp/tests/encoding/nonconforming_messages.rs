//! Tests that nonconforming messages, which some libraries write and others cannot read, are corrected or
//! refused.

use std::borrow::Cow;

use ephor_amqp::validate::{conform, keep_valid, validate};
use ephor_amqp::{Value, encode};

const DATA: &[u8] = b"\x00\x53\x75\xa0\x03abc";

/// A header with a text in the place of a boolean.
const BAD_HEADER: &[u8] = b"\x00\x53\x70\xc0\x06\x01\xa1\x03yes";

/// A section with this value.
fn section(descriptor: u8, value: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, descriptor][..], value].concat()
}

/// A map with one pair.
fn map(key: Value<'_>, value: Value<'_>) -> Vec<u8> {
    let mut bytes = Vec::new();
    let begun = encode::begin(&mut bytes);
    encode::value(&mut bytes, key);
    encode::value(&mut bytes, value);
    encode::end_map(&mut bytes, begun, 1);
    bytes
}

#[test]
fn a_message_without_a_body_gets_an_empty_one() {
    let properties = section(0x74, &map(Value::String("a"), Value::Uint(1)));
    let footer = section(0x78, &map(Value::Symbol("f"), Value::Null));
    let late = section(0x71, &map(Value::Symbol("d"), Value::Null));
    let empty: &[u8] = b"\x00\x53\x75\xa0\x00";
    let nothing = Vec::new();
    for (before, after) in
        [(&properties, &nothing), (&properties, &footer), (&properties, &late), (&nothing, &footer)]
    {
        let message = [&before[..], after].concat();
        assert_eq!(validate(&message).unwrap_err().what, "a message without a body");
        let expected = [&before[..], empty, after].concat();
        assert_eq!(conform(&message).unwrap(), expected);
        assert_eq!(keep_valid(&message), (Cow::Owned(expected.clone()), None));
        validate(&expected).unwrap();
    }
    // Also if something else cannot be kept.
    let (kept, malformed) = keep_valid(BAD_HEADER);
    assert_eq!(kept, empty);
    assert!(malformed.is_some());
}

#[test]
fn data_that_is_null_becomes_a_value() {
    let properties = section(0x74, &map(Value::String("a"), Value::Uint(1)));
    let footer = section(0x78, &map(Value::Symbol("f"), Value::Null));
    let with = |body: &[u8]| [&properties[..], body, &footer].concat();
    assert_eq!(conform(&with(b"\x00\x53\x75\x40")).unwrap(), with(b"\x00\x53\x77\x40"));
    validate(&with(b"\x00\x53\x77\x40")).unwrap();
    // Also if something else has to be changed; and only if it is the whole body.
    let early = [&footer[..], b"\x00\x53\x75\x40"].concat();
    assert_eq!(conform(&early).unwrap(), [b"\x00\x53\x77\x40", &footer[..]].concat());
    for body in
        [&b"\x00\x53\x75\x40\x00\x53\x75\x40"[..], b"\x00\x53\x75\xa0\0\x00\x53\x75\x40", b"\x00\x53\x75\x41"]
    {
        assert!(conform(body).is_err(), "{body:02x?}");
    }
}

#[test]
fn bytes_that_were_written_as_the_text_of_a_property_become_binary() {
    let other = [&b"\xa1\x05other"[..], b"\x41"].concat();
    let values: [(&[u8], &[u8]); 2] = [
        (b"\xa1\x03\xff\xfe\x80", b"\xa0\x03\xff\xfe\x80"),
        (b"\xb1\0\0\0\x03\xff\xfe\x80", b"\xb0\0\0\0\x03\xff\xfe\x80"),
    ];
    for (text, binary) in values {
        let with = |value: &[u8]| {
            let pairs = [b"\xa1\x01k", value, &other].concat();
            let head = [0x00, 0x53, 0x74, 0xc1, pairs.len() as u8 + 1, 4];
            [&head[..], &pairs, DATA].concat()
        };
        let message = with(text);
        assert_eq!(validate(&message).unwrap_err().what, "text that is not UTF-8");
        assert_eq!(conform(&message).unwrap(), with(binary));
        // Beside an invalid section.
        let bad = [BAD_HEADER, &message].concat();
        assert_eq!(keep_valid(&bad).0, with(binary));
    }
}

#[test]
fn text_elsewhere_that_is_not_utf_8_is_refused() {
    let value: &[u8] = b"\xa1\x01\xff";
    for (descriptor, pair) in [
        (0x74, [value, b"\x41"].concat()),
        (0x74, [b"\xa1\x01k", &b"\xa3\x01\xff"[..]].concat()),
        (0x72, [b"\xa3\x01k", value].concat()),
        (0x71, [b"\xa3\x01k", value].concat()),
    ] {
        let map = [&[0xc1, pair.len() as u8 + 1, 2][..], &pair].concat();
        let message = [section(descriptor, &map), DATA.to_vec()].concat();
        assert_eq!(conform(&message).unwrap_err().what, "text that is not UTF-8", "{descriptor:x}");
    }
    let subject = [&b"\xc0\x07\x04\x40\x40\x40"[..], value].concat();
    let message = [section(0x73, &subject), DATA.to_vec()].concat();
    assert_eq!(conform(&message).unwrap_err().what, "text that is not UTF-8");
}
