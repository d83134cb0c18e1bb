//! Tests that the gateway behaves as recordings of Azure Event Hubs show (REC in docs/clients.md):
//! positions, descriptions of partitions, and message sections.

use bytes::Bytes;
use ephor_amqp::connection::{Event, LinkId};
use ephor_amqp::performative::{Attach, Error, Outcome};
use ephor_amqp::validate::validate;
use ephor_amqp::{Encoded, Reader, Sections, Value};
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_wire::annotations::Delivered;
use ephor_wire::management::Query;
use ephor_wire::request_response::Response;

use crate::client::{Client, receiver, rejection};
use crate::server::{HUB, Server};

const FIRST: &str = "homes/ConsumerGroups/$Default/Partitions/0";
const METRICS: &str = "com.microsoft:enable-receiver-runtime-metric";

async fn fill(server: &Server, count: usize) {
    for number in 0..count {
        let event = NewEvent::new(format!("{number}"));
        server.hub().producer().send_to(PartitionId(0), event).await.unwrap();
    }
}

/// Attaches a receiver with this condition as its filter.
async fn attach(client: &mut Client, condition: &str) -> Result<LinkId, Error> {
    let selector = format!("amqp.annotation.{condition}");
    let mut attach = Attach::receiver("receiver", FIRST);
    let filter = Encoded::map([("apache.org:selector-filter:string", Value::String(&selector))]);
    attach.source.as_mut().unwrap().filter = Some(filter);
    client.attach(attach).await.map(|(link, _)| link)
}

async fn detach(client: &mut Client, wanted: LinkId) {
    client.connection().detach(wanted, None);
    client.wait(|event| matches!(event, Event::Detached { link, .. } if *link == wanted).then_some(())).await;
}

/// The first event that a receiver with this condition gets.
async fn first(client: &mut Client, condition: &str) -> u64 {
    let link = attach(client, condition).await.unwrap_or_else(|error| panic!("{condition}: {error}"));
    client.connection().grant(link, 1);
    let (_, payload) = client.delivery().await;
    detach(client, link).await;
    Delivered::read(&payload).unwrap().sequence.0
}

/// Asserts that a receiver with this condition is refused with this text, and the tracking of the service after it.
async fn assert_refused(client: &mut Client, condition: &str, text: &str) {
    let error = attach(client, condition).await.expect_err(condition);
    assert_eq!(error.condition, "com.microsoft:argument-error", "{condition}");
    let (found, tracking) = error.description().split_once(" TrackingId:").expect(condition);
    assert_eq!(found, text, "{condition}");
    assert!(tracking.contains(", SystemTracker:localhost:eventhub:homes~0|$Default, Timestamp:"), "{error}");
}

#[tokio::test]
async fn the_first_offset_is_zero_and_every_one_up_to_the_last_is_taken() {
    let server = Server::start().await;
    fill(&server, 4).await;
    let mut client = Client::of(&server).await;
    let link = attach(&mut client, "x-opt-offset > '-1'").await.unwrap();
    client.connection().grant(link, 4);
    for offset in ["0", "96", "128", "160"] {
        let (_, payload) = client.delivery().await;
        assert_eq!(Delivered::read(&payload).unwrap().offset.to_string(), offset);
    }
    detach(&mut client, link).await;
    for (condition, expected) in [
        (">= '0'", 0),
        ("> '0'", 1),
        (">= '1'", 1),
        ("> '1'", 1),
        ("> '65'", 1),
        (">= '95'", 1),
        (">= '96'", 1),
        ("> '96'", 2),
        ("> '97'", 2),
        (">= '127'", 2),
        ("> '159'", 3),
        (">= '160'", 3),
    ] {
        let condition = format!("x-opt-offset {condition}");
        assert_eq!(first(&mut client, &condition).await, expected, "{condition}");
    }
    let link = attach(&mut client, "x-opt-offset > '160'").await.unwrap();
    client.connection().grant(link, 1);
    fill(&server, 1).await;
    let (_, payload) = client.delivery().await;
    assert_eq!(Delivered::read(&payload).unwrap().sequence.0, 4);
}

#[tokio::test]
async fn the_first_offset_of_older_versions_still_means_the_first_event() {
    let server = Server::start().await;
    fill(&server, 2).await;
    let mut client = Client::of(&server).await;
    assert_eq!(first(&mut client, "x-opt-offset >= '64'").await, 0);
    assert_eq!(first(&mut client, "x-opt-offset > '64'").await, 1);
}

#[tokio::test]
async fn an_offset_beyond_the_last_is_refused_and_told_the_last() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    for condition in ["> '0'", ">= '0'"] {
        let text = "The supplied offset '0' is invalid. The last offset in the system is '-1'";
        assert_refused(&mut client, &format!("x-opt-offset {condition}"), text).await;
    }
    fill(&server, 3).await;
    for offset in ["129", "160", "99999999999", "99999999999999999999999", "red"] {
        let text =
            format!("The supplied offset '{offset}' is invalid. The last offset in the system is '128'");
        for operator in [">", ">="] {
            let condition = format!("x-opt-offset {operator} '{offset}'");
            assert_refused(&mut client, &condition, &text).await;
        }
    }
}

#[tokio::test]
async fn a_sequence_number_that_is_still_to_come_is_refused_and_told_the_last() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    for operator in [">", ">="] {
        let text =
            "The supplied sequence number '0' is invalid. The last sequence number in the system is '-1'";
        assert_refused(&mut client, &format!("x-opt-sequence-number {operator} '0'"), text).await;
    }
    for condition in ["x-opt-sequence-number > '-1'", "x-opt-offset > '@latest'", "x-opt-offset >= '@latest'"]
    {
        let link = attach(&mut client, condition).await.unwrap();
        detach(&mut client, link).await;
    }
    fill(&server, 3).await;
    for operator in [">", ">="] {
        let text =
            "The supplied sequence number '3' is invalid. The last sequence number in the system is '2'";
        assert_refused(&mut client, &format!("x-opt-sequence-number {operator} '3'"), text).await;
    }
    assert_eq!(first(&mut client, "x-opt-sequence-number >= '2'").await, 2);
    let link = attach(&mut client, "x-opt-sequence-number > '2'").await.unwrap();
    client.connection().grant(link, 1);
    fill(&server, 1).await;
    let (_, payload) = client.delivery().await;
    assert_eq!(Delivered::read(&payload).unwrap().sequence.0, 3);
}

#[tokio::test]
async fn a_stale_owner_is_told_of_the_epoch_and_not_of_its_position() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let at_the_next = ephor_wire::selector::Start::Sequence {
        number: ephor_core::position::SequenceNumber(0),
        inclusive: true,
    };
    let (owner, _) =
        client.attach(receiver(FIRST, &ephor_wire::selector::Start::Earliest, Some(5), &[])).await.unwrap();
    let error = client.attach(receiver(FIRST, &at_the_next, Some(4), &[])).await.unwrap_err();
    assert_eq!(error.condition, "amqp:link:stolen");
    let error = client.attach(receiver(FIRST, &at_the_next, Some(6), &[])).await.unwrap_err();
    assert_eq!(error.condition, "com.microsoft:argument-error", "and it disconnects nobody");
    client.connection().grant(owner, 1);
    fill(&server, 1).await;
    assert_eq!(client.delivery().await.0, owner);
}

#[tokio::test]
async fn both_names_of_the_enqueued_time_are_known() {
    let server = Server::start().await;
    fill(&server, 1).await;
    let mut client = Client::of(&server).await;
    for name in ["x-opt-enqueued-time", "x-opt-enqueuedtimeutc"] {
        assert_eq!(first(&mut client, &format!("{name} > '1518731960545'")).await, 0, "{name}");
    }
}

/// The numbers in a description of the first partition.
async fn described(client: &mut Client) -> Vec<(String, i64)> {
    let query = Query::Partition { hub: HUB.parse().unwrap(), partition: PartitionId(0) };
    let (status, _, answer) = client.describe("$management", &query).await;
    assert_eq!(status, 200);
    let response = Response::read(&answer).unwrap();
    let mut items = Reader::new(response.body.unwrap()).map().unwrap();
    let mut numbers = Vec::new();
    while let (Some(name), Some(value)) = (items.next().unwrap(), items.next().unwrap()) {
        if let Value::Long(_) | Value::Int(_) = value {
            numbers.push((name.text().unwrap().to_owned(), value.integer().unwrap()));
        }
    }
    numbers.sort();
    numbers
}

#[tokio::test]
async fn an_empty_partition_begins_before_its_first_event() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let of = |begin, last| {
        [
            ("begin_sequence_number", begin),
            ("begin_sequence_number_epoch", -1),
            ("last_enqueued_sequence_number", last),
            ("last_enqueued_sequence_number_epoch", -1),
        ]
        .map(|(name, number)| (name.to_owned(), number))
    };
    assert_eq!(described(&mut client).await, of(-1, -1));
    fill(&server, 2).await;
    assert_eq!(described(&mut client).await, of(0, 1));
}

const HEADER: &[u8] = b"\x00\x53\x70\xc0\x07\x05\x40\x50\x0a\x40\x40\x40";
const DELIVERY_ANNOTATIONS: &[u8] = b"\x00\x53\x71\xc1\x1b\x02\xa3\x0adelann_key\xa1\x0cdelann_value";
const BODY: &[u8] = b"\x00\x53\x75\xa0\x02aa";

/// The pairs of a section that is a map, as text.
fn pairs(payload: &[u8], section: Option<ephor_amqp::message::Section>) -> Vec<(String, String)> {
    let Some(section) = section else { return Vec::new() };
    let mut items = Reader::starting(&payload[..section.end], section.value).map().unwrap();
    let mut pairs = Vec::new();
    while let (Some(name), Some(value)) = (items.next().unwrap(), items.next().unwrap()) {
        let value = value.text().map_or_else(|| format!("{value:?}"), str::to_owned);
        pairs.push((name.text().unwrap().to_owned(), value));
    }
    pairs
}

/// Sends a message to the first partition, and returns it as a receiver with these capabilities gets it.
async fn sent_and_received(message: &[u8], desired: &[&'static str]) -> Bytes {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("{HUB}/Partitions/0")).await;
    assert_eq!(client.send(sender, 0, message).await, Outcome::Accepted);
    let start = ephor_wire::selector::Start::Earliest;
    let (link, _) = client.attach(receiver(FIRST, &start, None, desired)).await.unwrap();
    client.connection().grant(link, 1);
    let (_, payload) = client.delivery().await;
    validate(&payload).unwrap();
    payload
}

#[tokio::test]
async fn delivery_annotations_of_the_sender_are_delivered_and_its_header_is_not() {
    for message in
        [[HEADER, DELIVERY_ANNOTATIONS, BODY].concat(), [HEADER, BODY, DELIVERY_ANNOTATIONS].concat()]
    {
        let payload = sent_and_received(&message, &[]).await;
        let found = Sections::scan(&payload).unwrap();
        assert_eq!(found.header, None);
        let annotations = pairs(&payload, found.delivery_annotations);
        assert_eq!(annotations, [("delann_key".to_owned(), "delann_value".to_owned())]);
        let payload = sent_and_received(&message, &[METRICS]).await;
        let found = Delivered::read(&payload).unwrap();
        assert_eq!(found.metrics.unwrap().last.sequence.0, 0);
        let annotations = pairs(&payload, found.sections.delivery_annotations);
        assert!(
            annotations.contains(&("delann_key".to_owned(), "delann_value".to_owned())),
            "{annotations:?}"
        );
    }
}

#[tokio::test]
async fn no_sender_can_report_the_end_of_the_log() {
    let annotations: &[u8] = b"\x00\x53\x71\xc1\x22\x02\xa3\x1dlast_enqueued_sequence_number\x55\x63";
    let message = [annotations, BODY].concat();
    let payload = sent_and_received(&message, &[]).await;
    assert_eq!(Sections::scan(&payload).unwrap().delivery_annotations, None);
    let payload = sent_and_received(&message, &[METRICS]).await;
    assert_eq!(Delivered::read(&payload).unwrap().metrics.unwrap().last.sequence.0, 0);
}

#[tokio::test]
async fn a_message_without_a_body_is_delivered_with_an_empty_one() {
    let properties: &[u8] = b"\x00\x53\x74\xc1\x06\x02\xa1\x01a\x54\x01";
    for message in [properties.to_vec(), [properties, DELIVERY_ANNOTATIONS].concat()] {
        let payload = sent_and_received(&message, &[]).await;
        let found = Sections::scan(&payload).unwrap();
        assert_eq!(found.data(&payload).collect::<Vec<_>>(), [b""]);
        assert_eq!(&payload[found.application_properties.unwrap().whole()], properties);
    }
    // Nothing at all is no message.
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("{HUB}/Partitions/0")).await;
    let (condition, _) = rejection(client.send(sender, 0, b"").await);
    assert_eq!(condition, "com.microsoft:argument-error");
}

#[tokio::test]
async fn a_text_property_that_is_not_utf_8_is_delivered_as_bytes() {
    let short: &[u8] = b"\x00\x53\x74\xc1\x09\x02\xa1\x01k\xa1\x03\xff\xfe\x80";
    let payload = sent_and_received(&[short, BODY].concat(), &[]).await;
    let section = Sections::scan(&payload).unwrap().application_properties.unwrap();
    assert_eq!(&payload[section.whole()], b"\x00\x53\x74\xc1\x09\x02\xa1\x01k\xa0\x03\xff\xfe\x80");
    let long: &[u8] = b"\x00\x53\x74\xc1\x0c\x02\xa1\x01k\xb1\0\0\0\x03\xff\xfe\x80";
    let payload = sent_and_received(&[long, BODY].concat(), &[]).await;
    let section = Sections::scan(&payload).unwrap().application_properties.unwrap();
    assert_eq!(&payload[section.whole()], b"\x00\x53\x74\xc1\x0c\x02\xa1\x01k\xb0\0\0\0\x03\xff\xfe\x80");
}

#[tokio::test]
async fn a_value_that_any_number_or_name_describes_is_delivered_as_it_was_sent() {
    // As the Python SDK writes the tuple (12345, "TEST"), and with a string in place of the number.
    for body in
        [&b"\x00\x53\x77\x00\x71\0\0\x30\x39\xa1\x04TEST"[..], b"\x00\x53\x77\x00\xa1\x01d\xa1\x04TEST"]
    {
        let payload = sent_and_received(body, &[]).await;
        assert!(payload.ends_with(body), "{}", payload.escape_ascii());
    }
}

#[tokio::test]
async fn data_that_is_null_is_delivered_as_a_value() {
    let payload = sent_and_received(b"\x00\x53\x75\x40", &[]).await;
    assert!(payload.ends_with(b"\x00\x53\x77\x40"), "{}", payload.escape_ascii());
}
