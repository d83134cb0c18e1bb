//! Test helper for the KEDA tests: a hub with the real gateway, and a host whose processor handles events one
//! at a time as the test permits. KEDA's formula is in `formula.rs`.

use std::sync::atomic::{AtomicI64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use ephor::{
    BoxError, CheckpointPolicy, Event, EventProcessor, EventProcessorHost, EventProcessorOptions,
    PartitionContext, PartitionManagerOptions,
};
use ephor_core::checkpoint::Position;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::EventSource;
use ephor_core::store::{SeekOutcome, SeekRequest, Store};
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_eventhubs::{ConnectionString, EventHub};
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::files::MemoryFiles;
use ephor_hub::{Durability, Hub, HubConfig, LocalNamespace, NamespaceConfig, NewEvent, Retention};
use ephor_stores::azblob::{BlobOptions, BlobStore, SharedWith};
use tokio::net::TcpListener;
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;

use super::formula::{backlog, blob_of};
use crate::raw_blobs::Raw;
use crate::server::shared;

pub(crate) const PARTITIONS: u32 = 2;
/// Nothing that is to come takes this long.
const PATIENCE: Duration = Duration::from_secs(60);
const AGE: Duration = Duration::from_secs(3_600);
const NAMESPACE: &str = "127.0.0.1";
/// The store writes it in small letters, and so has the trigger to.
const HUB: &str = "Homes";

/// The hub's clock: it stands where it is put. Time passes in between; the clock does not jump.
struct Set(AtomicI64);

impl Clock for Set {
    fn now(&self) -> Monotonic {
        Monotonic(u64::try_from(self.0.load(Ordering::Relaxed)).unwrap_or(0).saturating_mul(1_000_000))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::Relaxed))
    }
}

pub(crate) struct World {
    hub: Hub,
    clock: Arc<Set>,
    connection: ConnectionString,
    /// The container, with what opens it.
    place: String,
    pub(crate) raw: Raw,
    shared_with: SharedWith,
    gateway: JoinHandle<()>,
}

impl World {
    pub(crate) async fn new(shared_with: SharedWith) -> Self {
        static COUNT: AtomicUsize = AtomicUsize::new(0);
        let clock = Arc::new(Set(AtomicI64::new(1_000_000_000_000)));
        let config = NamespaceConfig {
            durability: Durability::Memory,
            segment_bytes: 16 << 10,
            ..NamespaceConfig::default()
        };
        let namespace = LocalNamespace::on(Arc::new(MemoryFiles::default()), config, clock.clone()).unwrap();
        let retention = Retention { age: Some(AGE), bytes: None };
        let hub = HubConfig { retention, ..HubConfig::new(HUB, PARTITIONS).unwrap() };
        let hub = namespace.create_hub(hub).unwrap();
        let gateway = Gateway::new(Arc::new(namespace), GatewayConfig::default()).unwrap();
        let listener = TcpListener::bind((NAMESPACE, 0)).await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let gateway =
            tokio::spawn(async move { gateway.serve(listener, std::future::pending()).await.unwrap() });
        let connection = ConnectionString::development(&NAMESPACE.parse().unwrap(), port, None);
        let number = COUNT.fetch_add(1, Ordering::Relaxed);
        let place = format!("{}Container=keda-{number}", shared().connection_string());
        let raw = Raw::new(shared().port, &place);
        Self { hub, clock, connection, place, raw, shared_with, gateway }
    }

    fn client(&self) -> EventHub {
        EventHub::builder_for(self.connection.clone()).hub(HUB).build().unwrap()
    }

    /// So many events to each of the partitions.
    pub(crate) async fn send(&self, counts: [usize; PARTITIONS as usize]) {
        for (partition, count) in (0..).map(PartitionId).zip(counts) {
            for _ in 0..count {
                // A few of them fill a segment, so that retention takes nothing that it should not.
                let event = NewEvent::new(vec![7; 4_000]);
                self.hub.producer().send_to(partition, event).await.unwrap();
            }
        }
    }

    /// Two hours go by, and all that is there is gone.
    pub(crate) fn retention_takes_all(&self) {
        self.clock.0.fetch_add(2 * 3_600_000, Ordering::Relaxed);
        self.hub.enforce_retention();
    }

    pub(crate) async fn blob(&self, partition: u32) -> Option<std::collections::BTreeMap<String, String>> {
        let hub = HUB.to_lowercase();
        self.raw.metadata(&blob_of(NAMESPACE, &hub, "$Default", partition)).await
    }

    /// What KEDA counts now, in each partition.
    pub(crate) async fn keda(&self) -> Result<Vec<i64>, String> {
        let client = self.client();
        let mut counts = vec![];
        for partition in 0..PARTITIONS {
            let properties = client.partition_properties(PartitionId(partition)).await.unwrap();
            counts.push(backlog(&properties, self.blob(partition).await.as_ref())?);
        }
        Ok(counts)
    }

    pub(crate) async fn keda_counts(&self, expected: [i64; PARTITIONS as usize], when: &str) {
        assert_eq!(self.keda().await, Ok(expected.to_vec()), "{when}");
    }

    /// Waits until KEDA counts this.
    pub(crate) async fn keda_comes_to(&self, expected: [i64; PARTITIONS as usize], when: &str) {
        until(when, async || {
            let counted = self.keda().await;
            if counted == Ok(expected.to_vec()) { Ok(()) } else { Err(counted) }
        })
        .await;
    }

    /// A host that has opened all partitions, and has handed on nothing.
    pub(crate) async fn host(&self, start: StartPosition) -> Host {
        let host = self.begin(start).await;
        until("all partitions are served", async || match host.work.opened.load(Ordering::SeqCst) {
            PARTITIONS => Ok(()),
            other => Err(other),
        })
        .await;
        host
    }

    fn store(&self) -> BlobStore {
        let options = BlobOptions { shared_with: self.shared_with, ..BlobOptions::default() };
        BlobStore::new(&self.place, options).unwrap()
    }

    /// As a person does it, with `ephor checkpoint seek`.
    pub(crate) async fn seek(&self, partition: u32, start: &StartPosition) {
        let store = self.store();
        let group = store.groups().await.unwrap().remove(0);
        let (partition, position) = (PartitionId(partition), Position::Start(start.clone()));
        let request = SeekRequest { partition, position, log: None, by: "ada".into(), force: false };
        assert!(matches!(store.seek(&group, &request).await.unwrap(), SeekOutcome::Done { .. }));
    }

    async fn begin(&self, start: StartPosition) -> Host {
        let store = self.store();
        let options = EventProcessorOptions {
            initial_position: start.into(),
            max_batch_size: 1,
            checkpoint: CheckpointPolicy { spacing: Duration::ZERO, ..CheckpointPolicy::default() },
            ..EventProcessorOptions::default()
        };
        let work = Arc::new(Work::default());
        let shared = work.clone();
        let host = EventProcessorHost::builder(self.client(), store)
            .host_name("a")
            .options(options)
            .manager_options(quick())
            .processor(move |_| WorkingProcessor(shared.clone()))
            .unwrap();
        host.start().await.unwrap();
        Host { host, work }
    }
}

impl Drop for World {
    fn drop(&mut self) {
        self.gateway.abort();
    }
}

fn quick() -> PartitionManagerOptions {
    PartitionManagerOptions {
        lease_duration: Duration::from_secs(10),
        renew_interval: Duration::from_secs(1),
        slow_scan: Duration::from_millis(500),
        fast_scan: Duration::from_millis(250),
        fence_margin: Duration::from_secs(1),
        ..PartitionManagerOptions::default()
    }
}

pub(crate) async fn until<T: std::fmt::Debug>(what: &str, mut look: impl AsyncFnMut() -> Result<(), T>) {
    let began = Instant::now();
    while let Err(instead) = look().await {
        assert!(began.elapsed() < PATIENCE, "{what}: {instead:?}");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

/// What the processors of a host share.
struct Work {
    opened: std::sync::atomic::AtomicU32,
    /// An event is processed for each permit.
    allowed: Semaphore,
    done: Mutex<Vec<(u32, u64)>>,
}

impl Default for Work {
    fn default() -> Self {
        Self { opened: Default::default(), allowed: Semaphore::new(0), done: Mutex::default() }
    }
}

struct WorkingProcessor(Arc<Work>);

impl EventProcessor for WorkingProcessor {
    async fn open(&mut self, _: &PartitionContext) -> Result<(), BoxError> {
        self.0.opened.fetch_add(1, Ordering::SeqCst);
        Ok(())
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        for event in events {
            self.0.allowed.acquire().await?.forget();
            self.0.done.lock().unwrap().push((context.partition().0, event.sequence.0));
            context.checkpoint_at(event).await?;
        }
        Ok(())
    }
}

pub(crate) struct Host {
    host: EventProcessorHost,
    work: Arc<Work>,
}

impl Host {
    /// Lets it process so many events more.
    pub(crate) fn allow(&self, events: usize) {
        self.work.allowed.add_permits(events);
    }

    /// The events that it has processed, by partition and number.
    pub(crate) fn done(&self) -> Vec<(u32, u64)> {
        let mut done = self.work.done.lock().unwrap().clone();
        done.sort_unstable();
        done
    }

    /// Waits until it has processed so many.
    pub(crate) async fn has_done(&self, count: usize) {
        until("events are processed", async || match self.done().len() {
            have if have == count => Ok(()),
            have => Err(have),
        })
        .await;
    }

    /// Stops it. What waits for a permit is given up.
    pub(crate) async fn stop(self) {
        self.work.allowed.close();
        self.host.stop(Duration::from_secs(5)).await.unwrap();
    }
}
