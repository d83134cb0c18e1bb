//! Tests that docs/migration.md lists every option with its default.

use std::time::Duration;

use ephor::defaults::{DEFAULT_BACKOFF, DEFAULT_SPACING};
use ephor::{
    CheckpointPolicy, EventProcessorOptions, FailurePolicy, OnInvalidPosition, PartitionManagerOptions,
};

const GUIDE: &str = include_str!("../../../../docs/migration.md");

fn seconds(duration: Duration) -> String {
    format!("{} s", duration.as_secs())
}

/// The words of the guide for a default that is no number, which this default must be.
fn words(is_default: bool, words: &str) -> String {
    assert!(is_default, "the default is no longer {words:?}: change it here and in the guide");
    words.to_owned()
}

/// Every option with its default in the words of the guide. A new option does not compile before it is here.
fn defaults() -> Vec<(&'static str, String)> {
    let EventProcessorOptions {
        max_batch_size,
        prefetch_count,
        prefetch_bytes,
        receive_timeout,
        invoke_after_receive_timeout,
        initial_position,
        on_invalid_position,
        process_timeout,
        checkpoint,
        failure,
        hub_unavailable_timeout,
        start_timeout,
        on_error,
    } = EventProcessorOptions::default();
    let PartitionManagerOptions {
        lease_duration,
        renew_interval,
        slow_scan,
        fast_scan,
        handover_timeout,
        fence_margin,
        store_timeout,
        other_sdk_lease_duration,
        max_partitions,
    } = PartitionManagerOptions::default();
    let is_on_close = checkpoint == CheckpointPolicy::default() && checkpoint.on_close;
    let spacing = format!("on close, and never closer than {} ms", DEFAULT_SPACING.as_millis());
    let is_earliest = format!("{initial_position:?}").contains("earliest");
    let is_retry = failure == FailurePolicy::Retry(DEFAULT_BACKOFF);
    let is_oldest = on_invalid_position == OnInvalidPosition::Earliest;
    vec![
        ("max_batch_size", max_batch_size.to_string()),
        ("prefetch_count", prefetch_count.to_string()),
        ("prefetch_bytes", format!("{} MiB", prefetch_bytes >> 20)),
        ("receive_timeout", seconds(receive_timeout)),
        ("invoke_after_receive_timeout", words(!invoke_after_receive_timeout, "no")),
        ("initial_position", words(is_earliest, "the earliest")),
        ("on_invalid_position", words(is_oldest, "the earliest, with a report")),
        ("process_timeout", words(process_timeout.is_none(), "off")),
        ("checkpoint", words(is_on_close, &spacing)),
        ("failure", words(is_retry, "the same batch again, with backoff")),
        ("hub_unavailable_timeout", seconds(hub_unavailable_timeout)),
        ("start_timeout", words(start_timeout.is_none(), "off")),
        ("on_error", words(on_error.is_none(), "the log")),
        ("lease_duration", seconds(lease_duration)),
        ("renew_interval", seconds(renew_interval)),
        ("slow_scan", seconds(slow_scan)),
        ("fast_scan", seconds(fast_scan)),
        ("handover_timeout", seconds(handover_timeout)),
        ("fence_margin", seconds(fence_margin)),
        ("store_timeout", seconds(store_timeout)),
        ("other_sdk_lease_duration", seconds(other_sdk_lease_duration)),
        ("max_partitions", words(max_partitions.is_none(), "no limit")),
    ]
}

#[test]
fn the_guide_lists_every_option_with_its_default() {
    let rows: Vec<&str> = GUIDE.lines().filter(|line| line.starts_with('|')).collect();
    for (name, value) in defaults() {
        let name = format!("`{name}`");
        // The words before the name are about other SDKs.
        let after_name = |row: &&str| row.split_once(&name).is_some_and(|(_, rest)| rest.contains(&value));
        assert!(rows.iter().any(after_name), "docs/migration.md has no row in which {name} is {value}");
    }
}
