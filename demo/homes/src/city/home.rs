//! Simulates the people and rooms of one home: when people get up, leave, return and sleep, and the movements
//! and open doors of each minute. `mod.rs` makes readings of them.

use std::ops::Range;

use super::{City, Matter, mix};
use crate::reading::Sensor;
use crate::time::MINUTES_PER_DAY;

/// Minutes between the door and the moment from which on the house is armed.
const MINUTES_TO_ARM: u16 = 2;

/// A home's day, in minutes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Day {
    pub(super) people: u16,
    pub(super) awake: Range<u16>,
    /// When nobody is there; empty if somebody stays.
    pub(super) away: Range<u16>,
    /// When the house is armed; empty if it is not.
    pub(super) armed: Range<u16>,
    /// Whether they come back today.
    pub(super) comes_back: bool,
    pet: bool,
}

/// The room that a sensor hangs in. It does not depend on the seed: it is the house that has it.
pub fn room_of(home: u32, sensor: Sensor) -> &'static str {
    let rooms: &[&str] = match sensor {
        Sensor::Motion => &["living room", "kitchen", "stairs", "landing"],
        Sensor::Door => &["hall"],
        Sensor::Glass => &["living room", "bedroom", "veranda", "study"],
        Sensor::CarbonMonoxide => &["kitchen", "cellar", "garage"],
    };
    let which = mix((u64::from(home) << 2) | sensor.index() as u64);
    rooms[(which % rooms.len() as u64) as usize]
}

/// Returns the day of a home's people.
pub(super) fn plan(city: &City, home: u32, day: u32) -> Day {
    let mut house = city.dice(home, Matter::Household, 0);
    let people = 1 + house.below(4) as u16 + house.below(2) as u16;
    let pet = house.one_in(6);
    let works = !house.one_in(4);
    if city.dice(home, Matter::Holiday, u64::from(day / 7)).one_in(30) {
        let all = 0..MINUTES_PER_DAY;
        return Day { people, awake: 0..0, away: all.clone(), armed: all, comes_back: false, pet };
    }
    let mut today = city.dice(home, Matter::Day, u64::from(day));
    // The first of January 1970 was a Thursday.
    let weekend = (day + 3) % 7 >= 5;
    let wake = if weekend { today.minute(420, 600) } else { today.minute(330, 480) };
    let sleep = today.minute(1_290, 1_430);
    let away = if works && !weekend {
        today.minute(wake + 30, wake + 100)..today.minute(960, 1_140)
    } else if today.one_in(3) {
        0..0
    } else {
        let leave = today.minute(wake + 60, wake + 400);
        leave..leave + today.minute(45, 240)
    };
    let arms = !away.is_empty() && !today.one_in(8);
    let armed = if arms { away.start + MINUTES_TO_ARM..away.end } else { 0..0 };
    Day { people, awake: wake..sleep, comes_back: !away.is_empty(), away, armed, pet }
}

/// Movements that the people, or their pet, make in a minute.
pub(super) fn movements(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> u16 {
    let mut now = city.dice(home, Matter::Movement, moment(day, minute));
    let pet = u16::from(plan.pet && now.one_in(12));
    let asleep = !plan.awake.contains(&minute);
    if plan.away.contains(&minute) {
        pet
    } else if asleep {
        pet + u16::from(now.one_in(60))
    } else if now.below(10) < 4 + u64::from(plan.people) {
        pet + now.minute(1, 2 * plan.people)
    } else {
        pet
    }
}

/// Whether somebody goes through the door in a minute.
pub(super) fn door_is_open(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> bool {
    if plan.comes_back && (minute == plan.away.start || minute == plan.away.end) {
        return true;
    }
    let at_home = plan.awake.contains(&minute) && !plan.away.contains(&minute);
    at_home && city.dice(home, Matter::Door, moment(day, minute)).one_in(150)
}

/// Any minute of any day.
pub(super) fn moment(day: u32, minute: u16) -> u64 {
    u64::from(day) * u64::from(MINUTES_PER_DAY) + u64::from(minute)
}
