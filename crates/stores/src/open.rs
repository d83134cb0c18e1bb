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

/// Opens the store that a URL names if there is one, and makes none: for tools, where a new one would only hide
/// that the URL is wrong.
#[allow(clippy::unused_async, reason = "some stores are waited for")]
pub async fn open_existing(url: &StoreUrl) -> Result<Option<Arc<dyn Store>>, OpenError> {
    let there = match url {
        StoreUrl::Sqlite(path) => path.exists(),
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(text) => {
            crate::postgres::PostgresStore::connect(text, Default::default())?.exists().await?
        }
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => true,
    };
    Ok(if there { Some(open(url).await?) } else { None })
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

#[cfg(all(test, feature = "sqlite", feature = "postgres"))]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_is_made_by_opening_it_and_not_by_looking_for_it() {
        let folder = tempfile::tempdir().unwrap();
        let server = ephor_testkit::postgres_server::Server::start();
        let file = format!("sqlite:{}", folder.path().join("ephor.db").display());
        for url in [file, server.url("postgres")] {
            let url: StoreUrl = url.parse().unwrap();
            for _ in 0..2 {
                assert!(open_existing(&url).await.unwrap().is_none(), "{url}");
            }
            open(&url).await.unwrap();
            assert!(open_existing(&url).await.unwrap().is_some(), "{url}");
        }
        let nowhere: StoreUrl = server.url("nowhere").parse().unwrap();
        assert!(open_existing(&nowhere).await.err().unwrap().to_string().contains("no such database"));
    }
}
