//! Seals: from then on only the new epoch may save, and the position that is read with it is the last of all before.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::record::CheckpointRecord;
use ephor_core::store::StoreError;

use super::checkpoint;
use super::container::{Blob, Write};
use super::names::Names;
use super::session::{MOST_ATTEMPTS, Session};
use super::standing::{damaged, read_checkpoint};

/// How a seal ended.
pub(super) enum Sealing {
    /// This is the checkpoint, and no earlier epoch can change it any more.
    Sealed(CheckpointRecord),
    /// A later epoch has sealed it.
    Overtaken,
}

pub(super) fn changing_without_end(partition: PartitionId) -> StoreError {
    StoreError::Unavailable(
        format!("the records of partition {partition} change faster than they can be written").into(),
    )
}

impl Session {
    /// Raises the seal to an epoch whose lease is written already. Whoever sees that it is lower may do so: it is
    /// what the owner of that epoch does first.
    pub(super) async fn seal(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
        epoch: Epoch,
        seen: Option<Blob>,
    ) -> Result<Sealing, StoreError> {
        let name = names.checkpoint(partition);
        let mut seen = Some(seen);
        for _ in 0..MOST_ATTEMPTS {
            let blob = match seen.take() {
                Some(blob) => blob,
                None => self.container.head(&name).await?.blob,
            };
            let record = read_checkpoint(blob.as_ref(), group, partition)?;
            let sealed = CheckpointRecord { seal: epoch, ..record.clone() };
            let (metadata, write) = match &blob {
                None => match self.first(group, names, partition, epoch).await? {
                    Some(sealed) => return Ok(Sealing::Sealed(sealed)),
                    None => continue,
                },
                Some(_) if record.seal > epoch => return Ok(Sealing::Overtaken),
                Some(_) if record.seal == epoch => return Ok(Sealing::Sealed(record)),
                Some(blob) => {
                    let metadata = checkpoint::reseal(blob, &record, epoch);
                    let write = self.container.update(&name, &metadata, &blob.stamp.etag).await?;
                    (metadata, write)
                }
            };
            if let Write::Done(stamp) = write {
                self.checkpoints.put(names, partition, Blob { metadata, stamp });
                return Ok(Sealing::Sealed(sealed));
            }
        }
        Err(changing_without_end(partition))
    }

    /// The first checkpoint of a partition: one that says nothing, or what an SDK that writes names in the other case has
    /// written elsewhere. None if somebody else was first.
    async fn first(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
        epoch: Epoch,
    ) -> Result<Option<CheckpointRecord>, StoreError> {
        let name = self.names_elsewhere(group).map(|elsewhere| elsewhere.checkpoint(partition));
        let elsewhere = match &name {
            Some(name) => self.container.head(name).await?.blob,
            None => None,
        };
        let read = elsewhere.as_ref().map(checkpoint::read).transpose();
        let mut record = read
            .map_err(|why| {
                let name = name.unwrap_or_default();
                let mend = format!("{why}; it is in the blob {name}: correct it, or delete it to begin anew");
                damaged("checkpoint", partition, group, &mend)
            })?
            .unwrap_or_default();
        if let Some(checkpoint) = &mut record.checkpoint {
            // Epochs there are not of this count.
            checkpoint.epoch = checkpoint.epoch.min(epoch);
        }
        let metadata = match (&elsewhere, &record.checkpoint) {
            (Some(blob), Some(_)) => {
                tracing::info!(%group, %partition, "goes on from a checkpoint under a name of another case");
                checkpoint::reseal(blob, &record, epoch)
            }
            // Other SDKs would begin there instead of where they are told to.
            _ if self.shared_with_others() => {
                self.note_nothing_elsewhere(names, partition, epoch);
                return Ok(Some(CheckpointRecord { seal: epoch, checkpoint: None }));
            }
            _ => checkpoint::synthetic(epoch),
        };
        match self.container.create(&names.checkpoint(partition), &metadata, "").await? {
            Write::Refused => Ok(None),
            Write::Done(stamp) => {
                self.checkpoints.put(names, partition, Blob { metadata, stamp });
                Ok(Some(CheckpointRecord { seal: epoch, ..record }))
            }
        }
    }

    /// Writes a position under a new seal, over whatever is there; false if a later epoch was faster.
    pub(super) async fn overwrite(
        &self,
        names: &Names,
        partition: PartitionId,
        position: &Checkpoint,
        seen: Option<Blob>,
    ) -> Result<bool, StoreError> {
        let name = names.checkpoint(partition);
        let mut seen = Some(seen);
        for _ in 0..MOST_ATTEMPTS {
            let blob = match seen.take() {
                Some(blob) => blob,
                None => self.container.head(&name).await?.blob,
            };
            if blob.as_ref().and_then(checkpoint::seal).is_some_and(|seal| seal > position.epoch) {
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
        Err(changing_without_end(partition))
    }
}
