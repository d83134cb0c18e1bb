//! Tests the encoding of every AMQP type, byte for byte as in the specification (AMQP 1.0, part 1, section
//! 1.6), its decoding, and the errors for malformed values.

use ephor_amqp::check::{TOO_MANY_EMPTY, check};
use ephor_amqp::decode::MAX_NESTING;
use ephor_amqp::{Malformed, Reader, Value, encode};

/// The bytes that `write` writes.
fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// Decodes one value, which has to take all bytes.
fn read(bytes: &[u8]) -> Result<Value<'_>, Malformed> {
    let mut reader = Reader::new(bytes);
    let value = reader.value()?;
    assert!(reader.is_empty(), "left over after {value:?}");
    assert_eq!(Reader::new(bytes).skip(), Ok(0..bytes.len()), "skipping goes as far as reading");
    assert_eq!(check(bytes), Ok(()), "{bytes:02x?}");
    Ok(value)
}

/// Checks that `value` is encoded as `bytes`, and decoded from them.
fn golden(bytes: &[u8], value: Value<'_>, write: impl FnOnce(&mut Vec<u8>)) {
    assert_eq!(written(write), bytes, "writing {value:?}");
    assert_eq!(read(bytes), Ok(value));
}

#[test]
fn every_primitive_is_written_as_specified() {
    golden(&[0x40], Value::Null, encode::null);
    golden(&[0x41], Value::Bool(true), |into| encode::bool(into, true));
    golden(&[0x42], Value::Bool(false), |into| encode::bool(into, false));
    golden(&[0x50, 0xff], Value::Ubyte(255), |into| encode::ubyte(into, 255));
    golden(&[0x60, 1, 2], Value::Ushort(0x0102), |into| encode::ushort(into, 0x0102));
    golden(&[0x51, 0xfe], Value::Byte(-2), |into| encode::byte(into, -2));
    golden(&[0x61, 0xff, 0xfe], Value::Short(-2), |into| encode::short(into, -2));
    golden(&[0x72, 0x3f, 0xc0, 0, 0], Value::Float(1.5), |into| encode::float(into, 1.5));
    let double = [0x82, 0xbf, 0xf8, 0, 0, 0, 0, 0, 0];
    golden(&double, Value::Double(-1.5), |into| encode::double(into, -1.5));
    golden(&[0x73, 0, 1, 0xf6, 0x00], Value::Char('😀'), |into| encode::char(into, '😀'));
    let time = [0x83, 0, 0, 1, 0x8b, 0xcf, 0xe5, 0x68, 0];
    golden(&time, Value::Timestamp(1_700_000_000_000), |into| encode::timestamp(into, 1_700_000_000_000));
    let before_1970 = [0x83, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff];
    golden(&before_1970, Value::Timestamp(-1), |into| encode::timestamp(into, -1));
    let uuid: [u8; 16] = std::array::from_fn(|index| index as u8);
    let encoded = [0x98, 0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15];
    golden(&encoded, Value::Uuid(uuid), |into| encode::uuid(into, &uuid));
    golden(b"\xa0\x02\x00\xff", Value::Binary(&[0, 255]), |into| encode::binary(into, &[0, 255]));
    golden(b"\xa1\x03\xc3\xa9t", Value::String("ét"), |into| encode::string(into, "ét"));
    golden(b"\xa3\x01x", Value::Symbol("x"), |into| encode::symbol(into, "x"));
}

#[test]
fn integers_take_their_shortest_form() {
    golden(&[0x43], Value::Uint(0), |into| encode::uint(into, 0));
    golden(&[0x52, 0xff], Value::Uint(255), |into| encode::uint(into, 255));
    golden(&[0x70, 0, 0, 1, 0], Value::Uint(256), |into| encode::uint(into, 256));
    golden(&[0x44], Value::Ulong(0), |into| encode::ulong(into, 0));
    golden(&[0x53, 0xff], Value::Ulong(255), |into| encode::ulong(into, 255));
    golden(&[0x80, 0, 0, 0, 0, 0, 0, 1, 0], Value::Ulong(256), |into| encode::ulong(into, 256));
    golden(&[0x54, 0x80], Value::Int(-128), |into| encode::int(into, -128));
    golden(&[0x71, 0xff, 0xff, 0xff, 0x7f], Value::Int(-129), |into| encode::int(into, -129));
    golden(&[0x55, 0x7f], Value::Long(127), |into| encode::long(into, 127));
    golden(&[0x81, 0, 0, 0, 0, 0, 0, 0, 0x80], Value::Long(128), |into| encode::long(into, 128));
}

#[test]
fn longer_forms_than_needed_are_read_too() {
    assert_eq!(read(&[0x56, 1]), Ok(Value::Bool(true)));
    assert_eq!(read(&[0x56, 0]), Ok(Value::Bool(false)));
    assert_eq!(read(&[0x70, 0, 0, 0, 7]), Ok(Value::Uint(7)));
    assert_eq!(read(&[0x80, 0, 0, 0, 0, 0, 0, 0, 7]), Ok(Value::Ulong(7)));
    assert_eq!(read(&[0x71, 0, 0, 0, 7]), Ok(Value::Int(7)));
    assert_eq!(read(&[0x81, 0, 0, 0, 0, 0, 0, 0, 7]), Ok(Value::Long(7)));
    assert_eq!(read(b"\xb0\0\0\0\x01a"), Ok(Value::Binary(b"a")));
    assert_eq!(read(b"\xb1\0\0\0\x01a"), Ok(Value::String("a")));
    assert_eq!(read(b"\xb3\0\0\0\x01a"), Ok(Value::Symbol("a")));
}

#[test]
fn a_length_of_256_takes_four_bytes() {
    let text = "x".repeat(256);
    let short = written(|into| encode::string(into, &text[..255]));
    assert_eq!((&short[..2], short.len()), (&[0xa1, 0xff][..], 257));
    let long = written(|into| encode::string(into, &text));
    assert_eq!((&long[..5], long.len()), (&[0xb1, 0, 0, 1, 0][..], 261));
    assert_eq!(read(&long), Ok(Value::String(&text)));
    assert_eq!(written(|into| encode::binary(into, text.as_bytes()))[0], 0xb0);
    assert_eq!(written(|into| encode::symbol(into, &text))[0], 0xb3);
}

#[test]
fn lists_and_maps_get_their_size_when_they_end() {
    let list = written(|into| {
        let list = encode::begin(into);
        encode::ulong(into, 5);
        let map = encode::begin(into);
        encode::symbol(into, "k");
        encode::null(into);
        encode::end_map(into, map, 1);
        encode::end_list(into, list, 2);
    });
    assert_eq!(list, b"\xc0\x0a\x02\x53\x05\xc1\x05\x02\xa3\x01k\x40");
    assert_eq!(read(&list), Ok(Value::Encoded(&list)));

    let mut items = Reader::new(&list).list().unwrap();
    assert_eq!((items.left(), items.at()), (2, 3));
    assert_eq!(items.next(), Ok(Some(Value::Ulong(5))));
    let map = items.next().unwrap().unwrap();
    assert_eq!(map, Value::Encoded(&list[5..]));
    assert_eq!(items.next(), Ok(None));
    assert!(Reader::new(&list).map().is_err());

    let mut pairs = Reader::starting(&list, 5).map().unwrap();
    assert_eq!(pairs.next().unwrap().and_then(Value::text), Some("k"));
    assert_eq!(pairs.next(), Ok(Some(Value::Null)));
    assert_eq!(pairs.next(), Ok(None));
}

#[test]
fn an_empty_list_has_a_count_and_either_form_is_read() {
    let empty = written(|into| {
        let list = encode::begin(into);
        encode::end_list(into, list, 0);
    });
    assert_eq!(empty, [0xc0, 1, 0]);
    for bytes in [&empty[..], &[0x45], &[0xd0, 0, 0, 0, 4, 0, 0, 0, 0]] {
        assert_eq!(Reader::new(bytes).list().unwrap().next(), Ok(None));
        assert_eq!(read(bytes), Ok(Value::Encoded(bytes)));
    }
}

#[test]
fn a_list_beyond_255_bytes_or_items_takes_the_long_form() {
    let of = |items: usize, width: usize| {
        written(|into| {
            into.push(0x40);
            let list = encode::begin(into);
            (0..items).for_each(|_| if width == 1 { encode::null(into) } else { encode::ubyte(into, 7) });
            encode::end_list(into, list, items);
        })
    };
    assert_eq!(of(127, 2)[..4], [0x40, 0xc0, 255, 127]);
    assert_eq!(of(254, 1)[..4], [0x40, 0xc0, 255, 254]);
    assert_eq!(of(255, 1)[..10], [0x40, 0xd0, 0, 0, 1, 3, 0, 0, 0, 255]);
    assert_eq!(of(128, 2)[..10], [0x40, 0xd0, 0, 0, 1, 4, 0, 0, 0, 128]);
    for (items, width) in [(127, 2), (128, 2), (254, 1), (255, 1)] {
        let bytes = of(items, width);
        assert_eq!(bytes.len(), 1 + if bytes[1] == 0xc0 { 3 } else { 9 } + items * width);
        assert_eq!(read(&bytes[1..]), Ok(Value::Encoded(&bytes[1..])));
    }
}

#[test]
fn what_has_no_variant_of_its_own_stays_encoded() {
    for bytes in [
        &[0x74, 1, 2, 3, 4][..],
        &[0x84, 1, 2, 3, 4, 5, 6, 7, 8],
        &[0x94, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0],
        b"\xe0\x06\x02\xa3\x01a\x01b",
        &[0xe0, 7, 2, 0x00, 0x53, 0x05, 0x50, 7, 8],
        &[0xf0, 0, 0, 0, 9, 0, 0, 0, 1, 0x70, 0, 0, 0, 7],
        &[0xe0, 8, 2, 0xc0, 2, 1, 0x40, 2, 1, 0x41],
        &[0xe0, 1, 0],
        b"\x00\xa3\x01x\x00\x53\x05\xa1\x01y",
    ] {
        assert_eq!(read(bytes), Ok(Value::Encoded(bytes)));
    }
    assert_eq!(written(|into| encode::described(into, 0x75)), [0x00, 0x53, 0x75]);
    assert_eq!(written(|into| encode::described(into, 0x468c_0000_0004))[..2], [0x00, 0x80]);
}

#[test]
fn what_is_malformed_is_named_with_its_place() {
    let cases: [(&[u8], usize, &str); 10] = [
        (&[], 0, "ends too early"),
        (&[0x47], 0, "unknown format code"),
        (&[0x56, 2], 1, "neither true nor false"),
        (&[0x73, 0, 0, 0xd8, 0], 1, "not a character"),
        (&[0xa1, 1, 0xff], 2, "text that is not UTF-8"),
        (&[0xa1, 2, b'a'], 2, "ends too early"),
        (&[0xb0, 0xff, 0xff, 0xff, 0xff], 5, "ends too early"),
        (&[0xc0, 0, 0], 0, "a size that leaves no room for the count"),
        (&[0xd0, 0, 0, 0, 3, 0, 0, 0], 0, "a size that leaves no room for the count"),
        (&[0x00, 0x53], 2, "ends too early"),
    ];
    for (bytes, at, what) in cases {
        assert_eq!(Reader::new(bytes).value(), Err(Malformed::new(at, what)), "{bytes:02x?}");
        assert_eq!(check(bytes), Err(Malformed::new(at, what)), "{bytes:02x?}");
    }
    assert_eq!(Malformed::new(7, "not a map").to_string(), "malformed AMQP at byte 7: not a map");
}

#[test]
fn a_map_that_claims_a_million_items_is_refused_before_any_is_read() {
    let mut map = vec![0xd1, 0, 0, 0, 15];
    map.extend_from_slice(&1_000_000_u32.to_be_bytes());
    map.resize(20, 0x40);
    assert_eq!(Reader::new(&map).map().unwrap_err(), Malformed::new(0, "more items than bytes"));
    assert_eq!(check(&map), Err(Malformed::new(0, "more items than bytes")));
}

#[test]
fn an_array_of_four_billion_nulls_is_refused_though_it_takes_no_bytes() {
    let nulls = |count: u32| [&[0xf0, 0, 0, 0, 5][..], &count.to_be_bytes(), &[0x40]].concat();
    assert_eq!(check(&nulls(1_024)), Ok(()));
    for count in [1_025, u32::MAX] {
        assert_eq!(check(&nulls(count)), Err(Malformed::new(9, TOO_MANY_EMPTY)));
    }
}

#[test]
fn elements_that_take_no_bytes_are_counted_over_all_arrays() {
    let wide = |code: u8, count: u32, items: &[u8]| {
        [&[code][..], &(items.len() as u32 + 4).to_be_bytes(), &count.to_be_bytes(), items].concat()
    };
    // 255 of each kind, in four bytes, or in three in an array of arrays.
    for element in [0x40, 0x41, 0x43, 0x44, 0x45] {
        let array = [0xe0, 2, 255, element];
        let pair = [&[0x40][..], &array].concat();
        for (count, fits) in [(4, true), (5, false), (100_000, false)] {
            let arrays = [&[0xe0][..], &array[1..].repeat(count as usize)].concat();
            for bytes in [
                wide(0xd0, count, &array.repeat(count as usize)),
                wide(0xd1, 2 * count, &pair.repeat(count as usize)),
                wide(0xf0, count, &arrays),
            ] {
                let checked = check(&bytes).map_err(|malformed| malformed.what);
                assert_eq!(
                    checked,
                    if fits { Ok(()) } else { Err(TOO_MANY_EMPTY) },
                    "{count} of {element:x}"
                );
            }
        }
    }
    // Whatever describes them.
    let described = [0xe0, 5, 255, 0x00, 0x53, 0x01, 0x40];
    assert_eq!(check(&wide(0xd0, 5, &described.repeat(5))).unwrap_err().what, TOO_MANY_EMPTY);
}

#[test]
fn values_that_are_described_again_and_again_are_nested_too() {
    let described = |levels: usize| [[0x00, 0x44].repeat(levels), vec![0x40]].concat();
    assert_eq!(check(&described(31)), Ok(()));
    assert_eq!(check(&described(32)).unwrap_err().what, "descriptors nested too deeply");
    // Lists and descriptors count together.
    let list = |inside: Vec<u8>| [vec![0xc0, inside.len() as u8 + 1, 1], inside].concat();
    let mixed =
        |levels: usize| (0..levels).fold(vec![0x40], |inside, _| [vec![0x00, 0x44], list(inside)].concat());
    assert_eq!(check(&mixed(15)), Ok(()));
    assert_eq!(check(&mixed(20)).unwrap_err().what, "descriptors nested too deeply");
    // So do the descriptors that all elements of an array share.
    let array = |levels: usize| {
        let inside = [vec![1], [0x00, 0x44].repeat(levels), vec![0x50, 7]].concat();
        [vec![0xe0, inside.len() as u8], inside].concat()
    };
    assert_eq!(check(&array(30)), Ok(()));
    assert_eq!(check(&array(31)).unwrap_err().what, "descriptors nested too deeply");
}

#[test]
fn descriptors_are_numbers_or_names() {
    let described = |descriptor: &[u8]| [&[0x00], descriptor, &[0x41]].concat();
    let array = |descriptor: &[u8]| {
        let inside = [&[1, 0x00], descriptor, &[0x56, 1]].concat();
        [&[0xe0, inside.len() as u8], &inside[..]].concat()
    };
    let ulong = b"\x80\0\0\x46\x8c\0\0\0\x04";
    let of_the_specification = [&b"\x44"[..], b"\x53\x01", ulong, b"\xa3\x01d", b"\xb3\0\0\0\x01d"];
    let reserved = [
        &b"\x50\x01"[..],
        b"\x60\0\x01",
        b"\x43",
        b"\x52\x01",
        b"\x70\0\0\0\x01",
        b"\x51\x01",
        b"\x61\0\x01",
        b"\x54\x01",
        b"\x71\0\0\x30\x39",
        b"\x55\x01",
        b"\x81\0\0\0\0\0\0\x30\x39",
        b"\xa1\x01d",
        b"\xb1\0\0\0\x01d",
    ];
    for right in of_the_specification.into_iter().chain(reserved) {
        assert_eq!(check(&described(right)), Ok(()), "{right:02x?}");
        assert_eq!(check(&array(right)), Ok(()), "{right:02x?}");
    }
    for wrong in
        [&b"\x40"[..], b"\x41", b"\x73\0\0\0d", b"\xa0\x01d", b"\x45", b"\xc0\x01\0", b"\x00\x44\x44"]
    {
        let refused = check(&described(wrong));
        assert_eq!(refused, Err(Malformed::new(1, "a descriptor that is neither a number nor a name")));
        let refused = check(&array(wrong));
        assert_eq!(
            refused,
            Err(Malformed::new(4, "an array whose descriptor is neither a number nor a name"))
        );
    }
    // Text has to be text in a descriptor, too.
    assert!(check(&described(b"\xa1\x01\xff")).is_err() && check(&array(b"\xa1\x01\xff")).is_err());
}

#[test]
fn the_descriptor_of_an_array_hides_nothing() {
    // A list as its descriptor, whose content is not a value.
    let hidden = [0xe0, 7, 1, 0x00, 0xc0, 2, 1, 0x47, 0x40];
    assert_eq!(check(&hidden).unwrap_err().what, "an array whose descriptor is neither a number nor a name");
}

#[test]
fn the_inside_of_compound_values_is_checked_where_asked() {
    for (bytes, what) in [
        (&[0xc1, 2, 1, 0x40][..], "a key without a value"),
        (&[0xc0, 3, 1, 0x40, 0x40], "bytes after the last item"),
        (&[0xc0, 2, 1, 0x50], "ends too early"),
        (&[0xc0, 3, 1, 0xa1, 1], "ends too early"),
        (&[0xc0, 2, 1, 0x47], "unknown format code"),
        (&[0xc0, 2, 1, 0x00], "ends too early"),
        (&[0xe0, 2, 1, 0x47], "unknown format code"),
        (&[0xe0, 1, 1], "ends too early"),
        (&[0xe0, 4, 1, 0x56, 0, 0], "bytes after the last item"),
        (&[0xe0, 3, 1, 0x56, 9], "neither true nor false"),
        (&[0xe0, 3, 0, 0x40, 0], "bytes after the last item"),
    ] {
        assert!(Reader::new(bytes).skip().is_ok(), "{bytes:02x?}: from outside it is whole");
        assert_eq!(check(bytes).map_err(|malformed| malformed.what), Err(what), "{bytes:02x?}");
    }
    assert_eq!(check(&[0x40, 0x40]), Err(Malformed::new(1, "bytes after the last item")));
    // An item of a list may not extend beyond the list, though there are more bytes.
    assert!(check(&[0xc0, 2, 1, 0xa0, 0x40, 0x40]).is_err());
}

#[test]
fn nesting_is_bounded_where_it_is_followed() {
    let nested = |depth: usize| {
        (0..depth).fold(vec![0x40], |inner, _| {
            let mut outer = vec![0xc0, inner.len() as u8 + 1, 1];
            outer.extend(inner);
            outer
        })
    };
    assert_eq!(check(&nested(MAX_NESTING)), Ok(()));
    assert_eq!(check(&nested(MAX_NESTING + 1)).unwrap_err().what, "nested too deeply");
    assert!(Reader::new(&nested(MAX_NESTING + 1)).skip().is_ok(), "a size is enough to skip");

    let described = |depth: usize| [vec![0x00; depth], vec![0x40; depth + 1]].concat();
    assert!(Reader::new(&described(MAX_NESTING - 1)).skip().is_ok());
    assert!(Reader::new(&described(MAX_NESTING)).skip().is_err());
    assert!(Reader::new(&[0; 1 << 20]).skip().is_err());
    assert!(check(&[0; 1 << 20]).is_err());
}
