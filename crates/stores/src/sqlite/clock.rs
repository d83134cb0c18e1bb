//! The store's clock: the time since boot, plus a base for each boot that is stored in the database.
//!
//! ```text
//!   store time = time since boot + base        base = max(wall clock, last time stored) at the first open
//! ```
//!
//! The clock continues while the machine is suspended, ignores changes of the wall clock, is the same
//! for all processes, and never runs backwards, not even if the wall clock is wrong after a reboot.
//! The functions here are pure; the row is in the table `state`.

use std::time::Duration;

use ephor_core::time::Timestamp;

use super::machine::Machine;

/// A machine that wrote within this time is assumed to be running.
const STILL_RUNNING: Duration = Duration::from_secs(60);

/// In milliseconds. The time since boot never decreases; if it does by more than this, the machine was
/// restored from a snapshot.
const SET_BACK: i64 = 10_000;

/// The stored state of the clock, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct ClockRow {
    /// The boot that the base belongs to.
    pub(super) boot: String,
    pub(super) machine: Option<String>,
    pub(super) base: i64,
    /// The store's time of the last write.
    pub(super) seen: i64,
    /// The wall clock at the last write.
    pub(super) wall: i64,
}

/// A reading of the machine's clocks, in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Reading {
    pub(super) boot: String,
    pub(super) machine: Option<String>,
    pub(super) since_boot: i64,
    pub(super) wall: i64,
}

impl Reading {
    pub(super) fn take(machine: &dyn Machine, boot: &str, name: Option<&str>) -> Self {
        Self {
            boot: boot.to_owned(),
            machine: name.map(str::to_owned),
            since_boot: i64::try_from(machine.since_boot().as_millis()).unwrap_or(i64::MAX),
            wall: machine.wall().0,
        }
    }
}

/// Another machine uses the file at the same time.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "another machine {when}, but only processes of one machine may share a SQLite file: stop one of them, or \
     use PostgreSQL for both"
)]
pub struct OtherMachine {
    when: String,
}

/// The clock when a process opens the file: the stored one, or a new one after a reboot.
pub(super) fn open(row: Option<ClockRow>, reading: &Reading) -> Result<ClockRow, OtherMachine> {
    let Some(row) = row else { return Ok(started_at(reading, reading.wall)) };
    if row.boot == reading.boot {
        return Ok(advance(row, reading));
    }
    let both_named = row.machine.is_some() && reading.machine.is_some();
    let since = Duration::from_millis(reading.wall.abs_diff(row.wall));
    if both_named && row.machine != reading.machine && since < STILL_RUNNING {
        let seconds = since.as_secs();
        return Err(OtherMachine { when: format!("wrote to this file {seconds} s ago") });
    }
    Ok(started_at(reading, reading.wall.max(row.seen)))
}

/// The clock in a transaction of a store that is open.
pub(super) fn read(row: ClockRow, reading: &Reading) -> Result<ClockRow, OtherMachine> {
    if row.boot != reading.boot {
        return Err(OtherMachine { when: "has opened this file while it was in use here".into() });
    }
    Ok(advance(row, reading))
}

impl ClockRow {
    /// The store's time when the clock was read.
    pub(super) fn now(&self) -> Timestamp {
        Timestamp(self.seen)
    }
}

fn started_at(reading: &Reading, now: i64) -> ClockRow {
    ClockRow {
        boot: reading.boot.clone(),
        machine: reading.machine.clone(),
        base: now.saturating_sub(reading.since_boot),
        seen: now,
        wall: reading.wall,
    }
}

fn advance(row: ClockRow, reading: &Reading) -> ClockRow {
    let now = reading.since_boot.saturating_add(row.base);
    if now < row.seen.saturating_sub(SET_BACK) {
        // Otherwise the time would stand still until the machine has caught up.
        return started_at(reading, reading.wall.max(row.seen));
    }
    ClockRow { seen: now.max(row.seen), wall: reading.wall, ..row }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reading(boot: &str, since_boot: i64, wall: i64) -> Reading {
        Reading { boot: boot.into(), machine: Some("vm".into()), since_boot, wall }
    }

    fn first() -> ClockRow {
        open(None, &reading("a", 1_000, 500_000)).unwrap()
    }

    #[test]
    fn it_begins_with_the_wall_clock_and_then_only_counts() {
        assert_eq!(first().now(), Timestamp(500_000));
        let later = read(first(), &reading("a", 1_500, 500_500)).unwrap();
        assert_eq!(later.now(), Timestamp(500_500));
    }

    #[test]
    fn setting_the_wall_clock_changes_nothing() {
        for wall in [0, 500_500, 9_000_000, i64::MAX] {
            assert_eq!(read(first(), &reading("a", 1_500, wall)).unwrap().now(), Timestamp(500_500));
            assert_eq!(open(Some(first()), &reading("a", 1_500, wall)).unwrap().now(), Timestamp(500_500));
        }
    }

    #[test]
    fn after_a_start_of_the_machine_it_goes_on_from_the_later_of_wall_clock_and_last_time() {
        let slow = read(first(), &reading("a", 9_000, 0)).unwrap();
        assert_eq!(slow.now(), Timestamp(508_000));
        let right = open(Some(slow.clone()), &reading("b", 7, 900_000)).unwrap();
        assert_eq!(right.now(), Timestamp(900_000));
        let wrong = open(Some(slow), &reading("b", 7, 12)).unwrap();
        assert_eq!(wrong.now(), Timestamp(508_000));
        assert_eq!(read(wrong, &reading("b", 107, 12)).unwrap().now(), Timestamp(508_100));
    }

    #[test]
    fn it_never_runs_backwards() {
        let late = ClockRow { seen: 500_900, ..first() };
        let backwards = read(late.clone(), &reading("a", 1_500, 0)).unwrap();
        assert_eq!((backwards.now(), backwards.base), (late.now(), late.base));
    }

    #[test]
    fn a_machine_that_was_set_back_does_not_stop_the_time() {
        let long_after = ClockRow { seen: 600_000, ..first() };
        let back = read(long_after, &reading("a", 1_500, 450_000)).unwrap();
        assert_eq!(back.now(), Timestamp(600_000));
        assert_eq!(read(back, &reading("a", 1_600, 450_100)).unwrap().now(), Timestamp(600_100));
    }

    #[test]
    fn another_machine_that_writes_now_is_noticed_on_both_sides() {
        let elsewhere = |wall| Reading { machine: Some("vm2".into()), ..reading("b", 7, wall) };
        let error = open(Some(first()), &elsewhere(503_000)).expect_err("it wrote just now");
        assert!(error.to_string().contains("3 s ago") && error.to_string().contains("PostgreSQL"), "{error}");
        open(Some(first()), &elsewhere(497_000)).expect_err("its clock may be a little ahead");
        let moved = open(Some(first()), &elsewhere(560_000)).expect("the file was moved here");
        let error = read(moved, &reading("a", 1_500, 560_000)).expect_err("it was taken away");
        assert!(error.to_string().contains("while it was in use here"), "{error}");
    }

    #[test]
    fn without_names_another_boot_is_taken_for_a_start_of_this_machine() {
        let nameless = Reading { machine: None, ..reading("b", 7, 500_001) };
        assert_eq!(open(Some(first()), &nameless).unwrap().now(), Timestamp(500_001));
        let named = ClockRow { machine: None, ..first() };
        assert!(open(Some(named), &reading("b", 7, 500_001)).is_ok());
    }
}
