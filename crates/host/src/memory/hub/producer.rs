//! Sends to a hub in memory through the interface that all hubs share.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use ephor_core::BoxFuture;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::partition_key;
use ephor_core::producer::{Producer, ProducerError, SendCause, Sent, Target};
use ephor_core::source::SourceError;

use super::MemoryHub;

/// Sends to a hub in memory. Clones send to the same hub.
#[derive(Clone)]
pub struct MemoryProducer {
    hub: MemoryHub,
}

impl MemoryProducer {
    pub(super) fn new(hub: MemoryHub) -> Self {
        Self { hub }
    }

    /// All events are stored in one step, or none.
    fn store(&self, target: Target<'_>, mut events: Vec<NewEvent>) -> Result<Sent, ProducerError> {
        let count = events.len();
        if let Target::Key(key) = target {
            let key: Arc<str> = key.into();
            events.iter_mut().for_each(|event| event.partition_key = Some(key.clone()));
        }
        for (index, event) in events.iter().enumerate() {
            let valid = event.partition_key.as_deref().map_or(Ok(()), partition_key::check);
            valid.map_err(|error| ProducerError::new(0, SendCause::Event { index, error: error.into() }))?;
        }
        let refused = |error: SourceError| ProducerError::new(0, SendCause::Source(error));
        let world = self.hub.read();
        world.answer().map_err(refused)?;
        let partitions = world.partitions.len() as u32;
        // The events without a key stay together.
        let mut any = None;
        let mut by_partition: BTreeMap<PartitionId, Vec<NewEvent>> = BTreeMap::new();
        for event in events {
            let partition = match (target, event.partition_key.as_deref()) {
                (Target::Partition(partition), _) => partition,
                (Target::Any | Target::Key(_), Some(key)) => partition_key::partition_for(key, partitions),
                (Target::Any | Target::Key(_), None) => {
                    *any.get_or_insert_with(|| world.next_round_robin(partitions))
                }
            };
            by_partition.entry(partition).or_default().push(event);
        }
        let found = by_partition
            .into_iter()
            .map(|(id, events)| self.hub.partition(&world, id).map(|partition| (partition, events)));
        let found: Vec<_> = found.collect::<Result<_, SourceError>>().map_err(refused)?;
        let now = self.hub.clock.wall();
        for (partition, events) in found {
            partition.append(events, now);
        }
        Ok(Sent::new(count))
    }
}

impl Producer for MemoryProducer {
    fn send_batch<'a>(
        &'a self,
        target: Target<'a>,
        events: Vec<NewEvent>,
    ) -> BoxFuture<'a, Result<Sent, ProducerError>> {
        Box::pin(async move { self.store(target, events) })
    }
}

impl fmt::Debug for MemoryProducer {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MemoryProducer({}/{})", self.hub.namespace, self.hub.name)
    }
}
