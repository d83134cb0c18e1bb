//! Tests of the limits of all connections together: beyond them only the new link, session or token is
//! refused. Limits so small that unauthenticated connections could use them up are invalid.

use ephor_amqp::connection::Event;
use ephor_amqp::performative::{Attach, Outcome};
use ephor_core::event::NewEvent;
use ephor_gateway::{GatewayConfig, GatewayLimits};

use crate::client::{Client, encoded};
use crate::server::{HUB, Server};

const CONDITION: &str = "amqp:resource-limit-exceeded";

async fn limited(change: impl FnOnce(&mut GatewayLimits)) -> Server {
    let mut limits = GatewayLimits { unauthenticated: 2, ..GatewayLimits::default() };
    change(&mut limits);
    Server::with(GatewayConfig { limits, ..GatewayConfig::default() }).await
}

async fn sends(client: &mut Client, link: ephor_amqp::connection::LinkId) {
    assert_eq!(client.send(link, 0, &encoded(&NewEvent::new("x"))).await, Outcome::Accepted);
}

#[tokio::test]
async fn links_of_all_connections_have_one_limit() {
    const LINKS: usize = 128;
    let server = limited(|limits| limits.total_links = LINKS).await;
    let (mut first, mut second) = (Client::of(&server).await, Client::of(&server).await);
    let (sender, other) = (first.sender(HUB).await, second.sender(HUB).await);
    let mut links = Vec::new();
    for number in 2..LINKS {
        links.push(first.attach(Attach::sender(format!("sender-{number}"), HUB)).await.unwrap().0);
    }
    for client in [&mut first, &mut second] {
        // It may try as often as it likes, also with links that are not for a hub.
        for node in [HUB, "$management", HUB] {
            let refused = client.attach(Attach::sender("one more", node)).await.unwrap_err();
            assert_eq!(refused.condition, CONDITION);
            assert!(refused.description().contains("have the 128 links"), "{refused}");
        }
    }
    // Both keep their links and sessions.
    sends(&mut first, sender).await;
    sends(&mut second, other).await;
    // A detached link makes room for the next that asks.
    first.connection().detach(links[0], None);
    first.wait(|event| matches!(event, Event::Detached { .. }).then_some(())).await;
    let (link, _) = second.attach(Attach::sender("one more", HUB)).await.unwrap();
    second.wait(|event| matches!(event, Event::Credit { .. }).then_some(())).await;
    sends(&mut second, link).await;
    assert!(first.attach(Attach::sender("one more", HUB)).await.is_err());
    // So does one whose connection is lost.
    drop(first);
    let mut third = loop {
        // The server has to notice first that the socket is closed.
        if second.attach(Attach::sender("free again", HUB)).await.is_ok() {
            break Client::of(&server).await;
        }
    };
    third.sender(HUB).await;
}

#[tokio::test]
async fn sessions_of_all_connections_have_one_limit() {
    const SESSIONS: usize = 32;
    let server = limited(|limits| limits.total_sessions = SESSIONS).await;
    let (mut first, mut second) = (Client::of(&server).await, Client::of(&server).await);
    let (sender, other) = (first.sender(HUB).await, second.sender(HUB).await);
    let mut sessions = Vec::new();
    for _ in 2..SESSIONS {
        sessions.push(first.connection().begin().unwrap());
        first.wait(|event| matches!(event, Event::Begun { .. }).then_some(())).await;
    }
    for client in [&mut first, &mut second] {
        for _ in 0..3 {
            let one_more = client.connection().begin().unwrap();
            // An attach that does not wait for the answer to `begin` is ignored.
            client.connection().attach(one_more, Attach::sender("early", HUB)).unwrap();
            let ended = |event: &Event| match event {
                Event::Ended { session, error } if *session == one_more => error.clone(),
                _ => None,
            };
            let refused = client.wait(ended).await;
            assert_eq!(refused.condition, CONDITION);
            assert!(refused.description().contains("have the 32 sessions"), "{refused}");
        }
    }
    sends(&mut first, sender).await;
    sends(&mut second, other).await;
    first.connection().end(sessions[0], None);
    first.wait(|event| matches!(event, Event::Ended { .. }).then_some(())).await;
    second.connection().begin().unwrap();
    second.wait(|event| matches!(event, Event::Begun { .. }).then_some(())).await;
    sends(&mut second, other).await;
}

#[tokio::test]
async fn tokens_of_all_connections_have_one_limit() {
    let server = limited(|limits| limits.total_tokens = 1).await;
    let mut first = Client::of(&server).await;
    let sender = first.sender(HUB).await;
    let mut second = Client::unauthenticated(server.address).await;
    let (status, text) = second.put_development_token().await;
    assert!(status >= 400 && text.contains("the 1 tokens that the server allows"), "{status} {text}");
    // The first client renews its own token, and sends.
    assert_eq!(first.put_development_token().await.0, 202);
    sends(&mut first, sender).await;
    drop(first);
    while second.put_development_token().await.0 != 202 {}
    second.sender(HUB).await;
}

#[test]
fn limits_that_a_flood_of_unauthenticated_connections_could_use_up_are_refused() {
    let change = |change: fn(&mut GatewayLimits)| {
        let mut config = GatewayConfig::default();
        change(&mut config.limits);
        config.validate().map_err(|error| error.to_string())
    };
    let refused = change(|limits| limits.total_links = 16_383).unwrap_err();
    assert!(refused.starts_with("total_links (16383) must be at least 16384"), "{refused}");
    let refused = change(|limits| limits.total_sessions = 511).unwrap_err();
    assert!(refused.starts_with("total_sessions (511) must be at least 512"), "{refused}");
    assert!(change(|limits| limits.unauthenticated_bytes = 0).is_err());
    assert!(change(|limits| limits.total_tokens = 0).is_err());
    assert_eq!(change(|limits| (limits.total_links, limits.unauthenticated) = (64, 1)), Ok(()));
}
