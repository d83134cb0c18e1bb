//! Tests that updates and snapshots of the consolidated state are small, for 6,250 homes: one partition's
//! share of 100,000. Prints the sizes and the time per reading.

use std::time::Instant;

use super::{Consolidation, Homes, OpenAlarms};
use crate::city::{City, ReadingSchedule};
use crate::time::CityTime;

const HOMES: u32 = 6_250;
/// A Friday, six in the morning.
const START: CityTime = CityTime(20_000 * 86_400_000 + 6 * 3_600_000);
const MINUTE: u64 = 60_000;

/// Folds the city's readings of `minutes` minutes; takes an update after each `every` readings. Gives the largest, in bytes.
fn run<C: Consolidation>(
    state: &mut C,
    schedule: &mut ReadingSchedule,
    minutes: u64,
    every: usize,
) -> (usize, u64, f64) {
    let (until, mut largest, mut folded, mut took) =
        (CityTime(schedule.reached().0 + minutes * MINUTE), 0, 0, 0.0);
    while schedule.reached() < until {
        let due = schedule.due(until, true);
        for some in due.chunks(every) {
            let began = Instant::now();
            for (reading, _) in some {
                state.fold(state.last().map_or(0, |last| last + 1), reading);
            }
            took += began.elapsed().as_secs_f64();
            folded += some.len() as u64;
            let bytes = state.take_update().map_or(0, |update| postcard::to_stdvec(&update).unwrap().len());
            largest = largest.max(bytes);
        }
    }
    (largest, folded, took * 1e9 / folded as f64)
}

#[test]
fn updates_and_snapshots_are_small() {
    let mut schedule = ReadingSchedule::new(City::new(1, HOMES), START, 1.0);
    let mut homes = Homes::default();
    let (largest, folded, each) = run(&mut homes, &mut schedule, 16, 300);
    let early = postcard::to_stdvec(&homes).unwrap().len();
    eprintln!(
        "homes: {folded} readings, {each:.0} ns each; largest update of 300: {largest} bytes; snapshot: {early} bytes"
    );
    assert!(largest < 40_000, "an update of 300 homes has {largest} bytes");
    assert!(early < 1_500_000, "a snapshot after 16 minutes has {early} bytes");
    let mut alarms = OpenAlarms::default();
    let (largest, folded, each) = run(&mut alarms, &mut schedule, 16, 300);
    let snapshot = postcard::to_stdvec(&alarms).unwrap().len();
    eprintln!(
        "alarms: {folded} readings, {each:.0} ns each; largest update: {largest} bytes; snapshot: {snapshot} \
         bytes"
    );
    assert!(largest < 1_000 && snapshot < 20_000, "{largest} and {snapshot} bytes");
}

#[test]
fn a_whole_day_packs_well() {
    const FEW: u32 = 100;
    let midnight = CityTime(20_000 * 86_400_000);
    let mut schedule = ReadingSchedule::new(City::new(1, FEW), midnight, 60.0);
    let mut homes = Homes::default();
    let (_, folded, each) = run(&mut homes, &mut schedule, 1_440, 1_000);
    let bytes = postcard::to_stdvec(&homes).unwrap().len() / FEW as usize;
    eprintln!("a day: {folded} readings, {each:.0} ns each; {bytes} bytes a home");
    assert!(bytes < 500, "a home has {bytes} bytes after a day");
}
