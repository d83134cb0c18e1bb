//! Tests of the options and their validation.

use super::*;

type Change<T> = fn(&mut T);

fn backoff(first: u64, max: u64) -> ephor_core::failure_policy::Backoff {
    ephor_core::failure_policy::Backoff { first: Duration::from_secs(first), max: Duration::from_secs(max) }
}

#[test]
fn the_largest_durations_are_judged_and_do_not_overflow() {
    let options =
        PartitionManagerOptions { renew_interval: Duration::MAX, ..PartitionManagerOptions::default() };
    assert!(options.validate().is_err());
}

#[test]
fn the_defaults_are_valid_and_as_documented() {
    let options = EventProcessorOptions::default();
    assert_eq!(options.validate(), Ok(()));
    assert_eq!(PartitionManagerOptions::default().validate(), Ok(()));
    assert_eq!((options.max_batch_size, options.prefetch_count), (100, 300));
    let manager = PartitionManagerOptions::default();
    assert_eq!((manager.lease_duration.as_secs(), manager.renew_interval.as_secs()), (30, 10));
    assert_eq!((manager.slow_scan.as_secs(), manager.fast_scan.as_secs()), (5, 1));
    assert_eq!(options.initial_position.of(PartitionId(3)), StartPosition::Earliest);
    assert_eq!(format!("{:?}", options.initial_position), "InitialPosition(earliest)");
}

#[test]
fn wrong_processor_options_are_named_with_a_way_out() {
    let cases: [(Change<EventProcessorOptions>, &str); 14] = [
        (|o| o.max_batch_size = 0, "max_batch_size is 0"),
        (|o| o.prefetch_count = 99, "prefetch_count (99) must be at least max_batch_size (100)"),
        (|o| o.prefetch_bytes = 0, "prefetch_bytes is 0"),
        (|o| o.receive_timeout = Duration::ZERO, "receive_timeout is zero"),
        (|o| o.process_timeout = Some(Duration::ZERO), "process_timeout is zero"),
        (|o| o.start_timeout = Some(Duration::ZERO), "start_timeout is zero"),
        (|o| o.start_timeout = Some(Duration::MAX), "start_timeout is longer than a day"),
        (|o| o.checkpoint.every_events = Some(0), "every 0 events"),
        (|o| o.checkpoint.every = Some(Duration::ZERO), "every 0s"),
        (|o| o.checkpoint.spacing = MAX_DURATION + Duration::from_secs(1), "hardly ever be written"),
        (
            |o| {
                o.failure = FailurePolicy::SkipAfter {
                    attempts: 0,
                    backoff: ephor_core::failure_policy::DEFAULT_BACKOFF,
                };
            },
            "0 attempts",
        ),
        (|o| o.failure = FailurePolicy::Retry(backoff(0, 1)), "begin above zero"),
        (|o| o.failure = FailurePolicy::Retry(backoff(2, 1)), "not above its longest wait"),
        (|o| o.failure = FailurePolicy::Close { pause: Duration::ZERO }, "fails at once"),
    ];
    for (change, expected) in cases {
        let mut options = EventProcessorOptions::default();
        change(&mut options);
        let message = options.validate().unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("try"), "{message}");
    }
    let options = EventProcessorOptions { prefetch_bytes: 0, ..EventProcessorOptions::default() };
    assert_eq!(options.validate().unwrap_err().option(), "prefetch_bytes");
}

#[test]
fn wrong_manager_options_are_named_with_a_way_out() {
    let cases: [(Change<PartitionManagerOptions>, &str); 7] = [
        (|o| o.fast_scan = Duration::ZERO, "fast_scan is zero; try 1s"),
        (
            |o| o.lease_duration = Duration::from_secs(19),
            "lease_duration (19s) must be at least 2 x renew_interval (10s), or leases expire between \
             renewals; try 30s",
        ),
        (|o| o.store_timeout = Duration::from_secs(18), "or one slow renewal stops a healthy host; try 31s"),
        (|o| o.fast_scan = Duration::from_secs(6), "fast_scan (6s) must not be longer"),
        (|o| o.slow_scan = Duration::from_secs(30), "slow_scan (30s) must be shorter"),
        (|o| o.max_partitions = Some(0), "max_partitions is 0"),
        (|o| o.handover_timeout = Duration::ZERO, "handover_timeout is zero"),
    ];
    for (change, expected) in cases {
        let mut options = PartitionManagerOptions::default();
        change(&mut options);
        let message = options.validate().unwrap_err().to_string();
        assert!(message.contains(expected) && message.contains("try"), "{message}");
    }
}
