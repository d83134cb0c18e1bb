//! `SqliteStore` and its options: sends each call of `Store` to the worker thread as one transaction.
//! `changed` waits for a wake-up instead.

use std::fmt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, ClaimOutcome, DesiredState, FORGET_HOSTS_AFTER, GiveUpOutcome, GroupOrigin, RenewalOutcome,
    SaveOutcome, SaveRequest, SeekOutcome, SeekRequest, Store, StoreFuture, View,
};

use super::database_paths::DatabasePaths;
use super::machine::{Machine, ThisMachine};
use super::open::TablePolicy;
use super::open_error::OpenError;
use super::records::{self, Records};
use super::session::Session;
use super::transactions;
use super::waiting_hosts::Wakers;
use super::watcher::Watcher;
use super::worker::Worker;

/// [`SqliteOptions::busy_wait`].
pub const DEFAULT_BUSY_WAIT: Duration = Duration::from_secs(2);

/// The store's times are milliseconds.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// The options of a SQLite store.
#[derive(Clone)]
pub struct SqliteOptions {
    /// How long a call waits for a lock that another process holds before it fails. Keep it below the
    /// host's `store_timeout`, or the host reports a timeout and not the process that holds the lock.
    pub busy_wait: Duration,
    /// Allows a network file system. Set it only for one that supports POSIX locks and shared memory and
    /// that a single machine uses.
    pub allow_network_file_system: bool,
    /// The machine; tests use their own.
    pub machine: Arc<dyn Machine>,
}

impl Default for SqliteOptions {
    fn default() -> Self {
        Self {
            busy_wait: DEFAULT_BUSY_WAIT,
            allow_network_file_system: false,
            machine: Arc::new(ThisMachine),
        }
    }
}

impl fmt::Debug for SqliteOptions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteOptions")
            .field("busy_wait", &self.busy_wait)
            .field("allow_network_file_system", &self.allow_network_file_system)
            .finish_non_exhaustive()
    }
}

/// A store in a SQLite file. Clones share the file; dropping the last clone closes it.
///
/// ```
/// # let folder = tempfile::tempdir().unwrap();
/// # let path = folder.path().join("ephor.db");
/// use ephor_core::store::Store;
/// use ephor_stores::sqlite::SqliteStore;
///
/// # tokio::runtime::Builder::new_current_thread().build().unwrap().block_on(async {
/// let store = SqliteStore::open(&path)?;
/// assert!(store.groups().await?.is_empty());
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// # }).unwrap();
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    inner: Arc<Inner>,
}

struct Inner {
    worker: Worker,
    paths: DatabasePaths,
    wakers: Arc<Wakers>,
    /// None if the thread could not be started.
    watcher: OnceLock<Option<Watcher>>,
}

impl SqliteStore {
    /// Opens a file, and creates it if it does not exist. Its folder must exist.
    ///
    /// This blocks for as long as the disk takes, and for at most [`DEFAULT_BUSY_WAIT`] if another process
    /// holds the lock.
    ///
    /// A process that closes any handle of a file loses all its locks on it, and this opens and closes the
    /// file to compare it with the disk. Your own code must not open the file (with rusqlite or as a file)
    /// while this runs; before and after it, it may open the file with SQLite only. Stores of one process
    /// wait for each other.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens an existing store, for tools. It creates nothing, and does not migrate tables of an earlier
    /// release, because that would lock the hosts of that release out.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Option<Self>, OpenError> {
        Self::open_existing_with(path, SqliteOptions::default())
    }

    /// As [`open_existing`](Self::open_existing), with options.
    pub fn open_existing_with(
        path: impl AsRef<Path>,
        options: SqliteOptions,
    ) -> Result<Option<Self>, OpenError> {
        if !path.as_ref().exists() {
            return Ok(None);
        }
        match Self::open_as(path.as_ref(), options, TablePolicy::RequireCurrent) {
            Err(OpenError::Nothing { .. }) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// As [`open`](Self::open), with options.
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), options, TablePolicy::CreateOrMigrate)
    }

    fn open_as(path: &Path, options: SqliteOptions, tables: TablePolicy) -> Result<Self, OpenError> {
        let paths = DatabasePaths::find(path, options.allow_network_file_system)?;
        let wakers = Arc::new(Wakers::default());
        let session =
            Session::open(paths.clone(), tables, options.machine, options.busy_wait, wakers.clone())?;
        let worker = Worker::start(session).map_err(|error| paths.other(error))?;
        Ok(Self { inner: Arc::new(Inner { worker, paths, wakers, watcher: OnceLock::new() }) })
    }

    fn worker(&self) -> &Worker {
        &self.inner.worker
    }

    /// Runs a transaction that may write. `act` gets the records and the request.
    fn write<'a, R, T>(
        &'a self,
        group: &'a GroupId,
        request: R,
        act: impl FnOnce(&Records<'_>, &R) -> records::TransactionResult<T> + Send + 'static,
    ) -> StoreFuture<'a, T>
    where
        R: Send + 'static,
        T: Send + 'static,
    {
        Box::pin(self.worker().write(group, move |records| act(records, &request)))
    }

    fn read<'a, T: Send + 'static>(
        &'a self,
        group: &'a GroupId,
        act: impl FnOnce(&Records<'_>) -> records::TransactionResult<T> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let group = group.clone();
        Box::pin(
            self.worker().read(move |connection, clock| act(&Records::of(connection, &group, clock.now())?)),
        )
    }

    fn watch(&self) {
        self.inner.watcher.get_or_init(|| {
            let started = Watcher::start(self.inner.paths.clone(), self.inner.wakers.clone());
            started
                .inspect_err(|error| tracing::warn!(%error, "cannot watch the store for other processes"))
                .ok()
        });
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteStore").field(&self.inner.paths.database).finish()
    }
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: true,
            fences_checkpoints: true,
            keeps_history: true,
            clock_resolution: CLOCK_RESOLUTION,
            shared_with_other_sdks: false,
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        Box::pin(self.worker().read(|connection, _| records::groups(connection)))
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        self.write(group, origin.clone(), transactions::init_group)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.read(group, |records| records.view())
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        let wakers = self.inner.wakers.clone();
        let here = group.clone();
        self.write(group, record.clone(), move |records, record| {
            let desired = records.heartbeat(record)?;
            let (last_wake, now) = (records.last_wake(&record.id)?, records.now);
            // Under the write lock, so that every wake is either counted here or comes later.
            wakers.heartbeat(&here, &record.id, last_wake, now, now - FORGET_HOSTS_AFTER);
            Ok(desired)
        })
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let id = host.clone();
            self.worker().write(group, move |records| records.retire(&id)).await?;
            self.inner.wakers.unregister(group, host);
            Ok(())
        })
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        self.write(group, host.clone(), move |records, host| records.set_desired_state(host, desired))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        self.write(group, request.clone(), transactions::claim)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        self.write(group, tokens.to_vec(), move |records, tokens| {
            transactions::renew(records, duration, tokens)
        })
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        self.write(group, request.clone(), transactions::transfer)
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        self.write(group, request.clone(), transactions::release)
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        self.write(group, request.clone(), transactions::save)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        self.write(group, request.clone(), transactions::seek)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.read(group, move |records| records.history(partition, max))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.watch();
            let waker = match self.inner.wakers.find(group, host) {
                Some(waker) => waker,
                None => {
                    let id = host.clone();
                    let last = self.read(group, move |records| records.last_wake(&id)).await;
                    // If the read fails, the host is woken once too often.
                    self.inner.wakers.register(group, host, last.unwrap_or(0))
                }
            };
            waker.notified().await;
        })
    }
}
