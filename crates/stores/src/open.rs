//! The store that a URL names.

use std::sync::Arc;

use ephor_core::store::Store;

use crate::url::StoreUrl;

/// Why a store could not be opened. It repeats no password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be used.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] crate::sqlite::OpenError),
    /// The URL does not name a database.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] crate::postgres::ConnectError),
    /// The database cannot be used.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Store(#[from] ephor_core::store::StoreError),
    /// This program was built without it.
    #[error("{url}: this program was built without the feature `{feature}` of ephor-stores")]
    NotBuiltIn {
        /// The store.
        url: StoreUrl,
        /// What is missing.
        feature: &'static str,
    },
}

/// Opens the store that a URL names, and makes it if it is not there.
#[allow(clippy::unused_async, reason = "some stores are waited for")]
pub async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, OpenError> {
    match url {
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => Ok(Arc::new(crate::sqlite::SqliteStore::open(path)?)),
        #[cfg(not(feature = "sqlite"))]
        StoreUrl::Sqlite(_) => Err(OpenError::NotBuiltIn { url: url.clone(), feature: "sqlite" }),
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(text) => {
            let store = crate::postgres::PostgresStore::connect(text, Default::default())?;
            store.check().await?;
            Ok(Arc::new(store))
        }
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => Err(OpenError::NotBuiltIn { url: url.clone(), feature: "postgres" }),
    }
}
