//! Fuzzes sequences of AMQP frames, as they come from a socket, and their bodies; and splits a conversation
//! into frames, for mutations and tests.

use ephor_amqp::frame::{BadFrame, FrameHeader, HEADER_SIZE, Protocol, TYPE_SASL};
use ephor_amqp::performative::{Performative, Sasl};

/// A small limit, so that mutations hit it.
const LIMIT: u32 = 2_048;

/// Runs one input.
pub fn run(data: &[u8]) {
    let mut rest = data;
    while let Some(header) = rest.first_chunk::<HEADER_SIZE>() {
        if let Some(protocol) = Protocol::of(*header) {
            assert_eq!(protocol.header(), *header);
            rest = &rest[HEADER_SIZE..];
            continue;
        }
        let header = match FrameHeader::read(rest, LIMIT) {
            Ok(found) => found.expect("there are enough bytes for a header"),
            Err(BadFrame::TooLarge { size, limit }) => return assert!(size > limit && limit == LIMIT),
            Err(BadFrame::TooSmall { size, body }) => return assert!(size < body || body < 8),
        };
        assert!(HEADER_SIZE <= header.body && header.body <= header.size && header.size <= LIMIT as usize);
        let Some(frame) = rest.get(..header.size) else { return };
        let body = &frame[header.body..];
        if header.kind == TYPE_SASL {
            let _ = Sasl::read(body);
        } else if let Ok((performative, end)) = Performative::read(body) {
            assert!(end <= body.len(), "a {} ends after its frame", performative.name());
        }
        rest = &rest[header.size..];
    }
    assert!(FrameHeader::read(rest, LIMIT).is_ok_and(|header| header.is_none()));
}

/// The ranges of the frames and protocol headers of a conversation; the last range is the rest.
pub fn split(bytes: &[u8]) -> Vec<std::ops::Range<usize>> {
    let mut frames = Vec::new();
    let mut at = 0;
    while let Some(head) = bytes[at..].first_chunk::<4>() {
        let size = if head == b"AMQP" { HEADER_SIZE } else { u32::from_be_bytes(*head) as usize };
        if size < HEADER_SIZE || size > bytes.len() - at {
            break;
        }
        frames.push(at..at + size);
        at += size;
    }
    frames.push(at..bytes.len());
    frames
}
