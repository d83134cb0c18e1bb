//! Tests of the segment index: it finds the right frames, and a damaged index is not used.

use super::super::layout::Kind;
use super::*;

fn frame(partition: u32, first: u64, count: u32, time: i64) -> FrameHeader {
    FrameHeader {
        validated: true,
        kind: Kind::Events,
        partition,
        first,
        count,
        enqueued_at: Timestamp(time),
        commit: 0,
        payload_length: 8,
        payload_checksum: 0,
    }
}

fn filled() -> Index {
    let mut index = Index::new(&[PartitionStart { next: 4, reserved: 0, last: Some((3, Timestamp(1))) }]);
    index.add(&frame(0, 4, 2, 10), 200);
    index.add(&frame(2, 0, 1, 11), 300);
    index.add(&frame(0, 6, 1, 12), 200 + INTERVAL - 1);
    index.add(&frame(0, 7, 1, 13), 200 + INTERVAL);
    index.reserve(2, 100);
    index
}

#[test]
fn a_frame_gets_a_mark_if_it_is_the_first_or_far_enough_from_the_last() {
    let index = filled();
    let at = |sequence, time, position| IndexEntry { sequence, time: Timestamp(time), position };
    assert_eq!(index.entries(0), [at(4, 10, 200), at(7, 13, 200 + INTERVAL)]);
    assert_eq!(index.entries(1), []);
    assert_eq!(index.entries(2), [at(0, 11, 300)]);
    assert_eq!(index.entries(3), []);
}

#[test]
fn the_state_behind_the_last_frame_is_known() {
    let mut index = filled();
    assert_eq!(index.state(0), PartitionStart { next: 8, reserved: 0, last: Some((7, Timestamp(13))) });
    assert_eq!(index.state(1), PartitionStart::default());
    assert_eq!(index.state(2), PartitionStart { next: 1, reserved: 100, last: Some((0, Timestamp(11))) });
    assert_eq!(index.states().count(), 3);
    index.reserve(2, 50);
    assert_eq!(index.state(2).reserved, 100, "a reservation is never taken back");
    index.skip(0, 20);
    assert_eq!((index.state(0).next, index.state(0).last), (20, Some((7, Timestamp(13)))));
    index.skip(0, 5);
    assert_eq!(index.state(0).next, 20);
}

#[test]
fn it_is_read_as_it_was_written() {
    let bytes = filled().encode(1, 2, 40_000);
    assert_eq!(Index::decode(&bytes, 1, 2), Some((filled(), 40_000)));
    assert_eq!(Index::decode(&bytes, 9, 2), None);
    assert_eq!(Index::decode(&bytes, 1, 9), None);
}

#[test]
fn one_that_makes_no_sense_is_not_believed_whatever_its_checksum_says() {
    let read = |index: &Index, end| Index::decode(&index.encode(1, 2, end), 1, 2).is_some();
    assert!(!read(&filled(), 200 + INTERVAL), "a mark is after the end");
    let mut index = filled();
    index.rows[0].entries.reverse();
    assert!(!read(&index, 40_000), "marks go back");
    let mut index = filled();
    index.rows[0].state.next = 7;
    assert!(!read(&index, 40_000), "a mark is of an event that is not there");
}

#[test]
fn damaged_in_any_bit_or_cut_anywhere_it_is_not_believed() {
    let bytes = filled().encode(1, 2, 40_000);
    for position in 0..bytes.len() {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            assert_eq!(Index::decode(&damaged, 1, 2), None, "{position}.{bit}");
        }
        assert_eq!(Index::decode(&bytes[..position], 1, 2), None, "{position}");
    }
}
