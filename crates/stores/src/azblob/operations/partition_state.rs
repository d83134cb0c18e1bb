//! Reads the state of a partition, on which an operation bases its decision, and writes epochs and leases.

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::lease::{Lease, LeaseVersion};
use ephor_core::record::{CheckpointRecord, LeaseRecord};
use ephor_core::store::StoreError;
use ephor_core::time::Timestamp;

use crate::azblob::layout::blob_names::Names;
use crate::azblob::layout::metadata::pairs;
use crate::azblob::records::checkpoint;
use crate::azblob::records::ownership::{self, Ownership};
use crate::azblob::renewal::revocations::{KnownBatch, LeaseWithBatch};
use crate::azblob::service::container::{Blob, Write};
use crate::azblob::session::Session;
use crate::record_text::Unreadable;

/// The metadata name in the blob of the highest epoch.
const EPOCH: &str = "epoch";

/// A partition's records at one time.
pub(in crate::azblob) struct PartitionState {
    /// The service's time.
    pub(in crate::azblob) now: Timestamp,
    pub(in crate::azblob) lease: Option<Ownership>,
    /// Its owner's renewal batch.
    pub(in crate::azblob) batch: Option<KnownBatch>,
    /// The highest epoch ever taken.
    pub(in crate::azblob) taken: Epoch,
    taken_etag: Option<String>,
    pub(in crate::azblob) checkpoint: Option<Blob>,
}

pub(in crate::azblob) fn damaged(
    what: &str,
    partition: PartitionId,
    group: &GroupId,
    why: &str,
) -> StoreError {
    StoreError::Damaged { what: format!("the {what} of partition {partition} of {group}: {why}") }
}

/// The error for an unreadable lease. Deleting its blob loses nothing, because the epoch is in another blob.
pub(in crate::azblob) fn damaged_lease(
    names: &Names,
    partition: PartitionId,
    group: &GroupId,
    why: &str,
) -> StoreError {
    let advice = format!(
        "{why}; delete the blob {}, and a host claims the partition again",
        names.ownership(partition)
    );
    damaged("lease", partition, group, &advice)
}

/// Reads the highest epoch ever taken. An unreadable one is an error, because epochs must not be used twice.
pub(in crate::azblob) fn read_epoch(blob: &Blob) -> Result<Epoch, Unreadable> {
    let text = blob.metadata.get(EPOCH).ok_or("the metadata epoch is missing")?;
    let shown = || text.chars().take(40).collect::<String>();
    text.parse()
        .map(Epoch::from_stored)
        .map_err(|_| format!("the metadata epoch is not a number: {:?}", shown()))
}

/// The error for an unreadable highest epoch.
pub(in crate::azblob) fn damaged_epoch(
    names: &Names,
    partition: PartitionId,
    group: &GroupId,
    why: &str,
) -> StoreError {
    let name = names.epoch(partition);
    let advice = format!(
        "{why}; set epoch in the metadata of the blob {name} to a number above every epoch that was used: `ephor lease \
         history` shows the epochs of this store; add one million to be above all others. The owner continues meanwhile, \
         and no other host can claim the partition"
    );
    damaged("highest epoch", partition, group, &advice)
}

impl Session {
    /// Reads the state of a partition and its owner's renewal batch.
    pub(in crate::azblob) async fn read_state_with_batch(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<PartitionState, StoreError> {
        let mut state = self.read_state(group, names, partition).await?;
        if let Some(lease) = state.lease.take() {
            let now = self.with_batch(names, lease, state.now).await?;
            state.set_lease(Some(now));
        }
        Ok(state)
    }

    /// Reads the state of a partition from its own blobs. The time of a batched renewal is then unknown.
    pub(in crate::azblob) async fn read_state(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<PartitionState, StoreError> {
        let lease = names.ownership(partition);
        let taken = names.epoch(partition);
        let checkpoint = names.checkpoint(partition);
        let (first, taken, checkpoint) = futures_util::try_join!(
            self.container.head(&lease),
            self.container.head(&taken),
            self.container.head(&checkpoint)
        )?;
        let highest = taken.blob.as_ref().map(read_epoch).transpose();
        let highest =
            highest.map_err(|why| damaged_epoch(names, partition, group, &why))?.unwrap_or_default();
        let read = |blob: &Blob| ownership::read(partition, blob, highest);
        let lease = first.blob.as_ref().map(read).transpose();
        Ok(PartitionState {
            now: first.at.max(taken.at).max(checkpoint.at),
            lease: lease.map_err(|why| damaged_lease(names, partition, group, &why))?,
            batch: None,
            taken: highest,
            taken_etag: taken.blob.map(|blob| blob.stamp.etag),
            checkpoint: checkpoint.blob,
        })
    }

    /// Reads the lease from its own blob.
    pub(in crate::azblob) async fn ownership_now(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<Option<(Ownership, Timestamp)>, StoreError> {
        let read = self.container.head(&names.ownership(partition)).await?;
        let Some(blob) = read.blob else { return Ok(None) };
        // Our records contain their epoch, and a record of another SDK is not renewed.
        let lease = ownership::read(partition, &blob, Epoch::NONE);
        let lease = lease.map_err(|why| damaged_lease(names, partition, group, &why))?;
        Ok(Some((lease, read.at)))
    }

    /// Takes an epoch, which no other process can take then. False if another process took one first.
    pub(in crate::azblob) async fn take_epoch(
        &self,
        names: &Names,
        partition: PartitionId,
        state: &PartitionState,
        epoch: Epoch,
    ) -> Result<bool, StoreError> {
        let name = names.epoch(partition);
        let metadata = pairs([(EPOCH, epoch.get().to_string())]);
        let write = match &state.taken_etag {
            None => self.container.create(&name, &metadata, "").await?,
            Some(etag) => self.container.update(&name, &metadata, etag).await?,
        };
        Ok(write != Write::Refused)
    }

    /// Writes the lease, if it is unchanged since it was read.
    pub(in crate::azblob) async fn write_lease(
        &self,
        names: &Names,
        before: Option<&Ownership>,
        record: &LeaseRecord,
    ) -> Result<Option<Ownership>, StoreError> {
        let name = names.ownership(record.partition);
        let batch_renewed = self.renews_in_batches() && record.owner.is_some();
        let metadata = ownership::write(record, batch_renewed);
        self.leases.begin_write(names, record.partition);
        let write = match before {
            None => self.container.create(&name, &metadata, "").await?,
            Some(before) => self.container.update(&name, &metadata, &before.etag).await?,
        };
        let Write::Done(stamp) = write else {
            self.leases.forget(names, record.partition);
            return Ok(None);
        };
        let written = Ownership {
            record: LeaseRecord { revision: 0, ..record.clone() },
            etag: stamp.etag,
            other_sdk_owner: None,
            batch_renewed,
            beat: None,
        };
        self.leases.put(names, record.partition, written.clone());
        Ok(Some(written))
    }
}

impl PartitionState {
    /// Replaces the lease by one that was read later.
    pub(in crate::azblob) fn set_lease(&mut self, now: Option<LeaseWithBatch>) {
        (self.lease, self.batch) = (None, None);
        if let Some(LeaseWithBatch { lease, batch, now }) = now {
            (self.lease, self.batch, self.now) = (Some(lease), batch, now);
        }
    }

    pub(in crate::azblob) fn record(&self) -> Option<&LeaseRecord> {
        self.lease.as_ref().map(|lease| &lease.record)
    }

    pub(in crate::azblob) fn version(&self) -> Option<LeaseVersion> {
        self.lease.as_ref().map(Ownership::version)
    }

    /// The lease as a view would show it.
    pub(in crate::azblob) fn seen_lease(&self) -> Option<Lease> {
        self.lease.as_ref().map(|lease| lease.seen_at(self.now))
    }

    /// The epoch that may save.
    pub(in crate::azblob) fn fence(&self) -> Epoch {
        self.checkpoint.as_ref().and_then(checkpoint::fence).unwrap_or_default()
    }

    /// The highest epoch in any of the blobs.
    pub(in crate::azblob) fn highest(&self) -> Epoch {
        self.taken.max(self.fence())
    }

    /// The checkpoint; an error if it is damaged.
    pub(in crate::azblob) fn checkpoint(
        &self,
        group: &GroupId,
        partition: PartitionId,
    ) -> Result<CheckpointRecord, StoreError> {
        read_checkpoint(self.checkpoint.as_ref(), group, partition)
    }
}

pub(in crate::azblob) fn read_checkpoint(
    blob: Option<&Blob>,
    group: &GroupId,
    partition: PartitionId,
) -> Result<CheckpointRecord, StoreError> {
    let read = blob.map(checkpoint::read).transpose();
    Ok(read.map_err(|why| damaged("checkpoint", partition, group, &why))?.unwrap_or_default())
}
