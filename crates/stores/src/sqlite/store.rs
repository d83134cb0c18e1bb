//! The store itself: every call becomes a step of the worker.

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
    Capabilities, Claim, FORGET_HOSTS_AFTER, Founding, GiveAway, HostOrders, Renewal, Save, SaveRequest,
    Seek, SeekRequest, Store, StoreFuture, View,
};

use super::bells::Bells;
use super::machine::{Machine, ThisMachine};
use super::open::Tables;
use super::open_error::OpenError;
use super::place::Place;
use super::records::{self, Records};
use super::session::Session;
use super::steps;
use super::watcher::Watcher;
use super::worker::Worker;

/// [`SqliteOptions::busy_wait`].
pub const DEFAULT_BUSY_WAIT: Duration = Duration::from_secs(2);

/// The store's times are milliseconds.
const CLOCK_RESOLUTION: Duration = Duration::from_millis(1);

/// How a file is opened.
#[derive(Clone)]
pub struct SqliteOptions {
    /// A call waits this long for a lock that another process holds, and then fails. Keep it below the host's
    /// `store_timeout`, or the host hears of a timeout and not of who holds the lock.
    pub busy_wait: Duration,
    /// Also on a file system that other machines may write to. Only for one that is known to keep POSIX locks
    /// and shared memory, and is used by one machine.
    pub allow_network_file_system: bool,
    /// The machine; a test brings its own.
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

/// A store in a SQLite file. Clones share it, and its last clone closes it.
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
    place: Place,
    bells: Arc<Bells>,
    /// None if it could not be started.
    watcher: OnceLock<Option<Watcher>>,
}

impl SqliteStore {
    /// Opens a file, and creates it if it is not there; its folder must be.
    ///
    /// This blocks for as long as the disk takes, and for at most [`DEFAULT_BUSY_WAIT`] if another process
    /// holds the lock.
    ///
    /// A process that closes any handle of a file loses all its locks of it, and this opens and closes the file to look past
    /// the page cache. So code of yours must not open it (with rusqlite, or as a file) while this runs; before or after it, with
    /// SQLite alone, it may. Stores of one process wait for each other.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, OpenError> {
        Self::open_with(path, SqliteOptions::default())
    }

    /// Opens a file if it is a store, and neither creates one nor brings the tables of an earlier release up to
    /// date, for the hosts of that release would be refused from then on: for tools.
    pub fn open_existing(path: impl AsRef<Path>) -> Result<Option<Self>, OpenError> {
        Self::open_existing_with(path, SqliteOptions::default())
    }

    /// The same with options.
    pub fn open_existing_with(
        path: impl AsRef<Path>,
        options: SqliteOptions,
    ) -> Result<Option<Self>, OpenError> {
        if !path.as_ref().exists() {
            return Ok(None);
        }
        match Self::open_as(path.as_ref(), options, Tables::AsTheyAre) {
            Err(OpenError::Nothing { .. }) => Ok(None),
            opened => opened.map(Some),
        }
    }

    /// The same as [`open`](Self::open) with options.
    pub fn open_with(path: impl AsRef<Path>, options: SqliteOptions) -> Result<Self, OpenError> {
        Self::open_as(path.as_ref(), options, Tables::Prepared)
    }

    fn open_as(path: &Path, options: SqliteOptions, tables: Tables) -> Result<Self, OpenError> {
        let place = Place::find(path, options.allow_network_file_system)?;
        let bells = Arc::new(Bells::default());
        let session =
            Session::open(place.clone(), tables, options.machine, options.busy_wait, bells.clone())?;
        let worker = Worker::start(session).map_err(|error| place.other(error))?;
        Ok(Self { inner: Arc::new(Inner { worker, place, bells, watcher: OnceLock::new() }) })
    }

    fn worker(&self) -> &Worker {
        &self.inner.worker
    }

    /// One step that may write, in words of its own: `act` gets the records and what it needs of the request.
    fn write<'a, R, T>(
        &'a self,
        group: &'a GroupId,
        request: R,
        act: impl FnOnce(&Records<'_>, &R) -> records::StepResult<T> + Send + 'static,
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
        act: impl FnOnce(&Records<'_>) -> records::StepResult<T> + Send + 'static,
    ) -> StoreFuture<'a, T> {
        let group = group.clone();
        Box::pin(
            self.worker().read(move |connection, clock| act(&Records::of(connection, &group, clock.now())?)),
        )
    }

    fn watch(&self) {
        self.inner.watcher.get_or_init(|| {
            let started = Watcher::start(self.inner.place.clone(), self.inner.bells.clone());
            started
                .inspect_err(|error| tracing::warn!(%error, "cannot watch the store for other processes"))
                .ok()
        });
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("SqliteStore").field(&self.inner.place.database).finish()
    }
}

impl Store for SqliteStore {
    fn capabilities(&self) -> Capabilities {
        Capabilities {
            wakes: true,
            fences_checkpoints: true,
            keeps_history: true,
            clock_resolution: CLOCK_RESOLUTION,
            epochless_neighbours: false,
        }
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        Box::pin(self.worker().read(|connection, _| records::groups(connection)))
    }

    fn found<'a>(&'a self, group: &'a GroupId, founding: &'a Founding) -> StoreFuture<'a, Founding> {
        self.write(group, founding.clone(), steps::found)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.read(group, |records| records.view())
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, HostOrders> {
        let bells = self.inner.bells.clone();
        let here = group.clone();
        self.write(group, record.clone(), move |records, record| {
            let orders = records.heartbeat(record)?;
            let (heard, now) = (records.last_wake(&record.id)?, records.now);
            // Under the write lock, so that a wake is either heard already or yet to come.
            bells.beat(&here, &record.id, heard, now, now - FORGET_HOSTS_AFTER);
            Ok(orders)
        })
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        Box::pin(async move {
            let id = host.clone();
            self.worker().write(group, move |records| records.retire(&id)).await?;
            self.inner.bells.take_down(group, host);
            Ok(())
        })
    }

    fn order<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        orders: HostOrders,
    ) -> StoreFuture<'a, bool> {
        self.write(group, host.clone(), move |records, host| records.order(host, orders))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        self.write(group, request.clone(), steps::claim)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        self.write(group, tokens.to_vec(), move |records, tokens| steps::renew(records, duration, tokens))
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, GiveAway> {
        self.write(group, request.clone(), steps::transfer)
    }

    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, GiveAway> {
        self.write(group, request.clone(), steps::release)
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        self.write(group, request.clone(), steps::save)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        self.write(group, request.clone(), steps::seek)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.read(group, move |records| records.history(partition, most))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            self.watch();
            let bell = match self.inner.bells.find(group, host) {
                Some(bell) => bell,
                None => {
                    let id = host.clone();
                    let last = self.read(group, move |records| records.last_wake(&id)).await;
                    // If nobody knows, it is woken once too often.
                    self.inner.bells.hang(group, host, last.unwrap_or(0))
                }
            };
            bell.notified().await;
        })
    }
}
