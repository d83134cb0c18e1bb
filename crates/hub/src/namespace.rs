//! Opens, creates and deletes the hubs of one data folder, or of one process's memory.
//!
//! ```text
//! DATA/LOCK                       the process that has the folder open (lock.rs)
//! DATA/hubs/NAME.LOGID/hub.json   the record of a hub (catalog.rs)
//! DATA/hubs/NAME.LOGID/*.log      its log (journal/layout.rs)
//! ```

use std::collections::BTreeMap;
use std::fmt;
use std::io;
use std::path::Path;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::ids::{HubName, LogId, Namespace};
use ephor_core::time::Clock;
use ephor_runtime::environment::{Environment, SystemClock, TokioEnvironment};
use ephor_wire::address::same_name;

use crate::catalog::{HubRecord, deleted_folder_name, folder_name, is_deleted, is_folder_of};
use crate::config::{Durability, HubConfig, NamespaceConfig};
use crate::disk_reserve::{DiskReserve, ReserveReached};
use crate::error::HubError;
use crate::files::{DiskFiles, Files, MemoryFiles};
use crate::health::Problem;
use crate::hub::Hub;
use crate::lock::FolderLock;
use crate::partition::Ended;

pub(crate) const HUBS: &str = "hubs";

/// The hubs of one data folder. Closing or dropping it closes them all.
pub struct LocalNamespace {
    config: NamespaceConfig,
    files: Arc<dyn Files>,
    clock: Arc<dyn Clock>,
    reserve: Arc<DiskReserve>,
    /// Held while a hub is created or deleted, also while that waits for the disk.
    changing: Mutex<()>,
    /// Never held while waiting for the disk.
    hubs: Mutex<Hubs>,
    _lock: Option<FolderLock>,
}

#[derive(Default)]
struct Hubs {
    /// By name in lower case.
    open: BTreeMap<String, Hub>,
    /// Those that could not be opened, by folder.
    broken: BTreeMap<String, Broken>,
    closed: bool,
}

struct Broken {
    /// None if the record cannot be read: then only the name of the folder is known.
    hub: Option<HubName>,
    reason: String,
}

impl LocalNamespace {
    /// Opens a data folder, or creates it, and creates the configured hubs that are missing.
    ///
    /// With [`Durability::Memory`] the folder is not touched. It waits for the disk: do not call it in async code.
    pub fn open(folder: impl AsRef<Path>, config: NamespaceConfig) -> Result<Self, HubError> {
        if config.durability == Durability::Memory {
            return Self::in_memory(config);
        }
        let folder = folder.as_ref();
        let files: Arc<dyn Files> = Arc::new(DiskFiles::new(folder.to_owned()));
        let what = format!("could not create the data folder {}", folder.display());
        files.create_folder("").map_err(HubError::disk(what))?;
        let lock = FolderLock::acquire(folder)?;
        Self::with_files(files, Some(lock), config, Arc::new(SystemClock))
    }

    /// Creates hubs in memory. They are gone when the namespace is dropped.
    pub fn in_memory(config: NamespaceConfig) -> Result<Self, HubError> {
        let config = NamespaceConfig { durability: Durability::Memory, ..config };
        Self::on(Arc::new(MemoryFiles::default()), config, Arc::new(SystemClock))
    }

    /// Opens hubs on any files, with any clock: for tests with faulty disks and clocks.
    pub fn on(
        files: Arc<dyn Files>,
        config: NamespaceConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HubError> {
        Self::with_files(files, None, config, clock)
    }

    fn with_files(
        files: Arc<dyn Files>,
        lock: Option<FolderLock>,
        config: NamespaceConfig,
        clock: Arc<dyn Clock>,
    ) -> Result<Self, HubError> {
        config.validate()?;
        let make = |folder: &str| {
            files.create_folder(folder)?;
            files.sync_folder("")
        };
        make(HUBS).map_err(HubError::disk("could not create the folder of the hubs"))?;
        let reserve = Arc::new(DiskReserve::new(files.clone(), config.disk_reserve_bytes));
        let (changing, hubs) = (Mutex::default(), Mutex::default());
        let namespace = Self { config, files, clock, reserve, changing, hubs, _lock: lock };
        namespace.open_all()?;
        for hub in &namespace.config.hubs {
            // A damaged hub has been logged; the others are served.
            let damaged = namespace.hubs().broken(hub.name.as_str()).is_some();
            if !damaged {
                namespace.ensure_hub(hub)?;
            }
        }
        Ok(namespace)
    }

    /// Returns the name of the namespace.
    pub fn name(&self) -> &Namespace {
        &self.config.name
    }

    /// Returns its configuration.
    pub fn config(&self) -> &NamespaceConfig {
        &self.config
    }

    /// Creates a hub.
    pub fn create_hub(&self, hub: HubConfig) -> Result<Hub, HubError> {
        self.config.validate_hub(&hub)?;
        self.create(&self.changing(), hub)
    }

    /// Returns a hub, or creates it. An existing hub gets missing partitions and groups, and the retention. It never
    /// loses partitions, and its maximum event size stays.
    pub fn ensure_hub(&self, wanted: &HubConfig) -> Result<Hub, HubError> {
        self.config.validate_hub(wanted)?;
        let changing = self.changing();
        let hubs = self.hubs();
        hubs.check_open()?;
        let found = hubs.open.get(&key(wanted.name.as_str())).cloned();
        drop(hubs);
        let Some(hub) = found else {
            return self.create(&changing, wanted.clone());
        };
        drop(changing);
        // A hub that has more partitions keeps them.
        if wanted.partitions > hub.partition_count() {
            hub.grow(wanted.partitions)?;
        }
        if wanted.retention != hub.describe().retention {
            hub.set_retention(wanted.retention)?;
        }
        for group in &wanted.groups {
            hub.create_group(group.as_str())?;
        }
        Ok(hub)
    }

    /// Returns the hub of this name, compared without case. Does not wait for the disk.
    pub fn hub(&self, name: &str) -> Result<Hub, HubError> {
        let hubs = self.hubs();
        hubs.check_open()?;
        hubs.open.get(&key(name)).cloned().ok_or_else(|| hubs.not_open(name))
    }

    /// Lists the open hubs, by name.
    pub fn hubs_open(&self) -> Vec<Hub> {
        self.hubs().open.values().cloned().collect()
    }

    /// Lists the hubs, or folders, that could not be opened, and why. Their files are unchanged.
    pub fn broken(&self) -> Vec<(String, String)> {
        let hubs = self.hubs();
        hubs.broken.iter().map(|(folder, broken)| (broken.shown(folder), broken.reason.clone())).collect()
    }

    /// Returns the problems of all hubs. Does not wait for the disk.
    pub fn health(&self) -> Vec<Problem> {
        if self.hubs().closed {
            return vec![Problem::Closed];
        }
        let low = self
            .reserve
            .reached()
            .map(|ReserveReached { free, reserve }| Problem::LowOnDisk { free, reserve });
        let broken = self.broken().into_iter().map(|(hub, reason)| Problem::Broken { hub, reason });
        let hubs = self.hubs_open();
        low.into_iter().chain(broken).chain(hubs.iter().flat_map(Hub::health)).collect()
    }

    /// Deletes a hub and all its events. Its receivers and senders fail with an error that says so.
    pub fn delete_hub(&self, name: &str) -> Result<(), HubError> {
        let _changing = self.changing();
        let mut hubs = self.hubs();
        hubs.check_open()?;
        let Some(hub) = hubs.open.remove(&key(name)) else {
            return Err(hubs.not_open(name));
        };
        drop(hubs);
        let deleted = Ended::Deleted(Arc::from(format!("hub {:?} was deleted", hub.name())));
        if let Err(error) = hub.close(&deleted) {
            tracing::warn!(hub = %hub.name(), %error, "could not close a hub gracefully before deleting it; deleting it anyway");
        }
        self.remove(hub.folder())
            // Until it is removed, the name stays taken. Otherwise the next start would find two hubs with it.
            .inspect_err(|error| {
                self.hubs().refuse(
                    hub.folder().to_owned(),
                    Some(hub.name().clone()),
                    format!("deleting it failed: {error}"),
                )
            })
            .map_err(HubError::disk(format!(
                "hub {:?} is closed, but could not be removed from the disk",
                hub.name()
            )))
    }

    /// Closes all hubs gracefully: stores what is queued, and ends receivers and senders with an error that says so.
    pub fn close(&self) -> Result<(), HubError> {
        let _changing = self.changing();
        let mut hubs = self.hubs();
        hubs.closed = true;
        let open = std::mem::take(&mut hubs.open);
        drop(hubs);
        let closed = Ended::Closed(Arc::from("the hub is closed"));
        let results: Vec<_> = open.values().map(|hub| hub.close(&closed)).collect();
        results.into_iter().collect()
    }

    fn open_all(&self) -> Result<(), HubError> {
        // Makes the listed names durable: a process that was killed may have left them in the page cache.
        let list = self.files.sync_folder(HUBS).and_then(|()| self.files.list(HUBS));
        let list = list.map_err(HubError::disk("could not list the hubs"))?;
        let mut hubs = self.hubs();
        for name in list {
            let folder = format!("{HUBS}/{name}");
            if is_deleted(&name) {
                if let Err(error) = self.files.remove_folder(&folder) {
                    tracing::warn!(folder, %error, "could not remove the rest of a deleted hub; retrying at the next start");
                }
                continue;
            }
            let record = match HubRecord::load(&*self.files, &folder) {
                Ok(record) => record,
                Err(crate::catalog::CatalogError::Missing { .. }) if is_unfinished(&*self.files, &folder) => {
                    // An unfinished creation, which was never acknowledged.
                    let removed = self.files.remove_folder(&folder);
                    removed.map_err(HubError::disk(format!(
                        "could not remove the unfinished folder {folder}"
                    )))?;
                    continue;
                }
                Err(error) => {
                    hubs.refuse(name, None, error.to_string());
                    continue;
                }
            };
            let hub_name = record.name.clone();
            let taken = hubs.open.get(&key(hub_name.as_str())).map(|other| self.files.shown(other.folder()));
            if let Some(other) = taken {
                let folder = self.files.shown(&folder);
                let reason = format!(
                    "{folder} and {other} are hubs with the same name, and the second one is open; move one of the folders away"
                );
                hubs.refuse(name, Some(hub_name), reason);
                continue;
            }
            match Hub::open(
                self.files.clone(),
                &folder,
                record,
                self.config.clone(),
                self.clock.clone(),
                self.reserve.clone(),
            ) {
                Ok(hub) => drop(hubs.open.insert(key(hub_name.as_str()), hub)),
                Err(error) => hubs.refuse(name, Some(hub_name), error.to_string()),
            }
        }
        Ok(())
    }

    fn create(&self, _alone: &MutexGuard<'_, ()>, hub: HubConfig) -> Result<Hub, HubError> {
        self.hubs().check_free(hub.name.as_str())?;
        let name = hub.name.clone();
        let log_id = LogId::new(&format!("{:016x}", TokioEnvironment.random()));
        let folder = format!("{HUBS}/{}", folder_name(&name, &log_id));
        let failed = |error| HubError::Disk { what: format!("could not create hub {name:?}"), error };
        self.files.create_folder(&folder).map_err(failed)?;
        let record = HubRecord::new(&hub, log_id, self.clock.wall());
        let create = || {
            record.store(&*self.files, &folder)?;
            self.files.sync_folder(HUBS).map_err(failed)?;
            Hub::open(
                self.files.clone(),
                &folder,
                record,
                self.config.clone(),
                self.clock.clone(),
                self.reserve.clone(),
            )
        };
        // Otherwise a retry would create a second hub with this name.
        let opened = create().inspect_err(|_| {
            if let Err(error) = self.remove(&folder) {
                let reason = format!("creating it failed, and its folder could not be removed: {error}");
                self.hubs().refuse(folder.clone(), Some(name.clone()), reason);
            }
        })?;
        self.hubs().open.insert(key(name.as_str()), opened.clone());
        Ok(opened)
    }

    /// Removes the folder of a hub. Renames it first, so that a crash leaves no partial hub.
    fn remove(&self, folder: &str) -> io::Result<()> {
        let deleted = deleted_folder_name(folder);
        self.files.rename(folder, &deleted)?;
        self.files.sync_folder(HUBS)?;
        self.files.remove_folder(&deleted)
    }

    /// Allows one change at a time, so that no two hubs get the same name.
    fn changing(&self) -> MutexGuard<'_, ()> {
        self.changing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn hubs(&self) -> MutexGuard<'_, Hubs> {
        self.hubs.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Hubs {
    fn check_open(&self) -> Result<(), HubError> {
        if self.closed { Err(HubError::Closed("the namespace is closed".into())) } else { Ok(()) }
    }

    /// Whether a hub of this name can be created.
    fn check_free(&self, name: &str) -> Result<(), HubError> {
        self.check_open()?;
        match self.open.get(&key(name)) {
            Some(existing) => Err(HubError::Exists { existing: existing.name().clone() }),
            None => self.broken(name).map_or(Ok(()), Err),
        }
    }

    fn refuse(&mut self, folder: String, hub: Option<HubName>, reason: String) {
        let broken = Broken { hub, reason };
        let (hub, reason) = (broken.shown(&folder), &broken.reason);
        tracing::error!(hub, reason, "could not open a hub; its files are unchanged");
        self.broken.insert(folder, broken);
    }

    /// Returns why the hub of this name could not be opened; none if there is no such hub.
    fn broken(&self, name: &str) -> Option<HubError> {
        let (folder, broken) = self.broken.iter().find(|(folder, broken)| match &broken.hub {
            Some(hub) => same_name(hub.as_str(), name),
            None => is_folder_of(folder, name),
        })?;
        Some(HubError::Broken { name: broken.shown(folder), reason: broken.reason.clone() })
    }

    fn not_open(&self, name: &str) -> HubError {
        self.broken(name).unwrap_or_else(|| HubError::NotFound { name: name.to_owned() })
    }
}

impl Broken {
    fn shown(&self, folder: &str) -> String {
        self.hub.as_ref().map_or_else(|| folder.to_owned(), ToString::to_string)
    }
}

impl Drop for LocalNamespace {
    fn drop(&mut self) {
        if let Err(error) = self.close() {
            tracing::error!(%error, "could not close a hub gracefully; the next start recovers its log");
        }
    }
}

impl fmt::Debug for LocalNamespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalNamespace").field("name", &self.config.name).finish_non_exhaustive()
    }
}

fn key(name: &str) -> String {
    name.to_ascii_lowercase()
}

/// Whether a folder without a record is an unfinished creation and holds no events.
pub(crate) fn is_unfinished(files: &dyn Files, folder: &str) -> bool {
    let names = files.list(folder).unwrap_or_else(|_| vec![String::new()]);
    names.iter().all(|name| name.starts_with("hub.json"))
}
