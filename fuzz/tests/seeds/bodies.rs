//! Seeds for the fuzz corpus: AMQP values, the bodies of frames, and a sequence of frames.

use ephor_amqp::frame::{HEARTBEAT, Protocol};
use ephor_amqp::performative::*;
use ephor_amqp::{Encoded, Value, encode};

use crate::Seeds;
use crate::raw_frames::{Transfer, amqp, frame, written};

/// Every type, nested compound ones, and an array.
pub(crate) fn values() -> Seeds {
    let map = Encoded::map([("com.microsoft:epoch", Value::Long(300)), ("x", Value::Null)]);
    let names = Encoded::symbols(["amqp:accepted:list", "amqp:rejected:list"]);
    let described = Encoded::described(Value::Ulong(0x468C_0000_0004), Value::String("a > '-1'"));
    let long = "long ".repeat(60);
    let all = [
        Value::Null,
        Value::Bool(true),
        Value::Ubyte(200),
        Value::Ushort(4_999),
        Value::Uint(0),
        Value::Uint(7),
        Value::Uint(70_000),
        Value::Ulong(0),
        Value::Ulong(u64::MAX),
        Value::Byte(-1),
        Value::Short(-2),
        Value::Int(-3),
        Value::Int(1 << 20),
        Value::Long(-4),
        Value::Long(1 << 40),
        Value::Float(1.5),
        Value::Double(2.5),
        Value::Char('é'),
        Value::Timestamp(1_700_000_000_000),
        Value::Uuid([9; 16]),
        Value::Binary(b"bytes"),
        Value::String("text"),
        Value::String(&long),
        Value::Symbol("name"),
        Value::Encoded(map.as_bytes()),
        Value::Encoded(names.as_bytes()),
        Value::Encoded(described.as_bytes()),
    ];
    let row = written(|into| all.into_iter().for_each(|value| encode::value(into, value)));
    let list = |items: &[u8], count| {
        written(|into| {
            let begun = encode::begin(into);
            into.extend_from_slice(items);
            encode::end_list(into, begun, count);
        })
    };
    let nested = list(&list(&list(described.as_bytes(), 1), 1), 1);
    vec![
        ("a-row".into(), row.clone()),
        ("a-list".into(), list(&row, all.len())),
        ("nested".into(), nested),
        ("map".into(), map.as_bytes().to_vec()),
        ("array".into(), names.as_bytes().to_vec()),
        ("decimal".into(), b"\x74\x01\x02\x03\x04".to_vec()),
        ("wide-boolean".into(), b"\x56\x01".to_vec()),
        ("descriptors-in-one-another".into(), [vec![0; 40], vec![0x40; 41]].concat()),
    ]
}

fn attach() -> Attach {
    Attach {
        handle: 3,
        sender_settles: Some(SenderSettles::Mixed),
        receiver_settles: Some(ReceiverSettles::Second),
        source: Some(Source {
            durable: Some(1),
            expiry_policy: Some("never".into()),
            timeout: Some(70_000),
            dynamic: Some(false),
            distribution_mode: Some("copy".into()),
            filter: Some(Encoded::map([("f", Value::String("v"))])),
            outcomes: Some(Encoded::symbols(["amqp:accepted:list"])),
            capabilities: Some(Encoded::of(Value::Symbol("queue"))),
            ..Source::from("homes/ConsumerGroups/$Default/Partitions/0")
        }),
        target: Some(Target { durable: Some(2), ..Target::to("there") }),
        initial_delivery_count: Some(9),
        max_message_size: Some(1 << 20),
        offered_capabilities: Some(Encoded::symbols(["a"])),
        desired_capabilities: Some(Encoded::symbols(["com.microsoft:georeplication"])),
        properties: Some(Encoded::map([("com.microsoft:epoch", Value::Long(300))])),
        ..Attach::new("link", Role::Sender)
    }
}

pub(crate) fn performatives() -> Seeds {
    let open = Open {
        container_id: "c".into(),
        hostname: Some("localhost".into()),
        max_frame_size: Some(65_536),
        channel_max: Some(4_999),
        idle_time_out: Some(120_000),
        desired_capabilities: Some(Encoded::symbols(["x"])),
        properties: Some(Encoded::map([("product", Value::String("p"))])),
        ..Open::default()
    };
    let begin =
        Begin { remote_channel: Some(1), incoming_window: 5_000, outgoing_window: 5_000, ..Begin::default() };
    let flow = Flow { handle: Some(0), link_credit: Some(300), drain: Some(true), ..Flow::default() };
    let error =
        || Some(Error { info: Some(Encoded::map([("i", Value::Int(1))])), ..Error::new("amqp:x", "y") });
    let disposition =
        |outcome| Disposition { role: Role::Receiver, first: 7, last: Some(300), settled: true, outcome };
    let transfer = Transfer { handle: 1, id: 2, format: 0x8001_3700, more: true, payload: b"payload" };
    let modified = Outcome::Modified { delivery_failed: true, undeliverable_here: false };
    [
        ("open", written(|into| open.write(into))),
        ("begin", written(|into| begin.write(into))),
        ("attach", written(|into| attach().write(into))),
        ("attach-bare", written(|into| Attach::new("l", Role::Receiver).write(into))),
        ("flow", written(|into| flow.write(into))),
        ("transfer", written(|into| transfer.write(into))),
        ("accepted", written(|into| disposition(Some(Outcome::Accepted)).write(into))),
        ("rejected", written(|into| disposition(Some(Outcome::Rejected(error()))).write(into))),
        ("released", written(|into| disposition(Some(Outcome::Released)).write(into))),
        ("modified", written(|into| disposition(Some(modified)).write(into))),
        ("detach", written(|into| Detach { handle: 0, closed: true, error: error() }.write(into))),
        ("end", written(|into| End { error: error() }.write(into))),
        ("close", written(|into| Close { error: None }.write(into))),
        ("end-in-few-bytes", b"\x00\x53\x17\x45".to_vec()),
        ("close-by-name", b"\x00\xa3\x0famqp:close:list\x45".to_vec()),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}

pub(crate) fn sasl() -> Seeds {
    let init = SaslInit {
        mechanism: "PLAIN".into(),
        initial_response: Some(Secret::new(*b"\0somebody\0a password")),
        hostname: Some("localhost".into()),
    };
    let names = vec!["MSSBCBS".into(), "PLAIN".into()];
    [
        ("mechanisms", Sasl::Mechanisms(SaslMechanisms { names })),
        ("init", Sasl::Init(init)),
        ("outcome", Sasl::Outcome(SaslOutcome { code: SaslCode::Auth, additional_data: None })),
    ]
    .map(|(name, sasl)| (name.to_owned(), written(|into| sasl.write(into))))
    .into()
}

/// A protocol header, and a frame of every kind.
pub(crate) fn row_of_frames() -> Vec<u8> {
    let mut row = Protocol::Sasl.header().to_vec();
    sasl().into_iter().for_each(|(_, body)| row.extend(frame(1, 0, &body)));
    row.extend(Protocol::Amqp.header());
    row.extend(HEARTBEAT);
    performatives().into_iter().for_each(|(_, body)| row.extend(amqp(|into| into.extend(body))));
    row
}
