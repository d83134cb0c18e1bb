//! Tests of the simulated city: deterministic by seed, even load, people that sleep at night, and the rates
//! of rare events.

use std::collections::BTreeMap;

use super::*;
use crate::consolidate::{CARBON_MONOXIDE_ALARM, WRONG_CLOCK};
use crate::time::MINUTES_PER_DAY;

const MINUTE: u64 = 60_000;
/// A Monday begins.
const MIDNIGHT: CityTime = CityTime(20_605 * 86_400_000);

fn later(minutes: u64) -> CityTime {
    CityTime(MIDNIGHT.0 + minutes * MINUTE)
}

/// All that is due, however many calls it takes.
fn all(schedule: &mut ReadingSchedule, until: CityTime, carbon_monoxide: bool) -> Vec<(Reading, bool)> {
    let mut all = Vec::new();
    loop {
        let due = schedule.due(until, carbon_monoxide);
        assert!(due.len() <= MAX_PER_CALL);
        if due.is_empty() {
            return all;
        }
        all.extend(due);
    }
}

fn first_sendings(due: Vec<(Reading, bool)>) -> Vec<Reading> {
    due.into_iter().filter_map(|(reading, repeat)| (!repeat).then_some(reading)).collect()
}

#[test]
fn the_same_seed_makes_the_same_city_however_it_is_asked() {
    let city = City::new(7, 500);
    let at_once = all(&mut ReadingSchedule::new(city, MIDNIGHT, 1.0), later(10), true);
    let (mut schedule, mut in_steps) = (ReadingSchedule::new(city, MIDNIGHT, 1.0), Vec::new());
    for step in 1..=10 * 60 * 2 {
        in_steps.extend(all(&mut schedule, CityTime(MIDNIGHT.0 + step * 500), true));
    }
    assert_eq!(at_once, in_steps);
    assert!(at_once.len() > 500 * 4 * 9);
    assert_ne!(at_once, all(&mut ReadingSchedule::new(City::new(8, 500), MIDNIGHT, 1.0), later(10), true));
    assert_eq!(schedule.reached(), later(10));
}

#[test]
fn the_load_is_even() {
    let mut schedule = ReadingSchedule::new(City::new(1, 2_000), MIDNIGHT, 1.0);
    all(&mut schedule, later(1), false);
    for second in 1..=60 {
        let due = first_sendings(all(&mut schedule, CityTime(MIDNIGHT.0 + MINUTE + second * 1_000), false));
        // 6,000 a minute.
        assert!((90..=110).contains(&due.len()), "{} in second {second}", due.len());
    }
}

#[test]
fn a_detector_in_every_home_is_a_third_more_and_joins_evenly() {
    let city = City::new(1, 2_000);
    let mut schedule = ReadingSchedule::new(city, later(0), 1.0);
    let before = first_sendings(all(&mut schedule, CityTime(later(3).0 + 20_000), false));
    assert!(before.iter().all(|reading| reading.sensor != Sensor::CarbonMonoxide));
    for second in 1..=60 {
        let due = first_sendings(all(&mut schedule, CityTime(later(3).0 + 20_000 + second * 1_000), true));
        assert!((118..=147).contains(&due.len()), "{} in second {second}", due.len());
    }
    let minute = first_sendings(all(&mut schedule, CityTime(later(5).0 + 20_000), true));
    let detectors = minute.iter().filter(|reading| reading.sensor == Sensor::CarbonMonoxide);
    assert!(detectors.clone().count() > 1_980 && detectors.clone().all(|reading| reading.number == 2));
    let off = first_sendings(all(&mut schedule, later(8), false));
    assert!(off.iter().all(|reading| reading.sensor != Sensor::CarbonMonoxide));
    let on = first_sendings(all(&mut schedule, later(9), true));
    let mut detectors = on.iter().filter(|reading| reading.sensor == Sensor::CarbonMonoxide);
    assert!(detectors.clone().count() > 1_980 && detectors.all(|reading| reading.number == 3));
}

#[test]
fn every_sensor_counts_from_1_without_gaps_and_in_order_of_time() {
    let city = City::new(3, 300);
    let mut schedule = ReadingSchedule::new(city, MIDNIGHT, 10.0);
    let due = all(&mut schedule, later(24 * 60), true);
    let (mut last, mut repeats) = (BTreeMap::new(), 0_usize);
    for (reading, repeat) in &due {
        let last = last.entry((reading.home, reading.sensor)).or_insert(0);
        if *repeat {
            repeats += 1;
            // Up to three seconds of real time are half a minute of this city.
            assert!(*last - reading.number <= 1, "{reading:?} after {last}");
        } else {
            assert_eq!(reading.number, *last + 1, "{reading:?}");
            *last = reading.number;
        }
    }
    let expected = due.len() / REPEATS as usize;
    assert!(repeats.abs_diff(expected) < expected / 5, "{repeats} repeats, {expected} expected");
    let right =
        |reading: &Reading| faults::by_its_clock(&city, reading.home, reading.sensor, MIDNIGHT) == MIDNIGHT;
    let by_right_clocks: Vec<_> = first_sendings(due).into_iter().filter(right).collect();
    assert!(by_right_clocks.is_sorted_by_key(|reading| reading.at));
}

#[test]
fn a_repeat_is_the_same_reading() {
    let mut schedule = ReadingSchedule::new(City::new(3, 300), MIDNIGHT, 1.0);
    let due = all(&mut schedule, later(30), false);
    let firsts: BTreeMap<_, _> = due
        .iter()
        .filter(|(_, repeat)| !repeat)
        .map(|(reading, _)| ((reading.home, reading.sensor, reading.number), *reading))
        .collect();
    let repeats: Vec<_> = due.iter().filter(|(_, repeat)| *repeat).collect();
    assert!(repeats.len() > 50);
    for (reading, _) in repeats {
        assert_eq!(firsts[&(reading.home, reading.sensor, reading.number)], *reading);
    }
}

/// The totals of a day of 2,000 homes, minute by minute.
#[derive(Debug, Default)]
struct Tally {
    /// Movements by hour.
    movements: [u64; 24],
    /// Minutes with an open door, by hour.
    doors: [u64; 24],
    /// Homes that are armed at noon, and at four in the morning.
    armed: [u32; 2],
    glass: u32,
    door: u32,
    gas: u32,
    /// Sensors of the first three whose battery went empty.
    emptied: u32,
    wrong_clocks: u32,
}

const HOMES: u32 = 2_000;

fn tally(city: &City) -> Tally {
    let mut tally = Tally::default();
    for home in 0..HOMES {
        let mut before = [None; 4];
        for minute in 0..u64::from(MINUTES_PER_DAY) {
            let (at, hour) = (later(minute), minute as usize / 60);
            let now = Sensor::ALL.map(|sensor| city.reading(home, sensor, at));
            for (before, now) in before.iter().zip(now) {
                count(&mut tally, hour, *before, now, minute);
            }
            let armed = now[0].is_some_and(|reading| reading.armed);
            tally.armed[0] += u32::from(armed && minute == 12 * 60);
            tally.armed[1] += u32::from(armed && minute == 4 * 60);
            before = now;
        }
    }
    tally
}

fn count(tally: &mut Tally, hour: usize, before: Option<Reading>, now: Option<Reading>, minute: u64) {
    let Some(now) = now else {
        tally.emptied += u32::from(before.is_some_and(|before| before.sensor != Sensor::CarbonMonoxide));
        return;
    };
    let began = |matter: &dyn Fn(&Reading) -> bool| matter(&now) && !before.as_ref().is_some_and(matter);
    match now.sensor {
        Sensor::Motion => tally.movements[hour] += u64::from(now.value),
        Sensor::Door => {
            tally.doors[hour] += u64::from(now.value);
            tally.door += u32::from(began(&|reading| reading.value > 0 && reading.armed));
        }
        Sensor::Glass => tally.glass += u32::from(began(&|reading| reading.value > 0)),
        Sensor::CarbonMonoxide => {
            tally.gas += u32::from(began(&|reading| reading.value >= CARBON_MONOXIDE_ALARM));
        }
    }
    tally.wrong_clocks += u32::from(minute == 0 && now.at.apart(MIDNIGHT) > WRONG_CLOCK);
}

#[test]
fn a_day_is_plausible_and_what_is_rare_is_rare() {
    let tally = tally(&City::new(11, HOMES));
    let (night, evening) = (tally.movements[3], tally.movements[20]);
    assert!(night * 10 < evening && night > 0, "people sleep: {:?}", tally.movements);
    assert!(tally.movements[12] * 2 < evening, "most are away at noon: {:?}", tally.movements);
    assert_eq!(tally.doors[3], 0, "{:?}", tally.doors);
    assert!(tally.doors[17] > tally.doors[13], "they come home: {:?}", tally.doors);
    assert!((1_000..1_700).contains(&tally.armed[0]), "{:?} of {HOMES} armed", tally.armed);
    assert!((20..150).contains(&tally.armed[1]), "only those on holiday: {:?}", tally.armed);
    // Expected of 2,000 homes: 20 false ones and 3 break-ins; 30 forgotten codes and 3 break-ins; 4; 20; 4 of 8,000 sensors.
    assert!((10..40).contains(&tally.glass), "{tally:?}");
    assert!((15..60).contains(&tally.door), "{tally:?}");
    assert!((1..12).contains(&tally.gas), "{tally:?}");
    assert!((8..40).contains(&tally.emptied), "{tally:?}");
    assert!((1..12).contains(&tally.wrong_clocks), "{tally:?}");
}

#[test]
fn the_rates_at_100_000_homes_are_as_stated() {
    let city = City::new(1, 100_000);
    let (mut break_ins, mut codes, mut glass, mut gas) = (0, 0, 0, 0);
    let day = MIDNIGHT.day();
    for home in 0..city.homes() {
        let plan = home::plan(&city, home, day);
        let forced =
            (plan.armed.clone()).any(|minute| faults::door_is_forced(&city, home, day, minute, &plan));
        break_ins += u32::from(forced);
        codes += u32::from(faults::is_armed(&city, home, day, plan.armed.end, &plan));
        let break_in = forced && faults::glass_breaks(&city, home, day, plan.armed.start, &plan);
        glass +=
            u32::from(city.dice(home, Matter::FalseGlass, u64::from(day)).one_in(BROKEN_GLASS_FALSE_DAYS));
        gas += u32::from(city.dice(home, Matter::Gas, u64::from(day)).one_in(CARBON_MONOXIDE_DAYS));
        assert!(!break_in, "no break-in while people pass the door");
    }
    let a_minute = |count: u32| f64::from(count) / f64::from(MINUTES_PER_DAY);
    eprintln!(
        "a minute: {:.2} break-ins, {:.2} forgotten codes, {:.2} false glass, {:.2} carbon monoxide",
        a_minute(break_ins),
        a_minute(codes),
        a_minute(glass),
        a_minute(gas)
    );
    assert!((0.07..0.15).contains(&a_minute(break_ins)), "{break_ins} break-ins");
    assert!((1.2..1.5).contains(&a_minute(codes)), "{codes} forgotten codes");
    assert!((0.6..0.8).contains(&a_minute(glass)), "{glass} false ones");
    assert!((0.1..0.18).contains(&a_minute(gas)), "{gas} times carbon monoxide");
}

#[test]
fn a_break_in_is_glass_then_the_door_then_movement_in_an_armed_house() {
    let city = City::new(1, 100_000);
    let day = MIDNIGHT.day();
    let broken = |home: &u32| {
        let plan = home::plan(&city, *home, day);
        plan.comes_back
            && plan.armed.clone().any(|minute| faults::door_is_forced(&city, *home, day, minute, &plan))
    };
    let home = (0..city.homes()).find(broken).unwrap();
    let says = |sensor, minute| city.reading(home, sensor, later(minute)).unwrap();
    let minutes = 0..u64::from(MINUTES_PER_DAY);
    let glass = minutes.clone().find(|minute| says(Sensor::Glass, *minute).value > 0).unwrap();
    let alarming = |reading: Reading| reading.value > 0 && reading.armed;
    let door = minutes.clone().find(|minute| alarming(says(Sensor::Door, *minute))).unwrap();
    assert_eq!(door, glass + 2);
    assert!(says(Sensor::Motion, glass + 3).value >= 7 && says(Sensor::Motion, glass + 3).armed);
}

#[test]
fn a_battery_falls_for_weeks_is_empty_for_hours_and_is_replaced() {
    let city = City::new(5, 10);
    let hours = 24 * 7 * 45;
    let levels: Vec<_> = (0..hours * 2)
        .map(|half| city.reading(4, Sensor::Glass, later(half * 30)).map(|reading| reading.battery))
        .collect();
    let empty = levels.iter().filter(|level| level.is_none()).count();
    assert!((2..=26).contains(&empty), "{empty} half hours");
    let rises = levels.iter().flatten().zip(levels.iter().flatten().skip(1)).filter(|(a, b)| b > a).count();
    assert!((1..=2).contains(&rises), "{rises} times replaced in 45 weeks");
    assert!(levels.contains(&Some(1)) && levels.contains(&Some(100)));
}

#[test]
fn every_sensor_hangs_in_a_room() {
    let rooms = |sensor| {
        (0..1_000).map(|home| room_of(home, sensor)).collect::<std::collections::BTreeSet<_>>().len()
    };
    assert_eq!(Sensor::ALL.map(rooms), [4, 1, 4, 3]);
}

#[test]
fn a_city_without_homes_is_quiet() {
    let mut schedule = ReadingSchedule::new(City::new(1, 0), MIDNIGHT, 1.0);
    assert_eq!(schedule.due(later(60), true), []);
    assert_eq!(schedule.reached(), later(60));
}
