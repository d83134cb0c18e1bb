//! Test helper: generates events of every kind that can be sent.

use std::collections::BTreeMap;

use bytes::Bytes;
use ephor_core::event::{NewEvent, Properties, Value};
use ephor_core::time::Timestamp;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;

fn text() -> impl Strategy<Value = String> {
    prop_oneof![8 => any::<String>(), 1 => Just("x".repeat(255)), 1 => Just("é".repeat(200))]
}

fn bytes() -> impl Strategy<Value = Bytes> {
    prop_oneof![8 => vec(any::<u8>(), 0..40), 1 => vec(any::<u8>(), 250..260)].prop_map(Bytes::from)
}

/// Values without a variant of their own, which stay encoded; the simple ones come first.
const ENCODED: [&[u8]; 6] = [
    b"\x74\x01\x02\x03\x04",
    b"\x00\xa3\x01x\xa1\x01y",
    b"\x45",
    b"\xc0\x02\x01\x41",
    b"\xc1\x05\x02\xa3\x01k\x40",
    b"\xe0\x06\x02\xa3\x01a\x01b",
];
const SIMPLE: usize = 2;

fn value(encoded: &'static [&'static [u8]]) -> impl Strategy<Value = Value> {
    prop_oneof![
        Just(Value::Null),
        any::<bool>().prop_map(Value::Bool),
        prop_oneof![any::<i64>(), -200..200_i64].prop_map(Value::Int),
        prop_oneof![any::<u64>(), 0..300_u64].prop_map(Value::UInt),
        (proptest::num::f64::NORMAL | proptest::num::f64::ZERO | proptest::num::f64::INFINITE)
            .prop_map(Value::Float),
        text().prop_map(|text| Value::Text(text.into())),
        bytes().prop_map(Value::Bytes),
        any::<i64>().prop_map(|time| Value::Time(Timestamp(time))),
        any::<[u8; 16]>().prop_map(Value::Uuid),
        proptest::sample::select(encoded).prop_map(|bytes| Value::Encoded(Bytes::from_static(bytes))),
    ]
}

fn field() -> impl Strategy<Value = (String, Value)> {
    let id = || {
        prop_oneof![
            any::<u64>().prop_map(Value::UInt),
            any::<[u8; 16]>().prop_map(Value::Uuid),
            bytes().prop_map(Value::Bytes),
            text().prop_map(|text| Value::Text(text.into())),
        ]
    };
    let any_text = || text().prop_map(|text| Value::Text(text.into()));
    let symbol = || "[ -~]{0,40}".prop_map(|text| Value::Text(text.into()));
    let time = || any::<i64>().prop_map(|time| Value::Time(Timestamp(time)));
    prop_oneof![
        (Just("message-id"), id()),
        (Just("user-id"), bytes().prop_map(Value::Bytes)),
        (Just("to"), any_text()),
        (Just("subject"), any_text()),
        (Just("reply-to"), any_text()),
        (Just("correlation-id"), id()),
        (Just("content-type"), symbol()),
        (Just("content-encoding"), symbol()),
        (Just("absolute-expiry-time"), time()),
        (Just("creation-time"), time()),
        (Just("group-id"), any_text()),
        (Just("group-sequence"), any::<u32>().prop_map(|number| Value::UInt(number.into()))),
        (Just("reply-to-group-id"), any_text()),
    ]
    .prop_map(|(name, value)| (name.to_owned(), value))
}

/// An event that can be sent. Its system properties are in the order in which a message has them.
pub(crate) fn event() -> impl Strategy<Value = NewEvent> {
    let body = prop_oneof![vec(any::<u8>(), 0..300), vec(any::<u8>(), 0..3)];
    let annotations = btree_map("[!-~]{0,20}", value(&ENCODED), 0..4);
    let fields = vec(field(), 0..6);
    let simple = || value(&ENCODED[..SIMPLE]);
    let properties =
        prop_oneof![8 => btree_map(text(), simple(), 0..6), 1 => btree_map(text(), simple(), 20..40)];
    (body, annotations, fields, properties).prop_map(|(body, annotations, fields, properties)| {
        let fields: BTreeMap<String, Value> = fields.into_iter().collect();
        let ordered = ephor_wire::message::FIELDS
            .iter()
            .filter_map(|name| Some(((*name).to_owned(), fields.get(*name)?.clone())));
        let annotations =
            annotations.into_iter().filter(|(name, _)| !ephor_wire::message::FIELDS.contains(&&**name));
        NewEvent {
            body: body.into(),
            partition_key: None,
            properties: properties.into_iter().collect(),
            system_properties: annotations.chain(ordered).collect::<Properties>(),
        }
    })
}
