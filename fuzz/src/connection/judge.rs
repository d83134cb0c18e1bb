//! Checks the events and the output of a fuzzed connection.

use ephor_amqp::connection::Event;
use ephor_amqp::frame::{FrameHeader, HEADER_SIZE, MIN_MAX_FRAME_SIZE, Protocol, TYPE_SASL};
use ephor_amqp::performative::{Performative, Sasl};

/// A connection ends at most once, no event comes after that, and no byte makes more than one event.
pub(super) fn told(told: &[Event], heard: usize) {
    let ends = told.iter().filter(|event| matches!(event, Event::Closed(_))).count();
    assert!(ends <= 1, "the connection ended {ends} times: {told:?}");
    if ends == 1 {
        assert!(matches!(told.last(), Some(Event::Closed(_))), "an event follows the end: {told:?}");
    }
    assert!(told.len() <= heard.saturating_add(8), "{} events of {heard} bytes", told.len());
}

/// All output consists of frames that the peer accepts and can decode.
pub(super) fn answers(told: &[Event], mut answers: &[u8]) {
    let peer = told.iter().find_map(|event| match event {
        Event::Opened(open) => Some(open.max_frame_size.unwrap_or(u32::MAX)),
        _ => None,
    });
    let largest = peer.unwrap_or(MIN_MAX_FRAME_SIZE).max(MIN_MAX_FRAME_SIZE);
    while !answers.is_empty() {
        let header = answers.first_chunk::<HEADER_SIZE>().expect("the answer is complete");
        if Protocol::of(*header).is_some() {
            answers = &answers[HEADER_SIZE..];
            continue;
        }
        let header = FrameHeader::read(answers, u32::MAX).expect("a frame").expect("a complete header");
        let body = &answers[header.body..header.size];
        if header.kind == TYPE_SASL {
            Sasl::read(body).expect("a frame of the SASL layer");
        } else if !body.is_empty() {
            let (said, _) = Performative::read(body).expect("a performative");
            // Those two are small, and may be sent to peers whose frame size is not known yet.
            let small = matches!(said, Performative::Open(_) | Performative::Close(_));
            assert!(small || header.size <= largest as usize, "{} in {} bytes", said.name(), header.size);
        }
        answers = &answers[header.size..];
    }
}
