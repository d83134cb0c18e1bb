//! Tests flow control: credit, drain, windows, and peers that do not read.

use ephor_amqp::connection::{Blocked, Config, Event, Sent};
use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::{Attach, Begin, Detach, Flow, Outcome, Performative, Role};

use crate::client_and_server::{carry, config, linked};
use crate::raw_peer;

#[test]
fn nothing_is_sent_without_credit() {
    let mut linked = linked(Role::Sender, config("c"), config("s"));
    let link = linked.client_link;
    assert_eq!(linked.pair.client.send(link, 0, true, &[b"x"]), Sent::Blocked(Blocked::Credit));
    linked.pair.server.grant(linked.server_link, 2);
    linked.pair.pump();
    assert_eq!(linked.pair.client.credit(link), 2);
    assert_eq!(linked.pair.client.send(link, 0, true, &[b"x"]), Sent::Sent(0));
    // Granted while the message is in flight: the client subtracts it.
    linked.pair.server.grant(linked.server_link, 2);
    linked.pair.pump();
    assert_eq!(linked.pair.client.credit(link), 1);
    assert_eq!(linked.pair.server.credit(linked.server_link), 1);
}

#[test]
fn credit_is_given_in_the_same_write_as_the_attach() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::frames(&mut server);
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "x"))]);
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().next() else { panic!() };
    server.accept(link, attach.answer());
    server.grant(link, 300);
    let frames = raw_peer::frames(&mut server);
    let (Performative::Flow(flow), _) = Performative::read(&frames[1].1).unwrap() else { panic!() };
    let expected = Flow {
        next_incoming_id: Some(0),
        incoming_window: 5_000,
        next_outgoing_id: 1,
        outgoing_window: 65_536,
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(300),
        available: Some(0),
        drain: None,
        echo: false,
    };
    assert_eq!(flow, expected);
}

#[test]
fn credit_given_before_the_answer_is_sent_after_it() {
    let mut server = raw_peer::begun(config("s"));
    let asked = [raw_peer::attach(1, 0, Attach::receiver("a", "x")), raw_peer::link_flow(1, 0, 5)];
    let events = raw_peer::feed(&mut server, &[&asked.concat()]);
    let [Event::AttachRequested { link, attach, .. }] = &events[..] else { panic!("{events:?}") };
    server.accept(*link, attach.answer());
    assert_eq!(server.next_event(), Some(Event::Credit { link: *link, drain: false }));
    assert_eq!(server.credit(*link), 5);
}

#[test]
fn a_drained_link_has_no_credit_left() {
    let mut linked = linked(Role::Receiver, config("c"), config("s"));
    let (ours, theirs) = (linked.client_link, linked.server_link);
    linked.pair.client.grant(ours, 10);
    linked.pair.pump();
    linked.pair.client.drain(ours);
    let events = linked.pair.pump();
    assert_eq!(events.server, [Event::Credit { link: theirs, drain: true }]);
    assert_eq!(linked.pair.server.send(theirs, 0, true, &[b"last"]), Sent::Sent(0));
    linked.pair.server.drained(theirs);
    let events = linked.pair.pump();
    assert!(matches!(events.client[..], [Event::Delivery(_), Event::Drained { .. }]), "{events:?}");
    assert_eq!((linked.pair.client.credit(ours), linked.pair.server.credit(theirs)), (0, 0));
    linked.pair.client.grant(ours, 3);
    let events = linked.pair.pump();
    assert_eq!(events.server, [Event::Credit { link: theirs, drain: false }]);
    assert_eq!(linked.pair.server.credit(theirs), 3);
}

#[test]
fn credit_that_is_granted_during_a_drain_is_not_lost() {
    let mut linked = linked(Role::Receiver, config("c"), config("s"));
    let (ours, theirs) = (linked.client_link, linked.server_link);
    linked.pair.client.grant(ours, 10);
    linked.pair.client.drain(ours);
    carry(&mut linked.pair.client, &mut linked.pair.server);
    while linked.pair.server.next_event().is_some() {}
    // The server returns ten, while the client takes its request back.
    linked.pair.server.drained(theirs);
    linked.pair.client.grant(ours, 3);
    linked.pair.pump();
    assert_eq!((linked.pair.client.credit(ours), linked.pair.server.credit(theirs)), (3, 3));
}

#[test]
fn a_drain_that_overtakes_the_rest_of_a_message_counts_that_message_once() {
    let (mut narrow, mut small) = (config("c"), config("s"));
    narrow.limits.window = 2;
    small.limits.frame_out = 512;
    let mut linked = linked(Role::Receiver, narrow, small);
    let (ours, theirs) = (linked.client_link, linked.server_link);
    linked.pair.client.grant(ours, 5);
    linked.pair.client.drain(ours);
    carry(&mut linked.pair.client, &mut linked.pair.server);
    while linked.pair.server.next_event().is_some() {}
    assert_eq!(linked.pair.server.send(theirs, 0, true, &[&[7; 2_000]]), Sent::Sent(0));
    linked.pair.server.drained(theirs);
    let events = linked.pair.pump().client;
    assert!(matches!(events[..], [Event::Drained { .. }, Event::Delivery(_)]), "{events:?}");
    linked.pair.client.grant(ours, 1);
    let sent = raw_peer::all_sent(&mut linked.pair.client).concat();
    assert!(sent.contains("delivery_count: Some(5)"), "{sent}");
}

#[test]
fn a_drain_goes_on_after_a_message_that_is_too_large() {
    let (mut small, mut frames) = (config("c"), config("s"));
    small.limits.message = 600;
    frames.limits.frame_out = 512;
    let mut linked = linked(Role::Receiver, small, frames);
    let (ours, theirs) = (linked.client_link, linked.server_link);
    linked.pair.client.grant(ours, 5);
    linked.pair.client.drain(ours);
    carry(&mut linked.pair.client, &mut linked.pair.server);
    while linked.pair.server.next_event().is_some() {}
    assert_eq!(linked.pair.server.send(theirs, 0, false, &[&[7; 1_000]]), Sent::Sent(0));
    linked.pair.server.drained(theirs);
    let events = linked.pair.pump().client;
    assert!(matches!(events[..], [Event::Oversized { .. }, Event::Drained { .. }]), "{events:?}");
    assert_eq!((linked.pair.client.credit(ours), linked.pair.server.credit(theirs)), (0, 0));
}

#[test]
fn an_echo_is_answered() {
    let mut linked = linked(Role::Sender, config("c"), config("s"));
    let flow = Flow { incoming_window: 1, handle: Some(0), echo: true, ..Flow::default() };
    raw_peer::feed(&mut linked.pair.server, &[&raw_peer::amqp(0, |into| flow.write(into))]);
    assert!(raw_peer::all_sent(&mut linked.pair.server)[0].starts_with("Flow"));
    let flow = Flow { handle: None, ..flow };
    raw_peer::feed(&mut linked.pair.server, &[&raw_peer::amqp(0, |into| flow.write(into))]);
    assert!(raw_peer::all_sent(&mut linked.pair.server)[0].starts_with("Flow"));
}

#[test]
fn sending_beyond_credit_and_window_is_forgiven() {
    let mut limited = config("s");
    limited.limits.window = 10;
    let mut linked = linked(Role::Sender, config("c"), limited);
    let mut count = 0;
    for id in 0..200 {
        let events = raw_peer::feed(&mut linked.pair.server, &[&raw_peer::transfer(0, 0, id, false, b"x")]);
        count += events.len();
        linked.pair.server.settle(linked.server_link, id.into(), id.into(), &Outcome::Accepted);
    }
    assert_eq!(count, 200);
    assert!(raw_peer::all_sent(&mut linked.pair.server).iter().any(|sent| sent.starts_with("Flow")));
}

#[test]
fn ten_times_the_window_goes_through_it() {
    let mut limited = config("s");
    limited.limits.window = 8;
    let mut linked = linked(Role::Sender, config("c"), limited);
    linked.pair.server.grant(linked.server_link, 1_000);
    linked.pair.pump();
    let mut sent = 0;
    let mut got = 0;
    while got < 80 {
        match linked.pair.client.send(linked.client_link, 0, true, &[b"x"]) {
            Sent::Sent(_) => sent += 1,
            Sent::Blocked(Blocked::Window) => {
                assert!(sent > 0, "something goes in every turn");
                sent = 0;
                let events = linked.pair.pump();
                assert!(
                    events.client.iter().any(|event| matches!(event, Event::Window { .. })),
                    "{events:?}"
                );
                got += events.server.iter().filter(|event| matches!(event, Event::Delivery(_))).count();
            }
            other => panic!("{other:?}"),
        }
    }
}

/// A peer may have sent them before it saw our `detach`, or after its own: they used its window in either case.
#[test]
fn transfers_on_a_detached_handle_use_the_window_and_get_it_back() {
    let mut limited = config("s");
    limited.limits.window = 8;
    let mut server = raw_peer::begun(limited);
    let detach = raw_peer::amqp(1, |into| Detach { handle: 0, closed: true, error: None }.write(into));
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "x")), &detach]);
    raw_peer::frames(&mut server);
    let mut flows = Vec::new();
    for id in 0..20 {
        assert_eq!(raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, id, false, b"x")]), []);
        for (_, body) in raw_peer::frames(&mut server) {
            let (Performative::Flow(flow), _) = Performative::read(&body).unwrap() else { panic!() };
            flows.push((flow.next_incoming_id.unwrap(), flow.incoming_window));
        }
    }
    assert_eq!(flows, [(4, 8), (8, 8), (12, 8), (16, 8), (20, 8)]);
    // The session fields of the next link's flow agree with what the peer has sent.
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 1, Attach::sender("b", "x"))]);
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().next() else { panic!() };
    server.accept(link, attach.answer());
    server.grant(link, 1);
    let sent = raw_peer::all_sent(&mut server).concat();
    assert!(sent.contains("next_incoming_id: Some(20)"), "{sent}");
}

/// A server whose peer has a window of one and a huge credit.
fn miser(config: Config) -> (ephor_amqp::Connection, ephor_amqp::connection::LinkId) {
    let begin = Begin { incoming_window: 1, outgoing_window: 1, ..Begin::default() };
    let begin = raw_peer::amqp(0, |into| begin.write(into));
    let flow = Flow {
        incoming_window: 1,
        next_incoming_id: Some(1),
        handle: Some(0),
        link_credit: Some(u32::MAX),
        ..Flow::default()
    };
    let flow = raw_peer::amqp(0, |into| flow.write(into));
    let attach = raw_peer::attach(0, 0, Attach::receiver("a", "x"));
    let (mut server, events) = raw_peer::server(
        config,
        &[&raw_peer::header(Protocol::Amqp), &raw_peer::open(), &begin, &attach, &flow],
    );
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().last() else { panic!() };
    server.accept(link, attach.answer());
    assert!(matches!(raw_peer::feed(&mut server, &[])[..], [Event::Credit { .. }]));
    raw_peer::frames(&mut server);
    (server, link)
}

#[test]
fn a_window_of_one_gets_one_frame_at_a_time() {
    let mut small = config("s");
    small.limits.frame_out = 512;
    let (mut server, link) = miser(small);
    let message = [5; 2_000];
    assert_eq!(server.send(link, 0, true, &[&message]), Sent::Sent(0));
    assert_eq!(server.send(link, 0, true, &[b"next"]), Sent::Blocked(Blocked::Window));
    let mut payload = 0;
    let mut frames = raw_peer::frames(&mut server);
    let mut next = 1;
    while let Some((_, body)) = frames.pop() {
        assert!(frames.is_empty(), "one at a time");
        let (Performative::Transfer(transfer), end) = Performative::read(&body).unwrap() else { panic!() };
        payload += body.len() - end;
        assert_eq!(transfer.more, payload < message.len());
        next += 1;
        let flow = Flow { incoming_window: 1, next_incoming_id: Some(next), ..Flow::default() };
        let events = raw_peer::feed(&mut server, &[&raw_peer::amqp(0, |into| flow.write(into))]);
        assert_eq!(events.is_empty(), transfer.more, "told when there is a window for another message");
        frames = raw_peer::frames(&mut server);
    }
    assert_eq!(payload, message.len());
    assert_eq!(server.send(link, 0, true, &[b"next"]), Sent::Sent(1));
}

#[test]
fn what_waits_for_a_peer_that_does_not_read_is_bounded() {
    let mut linked = linked(Role::Receiver, config("c"), config("s"));
    linked.pair.client.grant(linked.client_link, u32::MAX);
    linked.pair.pump();
    let (server, link) = (&mut linked.pair.server, linked.server_link);
    let message = [0; 10_000];
    let mut sent = 0;
    while let Sent::Sent(_) = server.send(link, 0, true, &[&message]) {
        sent += 1;
    }
    assert_eq!(server.send(link, 0, true, &[&message]), Sent::Blocked(Blocked::Room));
    assert!(server.output_length() < 256 * 1024 + 11_000, "{}", server.output_length());
    assert!(server.is_congested());
    assert_eq!(server.obstacle(link, true), Some(Sent::Blocked(Blocked::Room)));
    server.wrote(1_000);
    assert_eq!(server.next_event(), None, "a little is not enough to begin again");
    server.wrote(200_000);
    assert_eq!(server.next_event(), Some(Event::Room));
    assert_eq!(server.next_event(), None);
    assert!(matches!(server.send(link, 0, true, &[&message]), Sent::Sent(_)));
    assert!(sent > 20);
}

#[test]
fn a_peer_that_asks_and_does_not_read_is_not_read() {
    let mut server = raw_peer::begun(config("s"));
    let echo = Flow { incoming_window: 1, echo: true, ..Flow::default() };
    let echo = raw_peer::amqp(1, |into| echo.write(into)).repeat(1_000);
    let mut rounds = 0;
    while server.wants_input() {
        raw_peer::feed(&mut server, &[&echo]);
        rounds += 1;
        assert!(rounds < 1_000);
    }
    assert!(server.output_length() < 1_100_000);
    let waiting = server.output().len();
    server.wrote(waiting);
    assert!(server.wants_input());
}

#[test]
fn a_large_message_behind_a_full_buffer_is_finished_when_there_is_room() {
    let mut limited = config("c");
    limited.limits.window = 2;
    let mut linked = linked(Role::Receiver, limited, config("s"));
    linked.pair.client.grant(linked.client_link, 100);
    linked.pair.pump();
    let message = vec![3; 1_000_000];
    let sent = linked.pair.server.send(linked.server_link, 0, true, &[&message]);
    assert_eq!(sent, Sent::Sent(0));
    assert!(linked.pair.server.output_length() < 200_000, "only what the window allows");
    let events = linked.pair.pump();
    assert!(matches!(&events.client[..], [Event::Delivery(delivery)] if delivery.payload == message));
    assert_eq!(carry(&mut linked.pair.server, &mut linked.pair.client), 0);
}

#[test]
fn an_owner_that_asked_for_the_obstacle_is_notified_when_it_is_gone_as_after_a_send() {
    let (mut server, link) = miser(config("s"));
    assert_eq!(server.obstacle(link, true), None);
    assert_eq!(server.send(link, 0, true, &[b"one"]), Sent::Sent(0));
    assert_eq!(server.obstacle(link, true), Some(Sent::Blocked(Blocked::Window)));
    let mut limited = config("s");
    limited.limits.window = 1;
    let mut linked = linked(Role::Sender, config("c"), limited);
    assert_eq!(linked.pair.client.obstacle(linked.client_link, true), Some(Sent::Blocked(Blocked::Credit)));
    linked.pair.server.grant(linked.server_link, 9);
    linked.pair.pump();
    assert_eq!(linked.pair.client.obstacle(linked.client_link, true), None);
    assert!(matches!(linked.pair.client.send(linked.client_link, 0, true, &[b"x"]), Sent::Sent(_)));
    assert_eq!(linked.pair.client.obstacle(linked.client_link, true), Some(Sent::Blocked(Blocked::Window)));
    let events = linked.pair.pump();
    assert!(events.client.iter().any(|event| matches!(event, Event::Window { .. })), "{events:?}");
    assert_eq!(linked.pair.client.obstacle(linked.client_link, true), None);
}
