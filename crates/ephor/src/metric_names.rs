//! The names of all metrics, in one place. They go through the `metrics`
//! facade: without a recorder they cost next to nothing.

/// Events that `process_events` returned `Ok` for. Labels: hub, group, partition.
pub const EVENTS_PROCESSED: &str = "ephor_events_processed_total";
/// Calls of `process_events` that failed. Labels: hub, group, partition.
pub const PROCESSOR_FAILURES: &str = "ephor_handler_failures_total";
/// Events that the failure policy gave up on. Labels: hub, group, partition.
pub const EVENTS_SKIPPED: &str = "ephor_events_skipped_total";
/// Checkpoints written. Labels: hub, group, partition.
pub const CHECKPOINTS: &str = "ephor_checkpoints_total";
/// Checkpoints refused because the epoch was over. Labels: hub, group, partition.
pub const FENCED_WRITES: &str = "ephor_fenced_writes_total";
/// Events not yet finished. Labels: hub, group, partition.
pub const LAG_EVENTS: &str = "ephor_partition_lag_events";
/// How much later the newest event was enqueued than the last finished one. Labels: hub, group, partition.
pub const LAG_SECONDS: &str = "ephor_partition_lag_seconds";
/// Partitions this host came to own. Label: reason.
pub const PARTITIONS_GAINED: &str = "ephor_lease_claims_total";
/// Partitions this host gave away or lost. Label: reason.
pub const PARTITIONS_GONE: &str = "ephor_lease_losses_total";
/// Partitions owned now.
pub const PARTITIONS_OWNED: &str = "ephor_partitions_owned";
/// What went wrong inside the host. Label: kind.
pub const HOST_ERRORS: &str = "ephor_host_errors_total";
