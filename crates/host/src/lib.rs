//! Ephor runs your event handler on as many machines as you like: every partition of an event hub
//! has exactly one owner, which resumes where the last owner stopped and hands over without a gap.
//!
//! | to | use |
//! |---|---|
//! | handle events | [`EventProcessor`], or a closure: [`HostBuilder::for_each_event`] |
//! | run | [`EventProcessorHost`] |
//! | write checkpoints, get the epoch (fencing token) | [`PartitionContext`] |
//! | configure | [`EventProcessorOptions`], [`PartitionManagerOptions`] |
//! | observe and operate | [`EventProcessorHost::snapshot`], [`admin`] |
//! | try it without a cloud | [`memory`] |
//! | test your processor | the crate `ephor-testkit` |

pub mod admin;
mod checkpoint_throttle;
mod context;
mod error;
mod host;
mod lease_state;
pub mod memory;
pub mod metric_names;
mod options;
mod processor;
mod pump;
mod report;
mod saves_in_flight;
mod stop_report;
mod store_calls;

/// All of `ephor-core`, for authors of a store or a source.
pub use ephor_core as seams;

pub use context::{CheckpointError, Checkpointed, Failing, PartitionContext};
pub use error::{HostError, PartitionError, ProcessorError, StoreCallError};
pub use host::builder::{BuildError, HostBuilder, host_name};
pub use host::changes::{OwnershipChanges, OwnershipEvent, OwnershipReason};
pub use host::snapshot::{HostSnapshot, PartitionSnapshot};
pub use host::{EventProcessorHost, NotRunning, StartError};
pub use options::{
    DEFAULT_FAST_SCAN, DEFAULT_FENCE_MARGIN, DEFAULT_FOREIGN_EXPIRY, DEFAULT_HANDOVER_TIMEOUT,
    DEFAULT_LEASE_DURATION, DEFAULT_MAX_BATCH_SIZE, DEFAULT_PREFETCH_BYTES, DEFAULT_PREFETCH_COUNT,
    DEFAULT_RECEIVE_TIMEOUT, DEFAULT_RENEW_INTERVAL, DEFAULT_SLOW_SCAN, DEFAULT_SOURCE_PATIENCE,
    DEFAULT_STORE_TIMEOUT, ErrorHandler, EventProcessorOptions, InitialPosition, InvalidOption,
    PartitionManagerOptions,
};
pub use processor::{CloseReason, EventProcessor};
pub use pump::state::PumpState;
pub use stop_report::StopReport;

#[doc(inline)]
pub use ephor_runtime::environment;

pub use ephor_core::checkpoint::{Checkpoint, CheckpointPolicy, Position};
pub use ephor_core::epoch::Epoch;
pub use ephor_core::event::{Event, NewEvent, Properties, Value};
pub use ephor_core::failure::{Backoff, FailurePolicy};
pub use ephor_core::history::{ChangeReason, OwnershipChange};
pub use ephor_core::host_record::{HostState, HostStatistics, ReadHub};
pub use ephor_core::ids::{
    ConsumerGroup, GroupId, HostId, HostName, HubName, InvalidName, LogId, Namespace, PartitionId,
};
pub use ephor_core::lease::{ClaimCause, Lease, ReleaseCause};
pub use ephor_core::position::{Offset, SequenceNumber, StartPosition};
pub use ephor_core::progress::Lag;
pub use ephor_core::resume::{LostGround, OnInvalidPosition};
pub use ephor_core::source::{EventSource, Receiver, SourceError};
pub use ephor_core::store::{HostEntry, Store, StoreError};
pub use ephor_core::time::{Clock, Monotonic, Timestamp};
pub use ephor_core::{BoxError, BoxFuture};

/// The program in README.md compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
