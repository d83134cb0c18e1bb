//! Tests that docs/migration.md lists every option, with its default if that is a number.

use std::fmt::Debug;

use ephor::{CheckpointPolicy, EventProcessorOptions, PartitionManagerOptions};

const GUIDE: &str = include_str!("../../../../docs/migration.md");

/// The names of a struct's fields, as its `Debug` prints them.
fn fields(options: &impl Debug) -> Vec<String> {
    let shown = format!("{options:#?}");
    let top = shown
        .lines()
        .filter_map(|line| line.strip_prefix("    "))
        .filter(|line| !line.starts_with([' ', '}']));
    top.filter_map(|line| Some(line.split_once(':')?.0.to_owned())).collect()
}

#[test]
fn the_guide_names_every_option() {
    let tables: Vec<&str> = GUIDE.lines().filter(|line| line.starts_with('|')).collect();
    let of_events = fields(&EventProcessorOptions::default());
    let of_partitions = fields(&PartitionManagerOptions::default());
    assert!(of_events.len() >= 12 && of_partitions.len() >= 9, "{of_events:?} {of_partitions:?}");
    for name in of_events.iter().chain(&of_partitions) {
        let named = format!("`{name}`");
        assert!(tables.iter().any(|line| line.contains(&named)), "docs/migration.md has no line for {name}");
    }
}

#[test]
fn the_guide_has_our_defaults() {
    let events = EventProcessorOptions::default();
    let partitions = PartitionManagerOptions::default();
    let seconds = |duration: std::time::Duration| format!("{} s", duration.as_secs());
    for (name, value) in [
        ("max_batch_size", events.max_batch_size.to_string()),
        ("prefetch_count", events.prefetch_count.to_string()),
        ("prefetch_bytes", format!("{} MiB", events.prefetch_bytes >> 20)),
        ("receive_timeout", seconds(events.receive_timeout)),
        ("hub_unavailable_timeout", seconds(events.hub_unavailable_timeout)),
        ("lease_duration", seconds(partitions.lease_duration)),
        ("renew_interval", seconds(partitions.renew_interval)),
        ("slow_scan", seconds(partitions.slow_scan)),
        ("fast_scan", seconds(partitions.fast_scan)),
        ("handover_timeout", seconds(partitions.handover_timeout)),
        ("fence_margin", seconds(partitions.fence_margin)),
        ("store_timeout", seconds(partitions.store_timeout)),
        ("other_sdk_lease_duration", seconds(partitions.other_sdk_lease_duration)),
        ("CheckpointPolicy", format!("{} ms", CheckpointPolicy::default().spacing.as_millis())),
    ] {
        let told = |line: &&str| line.starts_with('|') && line.contains(name) && line.contains(&value);
        assert!(
            GUIDE.lines().any(|line| told(&line)),
            "docs/migration.md does not say that {name} is {value}"
        );
    }
}
