//! Ephor runs your event handler on as many machines as you like: every partition of an event hub has
//! exactly one owner, which resumes where the last owner stopped, and planned moves lose and repeat no
//! event.
//!
//! | to | use |
//! |---|---|
//! | handle events | [`EventProcessor`], or a closure: [`HostBuilder::for_each_event`] |
//! | run | [`EventProcessorHost`] |
//! | send | [`Producer`] |
//! | choose a hub and a store by a URL | [`hubs`], `ephor::stores` |
//! | write checkpoints, get the epoch (fencing token) | [`PartitionContext`] |
//! | configure | [`EventProcessorOptions`], [`PartitionManagerOptions`]; [`defaults`] |
//! | observe and operate | [`EventProcessorHost::snapshot`], [`EventProcessorHost::admin`], [`admin`], [`metric_names`] |
//! | try it without a cloud | [`memory`] |
//! | test your processor | the crate `ephor-testkit` |
//! | write a store, a source or a producer of your own | [`store`], [`source`], [`producer`] |
//!
//! An application depends on this crate alone and switches on what it uses:
//!
//! | feature | gives |
//! |---|---|
//! | `eventhubs` | `ephor::eventhubs`: the client of Azure Event Hubs and of any Ephor hub |
//! | `entra` | tokens of Entra ID for that client |
//! | `hub` | `ephor::hub`: the embedded event hub |
//! | `sqlite`, `postgres`, `azblob` | `ephor::stores`: stores for leases and checkpoints, chosen by a URL |
//! | `serde` | `Serialize` for snapshots, reports and the results of [`admin`]; options and store URLs in configuration files (docs/configuration.md) |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(inline)]
pub use ephor_host::*;

pub mod hubs;

#[cfg(feature = "eventhubs")]
#[doc(inline)]
pub use ephor_eventhubs as eventhubs;

/// Stores for leases and checkpoints, chosen by a URL: `sqlite:PATH` (hosts on one machine), `postgres://…` or
/// `azblob://ACCOUNT/CONTAINER` (hosts on several machines).
#[cfg(any(feature = "sqlite", feature = "postgres", feature = "azblob"))]
pub mod stores {
    #[doc(inline)]
    pub use ephor_stores::{DEFAULT_CONTAINER, InvalidUrl, OpenError, StoreUrl, export, open, open_existing};

    // By name, because rustdoc would list every item of the drivers otherwise.
    /// A store in a SQLite file, for hosts on one machine.
    #[cfg(feature = "sqlite")]
    pub mod sqlite {
        #[doc(no_inline)]
        pub use ephor_stores::sqlite::rusqlite;
        #[doc(inline)]
        pub use ephor_stores::sqlite::{
            DEFAULT_BUSY_WAIT, Machine, OpenError, OtherMachine, SqliteOptions, SqliteStore, ThisMachine,
        };
    }

    /// A store in a PostgreSQL database, for hosts on several machines.
    #[cfg(feature = "postgres")]
    pub mod postgres {
        #[doc(no_inline)]
        pub use ephor_stores::postgres::sqlx;
        #[doc(inline)]
        pub use ephor_stores::postgres::{
            DEFAULT_CALL_LIMIT, DEFAULT_CONNECTIONS, DEFAULT_LOCK_WAIT, DEFAULT_SCHEMA,
            DEFAULT_TRANSACTION_IDLE, InvalidSettings, PostgresOptions, PostgresStore,
        };
    }

    /// A store in a container of an Azure Storage account, for hosts that share a group with other SDKs'
    /// processors, or replace them.
    #[cfg(feature = "azblob")]
    pub mod azblob {
        #[doc(inline)]
        pub use ephor_stores::azblob::{
            AccountKey, BlobAddress, BlobCredential, BlobOptions, BlobStore, Case, DEFAULT_CALL_LIMIT,
            DEFAULT_CONTAINER, DEFAULT_MAX_CONCURRENT_REQUESTS, DEFAULT_SERVICE_VERSION, InvalidSettings,
            Layout, LegacyContainer, Sas, SharedWith, TokenCredential,
        };
    }
}

/// The embedded event hub: durable partition logs, consumer groups, epoch rules. It opens no socket.
///
/// ```
/// use ephor::NewEvent;
/// use ephor::hub::{HubConfig, LocalNamespace, NamespaceConfig};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let namespace = LocalNamespace::in_memory(NamespaceConfig::default())?;
/// let hub = namespace.create_hub(HubConfig::new("homes", 4)?)?;
/// let receipt = hub.producer().send(NewEvent::new("the door opened")).await?;
/// assert_eq!(receipt.first.0, 0);
/// # Ok::<(), Box<dyn std::error::Error>>(()) })?; Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[cfg(feature = "hub")]
pub mod hub {
    #[doc(inline)]
    pub use ephor_hub::{
        Batch, CatalogError, Damage, Durability, Hub, HubConfig, HubDescription, HubError, HubProducer,
        HubVerification, InvalidConfig, LocalNamespace, LockError, LogVerification, MAX_BATCH_BYTES,
        NamespaceConfig, Receipt, ReceiverDescription, RecoveryReport, Retention, SendError, config, health,
        verify_folder,
    };
}

/// The programs in docs/configuration.md compile, and its files are read.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/configuration.md")]
struct Configuration;

/// The programs in README.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
