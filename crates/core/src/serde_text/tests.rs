//! Tests that pin the JSON of every type of this crate that serde reads or writes.

use std::fmt::Debug;
use std::time::Duration;

use serde::de::DeserializeOwned;
use serde_json::{Value, json, to_value};

use super::*;
use crate::checkpoint::{Checkpoint, CheckpointPolicy, Position};
use crate::epoch::Epoch;
use crate::failure_policy::{Backoff, FailurePolicy};
use crate::history::{ChangeReason, OwnershipChange};
use crate::host_record::{
    HandoverAnswer, HandoverReply, HandoverRequest, HostRecord, HostState, HostStatistics, ReadHub,
};
use crate::ids::{GroupId, Incarnation, PartitionId};
use crate::lease::{ClaimCause, Lease, ReleaseCause};
use crate::position::{SequenceNumber, StartPosition};
use crate::progress::Lag;
use crate::resume::OnInvalidPosition;
use crate::store::HostEntry;

const SECOND: Duration = Duration::from_secs(1);
const TIME: Timestamp = Timestamp(1_523_755_425_678);

fn host(name: &str) -> HostId {
    HostId { name: name.parse().unwrap(), incarnation: Incarnation(0xab) }
}

/// Both ways.
fn pinned<T: Serialize + DeserializeOwned + PartialEq + Debug>(value: &T, expected: Value) {
    assert_eq!(to_value(value).unwrap(), expected);
    assert_eq!(&serde_json::from_value::<T>(expected).unwrap(), value);
}

fn refused<T: DeserializeOwned + Debug>(given: Value) -> String {
    serde_json::from_value::<T>(given).unwrap_err().to_string()
}

#[test]
fn names_numbers_and_times_are_written_as_people_see_them() {
    pinned(&"homes".parse::<HubName>().unwrap(), json!("homes"));
    pinned(&host("vm-1"), json!("vm-1#00000000000000ab"));
    pinned(&PartitionId(7), json!(7));
    pinned(&SequenceNumber(812), json!(812));
    pinned(&Offset::new("007"), json!("007"));
    pinned(&TIME, json!("2018-04-15T01:23:45.678Z"));
    let group = GroupId::new("ns", "homes", "$Default").unwrap();
    pinned(&group, json!({"namespace": "ns", "hub": "homes", "group": "$Default"}));
    assert_eq!(to_value(Epoch::from_stored(9)).unwrap(), json!(9));
    let error = refused::<ConsumerGroup>(json!("a b"));
    assert!(error.contains("allowed are letters, digits"), "{error}");
    let error = refused::<Timestamp>(json!("yesterday"));
    assert!(error.contains("write it as 2018-04-15T01:23:45Z"), "{error}");
}

#[test]
fn start_positions_read_back() {
    let number = SequenceNumber(7);
    pinned(&StartPosition::Earliest, json!("earliest"));
    pinned(&StartPosition::Latest, json!("latest"));
    pinned(&StartPosition::at(number), json!({"sequence": {"number": 7, "inclusive": true}}));
    let offset = StartPosition::Offset { offset: Offset::new("@x"), inclusive: false };
    pinned(&offset, json!({"offset": {"offset": "@x", "inclusive": false}}));
    pinned(&StartPosition::EnqueuedTime(TIME), json!({"enqueued_time": "2018-04-15T01:23:45.678Z"}));
    let error = refused::<StartPosition>(json!("yesterday"));
    assert!(error.contains("unknown variant `yesterday`, expected one of `earliest`, `latest`"), "{error}");
}

#[test]
fn policies_read_back_and_missing_fields_take_their_default() {
    pinned(&OnInvalidPosition::Stop, json!("stop"));
    pinned(
        &CheckpointPolicy::every(SECOND * 90).or_events(10).spaced(Duration::ZERO),
        json!({"every_events": 10, "every": "1m 30s", "on_close": true, "spacing": "0s"}),
    );
    pinned(
        &CheckpointPolicy::default(),
        json!({"every_events": null, "every": null, "on_close": true, "spacing": "100ms"}),
    );
    let read: CheckpointPolicy = serde_json::from_value(json!({"every": "5s"})).unwrap();
    assert_eq!(read, CheckpointPolicy::every(SECOND * 5));

    pinned(&FailurePolicy::default(), json!({"retry": {"first": "500ms", "max": "30s"}}));
    let backoff = Backoff { first: SECOND, max: SECOND * 60 };
    pinned(
        &FailurePolicy::SkipAfter { attempts: 3, backoff },
        json!({"skip_after": {"attempts": 3, "backoff": {"first": "1s", "max": "1m"}}}),
    );
    pinned(&FailurePolicy::Close { pause: SECOND }, json!({"close": {"pause": "1s"}}));
    let read: FailurePolicy = serde_json::from_value(json!({"skip_after": {"attempts": 3}})).unwrap();
    assert_eq!(read, FailurePolicy::SkipAfter { attempts: 3, backoff: Backoff::default() });
    let read: FailurePolicy = serde_json::from_value(json!({"retry": {"first": "1s"}})).unwrap();
    assert_eq!(read, FailurePolicy::Retry(Backoff { first: SECOND, ..Backoff::default() }));
}

#[test]
fn a_field_that_does_not_exist_is_refused() {
    for error in [
        refused::<CheckpointPolicy>(json!({"often": "5s"})),
        refused::<Backoff>(json!({"maximum": "5s"})),
        refused::<FailurePolicy>(json!({"skip_after": {"attempts": 3, "pause": "5s"}})),
        refused::<GroupId>(json!({"namespace": "a", "hub": "b", "group": "c", "name": "d"})),
        refused::<StartPosition>(json!({"sequence": {"number": 7, "inclusive": true, "at": 7}})),
    ] {
        assert!(error.contains("unknown field `") && error.contains(", expected "), "{error}");
    }
}

#[test]
fn a_duration_needs_its_unit() {
    let error = refused::<CheckpointPolicy>(json!({"every": 5}));
    assert!(error.contains("expected a duration as text with its unit, such as \"30s\""), "{error}");
    let error = refused::<CheckpointPolicy>(json!({"every": "5"}));
    assert!(error.contains("\"5\" has a number without a unit"), "{error}");
    let error = refused::<Backoff>(json!({"max": "5 sec"}));
    assert!(error.contains("has the unknown unit \"sec\""), "{error}");
}

#[test]
fn checkpoints_lag_and_history_are_written() {
    let position = Position::Finished {
        sequence: SequenceNumber(7),
        offset: Some(Offset::number(70)),
        enqueued_at: Some(TIME),
    };
    let log = Some(LogId::new("a1"));
    let checkpoint = Checkpoint { position, log, epoch: Epoch::FIRST, saved_at: TIME };
    let time = "2018-04-15T01:23:45.678Z";
    let expected = json!({
        "position": {"finished": {"sequence": 7, "offset": "70", "enqueued_at": time}},
        "log": "a1", "epoch": 1, "saved_at": time,
    });
    assert_eq!(to_value(checkpoint).unwrap(), expected);
    assert_eq!(to_value(Position::Start(StartPosition::Latest)).unwrap(), json!({"start": "latest"}));
    let lag = Lag { events: 5, time: Duration::from_micros(7_500_001) };
    assert_eq!(to_value(lag).unwrap(), json!({"events": 5, "time": "7s 500ms"}));
    let change = |reason| OwnershipChange {
        at: TIME,
        partition: PartitionId(3),
        epoch: Epoch::FIRST,
        from: None,
        to: Some(host("vm-1")),
        reason,
    };
    let expected = json!({
        "at": time, "partition": 3, "epoch": 1, "from": null, "to": "vm-1#00000000000000ab",
        "reason": {"claimed": "unowned"},
    });
    assert_eq!(to_value(change(ChangeReason::Claimed(ClaimCause::Unowned))).unwrap(), expected);
    for (reason, expected) in [
        (ChangeReason::HandedOver, json!("handed_over")),
        (ChangeReason::Released(ReleaseCause::ProcessorFailed), json!({"released": "processor_failed"})),
        (ChangeReason::Seek { by: "ada".into() }, json!({"sought": {"by": "ada"}})),
    ] {
        assert_eq!(to_value(change(reason)).unwrap()["reason"], expected);
    }
}

#[test]
fn leases_and_host_records_are_written() {
    let lease = Lease {
        partition: PartitionId(2),
        owner: Some(host("a")),
        epoch: Epoch::FIRST,
        duration: Some(SECOND * 30),
        acquired_at: TIME,
        age: Duration::from_nanos(1_234_567),
        age_known: true,
        version: LeaseVersion::revision(4),
        previous_owner: None,
        takeover_delay: Duration::ZERO,
        successor: None,
    };
    let expected = json!({
        "partition": 2, "owner": "a#00000000000000ab", "epoch": 1, "duration": "30s",
        "acquired_at": "2018-04-15T01:23:45.678Z", "age": "1ms", "age_known": true, "version": 4,
        "previous_owner": null, "takeover_delay": "0s", "successor": null,
    });
    assert_eq!(to_value(lease).unwrap(), expected);
    assert_eq!(to_value(LeaseVersion::tag("x")).unwrap(), json!("x"));
    let record = HostRecord {
        id: host("a"),
        beat: 3,
        state: HostState::Unhealthy,
        lease_duration: SECOND * 30,
        max_partitions: None,
        wants: vec![HandoverRequest { partition: PartitionId(1), owner: host("b"), epoch: Epoch::FIRST }],
        answers: vec![
            HandoverAnswer { partition: PartitionId(2), asker: host("b"), reply: HandoverReply::No },
            HandoverAnswer {
                partition: PartitionId(3),
                asker: host("b"),
                reply: HandoverReply::DrainingUntil(TIME),
            },
        ],
        statistics: HostStatistics { owned: 1, events: 2, lag_events: 3, failures: 4 },
        software: "0.1.0".into(),
        hub: Some(ReadHub { endpoint: "ns/homes".into(), log: LogId::new("a1") }),
    };
    let entry = HostEntry { record, age: SECOND, age_known: true };
    let (a, b) = ("a#00000000000000ab", "b#00000000000000ab");
    let expected = json!({
        "record": {
            "id": a, "beat": 3, "state": "unhealthy", "lease_duration": "30s", "max_partitions": null,
            "wants": [{"partition": 1, "owner": b, "epoch": 1}],
            "answers": [
                {"partition": 2, "asker": b, "reply": "no"},
                {"partition": 3, "asker": b, "reply": {"draining_until": "2018-04-15T01:23:45.678Z"}},
            ],
            "statistics": {"owned": 1, "events": 2, "lag_events": 3, "failures": 4},
            "software": "0.1.0", "hub": {"endpoint": "ns/homes", "log": "a1"},
        },
        "age": "1s", "age_known": true,
    });
    assert_eq!(to_value(entry).unwrap(), expected);
}
