//! Offsets of events: computed from sequence numbers, and parsed to positions.
//!
//! ```text
//! number   0    1    2    3   …   n
//! offset   0   96  128  160   …   64 + 32 n     (older versions: 64 for the first event, all others the same)
//! ```
//!
//! An offset needs no index to be turned back, and is not mistaken for a sequence number. It does not measure bytes.
//!
//! As with the service, the first event has offset 0 (REC), and an offset is a bound: every value up to the last offset
//! is taken, and one between two events means the second of them (LIVE: JavaScript's receiver.spec begins at "0"; Java's
//! tests at an offset minus 1). Beyond the last it is refused.
//!
//! Older versions gave the first event the offset 64. No event has that offset now, and only a checkpoint of such a
//! version can name it. So 64 means the first event, and every offset that was ever given out still means the event that
//! it was given to, in logs of any version; no log has to say by which version it was written. A version that knew
//! another formula for the other events would have to: a checkpoint in a blob does not tell which version wrote it.

use ephor_core::position::Offset;

/// The offset of the first event in older versions, from which all other offsets are counted.
const BASE: u64 = 64;

/// The distance between two offsets.
const STEP: u64 = 32;

/// Returns the offset of an event.
pub fn offset_of(number: u64) -> Offset {
    Offset::number(if number == 0 { 0 } else { BASE + number * STEP })
}

/// Returns the number of the first event at this offset or after it; with `inclusive` false, after it. None if the offset
/// is not a number, or lies beyond the last event of a log in which `next` is the next number.
pub(crate) fn first_from(offset: &Offset, inclusive: bool, next: u64) -> Option<u64> {
    let offset = offset.as_number()?;
    // The event at this offset or before it, and whether the offset is its own.
    let (event, exact) = match offset.checked_sub(BASE) {
        None => (0, offset == 0),
        Some(distance) => (distance / STEP, distance.is_multiple_of(STEP)),
    };
    let after = event + 1;
    // Between two events, the second has to exist.
    let last_needed = if exact { event } else { after };
    (last_needed < next).then_some(if exact && inclusive { event } else { after })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn from(offset: u64, next: u64) -> [Option<u64>; 2] {
        [true, false].map(|inclusive| first_from(&Offset::number(offset), inclusive, next))
    }

    #[test]
    fn every_offset_leads_back_to_its_event() {
        let next = 1 << 57;
        for number in (0..1_000).chain([next - 1]) {
            let offset = offset_of(number);
            assert_eq!(first_from(&offset, true, next), Some(number));
            assert_eq!(first_from(&offset, false, next), Some(number + 1));
        }
        assert_eq!([0, 1, 2].map(offset_of), [0, 96, 128].map(Offset::number));
        assert!(i64::try_from(offset_of(next).as_number().unwrap()).is_ok());
    }

    #[test]
    fn every_offset_of_older_versions_means_the_event_that_had_it() {
        for number in 0..1_000 {
            let then = 64 + 32 * number;
            for next in [number + 1, 5_000] {
                assert_eq!(from(then, next), [Some(number), Some(number + 1)], "{then}");
            }
        }
    }

    #[test]
    fn an_offset_between_two_events_means_the_second() {
        for offset in (1..64).chain(65..96) {
            assert_eq!(from(offset, 10), [Some(1); 2], "{offset}");
            assert_eq!(from(offset, 1), [None; 2], "{offset} is beyond the only event");
        }
        for offset in 97..128 {
            assert_eq!(from(offset, 10), [Some(2); 2], "{offset}");
            assert_eq!(from(offset, 2), [None; 2], "{offset} is beyond the last event");
        }
    }

    #[test]
    fn what_lies_beyond_the_last_event_is_no_position() {
        assert_eq!(from(0, 0), [None; 2], "the log is empty");
        assert_eq!(from(0, 1), [Some(0), Some(1)]);
        assert_eq!(from(96, 1), [None; 2]);
        assert_eq!(from(u64::MAX, 1 << 57), [None; 2]);
        for text in ["", "-1", "@latest", "007", "99999999999999999999", "1:2"] {
            assert_eq!(first_from(&Offset::new(text), true, 10), None, "{text}");
        }
    }
}
