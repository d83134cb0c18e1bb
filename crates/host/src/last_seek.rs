//! Finds the seek that set the position at which a processor starts, in the store's history of
//! ownership.
//!
//! A seek takes an epoch of its own and writes its position in that epoch, so the epoch of a
//! checkpoint tells whether a seek or an owner wrote it.

use ephor_core::epoch::Epoch;
use ephor_core::history::{ChangeReason, OwnershipChange};
use ephor_core::store::MAX_HISTORY_PER_PARTITION;
use ephor_core::time::Timestamp;

use crate::context::PartitionContext;
use crate::error::StoreCallError;

/// A seek: an operator moved the position of a partition.
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct LastSeek {
    /// The epoch that the seek took. It identifies the seek: every later one has a higher epoch.
    pub epoch: Epoch,
    /// The time of the seek, by the store's clock.
    pub at: Timestamp,
    /// The name of the operator.
    pub by: String,
}

impl PartitionContext {
    /// The seek after which this owner starts; `None` if the position at which it starts was not
    /// set by a seek. Asks the store, so call it once, in `open`.
    ///
    /// Code that recognises repeated events by their sequence numbers ignores everything that a
    /// seek brings back. So it stores the epoch of the last seek that it has followed with its
    /// results, and forgets the numbers when `last_seek()` returns a higher one. It is the same seek,
    /// with the same epoch, for every owner until a checkpoint is written after it.
    ///
    /// A store that keeps no history (the blobs of the old Event Processor Host) always returns
    /// `None`.
    pub async fn last_seek(&self) -> Result<Option<LastSeek>, StoreCallError> {
        let Some(written_in) = self.inner().start_epoch else { return Ok(None) };
        let max = usize::from(MAX_HISTORY_PER_PARTITION);
        let changes = self.inner().store.history(self.partition(), max).await?;
        Ok(changes.into_iter().find_map(|change| seek_in(change, written_in)))
    }
}

/// The change as a seek, if it is the one that took this epoch.
fn seek_in(change: OwnershipChange, epoch: Epoch) -> Option<LastSeek> {
    match change.reason {
        ChangeReason::Seek { by } if change.epoch == epoch => Some(LastSeek { epoch, at: change.at, by }),
        _ => None,
    }
}
