//! Tests that a wake-up by another process arrives, and that waiting for one costs almost no CPU time. The
//! delay is printed, not checked.

use std::time::{Duration, Instant};

use ephor_core::store::Store;

use crate::child_process::{ChildProcess, orders, say, wait_for_the_end};
use crate::fixture::{Folder, P, beat, claim, group, hand_over, host, next, poll, wait};

/// The cost of waiting, measured for this long.
const IDLE: Duration = Duration::from_secs(2);

#[test]
#[expect(clippy::disallowed_methods, reason = "it measures real time")]
fn who_is_woken_by_another_process_hears_of_it_soon() {
    let folder = Folder::new();
    let store = folder.open();
    beat(&store, "b");
    // It waits before anything happens, and between two waits.
    for round in 0..5 {
        let (here, b) = (group(), host("b"));
        let mut waiting = store.changed(&here, &b);
        if round % 2 == 0 {
            assert!(poll(waiting.as_mut()).is_none());
        }
        let mut child = ChildProcess::start("wakes::hand_over_as_a_child", folder.path(), "");
        let said = next(&child.words);
        let since = Instant::now();
        assert_eq!(said, "handed over");
        wait(waiting);
        println!("woken {:?} after the other process had its answer", since.elapsed());
        assert!(child.stop().success());
    }
}

/// Not a test of its own.
#[test]
fn hand_over_as_a_child() {
    let Some((folder, _)) = orders() else { return };
    let store = ephor_stores::sqlite::SqliteStore::open(folder.join("ephor.db")).unwrap();
    let token = claim(&store, P, "a");
    hand_over(&store, &token, "b");
    say("handed over");
    wait_for_the_end();
}

#[test]
fn waiting_costs_next_to_nothing() {
    let folder = Folder::new();
    let mut child = ChildProcess::start("wakes::wait_as_a_child", folder.path(), "");
    let spent: u64 = next(&child.words).parse().unwrap();
    println!("{IDLE:?} of waiting cost {spent} us of CPU time");
    assert!(spent < 200_000, "{spent} us");
    assert!(child.stop().success());
}

/// Not a test of its own.
#[test]
#[expect(clippy::disallowed_methods, reason = "it waits for nothing, in real time")]
fn wait_as_a_child() {
    let Some((folder, _)) = orders() else { return };
    let store = ephor_stores::sqlite::SqliteStore::open(folder.join("ephor.db")).unwrap();
    for name in ["a", "b", "c"] {
        beat(&store, name);
    }
    let (here, hosts) = (group(), ["a", "b", "c"].map(host));
    let mut waiting: Vec<_> = hosts.iter().map(|host| store.changed(&here, host)).collect();
    assert!(waiting.iter_mut().all(|each| poll(each.as_mut()).is_none()));
    let before = cpu_time();
    std::thread::sleep(IDLE);
    let after = cpu_time();
    assert!(waiting.iter_mut().all(|each| poll(each.as_mut()).is_none()));
    say(&(after - before).to_string());
    wait_for_the_end();
}

/// The CPU time that this process has used, in microseconds.
fn cpu_time() -> u64 {
    let time = rustix::time::clock_gettime(rustix::time::ClockId::ProcessCPUTime);
    u64::try_from(time.tv_sec).unwrap() * 1_000_000 + u64::try_from(time.tv_nsec).unwrap() / 1_000
}
