//! Test data: the messages of the log `golden/v1-without-validation`, which was written by a version that did
//! not validate messages yet: a valid one, some with invalid sections, a valid one.
#![allow(dead_code, reason = "each test uses its own part")]

/// The hub of the folder; it has one partition.
pub(crate) const HUB: &str = "homes";
/// When its events were stored.
pub(crate) const START: i64 = 1_700_000_000_000;

/// The parts of an event that readers get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kept {
    Everything,
    AllButOneSection,
    /// Nothing of it can be decoded: it is a body of bytes, as it was encoded.
    BodyAsBytes,
}

pub(crate) struct Sent {
    pub(crate) what: &'static str,
    pub(crate) kept: Kept,
    pub(crate) message: Vec<u8>,
    /// The bytes of its data section.
    pub(crate) body: Vec<u8>,
}

/// Deeper than what recursive readers bear whose stack is small.
const LEVELS: usize = 2_000;

/// Lists in lists.
fn lists() -> Vec<u8> {
    let mut nested = vec![0x45];
    for _ in 0..LEVELS {
        let size = nested.len() as u32 + 4;
        nested = [&[0xd0][..], &size.to_be_bytes(), &1u32.to_be_bytes(), &nested].concat();
    }
    nested
}

fn map(key: &[u8], value: &[u8]) -> Vec<u8> {
    let size = (4 + key.len() + value.len()) as u32;
    [&[0xd1][..], &size.to_be_bytes(), &2u32.to_be_bytes(), key, value].concat()
}

/// Four billion nulls, in few bytes.
const NULLS: [u8; 10] = [0xf0, 0, 0, 0, 5, 255, 255, 255, 255, 0x40];
const KEY: &[u8] = b"\xa3\x01k";

pub(crate) fn messages() -> Vec<Sent> {
    use Kept::{AllButOneSection, BodyAsBytes, Everything};
    let section = |descriptor: u8, value: &[u8]| [&[0x00, 0x53, descriptor][..], value].concat();
    let fourteen = [vec![0xc0, 15, 14], vec![0x40; 14]].concat();
    let described = [[0x00, 0x44].repeat(LEVELS), vec![0x40]].concat();
    let listed = [
        ("a header and a footer", Everything, 0x78, map(KEY, b"\x40")),
        ("a header whose durable is text", AllButOneSection, 0x70, b"\xc0\x04\x01\xa1\x01y".to_vec()),
        ("a header with a priority of 32 bits", AllButOneSection, 0x70, b"\xc0\x04\x02\x41\x52\x04".to_vec()),
        ("a header of six fields", AllButOneSection, 0x70, b"\xc0\x07\x06\x40\x40\x40\x40\x40\x40".to_vec()),
        ("a header with an unknown format code", AllButOneSection, 0x70, b"\xc0\x02\x01\x47".to_vec()),
        ("a header of lists in lists", AllButOneSection, 0x70, lists()),
        ("a footer of lists in lists", AllButOneSection, 0x78, map(KEY, &lists())),
        (
            "a footer of four billion",
            AllButOneSection,
            0x78,
            vec![0xd1, 0, 0, 0, 5, 255, 255, 255, 254, 0x40],
        ),
        ("a footer whose key is a list", AllButOneSection, 0x78, map(b"\x45", b"\x40")),
        ("a footer with an unknown format code", AllButOneSection, 0x78, map(KEY, b"\x47")),
        ("delivery annotations of lists in lists", AllButOneSection, 0x71, map(KEY, &lists())),
        ("properties of fourteen fields", AllButOneSection, 0x73, fourteen),
        ("properties whose message-id is a list", AllButOneSection, 0x73, b"\xc0\x02\x01\x45".to_vec()),
        ("an application property whose name is a list", AllButOneSection, 0x74, map(b"\x45", b"\x40")),
        ("an annotation of four billion nulls", AllButOneSection, 0x72, map(KEY, &NULLS)),
        ("a body of four billion nulls", BodyAsBytes, 0x77, NULLS.to_vec()),
        ("a body that is described again and again", BodyAsBytes, 0x77, described),
        ("only a body", Everything, 0x75, b"\xa0\x02hi".to_vec()),
    ];
    let sent = listed.into_iter().enumerate().map(|(number, (what, kept, descriptor, value))| {
        let body = if descriptor == 0x75 { b"hi".to_vec() } else { format!("event {number}").into_bytes() };
        let data = section(0x75, &[&[0xa0, body.len() as u8][..], &body].concat());
        let own = section(descriptor, &value);
        let message = match descriptor {
            0x75 | 0x77 => own,
            0x78 if kept == Everything => [section(0x70, b"\xc0\x02\x01\x41"), data, own].concat(),
            0x78 => [data, own].concat(),
            _ => [own, data].concat(),
        };
        Sent { what, kept, message, body }
    });
    sent.collect()
}
