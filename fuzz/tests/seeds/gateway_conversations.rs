//! Seeds for the fuzz corpus: conversations with a gateway, written by hand. They do not wait for answers,
//! so they are always the same.

use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::*;
use ephor_amqp::{Encoded, Value, encode};
use ephor_core::event::NewEvent;
use ephor_core::position::SequenceNumber;
use ephor_core::time::Timestamp;
use ephor_wire::batch::MESSAGE_FORMAT;
use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use ephor_wire::sas::{Key, sign};
use ephor_wire::selector::Start;

use crate::Seeds;
use crate::raw_frames::{Transfer, amqp, frame, written};
use crate::{events, request_response};

/// An expiry time in the far future: a token in the corpus must not expire.
const IN_THE_YEAR_2200: Timestamp = Timestamp(7_258_118_400_000);

fn headers(mechanism: &str, response: &[u8]) -> Vec<u8> {
    let init = Sasl::Init(SaslInit {
        mechanism: mechanism.into(),
        initial_response: Some(Secret::new(response)),
        hostname: Some("localhost".into()),
    });
    let body = written(|into| init.write(into));
    let open = Open {
        container_id: "seed".into(),
        max_frame_size: Some(4_096),
        properties: Some(Encoded::map([("product", Value::String("seed"))])),
        ..Open::default()
    };
    let begin = Begin { incoming_window: 100, outgoing_window: 100, ..Begin::default() };
    [
        Protocol::Sasl.header().to_vec(),
        frame(1, 0, &body),
        Protocol::Amqp.header().to_vec(),
        amqp(|into| open.write(into)),
        amqp(|into| begin.write(into)),
    ]
    .concat()
}

/// Authenticates with a name and a key, by SASL PLAIN.
fn by_name() -> Vec<u8> {
    headers("PLAIN", format!("\0{DEVELOPMENT_KEY_NAME}\0{DEVELOPMENT_KEY}").as_bytes())
}

/// Authenticates with a token.
fn by_token() -> Vec<u8> {
    let token = sign("sb://localhost/", DEVELOPMENT_KEY_NAME, &Key::new(DEVELOPMENT_KEY), IN_THE_YEAR_2200);
    [headers("ANONYMOUS", b""), exchange_with("$cbs", 0, 1, &request_response::put(&token))].concat()
}

fn attach(handle: u32, attach: Attach) -> Vec<u8> {
    amqp(|into| Attach { handle, ..attach }.write(into))
}

fn credit(handle: u32, credit: u32, drain: bool) -> Vec<u8> {
    let flow = Flow {
        incoming_window: 100,
        outgoing_window: 100,
        handle: Some(handle),
        delivery_count: Some(0),
        link_credit: Some(credit),
        drain: Some(drain),
        echo: true,
        ..Flow::default()
    };
    amqp(|into| flow.write(into))
}

fn transfer(handle: u32, id: u32, format: u32, payload: &[u8]) -> Vec<u8> {
    amqp(|into| Transfer { handle, id, format, more: false, payload }.write(into))
}

/// Sends a request to a node over two links, the first of which has this handle.
fn exchange_with(node: &str, handle: u32, id: u32, request: &[u8]) -> Vec<u8> {
    let mut replies = Attach::receiver(format!("replies {handle}"), node);
    replies.target = Some(Target::to("replies"));
    [
        attach(handle, replies),
        attach(handle + 1, Attach::sender(format!("requests {handle}"), node)),
        credit(handle, 5, false),
        transfer(handle + 1, id, 0, request),
    ]
    .concat()
}

fn sender(handle: u32, address: &str) -> Vec<u8> {
    attach(handle, Attach::sender(format!("sender {handle}"), address))
}

fn receiver(handle: u32, start: &Start, epoch: Option<i64>) -> Vec<u8> {
    let name = format!("receiver {handle}");
    let mut asked = Attach::receiver(name, "homes/ConsumerGroups/$Default/Partitions/0");
    let filter = written(|into| start.write_filter(into));
    asked.source.as_mut().unwrap().filter = Some(Encoded::copy(&filter).unwrap());
    let epoch = epoch.map(|epoch| ("com.microsoft:epoch", Value::Long(epoch)));
    let named = ("com.microsoft:receiver-name", Value::String("seed"));
    asked.properties = Some(Encoded::map([named].into_iter().chain(epoch)));
    asked.desired_capabilities = Some(Encoded::symbols(["com.microsoft:enable-receiver-runtime-metric"]));
    attach(handle, asked)
}

/// An idempotent producer: a new one, or one that continues.
fn numbered(handle: u32, goes_on: bool) -> Vec<u8> {
    let mut asked = Attach::sender(format!("numbered {handle}"), "homes/Partitions/1");
    asked.desired_capabilities = Some(Encoded::symbols(["com.microsoft:idempotent-producer"]));
    asked.properties = goes_on.then(|| {
        Encoded::map([
            ("com.microsoft:producer-id", Value::Long(1)),
            ("com.microsoft:producer-epoch", Value::Short(0)),
            ("com.microsoft:producer-sequence-number", Value::Int(4)),
        ])
    });
    attach(handle, asked)
}

fn event_number(number: i32) -> Vec<u8> {
    let body = events::encoded(&NewEvent::new("numbered"));
    written(|into| {
        encode::described(into, 0x72);
        let map = encode::begin(into);
        encode::symbol(into, "com.microsoft:producer-sequence-number");
        encode::int(into, number);
        encode::end_map(into, map, 1);
        into.extend(body);
    })
}

fn farewell() -> Vec<u8> {
    let error = Some(Error::new("amqp:x", "enough"));
    [
        amqp(|into| Detach { handle: 2, closed: true, error }.write(into)),
        amqp(|into| End { error: None }.write(into)),
        amqp(|into| Close { error: None }.write(into)),
    ]
    .concat()
}

pub(crate) fn conversations() -> Seeds {
    let event = events::encoded(&events::rich());
    let sending = [
        by_name(),
        sender(2, "homes"),
        transfer(2, 0, 0, &event),
        transfer(2, 1, MESSAGE_FORMAT, &events::batch(Some("home-7"))),
        sender(3, "homes/Partitions/1"),
        transfer(3, 2, MESSAGE_FORMAT, &events::batch(None)),
        amqp(|into| Transfer { handle: 3, id: 3, format: 0, more: true, payload: &event[..200] }.write(into)),
        amqp(|into| {
            Transfer { handle: 3, id: 3, format: 0, more: false, payload: &event[200..] }.write(into)
        }),
        farewell(),
    ];
    let receiving = [
        by_token(),
        sender(2, "homes/Partitions/0"),
        transfer(2, 2, 0, &event),
        receiver(3, &Start::Earliest, None),
        credit(3, 10, false),
        receiver(4, &Start::Sequence { number: SequenceNumber(0), inclusive: true }, Some(3)),
        credit(4, 10, true),
        receiver(5, &Start::Latest { inclusive: true }, Some(2)),
        farewell(),
    ];
    let [hub, partition] = request_response::queries();
    let asking = [
        by_token(),
        exchange_with("$management", 2, 2, &hub),
        exchange_with("homes/$management", 4, 3, &partition),
        transfer(5, 4, 0, b"no request"),
        farewell(),
    ];
    let numbering = [
        by_name(),
        numbered(2, false),
        transfer(2, 0, 0, &event_number(1)),
        transfer(2, 1, 0, &event_number(2)),
        transfer(2, 2, 0, &event_number(2)),
        transfer(2, 3, 0, &event_number(9)),
        numbered(3, true),
        transfer(3, 4, 0, &event_number(5)),
        farewell(),
    ];
    let strange = [
        headers("ANONYMOUS", b""),
        sender(2, "homes"),
        receiver(3, &Start::Earliest, None),
        exchange_with("$cbs", 4, 0, &request_response::put("no token")),
        exchange_with("$management", 6, 1, &hub),
        farewell(),
    ];
    vec![
        ("sending".into(), sending.concat()),
        ("receiving".into(), receiving.concat()),
        ("asking".into(), asking.concat()),
        ("numbering".into(), numbering.concat()),
        ("a-stranger".into(), strange.concat()),
    ]
}
