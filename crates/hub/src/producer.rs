//! Sending: one event or a batch, to a partition, by key, or wherever it may go.

use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_core::partition_key;
use ephor_core::position::SequenceNumber;
use ephor_core::time::Timestamp;

use crate::batch::Batch;
use crate::config::Durability;
use crate::error::SendError;
use crate::hub::Hub;
use crate::writer::Stored;

/// Room is made beforehand for at most so many events: the first may be unlike the others.
const MOST_EXPECTED: usize = 256;

/// Where a batch goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Target<'a> {
    /// To the partitions in turn; the keys of the events travel with them and choose nothing.
    #[default]
    Any,
    /// To this partition.
    Partition(PartitionId),
    /// To the partition that the key chooses, as the service would; the key travels with every event.
    Key(&'a str),
}

/// What a sender knows once its events are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Receipt {
    /// Where they are.
    pub partition: PartitionId,
    /// The number of the first; the others follow it.
    pub first: SequenceNumber,
    /// How many there are.
    pub count: usize,
    /// When they were stored, by the hub's clock.
    pub enqueued_at: Timestamp,
    /// What this answer is worth: where the events are now.
    pub durability: Durability,
}

/// Sends to a hub. Clones send to the same hub.
///
/// When a send returns, its events are where the hub's durability says: on
/// disk by default. A batch is stored whole or not at all. Once a send has
/// begun to wait for the disk, dropping its future does not take it back.
#[derive(Clone, Debug)]
pub struct Producer {
    hub: Hub,
}

impl Producer {
    pub(crate) fn new(hub: Hub) -> Self {
        Self { hub }
    }

    /// Sends one event: to the partition that its key chooses, or to the partitions in turn.
    pub async fn send(&self, event: NewEvent) -> Result<Receipt, SendError> {
        let key = event.partition_key.clone();
        let target = key.as_deref().map_or(Target::Any, Target::Key);
        self.send_batch(target, [event]).await
    }

    /// Sends one event to a partition.
    pub async fn send_to(&self, partition: PartitionId, event: NewEvent) -> Result<Receipt, SendError> {
        self.send_batch(Target::Partition(partition), [event]).await
    }

    /// Sends events together: all of them are stored, in this order and one behind the other, or none.
    pub async fn send_batch(
        &self,
        target: Target<'_>,
        events: impl IntoIterator<Item = NewEvent>,
    ) -> Result<Receipt, SendError> {
        let mut batch = self.batch();
        let events = events.into_iter();
        // Events of a batch tend to be alike.
        let mut expected = Some(events.size_hint().0.clamp(1, MOST_EXPECTED));
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
        }
        self.send_encoded(target, batch).await
    }

    /// An empty batch, for events that come one by one or are AMQP messages already.
    pub fn batch(&self) -> Batch {
        Batch::new(self.hub.max_event_bytes())
    }

    /// Sends a batch. With [`Target::Key`] the key only chooses the partition: each event has its own already.
    pub async fn send_encoded(&self, target: Target<'_>, batch: Batch) -> Result<Receipt, SendError> {
        let addressed = self.address(target, &batch)?;
        let stored = self.hub.store(addressed.partition, batch.finish()).await?;
        Ok(addressed.receipt(stored))
    }

    /// Hands a batch over, and returns when it is in the queue of what is to be stored, not when it is stored.
    ///
    /// Dropping the future before it returns takes the batch back, and drops `settled`. From then on nothing takes
    /// the batch back, and `settled` is told whether it is stored, before anybody else is. That is for whoever has to
    /// know it even if nobody is left to wait; it must not block. It is dropped untold if the hub ends in a panic.
    pub async fn enqueue(
        &self,
        target: Target<'_>,
        batch: Batch,
        settled: impl FnOnce(Result<Receipt, SendError>) + Send + 'static,
    ) -> Result<(), SendError> {
        self.enqueue_if(target, batch, || true, settled).await
    }

    /// The same, and `wanted` is asked right before the batch would be stored. If it says no, the batch is not stored, and
    /// `settled` is told [`SendError::OutOfOrder`]. That is for batches that are stored one after the other or not at all:
    /// whoever was told that one failed can still stop those behind it. It must not block either.
    pub async fn enqueue_if(
        &self,
        target: Target<'_>,
        batch: Batch,
        wanted: impl FnOnce() -> bool + Send + 'static,
        settled: impl FnOnce(Result<Receipt, SendError>) + Send + 'static,
    ) -> Result<(), SendError> {
        let addressed = self.address(target, &batch)?;
        let answer =
            move |stored: Result<Stored, SendError>| settled(stored.map(|stored| addressed.receipt(stored)));
        self.hub.enqueue(addressed.partition, batch.finish(), Box::new(wanted), Box::new(answer)).await
    }

    /// Where a batch goes.
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
            Target::Any => self.hub.next_in_turn(partitions),
        };
        Ok(Addressed { partition, count: batch.len(), durability: self.hub.durability() })
    }
}

/// What is known of a batch before it is stored.
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
