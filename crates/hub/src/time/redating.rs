//! Says when events were stored whose stamps are of a clock that has been put ahead since.

use std::collections::VecDeque;
use std::time::Duration;

use ephor_core::time::Timestamp;

/// More clocks that caught up count as one; only what is older than the last so many starts is kept longer for it.
pub(crate) const MAX_CAUGHT_UP: usize = 32;

/// How events from before a jump ahead are dated: their stamps are of a clock that has been put ahead since, while the hub
/// ran and no time passed. Several jumps count as one, the last, by all of them: that keeps events longer, never shorter.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Redating {
    /// Stamps up to this one are meant.
    pub(crate) before: Timestamp,
    /// And they are so much later by the clock of today.
    pub(crate) by: Duration,
    /// Starts under a clock that was behind and caught up, the oldest first.
    pub(crate) caught_up: VecDeque<CaughtUp>,
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
    /// When an event of this stamp was stored, by the clock of today.
    pub(crate) fn date(&self, stamp: Timestamp) -> Timestamp {
        let covering = self.caught_up.iter().filter(|one| one.from <= stamp && stamp <= one.before);
        // It was stored after one start only.
        let stored = stamp + covering.map(|one| one.by).max().unwrap_or_default();
        if stamp <= self.before { stored + self.by } else { stored }
    }

    /// The stamps jumped from one time to another.
    pub(crate) fn jumped(&mut self, StampJump { from, to, among }: StampJump) {
        let ahead = to.since(from);
        if let Some((earliest, latest)) = among.filter(|_| to > from) {
            self.caught_up.push_back(CaughtUp { from: earliest, before: latest, by: ahead });
            self.merge_oldest();
        } else if to > from {
            (self.before, self.by) = (from, self.by.saturating_add(ahead));
        } else {
            self.put_back(from.since(to));
        }
    }

    /// What was put ahead is put back, the newest first.
    fn put_back(&mut self, by: Duration) {
        let last = self.caught_up.back_mut().map(|last| &mut last.by);
        let taken = last.as_ref().map_or(Duration::ZERO, |last| by.min(**last));
        last.into_iter().for_each(|last| *last -= taken);
        self.by = self.by.saturating_sub(by - taken);
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

    fn jump(from: i64, to: i64, since: Option<i64>) -> StampJump {
        let day = |days: i64| Timestamp(days * DAY);
        StampJump { from: day(from), to: day(to), among: since.map(|since| (day(since), day(from))) }
    }

    fn dated(redating: &Redating, day: i64) -> i64 {
        redating.date(Timestamp(day * DAY)).0 / DAY
    }

    #[test]
    fn events_from_before_a_jump_ahead_are_dated_anew_until_it_is_undone() {
        let mut redating = Redating::default();
        assert_eq!(dated(&redating, 1), 1);
        redating.jumped(jump(2, 10, None));
        assert_eq!((dated(&redating, 1), dated(&redating, 10)), (9, 10));
        redating.jumped(jump(11, 3, None));
        assert_eq!((dated(&redating, 1), dated(&redating, 10)), (1, 10));
    }

    #[test]
    fn only_events_since_the_start_are_dated_anew_when_a_clock_caught_up() {
        let mut redating = Redating::default();
        redating.jumped(jump(12, 16, Some(11)));
        assert_eq!([10, 11, 12, 13].map(|day| dated(&redating, day)), [10, 15, 16, 13]);
        redating.jumped(jump(20, 23, Some(19)));
        assert_eq!([10, 11, 13, 20].map(|day| dated(&redating, day)), [10, 15, 13, 23]);
        // All that a jump adds on top of it is taken back with it, and no more.
        redating.jumped(jump(30, 40, None));
        redating.jumped(jump(41, 31, None));
        assert_eq!(dated(&redating, 20), 23);
        assert!(dated(&redating, 11) >= 15);
    }

    #[test]
    fn many_starts_take_bounded_room_and_make_nothing_earlier() {
        let mut redating = Redating::default();
        for day in 1..1_000 {
            redating.jumped(jump(10 * day + 1, 10 * day + 3, Some(10 * day)));
        }
        assert_eq!(redating.caught_up.len(), MAX_CAUGHT_UP);
        assert!((1..1_000).all(|day| dated(&redating, 10 * day) == 10 * day + 2));
        assert_eq!(dated(&redating, 9_985), 9_985);
    }
}
