//! Tests of peers that send requests to `$management` and do not read the answers: the link is detached, or
//! the connection closed when the memory of all connections is used up.

use std::time::Duration;

use ephor_amqp::connection::{Closed, Event, LinkId};
use ephor_amqp::performative::{Attach, Outcome, Target};
use ephor_core::event::NewEvent;
use ephor_gateway::config::MIN_BUFFERED_BYTES;
use ephor_gateway::{GatewayConfig, GatewayLimits};
use ephor_hub::HubConfig;
use ephor_wire::management::Query;
use ephor_wire::request_response::RequestId;

use crate::client::{Client, encoded};
use crate::server::{HUB, Server};

const NODE: &str = "$management";

async fn limited(limits: GatewayLimits) -> Server {
    Server::with(GatewayConfig { limits, ..GatewayConfig::default() }).await
}

async fn requests(client: &mut Client) -> LinkId {
    let (link, _) = client.attach(Attach::sender("requests", NODE)).await.unwrap();
    while client.connection().credit(link) == 0 {
        client.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
    }
    link
}

/// Sends a request, and does not wait for the answer.
async fn ask(client: &mut Client, requests: LinkId, hub: &str, reply_to: &str) {
    let mut message = Vec::new();
    Query::Hub { hub: hub.parse().unwrap() }.write(&RequestId::number(1), reply_to, None, &mut message);
    assert_eq!(client.send(requests, 0, &message).await, Outcome::Accepted);
}

#[tokio::test]
async fn a_link_on_which_no_answer_is_taken_is_detached_and_the_others_go_on() {
    let server =
        limited(GatewayLimits { time_to_read: Duration::from_millis(300), ..GatewayLimits::default() }).await;
    let mut client = Client::of(&server).await;
    let (replies, _) = client.attach(Attach::receiver("replies", NODE)).await.unwrap();
    let (requests, sender) = (requests(&mut client).await, client.sender(HUB).await);
    ask(&mut client, requests, HUB, "replies").await;
    let error = client.detached(replies).await;
    assert_eq!(error.condition, "amqp:link:detach-forced");
    assert!(error.description().contains("grant credit"), "{error}");
    assert_eq!(client.send(sender, 0, &encoded(&NewEvent::new("x"))).await, Outcome::Accepted);
    // After attaching again, with credit, it gets its answer.
    let (replies, _) = client.attach(Attach::receiver("replies", NODE)).await.unwrap();
    client.connection().grant(replies, 1);
    ask(&mut client, requests, HUB, "replies").await;
    assert_eq!(client.delivery().await.0, replies);
}

/// The number of connections that ask, and of answers for each: nearly as many as may wait.
const ASKING: usize = 48;
const ANSWERS: usize = 180;
const REPLIES: usize = 3;

#[tokio::test]
async fn responses_that_many_do_not_read_cost_the_oldest_its_connection() {
    let server =
        limited(GatewayLimits { buffered_bytes: MIN_BUFFERED_BYTES, ..GatewayLimits::default() }).await;
    // Its description takes some KiB.
    server.namespace.create_hub(HubConfig::new("wide", 1_024).unwrap()).unwrap();
    let mut asking = Vec::new();
    for _ in 0..ASKING {
        let mut client = Client::of(&server).await;
        for number in 0..REPLIES {
            let name = format!("replies-{number}");
            let target = Some(Target::to(name.clone()));
            client.attach(Attach { target, ..Attach::receiver(name, NODE) }).await.unwrap();
        }
        let requests = requests(&mut client).await;
        for number in 0..ANSWERS {
            ask(&mut client, requests, "wide", &format!("replies-{}", number % REPLIES)).await;
        }
        asking.push(client);
    }
    match asking[0].closed().await {
        Closed::ByPeer(Some(error)) => {
            assert_eq!(error.condition, "amqp:connection:forced");
            assert!(error.description().contains("unread responses"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}
