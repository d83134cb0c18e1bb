//! Tests that pin the JSON of snapshots, reports and ownership events, which other programs read.

use std::sync::Arc;

use ephor_core::ids::Incarnation;
use ephor_core::lease::ClaimCause;
use ephor_core::store::StoreError;
use serde_json::{json, to_value};

use super::*;
use crate::admin::{SeekStep, SeekStepOutcome};
use crate::error::ProcessorError;
use crate::host::ownership_changes::OwnershipEvent;
use crate::last_seek::LastSeek;
use crate::processor::CloseReason;
use crate::stop_report::StopReport;

const TIME: Timestamp = Timestamp(1_523_755_425_678);
const SHOWN_TIME: &str = "2018-04-15T01:23:45.678Z";
const SHOWN_HOST: &str = "a#00000000000000ab";

fn host() -> HostId {
    HostId { name: "a".parse().unwrap(), incarnation: Incarnation(0xab) }
}

#[test]
fn a_snapshot_is_written_with_its_field_names() {
    let error = ProcessorError::Panicked { message: "no disk".into() };
    let mut lag = Lag::default();
    (lag.events, lag.time) = (5, Duration::from_secs(75));
    let partition = PartitionSnapshot {
        partition: PartitionId(3),
        epoch: Epoch::FIRST,
        since: TIME,
        reason: OwnershipReason::Claimed(ClaimCause::Unowned),
        state: PumpState::Failing,
        stuck: false,
        in_call_for: None,
        lease_left: Duration::from_nanos(23_412_331_012),
        finished: Some(SequenceNumber(7)),
        events: 8,
        failing: Some(Failing { since: TIME, attempts: 2, error }),
        checkpoint: None,
        lag,
    };
    let error = StoreCallError::Failed(Arc::new(StoreError::Unavailable("no answer".into())));
    let snapshot = HostSnapshot {
        host: host(),
        state: HostState::Active,
        share: 4,
        hosts_alive: 2,
        hub_partitions: 8,
        scans: 9,
        statistics: HostStatistics { owned: 1, events: 8, lag_events: 5, failures: 2 },
        store_failing_for: Some(Duration::from_secs(61)),
        store_error: Some(error),
        partitions: vec![partition],
    };
    let expected = json!({
        "host": SHOWN_HOST, "state": "active", "share": 4, "hosts_alive": 2, "hub_partitions": 8, "scans": 9,
        "statistics": {"owned": 1, "events": 8, "lag_events": 5, "failures": 2},
        "store_failing_for": "1m 1s", "store_error": "the store is not available: no answer",
        "partitions": [{
            "partition": 3, "epoch": 1, "since": SHOWN_TIME, "reason": {"claimed": "unowned"}, "state": "failing",
            "stuck": false, "in_call_for": null, "lease_left": "23s 412ms", "finished": 7, "events": 8,
            "failing": {"since": SHOWN_TIME, "attempts": 2, "error": "the processor panicked: no disk"},
            "checkpoint": null, "lag": {"events": 5, "time": "1m 15s"},
        }],
    });
    assert_eq!(to_value(snapshot).unwrap(), expected);
}

#[test]
fn reports_and_events_are_written_with_their_field_names() {
    let report =
        StopReport { drained: vec![PartitionId(1)], lost: vec![PartitionId(2)], ..Default::default() };
    assert_eq!(
        to_value(report).unwrap(),
        json!({"drained": [1], "given_up": [], "unsaved": [], "lost": [2], "abandoned": []})
    );
    let event = OwnershipEvent {
        at: TIME,
        partition: PartitionId(3),
        epoch: Epoch::FIRST,
        from: Some(host()),
        to: None,
        reason: OwnershipReason::Lost(CloseReason::LeaseLost),
    };
    let expected = json!({
        "at": SHOWN_TIME, "partition": 3, "epoch": 1, "from": SHOWN_HOST, "to": null,
        "reason": {"lost": "lease_lost"},
    });
    assert_eq!(to_value(event).unwrap(), expected);
    for (reason, expected) in
        [(OwnershipReason::Received, json!("received")), (OwnershipReason::HandedOver, json!("handed_over"))]
    {
        assert_eq!(to_value(reason).unwrap(), expected);
    }
    let step = SeekStep {
        partition: PartitionId(3),
        from: None,
        to: Position::Start(ephor_core::position::StartPosition::Earliest),
        distance: Some(-4),
        owner: Some(host()),
        outcome: Some(SeekStepOutcome::Done(Epoch::FIRST)),
    };
    let expected = json!({
        "partition": 3, "from": null, "to": {"start": "earliest"}, "distance": -4, "owner": SHOWN_HOST,
        "outcome": {"done": 1},
    });
    assert_eq!(to_value(step).unwrap(), expected);
    let sought = LastSeek { epoch: Epoch::FIRST, at: TIME, by: "ada".into() };
    assert_eq!(to_value(sought).unwrap(), json!({"epoch": 1, "at": SHOWN_TIME, "by": "ada"}));
}
