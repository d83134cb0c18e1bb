//! Tests of senders that begin deliveries on many connections and never end them.

use ephor_amqp::connection::ClientSasl;
use ephor_amqp::performative::{Attach, Outcome};
use ephor_core::event::NewEvent;
use ephor_gateway::config::MIN_BUFFERED_BYTES;
use ephor_gateway::{GatewayConfig, GatewayLimits};
use tokio::net::TcpStream;

use crate::client::{Client, encoded};
use crate::process_resources::{MIB, alone, forget_peak, memory, peak_memory, run, scale};
use crate::raw_peer::Raw;
use crate::server::{HUB, Server};

/// The number of connections, and of links of each; each link gets as much as it takes.
const PEERS: usize = 20;
const LINKS: u8 = 8;
const PARTS: usize = 16;
const PART_BYTES: usize = 60_000;
/// The budget of all connections, and more than as much again for both ends of what is in flight, and for
/// what the allocator keeps of closed connections. All that they send is 146 MiB.
const MAX_MEMORY: usize = 2 * MIN_BUFFERED_BYTES + 16 * MIB;

/// A peer that has begun a delivery on each of its links.
async fn peer_with_incomplete_messages(server: &Server) -> Raw {
    let mut raw = Raw::opened(server.address).await;
    for handle in 0..LINKS {
        raw.attach(handle.into(), Attach::sender(format!("sender-{handle}"), HUB)).await;
    }
    for _ in 0..PARTS {
        for handle in 0..LINKS {
            raw.unfinished(handle, &[0; PART_BYTES]).await;
        }
    }
    raw
}

#[test]
fn senders_that_never_end_what_they_begin_share_one_bound_and_disturb_nobody() {
    let _alone = alone();
    run(async {
        let limits = GatewayLimits { buffered_bytes: MIN_BUFFERED_BYTES, ..GatewayLimits::default() };
        // Without keys, so that every connection may send.
        let server =
            Server::with(GatewayConfig { keys: Vec::new(), limits, ..GatewayConfig::default() }).await;
        let stream = TcpStream::connect(server.address).await.unwrap();
        let mut honest = Client::over(stream, ClientSasl::Anonymous).await.unwrap();
        let sender = honest.sender(HUB).await;
        let large = encoded(&NewEvent::new(vec![7; 600_000]));
        assert_eq!(honest.send(sender, 0, &large).await, Outcome::Accepted);
        let before = memory();
        forget_peak();
        let mut peers = Vec::new();
        for number in 0..PEERS * scale() {
            peers.push(peer_with_incomplete_messages(&server).await);
            // Large events of a regular client are accepted as well, in several frames. Few of them, because
            // this hub keeps them in memory.
            let event = if [5, 15].contains(&number) { large.clone() } else { encoded(&NewEvent::new("x")) };
            assert_eq!(honest.send(sender, 0, &event).await, Outcome::Accepted);
        }
        let used = peak_memory().saturating_sub(before);
        eprintln!("{} MiB for {} peers", used / MIB, peers.len());
        assert!(used < MAX_MEMORY, "{} MiB", used / MIB);
        // The first was told why it was closed.
        let close = peers[0].read_until("Close").await;
        assert!(close.contains("amqp:connection:forced") && close.contains("send it again"), "{close}");
    });
}
