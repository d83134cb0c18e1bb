//! The options of a host, with their defaults, their meaning and the checks of their values. Checkpoint and
//! failure policies are defined in `ephor-core`.

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::checkpoint::{CheckpointPolicy, DEFAULT_SPACING};
use ephor_core::failure_policy::FailurePolicy;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::resume::OnInvalidPosition;

use crate::error::HostError;

/// The default of [`EventProcessorOptions::max_batch_size`].
pub const DEFAULT_MAX_BATCH_SIZE: usize = 100;
/// The default of [`EventProcessorOptions::prefetch_count`].
pub const DEFAULT_PREFETCH_COUNT: usize = 300;
/// The default of [`EventProcessorOptions::prefetch_bytes`].
pub const DEFAULT_PREFETCH_BYTES: usize = 16 * 1024 * 1024;
/// The default of [`EventProcessorOptions::receive_timeout`].
pub const DEFAULT_RECEIVE_TIMEOUT: Duration = Duration::from_secs(60);
/// The default of [`EventProcessorOptions::hub_unavailable_timeout`].
pub const DEFAULT_HUB_UNAVAILABLE_TIMEOUT: Duration = Duration::from_secs(30);
/// The default of [`PartitionManagerOptions::lease_duration`].
pub const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(30);
/// The default of [`PartitionManagerOptions::renew_interval`].
pub const DEFAULT_RENEW_INTERVAL: Duration = Duration::from_secs(10);
/// The default of [`PartitionManagerOptions::slow_scan`].
pub const DEFAULT_SLOW_SCAN: Duration = Duration::from_secs(5);
/// The default of [`PartitionManagerOptions::fast_scan`].
pub const DEFAULT_FAST_SCAN: Duration = Duration::from_secs(1);
/// The default of [`PartitionManagerOptions::handover_timeout`].
pub const DEFAULT_HANDOVER_TIMEOUT: Duration = Duration::from_secs(30);
/// The default of [`PartitionManagerOptions::fence_margin`].
pub const DEFAULT_FENCE_MARGIN: Duration = Duration::from_secs(3);
/// The default of [`PartitionManagerOptions::store_timeout`].
pub const DEFAULT_STORE_TIMEOUT: Duration = Duration::from_secs(5);
/// The default of [`PartitionManagerOptions::other_sdk_lease_duration`].
pub const DEFAULT_OTHER_SDK_LEASE_DURATION: Duration = Duration::from_secs(120);

/// The upper limit of all durations of leases, scans and calls. An option that should never apply
/// is `None` instead.
const MAX_DURATION: Duration = Duration::from_secs(24 * 60 * 60);

/// The error of an option with an invalid value. It says what to write instead.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct InvalidOption {
    option: &'static str,
    message: String,
}

impl InvalidOption {
    /// The name of the field, such as `lease_duration`.
    pub fn option(&self) -> &'static str {
        self.option
    }
}

/// The initial position of a partition without a checkpoint: one position, or a function of the
/// partition.
#[derive(Clone)]
pub struct InitialPosition(Initial);

#[derive(Clone)]
enum Initial {
    Same(StartPosition),
    ByPartition(Arc<dyn Fn(PartitionId) -> StartPosition + Send + Sync>),
}

impl InitialPosition {
    /// Calls the function for each partition without a checkpoint.
    pub fn by_partition(choose: impl Fn(PartitionId) -> StartPosition + Send + Sync + 'static) -> Self {
        Self(Initial::ByPartition(Arc::new(choose)))
    }

    pub(crate) fn of(&self, partition: PartitionId) -> StartPosition {
        match &self.0 {
            Initial::Same(position) => position.clone(),
            Initial::ByPartition(choose) => choose(partition),
        }
    }
}

impl From<StartPosition> for InitialPosition {
    fn from(position: StartPosition) -> Self {
        Self(Initial::Same(position))
    }
}

impl fmt::Debug for InitialPosition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Initial::Same(position) => write!(f, "InitialPosition({position})"),
            Initial::ByPartition(_) => f.write_str("InitialPosition(by partition)"),
        }
    }
}

/// Receives all errors inside the host.
#[derive(Clone)]
pub struct ErrorHandler(pub(crate) Arc<dyn Fn(&HostError) + Send + Sync>);

impl ErrorHandler {
    /// Calls the function with every [`HostError`]. It must not block.
    pub fn new(handler: impl Fn(&HostError) + Send + Sync + 'static) -> Self {
        Self(Arc::new(handler))
    }
}

impl fmt::Debug for ErrorHandler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorHandler")
    }
}

/// Options of reading events and of delivering them to the processor.
///
/// ```
/// # use ephor_host as ephor;
/// use ephor::{CheckpointPolicy, EventProcessorOptions};
/// let options = EventProcessorOptions {
///     max_batch_size: 500,
///     prefetch_count: 1_000,
///     checkpoint: CheckpointPolicy::every_events(10_000),
///     ..EventProcessorOptions::default()
/// };
/// assert!(options.validate().is_ok());
/// ```
///
/// With the feature `serde` they come from a configuration file. Fields have the names below,
/// missing ones take their default, unknown ones are refused, and the values are validated.
/// Durations are text, such as `"1m 30s"`; variants of enums are in lower case, such as
/// `"earliest"` or `{ skip_after = { attempts = 3 } }`. `on_error`, and an `initial_position` that
/// is a function, cannot be in a file. This format is stable; docs/configuration.md describes it.
#[derive(Clone, Debug)]
pub struct EventProcessorOptions {
    /// The most events in one call of `process_events`. It is a maximum: the host does not wait to
    /// fill a batch. Default 100.
    pub max_batch_size: usize,
    /// The most events that wait on this side, per partition; at least `max_batch_size`.
    /// Default 300.
    pub prefetch_count: usize,
    /// The approximate limit of the bytes that wait on this side, per partition. Default 16 MiB.
    pub prefetch_bytes: usize,
    /// The time without events after which a partition counts as idle. Default 60 s.
    pub receive_timeout: Duration,
    /// True to call `process_events` with an empty batch on an idle partition. Default false.
    pub invoke_after_receive_timeout: bool,
    /// The initial position of a partition without a checkpoint. Default: the earliest event.
    ///
    /// A position that moves with time ([`StartPosition::Latest`], [`StartPosition::EnqueuedTime`])
    /// is resolved once, by the first owner, and saved: its successor starts there, too. So is the
    /// earliest event of a log whose oldest events are gone already.
    pub initial_position: InitialPosition,
    /// The reaction if the position to resume from does not exist. Default: the earliest event,
    /// with a report of the number of lost events.
    pub on_invalid_position: OnInvalidPosition,
    /// A call of `open` or `process_events` that takes longer is given up and counts as failed.
    /// Default: no limit.
    pub process_timeout: Option<Duration>,
    /// The policy by which the host itself writes checkpoints. Default: when a partition closes
    /// gracefully.
    pub checkpoint: CheckpointPolicy,
    /// The policy for a `process_events` that fails. Default: retry the same batch, with backoff.
    pub failure: FailurePolicy,
    /// The time for which a partition is kept while the hub cannot be read, before it is closed and
    /// released. Default 30 s.
    pub hub_unavailable_timeout: Duration,
    /// The time within which the hub and the store must have answered once, or the start fails: for
    /// programs that should end rather than wait. Default: no limit; a hub or a store that is
    /// unreachable at the start is retried in the background.
    pub start_timeout: Option<Duration>,
    /// Receives all errors inside the host. Default: they are only logged.
    pub on_error: Option<ErrorHandler>,
}

impl Default for EventProcessorOptions {
    fn default() -> Self {
        Self {
            max_batch_size: DEFAULT_MAX_BATCH_SIZE,
            prefetch_count: DEFAULT_PREFETCH_COUNT,
            prefetch_bytes: DEFAULT_PREFETCH_BYTES,
            receive_timeout: DEFAULT_RECEIVE_TIMEOUT,
            invoke_after_receive_timeout: false,
            initial_position: StartPosition::Earliest.into(),
            on_invalid_position: OnInvalidPosition::default(),
            process_timeout: None,
            checkpoint: CheckpointPolicy::default(),
            failure: FailurePolicy::default(),
            hub_unavailable_timeout: DEFAULT_HUB_UNAVAILABLE_TIMEOUT,
            start_timeout: None,
            on_error: None,
        }
    }
}

fn ensure(holds: bool, option: &'static str, message: impl FnOnce() -> String) -> Result<(), InvalidOption> {
    if holds { Ok(()) } else { Err(InvalidOption { option, message: message() }) }
}

impl EventProcessorOptions {
    /// Checks the values. The error says what is wrong, and what to write instead.
    pub fn validate(&self) -> Result<(), InvalidOption> {
        ensure(self.max_batch_size > 0, "max_batch_size", || {
            format!("max_batch_size is 0, so no event could be delivered; try {DEFAULT_MAX_BATCH_SIZE}")
        })?;
        ensure(self.prefetch_count >= self.max_batch_size, "prefetch_count", || {
            format!(
                "prefetch_count ({}) must be at least max_batch_size ({}), or no batch is ever full; try {}",
                self.prefetch_count,
                self.max_batch_size,
                self.max_batch_size.saturating_mul(3)
            )
        })?;
        ensure(self.prefetch_bytes > 0, "prefetch_bytes", || {
            format!("prefetch_bytes is 0, so no event could be received; try {DEFAULT_PREFETCH_BYTES}")
        })?;
        ensure(!self.receive_timeout.is_zero(), "receive_timeout", || {
            format!(
                "receive_timeout is zero, so every partition would be idle; try {DEFAULT_RECEIVE_TIMEOUT:?}"
            )
        })?;
        for (name, timeout) in
            [("process_timeout", self.process_timeout), ("start_timeout", self.start_timeout)]
        {
            ensure(timeout.is_none_or(|timeout| !timeout.is_zero()), name, || {
                format!("{name} is zero, so nothing could end in time; leave it out, or try 60s")
            })?;
            ensure(timeout.is_none_or(|timeout| timeout <= MAX_DURATION), name, || {
                format!("{name} is longer than a day; leave it out for none, or try 60s")
            })?;
        }
        ensure(self.checkpoint.every_events != Some(0), "checkpoint", || {
            "a checkpoint every 0 events makes no sense; try every 1000, or leave it out".into()
        })?;
        ensure(self.checkpoint.every.is_none_or(|period| !period.is_zero()), "checkpoint", || {
            "a checkpoint every 0s makes no sense; try every 5s, or leave it out".into()
        })?;
        ensure(self.checkpoint.spacing <= MAX_DURATION, "checkpoint", || {
            format!(
                "checkpoints {:?} apart would hardly ever be written; try {DEFAULT_SPACING:?}",
                self.checkpoint.spacing
            )
        })?;
        let problem = self.failure.problem();
        ensure(problem.is_none(), "failure", || problem.unwrap_or_default().to_owned())
    }
}

/// Options of sharing partitions among hosts. With the feature `serde` they come from a
/// configuration file, as [`EventProcessorOptions`] do.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionManagerOptions {
    /// The time that a lease lasts without renewal, and thus the time that a crashed host's
    /// partitions wait for a new owner. Default 30 s, as in Azure's EventProcessorHost.
    pub lease_duration: Duration,
    /// The interval at which leases are renewed. Default 10 s, as in Azure's EventProcessorHost.
    pub renew_interval: Duration,
    /// The interval at which the host reads the state of the fleet while nothing changes.
    /// Default 5 s, with jitter.
    pub slow_scan: Duration,
    /// The interval while something changes, for example during a rebalance. Default 1 s, with
    /// jitter.
    pub fast_scan: Duration,
    /// The time that a handover may take before the call in flight is given up, and the time that
    /// an owner may leave a request unanswered before its lease is stolen. Default 30 s.
    pub handover_timeout: Duration,
    /// The time before the end of its lease at which an owner stops by itself. It covers the
    /// difference between two clocks and the time that it takes to give up a call. Default 3 s.
    pub fence_margin: Duration,
    /// A store call that takes longer is given up, with an unknown outcome. Default 5 s.
    pub store_timeout: Duration,
    /// The duration of a lease whose record has none (another SDK wrote it). Default 120 s.
    pub other_sdk_lease_duration: Duration,
    /// The most partitions that this host may own. Default: no limit.
    pub max_partitions: Option<u32>,
}

impl Default for PartitionManagerOptions {
    fn default() -> Self {
        Self {
            lease_duration: DEFAULT_LEASE_DURATION,
            renew_interval: DEFAULT_RENEW_INTERVAL,
            slow_scan: DEFAULT_SLOW_SCAN,
            fast_scan: DEFAULT_FAST_SCAN,
            handover_timeout: DEFAULT_HANDOVER_TIMEOUT,
            fence_margin: DEFAULT_FENCE_MARGIN,
            store_timeout: DEFAULT_STORE_TIMEOUT,
            other_sdk_lease_duration: DEFAULT_OTHER_SDK_LEASE_DURATION,
            max_partitions: None,
        }
    }
}

impl PartitionManagerOptions {
    /// Checks the values. The error says what is wrong, and what to write instead.
    pub fn validate(&self) -> Result<(), InvalidOption> {
        let Self {
            lease_duration, renew_interval, slow_scan, fast_scan, fence_margin, store_timeout, ..
        } = *self;
        for (name, value, default) in [
            ("lease_duration", lease_duration, DEFAULT_LEASE_DURATION),
            ("renew_interval", renew_interval, DEFAULT_RENEW_INTERVAL),
            ("slow_scan", slow_scan, DEFAULT_SLOW_SCAN),
            ("fast_scan", fast_scan, DEFAULT_FAST_SCAN),
            ("handover_timeout", self.handover_timeout, DEFAULT_HANDOVER_TIMEOUT),
            ("fence_margin", fence_margin, DEFAULT_FENCE_MARGIN),
            ("store_timeout", store_timeout, DEFAULT_STORE_TIMEOUT),
            ("other_sdk_lease_duration", self.other_sdk_lease_duration, DEFAULT_OTHER_SDK_LEASE_DURATION),
        ] {
            ensure(!value.is_zero(), name, || format!("{name} is zero; try {default:?}"))?;
            ensure(value <= MAX_DURATION, name, || {
                format!("{name} ({value:?}) is longer than a day; try {default:?}")
            })?;
        }
        ensure(lease_duration >= renew_interval.saturating_mul(2), "lease_duration", || {
            format!(
                "lease_duration ({lease_duration:?}) must be at least 2 x renew_interval ({renew_interval:?}), \
                 or leases expire between renewals; try {:?}",
                renew_interval.saturating_mul(3)
            )
        })?;
        let needed = renew_interval.saturating_add(store_timeout).saturating_add(fence_margin);
        ensure(lease_duration >= needed, "lease_duration", || {
            format!(
                "lease_duration ({lease_duration:?}) must be at least renew_interval ({renew_interval:?}) + \
                 store_timeout ({store_timeout:?}) + fence_margin ({fence_margin:?}), or one slow renewal \
                 stops a healthy host; try {needed:?}"
            )
        })?;
        ensure(fast_scan <= slow_scan, "fast_scan", || {
            format!(
                "fast_scan ({fast_scan:?}) must not be longer than slow_scan ({slow_scan:?}); try {slow_scan:?}"
            )
        })?;
        ensure(slow_scan < lease_duration, "slow_scan", || {
            format!(
                "slow_scan ({slow_scan:?}) must be shorter than lease_duration ({lease_duration:?}), \
                 or partitions are free for longer than they are owned; try {:?}",
                lease_duration / 6
            )
        })?;
        ensure(self.max_partitions != Some(0), "max_partitions", || {
            "max_partitions is 0, so this host could own nothing; leave it out, or try 1".into()
        })
    }
}

#[cfg(feature = "serde")]
mod file_format;
#[cfg(test)]
mod tests;
