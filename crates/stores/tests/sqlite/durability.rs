//! Tests that acknowledged writes are on disk, that the write lock is free during a sync, and that a failing
//! or full disk, or a replaced file, is reported.

use std::io;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{channel, sync_channel};
use std::sync::{Arc, Mutex};

use ephor_core::lease::LeaseToken;
use ephor_core::store::{SaveOutcome, SaveRequest, Store, StoreError};
use ephor_stores::sqlite::SqliteStore;

use crate::fixture::{
    Folder, HandMachine, LEASE, P, PATIENCE, claim, finished, group, host, next, poll, save, stored,
    try_claim, wait,
};
use crate::small_disk::on_small_disk;

fn machine() -> Arc<HandMachine> {
    HandMachine::new(None, "boot", 1_800_000_000_000, 0)
}

#[test]
fn a_write_is_answered_after_one_sync_and_what_writes_nothing_needs_none() {
    let (folder, machine) = (Folder::new(), machine());
    let store = folder.open_on(&machine);
    let mut before = machine.syncs();
    let mut syncs = || {
        let now = machine.syncs();
        now - std::mem::replace(&mut before, now)
    };
    let token = claim(&store, P, "a");
    assert_eq!(syncs(), 1);
    save(&store, &token, 1).unwrap();
    assert_eq!(syncs(), 1);
    let late = LeaseToken { owner: host("b"), ..token.clone() };
    wait(store.renew(&group(), LEASE, &[late])).unwrap();
    assert!(matches!(save(&store, &token, 0).unwrap(), SaveOutcome::Behind { .. }));
    wait(store.view(&group())).unwrap();
    wait(store.history(&group(), None, 10)).unwrap();
    wait(store.groups()).unwrap();
    assert_eq!(syncs(), 0);
}

#[test]
fn what_is_answered_is_in_the_files_as_they_were_last_brought_to_disk() {
    let (folder, machine) = (Folder::new(), machine());
    let copy = Arc::new(Folder::new());
    let (from, to) = (folder.database(), copy.clone());
    let store = folder.open_on(&machine);
    machine.on_sync(move || {
        // All that a power failure leaves.
        std::fs::copy(from.with_extension("db-wal"), to.database().with_extension("db-wal")).map(drop)
    });
    let token = claim(&store, P, "a");
    for sequence in 1..=20 {
        save(&store, &token, sequence).unwrap();
        std::fs::copy(folder.database(), copy.database()).unwrap();
        let after = copy.open_on(&self::machine());
        assert_eq!(stored(&after, P), Some(sequence));
        assert_eq!(wait(after.view(&group())).unwrap().lease(P).unwrap().token(), Some(token.clone()));
        drop(after);
        for entry in std::fs::read_dir(copy.path()).unwrap() {
            std::fs::remove_file(entry.unwrap().path()).unwrap();
        }
    }
}

#[test]
fn calls_that_wait_together_share_one_sync_and_the_lock_is_free_meanwhile() {
    const CALLS: u64 = 20;
    let (folder, machine) = (Folder::new(), machine());
    let (store, other) = (folder.open_on(&machine), folder.open_on(&self::machine()));
    let token = claim(&store, P, "a");
    let others = claim(&other, ephor_core::ids::PartitionId(4), "b");
    let (entered, inside) = channel();
    let (go, gate) = sync_channel::<()>(0);
    let gate = Mutex::new(gate);
    machine.on_sync(move || {
        entered.send(()).unwrap();
        gate.lock().unwrap().recv_timeout(PATIENCE).map_err(io::Error::other)
    });
    let requests: Vec<_> = (0..CALLS).map(|n| SaveRequest::new(&token, &finished(n), None)).collect();
    let here = group();
    let before = machine.syncs();
    let mut saves: Vec<_> = requests.iter().map(|request| store.save(&here, request)).collect();
    assert!(poll(saves[0].as_mut()).is_none());
    next(&inside);
    // The first is committed, waits for the disk and is not answered. The others queue up behind it.
    for each in &mut saves {
        assert!(poll(each.as_mut()).is_none());
    }
    // Whoever shares the file sees it, and writes: nobody holds the lock.
    assert_eq!(stored(&other, P), Some(0));
    assert!(matches!(save(&other, &others, 7).unwrap(), SaveOutcome::Saved(_)));
    go.send(()).unwrap();
    next(&inside);
    go.send(()).unwrap();
    for save in saves {
        assert!(matches!(wait(save).unwrap(), SaveOutcome::Saved(_)));
    }
    assert_eq!(machine.syncs() - before, 2);
    assert_eq!(stored(&other, P), Some(CALLS - 1));
}

#[test]
fn a_call_that_was_given_up_while_it_queued_is_not_done() {
    let (folder, machine) = (Folder::new(), machine());
    let store = folder.open_on(&machine);
    let token = claim(&store, P, "a");
    let (entered, inside) = channel();
    let (go, gate) = sync_channel::<()>(0);
    let gate = Mutex::new(gate);
    machine.on_sync(move || {
        entered.send(()).unwrap();
        gate.lock().unwrap().recv_timeout(PATIENCE).map_err(io::Error::other)
    });
    let (first, second) =
        (SaveRequest::new(&token, &finished(1), None), SaveRequest::new(&token, &finished(2), None));
    let here = group();
    let (mut waits, mut given_up) = (store.save(&here, &first), store.save(&here, &second));
    assert!(poll(waits.as_mut()).is_none());
    next(&inside);
    assert!(poll(given_up.as_mut()).is_none());
    drop(given_up);
    go.send(()).unwrap();
    assert!(matches!(wait(waits).unwrap(), SaveOutcome::Saved(_)));
    assert_eq!(stored(&store, P), Some(1));
}

#[test]
fn after_a_disk_that_did_not_store_nothing_more_is_acknowledged() {
    let (folder, machine) = (Folder::new(), machine());
    let store = folder.open_on(&machine);
    let token = claim(&store, P, "a");
    let failing = Arc::new(AtomicBool::new(true));
    let fails = failing.clone();
    machine.on_sync(move || match fails.load(Ordering::SeqCst) {
        true => Err(io::Error::from_raw_os_error(5)),
        false => Ok(()),
    });
    let told = |error: StoreError| {
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        let text = error.to_string();
        assert!(text.contains("the disk did not store") && text.contains("restart this host"), "{text}");
    };
    told(save(&store, &token, 1).expect_err("it is not on disk"));
    // A second fdatasync would not fail, and what the first one lost would be lost all the same.
    failing.store(false, Ordering::SeqCst);
    told(save(&store, &token, 2).expect_err("earlier writes may be lost"));
    drop(store);
    let store = folder.open();
    assert_eq!(stored(&store, P), Some(1));
    save(&store, &token, 2).unwrap();
}

#[test]
fn a_full_disk_is_told_and_when_there_is_room_it_goes_on() {
    let name = "durability::a_full_disk_is_told_and_when_there_is_room_it_goes_on";
    on_small_disk(name, 2 << 20, |disk| {
        std::fs::create_dir(disk.data()).unwrap();
        let path = disk.data().join("ephor.db");
        let store = SqliteStore::open(&path).unwrap();
        let token = claim(&store, P, "a");
        save(&store, &token, 1).unwrap();
        disk.fill_but(0);
        let mut acknowledged = 1;
        let error = loop {
            match save(&store, &token, acknowledged + 1) {
                Ok(_) => acknowledged += 1,
                Err(error) => break error,
            }
            assert!(acknowledged < 100_000, "the disk is full");
        };
        assert!(matches!(error, StoreError::Unavailable(_)), "{error}");
        assert!(error.to_string().contains("is full: free some space"), "{error}");
        assert_eq!(stored(&store, P), Some(acknowledged));
        let full = SqliteStore::open(disk.data().join("new.db")).expect_err("there is no room");
        assert!(full.to_string().contains("is full: free some space"), "{full}");
        disk.clear();
        save(&store, &token, acknowledged + 1).unwrap();
        drop(store);
        let store = SqliteStore::open(&path).unwrap();
        assert_eq!(stored(&store, P), Some(acknowledged + 1));
        assert!(try_claim(&store, P, "b", token.epoch).is_ok());
    });
}

#[test]
fn a_file_that_was_replaced_or_a_log_that_was_removed_is_noticed() {
    let folder = Folder::new();
    let store = folder.open();
    let token = claim(&store, P, "a");
    std::fs::rename(folder.database(), folder.path().join("away.db")).unwrap();
    let error = save(&store, &token, 1).expect_err("the file is gone");
    assert!(
        matches!(&error, StoreError::Refused { message, .. } if message.contains("removed or replaced")),
        "{error}"
    );
    std::fs::rename(folder.path().join("away.db"), folder.database()).unwrap();
    save(&store, &token, 1).unwrap();
    std::fs::remove_file(folder.database().with_extension("db-wal")).unwrap();
    let error = save(&store, &token, 2).expect_err("the log is gone");
    assert!(error.to_string().contains("never remove this file by itself"), "{error}");
}
