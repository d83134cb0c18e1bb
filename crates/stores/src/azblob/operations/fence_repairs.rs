//! Repairs fences: raises checkpoint fences that a view finds lower than the epoch of their lease, several
//! concurrently.
//!
//! In a group shared with other SDKs a partition has no checkpoint before its first save, and each new
//! owner looks once for a checkpoint under a name in the other case. One listing answers that for all
//! partitions: one request for each would take longer than a host waits.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::record::CheckpointRecord;
use ephor_core::store::{RefusalCause, StoreError};
use futures_util::{StreamExt, stream};

use crate::azblob::layout::blob_names::{Kind, Names};
use crate::azblob::operations::fencing::Fencing;
use crate::azblob::records::checkpoint;
use crate::azblob::records::ownership::{self, Ownership};
use crate::azblob::service::container::Blob;
use crate::azblob::session::Session;

/// A lease whose fence is too low, and its checkpoint.
pub(in crate::azblob) type LowFence<'a> = (&'a Ownership, Option<&'a Blob>);

/// The outcomes: the checkpoint of each partition, or the error.
pub(in crate::azblob) type RepairOutcomes =
    BTreeMap<PartitionId, Result<Option<CheckpointRecord>, StoreError>>;

impl Session {
    /// Whether an earlier owner may still change the checkpoint, or has changed it since it was listed.
    pub(in crate::azblob) fn is_fence_low(
        &self,
        group: &GroupId,
        names: &Names,
        blob: &Blob,
        lease: &Ownership,
        seen: Option<&Blob>,
    ) -> bool {
        let ours = blob.metadata.contains_key(ownership::OURS) && lease.record.epoch > Epoch::NONE;
        // In a group shared with other SDKs the first save creates the checkpoint, unless there is one under a
        // name in the other case: a host that finds none would start at its initial position.
        let (partition, epoch) = (lease.record.partition, lease.record.epoch);
        let there = seen.is_some()
            || lease.batch_renewed
            || (self.shared_with_other_sdks()
                && self.names_in_other_case(group).is_some()
                && !self.no_checkpoint_in_other_case(names, partition, epoch));
        // Tools change nothing.
        !self.is_for_tools()
            && ours
            && there
            && seen.and_then(checkpoint::fence).unwrap_or_default() < lease.record.epoch
    }

    /// Raises all of them. Fails as a whole if the error would affect the next partition, too.
    pub(in crate::azblob) async fn repair_fences(
        &self,
        group: &GroupId,
        names: &Names,
        low: &[LowFence<'_>],
    ) -> Result<RepairOutcomes, StoreError> {
        let nowhere = self.without_checkpoint_in_other_case(group, names, low).await?;
        let open = low.iter().filter(|(lease, _)| !nowhere.contains(&lease.record.partition));
        let calls = open.map(|(lease, seen)| async move {
            (lease.record.partition, self.repair_fence(group, names, lease, *seen).await)
        });
        // Collected first, so that no closure borrows longer than this call.
        let calls: Vec<_> = calls.collect();
        let mut calls = pin!(stream::iter(calls).buffer_unordered(self.options.max_concurrent_requests));
        let mut outcomes = RepairOutcomes::new();
        while let Some((partition, outcome)) = calls.next().await {
            match outcome {
                Err(error @ (StoreError::Damaged { .. } | StoreError::Refused { .. })) => {
                    outcomes.insert(partition, Err(error));
                }
                outcome => {
                    outcomes.insert(partition, Ok(outcome?));
                }
            }
        }
        Ok(outcomes)
    }

    /// In a group shared with other SDKs: the partitions that have no checkpoint, not even under a name in the
    /// other case. The listing happens after their leases were written, as single reads would.
    async fn without_checkpoint_in_other_case(
        &self,
        group: &GroupId,
        names: &Names,
        low: &[LowFence<'_>],
    ) -> Result<BTreeSet<PartitionId>, StoreError> {
        let without = || low.iter().filter(|(_, seen)| seen.is_none()).map(|(lease, _)| &lease.record);
        let other_case = self.names_in_other_case(group).filter(|_| self.shared_with_other_sdks());
        let Some(other_case) = other_case.filter(|_| without().next().is_some()) else {
            return Ok(BTreeSet::new());
        };
        let (_, listed) = self.container.list(&other_case.checkpoints()).await?;
        let found: BTreeSet<PartitionId> = listed
            .iter()
            .filter_map(|listed| match other_case.kind(&listed.name) {
                Some(Kind::Checkpoint(partition)) => Some(partition),
                _ => None,
            })
            .collect();
        let nowhere = without().filter(|lease| !found.contains(&lease.partition));
        Ok(nowhere
            .map(|lease| {
                self.note_no_checkpoint_in_other_case(names, lease.partition, lease.epoch);
                lease.partition
            })
            .collect())
    }

    async fn repair_fence(
        &self,
        group: &GroupId,
        names: &Names,
        lease: &Ownership,
        seen: Option<&Blob>,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        let (partition, epoch) = (lease.record.partition, lease.record.epoch);
        match self.raise_fence(group, names, partition, epoch, seen.cloned()).await {
            Ok(Fencing::Fenced(record)) => Ok(Some(record)),
            // Another change is in progress: the next view shows it.
            Ok(Fencing::Overtaken) => Ok(None),
            // A process that may only read shows what is there.
            Err(StoreError::Refused { cause: RefusalCause::AccessDenied, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
