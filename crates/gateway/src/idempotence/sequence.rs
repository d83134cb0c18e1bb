//! Keeps the numbers of one producer: which are stored, which are on their way, and which comes next.
//!
//! ```text
//!   stored, in a row │ on its way │ on its way │   gap   │ stored │ on its way │
//!                   end                        expected
//! ```
//!
//! A range that is on its way becomes stored or is taken out; then there may be a gap before ranges that were sent
//! after it, and of those that are still on their way none may be stored. What comes next is the first number that is neither stored nor on its way, so a gap is filled before
//! anything else is taken.
//!
//! On the wire numbers go from 0 to [`i32::MAX`] and begin again. Here they go on: what is meant by a number on the
//! wire is the one that is nearest to the end of what is stored.

use std::collections::BTreeMap;

/// The number before the first.
pub(super) const NONE_YET: i32 = -1;

/// How many numbers there are on the wire.
const NUMBERS: i64 = 1 << 31;

/// The numbers of one producer. `P` tells what becomes of a range that is on its way.
#[derive(Debug)]
pub(super) struct Sequence<P> {
    /// Everything before it is stored.
    end: i64,
    /// By their first number: ranges at or after the end that are stored or on their way. None lies on another.
    ranges: BTreeMap<i64, Range<P>>,
    /// How many numbers they are together.
    claimed: i64,
}

#[derive(Debug)]
struct Range<P> {
    end: i64,
    /// None once it is stored.
    pending: Option<P>,
    /// Numbers before it were taken back while it was on its way: it must not be stored.
    doomed: bool,
}

/// What numbers of a delivery are to a producer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Numbers<P> {
    /// They come next. Where they begin is what names them from now on.
    Next(i64),
    /// All of them are stored.
    Stored,
    /// Some are on their way.
    Pending(P),
    /// They neither repeat what was sent nor come next; this number was the last one before what comes next.
    OutOfOrder {
        /// On the wire.
        last: i32,
    },
}

impl<P: Clone> Sequence<P> {
    /// All numbers up to this one, on the wire, are stored.
    pub(super) fn stored_up_to(last: i32) -> Self {
        Self { end: i64::from(last) + 1, ranges: BTreeMap::new(), claimed: 0 }
    }

    /// The last number, on the wire, up to which everything is stored.
    pub(super) fn last_stored(&self) -> i32 {
        on_the_wire(self.end - 1)
    }

    /// The last range that is on its way.
    pub(super) fn last_pending(&self) -> Option<P> {
        self.ranges.values().rev().find_map(|range| range.pending.clone())
    }

    /// What `count` numbers are that begin with this one on the wire.
    pub(super) fn look(&self, first: i32, count: i64) -> Numbers<P> {
        let first = self.nearest(first);
        let end = first + count;
        let expected = self.expected();
        let out_of_order = Numbers::OutOfOrder { last: on_the_wire(expected - 1) };
        if first < 0 {
            return out_of_order;
        }
        let mut at = first.max(self.end);
        while at < end {
            let Some((_, range)) = self.ranges.range(..=at).next_back().filter(|(_, range)| at < range.end)
            else {
                break;
            };
            if let Some(pending) = &range.pending {
                return Numbers::Pending(pending.clone());
            }
            at = range.end;
        }
        if at >= end {
            return Numbers::Stored;
        }
        let is_free = self.ranges.range(first..end).next().is_none();
        if first == expected && is_free { Numbers::Next(first) } else { out_of_order }
    }

    /// These numbers, which come next, are on their way.
    pub(super) fn claim(&mut self, first: i64, count: i64, pending: P) {
        self.ranges.insert(first, Range { end: first + count, pending: Some(pending), doomed: false });
        self.claimed += count;
    }

    /// The range that begins here is stored.
    pub(super) fn stored(&mut self, first: i64) {
        if let Some(range) = self.ranges.get_mut(&first) {
            range.pending = None;
        }
        while let Some(entry) = self.ranges.first_entry() {
            if *entry.key() != self.end || entry.get().pending.is_some() {
                break;
            }
            let end = entry.remove().end;
            self.claimed -= end - self.end;
            self.end = end;
        }
    }

    /// The range that begins here will not be stored: its numbers are free again. What is on its way behind it is
    /// doomed: it would be stored before what is sent again.
    pub(super) fn take_back(&mut self, first: i64) {
        if let Some(range) = self.ranges.remove(&first) {
            self.claimed -= range.end - first;
            self.ranges.range_mut(first..).for_each(|(_, range)| range.doomed = true);
        }
    }

    /// Whether the range that begins here must not be stored.
    pub(super) fn is_doomed(&self, first: i64) -> bool {
        self.ranges.get(&first).is_some_and(|range| range.doomed)
    }

    /// The first number that is neither stored nor on its way.
    fn expected(&self) -> i64 {
        let last = self.ranges.last_key_value().map_or(self.end, |(_, range)| range.end);
        // Nearly always there is no gap.
        if last - self.end == self.claimed {
            return last;
        }
        self.ranges.iter().fold(self.end, |at, (first, range)| if *first == at { range.end } else { at })
    }

    /// The number that is meant by one on the wire.
    fn nearest(&self, number: i32) -> i64 {
        let ahead = (i64::from(number) - self.end).rem_euclid(NUMBERS);
        self.end + if ahead < NUMBERS / 2 { ahead } else { ahead - NUMBERS }
    }
}

fn on_the_wire(number: i64) -> i32 {
    match number {
        ..0 => NONE_YET,
        number => i32::try_from(number % NUMBERS).unwrap_or(i32::MAX),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Claims what comes next, named by a letter.
    fn claim(sequence: &mut Sequence<char>, first: i32, count: i64, name: char) -> i64 {
        let Numbers::Next(start) = sequence.look(first, count) else {
            panic!("{first} does not come next: {:?}", sequence.look(first, count));
        };
        sequence.claim(start, count, name);
        start
    }

    #[test]
    fn what_is_on_its_way_is_not_stored_and_comes_not_again() {
        let mut sequence = Sequence::stored_up_to(NONE_YET);
        let a = claim(&mut sequence, 0, 3, 'a');
        let b = claim(&mut sequence, 3, 2, 'b');
        assert_eq!(sequence.last_stored(), NONE_YET);
        assert_eq!(sequence.look(0, 3), Numbers::Pending('a'));
        assert_eq!(sequence.look(2, 2), Numbers::Pending('a'), "both, one after the other");
        assert_eq!(sequence.look(4, 1), Numbers::Pending('b'));
        assert_eq!(sequence.last_pending(), Some('b'));
        sequence.stored(a);
        assert_eq!(sequence.look(0, 3), Numbers::Stored);
        assert_eq!(sequence.look(2, 2), Numbers::Pending('b'));
        assert_eq!(sequence.last_stored(), 2);
        sequence.stored(b);
        assert_eq!((sequence.look(0, 5), sequence.last_stored()), (Numbers::Stored, 4));
        assert_eq!(sequence.last_pending(), None);
        assert_eq!(sequence.look(5, 7), Numbers::Next(5));
    }

    #[test]
    fn numbers_that_are_neither_new_nor_stored_are_out_of_order() {
        let mut sequence = Sequence::stored_up_to(9);
        assert_eq!(sequence.look(11, 1), Numbers::OutOfOrder { last: 9 });
        assert_eq!(sequence.look(8, 4), Numbers::OutOfOrder { last: 9 }, "half of it is new");
        claim(&mut sequence, 10, 5, 'a');
        assert_eq!(sequence.look(20, 1), Numbers::OutOfOrder { last: 14 });
    }

    #[test]
    fn what_failed_leaves_a_gap_that_is_filled_before_anything_else() {
        let mut sequence = Sequence::stored_up_to(NONE_YET);
        let a = claim(&mut sequence, 0, 10, 'a');
        let b = claim(&mut sequence, 10, 10, 'b');
        let c = claim(&mut sequence, 20, 10, 'c');
        sequence.take_back(a);
        assert_eq!([a, b, c].map(|range| sequence.is_doomed(range)), [false, true, true]);
        sequence.stored(b);
        assert_eq!(sequence.last_stored(), NONE_YET);
        assert_eq!(sequence.look(10, 10), Numbers::Stored, "though nothing before it is");
        assert_eq!(sequence.look(30, 1), Numbers::OutOfOrder { last: NONE_YET });
        assert_eq!(sequence.look(0, 20), Numbers::OutOfOrder { last: NONE_YET }, "half of it is stored");
        let a = claim(&mut sequence, 0, 4, 'd');
        let rest = claim(&mut sequence, 4, 6, 'e');
        assert!(!sequence.is_doomed(a) && !sequence.is_doomed(rest));
        sequence.stored(rest);
        sequence.stored(a);
        assert_eq!(sequence.last_stored(), 19);
        sequence.stored(c);
        assert_eq!((sequence.last_stored(), sequence.look(30, 1)), (29, Numbers::Next(30)));
        assert_eq!((sequence.ranges.len(), sequence.claimed), (0, 0));
    }

    #[test]
    fn numbers_go_round_and_so_do_repeats_and_what_is_taken_back() {
        let mut sequence = Sequence::stored_up_to(i32::MAX - 1);
        let last = claim(&mut sequence, i32::MAX, 2, 'a');
        assert_eq!(sequence.look(0, 1), Numbers::Pending('a'));
        let next = claim(&mut sequence, 1, 3, 'b');
        sequence.stored(last);
        assert_eq!(sequence.last_stored(), 0);
        sequence.take_back(next);
        assert_eq!(sequence.last_stored(), 0);
        assert_eq!(sequence.look(i32::MAX - 5, 3), Numbers::Stored, "from before the turn");
        assert_eq!(sequence.look(i32::MAX, 2), Numbers::Stored);
        let again = claim(&mut sequence, 1, 3, 'c');
        sequence.stored(again);
        assert_eq!(sequence.last_stored(), 3);
    }

    #[test]
    fn nothing_lies_before_the_first_number() {
        let sequence = Sequence::<char>::stored_up_to(NONE_YET);
        assert_eq!(sequence.look(i32::MAX, 1), Numbers::OutOfOrder { last: NONE_YET });
        let sequence = Sequence::<char>::stored_up_to(5);
        assert_eq!(sequence.look(0, 6), Numbers::Stored);
        assert_eq!(sequence.look(i32::MAX, 1), Numbers::OutOfOrder { last: 5 });
        let sequence = Sequence::<char>::stored_up_to(i32::MAX);
        assert_eq!((sequence.last_stored(), sequence.look(0, 1)), (i32::MAX, Numbers::Next(NUMBERS)));
    }
}
