//! Tests of the log format: headers are read as they were written, and damaged ones are refused.

use super::*;

fn header(partitions: usize) -> SegmentHeader {
    let start = |id| PartitionStart {
        next: 10 + id as u64,
        reserved: 20,
        last: (id % 2 == 0).then_some((9 + id as u64, Timestamp(-5))),
    };
    SegmentHeader {
        identity: 0x1122_3344_5566_7788,
        number: 7,
        created_at: Timestamp(1_700_000_000_000),
        previous_length: 4_096,
        partitions: (0..partitions).map(start).collect(),
    }
}

const PLACE: Place = Place { identity: 1, segment: 2, position: 3 * 8 };

fn frame() -> FrameHeader {
    FrameHeader {
        kind: Kind::Events,
        partition: 3,
        first: 41,
        count: 5,
        enqueued_at: Timestamp(-1),
        commit: 640,
        payload_length: 48,
        payload_checksum: 0xdead_beef,
        validated: true,
    }
}

#[test]
fn a_segment_header_is_read_as_it_was_written() {
    for partitions in [0, 1, 5, MAX_PARTITIONS] {
        let header = header(partitions);
        let bytes = header.encode();
        assert_eq!(bytes.len() as u64, header.first_frame());
        let copy = 64 + 32 * partitions;
        assert_eq!(bytes.len(), copy.next_multiple_of(4_096) + copy);
        assert!(bytes.len() <= MAX_HEADER);
        assert_eq!(SegmentHeader::decode_either(&bytes), Ok((header, false)));
    }
}

#[test]
fn a_partition_that_came_later_begins_at_zero() {
    assert_eq!(header(2).partition(1), header(2).partitions[1]);
    assert_eq!(header(2).partition(2), PartitionStart::default());
}

#[test]
fn one_copy_of_a_segment_header_is_enough_and_its_damage_is_told() {
    let header = header(3);
    let bytes = header.encode();
    let copies = (0..160).chain(4_096..4_096 + 160);
    for position in copies {
        for bit in 0..8 {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1 << bit;
            assert_eq!(
                SegmentHeader::decode_either(&damaged),
                Ok((header.clone(), true)),
                "{position}.{bit}"
            );
        }
    }
    for lost in [0..4_096, 4_096..bytes.len()] {
        let mut damaged = bytes.clone();
        damaged[lost].fill(0);
        assert_eq!(SegmentHeader::decode_either(&damaged), Ok((header.clone(), true)));
    }
    let cut = &bytes[..bytes.len() - 1];
    assert_eq!(SegmentHeader::decode_either(cut), Ok((header, true)));
}

#[test]
fn a_segment_header_that_is_damaged_twice_is_refused() {
    let mut bytes = header(3).encode();
    bytes[30] ^= 1;
    bytes[4_096 + 30] ^= 1;
    assert_eq!(SegmentHeader::decode_either(&bytes), Err(Unreadable::Damaged));
    assert_eq!(SegmentHeader::decode_either(&[]), Err(Unreadable::Damaged));
    assert_eq!(SegmentHeader::decode_either(&bytes[..40]), Err(Unreadable::Damaged));
}

#[test]
fn a_later_version_is_told_from_damage() {
    let mut bytes = header(1).encode();
    bytes[8] = 9;
    bytes[4_096 + 8] = 9;
    let refused = SegmentHeader::decode_either(&bytes).unwrap_err();
    assert_eq!(refused, Unreadable::Version(9));
    assert_eq!(
        refused.describe("x.log"),
        "x.log has version 9, and this program reads version 1; use a newer program"
    );
    assert!(Unreadable::Damaged.describe("x.log").starts_with("both headers of x.log are damaged"));
}

#[test]
fn a_frame_header_is_read_as_it_was_written_and_nowhere_else() {
    for (kind, validated) in [(Kind::Events, true), (Kind::Events, false), (Kind::Reservation, false)] {
        let header = FrameHeader { kind, validated, ..frame() };
        let bytes = header.encode(&PLACE);
        assert_eq!(FrameHeader::decode(&bytes, &PLACE), Some(header));
        for elsewhere in
            [Place { identity: 2, ..PLACE }, Place { segment: 3, ..PLACE }, Place { position: 32, ..PLACE }]
        {
            assert_eq!(FrameHeader::decode(&bytes, &elsewhere), None);
        }
        for position in 0..bytes.len() {
            for bit in 0..8 {
                let mut damaged = bytes;
                damaged[position] ^= 1 << bit;
                assert_eq!(FrameHeader::decode(&damaged, &PLACE), None, "{position}.{bit}");
            }
        }
        assert_eq!(FrameHeader::decode(&bytes[..FRAME_HEADER - 1], &PLACE), None);
    }
    assert_eq!(frame().end(), 46);
    assert_eq!(frame().frame_length(), 104);
}

#[test]
fn a_frame_that_laxer_rules_validated_counts_as_unvalidated() {
    let mut bytes = frame().encode(&PLACE);
    assert_eq!(u32_from(&bytes[52..56]), 3);
    for (flags, validated) in [(0_u32, false), (1, false), (2, true), (3, true), (5, false), (7, true)] {
        bytes[52..56].copy_from_slice(&flags.to_le_bytes());
        let checksum = PLACE.checksum(&bytes[8..]);
        bytes[4..8].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(
            FrameHeader::decode(&bytes, &PLACE),
            Some(FrameHeader { validated, ..frame() }),
            "{flags}"
        );
    }
}

#[test]
fn a_frame_header_that_makes_no_sense_is_refused_whatever_its_checksum_says() {
    let largest = (MAX_PAYLOAD as u32, MAX_PARTITIONS as u32 - 1, MAX_NUMBER - 5);
    let of = |(payload_length, partition, first)| FrameHeader { payload_length, partition, first, ..frame() };
    let read = |header: FrameHeader| FrameHeader::decode(&header.encode(&PLACE), &PLACE);
    assert_eq!(read(of(largest)), Some(of(largest)));
    assert_eq!(read(of((largest.0 + 8, 0, 0))), None);
    assert_eq!(read(of((7, 0, 0))), None);
    assert_eq!(read(of((48, largest.1 + 1, 0))), None);
    assert_eq!(read(of((48, 0, largest.2 + 1))), None);
    assert_eq!(read(of((48, 0, u64::MAX))), None);
    // More events than its bytes can hold, and none at all.
    assert_eq!(read(of((32, 0, 0))), None);
    assert_eq!(read(FrameHeader { count: 0, ..frame() }), None);
    let reservation = FrameHeader { kind: Kind::Reservation, count: 0, ..frame() };
    assert_eq!(read(reservation), Some(reservation));
}

#[test]
fn a_segment_header_that_makes_no_sense_is_damaged_whatever_its_checksum_says() {
    let of = |next, reserved, last| {
        let mut header = header(1);
        header.partitions[0] = PartitionStart { next, reserved, last };
        SegmentHeader::decode(&header.encode()).is_ok()
    };
    let at = |number| Some((number, Timestamp(0)));
    assert!(of(MAX_NUMBER, MAX_NUMBER, at(MAX_NUMBER - 1)));
    assert!(!of(MAX_NUMBER + 1, 0, None));
    assert!(!of(0, MAX_NUMBER + 1, None));
    assert!(!of(5, 5, at(5)), "the last number comes before the next");
}

#[test]
fn a_reservation_is_read_as_it_was_written() {
    let lines = [(0, 5), (1_023, MAX_NUMBER)];
    let bytes = encode_reservation(&lines);
    assert_eq!(bytes.len(), 32);
    assert_eq!(decode_reservation(&bytes).collect::<Vec<_>>(), lines);
    let senseless = encode_reservation(&[(1_024, 5), (0, MAX_NUMBER + 1)]);
    assert_eq!(decode_reservation(&senseless).count(), 0);
}

#[test]
fn only_names_of_segments_are_names_of_segments() {
    assert_eq!(segment_number(&segment_name(7)), Some(7));
    assert_eq!(segment_number("00000000000000000007.log"), Some(7));
    for other in [
        "7.log",
        "00000000000000000007.index",
        "0000000000000000000x.log",
        "+0000000000000000007.log",
        "mark",
    ] {
        assert_eq!(segment_number(other), None, "{other}");
    }
    assert_eq!(index_name(7), "00000000000000000007.index");
    assert_eq!((aligned(0), aligned(1), aligned(8)), (0, 8, 8));
}
