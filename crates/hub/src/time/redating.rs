//! Says when events were stored whose stamps are of a clock that has been put ahead since.
//!
//! No event may be dated earlier than it was stored: that would delete it early. Whatever is uncertain makes it later.

use std::collections::VecDeque;
use std::time::Duration;

use ephor_core::time::Timestamp;

/// More clocks that caught up count as one; only what is older than the last so many starts is kept longer for it.
pub(crate) const MAX_CAUGHT_UP: usize = 32;

/// More jumps are merged, the smallest first; only what was stored between two that are merged is kept longer for it.
pub(crate) const MAX_JUMPS: usize = 16;

/// How events are dated by the clock of today: jumps of the clock made their stamps too early.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redating {
    /// What was in the log when nobody knew of any jumps any more. All jumps came after it.
    pub(crate) held: Option<Held>,
    /// The clock was put ahead while the hub ran and no time passed; the oldest first.
    pub(crate) jumps: VecDeque<ClockJump>,
    /// Starts under a clock that was behind and caught up, the oldest first.
    pub(crate) caught_up: VecDeque<CaughtUp>,
}

/// How far the log reached. One segment ends before the other if it comes before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct LogEnd {
    pub(crate) segment: u64,
    pub(crate) position: u64,
}

impl LogEnd {
    /// Behind everything.
    pub(crate) const MAX: Self = Self { segment: u64::MAX, position: u64::MAX };
}

/// What counts as stored at one time, since nobody knows better.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Held {
    /// All that the log held when it reached this far ...
    pub(crate) until: LogEnd,
    /// ... counts as stored no earlier than this.
    pub(crate) to: Timestamp,
}

/// The clock was put ahead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct ClockJump {
    /// What the log held when it reached this far was stored before.
    pub(crate) until: LogEnd,
    /// Only stamps up to this one are meant; all, unless an older version wrote it down.
    pub(crate) stamps_to: Timestamp,
    /// Where the clock stood after it.
    pub(crate) to: Timestamp,
    /// By how much it went ahead, as far as that was not undone.
    pub(crate) by: Duration,
}

/// A clock was behind when the hub started, and caught up. The hub was off meanwhile: only what it stored between the
/// start and then carries stamps that are too early.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct CaughtUp {
    /// Stamps from this one on ...
    pub(crate) from: Timestamp,
    /// ... up to this one ...
    pub(crate) before: Timestamp,
    /// ... are so much later.
    pub(crate) by: Duration,
}

/// The stamps jumped from one time to another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct StampJump {
    pub(crate) from: Timestamp,
    pub(crate) to: Timestamp,
    /// Between which stamps are those since the start, if the clock was behind then and has caught up.
    pub(crate) among: Option<(Timestamp, Timestamp)>,
}

impl Redating {
    /// When an event of this stamp was stored, by the clock of today. It is the newest of a segment that ends there.
    pub(crate) fn date(&self, stamp: Timestamp, end: LogEnd) -> Timestamp {
        let covering = self.caught_up.iter().filter(|one| one.from <= stamp && stamp <= one.before);
        // It was stored after one start only.
        let stored = stamp + covering.map(|one| one.by).max().unwrap_or_default();
        let held = self.held.filter(|held| end <= held.until).map_or(stored, |held| stored.max(held.to));
        let later = self.jumps.iter().filter(|jump| end <= jump.until && stamp <= jump.stamps_to);
        later.fold(held, |date, jump| date + jump.by)
    }

    /// The stamps jumped from one time to another when the log reached this far.
    pub(crate) fn jumped(&mut self, StampJump { from, to, among }: StampJump, until: LogEnd) {
        let by = to.since(from);
        if let Some((earliest, latest)) = among.filter(|_| to > from) {
            self.caught_up.push_back(CaughtUp { from: earliest, before: latest, by });
            self.merge_oldest();
        } else if to > from {
            self.clock_stands_at(from);
            self.jumps.push_back(ClockJump { until, stamps_to: Timestamp(i64::MAX), to, by });
            self.merge_smallest();
        } else {
            self.clock_stands_at(to);
        }
    }

    /// Whether the clock was later than this once.
    pub(crate) fn is_ahead_of(&self, now: Timestamp) -> bool {
        self.jumps.iter().any(|jump| jump.to > now) || self.held.is_some_and(|held| held.to > now)
    }

    /// It is no later than this by the clock of today. A jump that ended later is undone at least so far, since the time
    /// that passed after it is undone, too. One that ended earlier is not: something else was.
    pub(crate) fn clock_stands_at(&mut self, now: Timestamp) {
        for jump in &mut self.jumps {
            jump.by = jump.by.saturating_sub(jump.to.since(now));
            jump.to = jump.to.min(now);
        }
        self.jumps.retain(|jump| !jump.by.is_zero());
        // Each went ahead to `from + by` at least.
        self.caught_up.iter_mut().for_each(|one| one.by = one.by.min(now.since(one.from)));
        self.caught_up.retain(|one| !one.by.is_zero());
        self.held.iter_mut().for_each(|held| held.to = held.to.min(now));
    }

    /// Nothing is known of jumps: what is in the log, up to there, counts as stored now.
    pub(crate) fn hold(&mut self, until: LogEnd, now: Timestamp) {
        *self = Self { held: Some(Held { until, to: now }), ..Self::default() };
    }

    /// The oldest segment ends there: what is older is gone.
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

    fn dated(redating: &Redating, day: i64, segment: u64) -> i64 {
        redating.date(Timestamp(day * DAY), at(segment)).0 / DAY
    }

    #[test]
    fn events_from_before_a_jump_ahead_are_dated_anew_until_it_is_undone() {
        let mut redating = Redating::default();
        assert_eq!(dated(&redating, 1, 1), 1);
        redating.jumped(jump(2, 10, None), at(1));
        assert_eq!((dated(&redating, 1, 1), dated(&redating, 10, 2)), (9, 10));
        redating.jumped(jump(11, 2, None), at(2));
        assert_eq!((dated(&redating, 1, 1), dated(&redating, 10, 2)), (1, 10));
    }

    #[test]
    fn an_event_gets_all_jumps_after_it_and_none_before() {
        let mut redating = Redating::default();
        redating.jumped(jump(2, 10, None), at(1));
        redating.jumped(jump(12, 15, None), at(2));
        assert_eq!(
            [(1, 1), (11, 2), (15, 3)].map(|(day, segment)| dated(&redating, day, segment)),
            [12, 14, 15]
        );
        // Back to behind both: something else was undone, and not these.
        redating.jumped(jump(4_000, 17, None), at(3));
        assert_eq!(dated(&redating, 1, 1), 12);
        // Into the second, and into the first.
        redating.jumped(jump(18, 14, None), at(3));
        assert_eq!((dated(&redating, 1, 1), dated(&redating, 11, 2)), (11, 13));
        redating.jumped(jump(14, 8, None), at(3));
        assert_eq!((dated(&redating, 1, 1), dated(&redating, 11, 2)), (7, 11));
        redating.forget_before(at(2));
        assert_eq!(redating, Redating::default());
    }

    #[test]
    fn only_events_since_the_start_are_dated_anew_when_a_clock_caught_up() {
        let mut redating = Redating::default();
        redating.jumped(jump(12, 16, Some(11)), at(1));
        assert_eq!([10, 11, 12, 13].map(|day| dated(&redating, day, 1)), [10, 15, 16, 13]);
        redating.jumped(jump(20, 23, Some(19)), at(1));
        assert_eq!([10, 11, 13, 20].map(|day| dated(&redating, day, 1)), [10, 15, 13, 23]);
        // All that a jump adds on top of it is taken back with it, and no more.
        redating.jumped(jump(30, 40, None), at(1));
        redating.jumped(jump(41, 30, None), at(1));
        assert_eq!((dated(&redating, 20, 1), dated(&redating, 11, 1)), (23, 15));
    }

    #[test]
    fn what_is_held_counts_as_stored_then_and_follows_the_clock() {
        let mut redating = Redating::default();
        redating.jumped(jump(2, 10, None), at(1));
        redating.hold(at(2), Timestamp(20 * DAY));
        assert_eq!(
            [(1, 1), (15, 2), (15, 3)].map(|(day, segment)| dated(&redating, day, segment)),
            [20, 20, 15]
        );
        redating.jumped(jump(21, 31, None), at(3));
        assert_eq!((dated(&redating, 1, 1), dated(&redating, 21, 3)), (30, 31));
        redating.jumped(jump(32, 11, None), at(4));
        assert_eq!((dated(&redating, 1, 1), dated(&redating, 21, 3)), (11, 21));
        redating.forget_before(at(3));
        assert_eq!(redating, Redating::default());
    }

    #[test]
    fn many_jumps_take_bounded_room_and_make_nothing_earlier() {
        let (mut redating, mut ahead) = (Redating::default(), 1_000);
        redating.jumped(jump(0, ahead, None), at(0));
        for day in 1..500 {
            redating.jumped(jump(day + ahead, day + ahead + 1, None), at(day as u64));
            ahead += 1;
        }
        assert_eq!(redating.jumps.len(), MAX_JUMPS);
        // Stored on this day, before the clock went ahead by one.
        let surplus = |day: i64| dated(&redating, day + 999 + day, day as u64) - (day + ahead);
        assert_eq!(dated(&redating, 0, 0), ahead);
        assert!((1..500).all(|day| (0..400).contains(&surplus(day))), "the great jump is merged with none");
    }

    #[test]
    fn many_starts_take_bounded_room_and_make_nothing_earlier() {
        let mut redating = Redating::default();
        for day in 1..1_000 {
            redating.jumped(jump(10 * day + 1, 10 * day + 3, Some(10 * day)), at(1));
        }
        assert_eq!(redating.caught_up.len(), MAX_CAUGHT_UP);
        assert!((1..1_000).all(|day| dated(&redating, 10 * day, 1) == 10 * day + 2));
        assert_eq!(dated(&redating, 9_985, 1), 9_985);
    }
}
