//! Tests with hosts that are killed, stopped and added while events arrive: in the end the results match
//! the events.

use std::collections::BTreeMap;

use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{EventProcessorOptions, NewEvent, PartitionId, PartitionManagerOptions, StopReport};

use super::*;
use crate::reading::{Reading, Sensor};
use crate::results::Follower;
use crate::results::tests::faulty_store::{FaultyStore, Rates};
use crate::time::CityTime;

const GROUPS: [&str; 2] = ["consolidate", "alarms"];
const PARTS: u32 = 4;
const HOMES: u32 = 40;

fn milliseconds(number: u64) -> Duration {
    Duration::from_millis(number)
}

/// Ten times as fast as in the demo: what is killed is missed for moments.
fn fast() -> PartitionManagerOptions {
    PartitionManagerOptions {
        lease_duration: milliseconds(600),
        renew_interval: milliseconds(150),
        store_timeout: milliseconds(300),
        fence_margin: milliseconds(100),
        slow_scan: milliseconds(100),
        fast_scan: milliseconds(30),
        handover_timeout: milliseconds(500),
        ..settings::managing()
    }
}

/// Everything that hosts share, and what was sent.
struct World {
    hub: MemoryHub,
    store: MemoryStore,
    place: ResultStore,
    sent: BTreeMap<PartitionId, Vec<(u64, Option<Reading>)>>,
    numbers: BTreeMap<(u32, usize), u32>,
    started: u32,
    time: u64,
    manager: PartitionManagerOptions,
}

/// The two hosts of one process.
struct Process {
    homes: EventProcessorHost,
    alarms: EventProcessorHost,
}

impl World {
    fn new(place: ResultStore, manager: PartitionManagerOptions) -> Self {
        let hub = MemoryHub::new("homes", PARTS).unwrap();
        for group in GROUPS {
            hub.create_group(group).unwrap();
        }
        let (sent, numbers) = (BTreeMap::new(), BTreeMap::new());
        Self { hub, store: MemoryStore::default(), place, sent, numbers, started: 0, time: 0, manager }
    }

    fn host<C: Consolidation + Sync>(
        &self,
        group: &str,
        kind: &'static str,
        flush: u64,
    ) -> EventProcessorHost {
        let options = EventProcessorOptions {
            max_batch_size: 25,
            prefetch_count: 100,
            receive_timeout: milliseconds(50),
            ..settings::processing()
        };
        let (place, slowdown) = (self.place.clone(), Slowdown::default());
        EventProcessorHost::builder(self.hub.clone(), self.store.clone())
            .consumer_group(group)
            .host_name(format!("host-{}", self.started))
            .options(options)
            .manager_options(self.manager.clone())
            .processor(move |_| {
                HomesProcessor::<C>::new(place.clone(), kind, milliseconds(flush), slowdown.clone())
            })
            .unwrap()
    }

    async fn start(&mut self) -> Process {
        self.started += 1;
        let homes = self.host::<Homes>(GROUPS[0], "homes", 50);
        let alarms = self.host::<OpenAlarms>(GROUPS[1], "alarms", 0);
        homes.start().await.unwrap();
        alarms.start().await.unwrap();
        Process { homes, alarms }
    }

    /// Sends some events, also such that are no readings, and repeats of sensors.
    fn send(&mut self, count: u32) {
        for _ in 0..count {
            let home = fastrand::u32(0..HOMES);
            let partition = PartitionId(home % PARTS);
            let reading = (fastrand::u8(0..50) > 0).then(|| self.reading(home));
            let body = reading.map_or_else(|| "no reading".into(), |reading| reading.encode());
            let sequence = self.hub.send_event(partition, NewEvent::new(body)).unwrap();
            self.sent.entry(partition).or_default().push((sequence.0, reading));
        }
    }

    fn reading(&mut self, home: u32) -> Reading {
        let sensor = Sensor::ALL[fastrand::usize(0..4)];
        let number = self.numbers.entry((home, sensor.index())).or_default();
        if *number == 0 || fastrand::u8(0..20) > 0 {
            *number += 1;
        }
        let number = *number;
        self.time += 50;
        let at = CityTime(1_800_000_000_000 + self.time);
        let value = if fastrand::u8(0..10) == 0 { 80 } else { 0 };
        Reading { home, sensor, number, at, pushed: 1, value, armed: fastrand::bool(), battery: 50 }
    }

    /// The state that the events of a partition lead to.
    fn expected<C: Consolidation>(&self, partition: PartitionId) -> C {
        let mut state = C::default();
        for (sequence, reading) in &self.sent[&partition] {
            match reading {
                Some(reading) => state.fold(*sequence, reading),
                None => state.skip(*sequence),
            }
        }
        state
    }

    /// Waits until the results have everything, and compares, home by home and alarm by alarm.
    async fn check(&self) {
        let began = std::time::Instant::now();
        for partition in (0..PARTS).map(PartitionId) {
            let expected = self.expected::<Homes>(partition);
            let mut follower = Follower::<Homes>::new(self.place.log("homes", partition));
            while follower.state().last() != expected.last() {
                if matches!(follower.next().await, Ok(None) | Err(_)) {
                    tokio::time::sleep(milliseconds(20)).await;
                }
                assert!(
                    began.elapsed() < Duration::from_secs(90),
                    "{partition}: {:?}",
                    follower.state().last()
                );
            }
            let found: Vec<_> = follower.state().iter().collect();
            assert!(found.iter().copied().eq(expected.iter()), "{partition}");
            let (found, expected) = (follower.state().totals(), expected.totals());
            assert_eq!(
                (found.readings, found.repeats, found.skipped),
                (expected.readings, expected.repeats, expected.skipped)
            );
        }
    }

    /// The desk writes only what somebody must know, such as an event that is no reading: with one at the end, it is known when
    /// everything was read.
    fn send_marks(&mut self) {
        for partition in (0..PARTS).map(PartitionId) {
            let sequence = self.hub.send_event(partition, NewEvent::new("no reading")).unwrap();
            self.sent.entry(partition).or_default().push((sequence.0, None));
        }
    }

    async fn check_alarms(&self) {
        let began = std::time::Instant::now();
        for partition in (0..PARTS).map(PartitionId) {
            let expected = self.expected::<OpenAlarms>(partition);
            let mut follower = Follower::<OpenAlarms>::new(self.place.log("alarms", partition));
            while follower.state().last() != expected.last() {
                if matches!(follower.next().await, Ok(None) | Err(_)) {
                    tokio::time::sleep(milliseconds(20)).await;
                }
                assert!(
                    began.elapsed() < Duration::from_secs(90),
                    "{partition}: {:?}",
                    follower.state().last()
                );
            }
            assert_eq!(follower.state().newest(), expected.newest(), "{partition}");
            assert_eq!(follower.state().opened(), expected.opened(), "{partition}: each alarm once");
        }
    }
}

impl Process {
    async fn stop(self) -> [StopReport; 2] {
        let within = Duration::from_secs(30);
        let (homes, alarms) = tokio::join!(self.homes.stop(within), self.alarms.stop(within));
        [homes.unwrap(), alarms.unwrap()]
    }
}

/// Hosts come and go at random while events come.
async fn chaos(mut world: World, schedule: u32) {
    let mut processes = vec![world.start().await, world.start().await];
    let mut killed = 0;
    for _ in 0..schedule {
        world.send(fastrand::u32(5..60));
        tokio::time::sleep(milliseconds(fastrand::u64(5..80))).await;
        match fastrand::u8(0..12) {
            // Dropped while it runs: what a crash is.
            0 | 1 => {
                drop(processes.swap_remove(fastrand::usize(0..processes.len())));
                killed += 1;
            }
            2 => drop(processes.swap_remove(fastrand::usize(0..processes.len())).stop().await),
            3 | 4 if processes.len() < 4 => processes.push(world.start().await),
            _ => {}
        }
        if processes.is_empty() {
            processes.push(world.start().await);
        }
    }
    drop(processes);
    assert!(killed > 0, "a host was killed, or this proves nothing");
    world.send_marks();
    let last = world.start().await;
    world.check().await;
    world.check_alarms().await;
    last.stop().await;
    world.check().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_results_are_what_was_sent_whoever_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let place = ResultStore::open(folder.path().to_str().unwrap(), "unused").await.unwrap();
    chaos(World::new(place, fast()), 120).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn and_also_if_storage_fails_is_deaf_or_forgets_what_it_has_done() {
    let rates = Rates { fails: 5, deaf: 5, forgets: 30, waits: 3 };
    let place = ResultStore::of(FaultyStore::store(rates, 7), "faulty");
    chaos(World::new(place, fast()), 80).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_repeated_when_hosts_stop_in_good_order() {
    let folder = tempfile::tempdir().unwrap();
    let place = ResultStore::open(folder.path().to_str().unwrap(), "unused").await.unwrap();
    // With leases that nobody loses because this machine is busy.
    let mut world = World::new(place, settings::managing());
    for _ in 0..3 {
        let process = world.start().await;
        world.send(200);
        world.check().await;
        world.send(50);
        tokio::time::sleep(milliseconds(20)).await;
        for report in process.stop().await {
            assert!(report.is_clean(), "{report}");
        }
    }
    world.send_marks();
    let process = world.start().await;
    world.check().await;
    world.check_alarms().await;
    process.stop().await;
    for partition in (0..PARTS).map(PartitionId) {
        let mut follower = Follower::<Homes>::new(world.place.log("homes", partition));
        follower.next().await.unwrap();
        assert_eq!(follower.state().totals().replayed, 0, "{partition}");
    }
}
