//! Raises the seals that a view finds to be lower than the epoch of their lease, several at a time.
//!
//! Beside other SDKs a partition has no checkpoint before its first save, and each new owner looks once for one under a name of
//! another case. One list answers for all partitions: a request for each, one after the other, would take longer than a host waits.

use std::collections::{BTreeMap, BTreeSet};
use std::pin::pin;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::record::CheckpointRecord;
use ephor_core::store::StoreError;
use futures_util::{StreamExt, stream};

use super::container::Blob;
use super::names::{Kind, Names};
use super::ownership::{self, Ownership};
use super::seals::Sealing;
use super::session::Session;
use super::{checkpoint, failure};

/// A lease whose checkpoint is behind, and that checkpoint.
pub(super) type Behind<'a> = (&'a Ownership, Option<&'a Blob>);

/// What became of each: the checkpoint, or why it is not to be had.
pub(super) type Raised = BTreeMap<PartitionId, Result<Option<CheckpointRecord>, StoreError>>;

impl Session {
    /// Whether the checkpoint may still be changed by an earlier owner, or was listed before it was.
    pub(super) fn is_behind(
        &self,
        group: &GroupId,
        names: &Names,
        blob: &Blob,
        lease: &Ownership,
        seen: Option<&Blob>,
    ) -> bool {
        let ours = blob.metadata.contains_key(ownership::OURS) && lease.record.epoch > Epoch::NONE;
        // Where its owner has neighbours, none is made ahead of the first save, unless there is one under a name of
        // another case: a host that finds none would begin where it is told to.
        let (partition, epoch) = (lease.record.partition, lease.record.epoch);
        let there = seen.is_some()
            || lease.on_roll
            || (self.shared_with_others()
                && self.names_elsewhere(group).is_some()
                && !self.nothing_elsewhere(names, partition, epoch));
        // Who only looks changes nothing.
        !self.is_for_tools()
            && ours
            && there
            && seen.and_then(checkpoint::seal).unwrap_or_default() < lease.record.epoch
    }

    /// Raises all of them. An error of the whole is one that the next partition would meet, too.
    pub(super) async fn raise_all(
        &self,
        group: &GroupId,
        names: &Names,
        behind: &[Behind<'_>],
    ) -> Result<Raised, StoreError> {
        let nowhere = self.look_elsewhere(group, names, behind).await?;
        let open = behind.iter().filter(|(lease, _)| !nowhere.contains(&lease.record.partition));
        let calls = open.map(|(lease, seen)| async move {
            (lease.record.partition, self.raise(group, names, lease, *seen).await)
        });
        // All at hand: nothing is borrowed by a closure that outlives this.
        let calls: Vec<_> = calls.collect();
        let mut calls = pin!(stream::iter(calls).buffer_unordered(self.options.at_once));
        let mut raised = Raised::new();
        while let Some((partition, outcome)) = calls.next().await {
            match outcome {
                Err(error @ (StoreError::Damaged { .. } | StoreError::Refused { .. })) => {
                    raised.insert(partition, Err(error));
                }
                outcome => {
                    raised.insert(partition, Ok(outcome?));
                }
            }
        }
        Ok(raised)
    }

    /// Beside other SDKs: the partitions that have no checkpoint, not even under a name of another case. The list is read when
    /// their leases are written already, as a look at each would be.
    async fn look_elsewhere(
        &self,
        group: &GroupId,
        names: &Names,
        behind: &[Behind<'_>],
    ) -> Result<BTreeSet<PartitionId>, StoreError> {
        let without = || behind.iter().filter(|(_, seen)| seen.is_none()).map(|(lease, _)| &lease.record);
        let elsewhere = self.names_elsewhere(group).filter(|_| self.shared_with_others());
        let Some(elsewhere) = elsewhere.filter(|_| without().next().is_some()) else {
            return Ok(BTreeSet::new());
        };
        let (_, listed) = self.container.list(&elsewhere.checkpoints()).await?;
        let found: BTreeSet<PartitionId> = listed
            .iter()
            .filter_map(|listed| match elsewhere.kind(&listed.name) {
                Some(Kind::Checkpoint(partition)) => Some(partition),
                _ => None,
            })
            .collect();
        let nowhere = without().filter(|lease| !found.contains(&lease.partition));
        Ok(nowhere
            .map(|lease| {
                self.note_nothing_elsewhere(names, lease.partition, lease.epoch);
                lease.partition
            })
            .collect())
    }

    async fn raise(
        &self,
        group: &GroupId,
        names: &Names,
        lease: &Ownership,
        seen: Option<&Blob>,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        let (partition, epoch) = (lease.record.partition, lease.record.epoch);
        match self.seal(group, names, partition, epoch, seen.cloned()).await {
            Ok(Sealing::Sealed(record)) => Ok(Some(record)),
            // Another change is under way: the next view shows it.
            Ok(Sealing::Overtaken) => Ok(None),
            // Who may only look sees what is there.
            Err(error) if failure::lacks_right(&error) => Ok(None),
            Err(error) => Err(error),
        }
    }
}
