//! Tests of reading: start positions, order and batch sizes; from memory and from files.

mod start_positions;

use std::pin::pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::task::{Context, Wake, Waker};

use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{Offset, SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, OpenError, OpenRequest, Receiver};
use ephor_core::time::Timestamp;
use ephor_hub::config::DEFAULT_RECENT_BYTES;
use ephor_hub::{
    Durability, Hub, HubConfig, HubReceiver, LocalNamespace, NamespaceConfig, NewEvent, Target, offset_of,
};
use ephor_testkit::conformance::source::check;
use tokio::task::JoinSet;

use crate::common::blocking_files::Gated;
use crate::common::{Ticking, files_for};

const FIRST: PartitionId = PartitionId(0);
const START: i64 = 1_000_000_000_000;

/// A hub with small segments, on a clock that stands still until it is set.
struct ClockedHub {
    hub: Hub,
    clock: Arc<Ticking>,
    _namespace: LocalNamespace,
    _folder: Option<tempfile::TempDir>,
}

impl ClockedHub {
    fn new(durability: Durability, recent_bytes: u64, partitions: u32) -> Self {
        eprintln!("durability {durability}, {recent_bytes} recent bytes");
        let clock = Ticking::new(START, 0);
        let (files, folder) = files_for(durability);
        let segment_bytes = 8 << 10;
        let config =
            NamespaceConfig { durability, recent_bytes, segment_bytes, ..NamespaceConfig::default() };
        let namespace = LocalNamespace::on(files, config, clock.clone()).unwrap();
        let groups = ["alarms", "billing", "weather"].map(|group| group.parse().unwrap()).to_vec();
        let hub = HubConfig { groups, ..HubConfig::new("homes", partitions).unwrap() };
        let hub = namespace.create_hub(hub).unwrap();
        Self { hub, clock, _namespace: namespace, _folder: folder }
    }

    /// From files alone, from a little memory and files, and from memory; on disk and in memory.
    fn every_kind(partitions: u32) -> impl Iterator<Item = Self> {
        let durabilities = [Durability::Disk, Durability::Memory].into_iter();
        let kinds = durabilities
            .flat_map(|durability| [0, 10_000, DEFAULT_RECENT_BYTES].map(|recent| (durability, recent)));
        kinds.map(move |(durability, recent)| Self::new(durability, recent, partitions))
    }

    /// Sixty events of 700 bytes over about five segments: two batches of one and one of two each second.
    async fn fill(&self) {
        for second in 0..15 {
            self.clock.set(time(second));
            for count in [1, 1, 2] {
                let events = (0..count).map(|_| NewEvent::new(vec![7; 700]));
                self.hub.producer().send_batch(Target::Partition(FIRST), events).await.unwrap();
            }
        }
        let segments = self.hub.describe().segments;
        assert!(segments >= 4, "{segments} segments");
    }

    async fn reader(&self, start: StartPosition) -> HubReceiver {
        self.hub.reader(FIRST, start).await.unwrap()
    }

    /// The numbers of all that is there from this position on.
    async fn numbers(&self, start: StartPosition) -> Vec<u64> {
        let last = self.hub.partition_properties(FIRST).await.unwrap().last.map(|last| last.sequence.0);
        let mut reader = self.reader(start).await;
        let mut numbers = Vec::new();
        while numbers.last().copied() != last {
            numbers.extend(next(&mut reader, 7).await);
        }
        numbers
    }
}

fn time(second: i64) -> i64 {
    START + second * 1_000
}

async fn next(reader: &mut HubReceiver, most: usize) -> Vec<u64> {
    let batch = reader.next(most, usize::MAX).await.unwrap();
    batch.events().map(|event| event.sequence.0).collect()
}

fn from(number: u64) -> Vec<u64> {
    (number..60).collect()
}

// Where it begins.

// In which portions.

#[tokio::test]
async fn no_more_events_come_than_were_asked_for_and_no_batch_is_waited_for() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.hub.producer().send_batch(Target::Any, (0..10).map(|_| NewEvent::new("door"))).await.unwrap();
        let mut reader = clocked.reader(StartPosition::Earliest).await;
        assert_eq!(next(&mut reader, 1).await, [0]);
        assert_eq!(next(&mut reader, 0).await, [1], "a request for no events returns one");
        assert_eq!(next(&mut reader, 3).await, [2, 3, 4]);
        assert_eq!(next(&mut reader, 100).await, [5, 6, 7, 8, 9]);
    }
}

#[tokio::test]
async fn about_as_many_bytes_come_as_were_asked_for_and_at_least_one_event() {
    for clocked in ClockedHub::every_kind(1) {
        let events = (0..10).map(|_| NewEvent::new(vec![7; 1_000]));
        clocked.hub.producer().send_batch(Target::Any, events).await.unwrap();
        let mut reader = clocked.reader(StartPosition::Earliest).await;
        for (bytes, expected) in [(0, 1), (1, 1), (1_500, 2), (3_030, 3), (usize::MAX, 3)] {
            assert_eq!(reader.next(100, bytes).await.unwrap().len(), expected, "{bytes} bytes");
        }
    }
}

#[tokio::test]
async fn a_part_of_a_frame_keeps_all_of_it_and_its_size_is_known_before_it_is_read() {
    let clocked = ClockedHub::new(Durability::Memory, 0, 1);
    let events = (0..4).map(|_| NewEvent::new(vec![7; 700]));
    clocked.hub.producer().send_batch(Target::Partition(FIRST), events).await.unwrap();
    let mut reader = clocked.reader(StartPosition::Earliest).await;
    assert!(reader.next_in_memory(1, 1).await.unwrap().is_none());
    let loaded = Arc::new(AtomicUsize::new(0));
    let loading = {
        let loaded = loaded.clone();
        move |bytes| loaded.store(bytes, Ordering::SeqCst)
    };
    reader.read_older((), loading).await.unwrap();
    assert!((2_800..4_000).contains(&loaded.load(Ordering::SeqCst)), "{loaded:?}");
    for _ in 0..4 {
        let part = reader.next_in_memory(1, 1).await.unwrap().unwrap();
        assert!(part.bytes() < 1_000 && part.memory() == loaded.load(Ordering::SeqCst), "{}", part.memory());
    }
}

#[tokio::test]
async fn a_receive_fills_up_from_small_batches_that_are_there() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        let mut reader = clocked.reader(StartPosition::Earliest).await;
        let mut events = Vec::new();
        reader.receive(&mut events, 1).await.unwrap();
        reader.receive(&mut events, 5).await.unwrap();
        let numbers: Vec<u64> = events.iter().map(|event| event.sequence.0).collect();
        assert!(numbers.len() > 2 && numbers.len() <= 6, "{numbers:?}");
        assert!(numbers.iter().copied().eq(0..numbers.len() as u64), "{numbers:?}");
    }
}

#[tokio::test]
async fn the_newest_event_is_told_along_with_each_delivery() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        let mut reader = clocked.reader(StartPosition::Earliest).await;
        assert_eq!(reader.last_enqueued(), None);
        reader.next(1, 1).await.unwrap();
        let last = reader.last_enqueued().unwrap();
        assert_eq!((last.sequence.0, last.offset, last.enqueued_at.0), (59, offset_of(59), time(14)));
        assert_eq!(clocked.hub.partition_properties(FIRST).await.unwrap().last, reader.last_enqueued());
    }
}

#[tokio::test]
async fn each_group_reads_everything_at_its_own_pace() {
    for clocked in ClockedHub::every_kind(1) {
        clocked.fill().await;
        let mut readers = Vec::new();
        for (group, pace) in [("$Default", 60), ("alarms", 11), ("billing", 3), ("weather", 1)] {
            let group = group.parse().unwrap();
            let request =
                OpenRequest { start: StartPosition::Earliest, ..OpenRequest::probe(&group, FIRST, "one") };
            readers.push((clocked.hub.receiver(request).await.unwrap(), pace, Vec::new()));
        }
        while readers.iter().any(|(_, _, numbers)| numbers.len() < 60) {
            for (reader, pace, numbers) in readers.iter_mut().filter(|(_, _, numbers)| numbers.len() < 60) {
                numbers.extend(next(reader, *pace).await);
            }
        }
        assert!(readers.iter().all(|(_, _, numbers)| *numbers == from(0)));
    }
}

// Waiting.

/// Counts how often somebody is woken.
#[derive(Default)]
struct Bell(AtomicUsize);

impl Wake for Bell {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[tokio::test]
async fn a_reader_that_waits_is_woken_by_news_of_its_partition_and_by_nothing_else() {
    for clocked in ClockedHub::every_kind(2) {
        let mut reader = clocked.reader(StartPosition::Latest).await;
        let mut waiting = pin!(reader.next(1, 1));
        let bell = Arc::new(Bell::default());
        let waker = Waker::from(bell.clone());
        let mut context = Context::from_waker(&waker);
        assert!(waiting.as_mut().poll(&mut context).is_pending());
        clocked.clock.set(time(1_000));
        for _ in 0..10 {
            clocked.hub.producer().send_to(PartitionId(1), NewEvent::new("of another")).await.unwrap();
        }
        assert_eq!(bell.0.load(Ordering::SeqCst), 0, "it sleeps");
        clocked.hub.producer().send_to(FIRST, NewEvent::new("door")).await.unwrap();
        assert_eq!(bell.0.load(Ordering::SeqCst), 1);
        assert_eq!(waiting.await.unwrap().len(), 1);
    }
}

#[tokio::test]
async fn dropping_a_wait_loses_nothing() {
    for clocked in ClockedHub::every_kind(1) {
        let mut reader = clocked.reader(StartPosition::Earliest).await;
        let mut context = Context::from_waker(Waker::noop());
        for number in 0..20 {
            assert!(pin!(reader.next(1, 1)).poll(&mut context).is_pending());
            clocked.hub.producer().send(NewEvent::new(vec![7; 300])).await.unwrap();
            // Cut off in the middle of reading the file, if it gets that far.
            let cut = pin!(reader.next(1, 1)).poll(&mut context).is_ready();
            if !cut {
                assert_eq!(next(&mut reader, 1).await, [number]);
            }
        }
    }
}

/// A reader that gives up and asks again, many times, gets its events nevertheless, and loads the disk once.
#[tokio::test]
async fn a_slow_disk_is_read_once_however_often_somebody_stops_waiting_for_it() {
    let (files, gates) = Gated::new();
    let gate = gates.reads;
    let config = NamespaceConfig { recent_bytes: 0, ..NamespaceConfig::default() };
    let namespace = LocalNamespace::on(files, config, Ticking::new(START, 0)).unwrap();
    let hub = namespace.create_hub(HubConfig::new("homes", 1).unwrap()).unwrap();
    hub.producer().send(NewEvent::new("door")).await.unwrap();
    let mut reader = hub.reader(FIRST, StartPosition::Earliest).await.unwrap();
    gate.set_shut(true);
    let mut context = Context::from_waker(Waker::noop());
    let mut waiting = Vec::new();
    for _ in 0..10 {
        assert!(pin!(reader.next(1, 1)).poll(&mut context).is_pending());
        waiting.push(gate.waiting());
    }
    // Before anything can fail: nobody ends a test while a thread waits before the gate.
    gate.set_shut(false);
    assert_eq!(waiting, [1; 10]);
    assert_eq!(next(&mut reader, 1).await, [0]);
}

// Under load.

/// A generator of numbers that anybody can play again.
struct Dice(u64);

impl Dice {
    fn roll(&mut self, below: u64) -> u64 {
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (self.0 >> 33) % below
    }
}

/// The body of an event can be told from its number, so that a mix-up shows.
fn body(seed: u64, length: u64) -> Vec<u8> {
    let mut body = seed.to_le_bytes().to_vec();
    body.resize(8 + length as usize, seed as u8);
    body
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_change_between_files_and_memory_under_load_miss_and_repeat_nothing() {
    const EVENTS: u64 = 3_000;
    for (seed, clocked) in ClockedHub::every_kind(2).enumerate() {
        let mut tasks = JoinSet::new();
        for partition in 0..2 {
            let (producer, mut dice) = (clocked.hub.producer(), Dice(seed as u64 * 2 + u64::from(partition)));
            tasks.spawn(async move {
                let mut sent = 0;
                while sent < EVENTS {
                    let count = (1 + dice.roll(6)).min(EVENTS - sent);
                    let events: Vec<NewEvent> =
                        (0..count).map(|index| NewEvent::new(body(sent + index, dice.roll(400)))).collect();
                    let target = Target::Partition(PartitionId(partition));
                    let receipt = producer.send_batch(target, events).await.unwrap();
                    assert_eq!(receipt.first.0, sent);
                    sent += count;
                }
            });
        }
        for reader in 0..6 {
            let (hub, mut dice) = (clocked.hub.clone(), Dice(seed as u64 * 100 + reader));
            let partition = PartitionId(reader as u32 % 2);
            tasks.spawn(async move {
                let mut reader = hub.reader(partition, StartPosition::Earliest).await.unwrap();
                let mut expected = 0;
                while expected < EVENTS {
                    let most = 1 + dice.roll(40) as usize;
                    let mut events = Vec::new();
                    reader.receive(&mut events, most).await.unwrap();
                    for event in events {
                        assert_eq!(event.sequence.0, expected, "{partition:?}");
                        assert_eq!(event.body[..8], expected.to_le_bytes());
                        expected += 1;
                    }
                    if dice.roll(50) == 0 {
                        // Somebody who begins again right behind.
                        let start = match dice.roll(2) {
                            0 => StartPosition::after(SequenceNumber(expected - 1)),
                            _ => StartPosition::Offset { offset: offset_of(expected - 1), inclusive: false },
                        };
                        reader = hub.reader(partition, start).await.unwrap();
                    }
                    if dice.roll(20) == 0 {
                        tokio::task::yield_now().await;
                    }
                }
                assert_eq!(reader.take_missed(), 0);
            });
        }
        check(async { drop(tasks.join_all().await) }).await;
        assert_eq!(clocked.hub.damage(), []);
    }
}
