//! The simulated city: its homes, their people and their sensors. Everything is a function of the seed, the
//! home and the minute.
//!
//! ```text
//! City (the facts) ─► ReadingSchedule (the order) ─► the sender ─► the hub
//!                                                       └─► SentReadings ─► the audit
//! ```
//!
//! | file | what is in it |
//! |---|---|
//! | `home.rs` | people and rooms: when they get up, leave, come back and sleep |
//! | `faults.rs` | rare events: break-ins, false alarms, carbon monoxide, empty batteries, wrong clocks, repeats |
//! | `reading_schedule.rs` | [`ReadingSchedule`]: every sensor sends once a minute, at its own moment |
//! | `sent_readings.rs` | [`SentReadings`]: their number and sum for each home |
//! | `sender.rs` | [`Sensors`]: sends what is due until the hub has it |

mod faults;
mod home;
mod reading_schedule;
mod sender;
mod sent_readings;
#[cfg(test)]
mod tests;

use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

pub use faults::{
    BREAK_IN_DAYS, BROKEN_GLASS_FALSE_DAYS, CARBON_MONOXIDE_DAYS, FORGOTTEN_CODES, REPEATS, WRONG_CLOCKS,
};
pub use home::room_of;
pub use reading_schedule::{MAX_PER_CALL, ReadingSchedule};
pub use sender::{Outbox, SendReport, SensorControls, Sensors};
pub use sent_readings::{Sent, SentReadings};

/// All homes, and chance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct City {
    seed: u64,
    homes: u32,
}

impl City {
    /// Creates a city of this many homes. The same seed makes the same city.
    pub fn new(seed: u64, homes: u32) -> Self {
        Self { seed, homes }
    }

    /// Returns the number of homes.
    pub fn homes(&self) -> u32 {
        self.homes
    }

    /// Returns the reading of a sensor at a moment; none if its battery is empty. The sender assigns the number: it is 0 here, as
    /// is the time of pushing.
    pub fn reading(&self, home: u32, sensor: Sensor, at: CityTime) -> Option<Reading> {
        let battery = faults::battery(self, home, sensor, at.minute())?;
        let (day, minute) = (at.day(), at.minute_of_day());
        let plan = home::plan(self, home, day);
        let value = match sensor {
            Sensor::Motion => self.movements(home, day, minute, &plan),
            Sensor::Door => u16::from(self.door_is_open(home, day, minute, &plan)),
            Sensor::Glass => u16::from(faults::glass_breaks(self, home, day, minute, &plan)),
            Sensor::CarbonMonoxide => faults::carbon_monoxide(self, home, day, minute),
        };
        Some(Reading {
            home,
            sensor,
            number: 0,
            at: faults::by_its_clock(self, home, sensor, at),
            pushed: 0,
            value,
            armed: faults::is_armed(self, home, day, minute, &plan),
            battery,
        })
    }

    fn movements(&self, home: u32, day: u32, minute: u16, plan: &home::Day) -> u16 {
        let burglar = faults::burglar_moves(self, home, day, minute, plan);
        home::movements(self, home, day, minute, plan) + if burglar { 7 } else { 0 }
    }

    fn door_is_open(&self, home: u32, day: u32, minute: u16, plan: &home::Day) -> bool {
        home::door_is_open(self, home, day, minute, plan)
            || faults::door_is_forced(self, home, day, minute, plan)
            || faults::stands_in_the_door(self, home, day, minute, plan)
    }

    /// Chance about one matter of one home.
    fn dice(&self, home: u32, matter: Matter, which: u64) -> Dice {
        let mixed = mix(self.seed ^ mix((u64::from(home) << 8) | matter as u64));
        Dice { state: mix(mixed ^ which) }
    }
}

/// The subject of a random choice, so that no two choices depend on each other.
#[derive(Clone, Copy, Debug)]
enum Matter {
    Household,
    Day,
    Holiday,
    Movement,
    Door,
    BreakIn,
    FalseGlass,
    ForgottenCode,
    Gas,
    GasNoise,
    Battery,
    Clock,
    Order,
    Repeat,
}

/// A sequence of random numbers.
struct Dice {
    state: u64,
}

impl Dice {
    fn next(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// True once in `throws` throws.
    fn one_in(&mut self, many: u64) -> bool {
        self.below(many) == 0
    }

    /// Less than this, each alike.
    fn below(&mut self, end: u64) -> u64 {
        // The high half of the product: no division, and no bias that anyone could see.
        ((u128::from(self.next()) * u128::from(end)) >> 64) as u64
    }

    /// A minute from the first to the last.
    fn minute(&mut self, first: u16, last: u16) -> u16 {
        first + self.below(u64::from(last.saturating_sub(first)) + 1) as u16
    }
}

/// Makes a number of which every bit depends on every bit.
fn mix(number: u64) -> u64 {
    let mixed = (number ^ (number >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    mixed ^ (mixed >> 31)
}
