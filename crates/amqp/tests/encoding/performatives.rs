//! Tests performatives: encoding byte for byte, and decoding.

use ephor_amqp::encode::{self};
use ephor_amqp::performative::*;
use ephor_amqp::{Encoded, Value};

fn written(write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    write(&mut bytes);
    bytes
}

/// The number of fields in the list of a performative, which has to be in the short form.
fn fields(bytes: &[u8]) -> u8 {
    assert_eq!([bytes[0], bytes[1]], [0x00, 0x53], "a descriptor of two bytes");
    match bytes[3] {
        0xc0 => bytes[5],
        0xd0 => bytes[11],
        other => panic!("a list with a size and a count, not {other:#x}"),
    }
}

fn read(bytes: &[u8]) -> Performative<'_> {
    let (performative, end) = Performative::read(bytes).expect("a performative");
    assert_eq!(end, bytes.len());
    performative
}

fn full_attach() -> Attach {
    Attach {
        handle: 3,
        sender_settles: Some(SenderSettles::Unsettled),
        receiver_settles: Some(ReceiverSettles::Second),
        source: Some(Source {
            durable: Some(1),
            expiry_policy: Some("never".into()),
            timeout: Some(70_000),
            dynamic: Some(false),
            distribution_mode: Some("copy".into()),
            filter: Some(Encoded::map([(
                "apache.org:selector-filter:string",
                Value::Encoded(
                    Encoded::described(Value::Ulong(0x468C_0000_0004), Value::String("x > '-1'")).as_bytes(),
                ),
            )])),
            default_outcome: Some(Encoded::described(Value::Ulong(0x24), Value::Encoded(&[0xc0, 1, 0]))),
            outcomes: Some(Encoded::symbols(["amqp:accepted:list", "amqp:rejected:list"])),
            capabilities: Some(Encoded::of(Value::Symbol("queue"))),
            ..Source::from("hub/ConsumerGroups/$Default/Partitions/0")
        }),
        target: Some(Target { durable: Some(2), ..Target::to("there") }),
        initial_delivery_count: Some(9),
        max_message_size: Some(1_048_576),
        offered_capabilities: Some(Encoded::symbols(["a"])),
        desired_capabilities: Some(Encoded::symbols(["com.microsoft:georeplication"])),
        properties: Some(Encoded::map([("com.microsoft:epoch", Value::Long(300))])),
        ..Attach::new("link", Role::Sender)
    }
}

#[test]
fn every_performative_is_written_in_full() {
    let error = Some(Error::new(condition::NOT_FOUND, "no such hub"));
    let cases: [(Vec<u8>, u8); 9] = [
        (written(|into| Open::default().write(into)), 10),
        (written(|into| Begin::default().write(into)), 8),
        (written(|into| Attach::new("l", Role::Sender).write(into)), 14),
        (written(|into| Flow::default().write(into)), 11),
        (
            written(|into| {
                Disposition { role: Role::Receiver, first: 0, last: None, settled: true, outcome: None }
                    .write(into);
            }),
            6,
        ),
        (written(|into| Detach { handle: 0, closed: true, error: None }.write(into)), 3),
        (written(|into| End { error: None }.write(into)), 1),
        (written(|into| Close { error: None }.write(into)), 1),
        (written(|into| Close { error }.write(into)), 1),
    ];
    for (bytes, count) in cases {
        assert_eq!(fields(&bytes), count, "{bytes:02x?}");
    }
}

#[test]
fn the_golden_replies_are_these_bytes() {
    let open = Open {
        container_id: "c".into(),
        max_frame_size: Some(65_536),
        channel_max: Some(4_999),
        idle_time_out: Some(120_000),
        ..Open::default()
    };
    let nulls = [0x40; 5];
    let mut expected = vec![0x00, 0x53, 0x10, 0xc0, 0x17, 10, 0xa1, 1, b'c', 0x40, 0x70, 0, 1, 0, 0];
    expected.extend([0x60, 0x13, 0x87, 0x70, 0x00, 0x01, 0xd4, 0xc0]);
    expected.extend(nulls);
    expected[4] = (expected.len() - 5) as u8;
    assert_eq!(written(|into| open.write(into)), expected);

    let begin = Begin {
        remote_channel: Some(1),
        next_outgoing_id: 1,
        incoming_window: 5_000,
        outgoing_window: 5_000,
        handle_max: Some(255),
        ..Begin::default()
    };
    let expected = [
        0x00, 0x53, 0x11, 0xc0, 21, 8, 0x60, 0, 1, 0x52, 1, 0x70, 0, 0, 0x13, 0x88, 0x70, 0, 0, 0x13, 0x88,
        0x52, 255, 0x40, 0x40, 0x40,
    ];
    assert_eq!(written(|into| begin.write(into)), expected);

    let accepted = Disposition {
        role: Role::Receiver,
        first: 7,
        last: None,
        settled: true,
        outcome: Some(Outcome::Accepted),
    };
    let expected =
        [0x00, 0x53, 0x15, 0xc0, 13, 6, 0x41, 0x52, 7, 0x40, 0x41, 0x00, 0x53, 0x24, 0xc0, 1, 0, 0x40];
    assert_eq!(written(|into| accepted.write(into)), expected);

    let flow = Flow {
        next_incoming_id: Some(1),
        incoming_window: 5_000,
        next_outgoing_id: 1,
        outgoing_window: 5_000,
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(300),
        available: Some(0),
        drain: None,
        echo: false,
    };
    let expected = [
        0x00, 0x53, 0x13, 0xc0, 26, 11, 0x52, 1, 0x70, 0, 0, 0x13, 0x88, 0x52, 1, 0x70, 0, 0, 0x13, 0x88,
        0x43, 0x43, 0x70, 0, 0, 1, 0x2c, 0x43, 0x40, 0x42, 0x40,
    ];
    assert_eq!(written(|into| flow.write(into)), expected);

    let detach = Detach { handle: 0, closed: true, error: Some(Error::new("amqp:x", "y")) };
    let expected = [
        0x00, 0x53, 0x16, 0xc0, 23, 3, 0x43, 0x41, 0x00, 0x53, 0x1d, 0xc0, 13, 3, 0xa3, 6, b'a', b'm', b'q',
        b'p', b':', b'x', 0xa1, 1, b'y', 0x40,
    ];
    let mut expected = expected.to_vec();
    expected[4] = (expected.len() - 5) as u8;
    expected[12] = (expected.len() - 13) as u8;
    assert_eq!(written(|into| detach.write(into)), expected);

    assert_eq!(written(|into| End { error: None }.write(into)), [0x00, 0x53, 0x17, 0xc0, 2, 1, 0x40]);
    assert_eq!(written(|into| Close { error: None }.write(into)), [0x00, 0x53, 0x18, 0xc0, 2, 1, 0x40]);

    let mechanisms = Sasl::Mechanisms(SaslMechanisms { names: vec!["MSSBCBS".into(), "PLAIN".into()] });
    let mut expected = vec![0x00, 0x53, 0x40, 0xc0, 0, 1, 0xe0, 16, 2, 0xa3, 7];
    expected.extend(b"MSSBCBS");
    expected.push(5);
    expected.extend(b"PLAIN");
    expected[4] = (expected.len() - 5) as u8;
    assert_eq!(written(|into| mechanisms.write(into)), expected);
    let outcome = Sasl::Outcome(SaslOutcome { code: SaslCode::Ok, additional_data: None });
    assert_eq!(written(|into| outcome.write(into)), [0x00, 0x53, 0x44, 0xc0, 4, 2, 0x50, 0, 0x40]);
    let outcome = Sasl::Outcome(SaslOutcome { code: SaslCode::Ok, additional_data: Some(b"hi".to_vec()) });
    let bytes = written(|into| outcome.write(into));
    assert_eq!(bytes, [0x00, 0x53, 0x44, 0xc0, 7, 2, 0x50, 0, 0xa0, 2, b'h', b'i']);
    assert_eq!(Sasl::read(&bytes), Ok(outcome));
}

#[test]
fn what_is_written_is_read_again() {
    let attach = full_attach();
    assert_eq!(read(&written(|into| attach.write(into))), Performative::Attach(Box::new(attach.clone())));
    let bare = Attach::new("l", Role::Receiver);
    assert_eq!(read(&written(|into| bare.write(into))), Performative::Attach(Box::new(bare)));
    for outcome in [
        None,
        Some(Outcome::Accepted),
        Some(Outcome::Released),
        Some(Outcome::Rejected(None)),
        Some(Outcome::rejected(Error::new("amqp:x", "y"))),
        Some(Outcome::Modified { delivery_failed: true, undeliverable_here: false }),
    ] {
        let disposition =
            Disposition { role: Role::Sender, first: 1, last: Some(300), settled: false, outcome };
        assert_eq!(
            read(&written(|into| disposition.write(into))),
            Performative::Disposition(disposition.clone())
        );
    }
    let init = Sasl::Init(SaslInit {
        mechanism: "PLAIN".into(),
        initial_response: Some(Secret::new(*b"\0user\0word")),
        hostname: None,
    });
    assert_eq!(Sasl::read(&written(|into| init.write(into))).unwrap(), init);
    assert!(!format!("{init:?}").contains("word"));
}

#[test]
fn filters_are_found_with_and_without_a_descriptor() {
    let source = full_attach().source.unwrap();
    assert_eq!(source.filter("apache.org:selector-filter:string"), Some(Value::String("x > '-1'")));
    let bare = Source { filter: Some(Encoded::map([("f", Value::String("v"))])), ..Source::default() };
    assert_eq!(bare.filter("f"), Some(Value::String("v")));
    assert_eq!(bare.filter("g"), None);
}

#[test]
fn capabilities_are_one_name_or_an_array_of_them() {
    assert!(Encoded::of(Value::Symbol("a")).has_name("a"));
    let several = Encoded::symbols(["a", "b"]);
    assert_eq!(several.names().collect::<Vec<_>>(), ["a", "b"]);
    assert!(!several.has_name("c"));
    assert_eq!(Encoded::of(Value::Uint(1)).names().count(), 0);
}

#[test]
fn fields_left_out_at_the_end_are_null() {
    // `open` with a container id only; `begin` with four fields; `end` as an empty list and as list0.
    let open = [0x00, 0x53, 0x10, 0xc0, 4, 1, 0xa1, 1, b'c'];
    assert_eq!(
        read(&open),
        Performative::Open(Box::new(Open { container_id: "c".into(), ..Open::default() }))
    );
    assert_eq!(read(&[0x00, 0x53, 0x17, 0x45]), Performative::End(End { error: None }));
    assert_eq!(read(&[0x00, 0x53, 0x18, 0xc0, 1, 0]), Performative::Close(Close { error: None }));
}

#[test]
fn descriptors_may_be_long_or_names() {
    assert_eq!(read(&[0x00, 0x80, 0, 0, 0, 0, 0, 0, 0, 0x17, 0x45]), Performative::End(End { error: None }));
    let mut named = vec![0x00];
    encode::symbol(&mut named, "amqp:close:list");
    named.push(0x45);
    assert_eq!(read(&named), Performative::Close(Close { error: None }));
}

#[test]
fn an_error_names_the_field() {
    let no_container = [0x00, 0x53, 0x10, 0xc0, 2, 1, 0x40];
    assert_eq!(Performative::read(&no_container).unwrap_err().to_string(), "open: container-id is missing");
    let wrong = [0x00, 0x53, 0x10, 0xc0, 3, 1, 0x52, 1];
    assert_eq!(Performative::read(&wrong).unwrap_err().to_string(), "open: container-id has to be a string");
}

/// The owner of the connection refuses such a link alone, so it has to see what the peer asked for.
#[test]
fn a_coordinator_of_transactions_reads_back_as_one() {
    let target = Some(Target { coordinator: true, ..Target::default() });
    let attach = Attach { target, ..Attach::sender("l", "t") };
    let bytes = written(|into| attach.write(into));
    assert!(bytes.windows(3).any(|three| three == [0x00, 0x53, 0x30]), "the descriptor: {bytes:?}");
    assert_eq!(read(&bytes), Performative::Attach(Box::new(attach)));
}
