//! The simulated clocks of machines, which are skewed, drift or jump.

use std::time::Duration;

use ephor_core::time::{Clock, Monotonic, Timestamp};

use crate::executor::{Handle, Machine};

/// The date on which every simulation begins: 2018-04-15T00:00:00Z.
pub const FIRST_DAY: Timestamp = Timestamp(1_523_750_400_000);

const MILLION: i128 = 1_000_000;

/// The relation of a machine's clocks to virtual time.
///
/// The monotonic clock may be ahead, and run fast or slow; it may jump forward (the machine was suspended),
/// stand still (a virtual machine that its host stopped) and never goes back. The wall clock follows it, and
/// can be set to anything.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MachineClock {
    /// The virtual time from which the rest counts.
    since: Monotonic,
    /// The reading of the monotonic clock at that time.
    reads: Monotonic,
    /// The reading of the wall clock at that time, in nanoseconds since 1970.
    wall: i64,
    rate_ppm: i32,
}

impl MachineClock {
    /// A clock that is `offset` ahead of virtual time at its start and gains
    /// `rate_ppm` microseconds in every second from then on.
    pub fn new(offset: Duration, rate_ppm: i32) -> Self {
        assert_ppm(rate_ppm);
        Self { since: Monotonic(0), reads: Monotonic(0) + offset, wall: FIRST_DAY.0 * 1_000_000, rate_ppm }
    }

    /// The reading of the monotonic clock at this virtual time.
    pub fn read(&self, at: Monotonic) -> Monotonic {
        self.reads + self.elapsed(at)
    }

    /// The reading of the wall clock at this virtual time.
    pub fn wall(&self, at: Monotonic) -> Timestamp {
        Timestamp(self.wall_nanoseconds(at).div_euclid(1_000_000))
    }

    /// The first virtual time at which the monotonic clock reads at least `reading`.
    pub fn when(&self, reading: Monotonic) -> Monotonic {
        if reading == Monotonic::NEVER {
            return Monotonic::NEVER;
        }
        let left = reading.since(self.reads);
        if self.rate_ppm == 0 || left.is_zero() {
            return self.since + left;
        }
        let rate = MILLION + i128::from(self.rate_ppm);
        if rate == 0 {
            return Monotonic::NEVER;
        }
        let nanoseconds = (as_i128(left) * MILLION + rate - 1) / rate;
        self.since + Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }

    /// Runs at another rate from `now` on. At -1,000,000 it stands still.
    pub fn run_at(&mut self, now: Monotonic, rate_ppm: i32) {
        assert_ppm(rate_ppm);
        self.anchor(now);
        self.rate_ppm = rate_ppm;
    }

    /// Moves both clocks forward by this much at once.
    pub fn jump(&mut self, now: Monotonic, by: Duration) {
        self.anchor(now);
        self.reads = self.reads + by;
        self.wall = self.wall.saturating_add(i64::try_from(by.as_nanos()).unwrap_or(i64::MAX));
    }

    /// Sets the wall clock alone forward or back.
    pub fn shift_wall(&mut self, by_milliseconds: i64) {
        self.wall = self.wall.saturating_add(by_milliseconds.saturating_mul(1_000_000));
    }

    fn anchor(&mut self, now: Monotonic) {
        (self.reads, self.wall, self.since) = (self.read(now), self.wall_nanoseconds(now), now);
    }

    fn wall_nanoseconds(&self, at: Monotonic) -> i64 {
        self.wall.saturating_add(i64::try_from(self.elapsed(at).as_nanos()).unwrap_or(i64::MAX))
    }

    fn elapsed(&self, at: Monotonic) -> Duration {
        let true_time = at.since(self.since);
        if self.rate_ppm == 0 {
            return true_time;
        }
        let nanoseconds = as_i128(true_time) * (MILLION + i128::from(self.rate_ppm)) / MILLION;
        Duration::from_nanos(u64::try_from(nanoseconds).unwrap_or(u64::MAX))
    }
}

impl Default for MachineClock {
    /// A clock that is right.
    fn default() -> Self {
        Self::new(Duration::ZERO, 0)
    }
}

fn as_i128(duration: Duration) -> i128 {
    i128::try_from(duration.as_nanos()).expect("a duration in nanoseconds fits")
}

fn assert_ppm(rate_ppm: i32) {
    assert!(i128::from(rate_ppm) >= -MILLION, "a clock cannot run backwards: {rate_ppm} ppm");
}

/// The clock of a machine, as an object to pass around. In a run the store has a clock of its own, and the
/// hub the world's.
#[derive(Clone, Debug)]
pub struct SimClock {
    handle: Handle,
    machine: Machine,
}

impl SimClock {
    /// The clock of this machine.
    pub fn new(handle: Handle, machine: Machine) -> Self {
        Self { handle, machine }
    }
}

impl Clock for SimClock {
    fn now(&self) -> Monotonic {
        self.handle.clock_of(self.machine).read(self.handle.now())
    }

    fn wall(&self) -> Timestamp {
        self.handle.clock_of(self.machine).wall(self.handle.now())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seconds(n: u64) -> Monotonic {
        Monotonic(n * 1_000_000_000)
    }

    #[test]
    fn a_clock_may_be_ahead_and_run_fast() {
        let clock = MachineClock::new(Duration::from_secs(100), 20_000);
        assert_eq!(clock.read(seconds(0)), seconds(100));
        assert_eq!(clock.read(seconds(50)), seconds(151));
        assert_eq!(clock.wall(seconds(50)), FIRST_DAY + Duration::from_secs(51));
        assert_eq!(MachineClock::default().read(seconds(7)), seconds(7));
        assert_eq!(FIRST_DAY.to_string(), "2018-04-15T00:00:00.000Z");
    }

    #[test]
    fn a_change_of_rate_does_not_make_a_clock_jump() {
        let mut clock = MachineClock::new(Duration::ZERO, -500_000);
        assert_eq!(clock.read(seconds(10)), seconds(5));
        clock.run_at(seconds(10), 500_000);
        assert_eq!(clock.read(seconds(10)), seconds(5));
        assert_eq!(clock.read(seconds(20)), seconds(20));
        clock.jump(seconds(20), Duration::from_secs(3));
        assert_eq!(clock.read(seconds(20)), seconds(23));
        assert_eq!(clock.wall(seconds(20)), FIRST_DAY + Duration::from_secs(23));
        clock.shift_wall(-60_000);
        assert_eq!(clock.read(seconds(20)), seconds(23));
        assert_eq!(clock.wall(seconds(20)), FIRST_DAY - Duration::from_secs(37));
    }

    #[test]
    fn when_is_the_first_instant_at_which_the_reading_is_reached() {
        for rate in [-300_000, -7, 0, 3, 250_001] {
            let mut clock = MachineClock::new(Duration::from_nanos(17), rate);
            clock.run_at(Monotonic(1_000), rate);
            for reading in [2_018, 5_003, 1_000_000_007] {
                let when = clock.when(Monotonic(reading));
                assert!(clock.read(when) >= Monotonic(reading), "{rate} {reading}");
                assert!(clock.read(Monotonic(when.0 - 1)) < Monotonic(reading), "{rate} {reading}");
            }
            assert_eq!(clock.when(Monotonic::NEVER), Monotonic::NEVER);
        }
    }

    #[test]
    #[should_panic(expected = "a clock cannot run backwards")]
    fn a_clock_does_not_run_back() {
        MachineClock::new(Duration::ZERO, -1_000_001);
    }

    #[test]
    fn a_clock_may_stand_still_and_go_on() {
        let mut clock = MachineClock::default();
        clock.run_at(seconds(5), -1_000_000);
        assert_eq!(
            (clock.read(seconds(9)), clock.wall(seconds(9))),
            (seconds(5), FIRST_DAY + Duration::from_secs(5))
        );
        assert_eq!((clock.when(seconds(5)), clock.when(seconds(6))), (seconds(5), Monotonic::NEVER));
        clock.run_at(seconds(9), 0);
        assert_eq!((clock.read(seconds(10)), clock.when(seconds(6))), (seconds(6), seconds(10)));
    }
}
