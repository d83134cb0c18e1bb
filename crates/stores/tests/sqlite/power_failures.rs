//! Tests of a power failure after a failed sync: writes that were acknowledged before and after the sync are
//! kept. The last test: a long log is copied into the database.
//!
//! The disk of these tests does what Linux does. A sync that fails leaves the pages that it should have written
//! clean: they can be read, and no later sync writes them. A power failure leaves what syncs have written.

use std::collections::BTreeSet;
use std::fs::{self, File};
use std::io;
use std::path::PathBuf;
use std::sync::{Arc, Mutex, MutexGuard};
use std::time::Duration;

use ephor_core::store::{Store, StoreError};
use ephor_core::time::Timestamp;
use ephor_stores::sqlite::{Machine, OpenError, SqliteOptions, SqliteStore};

use crate::child_process::ChildProcess;
use crate::fixture::{Folder, HandMachine, P, claim, group, next, save, stored, wait};
use crate::locks::stop;

/// The kernel's pages, which are what is dirty or clean.
const PAGE: usize = 4096;

/// A machine whose disk may fail to store the log.
struct Disk {
    clock: Arc<HandMachine>,
    log: PathBuf,
    pages: Mutex<Pages>,
}

/// Is shown the pages and the log as the cache has it.
type Watch = Box<dyn FnMut(&Pages, &[u8]) + Send>;

#[derive(Default)]
struct Pages {
    /// The bytes of the log that a power failure leaves.
    stored: Vec<u8>,
    /// The log as it was when it was last synced, whether that went well or not.
    clean: Vec<u8>,
    /// Written since without being changed.
    again: BTreeSet<usize>,
    failing: bool,
    /// Called when something is written again.
    watch: Option<Watch>,
}

fn page(bytes: &[u8], number: usize) -> &[u8] {
    let end = bytes.len().min((number + 1) * PAGE);
    bytes.get(number * PAGE..end).unwrap_or_default()
}

impl Pages {
    /// The pages that the next sync would write.
    fn dirty(&self, now: &[u8]) -> Vec<usize> {
        let changed = |number: &usize| page(now, *number) != page(&self.clean, *number);
        (0..now.len().div_ceil(PAGE))
            .filter(|number| changed(number) || self.again.contains(number))
            .collect()
    }

    /// The log as it would be stored if these pages were written.
    fn with(&self, now: &[u8], pages: &[usize]) -> Vec<u8> {
        let mut stored = self.stored.clone();
        stored.resize(now.len(), 0);
        for number in pages {
            let bytes = page(now, *number);
            stored[number * PAGE..][..bytes.len()].copy_from_slice(bytes);
        }
        stored
    }
}

impl Disk {
    fn of(folder: &Folder) -> Arc<Self> {
        let clock = HandMachine::new(None, "boot", 1_800_000_000_000, 0);
        let log = folder.database().with_extension("db-wal");
        Arc::new(Self { clock, log, pages: Mutex::default() })
    }

    fn pages(&self) -> MutexGuard<'_, Pages> {
        self.pages.lock().unwrap()
    }

    fn fail(&self, failing: bool) {
        self.pages().failing = failing;
    }

    fn open(self: &Arc<Self>, folder: &Folder) -> Result<SqliteStore, OpenError> {
        let options = SqliteOptions { machine: self.clone(), ..SqliteOptions::default() };
        SqliteStore::open_with(folder.database(), options)
    }

    /// The store as it is found after a power failure now.
    fn after_a_power_failure(&self, folder: &Folder) -> (Folder, SqliteStore) {
        let stored = self.pages().stored.clone();
        restart(folder, &stored)
    }
}

/// Nothing here writes so much that SQLite would change the database itself.
fn restart(folder: &Folder, log: &[u8]) -> (Folder, SqliteStore) {
    let copy = Folder::new();
    fs::copy(folder.database(), copy.database()).unwrap();
    fs::write(copy.database().with_extension("db-wal"), log).unwrap();
    let store = copy.open_on(&HandMachine::new(None, "next boot", 1_800_000_100_000, 0));
    (copy, store)
}

impl Machine for Disk {
    fn wall(&self) -> Timestamp {
        self.clock.wall()
    }

    fn since_boot(&self) -> Duration {
        self.clock.since_boot()
    }

    fn boot(&self) -> io::Result<String> {
        self.clock.boot()
    }

    fn name(&self) -> Option<String> {
        self.clock.name()
    }

    fn sync(&self, _: &File) -> io::Result<()> {
        let now = fs::read(&self.log)?;
        let mut pages = self.pages();
        if !pages.failing {
            pages.stored = pages.with(&now, &pages.dirty(&now));
        }
        pages.clean = now;
        pages.again.clear();
        if pages.failing { Err(io::Error::from_raw_os_error(5)) } else { Ok(()) }
    }

    fn write_again(&self, _: &File, bytes: &[u8], offset: u64) -> io::Result<()> {
        let now = fs::read(&self.log)?;
        let offset = usize::try_from(offset).unwrap();
        assert_eq!(&now[offset..][..bytes.len()], bytes, "the same bytes are written");
        let mut pages = self.pages();
        pages.again.extend(offset / PAGE..(offset + bytes.len()).div_ceil(PAGE));
        if let Some(mut watch) = pages.watch.take() {
            watch(&pages, &now);
            pages.watch = Some(watch);
        }
        Ok(())
    }
}

/// Three saves are acknowledged, a fourth is not: the disk fails.
fn fail_a_save(folder: &Folder, disk: &Arc<Disk>) -> (SqliteStore, ephor_core::lease::LeaseToken) {
    let store = disk.open(folder).unwrap();
    let token = claim(&store, P, "a");
    for sequence in 1..=3 {
        save(&store, &token, sequence).unwrap();
    }
    disk.fail(true);
    let error = save(&store, &token, 4).expect_err("it is not on disk");
    assert!(matches!(&error, StoreError::Unavailable(_)), "{error}");
    disk.fail(false);
    (store, token)
}

#[test]
fn what_is_acknowledged_after_a_failed_sync_survives_a_power_failure() {
    let folder = Folder::new();
    let disk = Disk::of(&folder);
    let (store, token) = fail_a_save(&folder, &disk);
    drop(store);
    assert_eq!(stored(&disk.after_a_power_failure(&folder).1, P), Some(3));
    let store = disk.open(&folder).unwrap();
    for sequence in 5..=9 {
        save(&store, &token, sequence).unwrap();
        let (_copy, after) = disk.after_a_power_failure(&folder);
        assert_eq!(stored(&after, P), Some(sequence));
        assert_eq!(wait(after.view(&group())).unwrap().lease(P).unwrap().token(), Some(token.clone()));
    }
}

#[test]
fn a_start_that_the_disk_fails_is_refused_and_the_next_one_writes_the_log_again() {
    let folder = Folder::new();
    let disk = Disk::of(&folder);
    let (store, token) = fail_a_save(&folder, &disk);
    drop(store);
    disk.fail(true);
    for _ in 0..2 {
        let error = disk.open(&folder).expect_err("nothing can be acknowledged");
        assert!(error.to_string().contains("ephor.db"), "{error}");
    }
    disk.fail(false);
    let store = disk.open(&folder).unwrap();
    save(&store, &token, 5).unwrap();
    assert_eq!(stored(&disk.after_a_power_failure(&folder).1, P), Some(5));
}

/// The kernel writes dirty pages in any order.
#[test]
fn a_power_failure_while_the_log_is_written_again_loses_nothing() {
    let folder = Folder::new();
    let disk = Disk::of(&folder);
    let (store, _) = fail_a_save(&folder, &disk);
    drop(store);
    let mut random = fastrand::Rng::with_seed(7);
    let found = Arc::new(Mutex::new(Vec::new()));
    let notes = found.clone();
    disk.pages().watch = Some(Box::new(move |pages, now| {
        for _ in 0..5 {
            let written: Vec<_> = pages.dirty(now).into_iter().filter(|_| random.bool()).collect();
            notes.lock().unwrap().push(pages.with(now, &written));
        }
    }));
    disk.open(&folder).unwrap();
    let found = std::mem::take(&mut *found.lock().unwrap());
    assert!(!found.is_empty(), "the log is written again");
    for log in found {
        let (_copy, after) = restart(&folder, &log);
        assert!(stored(&after, P) >= Some(3));
    }
}

#[test]
fn a_host_starts_beside_one_that_is_paused_after_a_failed_sync() {
    let folder = Folder::new();
    let disk = Disk::of(&folder);
    let (broken, token) = fail_a_save(&folder, &disk);
    let child = ChildProcess::start("kills::create_as_a_child", folder.path(), "");
    assert_eq!(next(&child.words), "begin");
    assert_eq!(next(&child.words), "created");
    stop(child.child.id());
    let store = disk.open(&folder).unwrap();
    save(&store, &token, 5).unwrap();
    assert_eq!(stored(&disk.after_a_power_failure(&folder).1, P), Some(5));
    save(&broken, &token, 6).expect_err("it has to be started again");
}

/// Not every file system keeps what it could not store.
#[test]
#[expect(clippy::disallowed_methods, reason = "the system does not signal that a file is closed")]
fn where_a_failed_sync_drops_what_was_written_everything_acknowledged_is_there() {
    let folder = Folder::new();
    let disk = Disk::of(&folder);
    let (broken, token) = fail_a_save(&folder, &disk);
    let mut left = disk.pages().stored.clone();
    left.resize(fs::metadata(&disk.log).unwrap().len() as usize, 0);
    fs::write(&disk.log, &left).unwrap();
    disk.pages().clean = left;
    // Who has it open still counts on what is gone: SQLite would read nonsense there.
    let error = disk.open(&folder).expect_err("a part is gone");
    assert!(matches!(error, OpenError::LogLost { .. }), "{error}");
    assert!(error.to_string().contains("stop every process that has the file open"), "{error}");
    drop(broken);
    let store = loop {
        match disk.open(&folder) {
            Err(OpenError::LogLost { .. }) => std::thread::sleep(Duration::from_millis(1)),
            opened => break opened.unwrap(),
        }
    };
    assert_eq!(stored(&store, P), Some(3));
    save(&store, &token, 5).unwrap();
    assert_eq!(stored(&disk.after_a_power_failure(&folder).1, P), Some(5));
}

/// Tools come often, and a log may be long. What they acknowledge is on disk all the same.
#[test]
fn a_tool_writes_the_log_again_before_it_acknowledges_something_and_not_to_look() {
    let folder = Folder::new();
    let disk = Disk::of(&folder);
    let (store, token) = fail_a_save(&folder, &disk);
    drop(store);
    let written = Arc::new(Mutex::new(0));
    let count = written.clone();
    disk.pages().watch = Some(Box::new(move |_, _| *count.lock().unwrap() += 1));
    let options = SqliteOptions { machine: disk.clone(), ..SqliteOptions::default() };
    let tool = SqliteStore::open_existing_with(folder.database(), options).unwrap().unwrap();
    assert_eq!(stored(&tool, P), Some(4), "written, and never acknowledged");
    assert_eq!(*written.lock().unwrap(), 0);
    save(&tool, &token, 5).unwrap();
    assert!(*written.lock().unwrap() > 0);
    assert_eq!(stored(&disk.after_a_power_failure(&folder).1, P), Some(5));
    let before = *written.lock().unwrap();
    save(&tool, &token, 6).unwrap();
    assert_eq!(*written.lock().unwrap(), before, "once");
}

/// SQLite does so by itself, and does not tell when the disk fails at it.
#[test]
fn a_log_that_has_grown_long_is_copied_into_the_database_and_begun_anew() {
    let folder = Folder::new();
    let store = folder.open_on(&HandMachine::new(None, "boot", 1_800_000_000_000, 0));
    let token = claim(&store, P, "a");
    for sequence in 1..=1_500 {
        save(&store, &token, sequence).unwrap();
    }
    let log = fs::metadata(folder.database().with_extension("db-wal")).unwrap().len();
    assert!(log < 1_200 * 4_200, "{log} bytes");
    assert_eq!(stored(&store, P), Some(1_500));
}
