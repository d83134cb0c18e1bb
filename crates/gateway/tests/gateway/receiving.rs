//! Tests of receivers: positions, credit, epochs, and the ways in which they end.

use ephor_amqp::connection::{Event, LinkId};
use ephor_amqp::performative::Attach;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::position::{Offset, SequenceNumber};
use ephor_core::time::Timestamp;
use ephor_wire::annotations::Delivered;
use ephor_wire::selector::Start;

use crate::client::{Client, now, receiver};
use crate::server::{HUB, Server};

const FIRST: &str = "homes/ConsumerGroups/$Default/Partitions/0";

async fn fill(server: &Server, count: usize) {
    for number in 0..count {
        let event = NewEvent::new(format!("{number}"));
        server.hub().producer().send_to(PartitionId(0), event).await.unwrap();
    }
}

async fn sequence(client: &mut Client) -> u64 {
    Delivered::read(&client.delivery().await.1).unwrap().sequence.0
}

#[tokio::test]
async fn a_receiver_begins_where_its_filter_says() {
    let server = Server::start().await;
    fill(&server, 10).await;
    let mut client = Client::of(&server).await;
    let number = SequenceNumber(5);
    let offset = Offset::number(64 + 5 * 32);
    for (start, first) in [
        (Start::Earliest, 0),
        (Start::Sequence { number, inclusive: true }, 5),
        (Start::Sequence { number, inclusive: false }, 6),
        (Start::Offset { offset: offset.clone(), inclusive: true }, 5),
        (Start::Offset { offset, inclusive: false }, 6),
        (Start::Latest { inclusive: true }, 9),
        (Start::EnqueuedTime { time: Timestamp(0), inclusive: true }, 0),
    ] {
        let link = client.receiver(0, start.clone()).await;
        client.connection().grant(link, 1);
        assert_eq!(sequence(&mut client).await, first, "{start:?}");
        detach(&mut client, link).await;
    }
    let link = client.receiver(0, Start::Latest { inclusive: false }).await;
    client.connection().grant(link, 1);
    fill(&server, 1).await;
    assert_eq!(sequence(&mut client).await, 10);
    let time = Start::EnqueuedTime { time: Timestamp(now().0 + 3_600_000), inclusive: true };
    client.receiver(0, time).await;
}

async fn detach(client: &mut Client, wanted: LinkId) {
    client.connection().detach(wanted, None);
    client.wait(|event| matches!(event, Event::Detached { link, .. } if *link == wanted).then_some(())).await;
}

#[tokio::test]
async fn no_more_events_come_than_there_is_credit_for_and_drain_gives_it_back() {
    let server = Server::start().await;
    fill(&server, 10).await;
    let mut client = Client::of(&server).await;
    let link = client.receiver(0, Start::Earliest).await;
    client.connection().grant(link, 3);
    for expected in 0..3 {
        assert_eq!(sequence(&mut client).await, expected);
    }
    // The answer to a request comes after any delivery that was sent before it.
    assert_eq!(client.put_development_token().await.0, 202);
    assert!(!client.has_delivery());
    client.connection().grant(link, 100);
    for expected in 3..10 {
        assert_eq!(sequence(&mut client).await, expected);
    }
    client.connection().drain(link);
    client.wait(|event| matches!(event, Event::Drained { .. }).then_some(())).await;
    assert_eq!(client.connection().credit(link), 0);
    fill(&server, 1).await;
    assert_eq!(client.put_development_token().await.0, 202);
    assert!(!client.has_delivery());
    client.connection().grant(link, 1);
    assert_eq!(sequence(&mut client).await, 10);
}

#[tokio::test]
async fn a_drain_brings_what_there_is_before_it_gives_credit_back() {
    let server = Server::start().await;
    fill(&server, 25).await;
    let mut client = Client::of(&server).await;
    let link = client.receiver(0, Start::Earliest).await;
    for round in 0..3 {
        client.connection().grant(link, 10);
        client.connection().drain(link);
        for expected in (round * 10)..(round * 10 + 10).min(25) {
            assert_eq!(sequence(&mut client).await, expected);
        }
        client.wait(|event| matches!(event, Event::Drained { .. }).then_some(())).await;
        assert_eq!(client.connection().credit(link), 0);
    }
}

#[tokio::test]
async fn metrics_come_with_events_for_those_who_ask() {
    let server = Server::start().await;
    fill(&server, 3).await;
    let mut client = Client::of(&server).await;
    let desired = ["com.microsoft:georeplication", "com.microsoft:enable-receiver-runtime-metric"];
    let (link, _) = client.attach(receiver(FIRST, &Start::Earliest, None, &desired)).await.unwrap();
    client.connection().grant(link, 1);
    let (_, payload) = client.delivery().await;
    let metrics = Delivered::read(&payload).unwrap().metrics.unwrap();
    assert_eq!(metrics.last.sequence.0, 2);
    assert!(metrics.retrieved_at >= metrics.last.enqueued_at);
}

#[tokio::test]
async fn a_higher_epoch_takes_over_and_a_lower_one_is_refused() {
    let server = Server::start().await;
    let (mut one, mut other) = (Client::of(&server).await, Client::of(&server).await);
    let attach = |epoch| receiver(FIRST, &Start::Earliest, epoch, &[]);
    // With and without credit: a receiver whose partition was taken over is told.
    let (first, _) = one.attach(attach(Some(1))).await.unwrap();
    let (_second, _) = other.attach(attach(Some(2))).await.unwrap();
    let error = one.detached(first).await;
    assert_eq!(error.condition, "amqp:link:stolen");
    let text = "New receiver 'tester' with higher epoch of '2' is created hence current receiver 'tester' with \
                epoch '1' is getting disconnected. If you are recreating the receiver, make sure a higher epoch \
                is used. TrackingId:";
    assert!(error.description().starts_with(text), "{error}");
    assert!(error.description().contains("SystemTracker:localhost:eventhub:homes~0|$Default, Timestamp:"));
    let error = one.attach(attach(Some(1))).await.unwrap_err();
    assert_eq!(error.condition, "amqp:link:stolen");
    assert!(error.description().starts_with("Receiver 'tester' with a higher epoch '2' already exists."));
    let error = one.attach(attach(None)).await.unwrap_err();
    assert_eq!(error.condition, "amqp:link:stolen");
    assert!(error.description().starts_with("At least one receiver for the endpoint is created with epoch"));
    // An equal epoch takes over as well: the processors of all SDKs come with 0.
    one.attach(attach(Some(2))).await.unwrap();
}

#[tokio::test]
async fn a_receiver_without_credit_learns_that_it_was_disconnected_though_events_wait_for_it() {
    let server = Server::start().await;
    fill(&server, 10).await;
    let (mut one, mut other) = (Client::of(&server).await, Client::of(&server).await);
    let attach = |epoch| receiver(FIRST, &Start::Earliest, Some(epoch), &[]);
    let (link, _) = one.attach(attach(1)).await.unwrap();
    one.connection().grant(link, 2);
    assert_eq!((sequence(&mut one).await, sequence(&mut one).await), (0, 1));
    other.attach(attach(2)).await.unwrap();
    assert_eq!(one.detached(link).await.condition, "amqp:link:stolen");
    assert!(!one.has_delivery());
}

#[tokio::test]
async fn there_are_five_places_without_epoch_and_a_detached_receiver_frees_its_own_at_once() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let mut links = Vec::new();
    for _ in 0..5 {
        links.push(client.receiver(0, Start::Earliest).await);
    }
    let sixth = || receiver(FIRST, &Start::Earliest, None, &[]);
    let error = client.attach(sixth()).await.unwrap_err();
    assert_eq!(error.condition, "amqp:resource-limit-exceeded");
    let text =
        "Exceeded the maximum number of allowed receivers per partition in a consumer group which is 5.";
    assert!(error.description().starts_with(text), "{error}");
    for link in links {
        detach(&mut client, link).await;
        let next = client.attach(sixth()).await.unwrap().0;
        detach(&mut client, next).await;
    }
}

#[tokio::test]
async fn a_connection_that_is_lost_frees_its_places() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    for _ in 0..5 {
        client.receiver(0, Start::Earliest).await;
    }
    drop(client);
    crate::server::within(async {
        while !server.hub().receivers().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
}

#[tokio::test]
async fn receivers_of_what_is_not_there_are_refused_with_the_words_of_the_service() {
    let server = Server::start().await;
    fill(&server, 3).await;
    let mut client = Client::of(&server).await;
    for (address, start, condition, text) in [
        (
            "nowhere/ConsumerGroups/$Default/Partitions/0",
            Start::Earliest,
            "amqp:not-found",
            "The messaging entity 'sb://localhost/nowhere/",
        ),
        (
            "homes/ConsumerGroups/none/Partitions/0",
            Start::Earliest,
            "amqp:not-found",
            "The messaging entity 'sb://localhost/homes/ConsumerGroups/none",
        ),
        (
            "homes/ConsumerGroups/$Default/Partitions/9",
            Start::Earliest,
            "com.microsoft:argument-out-of-range",
            "The specified partition is invalid",
        ),
        (
            FIRST,
            Start::Sequence { number: SequenceNumber(99), inclusive: true },
            "com.microsoft:argument-error",
            "The supplied sequence number '99' is invalid. The last sequence number in the system is '2'",
        ),
        ("homes", Start::Earliest, "amqp:not-allowed", ""),
        ("homes/ConsumerGroups/$Default", Start::Earliest, "amqp:not-allowed", ""),
    ] {
        let error = client.attach(receiver(address, &start, None, &[])).await.unwrap_err();
        assert_eq!(error.condition, condition, "{address}");
        assert!(error.description().starts_with(text), "{error}");
    }
    let mut attach = Attach::receiver("receiver", FIRST);
    let selector = ephor_amqp::Value::String("colour = 'red'");
    let filter = ephor_amqp::Encoded::map([("apache.org:selector-filter:string", selector)]);
    attach.source.as_mut().unwrap().filter = Some(filter);
    let error = client.attach(attach).await.unwrap_err();
    assert!(error.description().contains("is not a valid amqp filter for EventHub entities"), "{error}");
    let error = client.attach(receiver(FIRST, &Start::Earliest, Some(-1), &[])).await.unwrap_err();
    assert_eq!(error.condition, "com.microsoft:argument-error");
}

#[tokio::test]
async fn a_receiver_of_a_deleted_hub_or_group_is_detached_as_not_found() {
    let server = Server::start().await;
    server.hub().create_group("audit").unwrap();
    let mut client = Client::of(&server).await;
    let address = "homes/ConsumerGroups/AUDIT/Partitions/0";
    let (group, _) = client.attach(receiver(address, &Start::Earliest, None, &[])).await.unwrap();
    let hub = client.receiver(0, Start::Earliest).await;
    client.connection().grant(hub, 5);
    server.hub().delete_group("audit").unwrap();
    let error = client.detached(group).await;
    assert_eq!(error.condition, "amqp:not-found");
    assert!(
        error.description().starts_with("The messaging entity 'sb://localhost/homes/ConsumerGroups/AUDIT")
    );
    server.namespace.delete_hub(HUB).unwrap();
    let error = client.detached(hub).await;
    assert_eq!(error.condition, "amqp:not-found");
    assert!(error.description().contains("could not be found"), "{error}");
}
