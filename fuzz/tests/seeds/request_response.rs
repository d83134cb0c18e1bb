//! Seeds for the fuzz corpus: requests and responses of `$cbs` and `$management`.

use ephor_core::ids::{HubName, LogId, PartitionId};
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::source::{LastEnqueued, PartitionProperties};
use ephor_core::time::Timestamp;
use ephor_wire::cbs::{PutToken, TokenKind, write_accepted};
use ephor_wire::condition::{Condition, Refusal};
use ephor_wire::management::{HubDescription, PartitionDescription, Query};
use ephor_wire::request_response::{RequestId, write_refusal};

use crate::Seeds;
use crate::raw_frames::written;

fn hub() -> HubName {
    "homes".parse().unwrap()
}

pub(crate) fn put(token: &str) -> Vec<u8> {
    let put = PutToken {
        audience: "sb://localhost/homes",
        kind: TokenKind::Sas,
        token,
        expires_at: Some(Timestamp(1_700_000_000_000)),
    };
    written(|into| put.write(&RequestId::number(7), "replies", into))
}

pub(crate) fn queries() -> [Vec<u8>; 2] {
    [Query::Hub { hub: hub() }, Query::Partition { hub: hub(), partition: PartitionId(1) }]
        .map(|query| written(|into| query.write(&RequestId::number(8), "replies", Some("a token"), into)))
}

pub(crate) fn both_sides() -> Seeds {
    let id = RequestId::number(7);
    let [hub_query, partition_query] = queries();
    let described = HubDescription {
        hub: hub(),
        created_at: Timestamp(5),
        partitions: (0..12).map(PartitionId).collect(),
        log: Some(LogId::new("log")),
    };
    let last =
        LastEnqueued { sequence: SequenceNumber(9), offset: Offset::new("96"), enqueued_at: Timestamp(3) };
    let partition = |last| PartitionDescription {
        hub: hub(),
        partition: PartitionProperties::without_gap(PartitionId(1), SequenceNumber(0), last),
    };
    let long_id =
        [b"\x00\x53\x73\xd0\0\0\x01\x35\0\0\0\x01\xb1\0\0\x01\x2c".as_slice(), &[b'i'; 300]].concat();
    let refusal = Refusal::new(Condition::NotFound, "no such hub");
    [
        ("put-token", put("SharedAccessSignature sr=x&sig=eA%3D%3D&se=1&skn=y")),
        ("an-id-that-is-too-long", long_id),
        ("ask-for-a-hub", hub_query),
        ("ask-for-a-partition", partition_query),
        ("accepted", written(|into| write_accepted(Some(&id), into))),
        ("refused", written(|into| write_refusal(Some(&id), &refusal, into))),
        ("a-hub", written(|into| described.write(Some(&id), into))),
        ("a-partition", written(|into| partition(Some(last)).write(Some(&id), into))),
        ("an-empty-partition", written(|into| partition(None).write(None, into))),
    ]
    .map(|(name, bytes)| (name.to_owned(), bytes))
    .into()
}
