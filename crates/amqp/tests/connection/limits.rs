//! Tests that the limits of a connection are enforced, and that the error names the limit; then that the
//! owner learns how memory grows, and can release it. Timeouts are tested in `heartbeats_and_timeouts.rs`.

use ephor_amqp::Connection;
use ephor_amqp::connection::{Blocked, Closed, Config, Event, Sent};
use ephor_amqp::frame::Protocol;
use ephor_amqp::limits::Limits;
use ephor_amqp::performative::{Attach, Error, Open, Outcome, condition};

use crate::client_and_server::config;
use crate::raw_peer;

fn limited(change: impl FnOnce(&mut Limits)) -> Config {
    let mut config = config("s");
    change(&mut config.limits);
    assert_eq!(config.limits.validate(), Ok(()));
    config
}

fn closed(events: &[Event]) -> &Error {
    match events.last() {
        Some(Event::Closed(Closed::Failed(error))) => error,
        _ => panic!("{events:?}"),
    }
}

/// A huge size is refused by its header: the rest is neither awaited nor allocated.
#[test]
fn a_frame_larger_than_allowed_is_refused_by_its_first_bytes() {
    let huge = [0xff, 0xff, 0xff, 0xff, 2, 0, 0, 0];
    let (mut server, events) = raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &huge]);
    assert_eq!(closed(&events).condition, condition::FRAMING_ERROR);
    assert!(server.input().capacity() < 10_000);
    let large = [0, 0, 0x20, 1, 2, 0, 0, 0];
    let (_, events) = raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &large]);
    assert_eq!(closed(&events).description(), "a frame of 8193 bytes; at most 8192 are allowed");
    let (_, events) =
        raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &raw_peer::open(), &large]);
    assert!(matches!(events[..], [Event::Opened(_)]), "after open it may be larger");
    let (_, events) = raw_peer::server(
        config("s"),
        &[&raw_peer::header(Protocol::Amqp), &raw_peer::open(), &[0, 1, 0, 1, 2, 0, 0, 0]],
    );
    assert_eq!(closed(&events).description(), "a frame of 65537 bytes; at most 65536 are allowed");
}

#[test]
fn a_frame_smaller_than_its_header_is_refused() {
    for bad in [[0, 0, 0, 7, 2, 0, 0, 0], [0, 0, 0, 8, 1, 0, 0, 0], [0, 0, 0, 8, 3, 0, 0, 0], [0; 8]] {
        let (_, events) = raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &bad]);
        assert_eq!(closed(&events).condition, condition::FRAMING_ERROR, "{bad:?}");
    }
}

#[test]
fn an_extended_header_is_passed_over() {
    let mut open = raw_peer::open();
    open.splice(8..8, [1, 2, 3, 4]);
    open[3] += 4;
    open[4] = 3;
    let (_, events) = raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &open]);
    assert!(matches!(events[..], [Event::Opened(_)]));
}

#[test]
fn channels_are_limited() {
    let config = limited(|limits| limits.channel_max = 3);
    let bytes =
        [raw_peer::header(Protocol::Amqp), raw_peer::open(), raw_peer::begin(3), raw_peer::begin(4)].concat();
    let (_, events) = raw_peer::server(config, &[&bytes]);
    assert_eq!(closed(&events).description(), "begin on channel 4, beyond 3");
}

#[test]
fn sessions_are_limited_and_limits_can_be_raised() {
    let config = limited(|limits| {
        limits.channel_max = 4_999;
        limits.sessions = 2;
    });
    let mut server = raw_peer::server(config, &[&raw_peer::header(Protocol::Amqp), &raw_peer::open()]).0;
    // High channels work like low ones, and a channel that is free can be used again.
    let events =
        raw_peer::feed(&mut server, &[&raw_peer::begin(4_999), &raw_peer::begin(0), &raw_peer::end(4_999)]);
    assert!(
        matches!(events[..], [Event::Begun { .. }, Event::Begun { .. }, Event::Ended { .. }]),
        "{events:?}"
    );
    assert!(matches!(raw_peer::feed(&mut server, &[&raw_peer::begin(4_999)])[..], [Event::Begun { .. }]));
    let raised = Limits { sessions: 3, ..server.config().limits.clone() };
    server.set_limits(raised);
    assert!(matches!(raw_peer::feed(&mut server, &[&raw_peer::begin(1)])[..], [Event::Begun { .. }]));
    let events = raw_peer::feed(&mut server, &[&raw_peer::begin(2)]);
    assert_eq!(closed(&events).condition, condition::RESOURCE_LIMIT_EXCEEDED);
    assert_eq!(closed(&events).description(), "more sessions than the 3 that are allowed");
}

#[test]
fn more_may_wait_for_a_peer_once_the_limit_is_raised() {
    let mut server = raw_peer::begun(limited(|limits| limits.output = 1_000));
    let events = raw_peer::feed(
        &mut server,
        &[&raw_peer::attach(1, 0, Attach::receiver("a", "b")), &raw_peer::link_flow(1, 0, 9)],
    );
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().next() else { panic!() };
    server.accept(link, attach.answer());
    assert!(matches!(server.send(link, 0, true, &[&[0; 2_000]]), Sent::Sent(_)));
    assert_eq!(server.send(link, 0, true, &[&[0; 2_000]]), Sent::Blocked(Blocked::Room));
    let waiting = server.output().len();
    server.wrote(waiting);
    let raised = Limits { output: 100_000, ..server.config().limits.clone() };
    server.set_limits(raised);
    for _ in 0..5 {
        assert!(matches!(server.send(link, 0, true, &[&[0; 2_000]]), Sent::Sent(_)));
    }
}

#[test]
fn handles_are_limited() {
    let mut server = raw_peer::begun(limited(|limits| limits.handle_max = 3));
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 3, Attach::sender("a", "b"))]);
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 4, Attach::sender("a", "b"))]);
    assert_eq!(closed(&events).description(), "attach with handle 4, beyond 3");
}

#[test]
fn links_are_limited() {
    let mut server = raw_peer::begun(limited(|limits| limits.links = 2));
    let links: Vec<u8> = (0..3).flat_map(|at| raw_peer::attach(1, at, Attach::sender("a", "b"))).collect();
    let events = raw_peer::feed(&mut server, &[&links]);
    let Some(Event::Ended { error: Some(error), .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(error.condition, condition::RESOURCE_LIMIT_EXCEEDED);
    assert_eq!(server.links(), 0);
}

/// A server with a link that announces 66,536 bytes.
fn small_link() -> Connection {
    let mut server = raw_peer::begun(limited(|limits| limits.incomplete = 70_000));
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "b"))]);
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().next() else { panic!() };
    server.accept(link, Attach { max_message_size: Some(66_536), ..attach.answer() });
    server.grant(link, 10);
    raw_peer::frames(&mut server);
    server
}

const TOO_LARGE: &str = "exceeds the limit (66536 bytes) currently allowed on the link.";

#[test]
fn a_message_that_is_too_large_is_rejected_and_the_link_goes_on() {
    let mut server = small_link();
    // Far more than may be incomplete, but none of it is kept.
    let part = |more| raw_peer::transfer(1, 0, 0, more, &[0; 60_000]);
    for _ in 0..10 {
        assert_eq!(raw_peer::feed(&mut server, &[&part(true)]), []);
    }
    assert!(raw_peer::all_sent(&mut server).is_empty(), "the end of it is waited for");
    let events = raw_peer::feed(&mut server, &[&part(false)]);
    let [Event::Oversized { link, delivery: 0, size: 660_000, limit: 66_536 }] = events[..] else {
        panic!("{events:?}");
    };
    server.settle(link, 0, 0, &Outcome::rejected(Error::too_large(0, 660_000, 66_536)));
    let sent = raw_peer::all_sent(&mut server);
    let [flow, disposition] = &sent[..] else { panic!("{sent:?}") };
    assert!(disposition.contains(condition::MESSAGE_SIZE_EXCEEDED), "{disposition}");
    assert!(
        disposition.contains(&format!("(delivery-id:0, size:660000 bytes) {TOO_LARGE}")),
        "{disposition}"
    );
    assert!(flow.contains("delivery_count: Some(1), link_credit: Some(10)"), "{flow}");
    let parts = [true, false].map(|more| raw_peer::transfer(1, 0, 1, more, &[0; 30_000])).concat();
    assert!(
        matches!(raw_peer::feed(&mut server, &[&parts])[..], [Event::Delivery(_)]),
        "there is room for it"
    );
}

#[test]
fn a_message_that_grows_without_an_end_costs_its_link() {
    let mut server = small_link();
    let part = raw_peer::transfer(1, 0, 0, true, &[0; 60_000]);
    for _ in 0..16 * 66_536 / 60_000 {
        assert_eq!(raw_peer::feed(&mut server, &[&part]), []);
    }
    let events = raw_peer::feed(&mut server, &[&part]);
    let [Event::Detached { error: Some(error), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.condition, condition::MESSAGE_SIZE_EXCEEDED);
    assert!(error.description().ends_with(TOO_LARGE), "{error}");
    assert!(raw_peer::feed(&mut server, &[&part]).is_empty(), "the rest is passed over");
}

#[test]
fn a_message_that_is_too_large_and_wants_no_answer_costs_its_link() {
    let mut server = small_link();
    let mut part = raw_peer::transfer(1, 0, 0, true, &[0; 60_000]);
    // The `settled` field, after handle, number, tag and format.
    assert_eq!(std::mem::replace(&mut part[22], 0x41), 0x42);
    assert_eq!(raw_peer::feed(&mut server, &[&part]), []);
    let events = raw_peer::feed(&mut server, &[&part]);
    let [Event::Detached { error: Some(error), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.condition, condition::MESSAGE_SIZE_EXCEEDED);
}

#[test]
fn bytes_of_incomplete_deliveries_are_limited() {
    let mut server = raw_peer::begun(limited(|limits| limits.incomplete = 100_000));
    let begun: Vec<u8> = (0..3)
        .flat_map(|at| {
            let attach = raw_peer::attach(1, at.into(), Attach::sender("a", "b"));
            [attach, raw_peer::transfer(1, at, at, true, &[0; 40_000])].concat()
        })
        .collect();
    let events = raw_peer::feed(&mut server, &[&begun]);
    let Some(Event::Detached { error: Some(error), .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(error.condition, condition::RESOURCE_LIMIT_EXCEEDED);
    assert_eq!(error.description(), "more than 100000 bytes of deliveries that have not ended");
    let events = raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, 0, false, b"x")]);
    assert!(matches!(events[..], [Event::Delivery(_)]), "the others go on");
}

#[test]
fn unsettled_deliveries_are_limited() {
    let mut server = raw_peer::begun(limited(|limits| limits.unsettled = 5));
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "b"))]);
    let many: Vec<u8> = (0..6).flat_map(|id| raw_peer::transfer(1, 0, id, false, b"x")).collect();
    let events = raw_peer::feed(&mut server, &[&many]);
    let Some(Event::Ended { error: Some(error), .. }) = events.last() else { panic!("{events:?}") };
    assert_eq!(error.description(), "more than 5 unsettled deliveries");
}

#[test]
fn limits_that_cannot_work_say_so() {
    let wrong = |change: fn(&mut Limits)| {
        let mut limits = Limits::default();
        change(&mut limits);
        limits.validate().unwrap_err()
    };
    assert!(wrong(|limits| limits.frame = 511).starts_with("frame (511)"));
    assert!(wrong(|limits| limits.window = 1).starts_with("window (1)"));
    assert!(wrong(|limits| limits.output_to_pause_reading = 1).starts_with("output_to_pause_reading (1)"));
}

#[test]
fn nesting_and_counts_of_a_hundred_thousand_are_refused() {
    // Nested lists, in the properties of an open, as deep as fits into a frame.
    let mut nested = Vec::new();
    let mut depth = vec![0x45];
    while depth.len() < 8_000 {
        let mut outer = vec![0xd0];
        outer.extend((depth.len() as u32 + 4).to_be_bytes());
        outer.extend(1u32.to_be_bytes());
        outer.extend(&depth);
        depth = outer;
    }
    nested.extend([0x00, 0x53, 0x10, 0xd0]);
    nested.extend((4 + 3 + 8 + depth.len() as u32).to_be_bytes());
    nested.extend(10u32.to_be_bytes());
    nested.extend([0xa1, 1, b'c']);
    nested.extend([0x40; 8]);
    nested.extend(&depth);
    let (_, events) =
        raw_peer::server(config("s"), &[&raw_peer::header(Protocol::Amqp), &raw_peer::frame(0, 0, &nested)]);
    assert_eq!(closed(&events).condition, condition::DECODE_ERROR);
    // Nested descriptors, 100,000 of them, in a large frame.
    let config = limited(|limits| limits.frame = 1 << 20);
    let described = raw_peer::frame(0, 0, &[0x00; 100_000]);
    let (_, events) =
        raw_peer::server(config, &[&raw_peer::header(Protocol::Amqp), &raw_peer::open(), &described]);
    assert_eq!(closed(&events).condition, condition::DECODE_ERROR);
    // Four billion fields in no bytes.
    let counts = [0x00, 0x53, 0x11, 0xd0, 0, 0, 0, 4, 0xff, 0xff, 0xff, 0xff];
    let bytes = [raw_peer::header(Protocol::Amqp), raw_peer::open(), raw_peer::frame(0, 0, &counts)].concat();
    let (_, events) = raw_peer::server(self::config("s"), &[&bytes]);
    assert_eq!(closed(&events).condition, condition::DECODE_ERROR);
}

#[test]
fn a_frame_that_the_peer_does_not_take_is_not_sent() {
    let small = Open { container_id: "raw".into(), max_frame_size: Some(1), ..Open::default() };
    let small = raw_peer::amqp(0, |into| small.write(into));
    let long = Attach::sender("n".repeat(600), "b");
    let bytes =
        [raw_peer::header(Protocol::Amqp), small, raw_peer::begin(1), raw_peer::attach(1, 0, long)].concat();
    let (mut server, events) = raw_peer::server(config("s"), &[&bytes]);
    let Some(Event::AttachRequested { link, attach, .. }) = events.into_iter().last() else { panic!() };
    server.accept(link, attach.answer());
    let events = raw_peer::feed(&mut server, &[]);
    assert_eq!(closed(&events).condition, condition::FRAME_SIZE_TOO_SMALL);
}

#[test]
fn an_owner_may_be_notified_of_the_growth_of_unended_deliveries() {
    let mut server = raw_peer::begun(limited(|limits| limits.incomplete_notice = 100_000));
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, Attach::sender("a", "b"))]);
    let part = raw_peer::transfer(1, 0, 0, true, &[0; 40_000]);
    let events: Vec<_> = (0..6).map(|_| raw_peer::feed(&mut server, &[&part])).collect();
    let reported = |at: &usize| events[*at] == [Event::Unended];
    assert_eq!((0..6).filter(reported).collect::<Vec<_>>(), [1, 3], "{events:?}");
    // The capacity of a buffer that doubles: 40,000, 120,000, 280,000.
    assert_eq!(server.buffered().unended, 280_000);
    raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, 0, false, &[0; 10])]);
    assert_eq!(server.buffered().unended, 0);
    assert_eq!(raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 0, 1, true, &[0; 40_000])]), []);
}

#[test]
fn an_owner_that_wants_to_know_hears_how_output_grows_and_shrinks() {
    const STEP: usize = 100_000;
    let mut server = raw_peer::begun(limited(|limits| limits.incomplete_notice = STEP));
    raw_peer::frames(&mut server);
    let mut known = server.buffered();
    // Flows are answered without any other event, and nobody reads the answers.
    while server.wants_input() {
        for event in raw_peer::feed(&mut server, &[&raw_peer::echo(1).repeat(100)]) {
            assert_eq!(event, Event::Unended);
            known = server.buffered();
        }
        let waiting = server.output_length();
        assert!(waiting <= known.bytes + STEP, "{waiting} bytes wait, and the owner knows {known:?}");
    }
    assert!(known.output >= server.output_length() && known.bytes >= known.output, "{known:?}");
    // The peer reads, and the rest is the smaller the more it has read.
    while server.output_length() > 0 {
        server.wrote(server.output_length().min(STEP / 2));
        for event in raw_peer::feed(&mut server, &[]) {
            assert_eq!(event, Event::Unended);
            known = server.buffered();
        }
    }
    assert_eq!((known.output, known.output_since), (0, None));
}

#[test]
fn memory_that_is_not_needed_is_released_while_output_waits() {
    let mut server = raw_peer::begun(config("s"));
    while server.wants_input() {
        raw_peer::feed(&mut server, &[&raw_peer::echo(1).repeat(1_000)]);
    }
    server.wrote(600_000);
    let waiting = server.output().to_vec();
    server.release_memory();
    let buffered = server.buffered();
    assert!(buffered.output < waiting.len() + waiting.len() / 2, "{buffered:?} for {}", waiting.len());
    assert_eq!(server.output(), waiting);
}
