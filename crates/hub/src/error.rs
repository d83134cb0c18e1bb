//! The errors of sending to a hub and of managing hubs.

use std::io;
use std::sync::Arc;

use ephor_core::ids::{HubName, InvalidName, PartitionId};
use ephor_core::partition_key::InvalidKey;

use crate::catalog::CatalogError;
use crate::config::InvalidConfig;
use crate::config::quantity::show_size;
use crate::files::is_disk_full;
use crate::lock::LockError;

/// Why a batch was not stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// An event is larger than the hub's limit.
    #[error("the event has {size} bytes; this hub accepts at most {limit} bytes")]
    EventTooLarge {
        /// Its size, with its properties and its key, or that of the message that was sent.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The batch is larger than the limit.
    #[error("the batch has {size} bytes; a batch has at most {limit} bytes; split it")]
    BatchTooLarge {
        /// Its size.
        size: u64,
        /// The limit.
        limit: u64,
    },
    /// The batch has no events.
    #[error("the batch is empty")]
    EmptyBatch,
    /// The events have different keys, which select different partitions.
    #[error(
        "the events have different partition keys, and a batch is stored in one partition; send the events of each \
         key with Target::Key, name a partition, or send them through the trait Producer, which sorts them by key"
    )]
    DifferentKeys,
    /// The hub has no such partition.
    #[error("hub {hub:?} has no partition {partition}; it has {partitions} in all, numbered from 0")]
    NoSuchPartition {
        /// The hub.
        hub: HubName,
        /// The requested partition.
        partition: PartitionId,
        /// The number of partitions.
        partitions: u32,
    },
    /// The partition key is invalid.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// The event cannot be encoded as an AMQP message, or is not a valid one.
    #[error("the event cannot be stored: {0}")]
    Unencodable(String),
    /// The disk is full.
    #[error(
        "the disk is full: {0}; the batch does not count as stored; free some space and send it again; readers continue"
    )]
    DiskFull(#[source] Arc<io::Error>),
    /// The disk is nearly full: less than the disk reserve is free.
    #[error(
        "the disk is nearly full: {} are free, and {} must stay free (disk_reserve_bytes); the batch was not stored; \
         free some space and send it again; readers continue",
        show_size(*free), show_size(*reserve)
    )]
    LowOnDisk {
        /// The free bytes.
        free: u64,
        /// The bytes that must stay free.
        reserve: u64,
    },
    /// The disk failed.
    #[error("the disk failed: {0}; the batch does not count as stored; send it again")]
    Disk(#[source] Arc<io::Error>),
    /// A batch that had to be stored first failed.
    #[error("an earlier batch was not stored, so this one was not stored either; send both again, in order")]
    OutOfOrder,
    /// The hub is closed or deleted.
    #[error("{0}")]
    Closed(Arc<str>),
}

impl From<io::Error> for SendError {
    fn from(error: io::Error) -> Self {
        match is_disk_full(&error) {
            true => Self::DiskFull(Arc::new(error)),
            false => Self::Disk(Arc::new(error)),
        }
    }
}

/// Why a hub could not be created, opened, changed, deleted or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// There is no hub with this name.
    #[error("hub {name:?} does not exist")]
    NotFound {
        /// The requested name.
        name: String,
    },
    /// There is a hub with this name already.
    #[error("hub {existing:?} exists already; names are compared without case")]
    Exists {
        /// The existing hub.
        existing: HubName,
    },
    /// A hub cannot lose partitions.
    #[error(
        "hub {hub:?} has {present} partitions and cannot shrink to {wanted}; keep the number, or delete the hub and create it again"
    )]
    CannotShrink {
        /// The hub.
        hub: HubName,
        /// Its number of partitions.
        present: u32,
        /// The requested number.
        wanted: u32,
    },
    /// The group cannot be deleted.
    #[error("consumer group {0:?} always exists and cannot be deleted")]
    GroupStays(String),
    /// The group does not exist.
    #[error("hub {hub:?} has no consumer group {group:?}")]
    NoSuchGroup {
        /// The hub.
        hub: HubName,
        /// The requested group.
        group: String,
    },
    /// The name is invalid.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// The configuration is invalid.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The hub's record could not be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The data folder could not be locked.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The disk failed.
    #[error("{what}: {error}")]
    Disk {
        /// The failed action.
        what: String,
        /// The error of the operating system.
        #[source]
        error: io::Error,
    },
    /// The hub exists but could not be opened.
    #[error("hub {name:?} could not be opened: {reason}")]
    Broken {
        /// The hub, or its folder.
        name: String,
        /// Why.
        reason: String,
    },
    /// The hub or its namespace is closed.
    #[error("{0}")]
    Closed(Arc<str>),
}

impl HubError {
    pub(crate) fn disk(what: impl Into<String>) -> impl FnOnce(io::Error) -> Self {
        let what = what.into();
        move |error| Self::Disk { what, error }
    }
}
