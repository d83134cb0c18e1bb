//! Tests that every section of a message is validated, and that the valid part of an invalid message can be
//! kept.
#![allow(clippy::unwrap_used, reason = "a test that unwraps says where it failed")]

use ephor_amqp::validate::{keep_valid, validate};
use ephor_amqp::{Sections, Value, encode};

const DATA: &[u8] = b"\x00\x53\x75\xa0\x03abc";

/// A section with this value.
fn section(descriptor: u8, value: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, descriptor][..], value].concat()
}

fn list(items: &[Value<'_>]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let begun = encode::begin(&mut bytes);
    items.iter().for_each(|item| encode::value(&mut bytes, *item));
    encode::end_list(&mut bytes, begun, items.len());
    bytes
}

fn map(pairs: &[(Value<'_>, Value<'_>)]) -> Vec<u8> {
    let mut bytes = Vec::new();
    let begun = encode::begin(&mut bytes);
    for (key, value) in pairs {
        encode::value(&mut bytes, *key);
        encode::value(&mut bytes, *value);
    }
    encode::end_map(&mut bytes, begun, pairs.len());
    bytes
}

/// Nested lists.
fn nested(levels: usize) -> Vec<u8> {
    (0..levels).fold(vec![0x45], |inside, _| list(&[Value::Encoded(&inside)]))
}

/// The section in its place, before or after a body of bytes.
fn around_a_body(section: &[u8]) -> Vec<u8> {
    if section[2] == 0x78 { [DATA, section].concat() } else { [section, DATA].concat() }
}

fn header(fields: &[Value<'_>]) -> Vec<u8> {
    section(0x70, &list(fields))
}

#[test]
fn a_header_has_five_fields_of_their_types_or_null() {
    let (yes, priority, ttl) = (Value::Bool(true), Value::Ubyte(4), Value::Uint(70_000));
    for good in [&[][..], &[yes], &[Value::Null, priority], &[yes, priority, ttl, yes, Value::Uint(0)]] {
        validate(&around_a_body(&header(good))).unwrap();
    }
    let bad: &[&[Value<'_>]] = &[
        &[Value::String("yes")],
        &[Value::Uint(1)],
        &[yes, Value::Uint(4)],
        &[yes, Value::Byte(4)],
        &[yes, priority, Value::Ulong(1)],
        &[yes, priority, Value::Timestamp(1)],
        &[yes, priority, ttl, Value::Ubyte(1)],
        &[yes, priority, ttl, yes, Value::Int(1)],
        &[yes, priority, ttl, yes, Value::Encoded(&[0x45])],
    ];
    for bad in bad {
        let refused = validate(&around_a_body(&header(bad))).unwrap_err();
        assert_eq!(refused.what, "not the type of this field", "{bad:?}");
    }
    let six = header(&[Value::Null; 6]);
    assert_eq!(validate(&around_a_body(&six)).unwrap_err().what, "more fields than this section has");
}

#[test]
fn properties_have_thirteen_fields_of_their_types_or_null() {
    let all = [
        Value::Uuid([7; 16]),
        Value::Binary(b"me"),
        Value::String("to"),
        Value::String("subject"),
        Value::String("reply-to"),
        Value::Ulong(9),
        Value::Symbol("text/plain"),
        // Some libraries write a string where the specification demands a symbol.
        Value::String("gzip"),
        Value::Timestamp(1),
        Value::Timestamp(2),
        Value::String("group"),
        Value::Uint(3),
        Value::String("reply-to-group"),
    ];
    validate(&around_a_body(&section(0x73, &list(&all)))).unwrap();
    for (index, name) in all.iter().enumerate() {
        let mut fields = all;
        fields[index] = Value::Double(1.5);
        let refused = validate(&around_a_body(&section(0x73, &list(&fields)))).unwrap_err();
        assert_eq!(refused.what, "not the type of this field", "{name:?}");
        fields[index] = Value::Null;
        validate(&around_a_body(&section(0x73, &list(&fields)))).unwrap();
    }
    let more = section(0x73, &list(&[Value::Null; 14]));
    assert_eq!(validate(&around_a_body(&more)).unwrap_err().what, "more fields than this section has");
}

#[test]
fn the_keys_of_maps_are_names() {
    let pair = |key| map(&[(key, Value::Null)]);
    for descriptor in [0x71, 0x72, 0x74, 0x78] {
        let of = |key| around_a_body(&section(descriptor, &pair(key)));
        validate(&of(Value::Symbol("name"))).unwrap();
        validate(&of(Value::String("name"))).unwrap();
        for key in [Value::Null, Value::Int(1), Value::Binary(b"name"), Value::Encoded(&[0x45])] {
            let refused = validate(&of(key)).unwrap_err();
            assert_eq!(refused.what, "not the type of a key of this section", "{descriptor:x} {key:?}");
        }
        assert_eq!(validate(&of(Value::Ulong(5))).is_ok(), descriptor != 0x74);
    }
}

#[test]
fn values_in_maps_and_bodies_are_looked_into() {
    for (what, value) in [
        ("nested too deeply", nested(40)),
        ("unknown format code", vec![0xc0, 2, 1, 0x47]),
        ("bytes after the last item", vec![0xc0, 3, 1, 0x40, 0x40]),
        ("more items than bytes", vec![0xd1, 0, 0, 0, 6, 255, 255, 255, 254, 0x40, 0x40]),
        ("too many elements that take no bytes", vec![0xf0, 0, 0, 0, 5, 255, 255, 255, 255, 0x40]),
    ] {
        let held = map(&[(Value::Symbol("k"), Value::Encoded(&value))]);
        for descriptor in [0x71, 0x72, 0x74, 0x78] {
            let message = around_a_body(&section(descriptor, &held));
            Sections::scan(&message).unwrap();
            let refused = validate(&message).unwrap_err();
            assert_eq!(refused.what, what, "{descriptor:x}");
            assert!(refused.at < message.len());
        }
        assert_eq!(validate(&section(0x77, &value)).unwrap_err().what, what);
    }
    // Nested lists in an amqp-sequence body.
    assert_eq!(validate(&section(0x76, &nested(40))).unwrap_err().what, "nested too deeply");
    validate(&section(0x76, &nested(20))).unwrap();
}

#[test]
fn a_valid_message_is_kept_as_it_is() {
    let message = [
        header(&[Value::Bool(true)]),
        section(0x71, &map(&[(Value::Symbol("d"), Value::Null)])),
        section(0x72, &map(&[(Value::Symbol("m"), Value::Int(1))])),
        section(0x73, &list(&[Value::String("id")])),
        section(0x74, &map(&[(Value::String("p"), Value::Encoded(&nested(10)))])),
        DATA.to_vec(),
        section(0x78, &map(&[(Value::Symbol("f"), Value::Null)])),
    ]
    .concat();
    assert_eq!(keep_valid(&message), (message.as_slice().into(), None));
}

#[test]
fn of_an_invalid_message_every_other_section_is_kept() {
    let footer = section(0x78, &map(&[(Value::Symbol("f"), Value::Null)]));
    let bad_header = header(&[Value::String("yes")]);
    let properties = section(0x73, &list(&[Value::String("id")]));
    let bad_footer = section(0x78, &map(&[(Value::Symbol("f"), Value::Encoded(&nested(1_000)))]));
    let kept = |message: &[&[u8]]| {
        let message = message.concat();
        let (kept, malformed) = keep_valid(&message);
        assert!(malformed.is_some());
        validate(&kept).unwrap();
        kept.into_owned()
    };
    assert_eq!(kept(&[&bad_header, &properties, DATA, &footer]), [&properties, DATA, &footer].concat());
    assert_eq!(kept(&[&properties, DATA, &bad_footer]), [&properties, DATA].concat());
    // Azure's Python SDK writes delivery annotations last.
    let late = section(0x71, &map(&[(Value::Symbol("d"), Value::Null)]));
    assert_eq!(kept(&[&bad_header, DATA, &footer, &late]), [DATA, &footer, &late].concat());
    assert_eq!(kept(&[DATA, &bad_footer, &late]), [DATA, &late].concat());
}

#[test]
fn what_cannot_be_decoded_becomes_a_body_of_bytes() {
    let properties = section(0x73, &list(&[Value::String("id")]));
    let body = section(0x77, &nested(100));
    for (message, head, bytes) in [
        ([properties.as_slice(), &body].concat(), properties.as_slice(), body.as_slice()),
        (b"no message".to_vec(), b"", b"no message"),
        (Vec::new(), b"", b""),
        ([DATA, b"\x40"].concat(), b"", &[DATA, b"\x40"].concat()),
    ] {
        let (kept, malformed) = keep_valid(&message);
        assert!(malformed.is_some());
        let found = validate(&kept).unwrap();
        assert_eq!(&kept[..found.body.whole.start], head);
        assert_eq!(&kept[found.body.content], bytes);
    }
}
