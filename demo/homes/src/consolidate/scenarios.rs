//! Tests of scenarios in a home: sensor readings, and the alarms and states that result.

use super::{AlarmKind, Consolidation, Homes, OpenAlarms, SILENCE, Today};
use crate::reading::{Reading, Sensor};
use crate::time::CityTime;

const MINUTE: u64 = 60_000;
/// Noon of a day.
const NOON: u64 = 20_000 * 86_400_000 + 12 * 60 * MINUTE;

/// A reading `minute` minutes after noon; its number is that minute and one more.
fn reading(home: u32, sensor: Sensor, minute: u64, value: u16) -> Reading {
    Reading {
        home,
        sensor,
        number: minute as u32 + 1,
        at: CityTime(NOON + minute * MINUTE + u64::from(home)),
        pushed: 0,
        value,
        armed: false,
        battery: 90,
    }
}

fn armed(reading: Reading) -> Reading {
    Reading { armed: true, ..reading }
}

fn fold<C: Consolidation>(state: &mut C, readings: impl IntoIterator<Item = Reading>) {
    for reading in readings {
        let sequence = state.last().map_or(0, |last| last + 1);
        state.fold(sequence, &reading);
    }
}

/// All alarms of a home, oldest first, and whether they are open.
fn alarms_of(homes: &Homes, home: u32) -> Vec<(AlarmKind, u16, bool)> {
    let mut alarms: Vec<_> =
        homes.home(home).unwrap().alarms().map(|alarm| (alarm.kind, alarm.value, alarm.is_open())).collect();
    alarms.reverse();
    alarms
}

fn entries(alarms: &OpenAlarms) -> Vec<(u32, AlarmKind, u16, bool)> {
    alarms
        .newest()
        .iter()
        .rev()
        .map(|entry| (entry.home, entry.alarm.kind, entry.alarm.value, entry.alarm.is_open()))
        .collect()
}

/// Both groups see the same, at every step.
fn both(readings: &[Reading], expected: &[&[(AlarmKind, u16, bool)]]) {
    let (mut homes, mut alarms) = (Homes::default(), OpenAlarms::default());
    for (reading, expected) in readings.iter().zip(expected) {
        fold(&mut homes, [*reading]);
        fold(&mut alarms, [*reading]);
        assert_eq!(alarms_of(&homes, 7), *expected, "{reading:?}");
        let found: Vec<_> =
            entries(&alarms).into_iter().map(|(_, kind, value, open)| (kind, value, open)).collect();
        assert_eq!(found, *expected, "{reading:?}");
    }
}

#[test]
fn breaking_glass_is_an_alarm_until_it_is_quiet() {
    let says = |minute, value| reading(7, Sensor::Glass, minute, value);
    let (open, over) = ((AlarmKind::GlassBreak, 1, true), (AlarmKind::GlassBreak, 1, false));
    both(
        &[says(0, 0), says(1, 1), says(2, 1), says(3, 0), says(4, 0)],
        &[&[], &[open], &[open], &[over], &[over]],
    );
}

#[test]
fn an_open_door_is_an_alarm_only_while_the_house_is_armed() {
    let says = |minute, value| reading(7, Sensor::Door, minute, value);
    let (open, over) = ((AlarmKind::DoorOpen, 1, true), (AlarmKind::DoorOpen, 1, false));
    let disarmed = [says(0, 1), armed(says(1, 0)), armed(says(2, 1)), says(3, 1)];
    both(&disarmed, &[&[], &[], &[open], &[over]]);
    both(&[armed(says(0, 1)), armed(says(1, 0))], &[&[open], &[over]]);
}

#[test]
fn carbon_monoxide_is_an_alarm_from_50_on_with_its_highest_value() {
    let says = |minute, value| reading(7, Sensor::CarbonMonoxide, minute, value);
    let alarm = |value, open| (AlarmKind::CarbonMonoxide, value, open);
    both(
        &[says(0, 49), says(1, 50), says(2, 71), says(3, 60), says(4, 49)],
        &[&[], &[alarm(50, true)], &[alarm(71, true)], &[alarm(71, true)], &[alarm(71, false)]],
    );
    let mut homes = Homes::default();
    fold(&mut homes, [says(0, 71)]);
    let home = homes.home(7).unwrap();
    assert_eq!(home.alarms().next().unwrap().what(), "carbon monoxide 71 ppm");
    assert!(home.in_danger() && !home.is_silent());
}

#[test]
fn a_sensor_that_repeats_an_old_alarm_does_not_open_it_again() {
    let says = |minute, value| reading(7, Sensor::Glass, minute, value);
    let over: &[_] = &[(AlarmKind::GlassBreak, 1, false)];
    both(
        &[says(1, 1), says(2, 0), says(1, 1), says(3, 0), says(2, 0)],
        &[&[(AlarmKind::GlassBreak, 1, true)], over, over, over, over],
    );
}

#[test]
fn a_second_alarm_of_a_kind_is_another_one() {
    let mut homes = Homes::default();
    let mut alarms = OpenAlarms::default();
    let says = [(1, 1), (2, 0), (3, 1)].map(|(minute, value)| reading(7, Sensor::Glass, minute, value));
    fold(&mut homes, says);
    fold(&mut alarms, says);
    let alarm = |open| (AlarmKind::GlassBreak, 1, open);
    assert_eq!(alarms_of(&homes, 7), [alarm(false), alarm(true)]);
    assert_eq!((entries(&alarms), alarms.opened()), (vec![(7, AlarmKind::GlassBreak, 1, true)], 2));
}

/// Everybody speaks every minute of a range, except one sensor.
fn minutes(range: std::ops::Range<u64>, but: (u32, Sensor)) -> Vec<Reading> {
    let all = move |minute| {
        let homes = (0..4).flat_map(move |home| [Sensor::Motion, Sensor::Door].map(|sensor| (home, sensor)));
        homes.map(move |(home, sensor)| reading(home, sensor, minute, 0))
    };
    range.flat_map(all).filter(|reading| (reading.home, reading.sensor) != but).collect()
}

#[test]
fn a_sensor_that_is_not_heard_of_for_five_minutes_is_silent_until_it_is_heard_of() {
    let door = (2, Sensor::Door);
    let mut homes = Homes::default();
    fold(&mut homes, minutes(0..1, (9, Sensor::Door)));
    fold(&mut homes, minutes(1..6, door));
    assert!(
        !homes.home(2).unwrap().is_silent(),
        "the last reading is {SILENCE:?} old, which is not longer than the limit"
    );
    assert_eq!(alarms_of(&homes, 2), []);
    fold(&mut homes, minutes(6..9, door));
    assert_eq!(
        alarms_of(&homes, 2),
        [(AlarmKind::Silent(Sensor::Door), 0, true)],
        "once, however long it lasts"
    );
    let home = homes.home(2).unwrap();
    assert!(home.is_silent() && home.sensor(Sensor::Door).unwrap().silent && !home.in_danger());
    assert!([0, 1, 3].iter().all(|other| !homes.home(*other).unwrap().is_silent()));
    fold(&mut homes, minutes(9..10, (9, Sensor::Door)));
    assert_eq!(alarms_of(&homes, 2), [(AlarmKind::Silent(Sensor::Door), 0, false)]);
    assert!(!homes.home(2).unwrap().is_silent());
    assert_eq!(homes.home(2).unwrap().alarms().next().unwrap().what(), "silent: front door");
}

#[test]
fn silence_is_in_the_update_of_a_home_that_said_nothing() {
    let mut homes = Homes::default();
    let mut reader = Homes::default();
    fold(&mut homes, [reading(9, Sensor::Glass, 0, 0)]);
    fold(&mut homes, minutes(0..5, (9, Sensor::Glass)));
    reader.apply(homes.take_update().unwrap());
    fold(&mut homes, minutes(5..8, (9, Sensor::Glass)));
    let update = homes.take_update().unwrap();
    assert!(update.homes().any(|home| home == 9));
    reader.apply(update);
    assert!(reader.home(9).unwrap().is_silent());
}

#[test]
fn nobody_is_silent_because_there_were_no_events() {
    for pause in [3, 8, 30, 90, 3 * 24 * 60] {
        let mut homes = Homes::default();
        fold(&mut homes, minutes(0..10, (9, Sensor::Door)));
        fold(&mut homes, minutes(pause + 10..pause + 20, (9, Sensor::Door)));
        for (number, home) in homes.iter() {
            assert_eq!(home.alarms().count(), 0, "home {number} after {pause} minutes");
            assert!(home.sensors().all(|(_, sensor)| !sensor.clock_wrong && !sensor.silent));
        }
        assert_eq!(homes.time().minute(), CityTime(NOON).minute() + pause + 19);
    }
}

#[test]
fn nobody_is_silent_because_a_pause_ended_late_in_a_minute() {
    // The clock is set when five have spoken; then a minute ends before the others have.
    let spread = |minute| {
        let all = minutes(minute..minute + 1, (9, Sensor::Door)).into_iter().zip(0..);
        all.map(move |(reading, place)| Reading {
            at: CityTime(NOON + minute * MINUTE + 30_000 + place * 7_000),
            ..reading
        })
    };
    let mut homes = Homes::default();
    fold(&mut homes, (0..10).chain(70..80).flat_map(spread));
    assert!(homes.iter().all(|(_, home)| home.alarms().count() == 0));
}

#[test]
fn a_few_wrong_clocks_that_agree_do_not_move_the_citys() {
    let mut homes = Homes::default();
    for minute in 0..20 {
        fold(&mut homes, minutes(minute..minute + 1, (9, Sensor::Door)));
        // They never learnt of summer time.
        fold(
            &mut homes,
            (0..4).map(|home| {
                let says = reading(home, Sensor::Glass, minute, 0);
                Reading { at: CityTime(says.at.0 - 60 * MINUTE), ..says }
            }),
        );
    }
    assert_eq!(homes.time().minute(), CityTime(NOON).minute() + 19);
    for (_, home) in homes.iter() {
        assert!(home.sensors().all(|(sensor, state)| state.clock_wrong == (sensor == Sensor::Glass)));
        assert_eq!(home.alarms().count(), 0);
    }
}

#[test]
fn a_day_that_is_begun_again_is_emptied_for_readers_too() {
    let (mut homes, mut reader) = (Homes::default(), Homes::default());
    fold(&mut homes, minutes(0..3, (9, Sensor::Door)));
    reader.apply(homes.take_update().unwrap());
    // All say that it is tomorrow, and then that it is not.
    for (minute, number) in [(24 * 60, 4), (3, 5)] {
        let again = minutes(minute..minute + 1, (9, Sensor::Door)).into_iter();
        fold(&mut homes, again.map(|reading| Reading { number, ..reading }));
    }
    assert_eq!(homes.time().day(), CityTime(NOON).day());
    reader.apply(homes.take_update().unwrap());
    assert_eq!(reader, homes);
}

#[test]
fn a_sensor_that_does_not_come_back_after_a_pause_is_silent() {
    let mut homes = Homes::default();
    fold(&mut homes, minutes(0..10, (9, Sensor::Door)));
    fold(&mut homes, minutes(70..80, (2, Sensor::Door)));
    assert_eq!(alarms_of(&homes, 2), [(AlarmKind::Silent(Sensor::Door), 0, true)]);
}

#[test]
fn a_wrong_clock_is_flagged_and_the_citys_time_is_taken() {
    for off in [-86_400_000 * 100, -11 * 60_000, 11 * 60_000, 3_600_000, 86_400_000 * 100_i64] {
        let mut homes = Homes::default();
        let wrong = (3, Sensor::Door);
        for minute in 0..20 {
            fold(&mut homes, minutes(minute..minute + 1, wrong));
            let mut says = reading(3, Sensor::Door, minute, 1);
            says.at = CityTime(says.at.0.saturating_add_signed(off));
            fold(&mut homes, [says]);
        }
        for (number, home) in homes.iter() {
            for (sensor, state) in home.sensors() {
                assert_eq!(
                    state.clock_wrong,
                    (number, sensor) == wrong,
                    "home {number}, {sensor:?}, {off} off"
                );
                assert_eq!(state.heard.minute(), CityTime(NOON).minute() + 19);
            }
            assert_eq!(home.alarms().count(), 0);
        }
        let open = homes.today(3).iter().filter(|marks| **marks & Today::DOOR != 0).count();
        assert_eq!((open, homes.time().minute_of_day()), (20, 12 * 60 + 19));
    }
}

#[test]
fn a_clock_that_is_a_little_fast_makes_nobody_silent() {
    for off in [90_000, 4 * 60_000, 9 * 60_000] {
        let mut homes = Homes::default();
        for minute in 0..30 {
            let mut says = reading(3, Sensor::Glass, minute, 0);
            says.at.0 += off;
            fold(&mut homes, [says]);
            fold(&mut homes, minutes(minute..minute + 1, (9, Sensor::Door)));
        }
        assert!(homes.iter().all(|(_, home)| home.alarms().count() == 0), "{off} ms fast");
        assert!(homes.time().0.abs_diff(NOON + 29 * MINUTE) <= 2 * MINUTE);
    }
}

#[test]
fn the_first_reading_of_all_may_have_a_wrong_clock() {
    for first in [CityTime(0), CityTime(NOON * 2), CityTime(NOON + 3_600_000), CityTime(NOON - 86_400_000)] {
        // Even in a partition of one home, and at any speed: what counts is the city's time.
        for homes_there in [1, 4] {
            let mut homes = Homes::default();
            fold(&mut homes, [Reading { at: first, ..reading(0, Sensor::Glass, 0, 0) }]);
            let others = |reading: &Reading| reading.home < homes_there;
            fold(&mut homes, minutes(0..20, (9, Sensor::Door)).into_iter().filter(others));
            assert_eq!(homes.time().minute(), CityTime(NOON).minute() + 19, "{first:?}, {homes_there} homes");
            let right = |home: u32| homes.home(home).unwrap().sensor(Sensor::Door).unwrap();
            assert!((0..homes_there).all(|home| !right(home).clock_wrong && !right(home).silent));
            assert!(homes.today(0)[720..740].iter().all(|marks| *marks != 0));
        }
    }
}

#[test]
fn a_new_day_begins_with_empty_minutes() {
    let mut homes = Homes::default();
    let mut reader = Homes::default();
    let evening = 11 * 60 + 50;
    fold(&mut homes, (evening..evening + 10).map(|minute| reading(7, Sensor::Motion, minute, 3)));
    assert_eq!(homes.today(7)[1_439], Today::HEARD | Today::MOVEMENT);
    reader.apply(homes.take_update().unwrap());
    fold(&mut homes, [reading(8, Sensor::Motion, evening + 10, 0)]);
    assert_eq!(homes.today(7), [0; 1_440], "it has sent nothing today");
    // A reading of yesterday that comes late is counted, and marks nothing.
    fold(&mut homes, [reading(7, Sensor::Door, evening + 9, 1), reading(7, Sensor::Door, evening + 10, 1)]);
    let mut expected = [0; 1_440];
    expected[0] = Today::HEARD | Today::DOOR;
    assert_eq!(homes.today(7), expected);
    assert_eq!(homes.home(7).unwrap().readings(), 12);
    reader.apply(homes.take_update().unwrap());
    assert_eq!(reader.today(7), expected);
    assert_eq!(reader, homes);
}

#[test]
fn a_minute_is_marked_with_what_happened_in_it() {
    let mut homes = Homes::default();
    let says = [
        reading(7, Sensor::Motion, 0, 2),
        reading(7, Sensor::Door, 0, 1),
        reading(7, Sensor::Glass, 1, 1),
        reading(7, Sensor::Motion, 2, 0),
        reading(7, Sensor::Glass, 3, 0),
    ];
    fold(&mut homes, says);
    let today = homes.today(7);
    assert_eq!(today[720..724], [1 + 2 + 4, 1 + 8, 1 + 8, 1], "an alarm stays open until it ends");
    assert_eq!(today.iter().filter(|marks| **marks != 0).count(), 4);
    let home = homes.home(7).unwrap();
    assert!(!home.is_active() && !home.armed());
    assert_eq!(home.sensor(Sensor::Door).unwrap().value, 1);
    assert_eq!(home.sensor(Sensor::CarbonMonoxide), None);
}

#[test]
fn a_reading_that_was_overtaken_is_counted_and_says_nothing_of_the_present() {
    let mut homes = Homes::default();
    fold(&mut homes, [armed(reading(7, Sensor::Motion, 5, 0)), reading(7, Sensor::Motion, 4, 9)]);
    let home = homes.home(7).unwrap();
    assert_eq!((home.readings(), home.repeats(), home.armed()), (2, 0, true));
    assert_eq!(home.sensor(Sensor::Motion).unwrap().value, 0);
    assert_eq!(homes.today(7)[724], Today::HEARD | Today::MOVEMENT);
}

#[test]
fn events_that_are_no_readings_are_skipped_and_counted() {
    let (mut homes, mut alarms) = (Homes::default(), OpenAlarms::default());
    homes.skip(4);
    homes.skip(4);
    alarms.skip(4);
    homes.fold(3, &reading(7, Sensor::Glass, 0, 1));
    alarms.fold(4, &reading(7, Sensor::Glass, 0, 1));
    assert_eq!((homes.last(), alarms.last()), (Some(4), Some(4)));
    let totals = homes.totals();
    assert_eq!((totals.readings, totals.repeats, totals.replayed, totals.skipped), (0, 0, 2, 1));
    assert_eq!((alarms.replayed(), alarms.newest().len()), (1, 0));
    assert!(homes.take_update().is_some() && alarms.take_update().is_some());
}

#[test]
fn the_desk_has_updates_only_for_alarms_and_now_and_then_for_its_clock() {
    let mut alarms = OpenAlarms::default();
    fold(&mut alarms, [reading(7, Sensor::Glass, 0, 0)]);
    assert!(alarms.take_update().is_some(), "the clock was founded");
    fold(&mut alarms, (1..5).map(|minute| reading(7, Sensor::Glass, minute, 0)));
    assert!(alarms.take_update().is_none());
    fold(&mut alarms, [reading(7, Sensor::Glass, 5, 1)]);
    let update = alarms.take_update().unwrap();
    assert_eq!(update.alarms().len(), 1);
    assert_eq!((update.alarms()[0].home, update.alarms()[0].alarm.what().as_str()), (7, "glass break"));
    fold(&mut alarms, (6..11).map(|minute| reading(8, Sensor::Motion, minute, 0)));
    assert_eq!(alarms.take_update().unwrap().alarms(), [], "five minutes of the clock");
}

#[test]
fn an_alarm_from_a_wrong_clock_is_told_with_the_citys_time() {
    let mut alarms = OpenAlarms::default();
    fold(&mut alarms, minutes(0..3, (9, Sensor::Door)));
    fold(&mut alarms, [Reading { at: CityTime(5), ..reading(7, Sensor::Glass, 3, 1) }]);
    assert_eq!(alarms.newest()[0].alarm.since, alarms.time());
}

#[test]
fn the_desk_forgets_the_oldest_of_many_that_are_over() {
    let (mut alarms, mut reader) = (OpenAlarms::default(), OpenAlarms::default());
    for home in 0..2_000 {
        // Some stay open.
        let last = if home % 500 == 0 { 1 } else { 0 };
        fold(&mut alarms, [reading(home, Sensor::Glass, 0, 1), reading(home, Sensor::Glass, 1, last)]);
        if home % 300 == 0 {
            reader.apply(alarms.take_update().unwrap());
        }
    }
    reader.apply(alarms.take_update().unwrap());
    assert_eq!(reader, alarms);
    let open = alarms.newest().iter().filter(|entry| entry.alarm.is_open()).count();
    assert_eq!((open, alarms.newest().len(), alarms.opened()), (4, 260, 2_000));
    assert_eq!(alarms.newest()[0].home, 1_999);
}

#[test]
fn a_home_keeps_few_alarms_that_are_over() {
    let mut homes = Homes::default();
    fold(&mut homes, (0..100).map(|minute| reading(7, Sensor::Glass, minute, (minute % 2) as u16)));
    assert_eq!(alarms_of(&homes, 7).len(), 7);
    assert!(alarms_of(&homes, 7)[6].2);
}
