//! Tests of retention: whole segments are deleted, by size and by age, and readers learn how many events
//! they missed.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::EventSource;
use ephor_core::time::{Clock, Timestamp};
use ephor_hub::config::{DEFAULT_MEMORY_RETENTION_BYTES, DEFAULT_RECENT_BYTES};
use ephor_hub::files::{DiskFiles, Files, MemoryFiles};
use ephor_hub::{
    Durability, Hub, HubConfig, HubReceiver, LocalNamespace, NamespaceConfig, NewEvent, Retention, Target,
    offset_of,
};
use ephor_runtime::environment::SystemClock;
use ephor_testkit::conformance::source::check;
use tokio::task::JoinSet;

use crate::common::{Ticking, files_for};

const FIRST: PartitionId = PartitionId(0);
const START: i64 = 1_000_000_000_000;
const HOUR: i64 = 3_600_000;
const SEGMENT: u64 = 16 << 10;
const SIZE: u64 = 5 * SEGMENT;
const BY_SIZE: Retention = Retention { age: None, bytes: Some(SIZE) };
const BY_AGE: Retention = Retention { age: Some(Duration::from_secs(3_600)), bytes: None };
const FOREVER: Retention = Retention { age: None, bytes: None };

/// A hub with small segments, on a clock that stands still until it is set.
struct ClockedHub {
    hub: Hub,
    clock: Arc<Ticking>,
    _namespace: LocalNamespace,
    folder: Option<tempfile::TempDir>,
}

impl ClockedHub {
    fn new(durability: Durability, recent_bytes: u64, retention: Retention) -> Self {
        eprintln!("durability {durability}, {recent_bytes} recent bytes");
        let clock = Ticking::new(START, 0);
        let (files, folder) = files_for(durability);
        let config = settings(durability, recent_bytes);
        let namespace = LocalNamespace::on(files, config, clock.clone()).unwrap();
        let hub = HubConfig { retention, ..HubConfig::new("homes", 2).unwrap() };
        let hub = namespace.create_hub(hub).unwrap();
        Self { hub, clock, _namespace: namespace, folder }
    }

    fn every_kind(retention: Retention) -> impl Iterator<Item = Self> {
        let durabilities = [Durability::Disk, Durability::PageCache, Durability::Memory].into_iter();
        let kinds =
            durabilities.flat_map(|durability| [0, DEFAULT_RECENT_BYTES].map(|recent| (durability, recent)));
        kinds.map(move |(durability, recent)| Self::new(durability, recent, retention))
    }

    /// Sends this many events of about four thousand bytes, of which a few fill a segment; and frees what has to go.
    async fn send(&self, count: usize) -> u64 {
        let mut last = 0;
        for _ in 0..count {
            let sent = self.hub.producer().send_to(FIRST, NewEvent::new(vec![7; 4_000])).await;
            last = sent.unwrap().first.0;
        }
        // A hub on disk frees when its committer comes to it.
        self.hub.enforce_retention();
        last
    }

    async fn first_and_last(&self) -> (u64, Option<u64>) {
        let properties = self.hub.partition_properties(FIRST).await.unwrap();
        (properties.first.0, properties.last.map(|last| last.sequence.0))
    }

    async fn reader(&self, start: StartPosition) -> HubReceiver {
        self.hub.reader(FIRST, start).await.unwrap()
    }
}

fn settings(durability: Durability, recent_bytes: u64) -> NamespaceConfig {
    NamespaceConfig { durability, recent_bytes, segment_bytes: SEGMENT, ..NamespaceConfig::default() }
}

async fn next(reader: &mut HubReceiver) -> u64 {
    reader.next(1, usize::MAX).await.unwrap().events().next().unwrap().sequence.0
}

/// How many segment files a hub has, and how many indexes.
fn files(folder: &Path) -> (usize, usize) {
    let hub = std::fs::read_dir(folder.join("hubs")).unwrap().next().unwrap().unwrap().path();
    let names: Vec<_> = std::fs::read_dir(hub).unwrap().map(|file| file.unwrap().path()).collect();
    let count =
        |kind: &str| names.iter().filter(|path| path.extension().is_some_and(|end| end == kind)).count();
    (count("log"), count("index"))
}

#[tokio::test]
async fn a_log_beyond_its_size_loses_its_oldest_segments() {
    for clocked in ClockedHub::every_kind(BY_SIZE) {
        assert_eq!(clocked.send(100).await, 99);
        let (first, last) = clocked.first_and_last().await;
        assert!((80..=95).contains(&first), "the oldest kept is {first}");
        assert_eq!(last, Some(99));
        let described = clocked.hub.describe();
        assert!(described.log_bytes <= SIZE, "{} bytes", described.log_bytes);
        if let Some(folder) = &clocked.folder {
            let (segments, indexes) = files(folder.path());
            assert_eq!((segments, indexes), (described.segments, described.segments - 1));
        }
    }
}

#[tokio::test]
async fn events_past_their_age_go_with_their_whole_segment_and_not_before() {
    for clocked in ClockedHub::every_kind(BY_AGE) {
        clocked.send(4).await;
        clocked.hub.seal_segment().unwrap();
        clocked.clock.set(START + HOUR / 2);
        clocked.send(4).await;
        clocked.hub.seal_segment().unwrap();
        clocked.send(1).await;
        let half = HOUR / 2;
        for (now, first) in [(HOUR - 1, 0), (HOUR, 4), (HOUR + half - 1, 4)] {
            clocked.clock.set(START + now);
            clocked.hub.enforce_retention();
            assert_eq!(clocked.first_and_last().await, (first, Some(8)), "after {now} ms");
        }
    }
}

#[tokio::test]
async fn without_limits_everything_stays() {
    for clocked in
        [ClockedHub::new(Durability::Disk, 0, FOREVER), ClockedHub::new(Durability::PageCache, 0, FOREVER)]
    {
        clocked.send(60).await;
        clocked.clock.set(START + 100_000 * HOUR);
        clocked.hub.enforce_retention();
        assert_eq!(clocked.first_and_last().await, (0, Some(59)));
    }
}

#[tokio::test]
async fn a_reader_whose_position_is_gone_goes_on_at_the_oldest_kept_and_is_told() {
    for clocked in ClockedHub::every_kind(BY_SIZE) {
        clocked.send(2).await;
        let mut slow = clocked.reader(StartPosition::Earliest).await;
        assert_eq!((next(&mut slow).await, slow.take_missed()), (0, 0));
        clocked.send(98).await;
        let oldest = clocked.first_and_last().await.0;
        // What it had read ahead already it may still hand out.
        let mut went_on = next(&mut slow).await;
        if went_on == 1 {
            went_on = next(&mut slow).await;
            assert_eq!(slow.take_missed(), oldest - 2);
        } else {
            assert_eq!(slow.take_missed(), oldest - 1);
        }
        assert_eq!(went_on, oldest);
        assert_eq!(slow.take_missed(), 0, "it is reported once");
        assert_eq!((next(&mut slow).await, slow.take_missed()), (oldest + 1, 0));
    }
}

#[tokio::test]
async fn a_start_that_is_gone_begins_at_the_oldest_kept_and_is_told() {
    for clocked in ClockedHub::every_kind(BY_SIZE) {
        clocked.send(100).await;
        let oldest = clocked.first_and_last().await.0;
        for (start, missed) in [
            (StartPosition::at(SequenceNumber(3)), oldest - 3),
            (StartPosition::after(SequenceNumber(3)), oldest - 4),
            (StartPosition::Offset { offset: offset_of(3), inclusive: true }, oldest - 3),
            (StartPosition::Offset { offset: offset_of(3), inclusive: false }, oldest - 4),
            (StartPosition::Earliest, 0),
            (StartPosition::EnqueuedTime(Timestamp(0)), 0),
            (StartPosition::at(SequenceNumber(oldest)), 0),
            (StartPosition::after(SequenceNumber(oldest - 1)), 0),
        ] {
            let mut reader = clocked.reader(start.clone()).await;
            assert_eq!((next(&mut reader).await, reader.take_missed()), (oldest, missed), "{start}");
        }
    }
}

#[tokio::test]
async fn a_hub_where_everything_is_gone_counts_on_also_after_a_restart() {
    for durability in [Durability::Disk, Durability::PageCache, Durability::Memory] {
        let (files, clock) = (Arc::new(MemoryFiles::default()), Ticking::new(START, 0));
        let open = || LocalNamespace::on(files.clone(), settings(durability, 0), clock.clone()).unwrap();
        let namespace = open();
        let hub = HubConfig { retention: BY_AGE, ..HubConfig::new("homes", 1).unwrap() };
        let hub = namespace.create_hub(hub).unwrap();
        for _ in 0..10 {
            hub.producer().send(NewEvent::new(vec![7; 4_000])).await.unwrap();
        }
        clock.set(START + 2 * HOUR);
        hub.enforce_retention();
        let emptied = hub.partition_properties(FIRST).await.unwrap();
        assert_eq!((emptied.first.0, emptied.last.as_ref().map(|last| last.sequence.0)), (10, Some(9)));
        let mut reader = hub.reader(FIRST, StartPosition::Earliest).await.unwrap();
        drop(namespace);
        assert!(reader.next(1, 1).await.is_err());
        let namespace = open();
        let hub = namespace.hub("homes").unwrap();
        assert_eq!(hub.partition_properties(FIRST).await.unwrap(), emptied);
        assert_eq!(hub.producer().send(NewEvent::new("door")).await.unwrap().first.0, 10);
        let mut reader = hub.reader(FIRST, StartPosition::Earliest).await.unwrap();
        assert_eq!(next(&mut reader).await, 10);
    }
}

#[tokio::test]
async fn a_retention_that_is_set_at_run_time_holds_from_then_on() {
    for clocked in ClockedHub::every_kind(Retention { age: None, bytes: Some(1 << 30) }) {
        clocked.send(60).await;
        assert_eq!(clocked.first_and_last().await.0, 0);
        clocked.hub.set_retention(BY_SIZE).unwrap();
        assert_eq!(clocked.hub.describe().retention, BY_SIZE);
        clocked.send(8).await;
        assert!(clocked.hub.describe().log_bytes <= SIZE);
        clocked.hub.set_retention(BY_AGE).unwrap();
        clocked.clock.set(START + 2 * HOUR);
        clocked.hub.enforce_retention();
        assert_eq!(clocked.first_and_last().await, (68, Some(67)));
    }
}

#[tokio::test]
async fn a_retention_that_is_too_small_is_refused_and_changes_nothing() {
    for clocked in ClockedHub::every_kind(BY_SIZE) {
        let refused = clocked.hub.set_retention(Retention { age: None, bytes: Some(4 * SEGMENT - 1) });
        let said = refused.unwrap_err().to_string();
        assert!(said.starts_with("retention.bytes: 65535B is less than 4 segments of 16KiB"), "{said}");
        let refused = clocked.hub.set_retention(Retention { age: Some(Duration::from_secs(1)), bytes: None });
        let said = refused.unwrap_err().to_string();
        assert_eq!(said, "retention.age: 1s is less than 1m; write a duration from 1m to 36500d");
        assert_eq!(clocked.hub.describe().retention, BY_SIZE);
    }
}

/// The committer looks when the oldest events are due, although nobody sends.
#[tokio::test]
async fn an_idle_hub_frees_what_is_past_its_time_by_itself() {
    let clocked = ClockedHub::new(Durability::Disk, 0, BY_AGE);
    // More than a segment: the one being written goes with the others.
    clocked.send(7).await;
    assert!(clocked.hub.describe().segments > 1);
    // A moment before the time: the committer is made to look, and then looks again by itself.
    clocked.clock.set(START + HOUR - 20);
    let a_little_longer = Duration::from_secs(3_600) + Duration::from_millis(1);
    clocked.hub.set_retention(Retention { age: Some(a_little_longer), bytes: None }).unwrap();
    clocked.clock.set(START + HOUR + 1);
    let gone = async {
        while clocked.first_and_last().await.0 < 7 {
            tokio::task::yield_now().await;
        }
    };
    check(gone).await;
    assert_eq!(clocked.first_and_last().await, (7, Some(6)));
}

#[tokio::test]
async fn a_hub_in_memory_stays_under_its_size_even_if_nobody_gave_it_one() {
    let clocked = ClockedHub::new(Durability::Memory, 0, FOREVER);
    let described = clocked.hub.describe();
    assert_eq!(described.retention, Retention { age: None, bytes: Some(DEFAULT_MEMORY_RETENTION_BYTES) });
    drop(clocked);
    let clocked = ClockedHub::new(Durability::Memory, 8_000, BY_SIZE);
    for _ in 0..50 {
        clocked.send(20).await;
        let described = clocked.hub.describe();
        assert!(described.log_bytes <= SIZE, "{} bytes", described.log_bytes);
    }
    assert_eq!(clocked.first_and_last().await.1, Some(999));
}

#[tokio::test]
async fn a_partition_that_nobody_writes_to_loses_its_events_with_the_others() {
    for clocked in ClockedHub::every_kind(BY_SIZE) {
        let quiet = PartitionId(1);
        clocked.hub.producer().send_to(quiet, NewEvent::new("once")).await.unwrap();
        clocked.send(60).await;
        let properties = clocked.hub.partition_properties(quiet).await.unwrap();
        assert_eq!((properties.first.0, properties.last.map(|last| last.sequence.0)), (1, Some(0)));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn readers_that_retention_overtakes_under_load_fail_never_and_count_what_they_missed() {
    const EVENTS: u64 = 4_000;
    for durability in [Durability::Disk, Durability::Memory] {
        for recent_bytes in [0, 3_000] {
            let folder = tempfile::tempdir().unwrap();
            let files: Arc<dyn Files> = match durability {
                Durability::Memory => Arc::new(MemoryFiles::default()),
                _ => Arc::new(DiskFiles::new(folder.path().to_owned())),
            };
            let clock: Arc<dyn Clock> = Arc::new(SystemClock);
            let namespace = LocalNamespace::on(files, settings(durability, recent_bytes), clock).unwrap();
            let hub = HubConfig { retention: BY_SIZE, ..HubConfig::new("homes", 1).unwrap() };
            let hub = namespace.create_hub(hub).unwrap();
            let mut tasks = JoinSet::new();
            for most in [1, 3, 50] {
                let mut reader = hub.reader(FIRST, StartPosition::at(SequenceNumber(0))).await.unwrap();
                tasks.spawn(async move {
                    let (mut expected, mut missed) = (0, 0);
                    while expected < EVENTS {
                        let batch = reader.next(most, usize::MAX).await.unwrap();
                        missed += reader.take_missed();
                        let numbers: Vec<u64> = batch.events().map(|event| event.sequence.0).collect();
                        assert!(numbers[0] >= expected, "{} came again", numbers[0]);
                        missed -= numbers[0] - expected;
                        assert_eq!(missed, 0, "the events missed before {} are reported", numbers[0]);
                        expected = numbers[numbers.len() - 1] + 1;
                    }
                });
            }
            let producer = hub.producer();
            tasks.spawn(async move {
                for _ in 0..EVENTS / 4 {
                    let events = (0..4).map(|_| NewEvent::new(vec![7; 900]));
                    producer.send_batch(Target::Partition(FIRST), events).await.unwrap();
                }
            });
            check(async { drop(tasks.join_all().await) }).await;
            assert_eq!(hub.damage(), []);
            drop(namespace);
        }
    }
}
