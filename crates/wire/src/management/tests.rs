//! Tests that the answers of `$management` (the runtime properties of hubs and partitions) have exactly the
//! types that the SDKs require.

use proptest::prelude::*;

use super::*;

fn hub() -> HubName {
    "homes".parse().unwrap()
}

fn asked(query: &Query) -> Result<Query, Refusal> {
    let mut message = Vec::new();
    query.write(&RequestId::number(1), "reply", Some("canary"), &mut message);
    let request = Request::read(&message).unwrap();
    assert_eq!(request.security_token, Some("canary"));
    assert!(!format!("{request:?}").contains("canary"));
    Query::of(&request, None)
}

#[test]
fn a_query_reads_back_as_it_was_written() {
    for query in [Query::Hub { hub: hub() }, Query::Partition { hub: hub(), partition: PartitionId(12) }] {
        assert_eq!(asked(&query), Ok(query));
    }
}

/// As the Python SDK writes it: an id that is a UUID, and no body.
fn question(pairs: &[(&str, &str)]) -> Vec<u8> {
    let mut message =
        b"\x00\x53\x73\xc0\x12\x01\x98\x00\x01\x02\x03\x04\x05\x06\x07\x08\x09\x0a\x0b\x0c\x0d\x0e\x0f"
            .to_vec();
    encode::described(&mut message, ephor_amqp::format_codes::section::APPLICATION_PROPERTIES.into());
    let map = encode::begin(&mut message);
    for (name, text) in pairs {
        encode::string(&mut message, name);
        encode::string(&mut message, text);
    }
    encode::end_map(&mut message, map, pairs.len());
    message
}

#[test]
fn a_query_without_a_body_is_understood_and_others_say_why_not() {
    let of = |pairs: &[(&str, &str)], link: Option<&HubName>| {
        let message = question(pairs);
        Query::of(&Request::read(&message).unwrap(), link).map_err(|refusal| refusal.condition.status())
    };
    let read = ("operation", "READ");
    let homes = ("name", "homes");
    let kind = ("type", "com.microsoft:eventhub");
    let partition = ("type", "com.microsoft:partition");
    assert_eq!(of(&[read, homes, kind], None), Ok(Query::Hub { hub: hub() }));
    assert_eq!(of(&[read, kind], Some(&hub())), Ok(Query::Hub { hub: hub() }));
    assert_eq!(of(&[read, kind], None), Err(400));
    assert_eq!(of(&[homes, kind], None), Err(403));
    assert_eq!(of(&[read, homes], None), Err(400));
    assert_eq!(of(&[read, kind, ("name", "no hub")], None), Err(404));
    let odd = Query::OddPartition { hub: hub() };
    assert_eq!(of(&[read, homes, partition], None), Ok(odd.clone()));
    assert_eq!(of(&[read, homes, partition, ("partition", "x")], None), Ok(odd));
    let asked = Query::Partition { hub: hub(), partition: PartitionId(3) };
    assert_eq!(of(&[read, homes, partition, ("partition", "3")], None), Ok(asked));
}

#[test]
fn an_operation_that_does_not_exist_is_named() {
    let message = question(&[("operation", "RE1AD"), ("name", "homes"), ("type", "com.microsoft:eventhub")]);
    let refusal = Query::of(&Request::read(&message).unwrap(), None).unwrap_err();
    assert_eq!(
        (refusal.condition.symbol(), &*refusal.text),
        ("amqp:not-allowed", "Invalid command 'RE1AD'.")
    );
}

#[test]
fn a_hub_is_described_with_exact_types() {
    let description = HubDescription {
        hub: hub(),
        created_at: Timestamp(1),
        partitions: vec![PartitionId(0), PartitionId(10)],
        log: None,
    };
    let mut answer = Vec::new();
    description.write(Some(&RequestId::number(7)), &mut answer);
    let response = Response::read(&answer).unwrap();
    assert_eq!((response.status, response.description), (200, Some("OK")));
    let pairs = [
        b"\xa1\x04name\xa1\x05homes".as_slice(),
        b"\xa1\x04type\xa1\x16com.microsoft:eventhub",
        b"\xa1\x0acreated_at\x83\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\xa1\x0fpartition_count\x54\x02",
        b"\xa1\x0dpartition_ids\xe0\x07\x02\xa1\x010\x0210",
        b"\xa1\x15georeplication_factor\x54\x01",
    ]
    .concat();
    let expected = [b"\xc1", [pairs.len() as u8 + 1, 12].as_slice(), &pairs].concat();
    assert_eq!(response.body, Some(&expected[..]));
    assert_eq!(HubDescription::read(&response), Ok(description));
}

#[test]
fn an_empty_partition_is_described_as_the_service_does() {
    let description = PartitionDescription {
        hub: hub(),
        partition: PartitionProperties::without_gap(PartitionId(3), SequenceNumber(0), None),
    };
    let mut answer = Vec::new();
    description.write(None, &mut answer);
    let response = Response::read(&answer).unwrap();
    let pairs = [
        b"\xa1\x04name\xa1\x05homes".as_slice(),
        b"\xa1\x04type\xa1\x17com.microsoft:partition",
        b"\xa1\x09partition\xa1\x013",
        b"\xa1\x15begin_sequence_number\x55\xff",
        b"\xa1\x1bbegin_sequence_number_epoch\x54\xff",
        b"\xa1\x1dlast_enqueued_sequence_number\x55\xff",
        b"\xa1\x23last_enqueued_sequence_number_epoch\x54\xff",
        b"\xa1\x14last_enqueued_offset\xa1\x02-1",
        b"\xa1\x16last_enqueued_time_utc\x83\xff\xff\xc7\x7c\xed\xd3\x28\x00",
        b"\xa1\x12is_partition_empty\x41",
    ]
    .concat();
    let head =
        [b"\xd1\x00\x00".as_slice(), &(pairs.len() as u16 + 4).to_be_bytes(), b"\x00\x00\x00\x14"].concat();
    assert_eq!(response.body, Some(&[head, pairs].concat()[..]));
    assert_eq!(PartitionDescription::read(&response), Ok(description));
}

#[test]
fn an_empty_partition_is_read_from_the_service_and_from_older_hubs_alike() {
    for begin in [0x00, 0xff] {
        let pairs = [
            b"\xa1\x04name\xa1\x05homes".as_slice(),
            b"\xa1\x09partition\xa1\x013",
            b"\xa1\x15begin_sequence_number\x55",
            &[begin],
            b"\xa1\x1dlast_enqueued_sequence_number\x55\xff",
            b"\xa1\x14last_enqueued_offset\xa1\x02-1",
        ]
        .concat();
        let body = [b"\xc1", [pairs.len() as u8 + 1, 10].as_slice(), &pairs].concat();
        let response =
            Response { id: None, status: 200, description: None, condition: None, body: Some(&body) };
        let read = PartitionDescription::read(&response).unwrap().partition;
        assert_eq!(read, PartitionProperties::without_gap(PartitionId(3), SequenceNumber(0), None));
    }
}

#[test]
fn numbers_that_were_skipped_in_an_empty_partition_are_not_its_first() {
    let partition = PartitionProperties::without_gap(PartitionId(3), SequenceNumber(65_536), None);
    let description = PartitionDescription { hub: hub(), partition };
    let mut answer = Vec::new();
    description.write(None, &mut answer);
    assert_eq!(PartitionDescription::read(&Response::read(&answer).unwrap()), Ok(description));
}

#[test]
fn a_partition_whose_events_are_gone_is_empty_and_remembers_its_last() {
    let last =
        LastEnqueued { sequence: SequenceNumber(899), offset: Offset::number(5), enqueued_at: Timestamp(6) };
    for (first, empty) in [(900, 0x41), (899, 0x42)] {
        let description = PartitionDescription {
            hub: hub(),
            partition: PartitionProperties::without_gap(
                PartitionId(3),
                SequenceNumber(first),
                Some(last.clone()),
            ),
        };
        let mut answer = Vec::new();
        description.write(None, &mut answer);
        assert_eq!(answer.last(), Some(&empty));
        assert_eq!(PartitionDescription::read(&Response::read(&answer).unwrap()), Ok(description));
    }
}

#[test]
fn numbers_that_were_skipped_are_reported_and_nothing_else_is_added() {
    let last =
        LastEnqueued { sequence: SequenceNumber(9), offset: Offset::number(5), enqueued_at: Timestamp(6) };
    let whole = PartitionProperties::without_gap(PartitionId(3), SequenceNumber(0), Some(last));
    let written = |partition: &PartitionProperties| {
        let mut answer = Vec::new();
        PartitionDescription { hub: hub(), partition: partition.clone() }.write(None, &mut answer);
        answer
    };
    let jumped = PartitionProperties { next: SequenceNumber(1_000), ..whole.clone() };
    for partition in [&whole, &jumped] {
        let answer = written(partition);
        let told = answer.windows(NEXT.len()).any(|bytes| bytes == NEXT.as_bytes());
        assert_eq!(told, *partition == jumped);
        let read = PartitionDescription::read(&Response::read(&answer).unwrap()).unwrap();
        assert_eq!(read.partition, *partition);
    }
}

#[test]
fn what_is_missing_is_named_and_what_is_refused_is_an_error() {
    fn response(body: &[u8]) -> Response<'_> {
        Response { id: None, status: 200, description: None, condition: None, body: Some(body) }
    }
    assert_eq!(HubDescription::read(&response(b"\xc1\x01\x00")), Err(NoDescription::Missing("name")));
    let mut listed = [
        b"\xc1\x00\x06\xa1\x04name\xa1\x01h".as_slice(),
        b"\xa1\x0acreated_at\x83\x00\x00\x00\x00\x00\x00\x00\x01",
        b"\xa1\x0dpartition_ids\xc0\x07\x02\xa1\x010\xa1\x011",
    ]
    .concat();
    listed[1] = (listed.len() - 2) as u8;
    assert_eq!(
        HubDescription::read(&response(&listed)).unwrap().partitions,
        [PartitionId(0), PartitionId(1)]
    );
    assert!(matches!(HubDescription::read(&response(b"\x40")), Err(NoDescription::Malformed(_))));
    let refused = Response { status: 404, ..response(b"\x40") };
    assert!(matches!(HubDescription::read(&refused), Err(NoDescription::Refused(_))));
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_hub_of_any_size_reads_back(
        count in 0u32..2_000,
        created_at in any::<i64>(),
        log in proptest::option::of("[a-z0-9]{1,40}"),
    ) {
        let description = HubDescription {
            hub: hub(),
            created_at: Timestamp(created_at),
            partitions: (0..count).map(PartitionId).collect(),
            log: log.as_deref().map(LogId::new),
        };
        let mut answer = Vec::new();
        description.write(None, &mut answer);
        let response = Response::read(&answer).unwrap();
        ephor_amqp::check::check(response.body.unwrap()).unwrap();
        prop_assert_eq!(HubDescription::read(&response), Ok(description));
    }

    #[test]
    fn any_body_is_refused_or_read(
        bytes in proptest::collection::vec(any::<u8>(), 0..40),
        array in proptest::sample::select(vec![0xc0u8, 0xd0, 0xe0, 0xf0]),
    ) {
        let body = [&[array], &bytes[..]].concat();
        let _ = partition_ids::read(Value::Encoded(&body));
        let response = Response { id: None, status: 200, description: None, condition: None, body: Some(&bytes) };
        let _ = HubDescription::read(&response);
        let _ = PartitionDescription::read(&response);
    }
}
