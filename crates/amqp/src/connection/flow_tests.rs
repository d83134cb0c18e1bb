//! Tests that a `flow` frame costs work for its own session only, and that a sender that was blocked is
//! notified when it can send again. More tests of flow control are in `tests/connection/flow.rs`.

use std::time::Duration;

use super::{Blocked, Config, Connection, Event, LinkId, Sent, ServerSasl};
use crate::frame::{self, Protocol};
use crate::performative::{Attach, Begin, Detach, Disposition, End, Flow, Open, Outcome, Role};

const SESSIONS: u16 = 1_000;

fn encoded(channel: u16, write: impl FnOnce(&mut Vec<u8>)) -> Vec<u8> {
    let mut bytes = Vec::new();
    let start = frame::begin(&mut bytes, frame::TYPE_AMQP, channel);
    write(&mut bytes);
    frame::end(&mut bytes, start);
    bytes
}

fn feed(server: &mut Connection, bytes: &[u8]) -> Vec<Event> {
    server.input().extend_from_slice(bytes);
    std::iter::from_fn(|| server.next_event()).collect()
}

/// A flow that grants credit for link 0.
fn first_flow() -> Flow {
    Flow {
        next_incoming_id: Some(1),
        handle: Some(0),
        delivery_count: Some(0),
        link_credit: Some(10),
        ..Flow::default()
    }
}

/// A flow that allows `window` frames after the first `seen`, and grants credit for link 0.
fn flow(channel: u16, seen: u32, window: u32) -> Vec<u8> {
    let flow = Flow { next_incoming_id: Some(1 + seen), incoming_window: window, ..first_flow() };
    encoded(channel, |into| flow.write(into))
}

/// A server with a receiver in each session, and a window for one frame in each.
fn server() -> (Connection, Vec<LinkId>) {
    let mut config = Config::new("server");
    config.limits.sessions = SESSIONS.into();
    config.limits.channel_max = SESSIONS;
    config.limits.incomplete = 1 << 30;
    let mut server = Connection::server(config, ServerSasl::default(), Duration::ZERO);
    let open = Open { container_id: "raw".into(), ..Open::default() };
    feed(&mut server, &[&Protocol::Amqp.header()[..], &encoded(0, |into| open.write(into))].concat());
    let mut links = Vec::new();
    for channel in 0..SESSIONS {
        let begin = Begin { incoming_window: 1, outgoing_window: 1, ..Begin::default() };
        feed(&mut server, &encoded(channel, |into| begin.write(into)));
        let events = feed(&mut server, &encoded(channel, |into| Attach::receiver("r", "a").write(into)));
        let [Event::AttachRequested { link, attach, .. }] = &events[..] else { panic!("{events:?}") };
        server.accept(*link, attach.answer());
        feed(&mut server, &flow(channel, 0, 1));
        links.push(*link);
    }
    read_all(&mut server);
    (server, links)
}

fn read_all(server: &mut Connection) -> usize {
    let length = server.output().len();
    server.wrote(length);
    length
}

#[test]
fn a_flow_costs_as_much_work_as_its_own_session_whatever_else_waits() {
    let (mut server, links) = server();
    // Each has a window for the first of three frames, so all of them wait with the rest.
    for link in &links {
        assert!(matches!(server.send(*link, 0, true, &[&[7; 150_000]]), Sent::Sent(_)));
        assert_eq!(server.obstacle(*link, true), Some(Sent::Blocked(Blocked::Window)));
        read_all(&mut server);
    }
    server.visited = 0;
    for seen in 0..100 {
        // Repeats the state of the first session, and allows one more frame of the second.
        feed(&mut server, &flow(0, 0, 1));
        feed(&mut server, &flow(1, 1 + seen.min(1), 1));
        read_all(&mut server);
    }
    assert!(server.visited <= 100 * 6, "{} sessions were visited", server.visited);
    // The second has its whole delivery, and its session can send the next one.
    let events = feed(&mut server, &flow(1, 3, 1));
    assert!(events.iter().any(|event| matches!(event, Event::Credit { .. })), "{events:?}");
    assert_eq!(server.obstacle(links[1], true), None);
    assert_eq!(server.obstacle(links[2], true), Some(Sent::Blocked(Blocked::Window)));
}

#[test]
fn a_send_refused_because_of_others_is_notified_when_they_have_ended() {
    let (mut server, links) = server();
    server.config.limits.incomplete = 200_000;
    assert!(matches!(server.send(links[0], 0, true, &[&[7; 150_000]]), Sent::Sent(_)));
    let refused = server.send(links[1], 0, true, &[&[7; 150_000]]);
    assert_eq!(refused, Sent::Blocked(Blocked::Window));
    read_all(&mut server);
    let events = feed(&mut server, &flow(0, 1, 10));
    let concerned = server.session_of(links[1]);
    let reported = |event: &Event| matches!(event, Event::Window { session } if Some(*session) == concerned);
    assert!(events.iter().any(reported), "{events:?}");
}

#[test]
fn a_send_refused_because_of_others_is_notified_when_they_are_gone() {
    for ends in [
        encoded(0, |into| Detach { handle: 0, closed: true, error: None }.write(into)),
        encoded(0, |into| End { error: None }.write(into)),
    ] {
        let (mut server, links) = server();
        server.config.limits.incomplete = 200_000;
        assert!(matches!(server.send(links[0], 0, true, &[&[7; 150_000]]), Sent::Sent(_)));
        for link in &links[1..4] {
            assert_eq!(server.send(*link, 0, true, &[&[7; 150_000]]), Sent::Blocked(Blocked::Window));
        }
        read_all(&mut server);
        let events = feed(&mut server, &ends);
        for link in &links[1..4] {
            let concerned = server.session_of(*link);
            let reported =
                |event: &Event| matches!(event, Event::Window { session } if Some(*session) == concerned);
            assert!(events.iter().any(reported), "{events:?}");
        }
    }
}

#[test]
fn a_send_refused_because_of_others_is_refused_again_before_its_message_is_read() {
    let (mut server, links) = server();
    server.config.limits.incomplete = 200_000;
    let large: &[u8] = &[7; 150_000];
    let may_send = |server: &mut Connection, links: &[LinkId]| {
        links.iter().filter(|link| server.obstacle(**link, true).is_none()).count()
    };
    assert!(matches!(server.send(links[0], 0, true, &[large]), Sent::Sent(_)));
    for link in &links[1..] {
        assert_eq!(server.send(*link, 0, true, &[large]), Sent::Blocked(Blocked::Window));
    }
    assert_eq!(may_send(&mut server, &links[1..]), 0, "they would read their messages for nothing");
    read_all(&mut server);
    for gone in 0..3 {
        // All are notified that the rest is gone. The first to send takes the free memory, and the others are
        // blocked again.
        let events = feed(&mut server, &encoded(gone, |into| End { error: None }.write(into)));
        let reported = events.iter().filter(|event| matches!(event, Event::Window { .. })).count();
        let next = usize::from(gone) + 1;
        assert_eq!(reported, links.len() - next);
        assert!(matches!(server.send(links[next], 0, true, &[large]), Sent::Sent(_)));
        assert_eq!(may_send(&mut server, &links[next + 1..]), 0);
        read_all(&mut server);
    }
    // A window for the whole message is enough as well.
    let events = feed(&mut server, &flow(9, 0, 100));
    assert!(events.iter().any(|event| matches!(event, Event::Window { .. })), "{events:?}");
    assert_eq!(server.obstacle(links[9], true), None);
    assert!(matches!(server.send(links[9], 0, true, &[large]), Sent::Sent(_)));
}

/// The first session holds a rest that takes nearly all of the memory for rests; the others have a window.
fn server_with_a_rest() -> (Connection, Vec<LinkId>) {
    let (mut server, links) = server();
    server.config.limits.incomplete = 100_000;
    assert!(matches!(server.send(links[0], 0, true, &[&[7; 150_000]]), Sent::Sent(_)));
    read_all(&mut server);
    for channel in 1..4 {
        feed(&mut server, &flow(channel, 0, 100));
    }
    (server, links)
}

fn events_of(server: &mut Connection) -> Vec<Event> {
    std::iter::from_fn(|| server.next_event()).collect()
}

#[test]
fn a_send_refused_for_lack_of_room_is_notified_of_room_whatever_others_keep() {
    let (mut server, links) = server_with_a_rest();
    assert!(matches!(server.send(links[1], 0, true, &[&[7; 150_000]]), Sent::Sent(_)));
    let refused = server.send(links[2], 0, true, &[&[7; 150_000]]);
    assert!(matches!(refused, Sent::Blocked(_)), "{refused:?}");
    read_all(&mut server);
    let events = events_of(&mut server);
    assert!(matches!(events[..], [Event::Room]), "{refused:?}, then {events:?}");
    assert!(matches!(server.send(links[2], 0, true, &[&[7; 150_000]]), Sent::Sent(_)));
}

#[test]
fn a_message_that_is_larger_than_the_output_goes_out_whatever_others_keep() {
    let (mut server, links) = server_with_a_rest();
    let large = vec![7; 2 * server.config.limits.output];
    let sent = server.send(links[1], 0, true, &[&large]);
    assert!(matches!(sent, Sent::Sent(_)), "{sent:?}");
    // One of them at a time, because the peer may close its window midway.
    feed(&mut server, &flow(1, 0, 0));
    read_all(&mut server);
    assert_eq!(server.send(links[2], 0, true, &[&large]), Sent::Blocked(Blocked::Window));
    let mut events = feed(&mut server, &flow(1, 0, 100));
    while server.has_output() {
        read_all(&mut server);
        events.extend(events_of(&mut server));
    }
    let concerned = server.session_of(links[2]);
    let reported = |event: &Event| matches!(event, Event::Window { session } if Some(*session) == concerned);
    assert!(events.iter().any(reported), "{events:?}");
    assert!(matches!(server.send(links[2], 0, true, &[&large]), Sent::Sent(_)));
    // It is ended midway, and the next one takes its turn.
    feed(&mut server, &encoded(2, |into| End { error: None }.write(into)));
    while server.has_output() {
        read_all(&mut server);
    }
    assert!(matches!(server.send(links[3], 0, true, &[&large]), Sent::Sent(_)));
}

#[test]
fn a_flow_for_a_link_that_is_gone_still_opens_the_window() {
    let (mut server, links) = server();
    assert!(matches!(server.send(links[0], 0, true, &[&[7; 10]]), Sent::Sent(_)));
    assert_eq!(server.send(links[0], 0, true, &[&[7; 10]]), Sent::Blocked(Blocked::Window));
    // A second link of the session is attached and detached.
    let other = Attach { handle: 1, ..Attach::receiver("other", "a") };
    feed(&mut server, &encoded(0, |into| other.write(into)));
    feed(&mut server, &encoded(0, |into| Detach { handle: 1, closed: true, error: None }.write(into)));
    let late = Flow {
        next_incoming_id: Some(2),
        incoming_window: 10,
        handle: Some(1),
        delivery_count: Some(0),
        link_credit: Some(10),
        ..Flow::default()
    };
    let events = feed(&mut server, &encoded(0, |into| late.write(into)));
    assert!(matches!(events[..], [Event::Window { .. }]), "{events:?}");
    assert!(matches!(server.send(links[0], 0, true, &[&[7; 10]]), Sent::Sent(_)));
}

#[test]
fn a_send_refused_because_too_much_is_unsettled_is_notified_when_another_link_was_settled() {
    let (mut server, links) = server();
    server.config.limits.unsettled = 1;
    let other = Attach { handle: 1, ..Attach::receiver("other", "a") };
    let events = feed(&mut server, &encoded(0, |into| other.write(into)));
    let [Event::AttachRequested { link: other, attach, .. }] = &events[..] else { panic!("{events:?}") };
    server.accept(*other, attach.answer());
    let credit = Flow { handle: Some(1), ..first_flow() };
    feed(&mut server, &encoded(0, |into| credit.write(into)));
    feed(&mut server, &flow(0, 0, 100));
    let Sent::Sent(id) = server.send(links[0], 0, false, &[&[7; 10]]) else { panic!() };
    assert_eq!(server.send(*other, 0, false, &[&[7; 10]]), Sent::Blocked(Blocked::Unsettled));
    let accepted = Disposition {
        role: Role::Receiver,
        first: id,
        last: None,
        settled: true,
        outcome: Some(Outcome::Accepted),
    };
    let events = feed(&mut server, &encoded(0, |into| accepted.write(into)));
    assert!(events.iter().any(|event| matches!(event, Event::Window { .. })), "{events:?}");
    assert!(matches!(server.send(*other, 0, false, &[&[7; 10]]), Sent::Sent(_)));
    // The same if the link with the unsettled delivery is detached.
    assert_eq!(server.send(links[0], 0, false, &[&[7; 10]]), Sent::Blocked(Blocked::Unsettled));
    let detach = Detach { handle: 1, closed: true, error: None };
    let events = feed(&mut server, &encoded(0, |into| detach.write(into)));
    assert!(events.iter().any(|event| matches!(event, Event::Window { .. })), "{events:?}");
}
