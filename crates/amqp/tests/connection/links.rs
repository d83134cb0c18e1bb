//! Tests how sessions and links begin, are refused, and end.

use ephor_amqp::connection::{Closed, Event};
use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::{Attach, Detach, End, Error, Performative, Role, condition};

use crate::client_and_server::{Pair, carry, config, linked};
use crate::raw_peer;

#[test]
fn a_refused_link_is_attached_to_nothing_and_then_detached() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::frames(&mut server);
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 4, Attach::sender("name", "nowhere"))]);
    let [Event::AttachRequested { link, .. }] = events[..] else { panic!("{events:?}") };
    server.refuse(link, Error::new(condition::NOT_FOUND, "no such hub"));
    let frames = raw_peer::frames(&mut server);
    let (Performative::Attach(attach), _) = Performative::read(&frames[0].1).unwrap() else { panic!() };
    assert_eq!(*attach, Attach { handle: 4, ..Attach::new("name", Role::Receiver) });
    assert_eq!(&frames[0].1[5..6], [14], "all fields, though they are null");
    let (Performative::Detach(detach), _) = Performative::read(&frames[1].1).unwrap() else { panic!() };
    assert!(detach.closed && detach.handle == 4);
    assert_eq!(detach.error.unwrap().description(), "no such hub");
    // The peer agrees; frames that it sent in between are ignored.
    let agreed = raw_peer::amqp(1, |into| Detach { handle: 4, closed: true, error: None }.write(into));
    let events = raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 4, 0, false, b"x"), &agreed]);
    assert!(events.is_empty() && server.links() == 0, "{events:?}");
    assert!(raw_peer::frames(&mut server).is_empty());
}

#[test]
fn a_client_learns_of_a_refusal_by_its_reason_only() {
    let mut pair = Pair::open(config("c"), config("s"));
    let session = pair.client.begin().unwrap();
    let link = pair.client.attach(session, Attach::receiver("l", "x")).unwrap();
    let events = pair.pump();
    let Some(&Event::AttachRequested { link: theirs, .. }) = events.server.last() else {
        panic!("{events:?}")
    };
    let error = Error::new(condition::LINK_STOLEN, "taken");
    pair.server.refuse(theirs, error.clone());
    let events = pair.pump();
    assert_eq!(events.client, [Event::Detached { link, error: Some(error) }]);
    assert_eq!((pair.client.links(), pair.server.links()), (0, 0));
}

#[test]
fn the_golden_attach_reply_echoes_what_was_asked() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::frames(&mut server);
    let asked = Attach::receiver("name", "hub/ConsumerGroups/$Default/Partitions/0");
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, asked.clone())]);
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().next() else { panic!() };
    server.accept(link, Attach { max_message_size: Some(1_048_576), ..attach.answer() });
    let frames = raw_peer::frames(&mut server);
    let (Performative::Attach(answer), _) = Performative::read(&frames[0].1).unwrap() else { panic!() };
    assert_eq!((answer.role, answer.initial_delivery_count), (Role::Sender, Some(0)));
    assert_eq!((answer.source, answer.target), (asked.source, asked.target));
    assert_eq!(answer.max_message_size, Some(1_048_576));
}

#[test]
fn either_side_may_detach_and_the_other_agrees() {
    for by_client in [true, false] {
        let mut linked = linked(Role::Sender, config("c"), config("s"));
        let error = Some(Error::new(condition::DETACH_FORCED, "moved"));
        let (ours, theirs) = (linked.client_link, linked.server_link);
        match by_client {
            true => linked.pair.client.detach(ours, error.clone()),
            false => linked.pair.server.detach(theirs, error.clone()),
        }
        let events = linked.pair.pump();
        let (client, server) = if by_client { (None, error) } else { (error, None) };
        assert_eq!(events.client, [Event::Detached { link: ours, error: client }]);
        assert_eq!(events.server, [Event::Detached { link: theirs, error: server }]);
        assert_eq!((linked.pair.client.links(), linked.pair.server.links()), (0, 0));
    }
}

#[test]
fn the_end_of_a_session_is_the_end_of_its_links() {
    let mut linked = linked(Role::Sender, config("c"), config("s"));
    linked.pair.client.end(linked.session, None);
    let events = linked.pair.pump();
    assert_eq!(events.client, [Event::Ended { session: linked.session, error: None }]);
    assert_eq!(
        events.server,
        [
            Event::Detached { link: linked.server_link, error: None },
            Event::Ended { session: linked.server_session, error: None }
        ]
    );
    let again = linked.pair.client.begin().unwrap();
    assert_ne!(again, linked.session, "a channel is used again, a name is not");
    assert_eq!(linked.pair.client.attach(linked.session, Attach::sender("l", "x")), None);
    let events = linked.pair.pump();
    assert_eq!(events.client, [Event::Begun { session: again, by_peer: false }]);
}

#[test]
fn frames_on_an_ended_channel_are_passed_over() {
    let mut server = raw_peer::begun(config("s"));
    let end = raw_peer::amqp(1, |into| End { error: None }.write(into));
    let late = raw_peer::amqp(1, |into| Detach { handle: 7, closed: true, error: None }.write(into));
    let events = raw_peer::feed(
        &mut server,
        &[
            &end,
            &late,
            &raw_peer::link_flow(1, 0, 1),
            &raw_peer::transfer(1, 0, 0, false, b"x"),
            &end,
            &raw_peer::begin(1),
        ],
    );
    assert!(matches!(events[..], [Event::Ended { .. }, Event::Begun { .. }]), "{events:?}");
}

#[test]
fn links_with_the_same_name_are_different_links() {
    let mut server = raw_peer::begun(config("s"));
    let events = raw_peer::feed(
        &mut server,
        &[
            &raw_peer::attach(1, 0, Attach::sender("same", "a")),
            &raw_peer::attach(1, 1, Attach::sender("same", "a")),
            &raw_peer::attach(1, 2, Attach::receiver("same", "a")),
        ],
    );
    assert_eq!(events.len(), 3);
    assert_eq!(server.links(), 3);
}

#[test]
fn an_answer_belongs_to_the_link_of_this_name_that_asked_first() {
    let mut linked = linked(Role::Sender, config("c"), config("s"));
    let (pair, session) = (&mut linked.pair, linked.session);
    pair.client.detach(linked.client_link, None);
    carry(&mut pair.client, &mut pair.server);
    while pair.server.next_event().is_some() {}
    // Its handle becomes free, and the second link of this name gets it.
    let first = pair.client.attach(session, Attach::sender("same", "there")).unwrap();
    pair.client.detach(first, None);
    carry(&mut pair.server, &mut pair.client);
    while pair.client.next_event().is_some() {}
    let second = pair.client.attach(session, Attach::sender("same", "there")).unwrap();
    let events = pair.pump();
    let Some(Event::AttachRequested { link, attach, .. }) = events.server.last() else {
        panic!("{events:?}")
    };
    assert_eq!(events.client, [Event::Detached { link: first, error: None }]);
    pair.server.accept(*link, attach.answer());
    let events = pair.pump();
    assert!(matches!(events.client[..], [Event::Attached { link, .. }] if link == second), "{events:?}");
    assert_eq!((pair.client.links(), pair.server.links()), (1, 1));
}

#[test]
fn mistakes_with_handles_cost_the_session_only() {
    let cases = [
        (
            [
                raw_peer::attach(1, 0, Attach::sender("a", "b")),
                raw_peer::attach(1, 0, Attach::sender("c", "d")),
            ]
            .concat(),
            condition::HANDLE_IN_USE,
        ),
        (raw_peer::transfer(1, 9, 0, false, b"x"), condition::UNATTACHED_HANDLE),
        (raw_peer::link_flow(1, 9, 1), condition::UNATTACHED_HANDLE),
        (
            raw_peer::amqp(1, |into| Detach { handle: 9, closed: true, error: None }.write(into)),
            condition::UNATTACHED_HANDLE,
        ),
    ];
    for (bytes, condition) in cases {
        let mut server = raw_peer::begun(config("s"));
        let events = raw_peer::feed(&mut server, &[&bytes]);
        let Some(Event::Ended { error: Some(error), .. }) = events.last() else { panic!("{events:?}") };
        assert_eq!(error.condition, condition);
        assert!(raw_peer::all_sent(&mut server).last().unwrap().contains(condition));
        let end = raw_peer::amqp(1, |into| End { error: None }.write(into));
        let events = raw_peer::feed(&mut server, &[&bytes, &end, &raw_peer::begin(1)]);
        assert!(matches!(events[..], [Event::Begun { .. }]), "told once, and life goes on: {events:?}");
    }
}

#[test]
fn a_message_from_a_receiver_costs_the_link_only() {
    let mut server = raw_peer::begun(config("s"));
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::receiver("a", "b"))]);
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().next() else { panic!() };
    server.accept(link, attach.answer());
    let events = raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, 0, false, b"x")]);
    assert!(matches!(&events[..], [Event::Detached { error: Some(error), .. }]
        if error.condition == condition::NOT_ALLOWED));
    let agreed = raw_peer::amqp(1, |into| Detach { handle: 0, closed: true, error: None }.write(into));
    assert!(raw_peer::feed(&mut server, &[&agreed]).is_empty());
    assert_eq!(server.links(), 0);
}

#[test]
fn commands_for_what_is_gone_do_nothing() {
    let mut linked = linked(Role::Sender, config("c"), config("s"));
    let (pair, link) = (&mut linked.pair, linked.server_link);
    pair.client.close(None);
    pair.pump();
    pair.server.grant(link, 1);
    pair.server.drain(link);
    pair.server.drained(link);
    pair.server.settle(link, 0, 9, &ephor_amqp::performative::Outcome::Accepted);
    pair.server.detach(link, None);
    pair.server.refuse(link, Error::new("amqp:x", "y"));
    pair.server.accept(link, Attach::sender("a", "b"));
    pair.server.end(linked.server_session, None);
    pair.server.close(None);
    assert_eq!(pair.server.begin(), None);
    assert_eq!(pair.server.send(link, 0, true, &[b"x"]), ephor_amqp::connection::Sent::Gone);
    assert!(pair.server.output().is_empty() && pair.server.is_finished());
}

#[test]
fn an_attach_that_the_peer_takes_back_is_answered_properly() {
    let mut server = raw_peer::begun(config("s"));
    raw_peer::frames(&mut server);
    let back = raw_peer::amqp(1, |into| Detach { handle: 0, closed: true, error: None }.write(into));
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "b")), &back]);
    assert!(matches!(events[..], [Event::AttachRequested { .. }, Event::Detached { .. }]));
    let sent = raw_peer::all_sent(&mut server);
    assert!(sent[0].starts_with("Attach") && sent[1].starts_with("Detach"), "{sent:?}");
}

#[test]
fn an_answer_to_nothing_closes_the_connection() {
    let begin = ephor_amqp::performative::Begin { remote_channel: Some(5), ..Default::default() };
    let begin = raw_peer::amqp(0, |into| begin.write(into));
    let (_, events) =
        raw_peer::client(config("c"), &[&raw_peer::header(Protocol::Amqp), &raw_peer::open(), &begin]);
    let Some(Event::Closed(Closed::Failed(error))) = events.last() else { panic!("{events:?}") };
    assert!(error.description().contains("channel 5"));
}

#[test]
fn a_long_reason_is_cut_to_what_the_peer_takes() {
    let small = ephor_amqp::performative::Open {
        container_id: "raw".into(),
        max_frame_size: Some(512),
        ..Default::default()
    };
    let small = raw_peer::amqp(0, |into| small.write(into));
    let (mut server, _) = raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &small]);
    server.close(Some(Error::new(condition::INTERNAL_ERROR, "ä".repeat(5_000))));
    let frames = raw_peer::frames(&mut server);
    assert!(frames.last().unwrap().1.len() <= 504);
}
