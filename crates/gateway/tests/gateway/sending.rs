//! Tests of senders: single events and batches, to a hub and to a partition, and messages that are refused.

use ephor_amqp::performative::{Attach, Outcome};
use ephor_amqp::{Encoded, Value, encode};
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::partition_key::partition_for;
use ephor_wire::annotations::with_partition_key;
use ephor_wire::batch::{MESSAGE_FORMAT, Packer, Push};
use ephor_wire::selector::Start;

use crate::client::{Client, encoded, rejection};
use crate::server::{HUB, PARTITIONS, Server};

fn keyed(body: &'static str, key: &str) -> Vec<u8> {
    let mut message = Vec::new();
    with_partition_key(&encoded(&NewEvent::new(body)), key, &mut message).unwrap();
    message
}

fn batch(key: Option<&str>, bodies: &[&'static str]) -> Vec<u8> {
    let mut packer = Packer::new(1 << 20, key);
    for body in bodies {
        assert_eq!(packer.push(&NewEvent::new(*body)), Ok(Push::Added));
    }
    packer.take().unwrap().bytes
}

#[tokio::test]
async fn an_event_comes_back_byte_for_byte_with_the_hubs_annotations() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("amqps://localhost/{HUB}/Partitions/2")).await;
    let message = keyed("the door opened", "house-7");
    assert_eq!(client.send(sender, 0, &message).await, Outcome::Accepted);
    let receiver = client.receiver(2, Start::Earliest).await;
    client.connection().grant(receiver, 1);
    let (link, payload) = client.delivery().await;
    assert_eq!(link, receiver);
    let event = ephor_wire::annotations::Delivered::read(&payload).unwrap();
    assert_eq!((event.sequence.0, event.partition_key), (0, Some("house-7")));
    assert_eq!(event.offset.to_string(), "0");
    assert!(event.metrics.is_none());
    assert_eq!(&payload[event.sections.body.content.clone()], b"the door opened");
}

#[tokio::test]
async fn a_batch_is_split_and_its_key_chooses_the_partition() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    let message = batch(Some("house-7"), &["a", "b", "c"]);
    assert_eq!(client.send(sender, MESSAGE_FORMAT, &message).await, Outcome::Accepted);
    let PartitionId(partition) = partition_for("house-7", PARTITIONS);
    let receiver = client.receiver(partition, Start::Earliest).await;
    client.connection().grant(receiver, 10);
    for (number, body) in ["a", "b", "c"].into_iter().enumerate() {
        let (_, payload) = client.delivery().await;
        let event = ephor_wire::annotations::Delivered::read(&payload).unwrap();
        assert_eq!((event.sequence.0, event.partition_key), (number as u64, Some("house-7")));
        assert_eq!(&payload[event.sections.body.content.clone()], body.as_bytes());
    }
}

#[tokio::test]
async fn many_sends_in_flight_are_stored_in_order_and_all_answered() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("{HUB}/Partitions/0")).await;
    let mut ids = Vec::new();
    for number in 0..200 {
        let message = encoded(&NewEvent::new(format!("{number}")));
        match client.connection().send(sender, 0, false, &[&message]) {
            ephor_amqp::connection::Sent::Sent(id) => ids.push(id),
            other => panic!("{other:?}"),
        }
    }
    let mut settled = 0;
    while settled < ids.len() {
        settled += client
            .wait(|event| match event {
                ephor_amqp::connection::Event::Settled { first, last, outcome, .. } => {
                    assert_eq!(outcome, &Some(Outcome::Accepted));
                    Some((last - first + 1) as usize)
                }
                _ => None,
            })
            .await;
    }
    let receiver = client.receiver(0, Start::Earliest).await;
    client.connection().grant(receiver, 500);
    for number in 0..200 {
        let (_, payload) = client.delivery().await;
        let event = ephor_wire::annotations::Delivered::read(&payload).unwrap();
        assert_eq!(&payload[event.sections.body.content.clone()], number.to_string().as_bytes());
    }
}

#[tokio::test]
async fn what_cannot_be_stored_is_rejected_and_the_link_goes_on() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("{HUB}/Partitions/0")).await;
    let large = encoded(&NewEvent::new(vec![0; (1 << 20) + 1]));
    let (condition, text) = rejection(client.send(sender, 0, &large).await);
    assert_eq!(condition, "amqp:link:message-size-exceeded");
    assert!(text.contains("exceeds the limit (1048576 bytes) currently allowed on the link."), "{text}");
    for (format, nonsense) in
        [(0, &b"no message"[..]), (0, b""), (MESSAGE_FORMAT, b"\x00"), (MESSAGE_FORMAT, b"")]
    {
        let (condition, _) = rejection(client.send(sender, format, nonsense).await);
        assert_eq!(condition, "com.microsoft:argument-error");
    }
    let long = keyed("x", &"k".repeat(129));
    assert_eq!(rejection(client.send(sender, 0, &long).await).0, "com.microsoft:argument-error");
    // Far too large, and without effect on later messages.
    for _ in 0..3 {
        let (condition, _) = rejection(client.send(sender, 0, &vec![0; 5 << 20]).await);
        assert_eq!(condition, "amqp:link:message-size-exceeded");
    }
    let good = encoded(&NewEvent::new("x"));
    assert_eq!(client.send(sender, 0, &good).await, Outcome::Accepted);
}

#[tokio::test]
async fn links_to_what_is_not_there_are_refused_with_the_words_of_the_service() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let missing = "The messaging entity 'sb://localhost/nowhere' could not be found.";
    let range = "The specified partition is invalid for an EventHub partition sender or receiver. It should be \
                 between 0 and 3.";
    for (address, condition, text) in [
        ("nowhere", "amqp:not-found", missing),
        ("homes/Partitions/4", "com.microsoft:argument-out-of-range", range),
        ("homes/Partitions/x", "com.microsoft:argument-out-of-range", ""),
        ("homes/ConsumerGroups/$Default/Partitions/0", "amqp:not-allowed", ""),
        ("", "amqp:not-found", ""),
    ] {
        let error = client.attach(Attach::sender("sender", address)).await.unwrap_err();
        assert_eq!(error.condition, condition, "{address}");
        assert!(error.description().starts_with(text), "{error}");
        assert!(error.description().contains(" TrackingId:"), "{error}");
    }
}

#[tokio::test]
async fn a_producer_that_numbers_its_events_is_stored_once() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let mut attach = Attach::sender("sender", format!("{HUB}/Partitions/1"));
    attach.desired_capabilities = Some(Encoded::symbols(["com.microsoft:idempotent-producer"]));
    let (sender, answer) = client.attach(attach).await.unwrap();
    let properties = answer.properties.unwrap();
    assert!(matches!(properties.get("com.microsoft:producer-id"), Some(Value::Long(_))));
    assert_eq!(properties.get("com.microsoft:producer-epoch"), Some(Value::Short(0)));
    assert_eq!(properties.get("com.microsoft:producer-sequence-number"), Some(Value::Int(0)));
    while client.connection().credit(sender) == 0 {
        client
            .wait(|event| matches!(event, ephor_amqp::connection::Event::Credit { .. }).then_some(()))
            .await;
    }
    let numbered = |number| {
        let mut message = Vec::new();
        encode::described(&mut message, 0x72);
        let map = encode::begin(&mut message);
        encode::symbol(&mut message, "com.microsoft:producer-sequence-number");
        encode::int(&mut message, number);
        encode::end_map(&mut message, map, 1);
        message.extend_from_slice(&encoded(&NewEvent::new("x")));
        message
    };
    for number in [1, 2, 2, 1, 3] {
        assert_eq!(client.send(sender, 0, &numbered(number)).await, Outcome::Accepted);
    }
    let (condition, _) = rejection(client.send(sender, 0, &numbered(9)).await);
    assert_eq!(condition, "com.microsoft:out-of-order-sequence");
    let query =
        ephor_wire::management::Query::Partition { hub: HUB.parse().unwrap(), partition: PartitionId(1) };
    let (_, _, answer) = client.describe("$management", &query).await;
    let response = ephor_wire::request_response::Response::read(&answer).unwrap();
    let described = ephor_wire::management::PartitionDescription::read(&response).unwrap();
    assert_eq!(described.partition.last.unwrap().sequence.0, 2);
}
