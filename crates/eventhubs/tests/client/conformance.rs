//! Tests that the client passes the conformance suites of sources and of producers: over plain TCP, over
//! TLS, and over several connections.

use std::sync::Arc;

use bytes::Bytes;
use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::producer::Producer;
use ephor_core::source::EventSource;
use ephor_eventhubs::{EventHub, EventHubOptions, EventHubProducer, Target};
use ephor_gateway::GatewayConfig;
use ephor_testkit::conformance::producer::ProducerFixture;
use ephor_testkit::conformance::source::SourceFixture;

use crate::common::{AGE, Served, TestHub, quick};

/// A client of a hub in which every event is in a segment of its own.
struct Fixture {
    client: EventHub,
    producer: EventHubProducer,
    test_hub: TestHub,
    _served: Served,
}

impl Fixture {
    async fn make(partitions: u32, tls: bool, connections: usize) -> Self {
        let test_hub = TestHub::new(partitions);
        let served = test_hub.serve_as(GatewayConfig::default(), "127.0.0.1:0", tls).await;
        let client = served.builder().options(EventHubOptions { connections, ..quick() }).build().unwrap();
        Self { producer: client.producer(), client, test_hub, _served: served }
    }

    async fn forget(&self, partition: PartitionId, sequence: SequenceNumber) {
        let at = StartPosition::at(SequenceNumber(sequence.0 - 1));
        let mut reader = self.test_hub.hub.reader(partition, at).await.unwrap();
        let last_to_go = reader.next(1, usize::MAX).await.unwrap().enqueued_at();
        self.test_hub.clock.set(last_to_go.0 + i64::try_from(AGE.as_millis()).unwrap());
        self.test_hub.hub.enforce_retention();
    }
}

macro_rules! conformance {
    ($module:ident, $tls:expr, $connections:expr) => {
        mod $module {
            use super::*;

            struct Here(Fixture);

            impl SourceFixture for Here {
                async fn new(partitions: u32) -> Self {
                    Self(Fixture::make(partitions, $tls, $connections).await)
                }

                fn source(&self) -> &dyn EventSource {
                    &self.0.client
                }

                fn second_group(&self) -> ConsumerGroup {
                    "second".parse().unwrap()
                }

                async fn send(&self, partition: PartitionId, event: NewEvent) {
                    self.0.producer.send_to(partition, event).await.unwrap();
                    self.0.test_hub.hub.seal_segment().unwrap();
                }

                async fn send_with_key(&self, key: &str, body: Bytes) {
                    self.0.producer.send_batch(Target::Key(key), [NewEvent::new(body)]).await.unwrap();
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
                    Arc::new(self.0.producer.clone())
                }

                fn source(&self) -> Arc<dyn EventSource> {
                    Arc::new(self.0.client.clone())
                }
            }

            ephor_testkit::producer_conformance!(Here);
            ephor_testkit::source_conformance!(Here);
            ephor_testkit::event_hubs_conformance!(Here);
        }
    };
}

conformance!(plain, false, 1);
conformance!(tls, true, 1);
conformance!(several_connections, false, 3);
