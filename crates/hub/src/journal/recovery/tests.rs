//! Tests of recovery after a crash: torn tails, damage, and every other end of a log.

use std::sync::Arc;

use super::super::layout::{FRAME_HEADER, PartitionStart, Place, encode_reservation};
use super::*;
use crate::files::{File, Files, MemoryFiles};
use ephor_core::time::Timestamp;

const SEGMENT: u64 = 5;
const IDENTITY: u64 = 77;

/// A segment under construction, without a header.
struct Bytes {
    bytes: Vec<u8>,
    commit: u64,
}

impl Bytes {
    fn new() -> Self {
        Self { bytes: Vec::new(), commit: 0 }
    }

    fn commit(mut self) -> Self {
        self.commit = self.end();
        self
    }

    fn end(&self) -> u64 {
        self.bytes.len() as u64
    }

    fn frame(self, partition: u32, first: u64, count: u32) -> Self {
        self.append(Kind::Events, partition, first, count, &[7; 32])
    }

    fn append(mut self, kind: Kind, partition: u32, first: u64, count: u32, payload: &[u8]) -> Self {
        let header = FrameHeader {
            validated: true,
            kind,
            partition,
            first,
            count,
            enqueued_at: Timestamp(9),
            commit: self.commit,
            payload_length: payload.len() as u32,
            payload_checksum: crc32c::crc32c(payload),
        };
        let place = Place { identity: IDENTITY, segment: SEGMENT, position: self.end() };
        self.bytes.extend_from_slice(&header.encode(&place));
        self.bytes.extend_from_slice(payload);
        self
    }

    fn flip(mut self, position: u64) -> Self {
        self.bytes[position as usize] ^= 4;
        self
    }

    fn zeros(mut self, count: usize) -> Self {
        self.bytes.resize(self.bytes.len() + count, 0);
        self
    }

    fn file(&self) -> Arc<dyn File> {
        let file = MemoryFiles::default().create("x.log").unwrap();
        file.write_at(0, &[&self.bytes]).unwrap();
        file
    }

    fn recover(&self, proven: u64) -> Recovered {
        let file = self.file();
        let walk = Walk::new(&*file, IDENTITY, SEGMENT, 0..self.end());
        recover(walk, Index::new(&[PartitionStart::default(); 2]), 0, proven, "x.log").unwrap()
    }
}

/// How long a frame of these tests is.
const FRAME: u64 = FRAME_HEADER as u64 + 32;

fn next_numbers(found: &Recovered) -> (u64, u64) {
    (found.index.state(0).next, found.index.state(1).next)
}

#[test]
fn an_intact_log_is_kept_whole() {
    let found = Bytes::new().frame(0, 0, 2).commit().frame(1, 0, 3).frame(0, 2, 1).recover(0);
    assert_eq!((found.end, found.torn, found.damage.len()), (3 * FRAME, None, 0));
    assert_eq!((found.frames, found.events, found.untraced), (3, 6, 0));
    assert_eq!(found.index.state(0).next, 3);
    assert_eq!(found.index.state(1).next, 3);
}

#[test]
fn an_empty_log_ends_where_it_begins() {
    for zeros in [0, 8, 4_096] {
        let found = Bytes::new().zeros(zeros).recover(0);
        assert_eq!((found.end, found.torn, found.damage.len()), (0, None, 0));
    }
}

#[test]
fn zeros_behind_the_last_frame_are_room_and_not_a_torn_tail() {
    let found = Bytes::new().frame(0, 0, 1).zeros(100).recover(0);
    assert_eq!((found.end, found.torn, found.damage.len()), (FRAME, None, 0));
}

#[test]
fn the_last_commit_is_cut_where_it_is_torn_at_every_length() {
    let whole = Bytes::new().frame(0, 0, 1).commit().frame(0, 1, 1).frame(1, 0, 1);
    for length in FRAME..3 * FRAME {
        let torn = Bytes { bytes: whole.bytes[..length as usize].to_vec(), commit: 0 };
        let found = torn.recover(0);
        let kept = if length < 2 * FRAME { FRAME } else { 2 * FRAME };
        assert_eq!(found.end, kept, "{length}");
        let tail = (length > kept).then_some(kept..length);
        assert_eq!((found.torn.clone(), found.damage.len()), (tail, 0), "{length}");
        assert_eq!(next_numbers(&found), (kept / FRAME, 0));
    }
}

#[test]
fn a_hole_in_the_last_commit_tears_all_that_follows_it() {
    for position in [0, 8, FRAME_HEADER as u64, FRAME - 1] {
        let found = Bytes::new()
            .frame(0, 0, 1)
            .commit()
            .frame(0, 1, 1)
            .frame(1, 0, 1)
            .flip(FRAME + position)
            .recover(0);
        assert_eq!((found.end, found.damage.len()), (FRAME, 0));
        assert_eq!(found.torn, Some(FRAME..3 * FRAME));
        assert_eq!(next_numbers(&found), (1, 0));
    }
}

#[test]
fn what_a_later_commit_follows_was_acknowledged_and_is_damage() {
    // The header is intact: exactly that frame is affected.
    let log = || {
        Bytes::new().frame(0, 0, 1).commit().frame(0, 1, 4).commit().frame(0, 5, 1).commit().frame(1, 0, 1)
    };
    let found = log().flip(FRAME + FRAME_HEADER as u64).recover(0);
    assert_eq!((found.end, found.torn), (4 * FRAME, None));
    assert_eq!(found.damage, [Damage::new("x.log", FRAME..2 * FRAME).of(0, 1..5)]);
    assert_eq!((found.frames, found.events, found.untraced), (3, 3, 0));
    // The header is damaged: the numbers that follow tell.
    let found = log().flip(FRAME + 20).recover(0);
    assert_eq!((found.end, found.torn), (4 * FRAME, None));
    assert_eq!(found.damage, [Damage::new("x.log", FRAME..2 * FRAME).of(0, 1..5)]);
    assert_eq!((found.frames, found.untraced), (3, FRAME / 8));
    assert_eq!((found.index.state(0).next, found.index.state(1).next), (6, 1));
}

#[test]
fn an_intact_header_of_a_later_commit_proves_what_lies_before_it() {
    let log = Bytes::new().frame(0, 0, 1).commit().frame(0, 1, 1);
    let found = log.flip(0).flip(FRAME + FRAME_HEADER as u64).recover(0);
    assert_eq!(found.damage, [Damage::new("x.log", 0..FRAME)]);
    assert_eq!((found.torn, found.end), (Some(FRAME..2 * FRAME), FRAME));
}

#[test]
fn what_lies_before_the_mark_was_acknowledged_and_is_damage() {
    let log = || Bytes::new().frame(0, 0, 1).commit().frame(0, 1, 2);
    let found = log().flip(FRAME + FRAME_HEADER as u64).recover(2 * FRAME);
    assert_eq!((found.end, found.torn.clone()), (2 * FRAME, None));
    assert_eq!(found.damage, [Damage::new("x.log", FRAME..2 * FRAME).of(0, 1..3)]);
    assert_eq!(next_numbers(&found).0, 3, "the numbers of damaged events are not given to others");
    let found = log().flip(FRAME).recover(2 * FRAME);
    assert_eq!((found.damage.len(), found.untraced), (1, FRAME / 8));
    // Right behind the mark it is a torn tail.
    let found = log().flip(FRAME).recover(FRAME);
    assert_eq!((found.end, found.torn, found.damage.len()), (FRAME, Some(FRAME..2 * FRAME), 0));
}

#[test]
fn reservations_are_found_and_count_as_no_events() {
    let lines = encode_reservation(&[(0, 65_536), (1, 9)]);
    let log = Bytes::new().append(Kind::Reservation, 0, 0, 0, &lines).frame(0, 0, 1);
    let found = log.recover(0);
    assert_eq!((found.index.state(0).reserved, found.index.state(1).reserved), (65_536, 9));
    assert_eq!((found.frames, found.events), (1, 1));
    let damaged = Bytes::new().append(Kind::Reservation, 0, 0, 0, &lines).commit().frame(0, 0, 1);
    let found = damaged.flip(FRAME_HEADER as u64).recover(0);
    assert_eq!(found.damage, [Damage::new("x.log", 0..FRAME)]);
    assert_eq!(found.frames, 1);
}

#[test]
fn a_frame_with_numbers_that_are_taken_is_not_served() {
    let found = Bytes::new().frame(0, 0, 3).commit().frame(0, 2, 1).commit().frame(0, 3, 1).recover(0);
    assert_eq!(found.damage, [Damage::new("x.log", FRAME..2 * FRAME).of(0, 2..3)]);
    assert_eq!((found.frames, next_numbers(&found).0), (2, 4));
}

#[test]
fn numbers_that_are_missing_without_a_trace_are_told() {
    let found = Bytes::new().frame(0, 0, 1).commit().frame(0, 4, 1).recover(0);
    assert_eq!(found.damage, [Damage::new("x.log", FRAME..FRAME).of(0, 1..4)]);
    assert_eq!(found.end, 2 * FRAME);
}

#[test]
fn damage_reads_as_a_sentence() {
    let damage = Damage::new("a.log", 8..24).of(3, 5..6).of(4, 7..10);
    let text = "a.log is damaged at position 8, length 16; affected: event 5 of partition 3, events 7 to 9 \
                of partition 4";
    assert_eq!(damage.to_string(), text);
    let text = "a.log is damaged at position 0, length 1; the affected events, if any, are unknown";
    assert_eq!(Damage::new("a.log", 0..1).to_string(), text);
}
