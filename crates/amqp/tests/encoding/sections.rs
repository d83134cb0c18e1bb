//! Tests that the sections of an encoded message are found.

use ephor_amqp::message::{BodyKind, Section};
use ephor_amqp::{Malformed, Sections};

const HEADER: &[u8] = b"\x00\x53\x70\xc0\x02\x01\x41";
const DELIVERY: &[u8] = b"\x00\x53\x71\xc1\x05\x02\xa3\x01d\x40";
const ANNOTATIONS: &[u8] = b"\x00\x53\x72\xc1\x05\x02\xa3\x01m\x40";
const PROPERTIES: &[u8] = b"\x00\x53\x73\xc0\x04\x01\xa1\x01i";
const APPLICATION: &[u8] = b"\x00\x53\x74\xc1\x05\x02\xa1\x01a\x40";
const DATA: &[u8] = b"\x00\x53\x75\xa0\x03abc";
const SEQUENCE: &[u8] = b"\x00\x53\x76\xc0\x02\x01\x41";
const VALUE: &[u8] = b"\x00\x53\x77\xa1\x02hi";
const FOOTER: &[u8] = b"\x00\x53\x78\xc1\x01\x00";

fn scan(parts: &[&[u8]]) -> Result<Sections, Malformed> {
    Sections::scan(&parts.concat())
}

fn refused(parts: &[&[u8]]) -> &'static str {
    scan(parts).expect_err("no message").what
}

#[test]
fn all_sections_are_found_where_they_are() {
    let message = [HEADER, DELIVERY, ANNOTATIONS, PROPERTIES, APPLICATION, DATA, FOOTER].concat();
    let found = Sections::scan(&message).unwrap();
    let bytes = |section: Option<Section>| &message[section.unwrap().whole()];
    assert_eq!(bytes(found.header), HEADER);
    assert_eq!(bytes(found.delivery_annotations), DELIVERY);
    assert_eq!(bytes(found.message_annotations), ANNOTATIONS);
    assert_eq!(bytes(found.properties), PROPERTIES);
    assert_eq!(bytes(found.application_properties), APPLICATION);
    assert_eq!(bytes(found.footer), FOOTER);
    assert_eq!(message[found.header.unwrap().value], 0xc0);
    assert_eq!(found.body.kind, BodyKind::Data);
    assert_eq!(&message[found.body.whole.clone()], DATA);
    assert_eq!(&message[found.body.content.clone()], b"abc");
    assert_eq!(found.data_sections(), 1);
}

#[test]
fn a_body_alone_is_a_message() {
    let found = scan(&[DATA]).unwrap();
    assert_eq!((found.header, found.properties, found.footer), (None, None, None));
    assert_eq!(found.body.content, 5..8);
    let long = [b"\x00\x53\x75\xb0\x00\x00\x01\x00".as_slice(), &[7; 256]].concat();
    assert_eq!(Sections::scan(&long).unwrap().body.content, 8..264);
}

#[test]
fn each_data_section_of_a_batch_is_given_out() {
    let message =
        [ANNOTATIONS, DATA, b"\x00\x53\x75\xa0\x00", b"\x00\x53\x75\xb0\x00\x00\x00\x01z", FOOTER].concat();
    let found = Sections::scan(&message).unwrap();
    assert_eq!(found.data_sections(), 3);
    assert_eq!(found.data(&message).collect::<Vec<_>>(), [b"abc".as_slice(), b"", b"z"]);
    assert_eq!(found.body.whole, ANNOTATIONS.len()..message.len() - FOOTER.len());
    assert_eq!(found.data(b"another message").count(), 0);
    assert_eq!(scan(&[VALUE]).unwrap().data(VALUE).count(), 0);
}

#[test]
fn values_and_sequences_are_bodies_too() {
    let value = scan(&[VALUE]).unwrap();
    assert_eq!((value.body.kind, value.body.content), (BodyKind::Value, 3..7));
    let described = scan(&[b"\x00\x53\x77\x00\x53\x09\xa1\x02hi"]).unwrap();
    assert_eq!(described.body.content, 3..10);
    let sequences = scan(&[SEQUENCE, SEQUENCE]).unwrap();
    assert_eq!((sequences.body.kind, sequences.body.sections), (BodyKind::Sequence, 2));
    assert_eq!(sequences.data_sections(), 0);
}

#[test]
fn a_section_may_be_named_in_three_ways() {
    let ulong = b"\x00\x80\x00\x00\x00\x00\x00\x00\x00\x75\xa0\x03abc".as_slice();
    assert_eq!(&ulong[scan(&[ulong]).unwrap().body.content], b"abc");
    let names: [(&str, &[u8]); 9] = [
        ("amqp:header:list", HEADER),
        ("amqp:delivery-annotations:map", DELIVERY),
        ("amqp:message-annotations:map", ANNOTATIONS),
        ("amqp:properties:list", PROPERTIES),
        ("amqp:application-properties:map", APPLICATION),
        ("amqp:data:binary", DATA),
        ("amqp:amqp-sequence:list", SEQUENCE),
        ("amqp:amqp-value:*", VALUE),
        ("amqp:footer:map", FOOTER),
    ];
    for (name, section) in names {
        let named = [&[0x00, 0xa3, name.len() as u8], name.as_bytes(), &section[3..]].concat();
        let is_body = matches!(section[2], 0x75..=0x77);
        let parts: &[&[u8]] = match section[2] {
            _ if is_body => &[&named],
            0x78 => &[DATA, &named],
            _ => &[&named, DATA],
        };
        let found = scan(parts).unwrap();
        let all = [
            found.header,
            found.delivery_annotations,
            found.message_annotations,
            found.properties,
            found.application_properties,
            found.footer,
        ];
        assert_eq!(all.iter().flatten().count(), usize::from(!is_body), "{name}");
    }
}

#[test]
fn the_delivery_annotations_of_the_python_sdk_may_stand_last() {
    for parts in [&[HEADER, DATA, DELIVERY][..], &[HEADER, DATA, FOOTER, DELIVERY]] {
        assert!(scan(parts).unwrap().delivery_annotations.is_some());
    }
    assert_eq!(refused(&[DELIVERY, DATA, DELIVERY]), "a duplicate section");
    assert_eq!(refused(&[DATA, DELIVERY, FOOTER]), "a section out of order");
    assert_eq!(refused(&[DATA, DELIVERY, DATA]), "a section out of order");
}

#[test]
fn the_footer_of_the_javascript_sdk_may_stand_before_the_body() {
    for parts in [&[FOOTER, DATA][..], &[HEADER, APPLICATION, FOOTER, DATA], &[FOOTER, DATA, DELIVERY]] {
        let found = scan(parts).unwrap();
        assert_eq!(found.early_footer(), found.footer);
        assert_eq!(found.footer.unwrap().end, found.body.whole.start);
    }
    assert_eq!(scan(&[DATA, FOOTER]).unwrap().early_footer(), None);
}

#[test]
fn a_message_without_a_body_has_a_place_for_it() {
    let parts: [[&[&[u8]]; 2]; 4] = [
        [&[HEADER, ANNOTATIONS, APPLICATION], &[]],
        [&[HEADER, DELIVERY, ANNOTATIONS], &[FOOTER]],
        [&[APPLICATION], &[DELIVERY]],
        [&[], &[FOOTER, DELIVERY]],
    ];
    for [before, after] in parts {
        let found = scan(&[before, after].concat()).unwrap();
        let place = before.concat().len();
        assert_eq!((found.body.whole.clone(), found.body.content.clone()), (place..place, place..place));
        assert_eq!((found.body.sections, found.data_sections()), (0, 0));
        assert_eq!(found.footer.is_some(), after.contains(&FOOTER));
    }
}

#[test]
fn what_is_not_a_message_is_refused() {
    assert_eq!(refused(&[]), "an empty message");
    assert_eq!(refused(&[ANNOTATIONS, DELIVERY, DATA]), "a section out of order");
    assert_eq!(refused(&[PROPERTIES, HEADER, DATA]), "a section out of order");
    assert_eq!(refused(&[DATA, HEADER]), "a section out of order");
    assert_eq!(refused(&[FOOTER, APPLICATION, DATA]), "a section out of order");
    assert_eq!(refused(&[FOOTER, DATA, FOOTER]), "a duplicate section");
    assert_eq!(refused(&[HEADER, HEADER, DATA]), "a duplicate section");
    assert_eq!(refused(&[VALUE, VALUE]), "a duplicate section");
    assert_eq!(refused(&[DATA, VALUE]), "a body of two kinds");
    assert_eq!(refused(&[DATA, SEQUENCE]), "a body of two kinds");
    assert_eq!(refused(&[b"\x00\x53\x79\xc1\x01\x00", DATA]), "an unknown section");
    assert_eq!(refused(&[b"\x00\xa3\x01x\xc1\x01\x00", DATA]), "an unknown section");
    assert_eq!(refused(&[b"\x00\x80\x00\x00\x00\x01\x00\x00\x00\x75\xa0\x00"]), "an unknown section");
    assert_eq!(refused(&[DATA, b"\x40"]), "not a section");
    assert_eq!(refused(&[DATA, b"\x00"]), "ends too early");
    for section in [
        b"\x00\x53\x75\xa1\x01a".as_slice(),
        b"\x00\x53\x75\x40",
        b"\x00\x53\x75\x00\x53\x01\xa0\x00",
        b"\x00\x53\x70\xc1\x01\x00",
        b"\x00\x53\x72\x45",
        b"\x00\x53\x73\x40",
        b"\x00\x53\x74\xe0\x01\x00",
        b"\x00\x53\x76\xa0\x00",
    ] {
        assert_eq!(refused(&[section, DATA]), "not the type of this section", "{section:02x?}");
    }
}
