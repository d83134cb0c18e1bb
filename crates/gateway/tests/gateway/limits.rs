//! Tests of the connection limits, of the limits of single connections, and of graceful shutdown: an
//! offender loses its link or its connection, and others are not affected.

use std::time::Duration;

use ephor_amqp::connection::{ClientSasl, Closed};
use ephor_amqp::performative::{Attach, Outcome};
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_gateway::{GatewayConfig, GatewayLimits};
use ephor_wire::selector::Start;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Client, encoded};
use crate::server::{HUB, Server, within};

async fn limited(limits: GatewayLimits) -> Server {
    Server::with(GatewayConfig { limits, ..GatewayConfig::default() }).await
}

#[tokio::test]
async fn a_flood_of_unauthenticated_connections_evicts_unauthenticated_ones_only() {
    let server = limited(GatewayLimits { unauthenticated: 8, ..GatewayLimits::default() }).await;
    let mut authenticated = Client::of(&server).await;
    let sender = authenticated.sender(HUB).await;
    let mut flood = Vec::new();
    for _ in 0..100 {
        flood.push(TcpStream::connect(server.address).await.unwrap());
    }
    // The first of them were evicted, and a regular client is admitted all the same.
    let mut late = Client::of(&server).await;
    late.sender(HUB).await;
    within(async { assert_eq!(flood[0].read(&mut [0; 1]).await.unwrap_or(0), 0) }).await;
    assert_eq!(authenticated.send(sender, 0, &encoded(&NewEvent::new("x"))).await, Outcome::Accepted);
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_closed_with_the_reason() {
    let server = limited(GatewayLimits { connections: 1, ..GatewayLimits::default() }).await;
    let mut first = Client::of(&server).await;
    let mut second = Client::unauthenticated(server.address).await;
    let (asked, closed) = (Attach::receiver("replies", "$cbs"), Attach::sender("requests", "$cbs"));
    let (replies, _) = second.attach(asked).await.unwrap();
    second.connection().grant(replies, 1);
    let (requests, _) = second.attach(closed).await.unwrap();
    while second.connection().credit(requests) == 0 {
        second
            .wait(|event| matches!(event, ephor_amqp::connection::Event::Credit { .. }).then_some(()))
            .await;
    }
    let token = crate::client::token("RootManageSharedAccessKey", "SAS_KEY_VALUE", Duration::from_secs(60));
    let put = ephor_wire::cbs::PutToken {
        audience: "sb://localhost/",
        kind: ephor_wire::cbs::TokenKind::Sas,
        token: &token,
        expires_at: None,
    };
    let mut message = Vec::new();
    put.write(&ephor_wire::request_response::RequestId::number(1), "replies", &mut message);
    let _ = second.connection().send(requests, 0, true, &[&message]);
    match second.closed().await {
        Closed::ByPeer(Some(error)) => assert_eq!(error.condition, "amqp:resource-limit-exceeded"),
        other => panic!("{other:?}"),
    }
    first.sender(HUB).await;
}

#[tokio::test]
async fn a_connection_that_never_attaches_a_link_is_closed() {
    let limits = GatewayLimits { time_without_links: Duration::from_millis(50), ..GatewayLimits::default() };
    let server = limited(limits).await;
    let mut client = Client::unauthenticated(server.address).await;
    match client.closed().await {
        Closed::ByPeer(Some(error)) => {
            assert_eq!(error.condition, "amqp:connection:forced");
            assert!(error.description().contains("more than the allowed 50 milliseconds"), "{error}");
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_peer_that_never_opens_is_closed() {
    let limits = GatewayLimits { time_to_open: Duration::from_millis(50), ..GatewayLimits::default() };
    let server = limited(limits).await;
    let mut silent = TcpStream::connect(server.address).await.unwrap();
    within(async { assert_eq!(silent.read(&mut [0; 64]).await.unwrap_or(0), 0) }).await;
}

#[tokio::test]
async fn nonsense_closes_its_own_connection_only() {
    let server = Server::start().await;
    let mut authenticated = Client::of(&server).await;
    for nonsense in [&b"GET / HTTP/1.1\r\n\r\n"[..], b"AMQP\x00\x01\x00\x00\xff\xff\xff\xff\x02\x00\x00\x00"]
    {
        let mut unauthenticated = TcpStream::connect(server.address).await.unwrap();
        unauthenticated.write_all(nonsense).await.unwrap();
        // The server sends the header that would have been right, or a close with the reason.
        within(async { assert_ne!(unauthenticated.read(&mut [0; 64]).await.unwrap(), 0) }).await;
    }
    authenticated.sender(HUB).await;
}

#[tokio::test]
async fn a_receiver_that_grants_credit_and_never_reads_does_not_disturb_the_others() {
    let server = Server::start().await;
    let producer = server.hub().producer();
    for _ in 0..200 {
        producer.send_to(PartitionId(0), NewEvent::new(vec![0; 100_000])).await.unwrap();
    }
    let mut unread = Client::of(&server).await;
    let link = unread.receiver(0, Start::Earliest).await;
    unread.connection().grant(link, u32::MAX);
    // The grant goes out, and then nobody reads.
    let (_, first) = unread.delivery().await;
    assert!(first.len() > 100_000);
    let mut other = Client::of(&server).await;
    let link = other.receiver(0, Start::Earliest).await;
    other.connection().grant(link, 200);
    for _ in 0..200 {
        other.delivery().await;
    }
}

#[tokio::test]
async fn a_gateway_that_stops_answers_what_it_has_taken_and_says_why() {
    let mut server = Server::start().await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    assert_eq!(client.send(sender, 0, &encoded(&NewEvent::new("x"))).await, Outcome::Accepted);
    server.stop();
    match client.closed().await {
        Closed::ByPeer(Some(error)) => assert_eq!(error.condition, "amqp:connection:forced"),
        other => panic!("{other:?}"),
    }
    // The client's `close` is still to be written.
    drop(client);
    let address = server.address;
    server.stopped().await;
    let late = TcpStream::connect(address).await;
    if let Ok(stream) = late {
        assert!(Client::over(stream, ClientSasl::Anonymous).await.is_err());
    }
}

#[tokio::test]
async fn an_unauthenticated_peer_has_few_links_and_nobody_a_long_name() {
    let server = limited(GatewayLimits::default()).await;
    let mut unauthenticated = Client::unauthenticated(server.address).await;
    for number in 0..16 {
        unauthenticated.attach(Attach::sender(format!("requests-{number}"), "$cbs")).await.unwrap();
    }
    let refused = unauthenticated.attach(Attach::sender("one more", "$cbs")).await.unwrap_err();
    assert_eq!(refused.condition, "amqp:resource-limit-exceeded");

    let mut authenticated = Client::of(&server).await;
    for number in 0..30 {
        authenticated.attach(Attach::sender(format!("sender-{number}"), HUB)).await.unwrap();
    }
    authenticated.attach(Attach::sender("n".repeat(2_048), HUB)).await.unwrap();
    let refused = authenticated.attach(Attach::sender("n".repeat(2_049), HUB)).await.unwrap_err();
    assert_eq!(refused.condition, "amqp:invalid-field");
}

#[tokio::test]
async fn a_delivery_that_does_not_end_costs_its_link() {
    let limits = GatewayLimits { time_to_finish: Duration::from_millis(100), ..GatewayLimits::default() };
    let config = GatewayConfig { keys: Vec::new(), limits, ..GatewayConfig::default() };
    let server = Server::with(config).await;
    let mut sender = crate::raw_peer::Raw::opened(server.address).await;
    for handle in 0..2 {
        sender.attach(handle, Attach::sender(format!("sender-{handle}"), HUB)).await;
    }
    sender.unfinished(0, b"beginning").await;
    let said = sender.read_until("Detach").await;
    assert!(said.contains("amqp:link:detach-forced") && said.contains("is incomplete"), "{said}");
    // The other link goes on.
    let whole = encoded(&NewEvent::new("x"));
    sender.write(&crate::raw_peer::transfer(crate::raw_peer::CHANNEL, 1, 1, false, &whole)).await;
    sender.read_until("Disposition").await;
}
