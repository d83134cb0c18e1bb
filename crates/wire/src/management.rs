//! `$management`: the requests and answers that describe a hub and its partitions.
//!
//! The body of a response is a map with exact types: SDKs refuse an int for a long and a list for an array. A
//! partition that never had an event is described with the service's own values ([`NEVER`], `-1`): it begins at
//! -1, too (REC). Older versions of Ephor's hub wrote 0 there, and the client reads both.

mod partition_ids;

use ephor_amqp::{Malformed, Reader, Value, encode};
use ephor_core::ids::{HubName, LogId, PartitionId};
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::source::{LastEnqueued, PartitionProperties};
use ephor_core::time::Timestamp;

use crate::annotations::{signed, write_offset};
use crate::condition::{Condition, Refusal, error_texts};
use crate::names::{HUB_TYPE, PARTITION_TYPE};
use crate::request_response::{
    Request, RequestContent, RequestId, Response, ResponseHead, write_request, write_response,
};

/// The time of the last event that the service reports for a partition that never had one: 0001-01-01.
pub const NEVER: Timestamp = Timestamp(-62_135_596_800_000);

const READ: &str = "READ";
const OK: i32 = 200;

/// The number of regions that keep the events. The Go SDK requires this field.
const GEOREPLICATION_FACTOR: i32 = 1;

/// The epoch of sequence numbers, which grows with a geo-replication failover: none ever happened (REC). The
/// Rust SDK requires this field.
const NUMBER_EPOCH: i32 = -1;

/// The beginning, the last sequence number and the last offset of a partition that never had an event.
const NOTHING: i64 = -1;
const NO_OFFSET: &str = "-1";

/// The product name by which our own client identifies itself in `open`. A hub tells it alone what the service
/// does not tell: the id of the log, and the next sequence number where numbers were passed over.
pub const OUR_PRODUCT: &str = "ephor";

/// The log's id, for our own client: with it a hub that was deleted and created again is not mistaken for its
/// predecessor.
const LOG_ID: &str = "ephor:log_id";

/// The next sequence number, for our own client, if numbers were passed over: a position among those is not
/// beyond the end.
const NEXT: &str = "ephor:next_sequence_number";

/// A management request.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Query {
    /// Describe a hub.
    Hub {
        /// The hub.
        hub: HubName,
    },
    /// Describe a partition whose id no partition has.
    OddPartition {
        /// The hub.
        hub: HubName,
    },
    /// Describe a partition.
    Partition {
        /// The hub.
        hub: HubName,
        /// The partition.
        partition: PartitionId,
    },
}

impl Query {
    /// Parses a request. `link` is the hub of the link's address, which is used if the request names none.
    pub fn of(request: &Request<'_>, link: Option<&HubName>) -> Result<Self, Refusal> {
        if !request.operation.eq_ignore_ascii_case(READ) {
            return Err(error_texts::invalid_command(request.operation));
        }
        let hub = match (request.name, link) {
            (Some(name), _) if !name.is_empty() => name.parse().map_err(|_| error_texts::not_found(name))?,
            (_, Some(hub)) => hub.clone(),
            _ => return Err(Refusal::new(Condition::ArgumentError, "The request names no hub.")),
        };
        match request.kind {
            HUB_TYPE => Ok(Self::Hub { hub }),
            PARTITION_TYPE => match request.partition.map(str::parse) {
                Some(Ok(partition)) => Ok(Self::Partition { hub, partition }),
                _ => Ok(Self::OddPartition { hub }),
            },
            _ => Err(Refusal::new(
                Condition::ArgumentError,
                format!("The type is neither {HUB_TYPE} nor {PARTITION_TYPE}."),
            )),
        }
    }

    /// The hub that the query is about.
    pub fn hub(&self) -> &HubName {
        match self {
            Self::Hub { hub } | Self::OddPartition { hub } | Self::Partition { hub, .. } => hub,
        }
    }

    /// Appends the request to `into`, with the token that authorizes it, if there is one.
    pub fn write(&self, id: &RequestId, reply_to: &str, token: Option<&str>, into: &mut Vec<u8>) {
        let number = match self {
            Self::Hub { .. } => None,
            Self::OddPartition { .. } => Some(String::new()),
            Self::Partition { partition, .. } => Some(partition.to_string()),
        };
        let kind = if number.is_some() { PARTITION_TYPE } else { HUB_TYPE };
        let mut texts = vec![("operation", READ), ("type", kind), ("name", self.hub().as_str())];
        texts.extend(number.as_deref().map(|number| ("partition", number)));
        texts.extend(token.map(|token| ("security_token", token)));
        write_request(id, reply_to, &RequestContent { texts: &texts, expires_at: None, body: None }, into);
    }
}

/// The description of a hub.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HubDescription {
    /// The hub's name.
    pub hub: HubName,
    /// The time at which it was created.
    pub created_at: Timestamp,
    /// Its partitions.
    pub partitions: Vec<PartitionId>,
    /// The id of its log, if the hub is one of ours.
    pub log: Option<LogId>,
}

/// The description of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PartitionDescription {
    /// The hub's name.
    pub hub: HubName,
    /// The partition's id, its first and next sequence numbers, and its last event.
    pub partition: PartitionProperties,
}

/// The reason why a response has no description.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum NoDescription {
    /// The hub returned an error.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The response is malformed.
    #[error(transparent)]
    Malformed(#[from] Malformed),
    /// A field is missing, or has another type.
    #[error("the answer of the hub has no {0}, or not of the right type")]
    Missing(&'static str),
}

impl HubDescription {
    /// Appends the response to `into`.
    pub fn write(&self, id: Option<&RequestId>, into: &mut Vec<u8>) {
        write_response(&described(id), into, |into| {
            let map = encode::begin(into);
            encode::string(into, "name");
            encode::string(into, self.hub.as_str());
            encode::string(into, "type");
            encode::string(into, HUB_TYPE);
            encode::string(into, "created_at");
            encode::timestamp(into, self.created_at.0);
            encode::string(into, "partition_count");
            encode::int(into, i32::try_from(self.partitions.len()).unwrap_or(i32::MAX));
            encode::string(into, "partition_ids");
            partition_ids::write(&self.partitions, into);
            encode::string(into, "georeplication_factor");
            encode::int(into, GEOREPLICATION_FACTOR);
            if let Some(log) = &self.log {
                encode::string(into, LOG_ID);
                encode::string(into, log.as_str());
            }
            encode::end_map(into, map, 6 + usize::from(self.log.is_some()));
        });
    }

    /// Parses a response.
    pub fn read(response: &Response<'_>) -> Result<Self, NoDescription> {
        let (mut hub, mut created_at, mut partitions, mut log) = (None, None, None, None);
        each(response, |name, value| match name {
            "name" => hub = text(value),
            "created_at" => created_at = time(value),
            "partition_ids" => partitions = partition_ids::read(value),
            LOG_ID => log = value.text().map(LogId::new),
            _ => {}
        })?;
        Ok(Self {
            hub: hub.ok_or(NoDescription::Missing("name"))?,
            created_at: created_at.ok_or(NoDescription::Missing("created_at"))?,
            partitions: partitions.ok_or(NoDescription::Missing("partition_ids"))?,
            log,
        })
    }
}

impl PartitionDescription {
    /// Appends the response to `into`.
    pub fn write(&self, id: Option<&RequestId>, into: &mut Vec<u8>) {
        let PartitionProperties { id: partition, first, last, next } = &self.partition;
        let begin = last.as_ref().map(|_| *first);
        // As a client will read it.
        let read_first = begin.unwrap_or_default();
        let follows = PartitionProperties::without_gap(*partition, read_first, last.clone()).next == *next;
        let empty = last.as_ref().is_none_or(|last| last.sequence < *first);
        write_response(&described(id), into, |into| {
            let map = encode::begin(into);
            encode::string(into, "name");
            encode::string(into, self.hub.as_str());
            encode::string(into, "type");
            encode::string(into, PARTITION_TYPE);
            encode::string(into, "partition");
            encode::string(into, &partition.to_string());
            encode::string(into, "begin_sequence_number");
            encode::long(into, begin.map_or(NOTHING, signed));
            encode::string(into, "begin_sequence_number_epoch");
            encode::int(into, NUMBER_EPOCH);
            encode::string(into, "last_enqueued_sequence_number");
            encode::long(into, last.as_ref().map_or(NOTHING, |last| signed(last.sequence)));
            encode::string(into, "last_enqueued_sequence_number_epoch");
            encode::int(into, NUMBER_EPOCH);
            encode::string(into, "last_enqueued_offset");
            match last {
                Some(last) => write_offset(&last.offset, into),
                None => encode::string(into, NO_OFFSET),
            }
            encode::string(into, "last_enqueued_time_utc");
            encode::timestamp(into, last.as_ref().map_or(NEVER, |last| last.enqueued_at).0);
            encode::string(into, "is_partition_empty");
            encode::bool(into, empty);
            if !follows {
                encode::string(into, NEXT);
                encode::long(into, signed(*next));
            }
            encode::end_map(into, map, 10 + usize::from(!follows));
        });
    }

    /// Parses a response.
    pub fn read(response: &Response<'_>) -> Result<Self, NoDescription> {
        let (mut hub, mut partition, mut first, mut last) = (None, None, None, None);
        let (mut offset, mut enqueued_at, mut next) = (None, None, None);
        each(response, |name, value| match name {
            "name" => hub = text(value),
            "partition" => partition = text(value),
            "begin_sequence_number" => first = long(value),
            "last_enqueued_sequence_number" => last = long(value),
            "last_enqueued_offset" => offset = value.text().map(Offset::new),
            "last_enqueued_time_utc" => enqueued_at = time(value),
            NEXT => next = long(value),
            _ => {}
        })?;
        let last = last.ok_or(NoDescription::Missing("last_enqueued_sequence_number"))?;
        let last = match u64::try_from(last) {
            Err(_) => None,
            Ok(number) => Some(LastEnqueued {
                sequence: SequenceNumber(number),
                offset: offset.ok_or(NoDescription::Missing("last_enqueued_offset"))?,
                enqueued_at: enqueued_at.ok_or(NoDescription::Missing("last_enqueued_time_utc"))?,
            }),
        };
        let first = first.ok_or(NoDescription::Missing("begin_sequence_number"))?;
        let id = partition.ok_or(NoDescription::Missing("partition"))?;
        let next = next.and_then(|next| u64::try_from(next).ok()).map(SequenceNumber);
        // A partition that never had an event begins at -1. Then the next event will be the first.
        let first = u64::try_from(first).map_or(next.unwrap_or_default(), SequenceNumber);
        let mut partition = PartitionProperties::without_gap(id, first, last);
        if let Some(next) = next {
            // Whatever the hub sends, the next number is after the last event.
            partition.next = next.max(partition.next);
        }
        Ok(Self { hub: hub.ok_or(NoDescription::Missing("name"))?, partition })
    }
}

fn described(id: Option<&RequestId>) -> ResponseHead<'_> {
    ResponseHead { status: OK, description: "OK", operation: Some(READ), ..ResponseHead::of(id) }
}

/// Calls `take` with the pairs of the map in a successful response.
fn each<'a>(response: &Response<'a>, mut take: impl FnMut(&'a str, Value<'a>)) -> Result<(), NoDescription> {
    response.accepted()?;
    let mut items = Reader::new(response.body.unwrap_or_default()).map()?;
    while let Some(name) = items.next()? {
        let Some(value) = items.next()? else { break };
        if let Some(name) = name.text() {
            take(name, value);
        }
    }
    Ok(())
}

fn text<T: std::str::FromStr>(value: Value<'_>) -> Option<T> {
    value.text()?.parse().ok()
}

fn long(value: Value<'_>) -> Option<i64> {
    match value {
        Value::Long(number) => Some(number),
        Value::Int(number) => Some(number.into()),
        _ => None,
    }
}

fn time(value: Value<'_>) -> Option<Timestamp> {
    match value {
        Value::Timestamp(milliseconds) => Some(Timestamp(milliseconds)),
        _ => None,
    }
}

#[cfg(test)]
mod tests;
