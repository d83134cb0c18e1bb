//! Tests of floods of authenticated peers that read nothing from their sockets: their output is bounded in
//! total, and other clients are served meanwhile.
#![allow(clippy::disallowed_methods, reason = "the floods need time, and nothing depends on how much")]

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor_amqp::connection::{ClientSasl, LinkId};
use ephor_amqp::frame::Protocol;
use ephor_amqp::performative::Outcome;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_gateway::config::MIN_BUFFERED_BYTES;
use ephor_gateway::{Gateway, GatewayConfig, GatewayLimits};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};
use ephor_wire::selector::Start;
use tokio::io::{AsyncWriteExt, DuplexStream, duplex};
use tokio::task::JoinSet;

use crate::client::{Client, encoded};
use crate::process_resources::{MIB, alone, forget_peak, memory, peak_memory, run, scale};
use crate::raw_peer::{self, Raw};
use crate::server::{HUB, PARTITIONS, within};

const FLOODS: usize = 300;
/// The bytes between a peer and the gateway, in each direction. The system would take some MiB of each.
const BETWEEN: usize = 4 << 10;
/// The budget, and as much again for what is set aside, for the tasks, and for what the allocator keeps. The
/// answers to all floods would be 300 MiB at least.
const MAX_MEMORY: usize = 2 * MIN_BUFFERED_BYTES + 32 * MIB;
/// Old events in the first partition, far more than the hub keeps in memory.
const OLD_EVENTS: usize = 40;

/// A gateway with the smallest budget, and its connections.
struct Small {
    gateway: Gateway,
    connections: JoinSet<()>,
    /// The bytes that all floods have written, and the floods that were closed.
    written: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Small {
    /// Without keys, so that every connection is admitted.
    async fn start() -> Self {
        let config = NamespaceConfig { recent_bytes: 1 << 20, ..NamespaceConfig::default() };
        let namespace = Arc::new(LocalNamespace::in_memory(config).unwrap());
        let hub = namespace.create_hub(HubConfig::new(HUB, PARTITIONS).unwrap()).unwrap();
        for _ in 0..OLD_EVENTS {
            hub.producer().send_to(PartitionId(0), NewEvent::new(vec![7; 100_000])).await.unwrap();
        }
        let limits = GatewayLimits { buffered_bytes: MIN_BUFFERED_BYTES, ..GatewayLimits::default() };
        let config = GatewayConfig { keys: Vec::new(), limits, ..GatewayConfig::default() };
        let gateway = Gateway::new(namespace, config).unwrap();
        Self { gateway, connections: JoinSet::new(), written: Arc::default(), closed: Arc::default() }
    }

    fn connect(&mut self, between: usize) -> DuplexStream {
        let (ours, theirs) = duplex(between);
        let gateway = self.gateway.clone();
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        self.connections.spawn(async move { gateway.serve_stream(theirs, peer).await });
        ours
    }

    async fn client(&mut self) -> Client {
        Client::over(self.connect(64 << 10), ClientSasl::Anonymous).await.unwrap()
    }

    /// A peer that asks for answers as long as it is read from, and reads none of them. It begins a session
    /// now and then, which the gateway looks at, or only asks.
    fn flood(&mut self, begins: bool) {
        let mut stream = self.connect(BETWEEN);
        let (written, closed) = (self.written.clone(), self.closed.clone());
        self.connections.spawn(async move {
            let mut said =
                [&Protocol::Amqp.header()[..], &raw_peer::open(), &raw_peer::begin(raw_peer::CHANNEL)]
                    .concat();
            for channel in raw_peer::CHANNEL + 1.. {
                said.extend(Raw::echo().repeat(100));
                if begins && channel < 4_000 {
                    said.extend(raw_peer::begin(channel));
                }
                if stream.write_all(&said).await.is_err() {
                    break;
                }
                written.fetch_add(said.len(), Ordering::SeqCst);
                said.clear();
            }
            closed.fetch_add(1, Ordering::SeqCst);
        });
    }

    /// Starts all floods, and waits until nothing moves any more while a client is served.
    async fn flooded(&mut self, begins: bool, honest: &mut Client, sender: LinkId) {
        for _ in 0..FLOODS * scale() {
            self.flood(begins);
        }
        let mut quiet = 0;
        while quiet < 10 {
            let before = self.written.load(Ordering::SeqCst);
            let sent = honest.send(sender, 0, &encoded(&NewEvent::new("x"))).await;
            assert_eq!(sent, Outcome::Accepted);
            tokio::time::sleep(Duration::from_millis(20)).await;
            quiet = if self.written.load(Ordering::SeqCst) == before { quiet + 1 } else { 0 };
        }
    }
}

#[test]
fn output_that_nobody_reads_is_bounded_for_all_connections_together() {
    let _alone = alone();
    run(async {
        let mut small = Small::start().await;
        let mut honest = small.client().await;
        let sender = honest.sender(HUB).await;
        let before = memory();
        forget_peak();
        small.flooded(false, &mut honest, sender).await;
        let used = peak_memory().saturating_sub(before);
        let closed = small.closed.load(Ordering::SeqCst);
        eprintln!("{} MiB for {FLOODS} floods, {closed} of them closed", used / MIB);
        assert!(used < MAX_MEMORY * scale(), "{} MiB", used / MIB);
        assert!(closed > 0, "nobody was closed");
    });
}

#[test]
fn a_large_event_is_taken_beside_peers_that_do_not_read() {
    let _alone = alone();
    run(async {
        let mut small = Small::start().await;
        let mut honest = small.client().await;
        let sender = honest.sender(HUB).await;
        small.flooded(true, &mut honest, sender).await;
        for _ in 0..3 {
            let large = encoded(&NewEvent::new(vec![7; 1_000_000]));
            assert_eq!(honest.send(sender, 0, &large).await, Outcome::Accepted);
        }
    });
}

#[test]
fn old_events_are_read_beside_peers_that_do_not_read() {
    let _alone = alone();
    run(async {
        let mut small = Small::start().await;
        let mut honest = small.client().await;
        let sender = honest.sender(&format!("{HUB}/Partitions/1")).await;
        small.flooded(true, &mut honest, sender).await;
        let mut reader = within(small.client()).await;
        let link = reader.receiver(0, Start::Earliest).await;
        reader.connection().grant(link, OLD_EVENTS as u32);
        for _ in 0..OLD_EVENTS {
            assert!(reader.delivery().await.1.len() > 100_000);
        }
    });
}
