//! The storage of results: a folder, or a container in Azure Blob Storage.

use std::fmt;
use std::sync::{Arc, Once};

use ephor::PartitionId;
use ephor_stores::storage_account::StorageAccount;
use object_store::ObjectStore;
use object_store::local::LocalFileSystem;
use object_store::prefix::PrefixStore;

use super::account::{Account, InvalidAccount};
use super::container;
use super::log::{self, Log};

/// Why the storage cannot be used. Contains no key.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ResultStoreError {
    /// The folder cannot be made or read.
    #[error(
        "the folder {folder} for the results cannot be used: {why}; use a folder that this user may write to"
    )]
    Folder {
        /// The folder.
        folder: String,
        /// The error of the operating system.
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
        /// The problem, and what to do.
        why: String,
    },
}

/// The storage of results. Clones share their connections.
#[derive(Clone)]
pub struct ResultStore {
    store: Arc<dyn ObjectStore>,
    /// For people: no secrets.
    name: Arc<str>,
}

impl ResultStore {
    /// A folder's path, or the connection string of a storage account, where the container is made if it is missing.
    pub async fn open(text: &str, container: &str) -> Result<Self, ResultStoreError> {
        if StorageAccount::is_connection_string(text) {
            trust_with_ring();
            let account = Account::parse(text)?;
            let store = container::open(&account, container).await?;
            let name = format!("{}/{container}", account.endpoint);
            return Ok(Self { store: Arc::new(store), name: name.into() });
        }
        let failed = |why: String| ResultStoreError::Folder { folder: text.to_owned(), why };
        if text.is_empty() || text.contains("://") {
            return Err(failed(
                "the place for the results is neither a path nor the connection string of a storage account"
                    .into(),
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

impl fmt::Display for ResultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)
    }
}

impl fmt::Debug for ResultStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Place({})", self.name)
    }
}

/// Uses ring for TLS, unless the program has chosen another provider.
fn trust_with_ring() {
    static ONCE: Once = Once::new();
    ONCE.call_once(|| {
        let _ = tokio_rustls::rustls::crypto::ring::default_provider().install_default();
    });
}
