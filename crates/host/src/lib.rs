//! The event processor host. Applications depend on the crate `ephor`, which re-exports this crate and, by
//! its features, event hubs and stores.
//!
//! | to read about | open |
//! |---|---|
//! | a host from start to stop | `host/` |
//! | one owned partition | `pump/` |
//! | what a processor sees, and checkpoints | `processor.rs`, `context.rs` |
//! | options and their validation | `options.rs` |
//! | errors and reports | `error.rs`, `error_reports.rs` |
//! | tools for operators | [`admin`] |
//! | a store and a hub in memory | [`memory`] |

pub mod admin;
mod builder;
mod checkpoint_throttle;
mod context;
mod error;
mod error_reports;
mod host;
mod host_services;
mod hub_calls;
mod hub_health;
mod last_seek;
mod lease_state;
mod limits;
pub mod memory;
pub mod metric_names;
mod options;
mod processor;
mod progress;
mod pump;
mod pump_activity;
mod pump_interface;
mod saves_in_flight;
mod stop_report;
mod store_calls;

pub use builder::{BuildError, HostBuilder, host_name};
pub use context::{Checkpointed, PartitionContext};
pub use error::{CheckpointError, HostError, PartitionError, ProcessorError, StoreCallError};
pub use host::ownership_changes::{OwnershipChanges, OwnershipEvent, OwnershipReason};
pub use host::snapshot::{HostSnapshot, PartitionSnapshot};
pub use host::{EventProcessorHost, NotRunning, StartError};
pub use last_seek::LastSeek;
pub use options::{
    ErrorHandler, EventProcessorOptions, InitialPosition, InvalidOption, PartitionManagerOptions,
};
pub use processor::{CloseReason, EventProcessor};
pub use progress::Failing;
pub use pump_activity::PumpState;
pub use stop_report::StopReport;

#[doc(inline)]
pub use ephor_runtime::environment;

pub use ephor_core::causes::with_causes;
pub use ephor_core::checkpoint::{Checkpoint, CheckpointPolicy, Position};
pub use ephor_core::epoch::Epoch;
pub use ephor_core::event::{Event, NewEvent, Properties, Property, Value};
pub use ephor_core::failure_policy::{Backoff, FailurePolicy};
pub use ephor_core::history::{ChangeReason, OwnershipChange};
pub use ephor_core::host_record::{HostState, HostStatistics, ReadHub};
pub use ephor_core::ids::{
    ConsumerGroup, GroupId, HostId, HostName, HubName, Incarnation, InvalidName, LogId, Namespace,
    PartitionId,
};
pub use ephor_core::lease::{ClaimCause, Lease, ReleaseCause};
pub use ephor_core::position::{Offset, SequenceNumber, StartPosition};
pub use ephor_core::producer::{Producer, ProducerError, Target};
pub use ephor_core::progress::Lag;
pub use ephor_core::resume::{OnInvalidPosition, PositionGone};
pub use ephor_core::source::{EventSource, Receiver, SourceError};
pub use ephor_core::store::{HostEntry, Store, StoreError};
pub use ephor_core::time::{Clock, InvalidTimestamp, Monotonic, Timestamp};
pub use ephor_core::{BoxError, BoxFuture};

/// The defaults of the options.
pub mod defaults {
    pub use crate::options::{
        DEFAULT_FAST_SCAN, DEFAULT_FENCE_MARGIN, DEFAULT_HANDOVER_TIMEOUT, DEFAULT_HUB_UNAVAILABLE_TIMEOUT,
        DEFAULT_LEASE_DURATION, DEFAULT_MAX_BATCH_SIZE, DEFAULT_OTHER_SDK_LEASE_DURATION,
        DEFAULT_PREFETCH_BYTES, DEFAULT_PREFETCH_COUNT, DEFAULT_RECEIVE_TIMEOUT, DEFAULT_RENEW_INTERVAL,
        DEFAULT_SLOW_SCAN, DEFAULT_STORE_TIMEOUT,
    };
    pub use ephor_core::checkpoint::DEFAULT_SPACING;
    pub use ephor_core::failure_policy::DEFAULT_BACKOFF;
    pub use ephor_core::ids::DEFAULT_CONSUMER_GROUP;
}

/// Types of the trait [`EventSource`], for those who implement or call it.
pub mod source {
    pub use ephor_core::source::{
        EventSource, HubProperties, LastEnqueued, OpenError, OpenRequest, PartitionProperties, ReceiveError,
        Receiver, SourceCapabilities, SourceError,
    };
}

/// Types of the trait [`Producer`], for those who implement or call it.
pub mod producer {
    pub use ephor_core::producer::{Producer, ProducerError, SendCause, Sent, Target};
}

/// Types of the trait [`Store`], for those who implement or call it.
///
/// The rules of ownership are the same for every store; they are functions of the crate
/// `ephor-core` (`record`), on which the author of a store depends directly.
pub mod store {
    pub use ephor_core::host_record::{HandoverAnswer, HandoverReply, HandoverRequest, HostRecord};
    pub use ephor_core::lease::{ClaimRequest, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest};
    pub use ephor_core::store::{
        Capabilities, ClaimOutcome, DesiredState, FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER,
        GiveUpOutcome, GroupOrigin, HostEntry, MAX_HISTORY_PER_PARTITION, RefusalCause, RenewalOutcome,
        SaveOutcome, SaveRequest, SeekOutcome, SeekRequest, Store, StoreError, StoreFuture, StoreLayer,
        StoreMethod, StoreRequest, Throttling, View,
    };
}
