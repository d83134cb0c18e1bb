//! Tests of one connection with a receiver for each of many partitions, whose events are on a slow disk.
#![allow(clippy::disallowed_methods, reason = "real sockets: time is the runtime's")]

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use ephor_amqp::connection::{Event, LinkId};
use ephor_amqp::performative::Outcome;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_gateway::GatewayConfig;
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig, Target};
use ephor_runtime::environment::{SystemClock, TokioEnvironment};
use ephor_wire::selector::Start;

use crate::blocking_files::{Gate, Gated};
use crate::client::{Client, encoded, receiver};
use crate::process_resources::{MIB, alone, forget_peak, memory, peak_memory, run, scale};
use crate::server::{HUB, Server};

const WIDE: &str = "wide";
const PARTITIONS: usize = 96;
/// Fewer than a session may have.
const LINKS_PER_SESSION: usize = 200;
/// Receivers of one connection that read the log at once.
const MAX_CONCURRENT_READS: usize = 8;
/// Receivers of all connections that read the log at once.
const MAX_CONCURRENT_READS_OF_ALL: usize = 64;
/// The reads of all connections at once, one event each; what each of two connections holds, and its output;
/// and what the allocator keeps. All that is asked for is 275 MiB.
const MAX_MEMORY: usize = (MAX_CONCURRENT_READS_OF_ALL + 28) * MIB;

/// A hub with this many events of this size in each partition, nearly all of them on a disk whose reads wait
/// while the gate is shut. The body of an event repeats the number of its partition as a byte.
async fn wide(events: usize, bytes: usize) -> (Server, Arc<Gate>) {
    let (files, gates) = Gated::new();
    let config = NamespaceConfig { recent_bytes: 1 << 20, ..NamespaceConfig::default() };
    let namespace = LocalNamespace::on(files, config, Arc::new(SystemClock)).unwrap();
    let server = Server::over(namespace, GatewayConfig::default(), Arc::new(TokioEnvironment)).await;
    let partitions = (PARTITIONS * scale()) as u32;
    let hub = server.namespace.create_hub(HubConfig::new(WIDE, partitions).unwrap()).unwrap();
    let producer = hub.producer();
    for _ in 0..events {
        for partition in 0..partitions {
            let event = [NewEvent::new(vec![partition as u8; bytes])];
            producer.send_batch(Target::Partition(PartitionId(partition)), event).await.unwrap();
        }
    }
    gates.reads.set_shut(true);
    (server, gates.reads)
}

/// Attaches a receiver for each of these partitions, with credit, and waits until the gateway has handled
/// that.
async fn ask_for(client: &mut Client, partitions: Range<usize>) -> BTreeMap<LinkId, usize> {
    let mut links = BTreeMap::new();
    let mut session = None;
    for partition in partitions {
        if links.len() % LINKS_PER_SESSION == 0 {
            session = client.connection().begin();
        }
        let address = format!("{WIDE}/ConsumerGroups/$Default/Partitions/{partition}");
        let attach = receiver(&address, &Start::Earliest, None, &[]);
        let link = client.connection().attach(session.unwrap(), attach).unwrap();
        let attached = |event: &Event| matches!(event, Event::Attached { link: of, .. } if *of == link);
        client.wait(|event| attached(event).then_some(())).await;
        links.insert(link, 0);
    }
    for link in links.keys() {
        client.connection().grant(*link, 1_000);
    }
    // This is answered after all of it was handled.
    let sender = client.sender(HUB).await;
    assert_eq!(client.send(sender, 0, &encoded(&NewEvent::new("x"))).await, Outcome::Accepted);
    links
}

fn everything() -> Range<usize> {
    0..PARTITIONS * scale()
}

#[test]
fn a_slow_disk_is_asked_by_few_receivers_at_once_and_what_they_bring_is_bounded() {
    let _alone = alone();
    run(async {
        let (server, gate) = wide(1, 1_000_000).await;
        let before = memory();
        forget_peak();
        let mut unread = Client::of(&server).await;
        let receivers = ask_for(&mut unread, everything()).await.len();
        let reading = tokio::task::block_in_place(|| gate.waiting());
        assert!(reading <= MAX_CONCURRENT_READS, "{reading} receivers of one connection read at once");
        let mut others = Vec::new();
        for number in 0..MAX_CONCURRENT_READS_OF_ALL / MAX_CONCURRENT_READS {
            // Few enough for a partition to have room for all, and more than may read at once.
            let some =
                number * PARTITIONS / MAX_CONCURRENT_READS..(number + 1) * PARTITIONS / MAX_CONCURRENT_READS;
            let mut other = Client::of(&server).await;
            ask_for(&mut other, some).await;
            others.push(other);
        }
        let reading = tokio::task::block_in_place(|| gate.waiting());
        assert!(
            reading <= MAX_CONCURRENT_READS_OF_ALL,
            "{reading} receivers of all connections read at once"
        );
        drop(others);
        gate.set_shut(false);
        // It does not read its socket any more. By the time that another client has read everything, its
        // output is full.
        let mut reader = Client::of(&server).await;
        let mut got = ask_for(&mut reader, everything()).await;
        while got.values().any(|count| *count == 0) {
            *got.get_mut(&reader.delivery().await.0).unwrap() += 1;
        }
        let used = peak_memory().saturating_sub(before);
        eprintln!("{} MiB for {receivers} receivers that read nothing, beside others that do", used / MIB);
        assert!(used < MAX_MEMORY * scale(), "{} MiB", used / MIB);
    });
}

/// Larger than one read of the log, so that each event takes a read of its own.
const LONG: usize = 300_000;

/// The partitions whose events were read, in this order.
fn reads(gate: &Gate) -> Vec<u8> {
    let reads = gate.take_reads();
    reads.iter().filter(|read| read.length > LONG / 2).map(|read| read.middle).collect()
}

#[test]
fn every_receiver_gets_its_turn_to_read_the_log() {
    const EVENTS: usize = 2;
    /// The last events, which are in memory.
    const RECENT: usize = 4;
    let _alone = alone();
    run(async {
        let (server, gate) = wide(EVENTS, LONG).await;
        gate.take_reads();
        let mut reader = Client::of(&server).await;
        let mut got = ask_for(&mut reader, everything()).await;
        // All receivers wait for their permits by now. The client does not read until receivers hold what
        // they have read and wait for room.
        gate.set_shut(false);
        tokio::time::sleep(Duration::from_millis(100)).await;
        for number in 0..EVENTS * got.len() {
            *got.get_mut(&reader.delivery().await.0).unwrap() += 1;
            if number % 4 == 0 {
                tokio::time::sleep(Duration::from_millis(1)).await;
            }
        }
        assert!(got.values().all(|count| *count == EVENTS), "{got:?}");
        let reads = reads(&gate);
        assert!(reads.len() >= EVENTS * got.len() - RECENT, "{} reads", reads.len());
        // Beyond 256 partitions some share their byte.
        let mut unread: BTreeMap<u8, usize> = BTreeMap::new();
        for partition in everything() {
            *unread.entry(partition as u8).or_default() += 1;
        }
        let again = reads.iter().find(|of| match unread.get_mut(of) {
            Some(left) if *left > 0 => {
                *left -= 1;
                false
            }
            _ => true,
        });
        let missing: usize = unread.values().sum();
        // Receivers that had their permit before were already reading.
        let text = format!("{again:?} was read again before {missing} others were read: {reads:?}");
        assert!(missing < MAX_CONCURRENT_READS, "{text}");
    });
}
