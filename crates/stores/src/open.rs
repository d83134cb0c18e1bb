//! Opens the store that a URL names: for hosts, which create a missing one, or for tools, which create
//! nothing and migrate no tables.

use std::sync::Arc;

use ephor_core::store::Store;

use crate::url::StoreUrl;

/// Why a store cannot be opened. It shows no password.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The file cannot be used.
    #[cfg(feature = "sqlite")]
    #[error(transparent)]
    Sqlite(#[from] crate::sqlite::OpenError),
    /// The URL does not name a database, or an option is invalid.
    #[cfg(feature = "postgres")]
    #[error(transparent)]
    Postgres(#[from] crate::postgres::InvalidSettings),
    /// The text names no container of a storage account, an option is invalid, or there are no credentials.
    #[cfg(feature = "azblob")]
    #[error(transparent)]
    Blob(#[from] crate::azblob::InvalidSettings),
    /// The database or the account cannot be used.
    #[cfg(any(feature = "postgres", feature = "azblob"))]
    #[error(transparent)]
    Store(#[from] ephor_core::store::StoreError),
    /// This program was built without the store's feature.
    #[error("{url}: this program was built without the feature `{feature}` of ephor")]
    NotBuiltIn {
        /// The store.
        url: StoreUrl,
        /// The missing feature.
        feature: &'static str,
    },
}

/// Opens the store that a URL names, for tools. It creates none, because a new store would only hide that the URL
/// is wrong. It refuses tables of an earlier release and does not migrate them, because that would lock the hosts of
/// that release out.
#[allow(clippy::unused_async, reason = "some stores connect")]
pub async fn open_existing(url: &StoreUrl) -> Result<Option<Arc<dyn Store>>, OpenError> {
    match url {
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => {
            let store = crate::sqlite::SqliteStore::open_existing(path)?;
            Ok(store.map(|store| Arc::new(store) as Arc<dyn Store>))
        }
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(text) => {
            let store = crate::postgres::PostgresStore::connect_existing(text, Default::default()).await?;
            Ok(store.map(|store| Arc::new(store) as Arc<dyn Store>))
        }
        #[cfg(feature = "azblob")]
        StoreUrl::Blob(text) if is_legacy(text)? => {
            let fleet = crate::azblob::LegacyContainer::new(text, &Default::default())?;
            fleet.check().await?;
            Ok(Some(Arc::new(fleet)))
        }
        #[cfg(feature = "azblob")]
        StoreUrl::Blob(text) => {
            let store = crate::azblob::BlobStore::connect_existing(text, Default::default()).await?;
            Ok(store.map(|store| Arc::new(store) as Arc<dyn Store>))
        }
        #[cfg(not(all(feature = "sqlite", feature = "postgres", feature = "azblob")))]
        other => open(other).await.map(Some),
    }
}

/// Whether a text names the container of an old Event Processor Host.
#[cfg(feature = "azblob")]
fn is_legacy(text: &str) -> Result<bool, OpenError> {
    Ok(crate::azblob::BlobAddress::parse(text)?.layout != crate::azblob::Layout::Sdk)
}

/// Opens the store that a URL names, and creates it if it does not exist.
#[allow(clippy::unused_async, reason = "some stores connect")]
pub async fn open(url: &StoreUrl) -> Result<Arc<dyn Store>, OpenError> {
    match url {
        #[cfg(feature = "sqlite")]
        StoreUrl::Sqlite(path) => Ok(Arc::new(crate::sqlite::SqliteStore::open(path)?)),
        #[cfg(not(feature = "sqlite"))]
        StoreUrl::Sqlite(_) => Err(OpenError::NotBuiltIn { url: url.clone(), feature: "sqlite" }),
        #[cfg(feature = "postgres")]
        StoreUrl::Postgres(text) => {
            Ok(Arc::new(crate::postgres::PostgresStore::connect(text, Default::default()).await?))
        }
        #[cfg(not(feature = "postgres"))]
        StoreUrl::Postgres(_) => Err(OpenError::NotBuiltIn { url: url.clone(), feature: "postgres" }),
        #[cfg(feature = "azblob")]
        StoreUrl::Blob(text) => {
            Ok(Arc::new(crate::azblob::BlobStore::connect(text, Default::default()).await?))
        }
        #[cfg(not(feature = "azblob"))]
        StoreUrl::Blob(_) => Err(OpenError::NotBuiltIn { url: url.clone(), feature: "azblob" }),
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
        // Nor does a file become one in which nothing is yet.
        let empty = folder.path().join("empty.db");
        std::fs::write(&empty, "").unwrap();
        assert!(open_existing(&StoreUrl::Sqlite(empty.clone())).await.unwrap().is_none());
        assert_eq!(std::fs::metadata(&empty).unwrap().len(), 0);
        let nowhere: StoreUrl = server.url("nowhere").parse().unwrap();
        assert!(open_existing(&nowhere).await.err().unwrap().to_string().contains("no such database"));
    }

    /// Version 0 represents an earlier release.
    #[tokio::test]
    async fn tables_of_an_earlier_release_are_brought_up_to_date_by_hosts_and_not_by_looking() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("ephor.db");
        let file: StoreUrl = format!("sqlite:{}", path.display()).parse().unwrap();
        drop(open(&file).await.unwrap());
        let version = || {
            let connection = rusqlite::Connection::open(&path).unwrap();
            connection.pragma_query_value(None, "user_version", |row| row.get::<_, i64>(0)).unwrap()
        };
        let now = version();
        rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", 0).unwrap();
        for _ in 0..2 {
            let error = open_existing(&file).await.err().expect("it is older").to_string();
            assert!(
                error.contains("version 0") && error.contains("the release that the hosts run"),
                "{error}"
            );
        }
        assert_eq!(version(), 0);
        rusqlite::Connection::open(&path).unwrap().pragma_update(None, "user_version", now).unwrap();
        assert!(open_existing(&file).await.unwrap().is_some());

        let server = ephor_testkit::postgres_server::Server::start();
        let text = server.url("postgres");
        let url: StoreUrl = text.parse().unwrap();
        open(&url).await.unwrap();
        let mut connection = <sqlx::PgConnection as sqlx::Connection>::connect(&text).await.unwrap();
        let mut sql =
            async |text: &'static str| sqlx::raw_sql(text).fetch_all(&mut connection).await.unwrap();
        sql("UPDATE ephor.schema_version SET version = 0").await;
        for _ in 0..2 {
            let error = open_existing(&url).await.err().expect("they are older").to_string();
            assert!(
                error.contains("version 0") && error.contains("the release that the hosts run"),
                "{error}"
            );
        }
        let rows = sql("SELECT version FROM ephor.schema_version").await;
        assert_eq!(sqlx::Row::get::<i64, _>(&rows[0], "version"), 0);
        // A host that meets them goes to work on them at once: here in vain, for the tables are there.
        assert!(!open(&url).await.err().unwrap().to_string().contains("the release that the hosts run"));
        sql("UPDATE ephor.schema_version SET version = 1").await;
        assert!(open_existing(&url).await.unwrap().is_some());
    }
}
