//! Tests of outages of a hub: all users of a connection share one series of reconnect attempts, a fleet does
//! not flood a hub that comes back, and the log reports the loss once and the reconnect once.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor::EventProcessorHost;
use ephor::memory::MemoryStore;
use ephor_core::event::NewEvent;
use ephor_core::failure_policy::Backoff;
use ephor_core::ids::PartitionId;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::options::DEFAULT_BACKOFF;
use ephor_eventhubs::{ConnectionString, EventHub, EventHubOptions};
use futures_util::future::join_all;
use tokio::time::{Instant, sleep};

use crate::common::log::Log;
use crate::common::simulated_outage::Gate;
use crate::common::{Served, TestHub, request, texts, within};

/// A client with an address of its own for the hub, like a process on another machine.
fn client(gate: &Gate, number: usize, options: EventHubOptions) -> EventHub {
    let host = format!("127.0.0.{}", 1 + number).parse().unwrap();
    let string = ConnectionString::development(&host, gate.port, None);
    EventHub::builder_for(string).hub("homes").options(options).build().unwrap()
}

/// The minimum wait before the `number`-th dial of an outage, counted from 1. The first may come immediately.
fn least_wait(backoff: &Backoff, number: usize) -> Duration {
    match u32::try_from(number).unwrap() {
        1 => Duration::ZERO,
        // Jitter shortens a wait by at most a quarter, and no wait is longer than two seconds at first.
        number => backoff.delay(number, 0).min(Duration::from_secs(2)).mul_f64(0.74),
    }
}

/// The maximum number of dials in an outage of this length.
fn max_dials(backoff: &Backoff, outage: Duration) -> usize {
    let mut passed = Duration::ZERO;
    (1..)
        .take_while(|number| {
            passed += least_wait(backoff, *number);
            passed <= outage
        })
        .count()
}

#[tokio::test]
async fn receivers_of_one_connection_share_one_series_of_dials() {
    let test_hub = TestHub::new(8);
    let served = test_hub.serve().await;
    let gate = Gate::to(served.address).await;
    let backoff = Backoff { first: Duration::from_millis(50), max: Duration::from_secs(1) };
    let client = client(&gate, 0, EventHubOptions { backoff, ..EventHubOptions::default() });
    let receivers = (0..8).map(|partition| {
        let client = client.clone();
        async move {
            let wanted = OpenRequest { partition: PartitionId(partition), ..request("owner", Some(1)) };
            client.open(wanted).await.unwrap()
        }
    });
    let mut receivers = join_all(receivers).await;
    let start = Instant::now();
    gate.close();
    let reading = tokio::spawn(async move {
        join_all(receivers.iter_mut().map(|receiver| async {
            let mut events = Vec::new();
            while receiver.receive(&mut events, 1).await.is_err() {}
            texts(&events).concat()
        }))
        .await
    });
    within(20, async {
        while gate.dials_since(start).len() < 6 {
            sleep(Duration::from_millis(5)).await
        }
    })
    .await;
    let dials = gate.dials_since(start);
    for (index, pair) in dials.windows(2).enumerate() {
        let gap = pair[1] - pair[0];
        assert!(gap >= least_wait(&backoff, index + 2), "dial {} came after {gap:?}: {dials:?}", index + 2);
    }
    gate.open();
    for partition in 0..8 {
        test_hub.hub.producer().send_to(PartitionId(partition), NewEvent::new("back")).await.unwrap();
    }
    assert_eq!(within(20, reading).await.unwrap(), ["back"; 8]);
}

/// Hosts that each read all partitions, in consumer groups of their own, through one listener.
struct Fleet {
    test_hub: TestHub,
    _served: Served,
    gate: Gate,
    hosts: Vec<EventProcessorHost>,
    partitions: u32,
    /// The events that each host has seen of each partition.
    seen: Arc<Mutex<BTreeSet<(usize, PartitionId, String)>>>,
}

impl Fleet {
    async fn start(hosts: usize, partitions: u32, options: EventHubOptions) -> Self {
        let groups = (0..hosts).map(|number| format!("group-{number}"));
        let test_hub = TestHub::with_groups(partitions, groups);
        let served = test_hub.serve().await;
        let gate = Gate::to(served.address).await;
        let seen = Arc::<Mutex<BTreeSet<_>>>::default();
        let hosts = (0..hosts).map(|number| {
            let seen = seen.clone();
            EventProcessorHost::builder(client(&gate, number, options.clone()), MemoryStore::default())
                .consumer_group(format!("group-{number}"))
                .host_name(format!("host-{number}"))
                .for_each_event(move |context, event| {
                    seen.lock().unwrap().insert((
                        number,
                        context.partition(),
                        event.text().unwrap().to_owned(),
                    ));
                    async { Ok(()) }
                })
                .unwrap()
        });
        let hosts: Vec<EventProcessorHost> = hosts.collect();
        join_all(hosts.iter().map(|host| async { host.start().await.unwrap() })).await;
        let fleet = Self { test_hub, _served: served, gate, hosts, partitions, seen };
        fleet.all_read("before").await;
        fleet
    }

    /// Sends to every partition, and waits until every host has seen all events.
    async fn all_read(&self, text: &str) {
        for partition in 0..self.partitions {
            let event = NewEvent::new(text.to_owned());
            self.test_hub.hub.producer().send_to(PartitionId(partition), event).await.unwrap();
        }
        let expected = self.hosts.len() * self.partitions as usize;
        let count = || self.seen.lock().unwrap().iter().filter(|(_, _, seen)| seen == text).count();
        within(60, async {
            while count() < expected {
                sleep(Duration::from_millis(5)).await
            }
        })
        .await;
    }

    /// Simulates an outage of this length; returns the dials during it, and the time until all partitions
    /// were read again.
    async fn outage(&self, length: Duration) -> Outage {
        let start = Instant::now();
        self.gate.close();
        sleep(length).await;
        let dials = self.gate.dials_since(start).len();
        let length = start.elapsed();
        self.gate.open();
        self.all_read("after").await;
        Outage { length, dials, all: self.gate.dials_since(start), read_again: start.elapsed() - length }
    }
}

struct Outage {
    length: Duration,
    /// The number of dials while the hub was away.
    dials: usize,
    /// The times of all dials, until all partitions were read again.
    all: Vec<Duration>,
    read_again: Duration,
}

impl Outage {
    fn per_second(&self) -> Vec<usize> {
        let mut seconds = vec![0; 1 + self.all.last().map_or(0, |last| last.as_secs() as usize)];
        for dial in &self.all {
            seconds[dial.as_secs() as usize] += 1;
        }
        seconds
    }
}

/// The number of hosts, of partitions, and of seconds without a hub.
fn size() -> (usize, u32, u64) {
    match std::env::var_os("EPHOR_CUT_RUNS") {
        Some(_) => (20, 32, 8),
        None => (4, 16, 2),
    }
}

#[tokio::test]
async fn a_fleet_does_not_flood_a_hub_that_comes_back() {
    let (hosts, partitions, seconds) = size();
    let fleet = Fleet::start(hosts, partitions, EventHubOptions::default()).await;
    let outage = fleet.outage(Duration::from_secs(seconds)).await;
    println!(
        "{hosts} hosts with {partitions} partitions each, {:.1} s without their hub: {} dials meanwhile, {} in all; \
         dials per second {:?}; all partitions read again {:.1} s after its return",
        outage.length.as_secs_f64(),
        outage.dials,
        outage.all.len(),
        outage.per_second(),
        outage.read_again.as_secs_f64(),
    );
    let most = hosts * max_dials(&DEFAULT_BACKOFF, outage.length);
    assert!(outage.dials <= most, "at most {most}: one series of each host");
    // A host that dialled at that very moment may have to dial once more.
    assert!(outage.all.len() - outage.dials <= 2 * hosts, "its return is no reason to dial more often");
}

#[tokio::test]
async fn an_outage_is_logged_once_and_not_by_every_partition() {
    let log = Log::of_this_thread();
    // Every receiver reports the first failed dial to its pump.
    let fleet = Fleet::start(1, 16, EventHubOptions { attempts: 1, ..EventHubOptions::default() }).await;
    log.take();
    fleet.outage(Duration::from_secs(2)).await;
    let lines = log.take();
    let count = |text: &str| lines.iter().filter(|line| line.contains(text)).count();
    assert_eq!(count("connection lost"), 1, "{lines:#?}");
    assert_eq!(count("reconnected"), 1, "{lines:#?}");
    assert_eq!(count("the hub cannot be read"), 1, "{lines:#?}");
    assert_eq!(count("the hub is read again"), 1, "{lines:#?}");
    assert_eq!(lines.len(), 4, "{lines:#?}");
}
