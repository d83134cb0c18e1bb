//! Runs the conformance suites of event sources and of producers on the embedded hub: acknowledged from
//! disk, acknowledged from the page cache, and in memory.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::producer::Producer;
use ephor_core::source::EventSource;
use ephor_core::time::Clock;
use ephor_hub::config::DEFAULT_RECENT_BYTES;
use ephor_hub::{Durability, Hub, HubConfig, LocalNamespace, NamespaceConfig, Retention};
use ephor_testkit::conformance::producer::ProducerFixture;
use ephor_testkit::conformance::source::SourceFixture;

use crate::common::{Ticking, files_for};

const AGE: Duration = Duration::from_secs(100_000 * 60);
const START: i64 = 1_000_000_000_000;

/// A hub whose every event is in a segment of its own, on a clock that the test moves.
struct Fixture {
    hub: Hub,
    clock: Arc<Ticking>,
    _namespace: LocalNamespace,
    _folder: Option<tempfile::TempDir>,
}

impl Fixture {
    fn make(partitions: u32, durability: Durability, recent_bytes: u64) -> Self {
        // It moves with the events and not by being looked at: others look at it too.
        let clock = Ticking::new(START, 0);
        let (files, folder) = files_for(durability);
        let config = NamespaceConfig { durability, recent_bytes, ..NamespaceConfig::default() };
        let namespace = LocalNamespace::on(files, config, clock.clone()).unwrap();
        let config = HubConfig {
            retention: Retention { age: Some(AGE), bytes: None },
            groups: vec!["second".parse().unwrap()],
            ..HubConfig::new("homes", partitions).unwrap()
        };
        let hub = namespace.create_hub(config).unwrap();
        Self { hub, clock, _namespace: namespace, _folder: folder }
    }

    async fn send_event(&self, partition: PartitionId, event: NewEvent) {
        self.hub.producer().send_to(partition, event).await.unwrap();
        self.clock.set(self.clock.wall().0 + 1);
        self.hub.seal_segment().unwrap();
    }

    async fn forget(&self, partition: PartitionId, sequence: SequenceNumber) {
        let at = StartPosition::at(SequenceNumber(sequence.0 - 1));
        let mut reader = self.hub.reader(partition, at).await.unwrap();
        let last_to_go = reader.next(1, usize::MAX).await.unwrap().enqueued_at();
        self.clock.set(last_to_go.0 + i64::try_from(AGE.as_millis()).unwrap());
        self.hub.enforce_retention();
    }
}

macro_rules! conformance {
    ($module:ident, $durability:expr, $recent_bytes:expr) => {
        mod $module {
            use super::*;

            struct Here(Fixture);

            impl SourceFixture for Here {
                async fn new(partitions: u32) -> Self {
                    Self(Fixture::make(partitions, $durability, $recent_bytes))
                }

                fn source(&self) -> &dyn EventSource {
                    &self.0.hub
                }

                fn second_group(&self) -> ConsumerGroup {
                    "second".parse().unwrap()
                }

                async fn send(&self, partition: PartitionId, event: NewEvent) {
                    self.0.send_event(partition, event).await;
                }

                async fn send_with_key(&self, key: &str, body: Bytes) {
                    let event = NewEvent { partition_key: Some(key.into()), ..NewEvent::new(body) };
                    self.0.hub.producer().send(event).await.unwrap();
                    self.0.clock.set(self.0.clock.wall().0 + 1);
                }

                fn can_forget(&self) -> bool {
                    true
                }

                async fn forget_before(&self, partition: PartitionId, sequence: SequenceNumber) {
                    self.0.forget(partition, sequence).await;
                }
            }

            impl ProducerFixture for Here {
                async fn new(partitions: u32) -> Self {
                    <Self as SourceFixture>::new(partitions).await
                }

                fn producer(&self) -> Arc<dyn Producer> {
                    Arc::new(self.0.hub.producer())
                }

                fn source(&self) -> Arc<dyn EventSource> {
                    Arc::new(self.0.hub.clone())
                }
            }

            ephor_testkit::producer_conformance!(Here);
            ephor_testkit::source_conformance!(Here);
            ephor_testkit::event_hubs_conformance!(Here);
        }
    };
}

// With nothing kept in memory every event is read from its file.
conformance!(on_disk, Durability::Disk, DEFAULT_RECENT_BYTES);
conformance!(from_files, Durability::Disk, 0);
conformance!(page_cache, Durability::PageCache, DEFAULT_RECENT_BYTES);
conformance!(in_memory, Durability::Memory, DEFAULT_RECENT_BYTES);
conformance!(in_memory_from_files, Durability::Memory, 0);
