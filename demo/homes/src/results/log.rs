//! One log of results: numbered updates and snapshots, each an object that is created once, never changed,
//! and deleted when it is old.

use bytes::Bytes;
use ephor::PartitionId;
use futures_util::{StreamExt, TryStreamExt};
use object_store::path::Path;
use object_store::{Error, ObjectStoreExt, PutMode, PutOptions};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::entry::{Entry, Snapshot};
use super::object_encoding;
use super::result_store::ResultStore;

/// Why a log cannot be used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum LogError {
    /// Storage failed, and whether it did what it was asked to do is unknown. It may pass.
    #[error("cannot read or write {object} in the storage; retrying: {why}")]
    Storage {
        /// The object.
        object: String,
        /// The error of the storage.
        why: String,
    },
    /// An object is not what was written.
    #[error(
        "the object {object} is damaged ({why}); restore it from a copy, or delete all results of its partition and its checkpoint"
    )]
    Damaged {
        /// The object.
        object: String,
        /// The problem.
        why: String,
    },
    /// Others write faster than this can be read.
    #[error("{log} changed while it was read, {tries} times in a row; retrying")]
    Restless {
        /// The log.
        log: String,
        /// How often it was tried.
        tries: u32,
    },
}

/// The result of creating an object.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Created {
    /// It was not there, and is now.
    New,
    /// There is one, perhaps our own from before.
    There,
}

/// The updates and snapshots of one kind and partition.
#[derive(Clone, Debug)]
pub struct Log {
    place: ResultStore,
    folder: Path,
}

impl Log {
    pub(super) fn new(place: ResultStore, folder: Path) -> Self {
        Self { place, folder }
    }

    /// Such as `homes/03`.
    pub fn name(&self) -> &str {
        self.folder.as_ref()
    }

    fn object(&self, folder: &str, number: u64) -> Path {
        self.folder.clone().join(folder).join(format!("{number:012}"))
    }

    /// The bytes of an update, if it is there.
    pub(super) async fn update_bytes(&self, number: u64) -> Result<Option<Bytes>, LogError> {
        self.get(&self.object(UPDATES, number)).await
    }

    /// Reads the bytes of an update.
    pub(super) fn read_update<U: DeserializeOwned>(
        &self,
        number: u64,
        bytes: &[u8],
    ) -> Result<Entry<U>, LogError> {
        let object = self.object(UPDATES, number);
        let entry = read::<Entry<U>>(&object, bytes)?;
        numbered(&object, number, entry.number)?;
        Ok(entry)
    }

    /// An update, if it is there.
    pub(super) async fn update<U: DeserializeOwned>(
        &self,
        number: u64,
    ) -> Result<Option<Entry<U>>, LogError> {
        let bytes = self.update_bytes(number).await?;
        bytes.map(|bytes| self.read_update(number, &bytes)).transpose()
    }

    /// Creates an update, unless there is one with this number.
    pub(super) async fn create_update(&self, number: u64, bytes: Bytes) -> Result<Created, LogError> {
        self.create(&self.object(UPDATES, number), bytes).await
    }

    /// Deletes an update that should not be there.
    pub(super) async fn delete_update(&self, number: u64) -> Result<(), LogError> {
        self.delete(vec![self.object(UPDATES, number)]).await
    }

    /// A snapshot, if it is there.
    pub(super) async fn snapshot<S: DeserializeOwned>(
        &self,
        number: u64,
    ) -> Result<Option<Snapshot<S>>, LogError> {
        let object = self.object(SNAPSHOTS, number);
        let Some(bytes) = self.get(&object).await? else { return Ok(None) };
        let snapshot = read::<Snapshot<S>>(&object, &bytes)?;
        numbered(&object, number, snapshot.number)?;
        Ok(Some(snapshot))
    }

    /// Creates a snapshot. One that is there says the same.
    pub(super) async fn create_snapshot(&self, snapshot: &Snapshot<impl Serialize>) -> Result<(), LogError> {
        let object = self.object(SNAPSHOTS, snapshot.number);
        self.create(&object, write(&object, snapshot)?).await.map(|_| ())
    }

    /// The object of an update.
    pub(super) fn write_update(&self, entry: &Entry<impl Serialize>) -> Result<Bytes, LogError> {
        write(&self.object(UPDATES, entry.number), entry)
    }

    /// The numbers of the snapshots, in order.
    pub(super) async fn snapshots(&self) -> Result<Vec<u64>, LogError> {
        self.numbers(SNAPSHOTS).await
    }

    /// Updates above this number were never deleted. It is the snapshot before the newest, or 0.
    pub(super) async fn floor(&self) -> Result<u64, LogError> {
        Ok(floor_of(&self.snapshots().await?))
    }

    /// Deletes what nobody needs who looks at the snapshots first.
    pub(super) async fn tidy(&self) -> Result<(), LogError> {
        let snapshots = self.snapshots().await?;
        let floor = floor_of(&snapshots);
        let updates = self.numbers(UPDATES).await?;
        let updates = updates.into_iter().filter(|number| *number <= floor);
        let snapshots = snapshots.into_iter().filter(|number| *number < floor);
        let old = updates.map(|number| self.object(UPDATES, number));
        self.delete(old.chain(snapshots.map(|number| self.object(SNAPSHOTS, number))).collect()).await
    }

    async fn numbers(&self, folder: &str) -> Result<Vec<u64>, LogError> {
        for _ in 1..ATTEMPTS {
            match self.numbers_once(folder).await {
                Err(LogError::Storage { .. }) => {}
                done => return done,
            }
        }
        self.numbers_once(folder).await
    }

    async fn numbers_once(&self, folder: &str) -> Result<Vec<u64>, LogError> {
        let folder = self.folder.clone().join(folder);
        let listed = self.place.store().list(Some(&folder));
        let number = |path: &Path| path.filename().and_then(|name| name.parse::<u64>().ok());
        let numbers = listed.try_filter_map(async |object| Ok(number(&object.location)));
        let mut numbers: Vec<u64> = numbers.try_collect().await.map_err(|error| storage(&folder, &error))?;
        numbers.sort_unstable();
        Ok(numbers)
    }

    async fn get(&self, object: &Path) -> Result<Option<Bytes>, LogError> {
        for _ in 1..ATTEMPTS {
            match self.get_once(object).await {
                Err(LogError::Storage { .. }) => {}
                done => return done,
            }
        }
        self.get_once(object).await
    }

    async fn get_once(&self, object: &Path) -> Result<Option<Bytes>, LogError> {
        let got = match self.place.store().get(object).await {
            Ok(got) => got.bytes().await,
            Err(error) => Err(error),
        };
        match got {
            Ok(bytes) => Ok(Some(bytes)),
            Err(Error::NotFound { .. }) => Ok(None),
            Err(error) => Err(storage(object, &error)),
        }
    }

    async fn create(&self, object: &Path, bytes: Bytes) -> Result<Created, LogError> {
        let options = PutOptions::from(PutMode::Create);
        match self.place.store().put_opts(object, bytes.into(), options).await {
            Ok(_) => Ok(Created::New),
            Err(Error::AlreadyExists { .. } | Error::Precondition { .. }) => Ok(Created::There),
            Err(error) => Err(storage(object, &error)),
        }
    }

    async fn delete(&self, objects: Vec<Path>) -> Result<(), LogError> {
        let objects = futures_util::stream::iter(objects.into_iter().map(Ok)).boxed();
        let mut deleted = self.place.store().delete_stream(objects);
        while let Some(result) = deleted.next().await {
            match result {
                // Somebody else tidies, too.
                Ok(_) | Err(Error::NotFound { .. }) => {}
                Err(error) => return Err(storage(&self.folder, &error)),
            }
        }
        Ok(())
    }
}

const UPDATES: &str = "updates";
const SNAPSHOTS: &str = "snapshots";

/// The most attempts to read an object: opening a log is many reads, and none of them may fail. Storage
/// that needs a pause in between makes it itself.
const ATTEMPTS: u32 = 4;

fn floor_of(snapshots: &[u64]) -> u64 {
    snapshots.iter().nth_back(1).copied().unwrap_or(0)
}

fn numbered(object: &Path, expected: u64, found: u64) -> Result<(), LogError> {
    let why = || format!("it contains the number {found}");
    if found == expected { Ok(()) } else { Err(LogError::Damaged { object: object.to_string(), why: why() }) }
}

fn read<T: DeserializeOwned>(object: &Path, bytes: &[u8]) -> Result<T, LogError> {
    object_encoding::decode(bytes).map_err(|why| LogError::Damaged { object: object.to_string(), why })
}

fn write(object: &Path, content: &impl Serialize) -> Result<Bytes, LogError> {
    object_encoding::encode(content).map_err(|why| LogError::Storage { object: object.to_string(), why })
}

fn storage(object: &Path, error: &Error) -> LogError {
    LogError::Storage { object: object.to_string(), why: error.to_string() }
}

/// The folder of a log.
pub(super) fn folder(kind: &str, partition: PartitionId) -> Path {
    Path::from(format!("{kind}/{:02}", partition.0))
}
