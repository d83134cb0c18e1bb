//! Ephor runs your event handler on as many machines as you like: every partition of an event hub
//! has exactly one owner, which resumes where the last owner stopped and hands over without a gap.
//!
//! | to | use |
//! |---|---|
//! | handle events | [`EventProcessor`], or a closure: [`HostBuilder::for_each_event`] |
//! | run | [`EventProcessorHost`] |
//! | write checkpoints, get the epoch (fencing token) | [`PartitionContext`] |
//! | configure | [`EventProcessorOptions`], [`PartitionManagerOptions`]; [`defaults`] |
//! | observe and operate | [`EventProcessorHost::snapshot`], [`admin`], [`metric_names`] |
//! | try it without a cloud | [`memory`] |
//! | test your processor | the crate `ephor-testkit` |
//! | write a store or a source of your own | [`store`], [`source`] |
//!
//! An application depends on this crate alone and switches on what it uses:
//!
//! | feature | gives |
//! |---|---|
//! | `eventhubs` | `ephor::eventhubs`: the client of Azure Event Hubs and of any Ephor hub |
//! | `entra` | tokens of Entra ID for that client |
//! | `hub` | `ephor::hub`: the embedded event hub |
//! | `sqlite`, `postgres`, `azblob` | `ephor::stores`: stores for leases and checkpoints, chosen by a URL |
#![cfg_attr(docsrs, feature(doc_cfg))]

#[doc(inline)]
pub use ephor_host::*;

#[cfg(feature = "eventhubs")]
#[doc(inline)]
pub use ephor_eventhubs as eventhubs;

#[cfg(any(feature = "sqlite", feature = "postgres", feature = "azblob"))]
#[doc(inline)]
pub use ephor_stores as stores;

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
        Batch, CatalogError, Damage, Durability, Hub, HubConfig, HubDescription, HubError, HubVerification,
        InvalidConfig, LocalNamespace, LockError, LogVerification, MAX_BATCH_BYTES, NamespaceConfig,
        Producer, Receipt, ReceiverDescription, RecoveryReport, Retention, SendError, Target, config, health,
        verify_folder,
    };
}

/// The programs in README.md compile.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
