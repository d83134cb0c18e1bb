//! Tests that pin the format of the options in a configuration file.

use ephor_core::failure_policy::Backoff;
use ephor_core::ids::PartitionId;
use ephor_core::position::SequenceNumber;
use serde_json::{Value, json, to_value};

use super::*;

fn seconds(seconds: u64) -> Duration {
    Duration::from_secs(seconds)
}

fn read(given: Value) -> Result<EventProcessorOptions, String> {
    serde_json::from_value(given).map_err(|error| error.to_string())
}

fn read_manager(given: Value) -> Result<PartitionManagerOptions, String> {
    serde_json::from_value(given).map_err(|error| error.to_string())
}

#[test]
fn the_defaults_are_written_and_read_back() {
    let expected = json!({
        "max_batch_size": 100, "prefetch_count": 300, "prefetch_bytes": 16_777_216, "receive_timeout": "1m",
        "invoke_after_receive_timeout": false, "initial_position": "earliest", "on_invalid_position": "earliest",
        "process_timeout": null,
        "checkpoint": {"every_events": null, "every": null, "on_close": true, "spacing": "100ms"},
        "failure": {"retry": {"first": "500ms", "max": "30s"}},
        "hub_unavailable_timeout": "30s", "start_timeout": null,
    });
    let options = EventProcessorOptions::default();
    assert_eq!(to_value(&options).unwrap(), expected);
    for given in [expected, json!({})] {
        assert_eq!(format!("{:?}", read(given).unwrap()), format!("{options:?}"));
    }
    let expected = json!({
        "lease_duration": "30s", "renew_interval": "10s", "slow_scan": "5s", "fast_scan": "1s",
        "handover_timeout": "30s", "fence_margin": "3s", "store_timeout": "5s", "other_sdk_lease_duration": "2m",
        "max_partitions": null,
    });
    let options = PartitionManagerOptions::default();
    assert_eq!(to_value(&options).unwrap(), expected);
    for given in [expected, json!({})] {
        assert_eq!(read_manager(given), Ok(options.clone()));
    }
}

#[test]
fn every_field_is_read_and_written() {
    let backoff = Backoff { first: seconds(1), max: seconds(60) };
    let options = EventProcessorOptions {
        max_batch_size: 500,
        prefetch_count: 1_500,
        prefetch_bytes: 1 << 20,
        receive_timeout: seconds(90),
        invoke_after_receive_timeout: true,
        initial_position: StartPosition::after(SequenceNumber(7)).into(),
        on_invalid_position: OnInvalidPosition::Stop,
        process_timeout: Some(seconds(3_600)),
        checkpoint: CheckpointPolicy::every(seconds(5)).or_events(1_000),
        failure: FailurePolicy::SkipAfter { attempts: 3, backoff },
        hub_unavailable_timeout: Duration::from_millis(1_500),
        start_timeout: Some(seconds(20)),
        on_error: None,
    };
    let written = json!({
        "max_batch_size": 500, "prefetch_count": 1_500, "prefetch_bytes": 1_048_576, "receive_timeout": "1m 30s",
        "invoke_after_receive_timeout": true,
        "initial_position": {"sequence": {"number": 7, "inclusive": false}},
        "on_invalid_position": "stop", "process_timeout": "1h",
        "checkpoint": {"every_events": 1_000, "every": "5s", "on_close": true, "spacing": "100ms"},
        "failure": {"skip_after": {"attempts": 3, "backoff": {"first": "1s", "max": "1m"}}},
        "hub_unavailable_timeout": "1s 500ms", "start_timeout": "20s",
    });
    assert_eq!(to_value(&options).unwrap(), written);
    assert_eq!(format!("{:?}", read(written).unwrap()), format!("{options:?}"));

    let options = PartitionManagerOptions {
        lease_duration: seconds(90),
        renew_interval: seconds(20),
        slow_scan: seconds(8),
        fast_scan: seconds(2),
        handover_timeout: seconds(45),
        fence_margin: seconds(4),
        store_timeout: seconds(6),
        other_sdk_lease_duration: seconds(300),
        max_partitions: Some(12),
    };
    let written = json!({
        "lease_duration": "1m 30s", "renew_interval": "20s", "slow_scan": "8s", "fast_scan": "2s",
        "handover_timeout": "45s", "fence_margin": "4s", "store_timeout": "6s", "other_sdk_lease_duration": "5m",
        "max_partitions": 12,
    });
    assert_eq!(to_value(&options).unwrap(), written);
    assert_eq!(read_manager(written), Ok(options));
}

#[test]
fn functions_are_left_out() {
    let options = EventProcessorOptions {
        initial_position: InitialPosition::by_partition(|PartitionId(_)| StartPosition::Latest),
        on_error: Some(ErrorHandler::new(|_| {})),
        ..EventProcessorOptions::default()
    };
    let written = to_value(&options).unwrap();
    let fields = written.as_object().unwrap();
    assert!(!fields.contains_key("initial_position") && !fields.contains_key("on_error"), "{written}");
    assert!(read(written).is_ok());
    let error = read(json!({"on_error": "log"})).unwrap_err();
    assert!(error.starts_with("unknown field `on_error`"), "{error}");
}

#[test]
fn unknown_fields_and_wrong_units_are_refused_and_the_right_ones_named() {
    let error = read(json!({"batch_size": 5})).unwrap_err();
    assert!(error.starts_with("unknown field `batch_size`, expected one of `max_batch_size`"), "{error}");
    let error = read(json!({"checkpoint": {"interval": "5s"}})).unwrap_err();
    assert!(
        error.starts_with("unknown field `interval`, expected one of `every_events`, `every`"),
        "{error}"
    );
    let error = read_manager(json!({"lease": "30s"})).unwrap_err();
    assert!(error.starts_with("unknown field `lease`, expected one of `lease_duration`"), "{error}");
    let error = read_manager(json!({"lease_duration": "30 seconds"})).unwrap_err();
    assert!(
        error.contains("has the unknown unit \"seconds\"; write whole numbers with the units"),
        "{error}"
    );
    let error = read_manager(json!({"lease_duration": 30})).unwrap_err();
    assert!(error.contains("integer `30`, expected a duration as text with its unit"), "{error}");
}

#[test]
fn values_are_checked_when_they_are_read() {
    let error = read(json!({"max_batch_size": 0})).unwrap_err();
    assert_eq!(error, "max_batch_size is 0, so no event could be delivered; try 100");
    let error = read(json!({"failure": {"close": {"pause": "0s"}}})).unwrap_err();
    assert!(error.contains("try a pause of 10s"), "{error}");
    let error = read_manager(json!({"lease_duration": "19s"})).unwrap_err();
    assert!(error.contains("lease_duration (19s) must be at least 2 x renew_interval (10s)"), "{error}");
}
