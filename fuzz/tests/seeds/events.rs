//! Seeds for the fuzz corpus: messages as they are sent, in batches, and as they are delivered.

use bytes::Bytes;
use ephor_core::event::{NewEvent, Value};
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::source::LastEnqueued;
use ephor_core::time::Timestamp;
use ephor_wire::annotations::{RuntimeMetrics, Stamp, deliver, with_partition_key};
use ephor_wire::batch::{Packer, Push};
use ephor_wire::message::encode;

use crate::Seeds;

const BODY: &[u8] = b"\x00\x53\x75\xa0\x02hi";

/// An event with everything that it can have.
pub(crate) fn rich() -> NewEvent {
    NewEvent {
        body: vec![b'x'; 300].into(),
        properties: [
            ("text", Value::from("t")),
            ("long", "l".repeat(300).as_str().into()),
            ("decimal", Value::Encoded(Bytes::from_static(b"\x74\x01\x02\x03\x04"))),
            ("number", Value::Int(-300)),
            ("float", Value::Float(1.5)),
            ("none", Value::Null),
        ]
        .into_iter()
        .collect(),
        system_properties: [
            ("note", Value::from("n")),
            ("list", Value::Encoded(Bytes::from_static(b"\xc0\x02\x01\x41"))),
            ("array", Value::Encoded(Bytes::from_static(b"\xf0\0\0\0\x09\0\0\0\x01\x70\0\0\0\x07"))),
            ("message-id", Value::Uuid([9; 16])),
            ("content-type", "text/plain".into()),
            ("creation-time", Value::Time(Timestamp(2))),
            ("group-sequence", Value::UInt(300)),
        ]
        .into_iter()
        .collect(),
        ..NewEvent::default()
    }
}

pub(crate) fn encoded(event: &NewEvent) -> Vec<u8> {
    let mut bytes = Vec::new();
    encode(event, &mut bytes).unwrap();
    bytes
}

/// Messages as SDKs write them, and forms that only the specification has.
pub(crate) fn messages() -> Seeds {
    let annotations = [
        b"\x00\x53\x72\xd1\x00\x00\x00\x72\x00\x00\x00\x0c".as_slice(),
        b"\xa3\x13x-opt-partition-key\xa1\x01k",
        b"\xa3\x15x-opt-sequence-number\x55\x01",
        b"\xa3\x0cx-opt-offset\xa1\x011",
        b"\xa3\x13x-opt-enqueued-time\x83\0\0\0\0\0\0\0\x01",
        b"\xa1\x05mine?\x54\x05",
        b"\x53\x07\xa3\x01s",
        BODY,
    ];
    let delivery_annotations_last = [BODY, b"\x00\x53\x71\xc1\x05\x02\xa3\x01a\x41"];
    [
        ("only-a-body", BODY.to_vec()),
        ("no-body", b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\x54\x01".to_vec()),
        ("rich", encoded(&rich())),
        ("annotations", annotations.concat()),
        ("several-data", [BODY, b"\x00\x53\x75\xa0\x00", BODY].concat()),
        ("sequences", b"\x00\x53\x76\xc0\x02\x01\x41\x00\x53\x76\x45".to_vec()),
        ("value", b"\x00\x53\x77\xa1\x02hi".to_vec()),
        ("value-described", b"\x00\x53\x77\x00\x53\x01\xa1\x02hi".to_vec()),
        (
            "header-and-footer",
            [b"\x00\x53\x70\xc0\x03\x02\x41\x40", BODY, b"\x00\x53\x78\xc1\x01\x00"].concat(),
        ),
        ("delivery-annotations-last", delivery_annotations_last.concat()),
        ("named-sections", b"\x00\xa3\x10amqp:data:binary\xa0\x02hi".to_vec()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

/// Messages, and some with a section that readers cannot decode.
pub(crate) fn stored() -> Seeds {
    let footer = |value: &[u8]| {
        let size = value.len() as u8 + 4;
        [BODY, b"\x00\x53\x78\xc1", &[size, 2], b"\xa3\x01k", value].concat()
    };
    let header = |list: &[u8]| [b"\x00\x53\x70", list, BODY].concat();
    let nested = (0..40)
        .fold(vec![0x45], |inside: Vec<u8>, _| [&[0xc0, inside.len() as u8 + 1, 1][..], &inside].concat());
    let described = [[0x00, 0x44].repeat(40), vec![0x40]].concat();
    let mut seeds = messages();
    seeds.extend(
        [
            ("bytes-as-text", [&b"\x00\x53\x74\xc1\x09\x02\xa1\x01k\xa1\x03\xff\xfe\x80"[..], BODY].concat()),
            ("header-of-wrong-types", header(b"\xc0\x06\x03\xa1\x01y\x52\x04\x41")),
            ("header-of-all-types", header(b"\xc0\x0a\x05\x41\x50\x04\x52\x09\x56\x00\x43")),
            ("header-of-six-fields", header(b"\xc0\x07\x06\x40\x40\x40\x40\x40\x40")),
            ("footer-nested", footer(&nested)),
            ("footer-described", footer(&described)),
            ("footer-of-many-nulls", footer(b"\xf0\0\0\0\x05\xff\xff\xff\xff\x40")),
            (
                "footer-of-many-arrays",
                footer(&[&b"\xc0\x15\x05"[..], &b"\xe0\x02\xff\x40".repeat(5)].concat()),
            ),
            ("footer-with-a-string", [BODY, b"\x00\x53\x78\xc1\x05\x02\xa1\x01k\x41"].concat()),
            ("footer-before-the-body", [b"\x00\x53\x78\xc1\x05\x02\xa1\x01k\x41", BODY].concat()),
            ("property-with-a-symbol", [b"\x00\x53\x74\xc1\x05\x02\xa3\x01k\x41", BODY].concat()),
            ("property-of-a-list", [b"\x00\x53\x74\xc1\x09\x04\xa1\x01k\x45\xa1\x01l\x41", BODY].concat()),
            ("subject-as-a-symbol", [b"\x00\x53\x73\xc0\x07\x04\x40\x40\x40\xa3\x01k", BODY].concat()),
            ("footer-of-an-array", footer(b"\xe0\x06\x02\xa3\x01a\x01b")),
            (
                "body-of-an-array-with-a-descriptor",
                b"\x00\x53\x77\xe0\x07\x02\x00\x53\x05\x50\x07\x08".to_vec(),
            ),
        ]
        .map(|(name, bytes)| (name.to_owned(), bytes)),
    );
    seeds
}

pub(crate) fn deliveries() -> Seeds {
    let offset = Offset::new("4242");
    let last =
        LastEnqueued { sequence: SequenceNumber(9), offset: offset.clone(), enqueued_at: Timestamp(3) };
    let metrics = RuntimeMetrics { last, retrieved_at: Timestamp(4) };
    let mut seeds = messages();
    for (name, message) in messages() {
        let stamp = Stamp {
            sequence: SequenceNumber(7),
            offset: &offset,
            enqueued_at: Timestamp(1_700_000_000_000),
            partition_key: Some("home-7"),
            metrics: Some(&metrics),
            last_number_epoch: false,
        };
        let mut delivered = Vec::new();
        deliver(&message, &stamp, &mut delivered).unwrap();
        seeds.push((format!("{name}-delivered"), delivered));
    }
    seeds
}

/// A batch of three events, with a partition key or without one.
pub(crate) fn batch(key: Option<&str>) -> Vec<u8> {
    let mut packer = Packer::new(1 << 20, key);
    let keyed = NewEvent { partition_key: Some("of its own".into()), ..NewEvent::new("two") };
    for event in [NewEvent::new("one"), keyed, rich()] {
        assert_eq!(packer.push(&event), Ok(Push::Added));
    }
    packer.take().unwrap().bytes
}

pub(crate) fn batches() -> Seeds {
    let mut keyed = Vec::new();
    with_partition_key(&encoded(&rich()), "home-7", &mut keyed).unwrap();
    let mut seeds = messages();
    let annotated = [b"\x00\x53\x70\x45\x00\x53\x71\xc1\x05\x02\xa3\x01a\x41".as_slice(), &keyed];
    seeds.push(("keyed-behind-other-sections".into(), annotated.concat()));
    seeds.push(("keyed".into(), keyed));
    seeds.push(("batch".into(), batch(None)));
    seeds.push(("batch-under-a-key".into(), batch(Some("home-7"))));
    seeds
}
