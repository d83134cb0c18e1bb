//! Tests of encoding and decoding messages, byte for byte: as Ephor writes them, and as other SDKs do; and of
//! what cannot be encoded.

use bytes::Bytes;
use ephor_core::event::{NewEvent, Properties, Value};
use ephor_core::time::Timestamp;
use ephor_wire::message::{Decoded, Malformed, Unencodable, decode, encode, size_bound};

const BODY: &[u8] = b"\x00\x53\x75\xa0\x02hi";

fn written(event: &NewEvent) -> Result<Vec<u8>, Unencodable> {
    let mut bytes = b"before".to_vec();
    let result = encode(event, &mut bytes);
    assert_eq!(&bytes[..6], b"before");
    if result.is_err() {
        assert_eq!(bytes.len(), 6, "nothing is left of a refused event");
    }
    result.map(|()| bytes.split_off(6))
}

fn with_system(name: &str, value: Value) -> NewEvent {
    NewEvent { system_properties: [(name, value)].into_iter().collect(), ..NewEvent::new("hi") }
}

fn read(parts: &[&[u8]]) -> Result<Decoded, Malformed> {
    decode(&Bytes::from(parts.concat()))
}

fn properties<const N: usize>(pairs: [(&str, Value); N]) -> Properties {
    pairs.into_iter().collect()
}

#[test]
fn an_event_with_only_a_body_is_one_data_section() {
    let event = NewEvent { partition_key: Some("home-7".into()), ..NewEvent::new("hi") };
    assert_eq!(written(&event).unwrap(), BODY, "the key is not part of the message");
    let long = written(&NewEvent::new(vec![7; 256])).unwrap();
    assert_eq!(long[..8], *b"\x00\x53\x75\xb0\x00\x00\x01\x00");
    assert_eq!(long.len(), 264);
    assert_eq!(size_bound(&NewEvent::new(vec![7; 256])), 264);
}

#[test]
fn the_size_is_enough_where_every_head_is_long() {
    let name = "n".repeat(300);
    let long: Value = "x".repeat(300).as_str().into();
    let system_properties = properties([(&name, long.clone()), ("group-id", long)]);
    let event = NewEvent { system_properties, ..NewEvent::new(vec![7; 300]) };
    assert!(written(&event).unwrap().len() <= size_bound(&event));
}

#[test]
fn every_kind_of_property_has_its_place() {
    let event = NewEvent {
        body: "hi".into(),
        partition_key: None,
        properties: properties([("kind", "motion".into()), ("level", 3.into())]),
        system_properties: properties([
            ("content-type", "text/plain".into()),
            ("x-opt-trace", true.into()),
            ("message-id", Value::UInt(7)),
        ]),
    };
    let expected = [
        b"\x00\x53\x72\xc1\x0f\x02\xa3\x0bx-opt-trace\x41".as_slice(),
        b"\x00\x53\x73\xc0\x14\x07\x53\x07\x40\x40\x40\x40\x40\xa3\x0atext/plain",
        b"\x00\x53\x74\xc1\x18\x04\xa1\x04kind\xa1\x06motion\xa1\x05level\x55\x03",
        BODY,
    ]
    .concat();
    assert_eq!(written(&event).unwrap(), expected);
    let decoded = read(&[&expected]).unwrap();
    assert_eq!((decoded.body, decoded.properties), (event.body, event.properties));
    let in_the_order_of_the_message = properties([
        ("x-opt-trace", true.into()),
        ("message-id", Value::UInt(7)),
        ("content-type", "text/plain".into()),
    ]);
    assert_eq!(decoded.system_properties, in_the_order_of_the_message);
}

#[test]
fn all_fields_stand_in_their_order_with_their_types() {
    let system_properties = properties([
        ("message-id", "m".into()),
        ("user-id", Value::Bytes(Bytes::from_static(b"u"))),
        ("to", "t".into()),
        ("subject", "s".into()),
        ("reply-to", "r".into()),
        ("correlation-id", Value::Uuid([9; 16])),
        ("content-type", "c".into()),
        ("content-encoding", "e".into()),
        ("absolute-expiry-time", Value::Time(Timestamp(1))),
        ("creation-time", Value::Time(Timestamp(2))),
        ("group-id", "g".into()),
        ("group-sequence", Value::UInt(300)),
        ("reply-to-group-id", "p".into()),
    ]);
    let event = NewEvent { system_properties: system_properties.clone(), ..NewEvent::new("hi") };
    let expected = [
        b"\x00\x53\x73\xc0\x44\x0d\xa1\x01m\xa0\x01u\xa1\x01t\xa1\x01s\xa1\x01r".as_slice(),
        &[0x98],
        &[9; 16],
        b"\xa3\x01c\xa3\x01e\x83\0\0\0\0\0\0\0\x01\x83\0\0\0\0\0\0\0\x02\xa1\x01g\x70\0\0\x01\x2c\xa1\x01p",
        BODY,
    ]
    .concat();
    assert_eq!(written(&event).unwrap(), expected);
    assert_eq!(read(&[&expected]).unwrap().system_properties, system_properties);
}

#[test]
fn an_application_property_is_of_a_simple_type() {
    let event = |value: &'static [u8]| NewEvent {
        properties: properties([("p", Value::Encoded(Bytes::from_static(value)))]),
        ..NewEvent::default()
    };
    for simple in [b"\x74\x01\x02\x03\x04".as_slice(), b"\x00\xa3\x01d\x55\x01", b"\xa1\x01t"] {
        written(&event(simple)).unwrap();
    }
    let why = "it is a list, a map or an array, which many readers cannot decode here";
    for compound in
        [b"\x45".as_slice(), b"\xc1\x01\x00", b"\xe0\x03\x01\x56\x01", b"\x00\xa3\x01d\xc0\x02\x01\x41"]
    {
        let refused = written(&event(compound)).unwrap_err();
        assert_eq!(refused, Unencodable { name: "p".into(), why }, "{compound:02x?}");
    }
}

#[test]
fn elements_that_take_no_bytes_are_counted_over_all_properties() {
    let nulls = || Value::Encoded(Bytes::from_static(b"\xe0\x02\xff\x40"));
    let event = |count: usize| {
        let system_properties = (0..count).map(|number| (format!("n{number}"), nulls())).collect();
        NewEvent { system_properties, ..NewEvent::default() }
    };
    written(&event(4)).unwrap();
    let refused = written(&event(5)).unwrap_err();
    assert_eq!((&*refused.name, refused.why), ("n4", ephor_amqp::check::TOO_MANY_EMPTY));
}

#[test]
fn what_a_field_cannot_hold_is_refused() {
    let int = || Value::Int(1);
    for (name, value, why) in [
        ("message-id", int(), "it has to be an unsigned integer, a UUID, bytes or text"),
        ("correlation-id", Value::Float(1.0), "it has to be an unsigned integer, a UUID, bytes or text"),
        ("user-id", "me".into(), "it has to be bytes"),
        ("to", int(), "it has to be text"),
        ("subject", Value::Encoded(Bytes::from_static(b"\xa1\x01s")), "it has to be text"),
        ("subject", Value::Null, "without a value it has to be left out"),
        ("content-type", "é".into(), "it has to be text in ASCII"),
        ("content-encoding", int(), "it has to be text in ASCII"),
        ("creation-time", int(), "it has to be a time"),
        ("absolute-expiry-time", "now".into(), "it has to be a time"),
        ("group-sequence", int(), "it has to be an unsigned integer"),
        ("group-sequence", Value::UInt(1 << 32), "it has at most 32 bits"),
        ("x-opt-offset", "1".into(), "the hub writes this annotation itself"),
        ("x-opt-partition-key", "k".into(), "the hub writes this annotation itself"),
        ("größe", int(), "the name of an annotation has to be ASCII"),
        ("x", Value::Encoded(Bytes::from_static(b"\x40\x40")), "its bytes are not one encoded AMQP value"),
        ("x", Value::Encoded(Bytes::new()), "its bytes are not one encoded AMQP value"),
    ] {
        let refused = written(&with_system(name, value)).unwrap_err();
        assert_eq!(refused, Unencodable { name: name.into(), why });
    }
    let refused = written(&with_system("to", int())).unwrap_err();
    assert_eq!(refused.to_string(), "property \"to\" cannot be sent: it has to be text");
}

#[test]
fn a_name_that_is_there_twice_is_refused() {
    for count in [0, 1, 100] {
        let mut names: Vec<_> = (0..count).map(|number| (format!("n{number}"), true)).collect();
        names.extend([("twice".to_owned(), true), ("twice".to_owned(), false)]);
        let twice: Properties = names.into_iter().collect();
        for event in [
            NewEvent { properties: twice.clone(), ..NewEvent::default() },
            NewEvent { system_properties: twice, ..NewEvent::default() },
        ] {
            assert_eq!(
                written(&event).unwrap_err(),
                Unencodable { name: "twice".into(), why: "it occurs twice" }
            );
        }
    }
}

#[test]
fn an_event_beyond_the_lengths_of_amqp_is_refused_before_it_takes_memory() {
    let megabyte: Value = "x".repeat(1 << 20).as_str().into();
    let properties = (0..4096).map(|number| (number.to_string(), megabyte.clone())).collect();
    let refused = written(&NewEvent { properties, ..NewEvent::default() }).unwrap_err();
    assert_eq!(refused.why, "the event is larger than an AMQP message can be");
}

#[test]
fn the_annotations_of_the_hub_are_not_shown_and_others_are() {
    let annotations = [
        b"\x00\x53\x72\xd1\x00\x00\x00\x72\x00\x00\x00\x0c".as_slice(),
        b"\xa3\x13x-opt-partition-key\xa1\x01k",
        b"\xa3\x15x-opt-sequence-number\x55\x01",
        b"\xa3\x0cx-opt-offset\xa1\x011",
        b"\xa3\x13x-opt-enqueued-time\x83\0\0\0\0\0\0\0\x01",
        b"\xa1\x05mine?\x54\x05",
        b"\x53\x07\xa3\x01s",
    ]
    .concat();
    let decoded = read(&[&annotations, BODY]).unwrap();
    assert_eq!(decoded.system_properties, properties([("mine?", Value::Int(5)), ("7", "s".into())]));
}

#[test]
fn values_of_every_width_become_one_of_theirs() {
    let pairs: [(&[u8], Value); 24] = [
        (b"\x40", Value::Null),
        (b"\x56\x01", Value::Bool(true)),
        (b"\x50\x01", Value::UInt(1)),
        (b"\x60\x00\x02", Value::UInt(2)),
        (b"\x43", Value::UInt(0)),
        (b"\x52\x03", Value::UInt(3)),
        (b"\x70\x00\x00\x00\x04", Value::UInt(4)),
        (b"\x44", Value::UInt(0)),
        (b"\x80\x00\x00\x00\x00\x00\x00\x00\x05", Value::UInt(5)),
        (b"\x51\xff", Value::Int(-1)),
        (b"\x61\xff\xfe", Value::Int(-2)),
        (b"\x54\xfd", Value::Int(-3)),
        (b"\x71\xff\xff\xff\xfc", Value::Int(-4)),
        (b"\x55\xfb", Value::Int(-5)),
        (b"\x72\x3f\x80\x00\x00", Value::Float(1.0)),
        (b"\x82\x40\x00\x00\x00\x00\x00\x00\x00", Value::Float(2.0)),
        (b"\x73\x00\x00\x00\xe9", "é".into()),
        (b"\xa3\x01s", "s".into()),
        (b"\xa1\x01t", "t".into()),
        (b"\xa0\x01b", Value::Bytes(Bytes::from_static(b"b"))),
        (b"\x83\x00\x00\x00\x00\x00\x00\x00\x01", Value::Time(Timestamp(1))),
        (b"\x74\x01\x02\x03\x04", Value::Encoded(Bytes::from_static(b"\x74\x01\x02\x03\x04"))),
        (b"\xc0\x02\x01\x41", Value::Encoded(Bytes::from_static(b"\xc0\x02\x01\x41"))),
        (b"\x00\x53\x01\x40", Value::Encoded(Bytes::from_static(b"\x00\x53\x01\x40"))),
    ];
    for (encoded, value) in pairs {
        let size = 4 + encoded.len() as u8;
        let section = [b"\x00\x53\x74\xc1", &[size, 2][..], b"\xa1\x01n", encoded].concat();
        assert_eq!(read(&[&section, BODY]).unwrap().properties, properties([("n", value)]));
    }
}

#[test]
fn bodies_of_every_kind_are_shown() {
    let body = |parts: &[&[u8]]| read(parts).unwrap().body;
    assert_eq!(body(&[b"\x00\x53\x75\xa0\x00"]), "");
    assert_eq!(body(&[BODY, b"\x00\x53\x75\xa0\x00", b"\x00\x53\x75\xa0\x01!"]), "hi!");
    assert_eq!(body(&[b"\x00\x53\x77\xa1\x02hi"]), "hi");
    assert_eq!(body(&[b"\x00\x53\x77\xa3\x02hi"]), "hi");
    assert_eq!(body(&[b"\x00\x53\x77\xa0\x02hi"]), "hi");
    for verbatim in [
        b"\x00\x53\x77\x55\x07".as_slice(),
        b"\x00\x53\x77\x40",
        b"\x00\x53\x77\x00\x53\x01\xa1\x02hi",
        b"\x00\x53\x76\xc0\x02\x01\x41\x00\x53\x76\x45",
    ] {
        assert_eq!(body(&[verbatim, b"\x00\x53\x78\xc1\x01\x00"]), verbatim);
    }
}

#[test]
fn what_is_given_out_is_not_copied() {
    let message = Bytes::from([b"\x00\x53\x74\xc1\x07\x02\xa1\x01n\xa0\x01b".as_slice(), BODY].concat());
    let decoded = decode(&message).unwrap();
    assert_eq!(decoded.body.as_ptr(), message[message.len() - 2..].as_ptr());
    let Some(Value::Bytes(bytes)) = decoded.properties.get("n") else { panic!("bytes were sent") };
    assert_eq!(bytes.as_ptr(), message[11..].as_ptr());
    assert!(decoded.system_properties.is_empty());
}

#[test]
fn sections_with_contents_of_another_kind_are_refused() {
    for (section, what) in [
        (b"\x00\x53\x74\xc1\x03\x02\x41\x41".as_slice(), "a property whose name is not text"),
        (b"\x00\x53\x72\xc1\x03\x02\x41\x41", "an annotation whose name is not a symbol"),
        (b"\x00\x53\x73\xc0\x0f\x0e@@@@@@@@@@@@@@", "more fields than the properties section has"),
        (b"\x00\x53\x74\xc1\x02\x01\x41", "a key without a value"),
        (b"\x00\x53\x74\xd1\x00\x00\x00\x06\x00\x0f\x42\x40\x40\x40", "more items than bytes"),
        (b"\x00\x53\x73\xc0\x03\x01\x40\x40", "bytes after the last item"),
    ] {
        assert_eq!(read(&[section, BODY]).unwrap_err().what, what);
    }
}
