//! Raises the fence of a checkpoint; for a seek, it also overwrites the position. From then on only the new
//! epoch may save, and the position that is read with the fence is the last one of all earlier epochs.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::record::CheckpointRecord;
use ephor_core::store::StoreError;

use crate::azblob::layout::blob_names::Names;
use crate::azblob::operations::partition_state::{damaged, read_checkpoint};
use crate::azblob::records::checkpoint;
use crate::azblob::service::container::{Blob, Write};
use crate::azblob::session::{MAX_ATTEMPTS, Session};

/// The outcome of raising a fence.
pub(in crate::azblob) enum Fencing {
    /// The fence is raised: no earlier epoch can change this checkpoint.
    Fenced(CheckpointRecord),
    /// A later epoch has raised the fence.
    Overtaken,
}

pub(in crate::azblob) fn too_many_conflicts(partition: PartitionId) -> StoreError {
    StoreError::Unavailable(
        format!(
            "other processes change the records of partition {partition} faster than this one can write them; hosts try \
             again by themselves: if this goes on, see who owns it with `ephor lease history`, and stop other programs \
             that write these blobs"
        )
        .into(),
    )
}

impl Session {
    /// Raises the fence to an epoch whose lease is written. Any process that finds a lower fence may do so,
    /// because it is what the owner of that epoch does first.
    pub(in crate::azblob) async fn raise_fence(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
        epoch: Epoch,
        seen: Option<Blob>,
    ) -> Result<Fencing, StoreError> {
        let name = names.checkpoint(partition);
        let mut seen = Some(seen);
        for _ in 0..MAX_ATTEMPTS {
            let blob = match seen.take() {
                Some(blob) => blob,
                None => self.container.head(&name).await?.blob,
            };
            let record = read_checkpoint(blob.as_ref(), group, partition)?;
            let fenced = CheckpointRecord { fence: epoch, ..record.clone() };
            let (metadata, write) = match &blob {
                None => match self.first_checkpoint(group, names, partition, epoch).await? {
                    Some(fenced) => return Ok(Fencing::Fenced(fenced)),
                    None => continue,
                },
                Some(_) if record.fence > epoch => return Ok(Fencing::Overtaken),
                Some(_) if record.fence == epoch => return Ok(Fencing::Fenced(record)),
                Some(blob) => {
                    let metadata = checkpoint::with_fence(blob, &record, epoch);
                    let write = self.container.update(&name, &metadata, &blob.stamp.etag).await?;
                    (metadata, write)
                }
            };
            if let Write::Done(stamp) = write {
                self.checkpoints.put(names, partition, Blob { metadata, stamp });
                return Ok(Fencing::Fenced(fenced));
            }
        }
        Err(too_many_conflicts(partition))
    }

    /// Creates the first checkpoint of a partition: an empty one, or a copy of the one that an SDK has written
    /// under a name in the other case. None if another process was first.
    async fn first_checkpoint(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
        epoch: Epoch,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        let name = self.names_in_other_case(group).map(|other_case| other_case.checkpoint(partition));
        let other_case = match &name {
            Some(name) => self.container.head(name).await?.blob,
            None => None,
        };
        let read = other_case.as_ref().map(checkpoint::read).transpose();
        let mut record = read
            .map_err(|why| {
                let name = name.unwrap_or_default();
                let advice = format!("{why}; it is in the blob {name}: correct the blob, or delete it to start at the initial position");
                damaged("checkpoint", partition, group, &advice)
            })?
            .unwrap_or_default();
        if let Some(checkpoint) = &mut record.checkpoint {
            // Its epoch is of another count.
            checkpoint.epoch = checkpoint.epoch.min(epoch);
        }
        let metadata = match (&other_case, &record.checkpoint) {
            (Some(blob), Some(_)) => {
                tracing::info!(%group, %partition, "continuing from a checkpoint under a name in the other case");
                checkpoint::with_fence(blob, &record, epoch)
            }
            // Other SDKs would start at an empty checkpoint, and not at their initial position.
            _ if self.shared_with_other_sdks() => {
                self.note_no_checkpoint_in_other_case(names, partition, epoch);
                return Ok(Some(CheckpointRecord { fence: epoch, checkpoint: None }));
            }
            _ => checkpoint::synthetic(epoch),
        };
        match self.container.create(&names.checkpoint(partition), &metadata, "").await? {
            Write::Refused => Ok(None),
            Write::Done(stamp) => {
                self.checkpoints.put(names, partition, Blob { metadata, stamp });
                Ok(Some(CheckpointRecord { fence: epoch, ..record }))
            }
        }
    }

    /// Writes a position with a new fence, and overwrites the present one; false if a later epoch was faster.
    pub(in crate::azblob) async fn overwrite_position(
        &self,
        names: &Names,
        partition: PartitionId,
        position: &Checkpoint,
        seen: Option<Blob>,
    ) -> Result<bool, StoreError> {
        let name = names.checkpoint(partition);
        let mut seen = Some(seen);
        for _ in 0..MAX_ATTEMPTS {
            let blob = match seen.take() {
                Some(blob) => blob,
                None => self.container.head(&name).await?.blob,
            };
            if blob.as_ref().and_then(checkpoint::fence).is_some_and(|fence| fence > position.epoch) {
                return Ok(false);
            }
            let metadata =
                checkpoint::write(blob.as_ref().map(|blob| &blob.metadata), position, position.epoch);
            let write = match &blob {
                None => self.container.create(&name, &metadata, "").await?,
                Some(blob) => self.container.update(&name, &metadata, &blob.stamp.etag).await?,
            };
            if write != Write::Refused {
                self.checkpoints.forget(names, partition);
                return Ok(true);
            }
        }
        Err(too_many_conflicts(partition))
    }
}
