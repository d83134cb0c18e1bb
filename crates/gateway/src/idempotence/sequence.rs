//! Tracks the sequence numbers of one producer: stored, in flight, and next.
//!
//! ```text
//!   stored, in a row │ in flight  │ in flight  │   gap   │ stored │ in flight  │
//!                   end                        expected
//! ```
//!
//! A range in flight becomes stored, or is taken back. Taking it back may leave a gap before ranges that were
//! sent after it; those of them that are still in flight must not be stored. The next number is the first one
//! that is neither stored nor in flight, so a gap is filled before anything else is accepted.
//!
//! A repeat has the first and the last number of the batch that it repeats, and the same events. Whatever else
//! has numbers from before is other events: they are refused, since nobody would store them.
//!
//! On the wire, numbers go from 0 to [`i32::MAX`] and wrap around. Here they do not wrap: a number on the
//! wire stands for the one that is nearest to the end of what is stored.

use std::collections::{BTreeMap, VecDeque};

use super::fingerprint::Fingerprint;

/// The number before the first one of a producer that does not say where it begins.
pub(super) const FRESH: i32 = 0;

/// The lowest number that a producer may bring along. The service has none below 0, but earlier versions of
/// this hub told new producers this one.
pub(super) const LOWEST: i32 = -1;

/// The number of stored batches whose repeats are recognized. SDKs have one batch in flight.
pub(super) const MAX_KNOWN_BATCHES: usize = 64;

/// The number of different sequence numbers on the wire.
const NUMBERS: i64 = 1 << 31;

/// The numbers of one producer. `P` is a handle to the outcome of a range in flight.
#[derive(Debug)]
pub(super) struct Sequence<P> {
    /// All numbers before this one are stored.
    end: i64,
    /// The last batches before `end`, the newest one last.
    known: VecDeque<StoredBatch>,
    /// Ranges at or after `end` that are stored or in flight, by their first number. They do not overlap.
    ranges: BTreeMap<i64, Range<P>>,
    /// The sum of their lengths.
    claimed: i64,
}

#[derive(Clone, Copy, Debug)]
struct StoredBatch {
    length: i64,
    fingerprint: Fingerprint,
}

#[derive(Debug)]
struct Range<P> {
    end: i64,
    fingerprint: Fingerprint,
    /// `None` once it is stored.
    pending: Option<P>,
    /// Numbers before it were taken back while it was in flight, so it must not be stored.
    doomed: bool,
}

/// The state of the numbers of a delivery.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Numbers<P> {
    /// They come next. The value is their first number, which identifies the range from now on.
    Next(i64),
    /// All of them are stored.
    Stored,
    /// Some are in flight.
    Pending(P),
    /// They come before the next one, and repeat no batch that is still known. `last` is the number before the
    /// next one.
    Old {
        /// As on the wire.
        last: i32,
    },
    /// They come after the next one, or only some of them are new. `last` is the number before the next one.
    OutOfOrder {
        /// As on the wire.
        last: i32,
    },
}

impl<P: Clone> Sequence<P> {
    /// A sequence whose numbers up to this one, on the wire, are stored.
    pub(super) fn stored_up_to(last: i32) -> Self {
        Self { end: i64::from(last) + 1, known: VecDeque::new(), ranges: BTreeMap::new(), claimed: 0 }
    }

    /// The last number, on the wire, up to which everything is stored.
    pub(super) fn last_stored(&self) -> i32 {
        on_the_wire(self.end - 1)
    }

    /// The handle of the last range in flight.
    pub(super) fn last_pending(&self) -> Option<P> {
        self.ranges.values().rev().find_map(|range| range.pending.clone())
    }

    /// Continues after a number that the producer knows to be stored, although it is not known here: another
    /// gateway stored it, or this one before a restart. What is in flight is awaited first.
    pub(super) fn advance_to(&mut self, last: i32) {
        let end = self.nearest(last) + 1;
        if last >= 0 && end > self.end && self.ranges.is_empty() {
            self.end = end;
            self.known.clear();
        }
    }

    /// The state of `count` numbers that begin with `first` on the wire, for events with this fingerprint.
    pub(super) fn state_of(&self, first: i32, count: i64, fingerprint: Fingerprint) -> Numbers<P> {
        let first = self.nearest(first);
        let end = first + count;
        if let Some((pending, repeated)) = self.repeated(first, end)
            && repeated == fingerprint
        {
            return pending.map_or(Numbers::Stored, Numbers::Pending);
        }
        let expected = self.expected();
        let last = on_the_wire(expected - 1);
        if first < expected {
            return Numbers::Old { last };
        }
        let is_free = self.ranges.range(first..end).next().is_none();
        if first == expected && is_free { Numbers::Next(first) } else { Numbers::OutOfOrder { last } }
    }

    /// The fingerprint of numbers that are exactly those of known batches in a row, with the handle of the first
    /// of them that is in flight.
    fn repeated(&self, first: i64, end: i64) -> Option<(Option<P>, Fingerprint)> {
        let mut fingerprint = Fingerprint::EMPTY;
        let mut at = first;
        if first < self.end {
            let mut begin = self.end;
            for batch in self.known.iter().rev() {
                let batch_end = begin;
                begin -= batch.length;
                if batch_end <= end {
                    fingerprint = batch.fingerprint.then(fingerprint);
                } else if begin < end {
                    return None;
                }
                if begin <= first {
                    break;
                }
            }
            if begin != first {
                return None;
            }
            at = end.min(self.end);
        }
        let mut pending = None;
        while at < end {
            let range = self.ranges.get(&at).filter(|range| range.end <= end)?;
            pending = pending.or_else(|| range.pending.clone());
            fingerprint = fingerprint.then(range.fingerprint);
            at = range.end;
        }
        Some((pending, fingerprint))
    }

    /// Marks these numbers, which come next, as in flight.
    pub(super) fn claim(&mut self, first: i64, count: i64, fingerprint: Fingerprint, pending: P) {
        let range = Range { end: first + count, fingerprint, pending: Some(pending), doomed: false };
        self.ranges.insert(first, range);
        self.claimed += count;
    }

    /// Marks the range that begins here as stored.
    pub(super) fn stored(&mut self, first: i64) {
        if let Some(range) = self.ranges.get_mut(&first) {
            range.pending = None;
        }
        while let Some(entry) = self.ranges.first_entry() {
            if *entry.key() != self.end || entry.get().pending.is_some() {
                break;
            }
            let Range { end, fingerprint, .. } = entry.remove();
            let length = end - self.end;
            self.claimed -= length;
            self.end = end;
            if self.known.len() == MAX_KNOWN_BATCHES {
                self.known.pop_front();
            }
            self.known.push_back(StoredBatch { length, fingerprint });
        }
    }

    /// Releases the numbers of the range that begins here, because it will not be stored. Ranges in flight
    /// after it are doomed: they would be stored before the released numbers are sent again.
    pub(super) fn take_back(&mut self, first: i64) {
        if let Some(range) = self.ranges.remove(&first) {
            self.claimed -= range.end - first;
            self.ranges.range_mut(first..).for_each(|(_, range)| range.doomed = true);
        }
    }

    /// True if the range that begins here must not be stored.
    pub(super) fn is_doomed(&self, first: i64) -> bool {
        self.ranges.get(&first).is_some_and(|range| range.doomed)
    }

    /// The first number that is neither stored nor in flight.
    fn expected(&self) -> i64 {
        let last = self.ranges.last_key_value().map_or(self.end, |(_, range)| range.end);
        // Nearly always there is no gap.
        if last - self.end == self.claimed {
            return last;
        }
        self.ranges.iter().fold(self.end, |at, (first, range)| if *first == at { range.end } else { at })
    }

    /// The unwrapped number for a number on the wire.
    fn nearest(&self, number: i32) -> i64 {
        let ahead = (i64::from(number) - self.end).rem_euclid(NUMBERS);
        self.end + if ahead < NUMBERS / 2 { ahead } else { ahead - NUMBERS }
    }
}

fn on_the_wire(number: i64) -> i32 {
    match number {
        ..0 => LOWEST,
        number => i32::try_from(number % NUMBERS).unwrap_or(i32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The events that have these numbers in the tests.
    fn events(first: i32, count: i64) -> Fingerprint {
        let number = |number: i64| ((i64::from(first) + number) % NUMBERS) as i32;
        (0..count).map(number).map(Fingerprint::of_number).fold(Fingerprint::EMPTY, Fingerprint::then)
    }

    fn state(sequence: &Sequence<char>, first: i32, count: i64) -> Numbers<char> {
        sequence.state_of(first, count, events(first, count))
    }

    /// Claims the next numbers, with a letter as their handle.
    fn claim(sequence: &mut Sequence<char>, first: i32, count: i64, name: char) -> i64 {
        let Numbers::Next(start) = state(sequence, first, count) else {
            panic!("{first} does not come next: {:?}", state(sequence, first, count));
        };
        sequence.claim(start, count, events(first, count), name);
        start
    }

    #[test]
    fn what_is_in_flight_is_not_stored_twice() {
        let mut sequence = Sequence::stored_up_to(LOWEST);
        let a = claim(&mut sequence, 0, 3, 'a');
        let b = claim(&mut sequence, 3, 2, 'b');
        assert_eq!(sequence.last_stored(), LOWEST);
        assert_eq!(state(&sequence, 0, 3), Numbers::Pending('a'));
        assert_eq!(state(&sequence, 0, 5), Numbers::Pending('a'), "both, one after the other");
        assert_eq!(state(&sequence, 3, 2), Numbers::Pending('b'));
        assert_eq!(sequence.last_pending(), Some('b'));
        sequence.stored(a);
        assert_eq!(state(&sequence, 0, 3), Numbers::Stored);
        assert_eq!(state(&sequence, 0, 5), Numbers::Pending('b'));
        assert_eq!(sequence.last_stored(), 2);
        sequence.stored(b);
        assert_eq!((state(&sequence, 0, 5), sequence.last_stored()), (Numbers::Stored, 4));
        assert_eq!(sequence.last_pending(), None);
        assert_eq!(state(&sequence, 5, 7), Numbers::Next(5));
    }

    #[test]
    fn numbers_that_are_no_repeat_of_a_batch_are_those_of_other_events() {
        let mut sequence = Sequence::stored_up_to(FRESH);
        assert_eq!(state(&sequence, 0, 1), Numbers::Old { last: 0 }, "nobody sent it");
        let a = claim(&mut sequence, 1, 5, 'a');
        let b = claim(&mut sequence, 6, 1, 'b');
        let others = [(1, 1), (2, 1), (2, 5), (5, 1), (1, 4), (4, 3), (0, 6), (6, 2)];
        for stored in [None, Some(a), Some(b)] {
            if let Some(stored) = stored {
                sequence.stored(stored);
            }
            for (first, count) in others {
                let state = state(&sequence, first, count);
                assert_eq!(state, Numbers::Old { last: 6 }, "{count} from {first} on, {stored:?} stored");
            }
        }
        assert_eq!((state(&sequence, 1, 5), state(&sequence, 6, 1)), (Numbers::Stored, Numbers::Stored));
    }

    #[test]
    fn so_many_batches_are_known_and_no_more() {
        let mut sequence = Sequence::stored_up_to(FRESH);
        let batches = MAX_KNOWN_BATCHES as i32 + 1;
        for number in 0..batches {
            let stored = claim(&mut sequence, 1 + 2 * number, 2, 'a');
            sequence.stored(stored);
        }
        let last = 2 * batches;
        assert_eq!(sequence.known.len(), MAX_KNOWN_BATCHES);
        assert_eq!(state(&sequence, 1, 2), Numbers::Old { last });
        assert_eq!(state(&sequence, 3, 2), Numbers::Stored);
        assert_eq!(state(&sequence, 3, i64::from(last) - 2), Numbers::Stored, "all that are known");
    }

    #[test]
    fn other_events_under_the_numbers_of_a_batch_are_no_repeat_of_it() {
        let mut sequence = Sequence::stored_up_to(FRESH);
        let a = claim(&mut sequence, 1, 2, 'a');
        let b = claim(&mut sequence, 3, 1, 'b');
        let others = events(7, 2);
        for stored in [None, Some(a), Some(b)] {
            if let Some(stored) = stored {
                sequence.stored(stored);
            }
            assert_eq!(sequence.state_of(1, 2, others), Numbers::Old { last: 3 }, "{stored:?} stored");
            assert_eq!(sequence.state_of(1, 3, others.then(events(3, 1))), Numbers::Old { last: 3 });
            assert_ne!(state(&sequence, 1, 3), Numbers::Old { last: 3 }, "the same events");
        }
        // The events of both, but not in their order.
        assert_eq!(sequence.state_of(1, 3, events(3, 1).then(events(1, 2))), Numbers::Old { last: 3 });
    }

    #[test]
    fn a_producer_that_knows_of_more_than_is_known_here_goes_on_after_that() {
        let mut sequence = Sequence::stored_up_to(FRESH);
        let a = claim(&mut sequence, 1, 3, 'a');
        sequence.advance_to(50);
        assert_eq!(sequence.last_stored(), FRESH, "something is in flight");
        sequence.stored(a);
        sequence.advance_to(2);
        sequence.advance_to(LOWEST);
        assert_eq!(
            (sequence.last_stored(), state(&sequence, 1, 3)),
            (3, Numbers::Stored),
            "it goes not back"
        );
        sequence.advance_to(50);
        assert_eq!((sequence.last_stored(), state(&sequence, 51, 1)), (50, Numbers::Next(51)));
        assert_eq!(state(&sequence, 1, 3), Numbers::Old { last: 50 });
    }

    #[test]
    fn numbers_that_are_neither_new_nor_stored_are_out_of_order() {
        let mut sequence = Sequence::stored_up_to(9);
        assert_eq!(state(&sequence, 11, 1), Numbers::OutOfOrder { last: 9 });
        assert_eq!(state(&sequence, 8, 4), Numbers::Old { last: 9 }, "half of it is new");
        claim(&mut sequence, 10, 5, 'a');
        assert_eq!(state(&sequence, 20, 1), Numbers::OutOfOrder { last: 14 });
    }

    #[test]
    fn what_failed_leaves_a_gap_that_is_filled_before_anything_else() {
        let mut sequence = Sequence::stored_up_to(LOWEST);
        let a = claim(&mut sequence, 0, 10, 'a');
        let b = claim(&mut sequence, 10, 10, 'b');
        let c = claim(&mut sequence, 20, 10, 'c');
        sequence.take_back(a);
        assert_eq!([a, b, c].map(|range| sequence.is_doomed(range)), [false, true, true]);
        sequence.stored(b);
        assert_eq!(sequence.last_stored(), LOWEST);
        assert_eq!(state(&sequence, 10, 10), Numbers::Stored, "though nothing before it is");
        assert_eq!(state(&sequence, 30, 1), Numbers::OutOfOrder { last: LOWEST });
        assert_eq!(state(&sequence, 0, 20), Numbers::OutOfOrder { last: LOWEST }, "half of it is stored");
        let a = claim(&mut sequence, 0, 4, 'd');
        let rest = claim(&mut sequence, 4, 6, 'e');
        assert!(!sequence.is_doomed(a) && !sequence.is_doomed(rest));
        sequence.stored(rest);
        sequence.stored(a);
        assert_eq!(sequence.last_stored(), 19);
        sequence.stored(c);
        assert_eq!((sequence.last_stored(), state(&sequence, 30, 1)), (29, Numbers::Next(30)));
        assert_eq!((sequence.ranges.len(), sequence.claimed), (0, 0));
    }

    #[test]
    fn numbers_go_round_and_so_do_repeats_and_what_is_taken_back() {
        let mut sequence = Sequence::stored_up_to(i32::MAX - 1);
        let last = claim(&mut sequence, i32::MAX, 2, 'a');
        assert_eq!(state(&sequence, i32::MAX, 2), Numbers::Pending('a'));
        let next = claim(&mut sequence, 1, 3, 'b');
        sequence.stored(last);
        assert_eq!(sequence.last_stored(), 0);
        sequence.take_back(next);
        assert_eq!(sequence.last_stored(), 0);
        assert_eq!(state(&sequence, i32::MAX - 5, 3), Numbers::Old { last: 0 }, "from before the turn");
        assert_eq!(state(&sequence, 0, 1), Numbers::Old { last: 0 }, "the second half of a batch");
        assert_eq!(state(&sequence, i32::MAX, 2), Numbers::Stored);
        let again = claim(&mut sequence, 1, 3, 'c');
        sequence.stored(again);
        assert_eq!(sequence.last_stored(), 3);
    }

    #[test]
    fn nothing_lies_before_the_first_number() {
        let sequence = Sequence::<char>::stored_up_to(LOWEST);
        assert_eq!(state(&sequence, i32::MAX, 1), Numbers::Old { last: LOWEST });
        let sequence = Sequence::<char>::stored_up_to(5);
        assert_eq!(state(&sequence, i32::MAX, 1), Numbers::Old { last: 5 });
        let sequence = Sequence::<char>::stored_up_to(i32::MAX);
        assert_eq!((sequence.last_stored(), state(&sequence, 0, 1)), (i32::MAX, Numbers::Next(NUMBERS)));
    }
}
