//! Tests of the maximum message size: the announced, accepted and delivered sizes agree, to the byte.

use ephor_amqp::connection::LinkId;
use ephor_amqp::performative::{Attach, Outcome};
use ephor_amqp::{Sections, encode};
use ephor_core::partition_key::MAX_KEY_CHARACTERS;
use ephor_wire::annotations::with_partition_key;
use ephor_wire::batch::MESSAGE_FORMAT;
use ephor_wire::selector::Start;

use crate::client::{Client, receiver, rejection};
use crate::server::{HUB, Server};

const PARTITION: &str = "homes/Partitions/0";
const FIRST: &str = "homes/ConsumerGroups/$Default/Partitions/0";

/// The size that the service announces on the links of senders (REC), and the default of a hub.
const ANNOUNCED: usize = 1_048_576;

/// The head of a data section with a long body.
const DATA_HEAD: usize = 8;

fn data(content: &[u8]) -> Vec<u8> {
    let mut section = Vec::new();
    encode::described(&mut section, 0x75);
    encode::binary(&mut section, content);
    section
}

/// A message of so many bytes.
fn plain(size: usize) -> Vec<u8> {
    data(&vec![7; size - DATA_HEAD])
}

/// A message of so many bytes with the longest partition key, in letters of two bytes each.
fn keyed(size: usize) -> Vec<u8> {
    let key = "ü".repeat(MAX_KEY_CHARACTERS);
    let (mut small, mut message) = (Vec::new(), Vec::new());
    with_partition_key(&plain(1_000), &key, &mut small).unwrap();
    with_partition_key(&plain(size - (small.len() - 1_000)), &key, &mut message).unwrap();
    message
}

/// A batch of one event, of so many bytes together.
fn batch_of_one(size: usize) -> Vec<u8> {
    data(&plain(size - DATA_HEAD))
}

/// A batch of three events, of so many bytes together.
fn batch_of_three(size: usize) -> Vec<u8> {
    let two = [data(&plain(1_000)), data(&plain(size / 2))].concat();
    let third = data(&plain(size - two.len() - DATA_HEAD));
    [two, third].concat()
}

/// Properties with a message id of 36 characters, as the Go SDK gives one to every event.
const MESSAGE_ID: &[u8] = b"\x00\x53\x73\xc0\x27\x01\xa1\x2423c4f1de-5f1f-4f5e-9b0e-4c6b7a0d9e11";

/// A batch of one event of so many bytes, as the Go SDK writes it: the envelope repeats the properties of its first
/// event.
fn go_batch(size: usize) -> Vec<u8> {
    let event = [MESSAGE_ID, &plain(size - 2 * MESSAGE_ID.len() - DATA_HEAD)].concat();
    [MESSAGE_ID, &data(&event)].concat()
}

/// A message of so many bytes, as .NET sends a batch of one event: the event alone, with its properties.
fn dotnet_batch_of_one(size: usize) -> Vec<u8> {
    let properties: &[u8] = b"\x00\x53\x74\xc1\x0c\x02\xa1\x04kind\xa1\x03red";
    [properties, &plain(size - properties.len())].concat()
}

/// A batch of two events of so many bytes with a partition key, as .NET sends it: the key is in the envelope and in
/// each event.
fn dotnet_batch_of_two(size: usize) -> Vec<u8> {
    let key: &[u8] = b"\x00\x53\x72\xc1\x1e\x02\xa3\x13x-opt-partition-key\xa1\x06home-7";
    let event = |size: usize| data(&[key, &plain(size - key.len())].concat());
    let first = [key, &event(size / 2)].concat();
    let second = event(size - first.len() - DATA_HEAD);
    [first, second].concat()
}

async fn sender(client: &mut Client) -> LinkId {
    let (link, attach) = client.attach(Attach::sender("sender", PARTITION)).await.unwrap();
    assert_eq!(attach.max_message_size, Some(ANNOUNCED as u64));
    while client.connection().credit(link) == 0 {
        client
            .wait(|event| matches!(event, ephor_amqp::connection::Event::Credit { .. }).then_some(()))
            .await;
    }
    link
}

#[tokio::test]
async fn all_that_is_accepted_is_delivered_within_the_size_that_the_receiver_is_told() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let link = sender(&mut client).await;
    let mut sent = 0;
    for size in [ANNOUNCED - 1, ANNOUNCED] {
        for (format, message, events) in [
            (0, plain(size), 1),
            (0, keyed(size), 1),
            (MESSAGE_FORMAT, batch_of_one(size), 1),
            (MESSAGE_FORMAT, batch_of_three(size), 3),
            (MESSAGE_FORMAT, go_batch(size), 1),
            (0, dotnet_batch_of_one(size), 1),
            (MESSAGE_FORMAT, dotnet_batch_of_two(size), 2),
        ] {
            assert_eq!(message.len(), size);
            assert_eq!(client.send(link, format, &message).await, Outcome::Accepted, "{size} bytes");
            sent += events;
        }
    }
    let desired = ["com.microsoft:georeplication", "com.microsoft:enable-receiver-runtime-metric"];
    for desired in [&desired[..], &[]] {
        let attach = receiver(FIRST, &Start::Earliest, None, desired);
        let (link, attach) = client.attach(attach).await.unwrap();
        let announced = attach.max_message_size.unwrap() as usize;
        client.connection().grant(link, sent);
        for number in 0..sent {
            let (_, payload) = client.delivery().await;
            assert!(payload.len() <= announced, "event {number}: {} of {announced}", payload.len());
            Sections::scan(&payload).unwrap();
        }
        client.connection().detach(link, None);
    }
}

#[tokio::test]
async fn one_byte_more_than_announced_is_rejected_with_the_words_of_the_service() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let link = sender(&mut client).await;
    let size = ANNOUNCED + 1;
    for (format, message) in [
        (0, plain(size)),
        (0, keyed(size)),
        (MESSAGE_FORMAT, batch_of_one(size)),
        (MESSAGE_FORMAT, batch_of_three(size)),
        (MESSAGE_FORMAT, go_batch(size)),
        (0, dotnet_batch_of_one(size)),
        (MESSAGE_FORMAT, dotnet_batch_of_two(size)),
        (0, plain(1_200_000)),
        (MESSAGE_FORMAT, batch_of_three(1_110_000)),
    ] {
        let (condition, text) = rejection(client.send(link, format, &message).await);
        assert_eq!(condition, "amqp:link:message-size-exceeded");
        let (text, tracking) = text.split_once(" TrackingId:").expect(&text);
        let said = format!(
            "size:{} bytes) exceeds the limit (1048576 bytes) currently allowed on the link.",
            message.len()
        );
        assert!(text.starts_with("The received message (delivery-id:") && text.ends_with(&said), "{text}");
        assert!(
            tracking.contains(&format!(", SystemTracker:localhost:eventhub:{HUB}~0, Timestamp:")),
            "{tracking}"
        );
    }
    // The link goes on.
    assert_eq!(client.send(link, 0, &plain(1_000)).await, Outcome::Accepted);
}

#[tokio::test]
async fn every_rejection_has_a_tracking_id() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let link = sender(&mut client).await;
    let (condition, text) = rejection(client.send(link, 0, b"no message").await);
    assert_eq!(condition, "com.microsoft:argument-error");
    assert!(text.contains(" TrackingId:"), "{text}");
}
