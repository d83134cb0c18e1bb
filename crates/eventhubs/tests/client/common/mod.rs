//! Test helper: the embedded hub, in memory, behind the real gateway on a loopback port of its own.

pub(crate) mod cutting_proxy;
pub(crate) mod faulty_proxy;
pub(crate) mod frames;
pub(crate) mod log;
pub(crate) mod scripted_hub;
pub(crate) mod simulated_outage;
pub(crate) mod slow_proxy;

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ephor_core::event::Event;
use ephor_core::failure_policy::Backoff;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{OpenRequest, Receiver};
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_eventhubs::{ConnectionString, EventHub, EventHubBuilder, EventHubOptions};
use ephor_gateway::{Gateway, GatewayConfig, Tls};
use ephor_hub::files::MemoryFiles;
use ephor_hub::{Durability, Hub, HubConfig, LocalNamespace, NamespaceConfig, Retention};
use tokio::net::TcpListener;
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

/// The retention of the hub, on a clock that the test controls.
pub(crate) const AGE: Duration = Duration::from_secs(100_000 * 60);

/// A clock that advances by one millisecond with every read, and that a test can set.
pub(crate) struct Ticking(AtomicI64);

impl Ticking {
    pub(crate) fn set(&self, wall: i64) {
        self.0.store(wall, Ordering::Relaxed);
    }
}

impl Clock for Ticking {
    fn now(&self) -> Monotonic {
        // The monotonic clock follows the wall clock: setting it looks like time that passes, not like a
        // jump.
        let wall = self.0.load(Ordering::Relaxed);
        Monotonic(u64::try_from(wall).unwrap_or(0).saturating_mul(1_000_000))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

/// A hub that outlives its gateways.
pub(crate) struct TestHub {
    pub(crate) hub: Hub,
    pub(crate) clock: Arc<Ticking>,
    namespace: Arc<LocalNamespace>,
    certificates: tempfile::TempDir,
}

impl TestHub {
    /// A hub called `homes` with a second group called `second`.
    pub(crate) fn new(partitions: u32) -> Self {
        Self::with_groups(partitions, ["second".to_owned()])
    }

    /// A hub called `homes` with these groups.
    pub(crate) fn with_groups(partitions: u32, groups: impl IntoIterator<Item = String>) -> Self {
        Self::with(HubConfig {
            retention: Retention { age: Some(AGE), bytes: None },
            groups: groups.into_iter().map(|group| group.parse().unwrap()).collect(),
            ..HubConfig::new("homes", partitions).unwrap()
        })
    }

    /// A hub with this configuration, in memory.
    pub(crate) fn with(config: HubConfig) -> Self {
        let clock = Arc::new(Ticking(AtomicI64::new(1_000_000_000_000)));
        let memory = NamespaceConfig { durability: Durability::Memory, ..NamespaceConfig::default() };
        let namespace = LocalNamespace::on(Arc::new(MemoryFiles::default()), memory, clock.clone()).unwrap();
        let hub = namespace.create_hub(config).unwrap();
        let certificates = tempfile::tempdir().unwrap();
        Self { hub, clock, namespace: Arc::new(namespace), certificates }
    }

    /// Deletes the hub and creates another of the same name, with as many partitions and no events.
    pub(crate) fn recreate(&mut self) {
        let config = HubConfig::new("homes", self.hub.partition_count()).unwrap();
        self.namespace.delete_hub("homes").unwrap();
        self.hub = self.namespace.create_hub(config).unwrap();
    }

    /// Serves the hub with the development key.
    pub(crate) async fn serve(&self) -> Served {
        self.serve_as(GatewayConfig::default(), "127.0.0.1:0", false).await
    }

    pub(crate) async fn serve_as(&self, config: GatewayConfig, address: &str, tls: bool) -> Served {
        let gateway = Gateway::new(self.namespace.clone(), config).unwrap();
        let listener = TcpListener::bind(address).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (stop, stopped) = oneshot::channel::<()>();
        let shutdown = async move { drop(stopped.await) };
        let (tls, certificate) = match tls {
            true => {
                let (tls, path) =
                    Tls::for_development(self.certificates.path(), &["localhost", "127.0.0.1"]).unwrap();
                (Some(tls), Some(std::fs::read(path).unwrap()))
            }
            false => (None, None),
        };
        let task = tokio::spawn(async move {
            match tls {
                Some(tls) => gateway.serve_tls(listener, &tls, shutdown).await.unwrap(),
                None => gateway.serve(listener, shutdown).await.unwrap(),
            }
        });
        Served { address, stop: Some(stop), task, certificate }
    }
}

/// A running gateway; dropping it stops it.
pub(crate) struct Served {
    pub(crate) address: SocketAddr,
    stop: Option<oneshot::Sender<()>>,
    task: JoinHandle<()>,
    certificate: Option<Vec<u8>>,
}

impl Served {
    /// A client of this gateway.
    pub(crate) fn client(&self) -> EventHub {
        self.builder().build().unwrap()
    }

    pub(crate) fn builder(&self) -> EventHubBuilder {
        self.builder_at(self.address)
    }

    /// A client that connects through another address.
    pub(crate) fn builder_at(&self, address: SocketAddr) -> EventHubBuilder {
        let builder = match &self.certificate {
            None => {
                let host = address.ip().to_string().parse().unwrap();
                EventHub::builder_for(ConnectionString::development(&host, address.port(), None))
            }
            Some(pem) => EventHub::builder(&format!(
                "Endpoint=sb://localhost:{};SharedAccessKeyName=RootManageSharedAccessKey;\
                 SharedAccessKey=SAS_KEY_VALUE",
                address.port()
            ))
            .address(address.ip().to_string(), address.port())
            .extra_root(pem.clone()),
        };
        builder.hub("homes").options(quick())
    }

    /// Stops it gracefully.
    pub(crate) async fn stop(mut self) {
        drop(self.stop.take());
        (&mut self.task).await.unwrap();
    }

    /// Stops it abruptly.
    pub(crate) fn kill(self) {}
}

impl Drop for Served {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Options for tests with frequent faults.
pub(crate) fn quick() -> EventHubOptions {
    EventHubOptions {
        backoff: Backoff { first: Duration::from_millis(5), max: Duration::from_millis(100) },
        attempts: 20,
        ..EventHubOptions::default()
    }
}

/// A receiver of the first partition, from the beginning.
pub(crate) fn request(name: &str, epoch: Option<u64>) -> OpenRequest {
    OpenRequest {
        group: ConsumerGroup::default_group(),
        partition: PartitionId(0),
        start: StartPosition::Earliest,
        epoch: epoch.map(ephor_core::epoch::Epoch::from_stored),
        receiver: name.into(),
        prefetch_events: 300,
        prefetch_bytes: 1 << 20,
    }
}

/// Receives until there are `count` events.
pub(crate) async fn receive(receiver: &mut Box<dyn Receiver>, count: usize) -> Vec<Event> {
    let mut events = Vec::new();
    while events.len() < count {
        let left = count - events.len();
        receiver.receive(&mut events, left).await.unwrap();
    }
    events
}

pub(crate) fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.text().unwrap()).collect()
}

/// Fails a test that hangs.
pub(crate) async fn within<T>(seconds: u64, what: impl Future<Output = T>) -> T {
    tokio::time::timeout(Duration::from_secs(seconds), what).await.expect("nothing happened for too long")
}
