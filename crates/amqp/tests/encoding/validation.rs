//! Tests that every section of a message is validated, and that the valid part of an invalid message can be
//! kept.

use std::borrow::Cow;

use ephor_amqp::check::TOO_MANY_EMPTY;
use ephor_amqp::validate::{conform, keep_valid, validate};
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
        Value::Symbol("gzip"),
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
        let Some(text) = name.text() else { continue };
        // Some libraries write the other type of text.
        let other = if index == 6 || index == 7 { Value::String(text) } else { Value::Symbol(text) };
        fields[index] = other;
        let odd = around_a_body(&section(0x73, &list(&fields)));
        assert!(validate(&odd).is_err(), "{name:?}");
        fields[index] = *name;
        assert_eq!(conform(&odd).unwrap(), around_a_body(&section(0x73, &list(&fields))), "{name:?}");
    }
    let more = section(0x73, &list(&[Value::Null; 14]));
    assert_eq!(validate(&around_a_body(&more)).unwrap_err().what, "more fields than this section has");
}

#[test]
fn the_keys_of_maps_are_names() {
    let pair = |key| map(&[(key, Value::Null)]);
    for descriptor in [0x71, 0x72, 0x74, 0x78] {
        let of = |key| around_a_body(&section(descriptor, &pair(key)));
        let (string, symbol) = (of(Value::String("name")), of(Value::Symbol("name")));
        let (right, other) = if descriptor == 0x74 { (string, symbol) } else { (symbol, string) };
        assert!(matches!(conform(&right), Ok(Cow::Borrowed(_))));
        validate(&right).unwrap();
        let refused = validate(&other).unwrap_err();
        assert_eq!(refused.what, "a string in the place of a symbol, or a symbol in that of a string");
        assert_eq!(conform(&other).unwrap(), right);
        assert_eq!(keep_valid(&other), (right.as_slice().into(), None));
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
        (TOO_MANY_EMPTY, vec![0xf0, 0, 0, 0, 5, 255, 255, 255, 255, 0x40]),
    ] {
        for descriptor in [0x71, 0x72, 0x74, 0x78] {
            let key = if descriptor == 0x74 { Value::String("k") } else { Value::Symbol("k") };
            let held = map(&[(key, Value::Encoded(&value))]);
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

/// An array of so many nulls.
fn nulls(count: u32) -> Vec<u8> {
    [&[0xf0, 0, 0, 0, 5][..], &count.to_be_bytes(), &[0x40]].concat()
}

/// A message with so many nulls in each section that may have some.
fn nulls_everywhere(counts: [u32; 4]) -> [Vec<u8>; 4] {
    let [delivery, annotations, body, footer] = counts.map(nulls);
    let held = |value: &[u8]| map(&[(Value::Symbol("k"), Value::Encoded(value))]);
    [
        section(0x71, &held(&delivery)),
        section(0x72, &held(&annotations)),
        section(0x77, &body),
        section(0x78, &held(&footer)),
    ]
}

#[test]
fn elements_that_take_no_bytes_are_counted_over_all_sections() {
    validate(&nulls_everywhere([256; 4]).concat()).unwrap();
    for more in 0..4 {
        let mut counts = [256; 4];
        counts[more] += 1;
        assert_eq!(validate(&nulls_everywhere(counts).concat()).unwrap_err().what, TOO_MANY_EMPTY);
    }
    let sequences = section(0x76, &list(&[Value::Encoded(&nulls(513))]));
    validate(&sequences).unwrap();
    assert_eq!(validate(&sequences.repeat(2)).unwrap_err().what, TOO_MANY_EMPTY);
}

#[test]
fn of_too_many_elements_the_body_is_kept_and_what_else_there_is_room_for() {
    for (counts, kept) in [
        ([256, 256, 256, 257], [true, true, true, false]),
        ([1_000, 256, 256, 256], [false, true, true, true]),
        ([256, 2_000, 256, 256], [true, false, true, true]),
        ([1, 1, 1_024, 0], [false, false, true, true]),
    ] {
        let sections = nulls_everywhere(counts);
        let expected: Vec<u8> = sections
            .iter()
            .zip(kept)
            .filter(|(_, kept)| *kept)
            .flat_map(|(section, _)| section.clone())
            .collect();
        let message = sections.concat();
        let (found, malformed) = keep_valid(&message);
        assert_eq!(malformed.map(|malformed| malformed.what), Some(TOO_MANY_EMPTY));
        assert_eq!(found, expected, "{counts:?}");
        validate(&found).unwrap();
    }
    let [_, annotations, body, _] = nulls_everywhere([0, 256, 1_025, 0]);
    let message = [&annotations[..], &body].concat();
    let (found, _) = keep_valid(&message);
    let sections = validate(&found).unwrap();
    assert_eq!(
        (sections.message_annotations.unwrap().end, &found[sections.body.content]),
        (annotations.len(), &body[..])
    );
}

#[test]
fn application_properties_are_of_simple_types() {
    let with = |value| around_a_body(&section(0x74, &map(&[(Value::String("k"), value)])));
    for simple in [
        Value::Null,
        Value::Bool(true),
        Value::Symbol("s"),
        Value::Binary(b"b"),
        Value::Uuid([7; 16]),
        Value::Encoded(b"\x74\x01\x02\x03\x04"),
        Value::Encoded(b"\x94\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0"),
        // The .NET SDK writes a TimeSpan like this.
        Value::Encoded(b"\x00\xa3\x16com.microsoft:timespan\x55\x01"),
        Value::Encoded(b"\x00\x53\x01\x00\x53\x02\xa1\x01t"),
    ] {
        validate(&with(simple)).unwrap_or_else(|error| panic!("{simple:?}: {error}"));
    }
    for compound in [
        &b"\x45"[..],
        b"\xc0\x02\x01\x41",
        b"\xc1\x01\x00",
        b"\xe0\x03\x01\x56\x01",
        b"\x00\x53\x01\xc0\x02\x01\x41",
        b"\x00\x53\x01\x00\x53\x01\x45",
    ] {
        let message = with(Value::Encoded(compound));
        let refused = validate(&message).unwrap_err();
        assert_eq!(
            refused.what, "a list, map or array as an application property; these have simple types only",
            "{compound:02x?}"
        );
        assert_eq!(conform(&message), Err(refused));
        let (kept, malformed) = keep_valid(&message);
        assert_eq!((&*kept, malformed), (DATA, Some(refused)), "nothing is left of the section");
        // Elsewhere it is allowed.
        let elsewhere = section(0x72, &map(&[(Value::Symbol("k"), Value::Encoded(compound))]));
        validate(&around_a_body(&elsewhere)).unwrap();
    }
}

#[test]
fn of_application_properties_the_valid_ones_are_kept() {
    let of = |pairs: &[(Value<'_>, Value<'_>)]| around_a_body(&section(0x74, &map(pairs)));
    let (a, b) =
        ((Value::String("a"), Value::Int(1)), (Value::String("b"), Value::Encoded(b"\x00\x53\x01\x41")));
    let odd = (Value::Symbol("b"), b.1);
    let bad = [
        (Value::String("bad"), Value::Encoded(b"\x45")),
        (Value::Int(7), Value::Null),
        (Value::String("bad"), Value::Encoded(b"\xc0\x02\x01\x47")),
    ];
    for bad in bad {
        let message = of(&[bad, a, bad, odd, bad]);
        let (kept, malformed) = keep_valid(&message);
        assert!(malformed.is_some());
        assert_eq!(kept, of(&[a, b]), "{bad:?}");
    }
    // The map ends too early: nothing of it can be told apart.
    let cut = around_a_body(&section(0x74, b"\xc1\x05\x02\xa1\x01k\x70"));
    assert_eq!(keep_valid(&cut).0, DATA);
}

#[test]
fn a_footer_before_the_body_goes_after_it() {
    let footer = |key| section(0x78, &map(&[(key, Value::Int(1))]));
    let (right, odd) = (footer(Value::Symbol("k")), footer(Value::String("k")));
    let properties = section(0x73, &list(&[Value::String("id")]));
    let late = section(0x71, &map(&[(Value::Symbol("d"), Value::Null)]));
    let sequences = [section(0x76, &[0x45]), section(0x76, &list(&[Value::Int(1)]))].concat();
    for body in [DATA, &sequences] {
        for footer in [&right, &odd] {
            let message = [&properties, &footer[..], body, &late].concat();
            assert_eq!(validate(&message).unwrap_err().what, "a footer before the body");
            let expected = [&properties, body, &right, &late].concat();
            assert_eq!(conform(&message).unwrap(), expected);
            assert_eq!(keep_valid(&message), (expected.as_slice().into(), None));
            // So it does if something else is left out.
            let message = [&header(&[Value::String("yes")]), &message[..]].concat();
            assert_eq!(keep_valid(&message).0, expected);
        }
    }
}

#[test]
fn a_valid_message_is_kept_as_it_is() {
    let message = [
        header(&[Value::Bool(true)]),
        section(0x71, &map(&[(Value::Symbol("d"), Value::Null)])),
        section(0x72, &map(&[(Value::Symbol("m"), Value::Int(1))])),
        section(0x73, &list(&[Value::String("id")])),
        section(0x74, &map(&[(Value::String("p"), Value::Int(2))])),
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
