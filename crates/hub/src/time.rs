//! Keeps the time of a hub: what new events are stamped with, and how much of it is proven.
//!
//! Two clocks are asked. The wall clock tells the date, and may be set, also wrong. The monotonic clock tells
//! only how much time passes while the hub runs, and nobody can set it.
//!
//! | time | what it is for | how it moves |
//! |---|---|---|
//! | `stamp` | the enqueued time of events | follows the wall clock ahead at once, and back once the clock has stood there for [`SETTLING`]; back before `proven` only when that does |
//! | `proven` | deciding that an event is past its age | with the monotonic clock; follows the wall clock, ahead or back, when both clocks have agreed for [`TRUST_AFTER`] of running time in all, over restarts ([`Marks`]) |
//!
//! So a jump of the wall clock makes no event older. One while the hub runs never does, since the monotonic clock tells
//! that no time passed: events from before it are dated anew ([`Redating`]). One while it is off looks like a hub that was
//! off for long: what that has to free goes a day of running after it is back.
//!
//! A clock that at open is behind what was marked is wrong, and may not have been set yet. Until it catches up it proves
//! nothing and disproves nothing; if it does so within [`CATCHES_UP_WITHIN`], the hub was off, and the clock did not jump.

mod marks;
mod redating;

use std::time::Duration;

use ephor_core::time::{Clock, Monotonic, Timestamp};

pub(crate) use self::marks::{MAX_MARKS, Mark, Marks};
pub(crate) use self::redating::{
    CaughtUp, ClockJump, Held, LogEnd, MAX_CAUGHT_UP, MAX_JUMPS, Redating, StampJump,
};

/// Clocks that differ by no more than this agree.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(60);

/// Beside it, one part in so many of the time for which they have agreed: no two clocks run alike.
const DRIFT: u32 = 1_000;

/// A wall clock that went back has to stay there for this long before new events follow it.
const SETTLING: Duration = Duration::from_secs(60);

/// The wall clock is believed when it has agreed with the monotonic one for this long.
pub(crate) const TRUST_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// A clock that was behind at open and is not right after this long is taken as it is.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(60 * 60);

/// What both clocks say.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Reading {
    pub(crate) wall: Timestamp,
    pub(crate) now: Monotonic,
}

impl Reading {
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { wall: clock.wall(), now: clock.now() }
    }
}

/// What time it is for a hub. `proven` is never after `stamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubTime {
    /// When an event that is stored now is said to be stored.
    pub(crate) stamp: Timestamp,
    /// It is at least this late.
    pub(crate) proven: Timestamp,
}

/// What a look at the clocks found, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// The wall clock went ahead by this much.
    Ahead(Duration),
    /// The wall clock is behind by this much.
    Back(Duration),
}

/// Makes one time out of two clocks.
#[derive(Debug)]
pub(crate) struct TimeKeeper {
    time: HubTime,
    looked: Monotonic,
    /// Since when the clocks agree.
    agreed: Reading,
    /// Since when the wall clock is behind the stamp.
    behind: Option<Monotonic>,
    /// From where to where the stamp jumped in the last look.
    jumped: Option<StampJump>,
    marks: Marks,
    /// The clock was behind the marks at open, and has not caught up yet.
    late: Option<Late>,
}

/// A clock that was behind when the hub was opened.
#[derive(Clone, Copy, Debug)]
struct Late {
    opened: Monotonic,
    /// The stamp of then.
    stamp: Timestamp,
    /// The earliest since.
    earliest: Timestamp,
}

impl TimeKeeper {
    /// Begins with what the log says: its newest stamp, and the time that was proven when it was written last.
    pub(crate) fn new(
        reading: Reading,
        newest: Option<Timestamp>,
        proven: Option<Timestamp>,
        marks: Marks,
    ) -> Self {
        let newest = newest.unwrap_or(reading.wall);
        let proven = proven.unwrap_or_else(|| newest.min(reading.wall));
        let time = HubTime { stamp: reading.wall.max(newest).max(proven), proven };
        let behind = (reading.wall + TOLERANCE < time.stamp).then_some(reading.now);
        let late = marks.contradict(reading.wall).then_some(Late {
            opened: reading.now,
            stamp: time.stamp,
            earliest: time.stamp,
        });
        Self { time, looked: reading.now, agreed: reading, behind, jumped: None, marks, late }
    }

    /// What the wall clock said while the hub ran. A clock that is behind and never catches up leaves none.
    pub(crate) fn marks(&self) -> Marks {
        match self.late {
            Some(_) => Marks { ran: self.marks.ran, ..Marks::default() },
            None => self.marks.clone(),
        }
    }

    /// How far the wall clock was behind the stamps of the log when it began.
    pub(crate) fn behind(&self) -> Option<Duration> {
        self.behind.map(|_| self.time.stamp.since(self.agreed.wall))
    }

    /// Whether the clock was behind at open and may yet be set: until then, where it stands counts for nothing.
    pub(crate) fn may_yet_catch_up(&self) -> bool {
        self.late.is_some()
    }

    /// From where to where the stamp jumped in the last look, if it did.
    pub(crate) fn jumped(&self) -> Option<StampJump> {
        self.jumped
    }

    /// What the last look found.
    pub(crate) fn time(&self) -> HubTime {
        self.time
    }

    /// Looks at the clocks.
    pub(crate) fn look(&mut self, reading: Reading) -> Option<Jump> {
        let Reading { wall, now } = reading;
        let elapsed = now.since(self.looked);
        // One that waited for its turn may be older than the last.
        self.looked = self.looked.max(now);
        let jump = self.compare(reading);
        let expected = self.time.stamp + elapsed;
        let proven = self.time.proven + elapsed;
        self.time.stamp = if wall + TOLERANCE >= expected {
            self.behind = None;
            self.time.stamp.max(wall)
        } else {
            let settled = now.since(*self.behind.get_or_insert(now)) >= SETTLING;
            if settled { expected.min(wall.max(proven)) } else { expected }
        };
        self.time.proven = proven.min(self.time.stamp);
        if now.since(self.agreed.now) >= TRUST_AFTER {
            if self.behind.take().is_some() {
                self.time.stamp = wall;
            }
            self.time.proven = self.time.stamp;
            self.agreed = reading;
        }
        let late = self.late;
        self.mark(reading, elapsed, jump.is_some());
        self.follow_marks(wall);
        self.jumped = self.stamp_jump(late, expected, now);
        jump
    }

    /// Sets marks, unless the clock is behind and may yet be set.
    fn mark(&mut self, Reading { wall, now }: Reading, elapsed: Duration, jumped: bool) {
        match self.late {
            Some(_) if !self.marks.contradict(wall) => self.late = None,
            Some(late) if now.since(late.opened) < CATCHES_UP_WITHIN => {
                let earliest = late.earliest.min(self.time.stamp);
                self.late = Some(Late { earliest, ..late });
            }
            Some(_) => {
                self.late = None;
                self.marks.begin_again(wall);
            }
            None => {
                self.marks.pass(elapsed);
                if jumped {
                    self.marks.begin_again(wall);
                }
                self.marks.set(wall);
            }
        }
    }

    /// Goes on, or back, to what a day of running proves.
    fn follow_marks(&mut self, wall: Timestamp) {
        let Some(proof) = self.marks.proof().filter(|_| self.late.is_none()) else { return };
        if wall + TOLERANCE < self.time.proven {
            self.behind = None;
            self.time = HubTime { stamp: wall, proven: wall };
        }
        self.time.proven = self.time.proven.max(proof.min(self.time.stamp));
    }

    /// From where to where the stamp jumped, if it did. While a clock may yet be set, where it stands counts for nothing.
    fn stamp_jump(&self, was_late: Option<Late>, expected: Timestamp, now: Monotonic) -> Option<StampJump> {
        let to = self.time.stamp;
        let latest = |late: Late| late.stamp + now.since(late.opened);
        let (from, among) = match (was_late, self.late) {
            (Some(_), Some(_)) => return None,
            (Some(late), None) if to > expected + TOLERANCE => {
                (expected, Some((late.earliest, latest(late))))
            }
            // What went back meanwhile was not told yet.
            (Some(late), None) => (latest(late), None),
            (None, _) => (expected, None),
        };
        let jumped = to > from + TOLERANCE || to + TOLERANCE < from;
        jumped.then_some(StampJump { from, to, among })
    }

    /// Whether the clocks still agree; if not, it begins anew.
    fn compare(&mut self, reading: Reading) -> Option<Jump> {
        let agreed_for = reading.now.since(self.agreed.now);
        let expected = self.agreed.wall + agreed_for;
        let (ahead, back) = (reading.wall.since(expected), expected.since(reading.wall));
        if ahead.max(back) <= TOLERANCE + agreed_for / DRIFT {
            return None;
        }
        self.agreed = reading;
        Some(if ahead > back { Jump::Ahead(ahead) } else { Jump::Back(back) })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_700_000_000_000;
    const SECOND: i64 = 1_000;
    const HOUR: i64 = 3_600 * SECOND;
    const DAY: i64 = 24 * HOUR;

    fn at(passed: i64, off: i64) -> Reading {
        Reading { wall: Timestamp(START + passed + off), now: Monotonic(passed as u64 * 1_000_000) }
    }

    fn keeper() -> TimeKeeper {
        TimeKeeper::new(at(0, 0), None, None, Marks::default())
    }

    fn time(keeper: &TimeKeeper) -> (i64, i64) {
        (keeper.time.stamp.0 - START, keeper.time.proven.0 - START)
    }

    #[test]
    fn clocks_that_agree_are_one_time() {
        let mut keeper = keeper();
        for second in 1..100_000 {
            // A clock that is slewed, and stepped a little.
            let off = second / 2_000 + if second % 500 == 0 { -900 } else { 0 };
            assert_eq!(keeper.look(at(second * SECOND, off)), None);
        }
        let (stamp, proven) = time(&keeper);
        assert!((stamp - 99_999 * SECOND).abs() < 100 && stamp - proven < SECOND, "{stamp} {proven}");
    }

    #[test]
    fn a_jump_ahead_counts_for_stamps_at_once_and_as_proof_after_a_day() {
        let mut keeper = keeper();
        let jump = Duration::from_millis(10 * DAY as u64);
        assert_eq!(keeper.look(at(HOUR, 10 * DAY)), Some(Jump::Ahead(jump)));
        assert_eq!(time(&keeper), (HOUR + 10 * DAY, HOUR));
        assert_eq!(keeper.look(at(HOUR + DAY - 1, 10 * DAY)), None);
        assert_eq!(time(&keeper).1, HOUR + DAY - 1);
        keeper.look(at(HOUR + DAY, 10 * DAY));
        assert_eq!(time(&keeper), (HOUR + 11 * DAY, HOUR + 11 * DAY));
    }

    #[test]
    fn stamps_follow_a_clock_that_goes_back_when_it_stays_there_but_never_before_what_is_proven() {
        let mut keeper = keeper();
        keeper.look(at(HOUR, 10 * DAY));
        keeper.look(at(HOUR + 1, 0));
        assert_eq!(time(&keeper), (HOUR + 1 + 10 * DAY, HOUR + 1));
        keeper.look(at(HOUR + 1 + 60 * SECOND, 0));
        assert_eq!(time(&keeper), (HOUR + 1 + 60 * SECOND, HOUR + 1 + 60 * SECOND));
        for hour in 2..26 {
            keeper.look(at(hour * HOUR, -10_000 * DAY));
            assert_eq!(time(&keeper), (hour * HOUR, hour * HOUR));
        }
    }

    #[test]
    fn a_clock_that_runs_too_fast_proves_nothing() {
        let mut keeper = keeper();
        for hour in 1..1_000 {
            keeper.look(at(hour * HOUR, hour * HOUR));
            assert_eq!(time(&keeper), (2 * hour * HOUR, hour * HOUR));
        }
    }

    #[test]
    fn any_clocks_keep_the_proven_time_between_what_passed_and_the_stamp() {
        let mut chance = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut keeper, mut passed) = (keeper(), 0);
            for _ in 0..200 {
                passed += chance.i64(0..2 * HOUR);
                let before = keeper.time();
                keeper.look(at(passed, chance.i64(-20_000 * DAY..20_000 * DAY)));
                let after = keeper.time();
                assert!(after.proven >= before.proven && after.proven <= after.stamp, "{before:?} {after:?}");
                assert!(after.proven.0 <= START + passed, "no day of agreement, and more than what passed");
            }
        }
    }

    #[test]
    fn a_clock_that_stays_behind_is_followed_after_a_day() {
        let mut keeper =
            TimeKeeper::new(at(0, 0), Some(Timestamp(START + 100 * DAY)), None, Marks::default());
        keeper.look(at(HOUR, 0));
        assert_eq!(time(&keeper), (HOUR, HOUR), "nothing proves the stamps of the log");
        let mut keeper =
            TimeKeeper::new(at(0, 0), None, Some(Timestamp(START + 100 * DAY)), Marks::default());
        for hour in 1..24 {
            keeper.look(at(hour * HOUR, 0));
            assert_eq!(time(&keeper), (100 * DAY + hour * HOUR, 100 * DAY + hour * HOUR));
        }
        keeper.look(at(DAY, 0));
        assert_eq!(time(&keeper), (DAY, DAY));
    }

    #[test]
    fn extreme_readings_do_not_overflow() {
        let mut keeper = keeper();
        for wall in [i64::MAX, i64::MIN, 0, i64::MAX] {
            for now in [0, u64::MAX, 1] {
                keeper.look(Reading { wall: Timestamp(wall), now: Monotonic(now) });
            }
        }
    }
}
