//! Tests of receivers that grant credit for events and never read them.

use std::time::Duration;

use ephor_amqp::performative::Outcome;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_gateway::{GatewayConfig, GatewayLimits};
use ephor_hub::{LocalNamespace, NamespaceConfig, Target};
use ephor_runtime::environment::TokioEnvironment;
use ephor_wire::selector::Start;

use crate::client::{Client, encoded};
use crate::process_resources::{MIB, alone, memory, run};
use crate::server::{HUB, Server, within};

const EVENTS: usize = 640;
const EVENT_BYTES: usize = 100 << 10;
const RECEIVERS: usize = 4;
/// The waiting output, the events that were read ahead, and an event being encoded: about 2 MiB for both ends
/// of each. As much again is what the allocator keeps of clients that have read everything meanwhile. All
/// that they asked for would be 256 MiB.
const MAX_MEMORY: usize = 24 * MIB;

/// A hub on disk with 64 MiB of events in its first partition.
async fn filled(folder: &tempfile::TempDir, limits: GatewayLimits) -> Server {
    let namespace = LocalNamespace::open(folder.path(), NamespaceConfig::default()).unwrap();
    let config = GatewayConfig { limits, ..GatewayConfig::default() };
    let server = Server::over(namespace, config, std::sync::Arc::new(TokioEnvironment)).await;
    let producer = server.hub().producer();
    for _ in 0..EVENTS / 8 {
        let events = (0..8).map(|_| NewEvent::new(vec![7; EVENT_BYTES]));
        producer.send_batch(Target::Partition(PartitionId(0)), events).await.unwrap();
    }
    server
}

/// A receiver that has got one event of all that it asked for, and then stops reading.
async fn receiver_that_does_not_read(server: &Server) -> Client {
    let mut client = Client::of(server).await;
    let link = client.receiver(0, Start::Earliest).await;
    client.connection().grant(link, u32::MAX);
    client.delivery().await;
    client
}

/// Reads everything, once.
async fn read_all(server: &Server) {
    let mut reader = Client::of(server).await;
    let link = reader.receiver(0, Start::Earliest).await;
    reader.connection().grant(link, u32::MAX);
    for _ in 0..EVENTS {
        assert!(reader.delivery().await.1.len() > EVENT_BYTES);
    }
}

#[test]
fn receivers_that_never_read_cost_little_and_disturb_nobody() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let server = filled(&folder, GatewayLimits::default()).await;
        read_all(&server).await;
        let before = memory();
        let mut held = Vec::new();
        for _ in 0..RECEIVERS {
            held.push(receiver_that_does_not_read(&server).await);
        }
        // By the time that another client has read all of it, their output is full.
        read_all(&server).await;
        let mut honest = Client::of(&server).await;
        let sender = honest.sender(HUB).await;
        assert_eq!(honest.send(sender, 0, &encoded(&NewEvent::new("x"))).await, Outcome::Accepted);
        let after = memory();
        eprintln!("{} KiB for {RECEIVERS} receivers that do not read", after.saturating_sub(before) >> 10);
        assert!(after.saturating_sub(before) < MAX_MEMORY, "{before} before, {after} after");
        // They are still connected, and the client that has read is gone.
        within(async {
            while server.hub().receivers().len() != RECEIVERS {
                tokio::task::yield_now().await;
            }
        })
        .await;
    });
}

#[test]
fn receivers_that_never_read_are_closed_after_a_while() {
    let _alone = alone();
    let folder = tempfile::tempdir().unwrap();
    run(async {
        let limits = GatewayLimits { time_to_read: Duration::from_millis(200), ..GatewayLimits::default() };
        let server = filled(&folder, limits).await;
        let _held = receiver_that_does_not_read(&server).await;
        within(async {
            while !server.hub().receivers().is_empty() {
                tokio::task::yield_now().await;
            }
        })
        .await;
        read_all(&server).await;
    });
}
