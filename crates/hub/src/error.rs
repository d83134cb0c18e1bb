//! What can go wrong, each in words for whoever reads it at night.

use std::io;
use std::sync::Arc;

use ephor_core::ids::{HubName, InvalidName, PartitionId};
use ephor_core::partition_key::InvalidKey;

use crate::catalog::CatalogError;
use crate::config::InvalidConfig;
use crate::config::quantity::show_size;
use crate::files::is_disk_full;
use crate::lock::LockError;

/// Why nothing of a batch was stored.
#[derive(Clone, Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SendError {
    /// An event is larger than the hub takes.
    #[error("the event has {size} bytes; this hub takes at most {limit}")]
    EventTooLarge {
        /// How large it is, with its properties and its key.
        size: u64,
        /// How large an event may be.
        limit: u64,
    },
    /// A batch is larger than any hub takes.
    #[error("the batch has {size} bytes; at most {limit} are stored at once")]
    BatchTooLarge {
        /// How large it would be.
        size: u64,
        /// How large a batch may be.
        limit: u64,
    },
    /// A batch without events.
    #[error("the batch is empty")]
    EmptyBatch,
    /// The hub has no such partition.
    #[error("hub {hub:?} has no partition {partition}; it has {partitions}, numbered from 0 on")]
    NoSuchPartition {
        /// The hub.
        hub: HubName,
        /// What was asked for.
        partition: PartitionId,
        /// How many there are.
        partitions: u32,
    },
    /// The partition key cannot be used.
    #[error(transparent)]
    InvalidKey(#[from] InvalidKey),
    /// The event cannot be written as an AMQP message, or is none.
    #[error("the event cannot be stored: {0}")]
    Unencodable(String),
    /// The disk is full.
    #[error(
        "the disk is full: {0}; this batch does not count as stored; reading goes on, and sending does as soon as there is room"
    )]
    DiskFull(Arc<io::Error>),
    /// So little of the disk is free that it is kept for others.
    #[error(
        "the disk is nearly full: {} are free, and {} have to stay free (disk_reserve_bytes); this batch does not \
         count as stored; reading goes on, and sending does as soon as there is room",
        show_size(*free), show_size(*reserve)
    )]
    LowOnDisk {
        /// How many bytes are free.
        free: u64,
        /// How many have to stay free.
        reserve: u64,
    },
    /// The disk failed.
    #[error("the disk failed: {0}; this batch does not count as stored, send it again")]
    Disk(Arc<io::Error>),
    /// Another batch was to be stored first, and failed.
    #[error("a batch that has to come before this one was not stored; send both again, in order")]
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

/// Why a hub cannot be created, changed, deleted or found.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum HubError {
    /// There is none of this name.
    #[error("there is no hub {name:?}")]
    NotFound {
        /// What was asked for.
        name: String,
    },
    /// There is one already.
    #[error("hub {existing:?} exists already; names are compared without case")]
    Exists {
        /// The one that is there.
        existing: HubName,
    },
    /// A hub cannot lose partitions.
    #[error(
        "hub {hub:?} has {present} partitions and cannot shrink to {wanted}; delete and create it, or leave the number as it is"
    )]
    CannotShrink {
        /// The hub.
        hub: HubName,
        /// How many it has.
        present: u32,
        /// How many were asked for.
        wanted: u32,
    },
    /// A group that cannot be deleted.
    #[error("consumer group {0:?} always exists and cannot be deleted")]
    GroupStays(String),
    /// A group that does not exist.
    #[error("hub {hub:?} has no consumer group {group:?}")]
    NoSuchGroup {
        /// The hub.
        hub: HubName,
        /// What was asked for.
        group: String,
    },
    /// A name that is not allowed.
    #[error(transparent)]
    InvalidName(#[from] InvalidName),
    /// Numbers that do not fit together.
    #[error(transparent)]
    Config(#[from] InvalidConfig),
    /// The hub's own record cannot be read or written.
    #[error(transparent)]
    Catalog(#[from] CatalogError),
    /// The folder is in use.
    #[error(transparent)]
    Lock(#[from] LockError),
    /// The disk failed.
    #[error("{what}: {error}")]
    Disk {
        /// What was tried.
        what: String,
        /// What the system said.
        #[source]
        error: io::Error,
    },
    /// The hub is there but could not be opened.
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
