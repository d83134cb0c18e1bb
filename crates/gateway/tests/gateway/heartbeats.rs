//! Tests that heartbeats are sent while events wait for a slow disk.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::connection::{ClientSasl, Config, Event, Sent};
use ephor_amqp::performative::{Outcome, Secret};
use ephor_core::event::NewEvent;
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};
use ephor_wire::connection_string::{DEVELOPMENT_KEY, DEVELOPMENT_KEY_NAME};
use tokio::task::JoinSet;

use crate::blocking_files::Gated;
use crate::client::{Client, encoded};
use crate::server::HUB;

#[tokio::test]
#[expect(clippy::disallowed_methods, reason = "time is the runtime's")]
async fn a_peer_whose_events_wait_for_the_disk_hears_heartbeats() {
    let (files, gates) = Gated::new();
    let clock = Arc::new(ephor_runtime::environment::SystemClock);
    let namespace = Arc::new(LocalNamespace::on(files, NamespaceConfig::default(), clock).unwrap());
    namespace.create_hub(HubConfig::new(HUB, 1).unwrap()).unwrap();
    let mut config = GatewayConfig::default();
    // One event already reaches the limit of bytes in flight.
    config.limits.bytes_in_flight = 1;
    let gateway = Gateway::new(namespace, config).unwrap();
    let (ours, theirs) = tokio::io::duplex(64 << 10);
    let mut task = JoinSet::new();
    let peer: SocketAddr = (Ipv4Addr::LOCALHOST, 1).into();
    task.spawn(async move { Box::pin(gateway.serve_stream(theirs, peer)).await });
    let sasl = ClientSasl::Plain {
        user: DEVELOPMENT_KEY_NAME.to_owned(),
        password: Secret::new(DEVELOPMENT_KEY.as_bytes()),
    };
    // It closes the connection if it has received nothing for a second.
    let impatient = Config { idle_time_out: Some(Duration::from_millis(500)), ..Config::new("test") };
    let mut client = Client::with(impatient, ours, sasl).await.unwrap();
    let link = client.sender(HUB).await;
    gates.syncs.set_shut(true);
    let message = encoded(&NewEvent::new("x"));
    assert!(matches!(client.connection().send(link, 0, false, &[&message]), Sent::Sent(_)));
    let closed = client.wait(|event| match event {
        Event::Closed(closed) => Some(closed.clone()),
        _ => None,
    });
    let closed = tokio::time::timeout(Duration::from_millis(2_500), closed).await;
    // Before anything can fail: the hub waits for its disk when it is dropped.
    gates.syncs.set_shut(false);
    assert!(closed.is_err(), "{closed:?}");
    assert_eq!(client.outcome().await, (1, Some(Outcome::Accepted)));
}
