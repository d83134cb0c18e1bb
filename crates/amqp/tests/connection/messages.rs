//! Tests the transfer of messages, in one frame and in many, and their outcomes.

use ephor_amqp::Connection;
use ephor_amqp::connection::{Blocked, Config, Delivery, Event, Sent};
use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Attach, Detach, Disposition, Error, Outcome, Performative, Role, condition};

use crate::client_and_server::{Linked, config, linked};
use crate::raw_peer;

/// A pair with a link from client to server, with this much credit.
fn sending(credit: u32, frame: u32) -> Linked {
    let mut server = config("s");
    server.limits.frame = frame;
    let mut linked = linked(Role::Sender, config("c"), server);
    linked.pair.server.grant(linked.server_link, credit);
    let events = linked.pair.pump();
    assert_eq!(events.client, [Event::Credit { link: linked.client_link, drain: false }]);
    linked
}

fn deliveries(events: Vec<Event>) -> Vec<Delivery> {
    let delivery = |event| match event {
        Event::Delivery(delivery) => delivery,
        other => panic!("{other:?}"),
    };
    events.into_iter().map(delivery).collect()
}

#[test]
fn messages_of_every_size_arrive_as_they_were_sent() {
    for frame in [512, 4_096, 65_536] {
        let mut linked = sending(1_000, frame);
        let sizes = [0, 1, 100, 460, 470, 471, 472, 473, 512, 1_000, 4_096, 65_500, 65_536, 1_000_000];
        for (number, size) in sizes.into_iter().enumerate() {
            let message: Vec<u8> = (0..size).map(|at| (at * 7 + number) as u8).collect();
            let (front, back) = message.split_at(size / 3);
            let sent = linked.pair.client.send(linked.client_link, 0x8001_3700, true, &[front, &[], back]);
            assert_eq!(sent, Sent::Sent(number as u32));
            let output = linked.pair.client.output();
            let frames = ephor_amqp::frame::FrameHeader::read(output, frame).unwrap().unwrap();
            assert!(frames.size <= frame as usize);
            let events = deliveries(linked.pair.pump().server);
            assert_eq!(events.len(), 1, "{size} bytes in frames of {frame}");
            assert_eq!((events[0].format, events[0].settled), (0x8001_3700, true));
            assert!(events[0].payload == message, "{size} bytes in frames of {frame}");
        }
    }
}

#[test]
fn a_transfer_has_all_its_fields() {
    let mut linked = sending(10, 65_536);
    assert_eq!(linked.pair.client.send(linked.client_link, 0, true, &[b"pay"]), Sent::Sent(0));
    let frames = raw_peer::frames(&mut linked.pair.client);
    let expected = [
        0x00, 0x53, 0x14, 0xc0, 17, 11, 0x43, 0x43, 0xa0, 4, 0, 0, 0, 0, 0x43, 0x41, 0x42, 0x40, 0x40, 0x40,
        0x40, 0x42, b'p', b'a', b'y',
    ];
    assert_eq!(frames[0].1, expected);
}

#[test]
fn nothing_is_settled_on_a_link_that_was_detached() {
    let mut linked = linked(Role::Sender, config("c"), config("s"));
    linked.pair.server.grant(linked.server_link, 10);
    linked.pair.pump();
    for _ in 0..3 {
        assert!(matches!(linked.pair.client.send(linked.client_link, 0, false, &[b"x"]), Sent::Sent(_)));
    }
    linked.pair.pump();
    let server = &mut linked.pair.server;
    server.settle(linked.server_link, 0, 0, &Outcome::Accepted);
    server.detach(linked.server_link, None);
    server.settle(linked.server_link, 1, 1, &Outcome::Accepted);
    server.settle(linked.server_link, 2, 2, &Outcome::Released);
    let sent = crate::raw_peer::all_sent(server);
    assert_eq!(sent.len(), 2, "{sent:#?}");
    assert!(sent[0].starts_with("Disposition") && sent[1].starts_with("Detach"), "{sent:#?}");
}

#[test]
fn unsettled_messages_are_settled_in_ranges() {
    let mut linked = sending(100, 65_536);
    for _ in 0..10 {
        assert!(matches!(linked.pair.client.send(linked.client_link, 0, false, &[b"x"]), Sent::Sent(_)));
    }
    let events = deliveries(linked.pair.pump().server);
    for delivery in &events {
        assert!(!delivery.settled);
        linked.pair.server.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
    }
    let frames = raw_peer::frames(&mut linked.pair.server);
    assert_eq!(frames.len(), 1, "ten acceptances in one frame");
    let mut expected = Vec::new();
    Disposition {
        role: Role::Receiver,
        first: 0,
        last: Some(9),
        settled: true,
        outcome: Some(Outcome::Accepted),
    }
    .write(&mut expected);
    assert_eq!(frames[0].1, expected);
    let events = raw_peer::feed(&mut linked.pair.client, &[&raw_peer::frame(0, 0, &expected)]);
    let link = linked.client_link;
    assert_eq!(events, [Event::Settled { link, first: 0, last: 9, outcome: Some(Outcome::Accepted) }]);
    let events = raw_peer::feed(&mut linked.pair.client, &[&raw_peer::frame(0, 0, &expected)]);
    assert!(events.is_empty(), "nothing is settled twice");
}

#[test]
fn outcomes_keep_their_order() {
    let mut linked = sending(100, 65_536);
    for _ in 0..6 {
        assert!(matches!(linked.pair.client.send(linked.client_link, 0, false, &[b"x"]), Sent::Sent(_)));
    }
    linked.pair.pump();
    let (server, theirs) = (&mut linked.pair.server, linked.server_link);
    let rejected = Outcome::rejected(Error::new(condition::INVALID_FIELD, "bad"));
    server.settle(theirs, 0, 0, &Outcome::Accepted);
    server.settle(theirs, 1, 1, &Outcome::Accepted);
    server.settle(theirs, 2, 2, &rejected);
    server.settle(theirs, 4, 5, &Outcome::Accepted);
    server.settle(theirs, 3, 3, &Outcome::Released);
    let link = linked.client_link;
    let settled = |first, last, outcome| Event::Settled { link, first, last, outcome: Some(outcome) };
    assert_eq!(
        linked.pair.pump().client,
        [
            settled(0, 1, Outcome::Accepted),
            settled(2, 2, rejected),
            settled(4, 5, Outcome::Accepted),
            settled(3, 3, Outcome::Released),
        ]
    );
}

#[test]
fn a_receiver_that_settles_second_is_told_to() {
    let mut linked = sending(10, 65_536);
    assert_eq!(linked.pair.client.send(linked.client_link, 0, false, &[b"x"]), Sent::Sent(0));
    linked.pair.pump();
    let outcome = Some(Outcome::Accepted);
    let first = Disposition { role: Role::Receiver, first: 0, last: None, settled: false, outcome };
    let events = raw_peer::feed(&mut linked.pair.client, &[&raw_peer::amqp(0, |into| first.write(into))]);
    assert!(matches!(events[..], [Event::Settled { .. }]));
    let frames = raw_peer::frames(&mut linked.pair.client);
    let (Performative::Disposition(answer), _) = Performative::read(&frames[0].1).unwrap() else { panic!() };
    assert!(answer.settled && answer.role == Role::Sender);
}

#[test]
fn a_reply_follows_the_word_that_its_request_was_taken() {
    let mut server = raw_peer::begun(config("s"));
    let asked = [
        raw_peer::attach(1, 0, Attach::sender("there", "$cbs")),
        raw_peer::attach(1, 1, Attach::receiver("back", "$cbs")),
        raw_peer::link_flow(1, 1, 10),
    ];
    let events = raw_peer::feed(&mut server, &[&asked.concat()]);
    let mut links = Vec::new();
    for event in events {
        if let Event::AttachRequested { link, attach, .. } = event {
            server.accept(link, attach.answer());
            links.push(link);
        }
    }
    raw_peer::frames(&mut server);
    raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, 0, false, b"request")]);
    server.settle(links[0], 0, 0, &Outcome::Accepted);
    assert_eq!(server.send(links[1], 0, true, &[b"reply"]), Sent::Sent(0));
    let sent = raw_peer::all_sent(&mut server);
    assert!(sent[0].starts_with("Disposition") && sent[1].starts_with("Transfer"), "{sent:?}");
}

#[test]
fn several_frames_of_several_links_may_be_mixed() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::feed(
        &mut server,
        &[
            &raw_peer::attach(1, 0, Attach::sender("a", "x")),
            &raw_peer::attach(1, 1, Attach::sender("b", "x")),
        ],
    );
    let events = raw_peer::feed(
        &mut server,
        &[
            &raw_peer::transfer(1, 0, 0, true, b"one "),
            &raw_peer::transfer(1, 1, 7, true, b"three "),
            &raw_peer::transfer(1, 0, 0, false, b"two"),
            &raw_peer::transfer(1, 1, 7, false, b"four"),
        ],
    );
    let events = deliveries(events);
    assert_eq!(events.iter().map(|delivery| delivery.id).collect::<Vec<_>>(), [0, 7], "gaps are no harm");
    assert_eq!((&events[0].payload[..], &events[1].payload[..]), (&b"one two"[..], &b"three four"[..]));
}

#[test]
fn what_is_aborted_never_arrives() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "x"))]);
    let mut aborted = raw_peer::transfer(1, 0, 0, false, b"");
    let at = aborted.len() - 2;
    assert_eq!(aborted[at], 0x40);
    aborted[at] = 0x41;
    let events = raw_peer::feed(
        &mut server,
        &[
            &raw_peer::transfer(1, 0, 0, true, b"lost"),
            &aborted,
            &raw_peer::transfer(1, 0, 1, false, b"kept"),
        ],
    );
    let events = deliveries(events);
    assert_eq!((events.len(), &events[0].payload[..]), (1, &b"kept"[..]));
}

#[test]
fn one_delivery_inside_another_costs_the_link() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "x"))]);
    let events = raw_peer::feed(
        &mut server,
        &[&raw_peer::transfer(1, 0, 0, true, b"lost"), &raw_peer::transfer(1, 0, 1, false, b"kept")],
    );
    assert!(matches!(&events[..], [Event::Detached { error: Some(error), .. }]
        if error.description() == "delivery 1 before the end of delivery 0"));
}

#[test]
fn a_message_in_one_frame_is_not_copied() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "x"))]);
    server.input().extend_from_slice(&raw_peer::transfer(1, 0, 0, false, &[7; 1_000]));
    let input = server.input().as_ptr_range();
    let Some(Event::Delivery(delivery)) = server.next_event() else { panic!() };
    assert!(input.contains(&delivery.payload.as_ptr()));
}

#[test]
fn too_much_unsettled_waits() {
    let mut client = config("c");
    client.limits.unsettled = 2;
    let mut linked = linked(Role::Sender, client, config("s"));
    linked.pair.server.grant(linked.server_link, 10);
    linked.pair.pump();
    let (client, link) = (&mut linked.pair.client, linked.client_link);
    assert_eq!(client.send(link, 0, false, &[b"x"]), Sent::Sent(0));
    assert_eq!(client.send(link, 0, false, &[b"x"]), Sent::Sent(1));
    assert_eq!(client.send(link, 0, false, &[b"x"]), Sent::Blocked(Blocked::Unsettled));
    assert_eq!(client.send(link, 0, true, &[b"x"]), Sent::Sent(2));
}

/// A transfer that aborts a delivery.
fn aborted(id: u8) -> Vec<u8> {
    let mut aborted = raw_peer::transfer(1, 0, id, false, b"");
    let at = aborted.len() - 2;
    aborted[at] = 0x41;
    aborted
}

#[test]
fn what_is_aborted_costs_no_credit() {
    let mut server = raw_peer::begun(config("s"));
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "b"))]);
    let [Event::AttachRequested { link, attach, .. }] = &events[..] else { panic!("{events:?}") };
    server.accept(*link, attach.answer());
    server.grant(*link, 1);
    for id in 0..5 {
        raw_peer::frames(&mut server);
        raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, id, true, b"lost"), &aborted(id)]);
        assert_eq!(server.credit(*link), 1);
        let sent = raw_peer::all_sent(&mut server).concat();
        let count = format!("delivery_count: Some({})", id + 1);
        assert!(sent.contains(&count) && sent.contains("link_credit: Some(1)"), "the peer is told: {sent}");
    }
}

#[test]
fn links_that_go_with_messages_that_nobody_settled_leave_nothing_behind() {
    let limits = Limits { unsettled: 100, ..Limits::default() };
    let mut server = raw_peer::begun(Config { limits, ..config("s") });
    for round in 0..50 {
        let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "b"))]);
        let [Event::AttachRequested { link, attach, .. }] = &events[..] else {
            panic!("{round}: {events:?}")
        };
        server.accept(*link, attach.answer());
        server.grant(*link, 100);
        for id in 0..60 {
            let events = raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, id, false, b"x")]);
            assert!(matches!(events[..], [Event::Delivery(_)]), "{round}: {events:?}");
        }
        // Some are settled before the detach, and some too late.
        server.settle(*link, 0, 19, &Outcome::Accepted);
        let detach = raw_peer::amqp(1, |into| Detach { handle: 0, closed: true, error: None }.write(into));
        raw_peer::feed(&mut server, &[&detach]);
        server.settle(*link, 20, 39, &Outcome::Accepted);
        raw_peer::frames(&mut server);
    }
}

/// The owner still has them: it does not learn that the peer no longer waits for their outcome.
#[test]
fn a_peer_that_settles_what_it_sent_does_not_escape_the_limit() {
    let limits = Limits { unsettled: 10, ..Limits::default() };
    let mut server = raw_peer::begun(Config { limits, ..config("s") });
    let mut links = Vec::new();
    for handle in 0..2 {
        let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, handle, Attach::sender("a", "b"))]);
        let [Event::AttachRequested { link, attach, .. }] = &events[..] else { panic!("{events:?}") };
        server.accept(*link, attach.answer());
        links.push(*link);
    }
    let settled = |first, last| {
        let disposition =
            Disposition { role: Role::Sender, first, last: Some(last), settled: true, outcome: None };
        raw_peer::amqp(1, |into| disposition.write(into))
    };
    let send = |server: &mut Connection, handle, ids: std::ops::Range<u8>| {
        let many: Vec<u8> = ids.flat_map(|id| raw_peer::transfer(1, handle, id, false, b"x")).collect();
        raw_peer::feed(server, &[&many])
    };
    assert_eq!(deliveries(send(&mut server, 0, 0..6)).len(), 6);
    assert_eq!(raw_peer::feed(&mut server, &[&settled(0, 5)]), []);
    assert_eq!(deliveries(send(&mut server, 1, 6..10)).len(), 4);
    // What the owner settles counts once, and for the link of the delivery.
    server.settle(links[0], 0, 5, &Outcome::Accepted);
    assert_eq!(deliveries(send(&mut server, 1, 10..16)).len(), 6);
    let detach = raw_peer::amqp(1, |into| Detach { handle: 0, closed: true, error: None }.write(into));
    raw_peer::feed(&mut server, &[&detach]);
    let events = send(&mut server, 1, 16..17);
    let Some(Event::Ended { error: Some(error), .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(error.description(), "more than 10 unsettled deliveries");
}
