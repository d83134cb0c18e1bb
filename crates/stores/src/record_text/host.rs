//! Encodes a host record as text, and decodes it. The store keeps the host's id in a field of its own.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::host_record::{
    HandoverAnswer, HandoverReply, HandoverRequest, HostRecord, HostState, HostStatistics, ReadHub,
};
use ephor_core::ids::{HostId, LogId, PartitionId};
use ephor_core::time::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Unreadable, read, write};

const STATES: [(&str, HostState); 4] = [
    ("active", HostState::Active),
    ("standby", HostState::Standby),
    ("draining", HostState::Draining),
    ("unfit", HostState::Unhealthy),
];

#[derive(Serialize, Deserialize)]
struct Fields {
    beat: u64,
    state: String,
    lease_ms: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    max_partitions: Option<u32>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    wants: Vec<WantFields>,
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    answers: Vec<AnswerFields>,
    #[serde(default)]
    statistics: StatisticsFields,
    #[serde(default)]
    software: String,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    hub: Option<HubFields>,
}

#[derive(Serialize, Deserialize)]
struct HubFields {
    endpoint: String,
    log: String,
}

#[derive(Serialize, Deserialize)]
struct WantFields {
    partition: u32,
    owner: String,
    epoch: u64,
}

#[derive(Serialize, Deserialize)]
struct AnswerFields {
    partition: u32,
    asker: String,
    /// None means that the owner declines.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    draining_until: Option<i64>,
}

#[derive(Default, Serialize, Deserialize)]
#[serde(default)]
struct StatisticsFields {
    owned: u32,
    events: u64,
    lag_events: u64,
    failures: u64,
}

pub(crate) fn write_host(record: &HostRecord) -> String {
    let state = STATES.iter().find(|(_, state)| *state == record.state).map_or("unfit", |(name, _)| name);
    let HostStatistics { owned, events, lag_events, failures } = record.statistics;
    write(&Fields {
        beat: record.beat,
        state: state.to_owned(),
        lease_ms: u64::try_from(record.lease_duration.as_millis()).unwrap_or(u64::MAX),
        max_partitions: record.max_partitions,
        wants: record.wants.iter().map(write_want).collect(),
        answers: record.answers.iter().map(write_answer).collect(),
        statistics: StatisticsFields { owned, events, lag_events, failures },
        software: record.software.clone(),
        hub: record.hub.as_ref().map(write_hub),
    })
}

pub(crate) fn read_host(id: HostId, text: &str) -> Result<HostRecord, Unreadable> {
    let fields: Fields = read(text)?;
    // A state of a later release: other hosts do not count on that host.
    let state = STATES
        .iter()
        .find(|(name, _)| *name == fields.state)
        .map_or(HostState::Unhealthy, |(_, state)| *state);
    let StatisticsFields { owned, events, lag_events, failures } = fields.statistics;
    Ok(HostRecord {
        id,
        beat: fields.beat,
        state,
        lease_duration: Duration::from_millis(fields.lease_ms),
        max_partitions: fields.max_partitions,
        wants: fields.wants.iter().map(read_want).collect::<Result<_, _>>()?,
        answers: fields.answers.iter().map(read_answer).collect::<Result<_, _>>()?,
        statistics: HostStatistics { owned, events, lag_events, failures },
        software: fields.software,
        hub: fields.hub.map(|HubFields { endpoint, log }| ReadHub { endpoint, log: LogId::new(&log) }),
    })
}

fn write_hub(hub: &ReadHub) -> HubFields {
    HubFields { endpoint: hub.endpoint.clone(), log: hub.log.to_string() }
}

fn write_want(want: &HandoverRequest) -> WantFields {
    WantFields { partition: want.partition.0, owner: want.owner.to_string(), epoch: want.epoch.get() }
}

fn read_want(fields: &WantFields) -> Result<HandoverRequest, Unreadable> {
    Ok(HandoverRequest {
        partition: PartitionId(fields.partition),
        owner: read_id(&fields.owner)?,
        epoch: Epoch::from_stored(fields.epoch),
    })
}

fn write_answer(answer: &HandoverAnswer) -> AnswerFields {
    let draining_until = match answer.reply {
        HandoverReply::DrainingUntil(time) => Some(time.0),
        HandoverReply::No => None,
    };
    AnswerFields { partition: answer.partition.0, asker: answer.asker.to_string(), draining_until }
}

fn read_answer(fields: &AnswerFields) -> Result<HandoverAnswer, Unreadable> {
    let reply =
        fields.draining_until.map_or(HandoverReply::No, |time| HandoverReply::DrainingUntil(Timestamp(time)));
    Ok(HandoverAnswer { partition: PartitionId(fields.partition), asker: read_id(&fields.asker)?, reply })
}

fn read_id(text: &str) -> Result<HostId, Unreadable> {
    text.parse().map_err(|_| format!("{text:?} is not a host id"))
}

#[cfg(test)]
mod tests {
    use ephor_core::ids::Incarnation;

    use super::*;

    fn id(name: &str) -> HostId {
        HostId { name: name.parse().unwrap(), incarnation: Incarnation(u64::MAX - 1) }
    }

    fn full() -> HostRecord {
        HostRecord {
            id: id("vm-1#2"),
            beat: u64::MAX,
            state: HostState::Draining,
            lease_duration: Duration::from_millis(20_500),
            max_partitions: Some(0),
            wants: vec![HandoverRequest {
                partition: PartitionId(3),
                owner: id("b"),
                epoch: Epoch::from_stored(9),
            }],
            answers: vec![
                HandoverAnswer { partition: PartitionId(4), asker: id("c"), reply: HandoverReply::No },
                HandoverAnswer {
                    partition: PartitionId(5),
                    asker: id("d"),
                    reply: HandoverReply::DrainingUntil(Timestamp(77)),
                },
            ],
            statistics: HostStatistics { owned: 1, events: 2, lag_events: 3, failures: 4 },
            software: "ephor 0.1 \"x\"".into(),
            hub: Some(ReadHub { endpoint: "127.0.0.1:5672/homes".into(), log: LogId::new("4f") }),
        }
    }

    #[test]
    fn every_field_and_state_reads_back() {
        for (_, state) in STATES {
            let record = HostRecord { state, ..full() };
            assert_eq!(read_host(record.id.clone(), &write_host(&record)), Ok(record));
        }
    }

    #[test]
    fn what_is_stored_stays_readable_and_the_rest_is_filled_in() {
        let text = r#"{"beat":1,"state":"sleeping","lease_ms":1000,"zone":"b","wants":[]}"#;
        let record = read_host(id("a"), text).unwrap();
        assert_eq!((record.beat, record.state), (1, HostState::Unhealthy));
        assert_eq!((record.lease_duration, record.max_partitions), (Duration::from_secs(1), None));
        assert_eq!((record.statistics, record.hub), (HostStatistics::default(), None));
    }

    #[test]
    fn damage_is_told() {
        for text in [
            "",
            "{}",
            r#"{"beat":1,"state":"active"}"#,
            r#"{"beat":1,"state":"active","lease_ms":1,"wants":[{"partition":1,"owner":"nobody","epoch":1}]}"#,
        ] {
            assert!(read_host(id("a"), text).is_err(), "{text}");
        }
    }
}
