//! Tests of malformed frames, and of frames in the wrong order: each ends the link, session or connection
//! that it concerns, with the AMQP condition that names the error.

use ephor_amqp::encode;
use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::{Attach, Begin, Detach, End, Outcome, Sasl, SaslInit};
use ephor_core::event::NewEvent;

use crate::client::{Client, encoded};
use crate::process_resources::{alone, run};
use crate::raw_peer::{self, CHANNEL, Raw, amqp, frame};
use crate::server::{HUB, Server};

const FRAMING: &str = "amqp:connection:framing-error";
const NOT_ALLOWED: &str = "amqp:not-allowed";
const DECODE: &str = "amqp:decode-error";
const UNATTACHED: &str = "amqp:session:unattached-handle";

/// The bytes to send, and the expected performative and condition.
struct Case {
    what: &'static str,
    said: Vec<u8>,
    ends: &'static str,
    condition: &'static str,
}

fn case(what: &'static str, said: Vec<u8>, ends: &'static str, condition: &'static str) -> Case {
    Case { what, said, ends, condition }
}

fn sasl_init() -> Vec<u8> {
    let init = SaslInit { mechanism: "ANONYMOUS".into(), initial_response: None, hostname: None };
    let mut body = Vec::new();
    Sasl::Init(init).write(&mut body);
    frame(1, 0, &body)
}

/// A performative that claims to have these fields.
fn performative(descriptor: u8, fields: &[u8]) -> Vec<u8> {
    let mut body = vec![0x00, 0x53, descriptor, 0xd0];
    body.extend((fields.len() as u32 + 4).to_be_bytes());
    body.extend(10u32.to_be_bytes());
    body.extend(fields);
    frame(0, 0, &body)
}

/// An `open` with these properties.
fn open_with(properties: &[u8]) -> Vec<u8> {
    let mut fields = vec![0xa1, 1, b'c'];
    fields.extend([0x40; 8]);
    fields.extend(properties);
    performative(0x10, &fields)
}

/// Nested lists, as deep as fits into this many bytes.
fn nested(bytes: usize) -> Vec<u8> {
    let levels = bytes / 9;
    let mut nested = Vec::new();
    for level in 0..levels {
        nested.push(0xd0);
        nested.extend((4 + 9 * (levels - level - 1) as u32 + 1).to_be_bytes());
        nested.extend(1u32.to_be_bytes());
    }
    nested.push(0x45);
    nested
}

/// Bytes that are no frame, or no performative, in any state.
fn malformed() -> Vec<Case> {
    let sized = |size: u32, offset: u8| {
        let mut header = size.to_be_bytes().to_vec();
        header.extend([offset, 0, 0, 0]);
        header
    };
    let close = "Close";
    vec![
        case("no size", sized(0, 2), close, FRAMING),
        case("a size below the header's", sized(7, 2), close, FRAMING),
        case("a negative size", sized(0x8000_0000, 2), close, FRAMING),
        case("the smallest negative size", sized(u32::MAX, 2), close, FRAMING),
        case("a size beyond what is allowed", sized(65_537, 2), close, FRAMING),
        case("a body in the header", sized(16, 1), close, FRAMING),
        case("a body at the beginning", sized(16, 0), close, FRAMING),
        case("a body behind the end", sized(16, 5), close, FRAMING),
        case("a type that nobody knows", frame(7, 0, &[0; 8]), close, FRAMING),
        case("frames of SASL outside of it", sasl_init(), close, FRAMING),
        case("a header instead of a frame", Protocol::Amqp.header().to_vec(), close, FRAMING),
        case("descriptors of descriptors", frame(0, 0, &[0; 8_000]), close, DECODE),
        case("lists in lists", frame(0, 0, &nested(8_000)), close, DECODE),
        case(
            "a list of four billion",
            frame(0, 0, &[0, 0x53, 0x10, 0xd0, 0, 0, 0, 4, 255, 255, 255, 255]),
            close,
            DECODE,
        ),
        case(
            "a list of four gigabytes",
            frame(0, 0, &[0, 0x53, 0x10, 0xd0, 255, 255, 255, 255, 0, 0, 0, 1]),
            close,
            DECODE,
        ),
        case("no performative", frame(0, 0, &[0, 0x53, 0x70, 0x45]), close, "amqp:not-implemented"),
        case("not even described", frame(0, 0, b"hello"), close, DECODE),
    ]
}

/// Errors before the open.
fn before_open() -> Vec<Case> {
    let close = "Close";
    let text = |code: u8, length: u32| [&[code][..], &length.to_be_bytes(), b"x"].concat();
    let counted = |code: u8, size: u32| [&[code][..], &size.to_be_bytes(), &[255; 4], b"x"].concat();
    let mut cases = malformed();
    cases.extend([
        case("begin before open", raw_peer::begin(0), close, NOT_ALLOWED),
        case("attach before open", raw_peer::attach(0, 0, Attach::sender("a", "b")), close, NOT_ALLOWED),
        case("transfer before open", raw_peer::transfer(0, 0, 0, false, b"x"), close, NOT_ALLOWED),
        case("a map of four billion", open_with(&counted(0xd1, 5)), close, DECODE),
        case("a map of four gigabytes", open_with(&counted(0xd1, u32::MAX)), close, DECODE),
        case("an array of four billion", open_with(&counted(0xf0, 6)), close, DECODE),
        case("an array of four gigabytes", open_with(&counted(0xf0, u32::MAX)), close, DECODE),
        case("a symbol of four gigabytes", open_with(&text(0xb3, u32::MAX)), close, DECODE),
        case("a string of minus two bytes", open_with(&text(0xb1, u32::MAX - 1)), close, DECODE),
        case("a binary of two gigabytes", open_with(&text(0xb0, 1 << 31)), close, DECODE),
        case("properties nested too deeply", open_with(&nested(7_000)), close, DECODE),
        case("an open without its name", performative(0x10, &[0x40; 10]), close, "amqp:invalid-field"),
    ]);
    cases
}

/// Errors after the open, with a session on [`CHANNEL`].
fn after_open() -> Vec<Case> {
    let (close, end) = ("Close", "End");
    let answer = Begin { remote_channel: Some(9), ..Begin::default() };
    let detach = Detach { handle: 3, closed: true, error: None };
    let cbs = |handle| raw_peer::attach(CHANNEL, handle, Attach::sender("a", "$cbs"));
    let mut cases = malformed();
    cases.extend([
        case("nesting as deep as a frame is large", frame(0, 0, &[0; 65_000]), close, DECODE),
        case("lists in lists in a large frame", frame(0, CHANNEL, &nested(65_000)), close, DECODE),
        case("a second open", raw_peer::open(), close, NOT_ALLOWED),
        case("a second begin", raw_peer::begin(CHANNEL), close, NOT_ALLOWED),
        case("a begin beyond the last channel", raw_peer::begin(5_000), close, FRAMING),
        case("an answer to no question", amqp(7, |into| answer.write(into)), close, NOT_ALLOWED),
        case(
            "attach without a session",
            raw_peer::attach(9, 0, Attach::sender("a", "b")),
            close,
            NOT_ALLOWED,
        ),
        case("transfer without a session", raw_peer::transfer(9, 0, 0, false, b"x"), close, NOT_ALLOWED),
        case("end without a session", amqp(9, |into| End { error: None }.write(into)), close, NOT_ALLOWED),
        case("transfer before attach", raw_peer::transfer(CHANNEL, 0, 0, false, b"x"), end, UNATTACHED),
        case("detach before attach", amqp(CHANNEL, |into| detach.write(into)), end, UNATTACHED),
        case("a handle twice", [cbs(0), cbs(0)].concat(), end, "amqp:session:handle-in-use"),
        case("a handle beyond the last", cbs(256), close, FRAMING),
        case(
            "a delivery within another",
            [
                cbs(0),
                raw_peer::transfer(CHANNEL, 0, 0, true, b"x"),
                raw_peer::transfer(CHANNEL, 0, 1, true, b"x"),
            ]
            .concat(),
            "Detach",
            NOT_ALLOWED,
        ),
        case(
            "a transfer to one who sends",
            [
                raw_peer::attach(CHANNEL, 0, Attach::receiver("a", "$cbs")),
                raw_peer::transfer(CHANNEL, 0, 0, false, b"x"),
            ]
            .concat(),
            "Detach",
            NOT_ALLOWED,
        ),
    ]);
    cases
}

/// A server, and a regular client that goes on sending.
struct House {
    server: Server,
    honest: Client,
    sender: ephor_amqp::connection::LinkId,
}

impl House {
    async fn new() -> Self {
        let server = Server::start().await;
        let mut honest = Client::of(&server).await;
        let sender = honest.sender(HUB).await;
        Self { server, honest, sender }
    }

    async fn goes_on(&mut self) {
        let event = encoded(&NewEvent::new("x"));
        assert_eq!(self.honest.send(self.sender, 0, &event).await, Outcome::Accepted);
    }

    /// Sends the bytes of a case, and checks how it ends.
    async fn check(&mut self, mut raw: Raw, case: &Case) {
        raw.write(&case.said).await;
        let said = raw.read_until(case.ends).await;
        assert!(said.contains(case.condition), "{}: {said}", case.what);
        self.goes_on().await;
    }
}

#[test]
fn before_open_the_offender_is_closed_with_the_reason() {
    let _alone = alone();
    run(async {
        let mut house = House::new().await;
        for case in before_open() {
            let mut raw = Raw::connected(house.server.address).await;
            raw.write(&Protocol::Amqp.header()).await;
            house.check(raw, &case).await;
        }
    });
}

#[test]
fn after_open_the_offender_loses_what_it_misused_with_the_reason() {
    let _alone = alone();
    run(async {
        let mut house = House::new().await;
        for case in after_open() {
            let raw = Raw::opened(house.server.address).await;
            house.check(raw, &case).await;
        }
    });
}

#[test]
fn after_sasl_there_is_no_sasl() {
    let _alone = alone();
    run(async {
        let mut house = House::new().await;
        for _ in 0..2 {
            let mut raw = Raw::connected(house.server.address).await;
            let header = Protocol::Amqp.header();
            raw.write(&[&Protocol::Sasl.header()[..], &sasl_init(), &header, &raw_peer::open()].concat())
                .await;
            raw.read_until("Open").await;
            house.check(raw, &case("SASL again", sasl_init(), "Close", FRAMING)).await;
        }
    });
}

#[test]
fn within_sasl_there_is_no_way_to_say_why_but_the_end() {
    let _alone = alone();
    run(async {
        let mut house = House::new().await;
        let mut huge = vec![0x00, 0x53, 0x41, 0xd0, 0, 0, 0, 9, 0, 0, 0, 1, 0xb3];
        encode::uint(&mut huge, u32::MAX);
        for nonsense in [
            frame(1, 0, &huge),
            frame(1, 0, &nested(7_000)),
            frame(1, 0, &[0; 8_000]),
            raw_peer::open(),
            vec![0xff; 8],
            vec![0; 8],
        ] {
            let mut raw = Raw::connected(house.server.address).await;
            raw.write(&[&Protocol::Sasl.header()[..], &nonsense].concat()).await;
            let header = raw.read().await.unwrap();
            assert!(header.starts_with("Header"), "{header}");
            assert_eq!(raw.read().await.unwrap(), "Frame of type 1", "the mechanisms");
            assert_eq!(raw.read().await, None);
            house.goes_on().await;
        }
    });
}
