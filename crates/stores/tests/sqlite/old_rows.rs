//! Tests that old rows are deleted: changes of a long history, and hosts that nobody has heard of for long.

use ephor_core::ids::PartitionId;
use ephor_core::store::{DesiredState, Store};

use crate::fixture::{Folder, HandMachine, P, beat, claim, group, host, wait};

const Q: PartitionId = PartitionId(4);

#[test]
fn the_history_of_a_partition_is_bounded() {
    let folder = Folder::new();
    let store = folder.open();
    claim(&store, Q, "b");
    let mut last = claim(&store, P, "a");
    for _ in 0..100 {
        last = claim(&store, P, "a");
    }
    let history = wait(store.history(&group(), Some(P), usize::MAX)).unwrap();
    assert_eq!((history.len(), history[0].epoch), (100, last.epoch));
    assert_eq!(history.last().unwrap().epoch.get(), 2);
    assert_eq!(wait(store.history(&group(), None, usize::MAX)).unwrap().len(), 101);
}

#[test]
fn who_is_not_heard_of_for_an_hour_is_forgotten() {
    let (folder, machine) = (Folder::new(), HandMachine::new(None, "boot", 1_800_000_000_000, 0));
    let store = folder.open_on(&machine);
    let hosts = || wait(store.view(&group())).unwrap().hosts.len();
    let wakes =
        || -> i64 { folder.sql().query_row("SELECT count(*) FROM wakes", [], |row| row.get(0)).unwrap() };
    beat(&store, "lost");
    // An order that was taken back leaves it as it was, and a wake that nobody hears.
    for drain in [true, false] {
        assert!(wait(store.set_desired_state(&group(), &host("lost"), DesiredState { drain })).unwrap());
    }
    machine.pass(3_599_999);
    beat(&store, "a");
    assert_eq!((hosts(), wakes()), (2, 1));
    machine.pass(1);
    beat(&store, "a");
    assert_eq!((hosts(), wakes()), (1, 0));
}

#[test]
fn who_shall_drain_is_forgotten_a_day_later_and_its_desired_state_with_it() {
    let (folder, machine) = (Folder::new(), HandMachine::new(None, "boot", 1_800_000_000_000, 0));
    let store = folder.open_on(&machine);
    let orders =
        || -> i64 { folder.sql().query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap() };
    for (after, left) in [(86_399_999, 1), (86_400_000, 0)] {
        beat(&store, "lost");
        assert!(
            wait(store.set_desired_state(&group(), &host("lost"), DesiredState { drain: true })).unwrap()
        );
        machine.pass(after);
        beat(&store, "a");
        assert_eq!(orders(), left);
        // One that was only paused still learns of it.
        assert_eq!(beat(&store, "lost").drain, left == 1);
    }
    beat(&store, "lost");
    assert!(wait(store.set_desired_state(&group(), &host("lost"), DesiredState { drain: true })).unwrap());
    wait(store.retire(&group(), &host("lost"))).unwrap();
    assert!(!beat(&store, "lost").drain);
}
