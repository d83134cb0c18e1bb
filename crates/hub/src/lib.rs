//! The embedded event hub: durable partition logs, consumer groups, epoch rules. No socket.
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
//! | `catalog.rs`, `config/` | what a hub is: on disk, and as configured |
//! | `hub.rs`, `hub/changes.rs` | one hub: receivers; groups, growth, retention; an `EventSource` |
//! | `producer.rs`, `batch.rs` | sending, and how events are encoded |
//! | `partition.rs`, `receiver.rs` | reading, and who may |
//! | `committer.rs`, `writer.rs` | group commit: what turns sends into commits, and what becomes of them |
//! | `journal/` | the log on disk: layout, commit, recovery, index, reading, retention |
//! | `time.rs` | what time it is for a hub, when the wall clock jumps |
//! | `files/`, `lock.rs`, `reserve.rs` | the seam to the disk; what of it stays free |
//! | `health.rs` | what is the matter, if something is |

mod batch;
mod catalog;
mod committer;
pub mod config;
mod error;
pub mod files;
pub mod health;
mod hub;
mod journal;
mod lock;
mod namespace;
mod partition;
mod producer;
mod receiver;
mod reserve;
mod time;
mod verification;
mod writer;

pub use batch::{Batch, MAX_BATCH_BYTES, StoredBatch, StoredEvent, offset_of};
pub use catalog::CatalogError;
pub use config::{Durability, HubConfig, InvalidConfig, NamespaceConfig, Retention};
pub use error::{HubError, SendError};
pub use hub::{Hub, HubDescription};
pub use journal::verify::LogVerification;
pub use journal::{Damage, RecoveryReport};
pub use lock::{FolderLock, LockError};
pub use namespace::LocalNamespace;
pub use partition::ReceiverDescription;
pub use producer::{Producer, Receipt, Target};
pub use receiver::{HubReceiver, Lookout};
pub use verification::{HubVerification, verify_files, verify_folder};

pub use ephor_core::event::NewEvent;
