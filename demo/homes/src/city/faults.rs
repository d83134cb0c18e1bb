//! Rare events in the city, their rates and the moments at which they occur: break-ins, false alarms, carbon
//! monoxide, empty batteries, wrong clocks. The comment of each constant gives the rate for 100,000 homes.
//!
//! Together three or four alarms open in a minute of the city on a working day, one of them because a battery is empty.

use std::ops::Range;

use super::home::{Day, moment};
use super::{City, Matter};
use crate::reading::Sensor;
use crate::time::{CityTime, MINUTES_PER_DAY};

/// One in this many armed days of a home has a break-in: 0.1 a minute, each of them two alarms.
pub const BREAK_IN_DAYS: u64 = 500;

/// On one in this many days of a home something sounds like breaking glass: 0.7 a minute.
pub const BROKEN_GLASS_FALSE_DAYS: u64 = 100;

/// One in this many times somebody comes home and forgets the code for two minutes: 1.4 a minute on a working day,
/// most of them in the evening.
pub const FORGOTTEN_CODES: u64 = 40;

/// On one in this many days of a home there is too much carbon monoxide, if it has a detector: 0.14 a minute.
pub const CARBON_MONOXIDE_DAYS: u64 = 500;

/// How many weeks a battery lasts. With three sensors a home one is empty every minute.
const BATTERY_WEEKS: Range<u64> = 20..40;

/// How many minutes it takes until somebody replaces it.
const EMPTY_MINUTES: Range<u64> = 60..360;

/// One in this many sensors has a wrong clock in any week: 150 of 300,000.
pub const WRONG_CLOCKS: u64 = 2_000;

/// One in this many readings is sent again, because the answer was lost: 25 a second at 5,000.
pub const REPEATS: u64 = 200;

const MINUTES_PER_WEEK: u64 = 7 * MINUTES_PER_DAY as u64;

/// Returns the charge of a sensor's battery, in percent; none if it is empty.
pub(super) fn battery(city: &City, home: u32, sensor: Sensor, minute: u64) -> Option<u8> {
    let mut dice = city.dice(home, Matter::Battery, sensor.index() as u64);
    let mut of = |range: Range<u64>| range.start + dice.below(range.end - range.start);
    let life = of(BATTERY_WEEKS) * MINUTES_PER_WEEK + of(0..MINUTES_PER_WEEK);
    let cycle = life + of(EMPTY_MINUTES);
    let age = (minute + of(0..cycle)) % cycle;
    (age < life).then(|| (100 - age * 100 / life) as u8)
}

/// A moment as the sensor's own clock tells it.
pub(super) fn by_its_clock(city: &City, home: u32, sensor: Sensor, at: CityTime) -> CityTime {
    let week = at.minute() / MINUTES_PER_WEEK;
    let mut dice = city.dice(home, Matter::Clock, (week << 2) | sensor.index() as u64);
    if !dice.one_in(WRONG_CLOCKS) {
        return at;
    }
    const HOUR: u64 = 3_600_000;
    CityTime(match dice.below(4) {
        // It never learnt of summer time, or of its end.
        0 => at.0 + HOUR,
        1 => at.0.saturating_sub(HOUR),
        // It lost its power, and began again in 1970.
        2 => at.0 - week * MINUTES_PER_WEEK * 60_000,
        _ => at.0 + dice.below(72 * HOUR),
    })
}

/// The minute in which a break-in begins.
fn break_in(city: &City, home: u32, day: u32, plan: &Day) -> Option<u16> {
    let mut dice = city.dice(home, Matter::BreakIn, u64::from(day));
    let quiet = plan.armed.start + 10..plan.armed.end.saturating_sub(30);
    (dice.one_in(BREAK_IN_DAYS) && !quiet.is_empty()).then(|| dice.minute(quiet.start, quiet.end - 1))
}

/// Whether a break-in is in a stage, given in minutes after the glass breaks.
fn stage(city: &City, home: u32, day: u32, minute: u16, plan: &Day, stage: Range<u16>) -> bool {
    break_in(city, home, day, plan)
        .is_some_and(|begins| minute.checked_sub(begins).is_some_and(|since| stage.contains(&since)))
}

/// The detector keeps saying that glass broke until somebody has come to look.
pub(super) fn glass_breaks(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> bool {
    if stage(city, home, day, minute, plan, 0..15) {
        return true;
    }
    let mut dice = city.dice(home, Matter::FalseGlass, u64::from(day));
    if !dice.one_in(BROKEN_GLASS_FALSE_DAYS) {
        return false;
    }
    let begins = dice.minute(0, MINUTES_PER_DAY - 5);
    (begins..begins + 4).contains(&minute)
}

/// The door, a minute or two after the glass.
pub(super) fn door_is_forced(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> bool {
    stage(city, home, day, minute, plan, 2..9)
}

/// And then somebody moves through the rooms.
pub(super) fn burglar_moves(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> bool {
    stage(city, home, day, minute, plan, 1..9)
}

/// Somebody came home and looks for the code.
fn forgets_the_code(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> bool {
    let looking = plan.armed.end..plan.armed.end + 2;
    plan.comes_back
        && !plan.armed.is_empty()
        && looking.contains(&minute)
        && city.dice(home, Matter::ForgottenCode, u64::from(day)).one_in(FORGOTTEN_CODES)
}

/// The door stays open while the code is looked for.
pub(super) fn stands_in_the_door(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> bool {
    forgets_the_code(city, home, day, minute, plan)
}

/// Whether the house is armed: while the people are away, and until they have found the code.
pub(super) fn is_armed(city: &City, home: u32, day: u32, minute: u16, plan: &Day) -> bool {
    plan.armed.contains(&minute) || forgets_the_code(city, home, day, minute, plan)
}

/// Parts per million in a minute: a little always, and rarely a swell of three quarters of an hour.
pub(super) fn carbon_monoxide(city: &City, home: u32, day: u32, minute: u16) -> u16 {
    let noise = city.dice(home, Matter::GasNoise, moment(day, minute)).below(8) as u16;
    let mut dice = city.dice(home, Matter::Gas, u64::from(day));
    if !dice.one_in(CARBON_MONOXIDE_DAYS) {
        return noise;
    }
    const SWELL: u16 = 45;
    let begins = dice.minute(0, MINUTES_PER_DAY - SWELL - 1);
    let peak = dice.minute(80, 260);
    match minute.checked_sub(begins) {
        Some(since) if since <= SWELL => noise + peak * since.min(SWELL - since) / (SWELL / 2),
        _ => noise,
    }
}
