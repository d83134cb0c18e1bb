//! Test data: the messages of the log `golden/v1-older-rules`, as they are stored and as readers get them.
#![allow(dead_code, reason = "each test uses its own part")]

/// The hub of the folder; it has one partition.
pub(crate) const HUB: &str = "homes";
/// When its events were stored.
pub(crate) const START: i64 = 1_700_000_000_000;
/// The key of all of them.
pub(crate) const PARTITION_KEY: &str = "home-7";

pub(crate) struct Lax {
    pub(crate) what: &'static str,
    pub(crate) stored: Vec<u8>,
    /// The message that readers get.
    pub(crate) read: Vec<u8>,
}

/// An array of 255 nulls, in four bytes.
const NULLS: &[u8] = b"\xe0\x02\xff\x40";

pub(crate) fn section(descriptor: u8, value: &[u8]) -> Vec<u8> {
    [&[0x00, 0x53, descriptor][..], value].concat()
}

fn wide(code: u8, count: usize, items: &[u8]) -> Vec<u8> {
    let size = (items.len() + 4) as u32;
    [&[code][..], &size.to_be_bytes(), &(count as u32).to_be_bytes(), items].concat()
}

pub(crate) fn list(items: &[&[u8]]) -> Vec<u8> {
    wide(0xd0, items.len(), &items.concat())
}

/// A map of these keys and values in turn.
pub(crate) fn map(items: &[&[u8]]) -> Vec<u8> {
    wide(0xd1, items.len(), &items.concat())
}

/// A list of so many arrays of 255 nulls.
pub(crate) fn bomb(arrays: usize) -> Vec<u8> {
    list(&vec![NULLS; arrays])
}

/// An array of so many arrays of 255 nulls, of three bytes each.
pub(crate) fn array_bomb(arrays: usize) -> Vec<u8> {
    wide(0xf0, arrays, &[&[0xe0][..], &NULLS[1..].repeat(arrays)].concat())
}

/// A map with so many arrays of 255 nulls as values.
pub(crate) fn map_bomb(arrays: usize) -> Vec<u8> {
    let keys: Vec<_> = (0..arrays as u32).map(|key| [&[0x70][..], &key.to_be_bytes()].concat()).collect();
    map(&keys.iter().flat_map(|key| [&key[..], NULLS]).collect::<Vec<_>>())
}

/// The properties with the same text in every field that is text, in these types.
fn properties(string: &[u8], symbol: &[u8]) -> Vec<u8> {
    let (string, symbol, null) = ([string, b"\x01t"].concat(), [symbol, b"\x01t"].concat(), b"\x40".to_vec());
    let mut fields = vec![null; 13];
    [2, 3, 4, 10, 12].into_iter().for_each(|field: usize| fields[field].clone_from(&string));
    [6, 7].into_iter().for_each(|field: usize| fields[field].clone_from(&symbol));
    section(0x73, &list(&fields.iter().map(Vec::as_slice).collect::<Vec<_>>()))
}

const DATA: &[u8] = b"\x00\x53\x75\xa0\x02hi";
const STRING: &[u8] = b"\xa1\x01k";
const SYMBOL: &[u8] = b"\xa3\x01k";
const LONG_STRING: &[u8] = b"\xb1\0\0\0\x01k";
const LONG_SYMBOL: &[u8] = b"\xb3\0\0\0\x01k";
const OTHER: &[u8] = b"\xa1\x05other";
const TRUE: &[u8] = b"\x41";

/// The encoding of a body as the content of a data section.
fn as_data(body: &[u8]) -> Vec<u8> {
    match body.len() {
        length @ 0..=255 => section(0x75, &[&[0xa0, length as u8][..], body].concat()),
        length => section(0x75, &[&[0xb0][..], &(length as u32).to_be_bytes(), body].concat()),
    }
}

/// Events with more elements that take no bytes than a message may have.
pub(crate) fn bombs() -> Vec<Lax> {
    let bomb = bomb(5);
    let body = |what, value: &[u8]| {
        let stored = section(0x77, value);
        Lax { what, read: as_data(&stored), stored }
    };
    let before = |what, descriptor, key: &[u8]| Lax {
        what,
        stored: [section(descriptor, &map(&[key, &bomb])), DATA.to_vec()].concat(),
        read: DATA.to_vec(),
    };
    let four = section(0x72, &map(&[SYMBOL, &list(&[NULLS; 4])]));
    vec![
        body("a body of arrays in a list", &bomb),
        body("a body of arrays in an array", &array_bomb(5)),
        body("a body of arrays in a map", &map_bomb(5)),
        Lax {
            what: "a footer of arrays",
            stored: [DATA, &section(0x78, &map(&[SYMBOL, &bomb]))].concat(),
            read: DATA.to_vec(),
        },
        before("message annotations of arrays", 0x72, SYMBOL),
        before("delivery annotations of arrays", 0x71, SYMBOL),
        before("application properties of arrays", 0x74, STRING),
        Lax {
            what: "annotations and a footer that have too many together",
            stored: [&four, DATA, &section(0x78, &map(&[SYMBOL, NULLS]))].concat(),
            read: [&four, DATA].concat(),
        },
    ]
}

/// Events with text of the wrong type, which is read as the right one.
pub(crate) fn odd_texts() -> Vec<Lax> {
    let before = |what, descriptor, stored: &[u8], read: &[u8]| Lax {
        what,
        stored: [section(descriptor, &map(&[stored, TRUE])), DATA.to_vec()].concat(),
        read: [section(descriptor, &map(&[read, TRUE])), DATA.to_vec()].concat(),
    };
    vec![
        Lax {
            what: "a footer with strings as keys",
            stored: [DATA, &section(0x78, &map(&[STRING, TRUE, LONG_STRING, TRUE]))].concat(),
            read: [DATA, &section(0x78, &map(&[SYMBOL, TRUE, LONG_SYMBOL, TRUE]))].concat(),
        },
        before("delivery annotations with a string as key", 0x71, STRING, SYMBOL),
        before("message annotations with a string as key", 0x72, LONG_STRING, LONG_SYMBOL),
        before("an application property with a symbol as key", 0x74, SYMBOL, STRING),
        before("an application property with a long symbol as key", 0x74, LONG_SYMBOL, LONG_STRING),
        Lax {
            what: "properties with the other type of text",
            stored: [&properties(b"\xa3", b"\xa1"), DATA].concat(),
            read: [&properties(b"\xa1", b"\xa3"), DATA].concat(),
        },
    ]
}

/// Events with application properties that are not simple, which readers do not get.
pub(crate) fn compound_properties() -> Vec<Lax> {
    // Written anew, in the short form.
    let other = section(0x74, b"\xc1\x09\x02\xa1\x05other\x41");
    let values: [(_, &[u8]); 4] = [
        ("an application property that is a list", b"\x45"),
        ("an application property that is a map", b"\xc1\x01\x00"),
        ("an application property that is an array", b"\xe0\x03\x01\x56\x01"),
        ("an application property that is a described list", b"\x00\xa3\x01d\xc0\x02\x01\x41"),
    ];
    let each = values.into_iter().map(|(what, value)| Lax {
        what,
        stored: [section(0x74, &map(&[STRING, value, OTHER, TRUE])), DATA.to_vec()].concat(),
        read: [&other, DATA].concat(),
    });
    each.collect()
}

/// All events of the folder.
pub(crate) fn messages() -> Vec<Lax> {
    let valid = |what, message: &[u8]| Lax { what, stored: message.to_vec(), read: message.to_vec() };
    let footer = section(0x78, &map(&[SYMBOL, TRUE]));
    let mut all = vec![valid("a footer", &[DATA, &footer].concat())];
    all.extend(bombs());
    all.extend(odd_texts());
    all.extend(compound_properties());
    all.push(valid("only a body", DATA));
    all
}
