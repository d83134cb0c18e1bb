//! The stream of ownership changes of one host.

use std::fmt;
use std::pin::Pin;
use std::task::{Context, Poll};

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::{ClaimCause, ReleaseCause};
use ephor_core::time::Timestamp;
use futures_util::stream::{self, Stream, StreamExt};
use tokio::sync::broadcast;

use crate::processor::CloseReason;

/// The number of changes that a slow reader may lag before it misses some.
pub(crate) const MAX_KEPT_CHANGES: usize = 1_024;

/// A partition came to this host or left it.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OwnershipEvent {
    /// The time, by this host's wall clock.
    pub at: Timestamp,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch in which this host owns or owned it.
    pub epoch: Epoch,
    /// The owner before, if known.
    pub from: Option<HostId>,
    /// The owner after, if known.
    pub to: Option<HostId>,
    /// The reason.
    pub reason: OwnershipReason,
}

/// The reason why a partition came or left.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum OwnershipReason {
    /// This host claimed it.
    Claimed(ClaimCause),
    /// Another host handed it over, or a claim of ours turned out to have succeeded.
    Received,
    /// This host handed it over.
    HandedOver,
    /// This host released it.
    Released(ReleaseCause),
    /// This host lost it.
    Lost(CloseReason),
}

impl OwnershipReason {
    /// The label in metrics.
    pub(crate) fn label(self) -> &'static str {
        match self {
            Self::Claimed(ClaimCause::Unowned) => "unowned",
            Self::Claimed(ClaimCause::Expired) => "expired",
            Self::Claimed(ClaimCause::Unresponsive) => "steal",
            Self::Claimed(ClaimCause::AboveForeignReader) => "foreign",
            Self::Received => "handover",
            Self::HandedOver => "handover",
            Self::Released(ReleaseCause::Shutdown) => "shutdown",
            Self::Released(ReleaseCause::ProcessorFailed) => "processor_failed",
            Self::Released(ReleaseCause::SourceFailed) => "source_failed",
            Self::Released(ReleaseCause::Unserved) => "unserved",
            Self::Lost(CloseReason::Seek) => "seek",
            Self::Lost(CloseReason::Disconnected) => "disconnected",
            Self::Lost(_) => "lost",
        }
    }
}

impl fmt::Display for OwnershipEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let name =
            |host: &Option<HostId>| host.as_ref().map_or("nobody".into(), |host| host.name.to_string());
        write!(
            f,
            "partition {} from {} to {} in epoch {}: {}",
            self.partition,
            name(&self.from),
            name(&self.to),
            self.epoch,
            self.reason.label()
        )
    }
}

/// Yields the changes of one host as they happen, from the time of the subscription. It ends once
/// the host is dropped. A reader that lags by more than 1,024 changes misses the oldest of them.
///
/// It is a `Stream` (of the crate `futures-core`) with a `next` of its own.
pub struct OwnershipChanges(Pin<Box<dyn Stream<Item = OwnershipEvent> + Send + Sync>>);

impl OwnershipChanges {
    pub(super) fn new(receiver: broadcast::Receiver<OwnershipEvent>) -> Self {
        Self(Box::pin(stream::unfold(receiver, |mut receiver| async move {
            received(&mut receiver).await.map(|event| (event, receiver))
        })))
    }

    /// The next change; `None` once the host is dropped. Dropping the future loses no change.
    pub async fn next(&mut self) -> Option<OwnershipEvent> {
        StreamExt::next(&mut self.0).await
    }
}

async fn received(receiver: &mut broadcast::Receiver<OwnershipEvent>) -> Option<OwnershipEvent> {
    loop {
        match receiver.recv().await {
            Ok(event) => return Some(event),
            Err(broadcast::error::RecvError::Lagged(missed)) => {
                tracing::warn!(missed, "a reader of ownership changes fell behind");
            }
            Err(broadcast::error::RecvError::Closed) => return None,
        }
    }
}

impl Stream for OwnershipChanges {
    type Item = OwnershipEvent;

    fn poll_next(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<Option<OwnershipEvent>> {
        self.0.as_mut().poll_next(context)
    }
}

impl fmt::Debug for OwnershipChanges {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("OwnershipChanges")
    }
}
