//! Saves: one request, if what is known of the checkpoint is still so.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::ids::GroupId;
use ephor_core::record::{self, CheckpointRecord, SaveVerdict};
use ephor_core::rules::Rules;
use ephor_core::store::{Save, SaveRequest, StoreError};
use ephor_core::time::Timestamp;

use super::checkpoint;
use super::container::{Blob, Write};
use super::names::Names;
use super::seals::changing_without_end;
use super::session::{MOST_ATTEMPTS, Session};
use super::standing::read_checkpoint;

impl Session {
    pub(super) async fn save(&self, group: &GroupId, request: &SaveRequest) -> Result<Save, StoreError> {
        let names = self.introduced(group).await?;
        let partition = request.token.partition;
        let mut known = self.checkpoints.get(&names, partition);
        for _ in 0..MOST_ATTEMPTS {
            let by_heart = known.is_some();
            let blob = match known.take() {
                Some(blob) => Some(blob),
                None => self.container.head(&names.checkpoint(partition)).await?.blob,
            };
            let record = self.presented(group, &names, request, blob.as_ref()).await?;
            // The time is that of the write.
            let verdict = record::save(&record, request, Timestamp(0), &Rules::default());
            let SaveVerdict::Write(checkpoint) = verdict else {
                // What is known may be old: only what was just read is an answer.
                if by_heart {
                    continue;
                }
                return Ok(refused(verdict));
            };
            if let Some(saved) = self.write_checkpoint(&names, request, blob.as_ref(), checkpoint).await? {
                return Ok(Save::Saved(saved));
            }
        }
        Err(changing_without_end(partition))
    }

    /// The checkpoint with the seal that the save is held against. Where other SDKs write it, there may be none:
    /// then the lease decides, as far as it goes.
    async fn presented(
        &self,
        group: &GroupId,
        names: &Names,
        request: &SaveRequest,
        blob: Option<&Blob>,
    ) -> Result<CheckpointRecord, StoreError> {
        let partition = request.token.partition;
        let record = read_checkpoint(blob, group, partition)?;
        if !self.shared_with_others() || blob.and_then(checkpoint::seal).is_some() {
            return Ok(record);
        }
        let lease = self.ownership_now(group, names, partition).await?;
        let ours = lease
            .is_some_and(|(lease, _)| lease.foreign.is_none() && lease.record.epoch == request.token.epoch);
        let seal = if ours { request.token.epoch } else { record.seal };
        Ok(CheckpointRecord { seal, ..record })
    }

    async fn write_checkpoint(
        &self,
        names: &Names,
        request: &SaveRequest,
        before: Option<&Blob>,
        checkpoint: Checkpoint,
    ) -> Result<Option<Checkpoint>, StoreError> {
        let partition = request.token.partition;
        let name = names.checkpoint(partition);
        let epoch = request.token.epoch;
        let metadata = checkpoint::saved(before.map(|blob| &blob.metadata), &checkpoint, epoch);
        let write = match before {
            None => self.container.create(&name, &metadata, "").await,
            Some(blob) => self.container.update(&name, &metadata, &blob.stamp.etag).await,
        };
        match write {
            Ok(Write::Done(stamp)) => {
                let saved = Checkpoint { saved_at: stamp.modified, ..checkpoint };
                self.checkpoints.put(names, partition, Blob { metadata, stamp });
                Ok(Some(saved))
            }
            Ok(Write::Refused) => {
                self.checkpoints.forget(names, partition);
                Ok(None)
            }
            Err(error) => {
                self.checkpoints.forget(names, partition);
                Err(error)
            }
        }
    }
}

fn refused(verdict: SaveVerdict) -> Save {
    match verdict {
        SaveVerdict::Write(checkpoint) => Save::Saved(checkpoint),
        SaveVerdict::Behind(stored) => Save::Behind { stored },
        SaveVerdict::Fenced { seal } => Save::Fenced { epoch: seal },
    }
}
