//! Tests that errors name the process that holds the write lock, that reads continue meanwhile, that closing
//! the log releases no lock, and that the last process leaves the log in place.

use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::Duration;

use ephor_core::store::{Store, StoreError};
use ephor_stores::sqlite::{OpenError, SqliteOptions, SqliteStore};
use rustix::process::{Pid, Signal, kill_process};

use crate::child_process::{ChildProcess, orders, say, wait_for_the_end};
use crate::fixture::{Folder, P, claim, group, next, save, stored, wait};

fn impatient() -> SqliteOptions {
    SqliteOptions { busy_wait: Duration::from_millis(100), ..SqliteOptions::default() }
}

/// Returns when all threads of the process are stopped.
#[expect(clippy::disallowed_methods, reason = "the system does not signal that a process has stopped")]
pub(crate) fn stop(process: u32) {
    kill_process(Pid::from_raw(process as i32).unwrap(), Signal::STOP).unwrap();
    let stopped = |task: &Path| {
        let stat = fs::read_to_string(task.join("stat")).unwrap_or_default();
        stat.rsplit_once(") ").is_none_or(|(_, rest)| rest.starts_with('T'))
    };
    let tasks = || fs::read_dir(format!("/proc/{process}/task")).unwrap().map(|task| task.unwrap().path());
    while !tasks().all(|task| stopped(&task)) {
        std::thread::sleep(Duration::from_micros(100));
    }
}

pub(crate) fn go_on(process: u32) {
    kill_process(Pid::from_raw(process as i32).unwrap(), Signal::CONT).unwrap();
}

/// Not a test of its own: holds the write lock as a tool in the hands of a person may.
#[test]
fn hold_the_lock_as_a_child() {
    let Some((folder, _)) = orders() else { return };
    let connection = rusqlite::Connection::open(folder.join("ephor.db")).unwrap();
    connection.execute_batch("BEGIN IMMEDIATE; UPDATE state SET wall = wall;").unwrap();
    say("locked");
    wait_for_the_end();
}

#[test]
fn whoever_holds_the_write_lock_is_named_and_whether_it_is_stopped() {
    let folder = Folder::new();
    let store = SqliteStore::open_with(folder.database(), impatient()).unwrap();
    let token = claim(&store, P, "a");
    let mut child = ChildProcess::start("locks::hold_the_lock_as_a_child", folder.path(), "");
    assert_eq!(next(&child.words), "locked");
    let process = child.child.id();
    let memory = folder.database().with_extension("db-shm");
    let locked = || {
        let before = (locks_on(&folder.database()), locks_on(&memory));
        let error = save(&store, &token, 1).expect_err("the lock is held");
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        // To look for the holder takes no lock away from this process.
        assert_eq!((locks_on(&folder.database()), locks_on(&memory)), before);
        error.to_string()
    };
    let text = locked();
    assert!(text.contains(&format!("process {process} (")), "{text}");
    assert!(text.contains("holds the write lock") && !text.contains("stopped"), "{text}");
    stop(process);
    let text = locked();
    let advice = format!("holds the write lock and is stopped: continue it (kill -CONT {process}) or end it");
    assert!(text.contains(&advice), "{text}");
    // Who reads waits for nobody.
    assert_eq!(wait(store.view(&group())).unwrap().leases.len(), 1);
    let error = SqliteStore::open_with(folder.database(), impatient()).expect_err("it is locked");
    assert!(matches!(error, OpenError::Busy { .. }) && error.to_string().contains(&advice), "{error}");
    go_on(process);
    assert!(child.stop().success());
    save(&store, &token, 1).unwrap();
    assert_eq!(stored(&store, P), Some(1));
}

#[test]
fn another_part_of_the_same_process_is_named_as_such() {
    let folder = Folder::new();
    let store = SqliteStore::open_with(folder.database(), impatient()).unwrap();
    let token = claim(&store, P, "a");
    let sql = folder.sql();
    sql.execute_batch("BEGIN IMMEDIATE").unwrap();
    let error = save(&store, &token, 1).expect_err("the lock is held").to_string();
    assert!(error.contains("another part of this process") && error.contains("the write lock"), "{error}");
    sql.execute_batch("ROLLBACK").unwrap();
    save(&store, &token, 1).unwrap();
}

/// All locks on a file, once the system shows the same a few times over: it tells them in pieces, and leaves
/// some out while other tests lock other files.
fn locks_on(file: &Path) -> Vec<String> {
    let (mut last, mut same) = (look_for_locks_on(file), 0);
    while same < 5 {
        let locks = look_for_locks_on(file);
        same = if locks == last { same + 1 } else { 0 };
        last = locks;
    }
    last
}

fn look_for_locks_on(file: &Path) -> Vec<String> {
    let ending = format!(":{} ", fs::metadata(file).unwrap().ino());
    let locks = fs::read_to_string("/proc/locks").unwrap();
    let kind_and_place = |line: &str| line.split_once(": ").unwrap().1.to_owned();
    let mut locks: Vec<_> = locks.lines().filter(|line| line.contains(&ending)).map(kind_and_place).collect();
    locks.sort();
    // It also tells some of them twice.
    locks.dedup();
    locks
}

/// A process loses its locks on a file as soon as it closes any handle to it, so it matters which files the
/// store opens by itself.
#[test]
fn closing_a_handle_to_the_log_takes_no_lock_away() {
    let folder = Folder::new();
    let store = folder.open();
    let token = claim(&store, P, "a");
    let (database, log) = (folder.database(), folder.database().with_extension("db-wal"));
    let memory = folder.database().with_extension("db-shm");
    let before = (locks_on(&database), locks_on(&memory));
    assert!(!before.0.is_empty() && !before.1.is_empty(), "{before:?}");
    assert_eq!(locks_on(&log), Vec::<String>::new());
    fs::File::open(&log).unwrap().sync_data().unwrap();
    // Another store on the same file opens and closes everything that a store opens by itself.
    drop(folder.open());
    save(&store, &token, 1).unwrap();
    assert_eq!((locks_on(&database), locks_on(&memory)), before);
    // The test can tell: this is what must never happen.
    drop(fs::File::open(&memory).unwrap());
    assert_eq!(locks_on(&memory), Vec::<String>::new());
}

/// To tidy up it would have to lock everybody out, and if it were stopped then, for as long as it is stopped.
#[test]
#[expect(clippy::disallowed_methods, reason = "the system does not signal that a lock is released")]
fn whoever_closes_last_leaves_the_log_as_it_is() {
    let folder = Folder::new();
    let store = folder.open();
    claim(&store, P, "a");
    drop(store);
    while !locks_on(&folder.database()).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
    }
    assert!(fs::metadata(folder.database().with_extension("db-wal")).unwrap().len() > 0);
    assert_eq!(wait(folder.open().view(&group())).unwrap().leases.len(), 1);
}
