//! The names of the host's metrics. They are recorded through the `metrics` facade, which costs almost
//! nothing without a recorder.

/// Events for which `process_events` returned `Ok`. Labels: hub, group, partition.
pub const EVENTS_PROCESSED: &str = "ephor_events_processed_total";
/// Calls of `process_events` that failed. Labels: hub, group, partition.
pub const PROCESSOR_FAILURES: &str = "ephor_processor_failures_total";
/// Events that the failure policy skipped. Labels: hub, group, partition.
pub const EVENTS_SKIPPED: &str = "ephor_events_skipped_total";
/// Checkpoints written. Labels: hub, group, partition.
pub const CHECKPOINTS: &str = "ephor_checkpoints_total";
/// Checkpoints refused because a newer epoch fenced them off. Labels: hub, group, partition.
pub const FENCED_WRITES: &str = "ephor_fenced_writes_total";
/// Events not yet finished. Labels: hub, group, partition.
pub const LAG_EVENTS: &str = "ephor_partition_lag_events";
/// The time from the last finished event to the newest one, by their enqueued times. Labels: hub,
/// group, partition.
pub const LAG_SECONDS: &str = "ephor_partition_lag_seconds";
/// Partitions that this host gained. Label: reason.
pub const PARTITIONS_GAINED: &str = "ephor_partitions_gained_total";
/// Partitions that this host gave away or lost. Label: reason.
pub const PARTITIONS_GONE: &str = "ephor_partitions_gone_total";
/// Partitions owned now.
pub const PARTITIONS_OWNED: &str = "ephor_partitions_owned";
/// Errors inside the host. Label: kind.
pub const HOST_ERRORS: &str = "ephor_host_errors_total";
