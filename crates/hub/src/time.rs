//! The clocks of a hub: the enqueued time of new events, and the proven time by which retention deletes.
//!
//! It combines two clocks. The wall clock knows the date, but people can set it, also wrong. The monotonic clock knows
//! only how much time passes while the hub runs, and nobody can set it.
//!
//! | time | used for | how it moves |
//! |---|---|---|
//! | `stamp` | the enqueued time of events | follows the wall clock ahead at once, and back once the clock has stood there for [`SETTLING`]; back before `proven` only when that does |
//! | `proven` | deciding that an event is past its age | with the monotonic clock; follows the wall clock, ahead or back, when both clocks have agreed for [`TRUST_AFTER`] of running time in all, over restarts ([`ClockSamples`]) |
//!
//! So a jump of the wall clock expires no event. A jump while the hub runs is known, since the monotonic clock shows
//! that no time passed: [`StampCorrection`] corrects the dates of older events. A jump while the hub is off looks like a
//! long time off: the events that it would expire are deleted after the hub has run for a day.
//!
//! A wall clock that at open is behind the stored samples is wrong, and may not have been set yet. Until it catches up,
//! it proves nothing and disproves nothing. If it catches up within [`CATCHES_UP_WITHIN`], the hub was off, and the clock
//! did not jump.

mod clock_samples;
mod stamp_correction;

use std::time::Duration;

use ephor_core::time::{Clock, Monotonic, Timestamp};

pub(crate) use self::clock_samples::{ClockSample, ClockSamples, MAX_CLOCK_SAMPLES};
pub(crate) use self::stamp_correction::{
    CaughtUp, ClockJump, LogEnd, MAX_CAUGHT_UP, MAX_JUMPS, RetentionHold, StampCorrection, StampJump,
};

/// Clocks that differ by no more than this agree.
pub(crate) const TOLERANCE: Duration = Duration::from_secs(60);

/// In addition to [`TOLERANCE`], clocks may drift by one part in this many of the time for which they have agreed.
const DRIFT: u32 = 1_000;

/// A wall clock that went back has to stay there for this long before new events follow it.
const SETTLING: Duration = Duration::from_secs(60);

/// The wall clock is believed when it has agreed with the monotonic one for this long.
pub(crate) const TRUST_AFTER: Duration = Duration::from_secs(24 * 60 * 60);

/// A clock that was behind at open has this long to catch up. After that it is accepted as it is.
const CATCHES_UP_WITHIN: Duration = Duration::from_secs(60 * 60);

/// The values of both clocks at one moment.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ClockReading {
    pub(crate) wall: Timestamp,
    pub(crate) now: Monotonic,
}

impl ClockReading {
    pub(crate) fn of(clock: &dyn Clock) -> Self {
        Self { wall: clock.wall(), now: clock.now() }
    }
}

/// The time of a hub. `proven` is never after `stamp`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct HubTime {
    /// The enqueued time of an event that is stored now.
    pub(crate) stamp: Timestamp,
    /// The real time is at least this late.
    pub(crate) proven: Timestamp,
}

/// A jump of the wall clock, for the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Jump {
    /// The wall clock went ahead by this much.
    Ahead(Duration),
    /// The wall clock is behind by this much.
    Back(Duration),
}

/// Computes the time of a hub from the wall clock and the monotonic clock.
#[derive(Debug)]
pub(crate) struct HubClock {
    time: HubTime,
    updated_at: Monotonic,
    /// Since when the clocks agree.
    agreed: ClockReading,
    /// Since when the wall clock is behind the stamp.
    behind: Option<Monotonic>,
    /// The jump of the stamps in the last update, if any.
    jumped: Option<StampJump>,
    clock_samples: ClockSamples,
    /// The clock was behind the samples at open, and has not caught up yet.
    late: Option<Late>,
}

/// A clock that was behind when the hub was opened.
#[derive(Clone, Copy, Debug)]
struct Late {
    opened: Monotonic,
    /// The stamp at open.
    stamp: Timestamp,
    /// The earliest stamp since then.
    earliest: Timestamp,
}

impl HubClock {
    /// Starts from the log: its newest stamp, and the last proven time that was stored.
    pub(crate) fn new(
        reading: ClockReading,
        newest: Option<Timestamp>,
        proven: Option<Timestamp>,
        clock_samples: ClockSamples,
    ) -> Self {
        let newest = newest.unwrap_or(reading.wall);
        let proven = proven.unwrap_or_else(|| newest.min(reading.wall));
        let time = HubTime { stamp: reading.wall.max(newest).max(proven), proven };
        let behind = (reading.wall + TOLERANCE < time.stamp).then_some(reading.now);
        let late = clock_samples.contradict(reading.wall).then_some(Late {
            opened: reading.now,
            stamp: time.stamp,
            earliest: time.stamp,
        });
        Self { time, updated_at: reading.now, agreed: reading, behind, jumped: None, clock_samples, late }
    }

    /// Returns the samples to store. A clock that is behind and never catches up leaves none.
    pub(crate) fn clock_samples(&self) -> ClockSamples {
        match self.late {
            Some(_) => ClockSamples { ran: self.clock_samples.ran, ..ClockSamples::default() },
            None => self.clock_samples.clone(),
        }
    }

    /// Returns how far the wall clock was behind the stamps of the log at open.
    pub(crate) fn behind(&self) -> Option<Duration> {
        self.behind.map(|_| self.time.stamp.since(self.agreed.wall))
    }

    /// Whether the clock was behind at open and may still be set. Until then its value is ignored.
    pub(crate) fn may_yet_catch_up(&self) -> bool {
        self.late.is_some()
    }

    /// Returns the jump of the stamps in the last update, if any.
    pub(crate) fn jumped(&self) -> Option<StampJump> {
        self.jumped
    }

    /// Returns the time as of the last update.
    pub(crate) fn time(&self) -> HubTime {
        self.time
    }

    /// Updates the time from a reading of both clocks. Returns a jump of the wall clock.
    pub(crate) fn update(&mut self, reading: ClockReading) -> Option<Jump> {
        let ClockReading { wall, now } = reading;
        let elapsed = now.since(self.updated_at);
        // A reading that waited for a lock may be older than the last one.
        self.updated_at = self.updated_at.max(now);
        let jump = self.compare(reading);
        let expected = self.time.stamp + elapsed;
        let proven = self.time.proven + elapsed;
        self.time.stamp = if wall + TOLERANCE >= expected {
            self.behind = None;
            self.time.stamp.max(wall)
        } else {
            let is_stable = now.since(*self.behind.get_or_insert(now)) >= SETTLING;
            if is_stable { expected.min(wall.max(proven)) } else { expected }
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
        self.take_sample(reading, elapsed, jump.is_some());
        self.follow_samples(wall);
        self.jumped = self.stamp_jump(late, expected, now);
        jump
    }

    /// Takes a sample of the wall clock, unless it is behind and may still be set.
    fn take_sample(&mut self, ClockReading { wall, now }: ClockReading, elapsed: Duration, jumped: bool) {
        match self.late {
            Some(_) if !self.clock_samples.contradict(wall) => self.late = None,
            Some(late) if now.since(late.opened) < CATCHES_UP_WITHIN => {
                let earliest = late.earliest.min(self.time.stamp);
                self.late = Some(Late { earliest, ..late });
            }
            Some(_) => {
                self.late = None;
                self.clock_samples.begin_again(wall);
            }
            None => {
                self.clock_samples.pass(elapsed);
                if jumped {
                    self.clock_samples.begin_again(wall);
                }
                self.clock_samples.set(wall);
            }
        }
    }

    /// Moves the proven time, ahead or back, to what a day of running proves.
    fn follow_samples(&mut self, wall: Timestamp) {
        let Some(proof) = self.clock_samples.proof().filter(|_| self.late.is_none()) else { return };
        if wall + TOLERANCE < self.time.proven {
            self.behind = None;
            self.time = HubTime { stamp: wall, proven: wall };
        }
        self.time.proven = self.time.proven.max(proof.min(self.time.stamp));
    }

    /// Returns the jump of the stamps, if any. While the clock may still be set, its value is ignored.
    fn stamp_jump(&self, was_late: Option<Late>, expected: Timestamp, now: Monotonic) -> Option<StampJump> {
        let to = self.time.stamp;
        let latest = |late: Late| late.stamp + now.since(late.opened);
        let (from, among) = match (was_late, self.late) {
            (Some(_), Some(_)) => return None,
            (Some(late), None) if to > expected + TOLERANCE => {
                (expected, Some((late.earliest, latest(late))))
            }
            // Jumps back since the open were not reported yet.
            (Some(late), None) => (latest(late), None),
            (None, _) => (expected, None),
        };
        let jumped = to > from + TOLERANCE || to + TOLERANCE < from;
        jumped.then_some(StampJump { from, to, among })
    }

    /// Checks whether the clocks still agree. If not, the agreement begins again and the jump is returned.
    fn compare(&mut self, reading: ClockReading) -> Option<Jump> {
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

    fn at(passed: i64, off: i64) -> ClockReading {
        ClockReading { wall: Timestamp(START + passed + off), now: Monotonic(passed as u64 * 1_000_000) }
    }

    fn hub_clock() -> HubClock {
        HubClock::new(at(0, 0), None, None, ClockSamples::default())
    }

    fn time(hub_clock: &HubClock) -> (i64, i64) {
        (hub_clock.time.stamp.0 - START, hub_clock.time.proven.0 - START)
    }

    #[test]
    fn clocks_that_agree_are_one_time() {
        let mut hub_clock = hub_clock();
        for second in 1..100_000 {
            // A clock that is slewed, and stepped a little.
            let off = second / 2_000 + if second % 500 == 0 { -900 } else { 0 };
            assert_eq!(hub_clock.update(at(second * SECOND, off)), None);
        }
        let (stamp, proven) = time(&hub_clock);
        assert!((stamp - 99_999 * SECOND).abs() < 100 && stamp - proven < SECOND, "{stamp} {proven}");
    }

    #[test]
    fn a_jump_ahead_counts_for_stamps_at_once_and_as_proof_after_a_day() {
        let mut hub_clock = hub_clock();
        let jump = Duration::from_millis(10 * DAY as u64);
        assert_eq!(hub_clock.update(at(HOUR, 10 * DAY)), Some(Jump::Ahead(jump)));
        assert_eq!(time(&hub_clock), (HOUR + 10 * DAY, HOUR));
        assert_eq!(hub_clock.update(at(HOUR + DAY - 1, 10 * DAY)), None);
        assert_eq!(time(&hub_clock).1, HOUR + DAY - 1);
        hub_clock.update(at(HOUR + DAY, 10 * DAY));
        assert_eq!(time(&hub_clock), (HOUR + 11 * DAY, HOUR + 11 * DAY));
    }

    #[test]
    fn stamps_follow_a_clock_that_goes_back_when_it_stays_there_but_never_before_what_is_proven() {
        let mut hub_clock = hub_clock();
        hub_clock.update(at(HOUR, 10 * DAY));
        hub_clock.update(at(HOUR + 1, 0));
        assert_eq!(time(&hub_clock), (HOUR + 1 + 10 * DAY, HOUR + 1));
        hub_clock.update(at(HOUR + 1 + 60 * SECOND, 0));
        assert_eq!(time(&hub_clock), (HOUR + 1 + 60 * SECOND, HOUR + 1 + 60 * SECOND));
        for hour in 2..26 {
            hub_clock.update(at(hour * HOUR, -10_000 * DAY));
            assert_eq!(time(&hub_clock), (hour * HOUR, hour * HOUR));
        }
    }

    #[test]
    fn a_clock_that_runs_too_fast_proves_nothing() {
        let mut hub_clock = hub_clock();
        for hour in 1..1_000 {
            hub_clock.update(at(hour * HOUR, hour * HOUR));
            assert_eq!(time(&hub_clock), (2 * hour * HOUR, hour * HOUR));
        }
    }

    #[test]
    fn any_clocks_keep_the_proven_time_between_what_passed_and_the_stamp() {
        let mut chance = fastrand::Rng::with_seed(7);
        for _ in 0..200 {
            let (mut hub_clock, mut passed) = (hub_clock(), 0);
            for _ in 0..200 {
                passed += chance.i64(0..2 * HOUR);
                let before = hub_clock.time();
                hub_clock.update(at(passed, chance.i64(-20_000 * DAY..20_000 * DAY)));
                let after = hub_clock.time();
                assert!(after.proven >= before.proven && after.proven <= after.stamp, "{before:?} {after:?}");
                assert!(after.proven.0 <= START + passed, "no day of agreement, and more than what passed");
            }
        }
    }

    #[test]
    fn a_clock_that_stays_behind_is_followed_after_a_day() {
        let mut hub_clock =
            HubClock::new(at(0, 0), Some(Timestamp(START + 100 * DAY)), None, ClockSamples::default());
        hub_clock.update(at(HOUR, 0));
        assert_eq!(time(&hub_clock), (HOUR, HOUR), "nothing proves the stamps of the log");
        let mut hub_clock =
            HubClock::new(at(0, 0), None, Some(Timestamp(START + 100 * DAY)), ClockSamples::default());
        for hour in 1..24 {
            hub_clock.update(at(hour * HOUR, 0));
            assert_eq!(time(&hub_clock), (100 * DAY + hour * HOUR, 100 * DAY + hour * HOUR));
        }
        hub_clock.update(at(DAY, 0));
        assert_eq!(time(&hub_clock), (DAY, DAY));
    }

    #[test]
    fn extreme_readings_do_not_overflow() {
        let mut hub_clock = hub_clock();
        for wall in [i64::MAX, i64::MIN, 0, i64::MAX] {
            for now in [0, u64::MAX, 1] {
                hub_clock.update(ClockReading { wall: Timestamp(wall), now: Monotonic(now) });
            }
        }
    }
}
