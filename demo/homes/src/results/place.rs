//! Where results are kept: a folder, or a container of Azure Blob Storage.

use std::fmt;
use std::sync::{Arc, Once};

use ephor::PartitionId;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;

use super::account::{Account, InvalidAccount};
use super::container;
use super::log::{self, Log};

/// Why a place cannot be used. It repeats no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PlaceError {
    /// The folder cannot be made or read.
    #[error(
        "the folder {folder} for the results cannot be used: {why}; name one that this user may write to"
    )]
    Folder {
        /// The folder.
        folder: String,
        /// What the system said.
        why: String,
    },
    /// The connection string of the storage account is wrong.
    #[error(transparent)]
    Account(#[from] InvalidAccount),
    /// The container cannot be made or read.
    #[error("the container {container} at {endpoint} cannot be used: {why}")]
    Container {
        /// Its name.
        container: String,
        /// Where.
        endpoint: String,
        /// What is wrong, and what to do.
        why: String,
    },
}

/// Where results are kept. Clones share their connections.
#[derive(Clone)]
pub struct Place {
    store: Arc<dyn ObjectStore>,
    /// For people: no secrets.
    name: Arc<str>,
}

impl Place {
    /// A folder's path, or the connection string of a storage account, where the container is made if it is missing.
    pub async fn open(text: &str, container: &str) -> Result<Self, PlaceError> {
        if Account::looks_like(text) {
            trust_with_ring();
            let account = Account::parse(text)?;
            let store = container::open(&account, container).await?;
            let name = format!("{}/{container}", account.endpoint);
            return Ok(Self { store: Arc::new(store), name: name.into() });
        }
        let failed = |why: String| PlaceError::Folder { folder: text.to_owned(), why };
        if text.is_empty() || text.contains("://") {
            return Err(failed(
                "this is neither a path nor the connection string of a storage account".into(),
            ));
        }
        std::fs::create_dir_all(text).map_err(|error| failed(error.to_string()))?;
        let store = LocalFileSystem::new_with_prefix(text).map_err(|error| failed(error.to_string()))?;
        Ok(Self { store: Arc::new(store), name: text.into() })
    }

    /// Any other store of objects.
    pub fn of(store: Arc<dyn ObjectStore>, name: &str) -> Self {
        Self { store, name: name.into() }
    }

    /// A part of this place: for one run among several.
    pub fn under(&self, folder: &str) -> Self {
        let name = format!("{}/{folder}", self.name).into();
        Self { store: Arc::new(PrefixStore::new(self.store.clone(), folder)), name }
    }

    /// The log of a kind of results, `homes` or `alarms`, and a partition.
    pub fn log(&self, kind: &str, partition: PartitionId) -> Log {
        Log::new(self.clone(), log::folder(kind, partition))
    }

    pub(super) fn store(&self) -> &dyn ObjectStore {
        &*self.store
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.name)
    }
}

/// TLS is done by ring, as everywhere here; whoever chose before us is left alone.
fn trust_with_ring() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    });
}
