//! The embedded event hub: durable partition logs, consumer groups, epoch rules. It opens no socket.
//!
//! ```
//! use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig, NewEvent};
//!
//! # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
//! let namespace = LocalNamespace::in_memory(NamespaceConfig::default())?;
//! let hub = namespace.create_hub(HubConfig::new("homes", 4)?)?;
//! let receipt = hub.producer().send(NewEvent::new("the door opened")).await?;
//! assert_eq!(receipt.first.0, 0);
//! # Ok::<(), Box<dyn std::error::Error>>(()) })?; Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! | file | owns |
//! |---|---|
//! | `namespace.rs`, `verification.rs` | all hubs of a data folder: create, list, delete; verify |
//! | `catalog.rs`, `config/` | the record of a hub on disk; its configuration |
//! | `hub.rs`, `hub/changes.rs` | one hub: receivers, consumer groups, more partitions, retention; an `EventSource` |
//! | `producer.rs`, `producer/producer_trait.rs`, `batch.rs` | sending; the interface that all hubs share; the encoding of events |
//! | `partition.rs`, `receiver.rs`, `offset.rs` | reading; the epoch rules for receivers; offsets |
//! | `committer.rs`, `appender.rs` | group commit: the queue of sends; append, publish, enforce retention |
//! | `journal/` | the log on disk: layout, commit, recovery, index, reading, retention |
//! | `time.rs`, `time/` | the time of a hub when the wall clock jumps |
//! | `files/`, `lock.rs`, `disk_reserve.rs` | access to the disk; the space that stays free |
//! | `os.rs` | calls to the operating system |
//! | `health.rs` | the problems that keep hubs from working |
//! | `error.rs` | the errors of sending and of managing hubs |

mod appender;
mod batch;
mod catalog;
mod committer;
pub mod config;
mod disk_reserve;
mod error;
pub mod files;
pub mod health;
mod hub;
mod journal;
mod lock;
mod namespace;
mod offset;
mod os;
mod partition;
mod producer;
mod receiver;
mod time;
mod verification;

pub use batch::{Batch, MAX_BATCH_BYTES, StoredBatch, StoredEvent};
pub use catalog::CatalogError;
pub use config::{Durability, HubConfig, InvalidConfig, NamespaceConfig, Retention};
pub use error::{HubError, SendError};
pub use hub::{Hub, HubDescription};
pub use journal::verify::LogVerification;
pub use journal::{Damage, RecoveryReport};
pub use lock::{FolderLock, LockError};
pub use namespace::LocalNamespace;
pub use offset::offset_of;
pub use partition::ReceiverDescription;
pub use producer::{HubProducer, Receipt};
pub use receiver::{HubReceiver, IdleProbe};
pub use verification::{HubVerification, verify_files, verify_folder};

pub use ephor_core::event::NewEvent;
pub use ephor_core::producer::{Producer, Target};
