//! Sends one event or a batch: to a partition, by partition key, or round-robin. `producer_trait.rs` implements
//! the interface that all hubs share.

mod producer_trait;

use std::sync::Arc;

use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::partition_key;
use ephor_core::position::SequenceNumber;
use ephor_core::producer::Target;
use ephor_core::time::Timestamp;

use crate::appender::Stored;
use crate::batch::Batch;
use crate::config::Durability;
use crate::error::SendError;
use crate::hub::Hub;

/// Memory is reserved for at most this many events, by the size of the first one.
const MAX_EXPECTED: usize = 256;

/// The acknowledgement of stored events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Receipt {
    /// Their partition.
    pub partition: PartitionId,
    /// The sequence number of the first event; the others follow it.
    pub first: SequenceNumber,
    /// The number of events.
    pub count: usize,
    /// When they were stored, by the hub's clock.
    pub enqueued_at: Timestamp,
    /// The guarantee of the acknowledgement.
    pub durability: Durability,
}

/// Sends to a hub. Clones send to the same hub.
///
/// When a send returns, its events are stored as the hub's durability says: on disk by default. A batch is stored whole
/// or not at all. Once a send waits for the disk, dropping its future does not cancel it.
///
/// It is also a [`Producer`](ephor_core::producer::Producer), as those of other hubs are. That one takes events with
/// different keys in one batch, and of any size together.
#[derive(Clone, Debug)]
pub struct HubProducer {
    hub: Hub,
}

impl HubProducer {
    pub(crate) fn new(hub: Hub) -> Self {
        Self { hub }
    }

    /// Sends one event: to the partition that its key selects, or round-robin if it has no key.
    pub async fn send(&self, event: NewEvent) -> Result<Receipt, SendError> {
        self.send_batch(Target::Any, [event]).await
    }

    /// Sends one event to a partition.
    pub async fn send_to(&self, partition: PartitionId, event: NewEvent) -> Result<Receipt, SendError> {
        self.send_batch(Target::Partition(partition), [event]).await
    }

    /// Sends events together: all of them are stored in one partition, in this order and without gaps, or none.
    ///
    /// With [`Target::Any`] the key of the events selects the partition; without keys it is round-robin. Events with
    /// different keys cannot be stored together ([`SendError::DifferentKeys`]).
    pub async fn send_batch(
        &self,
        target: Target<'_>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Result<Receipt, SendError> {
        let mut batch = self.batch();
        let events = events.into_iter();
        // Events of a batch tend to have the same size.
        let mut expected = Some(events.size_hint().0.clamp(1, MAX_EXPECTED));
        // The key of the events, if it selects the partition.
        let mut own: Option<Arc<str>> = None;
        for mut event in events {
            if let Target::Key(key) = target {
                event.partition_key = Some(match event.partition_key.take() {
                    Some(own) if &*own == key => own,
                    _ => key.into(),
                });
            }
            if let Some(expected) = expected.take() {
                batch.reserve(expected, event.body.len());
            }
            batch.push(&event)?;
            if let (Target::Any, Some(key)) = (target, event.partition_key) {
                match &own {
                    None => own = Some(key),
                    Some(own) if *own == key => {}
                    Some(_) => return Err(SendError::DifferentKeys),
                }
            }
        }
        self.send_encoded(own.as_deref().map_or(target, Target::Key), batch).await
    }

    /// Returns an empty batch, for events that come one by one or are AMQP messages already.
    pub fn batch(&self) -> Batch {
        Batch::new(self.hub.max_event_bytes())
    }

    /// Sends a batch. Its events are encoded already, so their keys are neither changed nor looked at: [`Target::Key`]
    /// only selects the partition, and [`Target::Any`] is round-robin.
    pub async fn send_encoded(&self, target: Target<'_>, batch: Batch) -> Result<Receipt, SendError> {
        let addressed = self.address(target, &batch)?;
        let stored = self.hub.store(addressed.partition, batch.finish()).await?;
        Ok(addressed.receipt(stored))
    }

    /// Puts a batch into the commit queue. Returns when it is queued, not when it is stored.
    ///
    /// Dropping the future before it returns takes the batch back, and drops `on_result`. After that, the batch cannot be
    /// cancelled, and `on_result` is called with the result, also if the caller is gone. It must not block. It is dropped
    /// without a call if the hub ends by a panic.
    pub async fn enqueue(
        &self,
        target: Target<'_>,
        batch: Batch,
        on_result: impl FnOnce(Result<Receipt, SendError>) + Send + 'static,
    ) -> Result<(), SendError> {
        self.enqueue_if(target, batch, || true, on_result).await
    }

    /// Like [`Self::enqueue`], but calls `wanted` right before the batch is stored. If it returns false, the batch is not
    /// stored, and `on_result` gets [`SendError::OutOfOrder`]. With it a caller whose batch failed stops the batches queued
    /// after it, to keep their order. It must not block either.
    pub async fn enqueue_if(
        &self,
        target: Target<'_>,
        batch: Batch,
        wanted: impl FnOnce() -> bool + Send + 'static,
        on_result: impl FnOnce(Result<Receipt, SendError>) + Send + 'static,
    ) -> Result<(), SendError> {
        let addressed = self.address(target, &batch)?;
        let answer = move |stored: Result<Stored, SendError>| {
            on_result(stored.map(|stored| addressed.receipt(stored)))
        };
        self.hub.enqueue(addressed.partition, batch.finish(), Box::new(wanted), Box::new(answer)).await
    }

    /// Selects the partition of a batch.
    fn address(&self, target: Target<'_>, batch: &Batch) -> Result<Addressed, SendError> {
        if batch.is_empty() {
            return Err(SendError::EmptyBatch);
        }
        let partitions = self.hub.partition_count();
        let partition = match target {
            Target::Partition(partition) if partition.0 < partitions => partition,
            Target::Partition(partition) => {
                return Err(SendError::NoSuchPartition {
                    hub: self.hub.name().clone(),
                    partition,
                    partitions,
                });
            }
            Target::Key(key) => partition_key::partition_for(key, partitions),
            Target::Any => self.hub.next_round_robin(partitions),
        };
        Ok(Addressed { partition, count: batch.len(), durability: self.hub.durability() })
    }
}

/// The part of a receipt that is known before the batch is stored.
#[derive(Clone, Copy)]
struct Addressed {
    partition: PartitionId,
    count: usize,
    durability: Durability,
}

impl Addressed {
    fn receipt(self, Stored { first, enqueued_at }: Stored) -> Receipt {
        let Self { partition, count, durability } = self;
        Receipt { partition, first, count, enqueued_at, durability }
    }
}
