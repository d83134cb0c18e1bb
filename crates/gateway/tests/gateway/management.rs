//! Tests of `$management`: the runtime properties of hubs and partitions.

use ephor_amqp::connection::Event;
use ephor_amqp::performative::Attach;
use ephor_core::event::NewEvent;
use ephor_core::ids::{HubName, PartitionId};
use ephor_wire::management::{HubDescription, PartitionDescription, Query};
use ephor_wire::request_response::{RequestId, Response};

use crate::client::{Client, rejection};
use crate::server::{HUB, PARTITIONS, Server};

fn hub() -> HubName {
    HUB.parse().unwrap()
}

#[tokio::test]
async fn a_hub_and_its_partitions_are_described_at_both_addresses() {
    let server = Server::start().await;
    server.hub().producer().send_to(PartitionId(3), NewEvent::new("x")).await.unwrap();
    let mut client = Client::of_product(&server, "ephor").await;
    for node in ["$management", "homes/$management"] {
        let (status, text, answer) = client.describe(node, &Query::Hub { hub: hub() }).await;
        assert_eq!((status, &*text), (200, "OK"));
        let described = HubDescription::read(&Response::read(&answer).unwrap()).unwrap();
        assert_eq!(described.partitions.len(), PARTITIONS as usize);
        assert_eq!(described.log, Some(server.hub().describe().log));
        assert_eq!(described.created_at, server.hub().describe().created_at);
        for (partition, last) in [(0, None), (3, Some(0))] {
            let query = Query::Partition { hub: hub(), partition: PartitionId(partition) };
            let (status, _, answer) = client.describe(node, &query).await;
            assert_eq!(status, 200);
            let described = PartitionDescription::read(&Response::read(&answer).unwrap()).unwrap();
            assert_eq!(described.partition.last.map(|last| last.sequence.0), last);
        }
    }
}

#[tokio::test]
async fn what_is_not_there_is_said_not_to_be() {
    let server = Server::start().await;
    let mut client = Client::of(&server).await;
    let query = Query::Hub { hub: "nowhere".parse().unwrap() };
    let (status, text, _) = client.describe("$management", &query).await;
    assert_eq!(status, 404);
    assert!(text.starts_with("The messaging entity 'sb://localhost/nowhere' could not be found."), "{text}");
    let query = Query::Partition { hub: hub(), partition: PartitionId(PARTITIONS) };
    assert_eq!(client.describe("$management", &query).await.0, 400);
    let nonsense = |id: &_, into: &mut Vec<u8>| {
        ephor_wire::cbs::PutToken {
            audience: "x",
            kind: ephor_wire::cbs::TokenKind::Sas,
            token: "x",
            expires_at: None,
        }
        .write(id, "replies", into);
    };
    let (requests, _) = client.attach(Attach::sender("requests", "$management")).await.unwrap();
    client.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
    let mut message = Vec::new();
    nonsense(&RequestId::number(1), &mut message);
    assert_eq!(rejection(client.send(requests, 0, &message).await).0, "amqp:not-allowed");
}
