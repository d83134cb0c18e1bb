//! Tests that large events in one direction do not block the other direction of a connection, through small
//! socket buffers, plain and over TLS.
//!
//! The long form (`./check duplex SECONDS`, by EPHOR_DUPLEX_SECONDS) prints for each transport how much goes through in
//! each direction, alone for a sixth of the time and then both at once for all of it, with the longest stall. It fails
//! if a stall is longer than a second and than that of either direction alone. The short form fails only if a direction
//! stands still as two ends do that wait for each other.

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::{EventHub, EventHubOptions};
use ephor_gateway::GatewayConfig;
use ephor_hub::{HubConfig, Retention};
use futures_util::stream::{FuturesUnordered, StreamExt};
use tokio::net::TcpSocket;
use tokio::task::JoinHandle;

use crate::common::{TestHub, quick, request, within};

const MIB: usize = 1 << 20;
/// Larger than what two ends and the way between them hold.
const EVENT: usize = 6 * MIB;
/// The bytes that each socket on the way holds.
const SOCKET: u32 = 64 << 10;
/// Events that wait to be received.
const AHEAD: usize = 4;
const IN_FLIGHT: usize = 3;
const UP: PartitionId = PartitionId(0);
const DOWN: PartitionId = PartitionId(1);

/// Two ends that wait for each other go on when their connection is given up, after a minute. Machines that are only slow
/// are far from this.
const STALL_OF_A_DEADLOCK: Duration = Duration::from_secs(10);

/// The length of a part: a number of events each way in the short form, a time in the long one.
enum Length {
    Events(usize),
    Time(Duration),
}

/// The events that went in one direction.
#[derive(Clone, Copy, Debug)]
struct Flow {
    events: usize,
    began: Instant,
    last: Instant,
    stall: Duration,
}

impl Flow {
    fn new() -> Self {
        let now = Instant::now();
        Self { events: 0, began: now, last: now, stall: Duration::ZERO }
    }

    fn add(&mut self, events: usize) {
        self.events += events;
        let last = std::mem::replace(&mut self.last, Instant::now());
        self.stall = self.stall.max(self.last - last);
    }

    fn goes_on(&self, length: &Length) -> bool {
        match length {
            Length::Events(events) => self.events < *events,
            Length::Time(time) => self.began.elapsed() < *time,
        }
    }

    fn shown(&self) -> String {
        let seconds = (self.last - self.began).as_secs_f64();
        let rate = self.events as f64 * EVENT as f64 / MIB as f64 / seconds;
        format!("{rate:6.0} MiB/s, longest stall {:?}", self.stall)
    }
}

/// Carries connections to the server through sockets that hold little.
async fn narrow(server: SocketAddr) -> (SocketAddr, JoinHandle<()>) {
    let socket = || {
        let socket = TcpSocket::new_v4().unwrap();
        socket.set_send_buffer_size(SOCKET).unwrap();
        socket.set_recv_buffer_size(SOCKET).unwrap();
        socket
    };
    let listener = socket();
    listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = listener.listen(16).unwrap();
    let address = listener.local_addr().unwrap();
    let task = tokio::spawn(async move {
        while let Ok((mut client, _)) = listener.accept().await {
            let mut server = socket().connect(server).await.unwrap();
            tokio::spawn(async move {
                tokio::io::copy_bidirectional_with_sizes(&mut client, &mut server, 16 << 10, 16 << 10)
                    .await
                    .ok();
            });
        }
    });
    (address, task)
}

async fn send(client: &EventHub, length: &Length) -> Flow {
    let producer = client.producer();
    let (mut flow, mut under_way) = (Flow::new(), FuturesUnordered::new());
    let body = bytes::Bytes::from(vec![7; EVENT]);
    while flow.goes_on(length) {
        while under_way.len() < IN_FLIGHT {
            under_way.push(producer.send_to(UP, NewEvent::new(body.clone())));
        }
        under_way.next().await.unwrap().unwrap();
        flow.add(1);
    }
    while let Some(sent) = under_way.next().await {
        sent.unwrap();
    }
    flow
}

/// Receives what the hub stores meanwhile: it is always a few events ahead.
async fn receive(client: &EventHub, test_hub: &TestHub, length: &Length) -> Flow {
    let (start, prefetch_bytes) = (StartPosition::Latest, 4 * EVENT);
    let request = OpenRequest { partition: DOWN, start, prefetch_bytes, ..request("reader", Some(1)) };
    let mut receiver = client.open(request).await.unwrap();
    let body = bytes::Bytes::from(vec![7; EVENT]);
    let producer = test_hub.hub.producer();
    let store = || producer.send_to(DOWN, NewEvent::new(body.clone()));
    for _ in 0..AHEAD {
        store().await.unwrap();
    }
    let (mut flow, mut events) = (Flow::new(), Vec::new());
    while flow.goes_on(length) {
        events.clear();
        receiver.receive(&mut events, 1).await.unwrap();
        assert_eq!(events[0].body.len(), EVENT);
        flow.add(1);
        store().await.unwrap();
    }
    receiver.close().await;
    flow
}

/// Each direction alone, and both.
async fn measure(tls: bool, one_way: &Length, both_ways: &Length) {
    let config = HubConfig {
        retention: Retention { age: None, bytes: Some(256 * MIB as u64) },
        max_event_bytes: 8 * MIB as u64,
        ..HubConfig::new("homes", 2).unwrap()
    };
    let test_hub = TestHub::with(config);
    let served = test_hub.serve_as(GatewayConfig::default(), "127.0.0.1:0", tls).await;
    let (address, proxy) = narrow(served.address).await;
    let options = EventHubOptions { connections: 1, ..quick() };
    let client = served.builder_at(address).options(options).build().unwrap();
    let up = send(&client, one_way).await;
    let down = receive(&client, &test_hub, one_way).await;
    let (up_beside, down_beside) =
        tokio::join!(send(&client, both_ways), receive(&client, &test_hub, both_ways));
    let transport = if tls { "TLS" } else { "plain" };
    for (direction, alone, beside) in [("up", up, up_beside), ("down", down, down_beside)] {
        println!("{transport} {direction:5} alone   {}", alone.shown());
        println!("{transport} {direction:5} both    {}", beside.shown());
        let most = match both_ways {
            Length::Time(_) => Duration::from_secs(1).max(alone.stall),
            Length::Events(_) => STALL_OF_A_DEADLOCK,
        };
        assert!(beside.stall <= most, "{direction} stood still for {:?}", beside.stall);
        assert!(alone.stall <= STALL_OF_A_DEADLOCK, "{direction} alone stood still for {:?}", alone.stall);
    }
    drop(client);
    proxy.abort();
}

/// A part of the long form, or the short one.
async fn run(tls: bool) {
    let seconds = std::env::var("EPHOR_DUPLEX_SECONDS").ok().map(|text| text.parse::<u64>().unwrap());
    match seconds {
        Some(seconds) => {
            let time = Duration::from_secs(seconds);
            measure(tls, &Length::Time(time / 6), &Length::Time(time)).await;
        }
        None => within(120, measure(tls, &Length::Events(8), &Length::Events(8))).await,
    }
}

#[tokio::test]
async fn large_events_go_both_ways_on_one_connection() {
    run(false).await;
}

#[tokio::test]
async fn large_events_go_both_ways_on_one_connection_over_tls() {
    run(true).await;
}
