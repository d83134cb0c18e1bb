//! Tests of messages that some libraries write and others cannot read: in a log that older rules validated,
//! and sent now, they are delivered in a readable form or rejected.

use ephor_amqp::performative::Outcome;
use ephor_amqp::validate::validate;
use ephor_wire::annotations::{Delivered, Stamp, deliver};
use ephor_wire::selector::Start;

use crate::client::{Client, rejection};
use crate::messages_with_older_rules::{PARTITION_KEY, bombs, compound_properties, messages, odd_texts};
use crate::server::{HUB, Server};

/// Asserts that readers who insist on the specification can decode a delivery, and that it is `read` with the hub's
/// annotations.
fn assert_delivered(payload: &[u8], read: &[u8], key: Option<&str>, what: &str) {
    validate(payload).unwrap_or_else(|error| panic!("{what}: {error}"));
    let event = Delivered::read(payload).unwrap();
    let stamp = Stamp {
        sequence: event.sequence,
        offset: &event.offset,
        enqueued_at: event.enqueued_at,
        partition_key: key,
        metrics: None,
        last_number_epoch: false,
    };
    let mut expected = Vec::new();
    deliver(read, &stamp, &mut expected).unwrap();
    assert_eq!(payload, expected, "{what}");
}

#[tokio::test]
async fn readers_of_a_log_that_laxer_rules_validated_can_decode_all_of_it() {
    let (server, _folder) = Server::over_golden("v1-older-rules");
    let mut client = Client::of(&server).await;
    let receiver = client.receiver(0, Start::Earliest).await;
    client.connection().grant(receiver, 100);
    for (number, sent) in messages().into_iter().enumerate() {
        let (_, payload) = client.delivery().await;
        assert_eq!(Delivered::read(&payload).unwrap().sequence.0, number as u64);
        assert_delivered(&payload, &sent.read, Some(PARTITION_KEY), sent.what);
    }
}

#[tokio::test]
async fn text_of_the_other_type_is_delivered_as_the_right_one() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("{HUB}/Partitions/0")).await;
    for sent in odd_texts() {
        assert_eq!(client.send(sender, 0, &sent.stored).await, Outcome::Accepted, "{}", sent.what);
    }
    let receiver = client.receiver(0, Start::Earliest).await;
    client.connection().grant(receiver, 100);
    for sent in odd_texts() {
        let (_, payload) = client.delivery().await;
        assert_delivered(&payload, &sent.read, None, sent.what);
    }
}

#[tokio::test]
async fn too_many_elements_and_compound_properties_are_rejected_with_the_reason() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("{HUB}/Partitions/0")).await;
    let too_many = bombs().into_iter().map(|sent| (sent, "more than 1,024 elements that take no bytes"));
    let compound = compound_properties().into_iter().map(|sent| (sent, "these have simple types only"));
    for (sent, reason) in too_many.chain(compound) {
        let (condition, text) = rejection(client.send(sender, 0, &sent.stored).await);
        assert_eq!(condition, "com.microsoft:argument-error", "{}", sent.what);
        assert!(text.contains(reason), "{}: {text}", sent.what);
    }
}

/// As rhea encodes `{footer: {a: 1}, application_properties: {o: 1}, body: data_section("x")}`.
const OF_RHEA: &[u8] = b"\x00\x53\x70\x45\x00\x53\x73\x45\
    \x00\x53\x74\xd1\0\0\0\x09\0\0\0\x02\xa1\x01o\x52\x01\
    \x00\x53\x78\xd1\0\0\0\x09\0\0\0\x02\xa1\x01a\x52\x01\
    \x00\x53\x75\xa0\x01x";

#[tokio::test]
async fn the_footer_of_the_javascript_sdk_is_delivered_after_the_body() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(&format!("{HUB}/Partitions/0")).await;
    assert_eq!(client.send(sender, 0, OF_RHEA).await, Outcome::Accepted);
    let receiver = client.receiver(0, Start::Earliest).await;
    client.connection().grant(receiver, 1);
    let (_, payload) = client.delivery().await;
    let (before, body) = OF_RHEA.split_at(OF_RHEA.len() - 6);
    let (before, _) = before.split_at(before.len() - 17);
    let footer = b"\x00\x53\x78\xd1\0\0\0\x09\0\0\0\x02\xa3\x01a\x52\x01";
    assert_delivered(&payload, &[before, body, footer].concat(), None, "of rhea");
}
