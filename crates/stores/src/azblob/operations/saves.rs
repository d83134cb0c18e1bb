//! Saves checkpoints: with one request, if the cached checkpoint is still current.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::ids::GroupId;
use ephor_core::record::{self, CheckpointRecord, SaveVerdict};
use ephor_core::rules::Rules;
use ephor_core::store::{SaveOutcome, SaveRequest, StoreError};
use ephor_core::time::Timestamp;

use crate::azblob::layout::blob_names::Names;
use crate::azblob::operations::fencing::too_many_conflicts;
use crate::azblob::operations::partition_state::read_checkpoint;
use crate::azblob::records::checkpoint;
use crate::azblob::service::container::{Blob, Write};
use crate::azblob::session::{MAX_ATTEMPTS, Session};

impl Session {
    pub(in crate::azblob) async fn save(
        &self,
        group: &GroupId,
        request: &SaveRequest,
    ) -> Result<SaveOutcome, StoreError> {
        let names = self.ensure_group(group).await?;
        let partition = request.token.partition;
        let mut known = self.checkpoints.get(&names, partition);
        for _ in 0..MAX_ATTEMPTS {
            let cached = known.is_some();
            let blob = match known.take() {
                Some(blob) => Some(blob),
                None => self.container.head(&names.checkpoint(partition)).await?.blob,
            };
            let record = self.fenced_checkpoint(group, &names, request, blob.as_ref()).await?;
            // The service sets the time.
            let verdict = record::save(&record, request, Timestamp(0), &Rules::default());
            let SaveVerdict::Write(checkpoint) = verdict else {
                // The cache may be outdated: read before refusing.
                if cached {
                    continue;
                }
                return Ok(refused(verdict));
            };
            if let Some(saved) = self.write_checkpoint(&names, request, blob.as_ref(), checkpoint).await? {
                return Ok(SaveOutcome::Saved(saved));
            }
        }
        Err(too_many_conflicts(partition))
    }

    /// The checkpoint with the fence that decides about the save. A checkpoint of another SDK has no fence:
    /// the lease decides then, without a guarantee.
    async fn fenced_checkpoint(
        &self,
        group: &GroupId,
        names: &Names,
        request: &SaveRequest,
        blob: Option<&Blob>,
    ) -> Result<CheckpointRecord, StoreError> {
        let partition = request.token.partition;
        let record = read_checkpoint(blob, group, partition)?;
        if !self.shared_with_other_sdks() || blob.and_then(checkpoint::fence).is_some() {
            return Ok(record);
        }
        let lease = self.ownership_now(group, names, partition).await?;
        let ours = lease.is_some_and(|(lease, _)| {
            lease.other_sdk_owner.is_none() && lease.record.epoch == request.token.epoch
        });
        let fence = if ours { request.token.epoch } else { record.fence };
        Ok(CheckpointRecord { fence, ..record })
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

fn refused(verdict: SaveVerdict) -> SaveOutcome {
    match verdict {
        SaveVerdict::Write(checkpoint) => SaveOutcome::Saved(checkpoint),
        SaveVerdict::Behind(stored) => SaveOutcome::Behind { stored },
        SaveVerdict::Fenced { epoch } => SaveOutcome::Fenced { epoch },
    }
}
