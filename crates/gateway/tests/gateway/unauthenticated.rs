//! Tests of the limits of unauthenticated connections, also after their last token expired, and of the rate
//! limit of log lines.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::connection::{Closed, Event, LinkId, Sent};
use ephor_amqp::performative::Attach;
use ephor_core::time::Clock;
use ephor_gateway::{GatewayConfig, GatewayLimits};
use ephor_runtime::environment::TokioEnvironment;
use ephor_testkit::CapturedLog;
use ephor_wire::management::Query;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;

use crate::client::{Client, rejection, token};
use crate::server::{HUB, JumpingClock, Server, within};

const HOUR: Duration = Duration::from_secs(3600);
const CONDITION: &str = "amqp:resource-limit-exceeded";

fn error(closed: Closed) -> (String, String) {
    match closed {
        Closed::ByPeer(Some(error)) => (error.condition.to_string(), error.description().to_owned()),
        other => panic!("{other:?}"),
    }
}

/// A link for requests to `$cbs`, with credit.
async fn requests(client: &mut Client) -> LinkId {
    let (link, attach) = client.attach(Attach::sender("requests", "$cbs")).await.unwrap();
    assert_eq!(attach.max_message_size, Some(64 << 10));
    while client.connection().credit(link) == 0 {
        client.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
    }
    link
}

/// Begins sessions, and waits until the server has answered.
async fn begin(client: &mut Client, sessions: usize) {
    for _ in 0..sessions {
        let begun = client.connection().begin().unwrap();
        let is_begun = |event: &Event| matches!(event, Event::Begun { session, .. } if *session == begun);
        client.wait(|event| is_begun(event).then_some(())).await;
    }
}

#[tokio::test]
async fn an_unauthenticated_peer_begins_a_session_for_each_partition_before_its_token() {
    let server = Server::start().await;
    let mut client = Client::unauthenticated(server.address).await;
    // As a client that reads 200 partitions does; the engine of this one allows 255.
    begin(&mut client, 200).await;
    assert_eq!(client.put_development_token().await.0, 202);
    client.sender(HUB).await;
}

#[tokio::test]
async fn the_oldest_of_unauthenticated_peers_with_many_sessions_makes_room() {
    let limits = GatewayLimits { unauthenticated: 4, total_sessions: 240, ..GatewayLimits::default() };
    let server = Server::with(GatewayConfig { limits, ..GatewayConfig::default() }).await;
    // Together they may have 120, and so 30 each.
    let mut small = Client::unauthenticated(server.address).await;
    let (mut oldest, mut other) =
        (Client::unauthenticated(server.address).await, Client::unauthenticated(server.address).await);
    begin(&mut small, 20).await;
    begin(&mut oldest, 48).await;
    begin(&mut other, 48).await;
    // Each has one more from the beginning.
    begin(&mut other, 2).await;
    assert_eq!(error(oldest.closed().await).0, CONDITION);
    for client in [&mut small, &mut other] {
        assert_eq!(client.put_development_token().await.0, 202);
        client.sender(HUB).await;
    }
}

#[tokio::test]
async fn a_peer_that_may_not_do_anything_is_left_alone_while_it_has_a_link() {
    let limits = GatewayLimits { time_without_links: Duration::from_millis(20), ..GatewayLimits::default() };
    let server = Server::with(GatewayConfig { limits, ..GatewayConfig::default() }).await;
    let mut client = Client::unauthenticated(server.address).await;
    let (_, _) = client.attach(Attach::receiver("replies", "$cbs")).await.unwrap();
    let bad = token("RootManageSharedAccessKey", "wrong", HOUR);
    let until = TokioEnvironment.now() + Duration::from_millis(200);
    while TokioEnvironment.now() < until {
        assert_eq!(client.put_token("sb://localhost/", &bad).await.0, 401);
    }
}

#[tokio::test]
async fn a_token_with_each_request_to_management_authenticates() {
    let limits = GatewayLimits { unauthenticated: 1, ..GatewayLimits::default() };
    let server = Server::with(GatewayConfig { limits, ..GatewayConfig::default() }).await;
    let mut client = Client::unauthenticated(server.address).await;
    let query = Query::Hub { hub: HUB.parse().unwrap() };
    let good = token("RootManageSharedAccessKey", "SAS_KEY_VALUE", HOUR);
    let asked = client.ask("$management", |id, into| query.write(id, "replies", Some(&good), into)).await;
    assert_eq!(asked.0, 200);
    // Another one takes the only place of unauthenticated connections.
    let mut other = Client::unauthenticated(server.address).await;
    assert_eq!(other.put_token("sb://localhost/", "nonsense").await.0, 401);
    let asked = client.ask("$management", |id, into| query.write(id, "replies", Some(&good), into)).await;
    assert_eq!(asked.0, 200, "it was not evicted");
    assert!(client.attach(Attach::sender("sender", HUB)).await.is_err(), "it may do nothing else");
}

#[tokio::test]
async fn an_unauthenticated_peer_leaves_little_unfinished() {
    let server = Server::start().await;
    let mut unauthenticated = Client::unauthenticated(server.address).await;
    // A request that is too large is rejected, and nothing of it is kept.
    let link = requests(&mut unauthenticated).await;
    let (condition, text) = rejection(unauthenticated.send(link, 0, &[0; 200_000]).await);
    assert_eq!(condition, "amqp:link:message-size-exceeded");
    assert!(text.contains("(65536 bytes)"), "{text}");
    // Two incomplete requests share the same 64 KiB: the link that exceeds them is detached.
    let mut raw = crate::raw_peer::Raw::opened(server.address).await;
    for handle in 0..2 {
        raw.attach(handle, Attach::sender(format!("requests-{handle}"), "$cbs")).await;
    }
    raw.unfinished(0, &[0; 40_000]).await;
    raw.unfinished(1, &[0; 40_000]).await;
    let said = raw.read_until("Detach").await;
    assert!(said.contains(CONDITION) && said.contains("more than 65536 bytes of deliveries"), "{said}");
}

#[tokio::test]
async fn an_unauthenticated_peer_that_reads_no_answers_is_not_read_from() {
    let server = Server::start().await;
    let unread = crate::raw_peer::Raw::opened(server.address).await;
    // Each flow asks for an answer; together they are far more than the system can buffer.
    let flood = crate::raw_peer::Raw::echo().repeat(10_000);
    let mut taken = 0;
    let stuck = within(async {
        let mut blocked = false;
        loop {
            // A frame that was written in part goes on where it ended.
            match unread.stream.try_write(&flood[taken % flood.len()..]) {
                Ok(count) => (taken, blocked) = (taken + count, false),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock && blocked => return true,
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {
                    // Both ends have stopped if nothing moves while a whole authenticated connection is
                    // opened.
                    Client::of(&server).await;
                    blocked = true;
                }
                Err(_) => return false,
            }
            if taken > 1 << 30 {
                return false;
            }
        }
    })
    .await;
    assert!(stuck, "{taken} bytes were taken");
}

#[tokio::test]
async fn a_peer_whose_last_token_expired_is_unauthenticated_again() {
    let clock = Arc::new(JumpingClock::default());
    let limits = GatewayLimits { connections: 1, unauthenticated: 1, ..GatewayLimits::default() };
    let config = GatewayConfig { limits, ..GatewayConfig::default() };
    let server = Server::on(config, clock.clone()).await;
    let mut first = Client::of(&server).await;
    let sender = first.sender(HUB).await;
    clock.forward(2 * HOUR);
    assert_eq!(first.detached(sender).await.condition, "amqp:unauthorized-access");
    // Its place is free, so it makes room for the next.
    let mut second = Client::unauthenticated(server.address).await;
    let long = token("RootManageSharedAccessKey", "SAS_KEY_VALUE", 4 * HOUR);
    assert_eq!(second.put_token("sb://localhost/", &long).await.0, 202);
    second.sender(HUB).await;
    let (condition, text) = error(first.closed().await);
    assert_eq!(condition, "amqp:connection:forced");
    assert!(text.contains("Reconnect with a new token"), "{text}");
}

/// A client with more sessions than unauthenticated peers may have together, and a sender whose token expired.
async fn busy_client_whose_token_expired(time_without_links: Duration) -> (Server, Client) {
    let clock = Arc::new(JumpingClock::default());
    let limits = GatewayLimits {
        unauthenticated: 4,
        total_sessions: 240,
        time_without_links,
        ..GatewayLimits::default()
    };
    let config = GatewayConfig { limits, ..GatewayConfig::default() };
    let server = Server::on(config, clock.clone()).await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    begin(&mut client, 130).await;
    clock.forward(2 * HOUR);
    client.detached(sender).await;
    (server, client)
}

#[tokio::test]
async fn a_busy_client_whose_token_expired_has_time_to_put_a_new_one() {
    let (_server, mut client) = busy_client_whose_token_expired(HOUR).await;
    let long = token("RootManageSharedAccessKey", "SAS_KEY_VALUE", 4 * HOUR);
    assert_eq!(client.put_token("sb://localhost/", &long).await.0, 202);
    client.sender(HUB).await;
}

#[tokio::test]
async fn a_busy_client_that_puts_no_new_token_in_time_is_asked_to_reconnect() {
    let (_server, mut client) = busy_client_whose_token_expired(Duration::from_millis(20)).await;
    assert_eq!(error(client.closed().await).0, "amqp:connection:forced");
}

#[tokio::test]
async fn a_token_that_is_put_again_authenticates_again() {
    let clock = Arc::new(JumpingClock::default());
    let server = Server::on(GatewayConfig::default(), clock.clone()).await;
    let mut client = Client::of(&server).await;
    let sender = client.sender(HUB).await;
    clock.forward(2 * HOUR);
    client.detached(sender).await;
    let long = token("RootManageSharedAccessKey", "SAS_KEY_VALUE", 4 * HOUR);
    assert_eq!(client.put_token("sb://localhost/", &long).await.0, 202);
    for _ in 0..20 {
        client.connection().begin().unwrap();
    }
    client.sender(HUB).await;
}

#[tokio::test]
async fn a_peer_of_another_protocol_gets_the_right_header_and_the_end() {
    let server = Server::start().await;
    for said in
        [&b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"[..], b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03", b"\0"]
    {
        let mut unauthenticated = TcpStream::connect(server.address).await.unwrap();
        unauthenticated.write_all(said).await.unwrap();
        let mut answer = Vec::new();
        within(unauthenticated.read_to_end(&mut answer)).await.unwrap();
        assert_eq!(answer, b"AMQP\x00\x01\x00\x00", "{said:?}");
    }
}

#[tokio::test]
async fn refusals_without_end_fill_no_log() {
    let log = CapturedLog::of_this_thread();
    let server = Server::start().await;
    let mut unauthenticated = Client::unauthenticated(server.address).await;
    let link = requests(&mut unauthenticated).await;
    let bad = token("RootManageSharedAccessKey", "canary", HOUR);
    let put = ephor_wire::cbs::PutToken {
        audience: "sb://localhost/",
        kind: ephor_wire::cbs::TokenKind::Sas,
        token: &bad,
        expires_at: None,
    };
    let mut message = Vec::new();
    put.write(&ephor_wire::request_response::RequestId::number(1), "replies", &mut message);
    for _ in 0..500 {
        while !matches!(unauthenticated.connection().send(link, 0, true, &[&message]), Sent::Sent(_)) {
            unauthenticated
                .wait(|event| matches!(event, Event::Credit { .. } | Event::Room).then_some(()))
                .await;
        }
        unauthenticated.attach(Attach::sender("sender", HUB)).await.unwrap_err();
    }
    let log = log.take().join("\n");
    assert!(log.contains("request refused") && log.contains("link refused"), "{log}");
    let whiles = 4; // Of ten seconds each, which this cannot take.
    assert!(log.lines().count() <= whiles * 2 * 5, "{log}");
    assert!(!log.contains("canary") && !log.contains(&bad), "{log}");
}

#[tokio::test]
async fn answers_that_an_unauthenticated_peer_does_not_take_are_few() {
    let server = Server::start().await;
    let mut unauthenticated = Client::unauthenticated(server.address).await;
    let mut replies = Vec::new();
    for number in 0..10 {
        replies.push(
            unauthenticated.attach(Attach::receiver(format!("replies-{number}"), "$cbs")).await.unwrap().0,
        );
    }
    let link = requests(&mut unauthenticated).await;
    // Refused requests are answered as well, with a long text; nobody takes the answers.
    let refused = b"\x00\x53\x77\xa1\x04junk";
    let mut taken = 0;
    let error = loop {
        while let Sent::Sent(_) = unauthenticated.connection().send(link, 0, true, &[refused]) {
            taken += 1;
        }
        let event = |event: &Event| match event {
            Event::Detached { link, error } if replies.contains(link) => Some(error.clone()),
            Event::Credit { .. } => Some(None),
            _ => None,
        };
        if let Some(error) = unauthenticated.wait(event).await {
            break error;
        }
        assert!(taken < 1_000, "all of them wait");
    };
    assert_eq!(error.condition.to_string(), CONDITION);
    assert!(error.description().contains("wait for credit on this link"), "{error}");
}
