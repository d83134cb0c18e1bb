//! Tests of the store's clock: it counts suspended time, ignores changes of the wall clock, never runs
//! backwards, and belongs to one machine.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ephor_core::store::{RenewalOutcome, Store, StoreError};
use ephor_core::time::Timestamp;
use ephor_stores::sqlite::{OpenError, SqliteStore};

use crate::fixture::{Folder, HandMachine, LEASE, P, claim, group, on, save, wait};

const MORNING: i64 = 1_800_000_000_000;

fn machine(name: &str, boot: &str, wall: i64) -> Arc<HandMachine> {
    HandMachine::new(Some(name), boot, wall, 5_000)
}

fn now(store: &SqliteStore) -> Timestamp {
    wait(store.view(&group())).unwrap().at
}

fn age(store: &SqliteStore) -> Duration {
    wait(store.view(&group())).unwrap().lease(P).unwrap().age
}

#[test]
fn setting_the_wall_clock_changes_no_age_and_no_date() {
    let (folder, machine) = (Folder::new(), machine("vm", "first", MORNING));
    let store = folder.open_on(&machine);
    claim(&store, P, "a");
    for wall in [0, MORNING - 3_600_000, MORNING + 86_400_000] {
        machine.wall.store(wall, Ordering::SeqCst);
        assert_eq!((now(&store), age(&store)), (Timestamp(MORNING), Duration::ZERO));
        let another = folder.open_on(&machine);
        assert_eq!((now(&another), age(&another)), (Timestamp(MORNING), Duration::ZERO));
    }
    machine.pass(1_234);
    assert_eq!((now(&store), age(&store)), (Timestamp(MORNING + 1_234), Duration::from_millis(1_234)));
}

#[test]
fn after_a_restart_of_the_machine_time_goes_on_and_never_back() {
    let (folder, first) = (Folder::new(), machine("vm", "first", MORNING));
    let store = folder.open_on(&first);
    let token = claim(&store, P, "a");
    first.pass(10_000);
    save(&store, &token, 1).unwrap();
    drop(store);
    // The battery of the clock is empty: 1970.
    let second = machine("vm", "second", 42);
    let store = folder.open_on(&second);
    assert_eq!((now(&store), age(&store)), (Timestamp(MORNING + 10_000), Duration::from_secs(10)));
    second.pass(500);
    assert_eq!(age(&store), Duration::from_millis(10_500));
    drop(store);
    let third = machine("vm", "third", MORNING + 60_000);
    let store = folder.open_on(&third);
    assert_eq!((now(&store), age(&store)), (Timestamp(MORNING + 60_000), Duration::from_secs(60)));
}

const YEARS: i64 = 10 * 365 * 86_400_000;

#[test]
fn a_wall_clock_that_jumps_by_years_while_hosts_run_ages_nothing() {
    for jump in [YEARS, -YEARS] {
        let (folder, machine) = (Folder::new(), machine("vm", "first", MORNING));
        let store = folder.open_on(&machine);
        let token = claim(&store, P, "a");
        machine.pass(1_000);
        machine.wall.fetch_add(jump, Ordering::SeqCst);
        for store in [&store, &folder.open_on(&machine)] {
            assert_eq!((now(store), age(store)), (Timestamp(MORNING + 1_000), Duration::from_secs(1)));
        }
        assert_eq!(wait(store.renew(&group(), LEASE, &[token])).unwrap(), [RenewalOutcome::Renewed]);
        machine.pass(500);
        assert_eq!(age(&store), Duration::from_millis(500));
    }
}

/// The clock is wrong by years at one start and right at the next: whoever owned something before died with the
/// machine, and from then on a second is a second.
#[test]
fn a_machine_that_starts_with_a_clock_years_off_makes_nobody_wait() {
    for jump in [YEARS, -YEARS] {
        let folder = Folder::new();
        claim(&folder.open_on(&machine("vm", "first", MORNING)), P, "dead");
        for (boot, wall) in [("second", MORNING + jump), ("third", MORNING + 60_000)] {
            let machine = machine("vm", boot, wall);
            let store = folder.open_on(&machine);
            let began = now(&store);
            assert!(began >= Timestamp(MORNING), "{began}");
            let token = claim(&store, P, boot);
            machine.pass(20_000);
            assert_eq!(
                (now(&store), age(&store)),
                (began + Duration::from_secs(20), Duration::from_secs(20))
            );
            assert_eq!(wait(store.renew(&group(), LEASE, &[token])).unwrap(), [RenewalOutcome::Renewed]);
            assert_eq!(age(&store), Duration::ZERO);
            assert!(wait(store.view(&group())).unwrap().lease(P).unwrap().takeover_delay <= LEASE);
        }
    }
}

#[test]
fn a_machine_that_was_set_back_to_an_earlier_state_goes_on() {
    let (folder, machine) = (Folder::new(), machine("vm", "first", MORNING));
    let store = folder.open_on(&machine);
    machine.pass(3_600_000);
    claim(&store, P, "a");
    machine.pass(-3_600_000);
    let token = claim(&store, P, "a");
    assert_eq!(now(&store), Timestamp(MORNING + 3_600_000));
    machine.pass(100);
    save(&store, &token, 1).unwrap();
    assert_eq!(now(&store), Timestamp(MORNING + 3_600_100));
}

#[test]
fn a_file_that_another_machine_uses_is_refused() {
    let folder = Folder::new();
    let (here, there) = (machine("vm", "first", MORNING), machine("vm2", "other", MORNING + 4_000));
    let store = folder.open_on(&here);
    claim(&store, P, "a");
    let error = SqliteStore::open_with(folder.database(), on(&there)).expect_err("it is in use");
    assert!(matches!(error, OpenError::OtherMachine { .. }), "{error}");
    let text = error.to_string();
    assert!(text.contains("another machine wrote to this file 4 s ago"), "{text}");
    assert!(text.contains("ephor.db") && text.contains("PostgreSQL"), "{text}");
    // Long after, the file has been moved there.
    there.pass(60_000);
    let moved = folder.open_on(&there);
    claim(&moved, P, "b");
    // Whoever still has it open here may not go on.
    for error in
        [wait(store.view(&group())).map(drop), wait(store.retire(&group(), &crate::fixture::host("a")))]
    {
        let error = error.expect_err("it belongs to the other machine");
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert!(error.to_string().contains("another machine has opened this file"), "{error}");
    }
    claim(&moved, P, "c");
}
