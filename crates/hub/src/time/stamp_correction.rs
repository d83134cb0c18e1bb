//! Computes, for retention, when events were really stored that got their enqueued time before the clock was
//! set ahead or caught up. Stored events do not change.
//!
//! An event must never be dated earlier than it was stored, since retention would delete it early. In doubt the date is
//! later. The file `time` of a log stores the corrections (`journal/time_file.rs`).

use std::collections::VecDeque;
use std::time::Duration;

use ephor_core::time::Timestamp;

/// The most starts under a clock that caught up. Older ones are merged; only their events are then kept longer.
pub(crate) const MAX_CAUGHT_UP: usize = 32;

/// The most jumps. More are merged, the smallest first; only events between two merged jumps are then kept longer.
pub(crate) const MAX_JUMPS: usize = 16;

/// The corrections of stamps: after jumps of the clock ahead, older stamps are too early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct StampCorrection {
    /// The events that were in the log when the corrections were lost. All jumps came after it.
    pub(crate) held: Option<RetentionHold>,
    /// Jumps of the clock ahead while the hub ran, oldest first.
    pub(crate) jumps: VecDeque<ClockJump>,
    /// Starts under a clock that was behind and caught up, oldest first.
    pub(crate) caught_up: VecDeque<CaughtUp>,
}

/// A position in the log, ordered by segment, then by position in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogEnd {
    pub(crate) segment: u64,
    pub(crate) position: u64,
}

impl LogEnd {
    /// After everything.
    pub(crate) const MAX: Self = Self { segment: u64::MAX, position: u64::MAX };
}

/// Events that count as stored at one time, because their corrections were lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct RetentionHold {
    /// All events before this position ...
    pub(crate) until: LogEnd,
    /// ... count as stored no earlier than this.
    pub(crate) to: Timestamp,
}

/// A jump of the clock ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockJump {
    /// The events before this position were stored before the jump.
    pub(crate) until: LogEnd,
    /// The jump applies only to stamps up to this one. All stamps, unless an older version stored it.
    pub(crate) stamps_to: Timestamp,
    /// The clock after the jump.
    pub(crate) to: Timestamp,
    /// The length of the jump, as far as it was not undone.
    pub(crate) by: Duration,
}

/// A start under a clock that was behind and caught up. The hub was off before it, so only events between the start and
/// the catching up have stamps that are too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaughtUp {
    /// Stamps from this one ...
    pub(crate) from: Timestamp,
    /// ... up to this one ...
    pub(crate) before: Timestamp,
    /// ... are later by this.
    pub(crate) by: Duration,
}

/// A jump of the stamps from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StampJump {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// The range of the stamps since the start, if the clock was behind then and has caught up.
    pub(crate) among: Option<(Timestamp, Timestamp)>,
}

impl StampCorrection {
    /// Returns when an event was stored, by the clock of today. It is the newest event of a segment that ends at `end`.
    pub(crate) fn date(&self, stamp: Timestamp, end: LogEnd) -> Timestamp {
        let covering = self.caught_up.iter().filter(|one| one.from <= stamp && stamp <= one.before);
        // It was stored after one start only.
        let stored = stamp + covering.map(|one| one.by).max().unwrap_or_default();
        let held = self.held.filter(|held| end <= held.until).map_or(stored, |held| stored.max(held.to));
        let later = self.jumps.iter().filter(|jump| end <= jump.until && stamp <= jump.stamps_to);
        later.fold(held, |date, jump| date + jump.by)
    }

    /// Adds a jump of the stamps. The log ended at `until` then.
    pub(crate) fn jumped(&mut self, StampJump { from, to, among }: StampJump, until: LogEnd) {
        let by = to.since(from);
        if let Some((earliest, latest)) = among.filter(|_| to > from) {
            self.caught_up.push_back(CaughtUp { from: earliest, before: latest, by });
            self.merge_oldest();
        } else if to > from {
            self.clock_is_at(from);
            self.jumps.push_back(ClockJump { until, stamps_to: Timestamp(i64::MAX), to, by });
            self.merge_smallest();
        } else {
            self.clock_is_at(to);
        }
    }

    /// Whether a correction says that the clock was later than this once.
    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.jumps.iter().any(|jump| jump.to > now) || self.held.is_some_and(|held| held.to > now)
    }

    /// Undoes jumps, since it is no later than `now` by the clock of today. A jump that ended later is undone at least to
    /// `now`, together with the time that passed after it. A jump that ended earlier stays.
    pub(crate) fn clock_is_at(&mut self, now: Timestamp) {
        for jump in &mut self.jumps {
            jump.by = jump.by.saturating_sub(jump.to.since(now));
            jump.to = jump.to.min(now);
        }
        self.jumps.retain(|jump| !jump.by.is_zero());
        // Each start caught up to `from + by` at least.
        self.caught_up.iter_mut().for_each(|one| one.by = one.by.min(now.since(one.from)));
        self.caught_up.retain(|one| !one.by.is_zero());
        self.held.iter_mut().for_each(|held| held.to = held.to.min(now));
    }

    /// Replaces lost corrections: all events before `until` count as stored now.
    pub(crate) fn hold(&mut self, until: LogEnd, now: Timestamp) {
        *self = Self { held: Some(RetentionHold { until, to: now }), ..Self::default() };
    }

    /// Drops corrections of events that are gone. The oldest segment ends at `oldest`.
    pub(crate) fn forget_before(&mut self, oldest: LogEnd) {
        self.jumps.retain(|jump| oldest <= jump.until);
        self.held = self.held.filter(|held| oldest <= held.until);
    }

    fn merge_smallest(&mut self) {
        if self.jumps.len() <= MAX_JUMPS {
            return;
        }
        let older = self.jumps.iter().take(self.jumps.len() - 1).enumerate();
        let Some((smallest, _)) = older.min_by_key(|(_, jump)| jump.by) else { return };
        if let (Some(one), Some(next)) = (self.jumps.remove(smallest), self.jumps.get_mut(smallest)) {
            next.by = next.by.saturating_add(one.by);
        }
    }

    fn merge_oldest(&mut self) {
        if self.caught_up.len() <= MAX_CAUGHT_UP {
            return;
        }
        if let (Some(one), Some(two)) = (self.caught_up.pop_front(), self.caught_up.front_mut()) {
            *two = CaughtUp {
                from: one.from.min(two.from),
                before: one.before.max(two.before),
                by: one.by.max(two.by),
            };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DAY: i64 = 24 * 3_600 * 1_000;

    fn at(segment: u64) -> LogEnd {
        LogEnd { segment, position: 100 }
    }

    fn jump(from: i64, to: i64, since: Option<i64>) -> StampJump {
        let day = |days: i64| Timestamp(days * DAY);
        StampJump { from: day(from), to: day(to), among: since.map(|since| (day(since), day(from))) }
    }

    fn dated(correction: &StampCorrection, day: i64, segment: u64) -> i64 {
        correction.date(Timestamp(day * DAY), at(segment)).0 / DAY
    }

    #[test]
    fn events_from_before_a_jump_ahead_are_dated_anew_until_it_is_undone() {
        let mut correction = StampCorrection::default();
        assert_eq!(dated(&correction, 1, 1), 1);
        correction.jumped(jump(2, 10, None), at(1));
        assert_eq!((dated(&correction, 1, 1), dated(&correction, 10, 2)), (9, 10));
        correction.jumped(jump(11, 2, None), at(2));
        assert_eq!((dated(&correction, 1, 1), dated(&correction, 10, 2)), (1, 10));
    }

    #[test]
    fn an_event_gets_all_jumps_after_it_and_none_before() {
        let mut correction = StampCorrection::default();
        correction.jumped(jump(2, 10, None), at(1));
        correction.jumped(jump(12, 15, None), at(2));
        assert_eq!(
            [(1, 1), (11, 2), (15, 3)].map(|(day, segment)| dated(&correction, day, segment)),
            [12, 14, 15]
        );
        // Back to behind both: something else was undone, and not these.
        correction.jumped(jump(4_000, 17, None), at(3));
        assert_eq!(dated(&correction, 1, 1), 12);
        // Into the second, and into the first.
        correction.jumped(jump(18, 14, None), at(3));
        assert_eq!((dated(&correction, 1, 1), dated(&correction, 11, 2)), (11, 13));
        correction.jumped(jump(14, 8, None), at(3));
        assert_eq!((dated(&correction, 1, 1), dated(&correction, 11, 2)), (7, 11));
        correction.forget_before(at(2));
        assert_eq!(correction, StampCorrection::default());
    }

    #[test]
    fn only_events_since_the_start_are_dated_anew_when_a_clock_caught_up() {
        let mut correction = StampCorrection::default();
        correction.jumped(jump(12, 16, Some(11)), at(1));
        assert_eq!([10, 11, 12, 13].map(|day| dated(&correction, day, 1)), [10, 15, 16, 13]);
        correction.jumped(jump(20, 23, Some(19)), at(1));
        assert_eq!([10, 11, 13, 20].map(|day| dated(&correction, day, 1)), [10, 15, 13, 23]);
        // All that a jump adds on top of it is taken back with it, and no more.
        correction.jumped(jump(30, 40, None), at(1));
        correction.jumped(jump(41, 30, None), at(1));
        assert_eq!((dated(&correction, 20, 1), dated(&correction, 11, 1)), (23, 15));
    }

    #[test]
    fn what_is_held_counts_as_stored_then_and_follows_the_clock() {
        let mut correction = StampCorrection::default();
        correction.jumped(jump(2, 10, None), at(1));
        correction.hold(at(2), Timestamp(20 * DAY));
        assert_eq!(
            [(1, 1), (15, 2), (15, 3)].map(|(day, segment)| dated(&correction, day, segment)),
            [20, 20, 15]
        );
        correction.jumped(jump(21, 31, None), at(3));
        assert_eq!((dated(&correction, 1, 1), dated(&correction, 21, 3)), (30, 31));
        correction.jumped(jump(32, 11, None), at(4));
        assert_eq!((dated(&correction, 1, 1), dated(&correction, 21, 3)), (11, 21));
        correction.forget_before(at(3));
        assert_eq!(correction, StampCorrection::default());
    }

    #[test]
    fn many_jumps_take_bounded_room_and_make_nothing_earlier() {
        let (mut correction, mut ahead) = (StampCorrection::default(), 1_000);
        correction.jumped(jump(0, ahead, None), at(0));
        for day in 1..500 {
            correction.jumped(jump(day + ahead, day + ahead + 1, None), at(day as u64));
            ahead += 1;
        }
        assert_eq!(correction.jumps.len(), MAX_JUMPS);
        // Stored on this day, before the clock went ahead by one.
        let surplus = |day: i64| dated(&correction, day + 999 + day, day as u64) - (day + ahead);
        assert_eq!(dated(&correction, 0, 0), ahead);
        assert!((1..500).all(|day| (0..400).contains(&surplus(day))), "the great jump is merged with none");
    }

    #[test]
    fn many_starts_take_bounded_room_and_make_nothing_earlier() {
        let mut correction = StampCorrection::default();
        for day in 1..1_000 {
            correction.jumped(jump(10 * day + 1, 10 * day + 3, Some(10 * day)), at(1));
        }
        assert_eq!(correction.caught_up.len(), MAX_CAUGHT_UP);
        assert!((1..1_000).all(|day| dated(&correction, 10 * day, 1) == 10 * day + 2));
        assert_eq!(dated(&correction, 9_985, 1), 9_985);
    }
}
