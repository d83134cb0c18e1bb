//! Tests heartbeats and timeouts: idle connections, peers that do not answer or do not read, and deliveries
//! that do not end.

use std::time::Duration;

use ephor_amqp::Connection;
use ephor_amqp::connection::{Buffered, Closed, Config, Event};
use ephor_amqp::frame::{HEARTBEAT, Protocol};
use ephor_amqp::performative::{Attach, Open, condition};

use crate::client_and_server::{Pair, config};
use crate::raw_peer;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

/// A server whose peer has this idle timeout.
fn heartbeats(config: Config, idle_time_out: Option<u32>) -> Connection {
    let open = Open { container_id: "raw".into(), idle_time_out, ..Open::default() };
    let open = raw_peer::amqp(0, |into| open.write(into));
    let (mut server, _) = raw_peer::server(config, &[&raw_peer::header(Protocol::Amqp), &open]);
    raw_peer::frames(&mut server);
    server.on_time(Duration::ZERO);
    server
}

#[test]
fn a_quiet_server_sends_heartbeats_at_half_of_the_peers_idle_timeout() {
    let mut server = heartbeats(config("s"), Some(60_000));
    for round in 1..5 {
        assert_eq!(server.next_deadline(), Some(seconds(30 * round)));
        server.on_time(seconds(30 * round) - Duration::from_millis(1));
        assert!(server.output().is_empty());
        server.on_time(seconds(30 * round));
        assert_eq!(server.output(), HEARTBEAT);
        server.wrote(8);
        server.on_time(seconds(30 * round));
        raw_peer::feed(&mut server, &[&HEARTBEAT]);
    }
    assert!(raw_peer::feed(&mut server, &[&HEARTBEAT]).is_empty());
}

#[test]
fn a_server_that_has_something_to_say_needs_no_heartbeat() {
    let mut server = heartbeats(config("s"), Some(60_000));
    server.on_time(seconds(29));
    raw_peer::feed(&mut server, &[&raw_peer::begin(0)]);
    raw_peer::frames(&mut server);
    server.on_time(seconds(29));
    server.on_time(seconds(30));
    assert!(server.output().is_empty());
    assert_eq!(server.next_deadline(), Some(seconds(59)));
}

#[test]
fn a_peer_in_a_hurry_is_not_served_faster_than_ten_times_a_second() {
    let mut server = heartbeats(config("s"), Some(1));
    assert_eq!(server.next_deadline(), Some(Duration::from_millis(100)));
    let mut none = heartbeats(Config { idle_time_out: None, ..config("s") }, Some(0));
    assert_eq!(none.next_deadline(), None);
    none.on_time(seconds(1_000_000));
    assert!(none.is_open());
    server.on_time(Duration::from_millis(100));
    assert_eq!(server.output(), HEARTBEAT);
}

#[test]
fn a_silent_peer_is_given_up_after_twice_its_time() {
    let mut server = heartbeats(Config { idle_time_out: Some(seconds(10)), ..config("s") }, None);
    assert_eq!(server.next_deadline(), Some(seconds(20)));
    server.on_time(seconds(15));
    raw_peer::feed(&mut server, &[&HEARTBEAT]);
    server.on_time(seconds(15));
    assert_eq!(server.next_deadline(), Some(seconds(35)));
    server.on_time(seconds(35));
    let Some(Event::Closed(Closed::Failed(error))) = server.next_event() else { panic!() };
    assert_eq!(error.condition, condition::CONNECTION_FORCED);
    assert_eq!(
        error.description(),
        "The connection was inactive for more than the allowed 20000 milliseconds and is closed by container 's'."
    );
    server.on_time(seconds(35));
    server.on_time(seconds(40));
    assert!(server.is_finished(), "it is not waited for any longer than for a close");
}

#[test]
fn the_links_and_sessions_of_a_silent_peer_end_before_its_connection() {
    let mut server = raw_peer::begun(Config { idle_time_out: Some(seconds(10)), ..config("s") });
    let asked = Attach::sender("one", "there");
    let events = raw_peer::feed(&mut server, &[&raw_peer::attach(1, 0, asked)]);
    let [Event::AttachRequested { link, attach, .. }] = &events[..] else { panic!("{events:?}") };
    server.accept(*link, attach.answer());
    raw_peer::feed(&mut server, &[&raw_peer::attach(1, 1, Attach::sender("not answered yet", "there"))]);
    raw_peer::all_sent(&mut server);
    server.on_time(Duration::ZERO);
    server.on_time(seconds(20));
    let sent = raw_peer::all_sent(&mut server);
    assert_eq!(sent.len(), 3, "{sent:#?}");
    for (frame, kind) in sent.iter().zip(["Detach", "End", "Close"]) {
        assert!(frame.starts_with(kind) && frame.contains("allowed 20000 milliseconds"), "{sent:#?}");
    }
    assert!(matches!(server.next_event(), Some(Event::Closed(Closed::Failed(_)))));
}

#[test]
fn a_peer_that_does_not_open_in_time_is_closed() {
    let sasl = raw_peer::header(Protocol::Sasl);
    let amqp = raw_peer::header(Protocol::Amqp);
    for sent in [&b""[..], b"AMQP", &sasl, &amqp] {
        let (mut server, _) = raw_peer::server(config("s"), &[sent]);
        assert_eq!(server.next_deadline(), Some(seconds(30)));
        server.on_time(seconds(29));
        assert_eq!(server.next_event(), None);
        server.on_time(seconds(30));
        let Some(Event::Closed(Closed::Failed(error))) = server.next_event() else { panic!() };
        assert_eq!(error.description(), "no open within 30s of connecting");
        server.on_time(seconds(30));
        server.on_time(seconds(36));
        assert!(server.is_finished());
    }
}

#[test]
fn a_peer_that_does_not_answer_a_close_is_not_waited_for() {
    let mut pair = Pair::open(config("c"), config("s"));
    pair.client.close(None);
    let output = pair.client.output().len();
    pair.client.wrote(output);
    pair.client.on_time(seconds(100));
    assert_eq!(pair.client.next_deadline(), Some(seconds(105)));
    pair.client.on_time(seconds(105));
    assert_eq!(pair.client.next_event(), Some(Event::Closed(Closed::ByUs)));
    assert!(pair.client.is_finished());
}

#[test]
fn a_peer_that_does_not_read_is_given_up() {
    let mut server = heartbeats(config("s"), None);
    raw_peer::feed(&mut server, &[&raw_peer::begin(0)]);
    server.on_time(seconds(1));
    assert_eq!(server.next_deadline(), Some(seconds(61)));
    server.on_time(seconds(30));
    let tenth = server.output().len().div_ceil(10);
    server.wrote(tenth);
    server.on_time(seconds(31));
    raw_peer::feed(&mut server, &[&HEARTBEAT]);
    server.on_time(seconds(90));
    assert_eq!(server.next_event(), None);
    server.on_time(seconds(91));
    let Some(Event::Closed(Closed::Lost(why))) = server.next_event() else { panic!() };
    assert_eq!(why, "the peer has read nothing for 60s");
    assert!(server.is_finished());
}

#[test]
fn whoever_reads_a_few_bytes_now_and_then_is_given_up_as_well() {
    let mut server = heartbeats(Config { idle_time_out: None, ..config("s") }, None);
    raw_peer::feed(&mut server, &[&raw_peer::begin(1)]);
    raw_peer::feed(&mut server, &[&raw_peer::echo(1).repeat(1_000)]);
    let waiting = server.output().len();
    let mut lost = None;
    for second in 1..2_000 {
        server.on_time(seconds(second));
        if let Some(Event::Closed(Closed::Lost(why))) = server.next_event() {
            lost = Some((second, why));
            break;
        }
        if second % 20 == 0 {
            server.wrote(8);
        }
    }
    let why = format!("the peer has read only 24 bytes in 60s, and {} wait for it", waiting - 24);
    assert_eq!(lost, Some((61, why)));
}

#[test]
fn a_slow_peer_that_reads_a_tenth_in_time_is_served_to_the_end() {
    let mut server = heartbeats(Config { idle_time_out: None, ..config("s") }, None);
    raw_peer::feed(&mut server, &[&raw_peer::begin(1)]);
    raw_peer::feed(&mut server, &[&raw_peer::echo(1).repeat(1_000)]);
    let part = server.output().len().div_ceil(10);
    let mut second = 1;
    while server.has_output() {
        server.on_time(seconds(second));
        assert_eq!(server.next_event(), None, "after {second} s");
        server.wrote(part.min(server.output_length()));
        second += 59;
    }
}

/// A server with two links on which deliveries have begun.
fn two_begun() -> Connection {
    let mut server = raw_peer::begun(Config { idle_time_out: None, ..config("s") });
    for handle in 0..2 {
        raw_peer::feed(&mut server, &[&raw_peer::attach(1, handle.into(), Attach::sender("a", "b"))]);
        raw_peer::feed(&mut server, &[&raw_peer::transfer(1, handle, handle, true, &[0; 1_000])]);
    }
    raw_peer::frames(&mut server);
    server.on_time(Duration::ZERO);
    server
}

#[test]
fn a_delivery_of_which_nothing_more_comes_is_given_up_and_costs_its_link() {
    let mut server = two_begun();
    let buffered = server.buffered();
    assert_eq!((buffered.unended, buffered.oldest), (2_000, Some(Duration::ZERO)));
    assert_eq!(server.next_deadline(), Some(seconds(60)));
    // The second goes on, slowly; the first does not.
    server.on_time(seconds(59));
    raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 1, 1, true, &[0; 1])]);
    assert!(server.on_time(seconds(60)));
    let events = raw_peer::feed(&mut server, &[]);
    let [Event::Detached { error: Some(error), .. }] = &events[..] else { panic!("{events:?}") };
    assert_eq!(error.condition, condition::DETACH_FORCED);
    let text = "message 0 is incomplete and no further part came within 60s; send it again";
    assert_eq!(error.description(), text);
    assert_eq!(server.buffered().unended, 2_001, "the buffer has room for as much as it has");
    assert_eq!(server.next_deadline(), Some(seconds(119)));
    let events = raw_peer::feed(&mut server, &[&raw_peer::transfer(1, 1, 1, false, b"x")]);
    assert!(matches!(events[..], [Event::Delivery(_)]), "{events:?}");
    raw_peer::frames(&mut server);
    server.release_memory();
    assert_eq!(server.buffered(), Buffered::default());
    server.on_time(seconds(61));
    assert_eq!(server.next_deadline(), None);
}

#[test]
fn nothing_is_held_against_a_peer_that_was_not_read_from() {
    let mut server = two_begun();
    server.pause_reading(true);
    assert!(!server.wants_input());
    assert!(!server.on_time(seconds(1_000)));
    server.pause_reading(false);
    assert!(server.wants_input());
    assert!(!server.on_time(seconds(1_000)));
    assert!(!server.on_time(seconds(1_059)));
    assert!(server.on_time(seconds(1_060)));
    assert_eq!(raw_peer::feed(&mut server, &[]).len(), 2);
}

#[test]
fn what_was_read_ahead_waits_while_reading_is_paused() {
    let mut server = two_begun();
    let ends = [raw_peer::transfer(1, 0, 0, false, b"x"), raw_peer::transfer(1, 1, 1, false, b"x")].concat();
    server.input().extend_from_slice(&ends);
    assert!(matches!(server.next_event(), Some(Event::Delivery(_))));
    server.pause_reading(true);
    assert_eq!(server.next_event(), None);
    server.pause_reading(false);
    assert!(matches!(server.next_event(), Some(Event::Delivery(_))));
}

#[test]
fn pauses_do_not_give_a_delivery_its_whole_time_again() {
    let mut server = two_begun();
    let mut ended = [None, None];
    for second in 1..2_000 {
        server.on_time(seconds(second));
        // Reading is paused for a second in each half minute; parts of the second delivery come in each of
        // them.
        server.pause_reading(second % 30 == 0);
        let part = raw_peer::transfer(1, 1, 1, true, b"x");
        let events =
            raw_peer::feed(&mut server, &[if second % 30 == 10 && ended[1].is_none() { &part } else { &[] }]);
        raw_peer::frames(&mut server);
        for event in events {
            let Event::Detached { error: Some(error), .. } = event else { continue };
            let message = usize::from(error.description().contains("message 1"));
            ended[message] = Some((second, error.description().to_owned()));
        }
    }
    let expected = [(62, "no further part came within 60s"), (620, "it did not end within 600s")];
    for (ended, (after, why)) in ended.into_iter().zip(expected) {
        let (second, sent) = ended.expect("it was never given up");
        assert!(sent.contains(why), "{sent}");
        // Deliveries are checked only a few times within their time.
        assert!((after..=after + 60).contains(&second), "{why}: after {second} s, not {after}");
    }
}

#[test]
fn bytes_that_came_are_a_sign_of_life_before_anybody_looks_into_them() {
    let idle_config = Config { idle_time_out: Some(seconds(10)), ..config("s") };
    let mut server = heartbeats(idle_config, None);
    for round in 1..10 {
        // The beginning of a frame, and then the rest of it and the beginning of another.
        let came = if round == 1 { &[][..] } else { &HEARTBEAT[3..] };
        server.input().extend_from_slice(&[came, &HEARTBEAT[..3]].concat());
        server.on_time(seconds(20 * round));
        assert!(server.is_open(), "round {round}");
        assert_eq!(server.next_event(), None);
        server.on_time(seconds(20 * round));
    }
    server.on_time(seconds(200));
    assert!(!server.is_open(), "nothing has come for 20 s");
}

#[test]
fn after_a_late_call_input_is_read_before_a_timeout_counts() {
    let idle_config = Config { idle_time_out: Some(seconds(10)), ..config("s") };
    let mut server = heartbeats(idle_config.clone(), None);
    // `on_time` was not called for five times as long as the peer may be silent, for example because the
    // process was suspended.
    server.on_time(seconds(100));
    assert!(server.is_open(), "what the peer said meanwhile has not been read yet");
    assert_eq!(server.next_deadline(), Some(seconds(105)));
    raw_peer::feed(&mut server, &[&HEARTBEAT]);
    server.on_time(seconds(100));
    assert_eq!(server.next_deadline(), Some(seconds(120)));
    // A peer that has sent nothing is detected all the same.
    let mut server = heartbeats(idle_config, None);
    server.on_time(seconds(100));
    server.on_time(seconds(105));
    assert!(!server.is_open());
}

#[test]
fn a_peer_has_time_to_read_and_to_finish_after_a_late_call() {
    let mut server = two_begun();
    raw_peer::feed(&mut server, &[&raw_peer::begin(2)]);
    server.on_time(seconds(1));
    assert!(!server.on_time(seconds(1_000)), "{:?}", server.next_event());
    assert_eq!(server.next_deadline(), Some(seconds(1_005)));
    assert!(server.on_time(seconds(1_005)));
}

#[test]
fn silence_is_not_held_against_a_peer_of_whom_too_much_waits_to_be_read_from() {
    let mut server = heartbeats(Config { idle_time_out: Some(seconds(10)), ..config("s") }, None);
    let large = [&HEARTBEAT[..3], &vec![0; 2 * 64 * 1024]].concat();
    server.input().extend_from_slice(&large);
    assert!(!server.wants_input());
    for second in [10, 20, 30, 40] {
        server.on_time(seconds(second));
        assert!(server.is_open(), "after {second} s in which nothing was read");
    }
}

#[test]
fn a_delivery_that_goes_on_by_a_byte_now_and_then_is_given_up_as_well() {
    let mut server = two_begun();
    let mut ended = None;
    for second in 1..2_000 {
        server.on_time(seconds(second));
        raw_peer::frames(&mut server);
        let part = raw_peer::transfer(1, 1, 1, true, b"x");
        let events = raw_peer::feed(&mut server, &[if second % 30 == 0 { &part } else { &[] }]);
        let gone = |event: &Event| matches!(event, Event::Detached { error: Some(error), .. } if error.description().contains("message 1"));
        if let Some(Event::Detached { error: Some(error), .. }) = events.iter().find(|event| gone(event)) {
            assert_eq!(
                error.description(),
                "message 1 is incomplete and it did not end within 600s; send it again"
            );
            ended = Some(second);
            break;
        }
    }
    // Deliveries are checked only a few times within their time.
    assert!(ended.is_some_and(|second| (600..=660).contains(&second)), "{ended:?}");
}
