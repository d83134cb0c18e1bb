//! The settings of a demo host, with their reasons: intervals, durations, limits.
//!
//! The defaults of the library suit a machine room. Here somebody watches, so everything is a few times faster;
//! what is safe stays as it is: a host stops by itself before its leases can be anybody else's.

use std::time::Duration;

use ephor::{Backoff, CheckpointPolicy, EventProcessorOptions, FailurePolicy, PartitionManagerOptions};
use ephor_eventhubs::EventHubOptions;

/// How often the state of homes is written. The page cannot be newer than this, and fewer writes are larger ones.
pub const FLUSH_EVERY: Duration = Duration::from_millis(500);

/// A call in flight gets this long when the host stops; closing takes a little more.
pub const STOP_TIME: Duration = Duration::from_secs(6);

/// The host ends after this time, even if not everything is done.
pub const STOP_LIMIT: Duration = Duration::from_secs(10);

/// How events are read, and when progress is saved.
pub(super) fn processing() -> EventProcessorOptions {
    EventProcessorOptions {
        // A second's events of a partition, at the default speed.
        max_batch_size: 500,
        prefetch_count: 1_500,
        // A partition without events still writes what waits.
        receive_timeout: FLUSH_EVERY,
        invoke_after_receive_timeout: true,
        // By hand, once it is written: no closer together than this, so that 32 partitions cost the store 32 writes a
        // second. After a crash at most that much is delivered again.
        checkpoint: CheckpointPolicy::default().spaced(Duration::from_secs(1)),
        // Storage that fails comes back: the batch waits for it, and nothing is skipped.
        failure: FailurePolicy::Retry(Backoff {
            first: Duration::from_millis(200),
            max: Duration::from_secs(2),
        }),
        ..EventProcessorOptions::default()
    }
}

/// How partitions are shared.
pub(super) fn managing() -> PartitionManagerOptions {
    PartitionManagerOptions {
        // What was killed is missed for this long. It must cover a renewal that is due, one slow answer of the store
        // and the margin: 2 + 3 + 1.
        lease_duration: Duration::from_secs(6),
        renew_interval: Duration::from_secs(2),
        store_timeout: Duration::from_secs(3),
        // All hosts are on one machine, whose clock they share; giving up a call takes moments.
        fence_margin: Duration::from_secs(1),
        // A new host is seen within a second, and a handover is done within two.
        slow_scan: Duration::from_secs(1),
        fast_scan: Duration::from_millis(300),
        handover_timeout: Duration::from_secs(5),
        ..PartitionManagerOptions::default()
    }
}

/// How the hub is reached. It is restarted for fun here: look for it often.
pub(super) fn connecting() -> EventHubOptions {
    EventHubOptions {
        backoff: Backoff { first: Duration::from_millis(100), max: Duration::from_secs(1) },
        connect_time: Duration::from_secs(5),
        answer_time: Duration::from_secs(10),
        idle_time: Duration::from_secs(10),
        ..EventHubOptions::default()
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn the_settings_are_valid() {
        super::processing().validate().unwrap();
        super::managing().validate().unwrap();
        super::connecting().validate().unwrap();
    }
}
