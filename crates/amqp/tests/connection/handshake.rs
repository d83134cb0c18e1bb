//! Tests the handshake: protocol headers, SASL, `open` and `close`.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{ClientSasl, Closed, Event, SERVICE_MECHANISMS, ServerSasl};
use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::{Close, Error, Sasl, SaslInit, SaslMechanisms, Secret, condition};

use crate::client_and_server::{Pair, config};
use crate::raw_peer;

#[test]
fn a_server_says_nothing_before_the_client_does() {
    let (mut server, events) = raw_peer::server(config("s"), &[]);
    assert!(events.is_empty() && server.output().is_empty());
    raw_peer::feed(&mut server, &[b"AM"]);
    assert!(server.output().is_empty());
    raw_peer::feed(&mut server, &[b"QP\x03\x01\x00\x00"]);
    assert!(server.output().starts_with(b"AMQP\x03\x01\x00\x00"));
}

#[test]
fn a_server_offers_what_the_service_offers() {
    let (mut server, _) = raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Sasl)]);
    let frames = raw_peer::frames(&mut server);
    let names = SERVICE_MECHANISMS.map(str::to_owned).to_vec();
    assert_eq!(Sasl::read(&frames[0].1).unwrap(), Sasl::Mechanisms(SaslMechanisms { names }));
}

#[test]
fn a_client_and_a_server_open() {
    let mut pair = Pair::open(config("c"), config("s"));
    assert!(pair.client.is_open() && pair.server.is_open());
    pair.client.close(None);
    let events = pair.pump();
    assert_eq!(events.client, [Event::Closed(Closed::ByUs)]);
    assert_eq!(events.server, [Event::Closed(Closed::ByPeer(None))]);
    assert!(pair.client.is_finished() && pair.server.is_finished());
}

#[test]
fn both_may_close_at_once() {
    let mut pair = Pair::open(config("c"), config("s"));
    pair.client.close(None);
    pair.server.close(Some(Error::new(condition::CONNECTION_FORCED, "going down")));
    let events = pair.pump();
    assert_eq!(events.client, [Event::Closed(Closed::ByUs)]);
    assert_eq!(events.server, [Event::Closed(Closed::ByUs)]);
}

#[test]
fn a_client_may_skip_sasl() {
    let (mut server, events) =
        raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &raw_peer::open()]);
    assert!(matches!(events[..], [Event::Opened(_)]));
    assert!(server.output().starts_with(b"AMQP\x00\x01\x00\x00"));
    let strict = ServerSasl { optional: false, ..ServerSasl::default() };
    let mut server = Connection::server(config("s"), strict, Duration::ZERO);
    let events = raw_peer::feed(&mut server, &[&raw_peer::header(Protocol::Amqp)]);
    assert!(matches!(events[..], [Event::Closed(Closed::Lost(_))]));
    assert_eq!(server.output(), Protocol::Sasl.header());
}

#[test]
fn everything_may_come_at_once() {
    let init = {
        let init = SaslInit { mechanism: "ANONYMOUS".into(), initial_response: None, hostname: None };
        let mut body = Vec::new();
        Sasl::Init(init).write(&mut body);
        raw_peer::frame(1, 0, &body)
    };
    let attach = ephor_amqp::performative::Attach::sender("l", "hub");
    let (mut server, events) = raw_peer::server(
        config("s"),
        &[
            &raw_peer::header(Protocol::Sasl),
            &init,
            &raw_peer::header(Protocol::Amqp),
            &raw_peer::open(),
            &raw_peer::begin(1),
            &raw_peer::attach(1, 1, attach),
        ],
    );
    assert!(
        matches!(
            events[..],
            [Event::Opened(_), Event::Begun { by_peer: true, .. }, Event::AttachRequested { .. }]
        ),
        "{events:?}"
    );
    assert!(!server.output().is_empty());
}

#[test]
fn a_peer_of_another_protocol_gets_the_right_header_and_the_end() {
    for wrong in [&b"GET / HTTP/1.1\r\n"[..], b"AMQP\x00\x00\x09\x01", b"\x16\x03\x01\x02\x00\x01", b"X"] {
        let (mut server, events) = raw_peer::server(config("s"), &[wrong]);
        assert!(matches!(events[..], [Event::Closed(Closed::Lost(_) | Closed::SpokeTls(_))]), "{wrong:?}");
        assert_eq!(server.output(), Protocol::Amqp.header());
        assert!(raw_peer::feed(&mut server, &[b"more"]).is_empty(), "nothing after it is read");
        assert!(!server.wants_input());
        server.wrote(8);
        assert!(server.is_finished(), "and nobody waits for the peer");
    }
}

#[test]
fn an_owner_may_decide_whom_to_authenticate() {
    for accepted in [true, false] {
        let sasl = ServerSasl { ask: true, ..ServerSasl::default() };
        let plain = ClientSasl::Plain { user: "me".into(), password: Secret::new(*b"word") };
        let mut pair = Pair {
            client: Connection::client(config("c"), plain, Duration::ZERO),
            server: Connection::server(config("s"), sasl, Duration::ZERO),
        };
        let events = pair.pump();
        let [Event::Authenticate(init)] = &events.server[..] else { panic!("{events:?}") };
        assert_eq!(init.mechanism, "PLAIN");
        assert_eq!(init.initial_response.as_ref().unwrap().expose(), b"\0me\0word");
        assert!(!format!("{events:?}").contains("word"), "no secret in what is printed");
        assert!(!pair.server.wants_input());
        pair.server.authenticated(accepted);
        let events = pair.pump();
        if accepted {
            assert!(matches!(events.client[..], [Event::Opened(_)]));
        } else {
            assert!(matches!(&events.client[..], [Event::Closed(Closed::Failed(error))]
                if error.condition == condition::UNAUTHORIZED_ACCESS));
            assert!(matches!(events.server[..], [Event::Closed(Closed::Failed(_))]));
        }
    }
}

#[test]
fn a_client_says_which_mechanism_it_missed() {
    let sasl = ServerSasl { mechanisms: vec!["EXTERNAL".into()], ..ServerSasl::default() };
    let mut pair = Pair {
        client: Connection::client(config("c"), ClientSasl::Anonymous, Duration::ZERO),
        server: Connection::server(config("s"), sasl, Duration::ZERO),
    };
    let events = pair.pump();
    let [Event::Closed(Closed::Failed(error))] = &events.client[..] else { panic!("{events:?}") };
    assert!(error.description().contains("EXTERNAL") && error.description().contains("ANONYMOUS"));
}

#[test]
fn frames_in_the_wrong_order_are_named() {
    let wrong = [
        (vec![raw_peer::begin(0)], "begin before open"),
        (vec![raw_peer::open(), raw_peer::open()], "a second open"),
        (vec![raw_peer::open(), raw_peer::begin(1), raw_peer::begin(1)], "a second begin on channel 1"),
        (vec![raw_peer::open(), raw_peer::link_flow(3, 0, 1)], "flow on channel 3, which has no session"),
        (vec![raw_peer::open(), raw_peer::frame(1, 0, &[1])], "unexpected frame of type 1"),
        (
            vec![raw_peer::open(), raw_peer::transfer(0, 0, 0, false, b"")],
            "transfer on channel 0, which has no session",
        ),
    ];
    for (bytes, description) in wrong {
        let (mut server, events) =
            raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &bytes.concat()]);
        let Some(Event::Closed(Closed::Failed(error))) = events.last() else { panic!("{events:?}") };
        assert_eq!(error.description(), description);
        let sent = raw_peer::all_sent(&mut server);
        assert!(sent[0].starts_with("Open"), "the peer is told in a way that it can read: {sent:?}");
        assert!(sent.last().unwrap().contains(description), "{sent:?}");
        assert!(!server.is_finished(), "it waits for the peer to read that");
        server.on_lost("gone");
        assert!(server.is_finished() && server.next_event().is_none());
    }
}

#[test]
fn a_close_before_open_is_answered() {
    let close = raw_peer::amqp(0, |into| Close { error: None }.write(into));
    let (mut server, events) = raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &close]);
    assert_eq!(events, [Event::Closed(Closed::ByPeer(None))]);
    let sent = raw_peer::all_sent(&mut server);
    assert!(sent[0].starts_with("Open") && sent[1].starts_with("Close"), "{sent:?}");
}

#[test]
fn the_golden_handshake_is_these_bytes() {
    let mut golden = config("c");
    golden.limits.channel_max = 4_999;
    let (mut server, _) = raw_peer::server(
        golden,
        &[&raw_peer::header(Protocol::Amqp), &raw_peer::open(), &raw_peer::begin(1)],
    );
    let output = server.output().to_vec();
    let mut expected = b"AMQP\x00\x01\x00\x00".to_vec();
    expected.extend([0, 0, 0, 36, 2, 0, 0, 0]);
    expected.extend([0x00, 0x53, 0x10, 0xc0, 23, 10, 0xa1, 1, b'c', 0x40, 0x70, 0, 1, 0, 0]);
    expected.extend([0x60, 0x13, 0x87, 0x70, 0x00, 0x01, 0xd4, 0xc0, 0x40, 0x40, 0x40, 0x40, 0x40]);
    expected.extend([0, 0, 0, 34, 2, 0, 0, 1]);
    expected.extend([0x00, 0x53, 0x11, 0xc0, 21, 8, 0x60, 0, 1, 0x52, 1, 0x70, 0, 0, 0x13, 0x88]);
    expected.extend([0x70, 0, 1, 0, 0, 0x52, 255, 0x40, 0x40, 0x40]);
    assert_eq!(output, expected);
}

#[test]
fn what_a_peer_speaks_instead_is_guessed() {
    for (sent, guess) in [
        (&b"GET / HTTP/1.1\r\n"[..], "\"GET / HT\", which looks like HTTP"),
        (
            b"\x16\x03\x01\x02\x00\x01\x00\x01",
            "\"\\x16\\x03\\x01\\x02\\x00\\x01\\x00\\x01\", which looks like TLS",
        ),
        (b"AMQP\x00\x00\x09\x01", "\"AMQP\\x00\\x00\\t\\x01\", another version of AMQP"),
        (b"........", "\"........\""),
    ] {
        let (_, events) = raw_peer::server(config("s"), &[sent]);
        let why = format!("the peer began with {guess}");
        let closed = if sent[0] == 0x16 { Closed::SpokeTls(why) } else { Closed::Lost(why) };
        assert_eq!(events, [Event::Closed(closed)]);
    }
}

#[test]
fn nonsense_within_sasl_is_the_end_at_once() {
    let (mut server, events) =
        raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Sasl), &[0xff; 8]]);
    assert!(matches!(events[..], [Event::Closed(Closed::Failed(_))]), "{events:?}");
    let waiting = server.output().len();
    server.wrote(waiting);
    assert!(server.is_finished());
}
