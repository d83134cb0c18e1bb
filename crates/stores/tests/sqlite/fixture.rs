//! Test helper: a database file for each test, a machine whose clocks and disk the test controls, and store
//! calls that block until they are done.

#[path = "../shared/store_steps.rs"]
mod store_steps;

use std::fs::File;
use std::io;
use std::path::PathBuf;
use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::lease::{ClaimCause, LeaseToken};
use ephor_core::store::{ClaimOutcome, DesiredState, GiveUpOutcome, SaveOutcome, Store, StoreError};
use ephor_core::time::Timestamp;
use ephor_stores::sqlite::{Machine, SqliteOptions, SqliteStore};

pub(crate) use store_steps::{LEASE, P, finished, host, record};

/// Nothing that is to come takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(30);

pub(crate) struct Folder(tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().unwrap())
    }

    pub(crate) fn database(&self) -> PathBuf {
        self.0.path().join("ephor.db")
    }

    pub(crate) fn path(&self) -> &std::path::Path {
        self.0.path()
    }

    pub(crate) fn open(&self) -> SqliteStore {
        SqliteStore::open(self.database()).unwrap()
    }

    pub(crate) fn open_on(&self, machine: &Arc<HandMachine>) -> SqliteStore {
        SqliteStore::open_with(self.database(), on(machine)).unwrap()
    }

    /// The file as a tool sees it, past the store.
    pub(crate) fn sql(&self) -> rusqlite::Connection {
        let connection = rusqlite::Connection::open(self.database()).unwrap();
        connection.busy_timeout(PATIENCE).unwrap();
        connection
    }
}

pub(crate) fn on(machine: &Arc<HandMachine>) -> SqliteOptions {
    SqliteOptions { machine: machine.clone(), ..SqliteOptions::default() }
}

type Hook = Box<dyn Fn() -> io::Result<()> + Send + Sync>;

/// A machine whose clocks stand still unless they are set.
pub(crate) struct HandMachine {
    pub(crate) wall: AtomicI64,
    pub(crate) since_boot: AtomicI64,
    boot: String,
    name: Option<String>,
    pub(crate) syncs: AtomicUsize,
    /// Called in place of the disk.
    on_sync: Mutex<Option<Arc<Hook>>>,
}

impl HandMachine {
    pub(crate) fn new(name: Option<&str>, boot: &str, wall: i64, since_boot: i64) -> Arc<Self> {
        Arc::new(Self {
            wall: wall.into(),
            since_boot: since_boot.into(),
            boot: boot.into(),
            name: name.map(str::to_owned),
            syncs: AtomicUsize::new(0),
            on_sync: Mutex::default(),
        })
    }

    pub(crate) fn on_sync(&self, hook: impl Fn() -> io::Result<()> + Send + Sync + 'static) {
        *self.on_sync.lock().unwrap() = Some(Arc::new(Box::new(hook)));
    }

    pub(crate) fn syncs(&self) -> usize {
        self.syncs.load(Ordering::SeqCst)
    }

    /// As time goes by.
    pub(crate) fn pass(&self, milliseconds: i64) {
        self.wall.fetch_add(milliseconds, Ordering::SeqCst);
        self.since_boot.fetch_add(milliseconds, Ordering::SeqCst);
    }
}

impl Machine for HandMachine {
    fn wall(&self) -> Timestamp {
        Timestamp(self.wall.load(Ordering::SeqCst))
    }

    fn since_boot(&self) -> Duration {
        Duration::from_millis(self.since_boot.load(Ordering::SeqCst) as u64)
    }

    fn boot(&self) -> io::Result<String> {
        Ok(self.boot.clone())
    }

    fn name(&self) -> Option<String> {
        self.name.clone()
    }

    fn sync(&self, file: &File) -> io::Result<()> {
        self.syncs.fetch_add(1, Ordering::SeqCst);
        let hook = self.on_sync.lock().unwrap().clone();
        hook.map_or_else(|| file.sync_data(), |hook| hook())
    }
}

/// Runs to the end, or fails after a long time.
#[expect(clippy::disallowed_methods, reason = "a test that hangs shall fail")]
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("an answer in time") })
}

/// In a child that would go on for ever: ends it when the parent is gone.
pub(crate) fn end_with_the_parent() {
    std::thread::spawn(|| {
        crate::child_process::wait_for_the_end();
        std::process::exit(0);
    });
}

/// The next of what comes, or fails after a long time.
pub(crate) fn next<T>(from: &std::sync::mpsc::Receiver<T>) -> T {
    from.recv_timeout(PATIENCE).expect("it comes in time")
}

/// Polls once.
pub(crate) fn poll<T>(future: std::pin::Pin<&mut (impl Future<Output = T> + ?Sized)>) -> Option<T> {
    match future.poll(&mut std::task::Context::from_waker(std::task::Waker::noop())) {
        std::task::Poll::Ready(value) => Some(value),
        std::task::Poll::Pending => None,
    }
}

pub(crate) fn group() -> GroupId {
    GroupId {
        namespace: "ns".parse().unwrap(),
        hub: "homes".parse().unwrap(),
        group: "alarms".parse().unwrap(),
    }
}

pub(crate) fn beat(store: &SqliteStore, name: &str) -> DesiredState {
    wait(store.heartbeat(&group(), &record(name))).unwrap()
}

pub(crate) fn try_claim(
    store: &SqliteStore,
    partition: PartitionId,
    name: &str,
    above: Epoch,
) -> Result<ClaimOutcome, StoreError> {
    wait(store_steps::try_claim_above(store, partition, name, ClaimCause::Expired, above))
}

pub(crate) fn claim(store: &SqliteStore, partition: PartitionId, name: &str) -> LeaseToken {
    wait(store_steps::claim(store, partition, name))
}

pub(crate) fn save(
    store: &SqliteStore,
    token: &LeaseToken,
    sequence: u64,
) -> Result<SaveOutcome, StoreError> {
    wait(store_steps::save(store, token, sequence))
}

pub(crate) fn hand_over(store: &SqliteStore, token: &LeaseToken, to: &str) {
    assert_eq!(
        wait(store.transfer(&group(), &store_steps::transfer(token, to))).unwrap(),
        GiveUpOutcome::Done
    );
}

/// The number that is stored as finished.
pub(crate) fn stored(store: &SqliteStore, partition: PartitionId) -> Option<u64> {
    wait(store_steps::stored(store, partition))
}
