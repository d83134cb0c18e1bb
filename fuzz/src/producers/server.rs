//! A gateway over in-memory streams, with a hub whose disk can stall and fail.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::event::{Event, NewEvent};
use ephor_core::ids::PartitionId;
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, Receiver};
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::{Hub, HubConfig, LocalNamespace, NamespaceConfig};
use ephor_runtime::environment::SystemClock;
use tokio::runtime::Runtime;

use super::blocking_files::{Gated, Gates};

/// The hub that all producers send to.
pub(super) const HUB: &str = "homes";
const PARTITION: PartitionId = PartitionId(0);
/// Room for a few batches: more have to wait.
const QUEUE_BYTES: u64 = 1_024;
/// A time limit far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Server {
    pub(super) runtime: Runtime,
    pub(super) served: ServedHub,
    /// The number of producers so far.
    pub(super) producers: i64,
}

/// The gateway, its hub, and the controls of its disk.
pub(super) struct ServedHub {
    pub(super) gateway: Gateway,
    pub(super) gates: Gates,
    hub: Hub,
}

impl Server {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let (files, gates) = Gated::new();
        let config = NamespaceConfig { queue_bytes: QUEUE_BYTES, ..NamespaceConfig::default() };
        let namespace = LocalNamespace::on(files, config, Arc::new(SystemClock)).expect("a namespace");
        let homes = HubConfig { max_event_bytes: QUEUE_BYTES, ..HubConfig::new(HUB, 1).expect("a hub") };
        let hub = namespace.create_hub(homes).expect("a hub");
        let gateway = Gateway::new(Arc::new(namespace), GatewayConfig::default()).expect("a gateway");
        Self { runtime, served: ServedHub { gateway, gates, hub }, producers: 0 }
    }
}

/// Ends a stall first: a hub whose disk does not answer cannot be closed.
impl Drop for Server {
    fn drop(&mut self) {
        self.served.gates.syncs.set_shut(false);
    }
}

impl ServedHub {
    /// The number of events in the hub.
    pub(super) async fn stored_events(&self) -> u64 {
        let described = self.hub.partition_properties(PARTITION).await.expect("a partition");
        described.last.map_or(0, |last| last.sequence.0 + 1)
    }

    /// Waits until everything that was queued is stored or has failed, by sending an event that is stored
    /// after it.
    pub(super) async fn settle(&self) {
        self.hub.producer().send_to(PARTITION, NewEvent::new("")).await.expect("the disk works");
    }

    /// The numbers of the producer's events from this event on.
    pub(super) async fn numbers_from(&self, first: u64, producer: i64) -> Vec<i32> {
        let end = self.stored_events().await;
        if first == end {
            return Vec::new();
        }
        let start = StartPosition::Sequence { number: SequenceNumber(first), inclusive: true };
        let mut reader = self.hub.reader(PARTITION, start).await.expect("a reader");
        let mut events = Vec::<Event>::new();
        while events.last().is_none_or(|event| event.sequence.0 + 1 < end) {
            reader.receive(&mut events, 100).await.expect("events");
        }
        let prefix = format!("{producer}/");
        let number = |event: &Event| event.text()?.strip_prefix(&prefix)?.parse().ok();
        events.iter().filter_map(number).collect()
    }
}

#[expect(clippy::disallowed_methods, reason = "a task that hangs must fail the test")]
pub(super) async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(PATIENCE, future).await else {
        panic!("timeout: waiting for {what}")
    };
    done
}
