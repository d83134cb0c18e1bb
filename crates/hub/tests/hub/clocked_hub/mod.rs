//! Test helper: a hub with a wall clock and a monotonic clock that the test moves. Its files survive a
//! restart of the hub.
#![allow(clippy::unwrap_used, dead_code, reason = "shared by tests of which none needs all of it")]

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::EventSource;
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_hub::files::MemoryFiles;
use ephor_hub::{Durability, Hub, HubConfig, LocalNamespace, NamespaceConfig, NewEvent, Retention};

pub(crate) const FIRST: PartitionId = PartitionId(0);
pub(crate) const START: i64 = 1_700_000_000_000;
pub(crate) const MINUTE: i64 = 60_000;
pub(crate) const HOUR: i64 = 60 * MINUTE;
pub(crate) const DAY: i64 = 24 * HOUR;
pub(crate) const YEAR: i64 = 365 * DAY;
pub(crate) const RETENTION: i64 = 7 * DAY;

/// Two clocks: one that runs, and one that people set.
#[derive(Debug)]
pub(crate) struct TwoClocks {
    /// Milliseconds that really passed.
    pub(crate) passed: AtomicI64,
    /// How far the wall clock is off.
    pub(crate) off: AtomicI64,
}

impl TwoClocks {
    pub(crate) fn pass(&self, milliseconds: i64) {
        self.passed.fetch_add(milliseconds, Ordering::SeqCst);
    }

    pub(crate) fn set_off(&self, milliseconds: i64) {
        self.off.store(milliseconds, Ordering::SeqCst);
    }

    pub(crate) fn truth(&self) -> i64 {
        START + self.passed.load(Ordering::SeqCst)
    }
}

impl Clock for TwoClocks {
    fn now(&self) -> Monotonic {
        Monotonic(u64::try_from(self.passed.load(Ordering::SeqCst)).unwrap() * 1_000_000)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.truth() + self.off.load(Ordering::SeqCst))
    }
}

/// A hub with small segments whose files outlive it.
pub(crate) struct ClockedHub {
    durability: Durability,
    pub(crate) clock: Arc<TwoClocks>,
    pub(crate) files: Arc<MemoryFiles>,
    open: Option<(LocalNamespace, Hub)>,
    pub(crate) sent: u64,
}

impl ClockedHub {
    pub(crate) fn new(durability: Durability) -> Self {
        eprintln!("durability {durability}");
        let clock = Arc::new(TwoClocks { passed: AtomicI64::new(0), off: AtomicI64::new(0) });
        let mut clocked = Self { durability, clock, files: Arc::default(), open: None, sent: 0 };
        clocked.open();
        clocked
    }

    pub(crate) fn on_disk() -> [Self; 2] {
        [Durability::Disk, Durability::PageCache].map(Self::new)
    }

    pub(crate) fn every_kind() -> [Self; 3] {
        [Durability::Disk, Durability::PageCache, Durability::Memory].map(Self::new)
    }

    pub(crate) fn close(&mut self) {
        self.open = None;
    }

    pub(crate) fn open(&mut self) {
        self.close();
        let age = Some(Duration::from_millis(RETENTION as u64));
        let retention = Retention { age, bytes: None };
        let hub = HubConfig { retention, ..HubConfig::new("homes", 2).unwrap() };
        let config = NamespaceConfig {
            durability: self.durability,
            segment_bytes: 16 << 10,
            hubs: vec![hub],
            ..NamespaceConfig::default()
        };
        let namespace = LocalNamespace::on(self.files.clone(), config, self.clock.clone()).unwrap();
        let hub = namespace.hub("homes").unwrap();
        self.open = Some((namespace, hub));
    }

    pub(crate) fn hub(&self) -> &Hub {
        &self.open.as_ref().unwrap().1
    }

    /// Sends this many events, of which four fill a segment; tells when the last one was stored.
    pub(crate) async fn send(&mut self, count: u64) -> i64 {
        let mut stored = 0;
        for _ in 0..count {
            let sent = self.hub().producer().send_to(FIRST, NewEvent::new(vec![7; 4_000])).await.unwrap();
            assert_eq!(sent.first.0, self.sent);
            self.sent += 1;
            stored = sent.enqueued_at.0;
        }
        stored
    }

    /// Runs for so long. The hub looks at its clocks as often as it would by itself.
    pub(crate) fn run(&self, milliseconds: i64) {
        let mut left = milliseconds;
        while left > 0 {
            let step = left.min(HOUR);
            self.clock.pass(step);
            left -= step;
            self.hub().enforce_retention();
        }
    }

    pub(crate) async fn first(&self) -> u64 {
        self.hub().enforce_retention();
        self.hub().partition_properties(FIRST).await.unwrap().first.0
    }

    pub(crate) async fn assert_all_there(&self, when: &str) {
        assert_eq!(self.first().await, 0, "{when}");
        let mut reader = self.hub().reader(FIRST, StartPosition::Earliest).await.unwrap();
        let mut read = 0;
        while read < self.sent {
            let batch = reader.next(100, usize::MAX).await.unwrap();
            for event in batch.events() {
                assert_eq!(event.sequence.0, read, "{when}");
                read += 1;
            }
        }
        assert_eq!(self.hub().damage(), []);
    }
}
