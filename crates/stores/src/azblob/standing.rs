//! How a partition stands: what is read before something is decided.

use ephor_core::epoch::Epoch;
use ephor_core::ids::{GroupId, PartitionId};
use ephor_core::lease::{Lease, LeaseVersion};
use ephor_core::record::{CheckpointRecord, LeaseRecord};
use ephor_core::store::StoreError;
use ephor_core::time::Timestamp;

use super::checkpoint;
use super::container::{Blob, Write};
use super::metadata::pairs;
use super::names::Names;
use super::ownership::{self, Ownership};
use super::session::Session;
use super::strikes::{Enrolled, KnownRoll};
use crate::text::Unreadable;

/// In the blob of the highest epoch.
const EPOCH: &str = "epoch";

/// A partition's records at one moment.
pub(super) struct Standing {
    /// The service's time.
    pub(super) now: Timestamp,
    pub(super) lease: Option<Ownership>,
    /// Its owner's roll.
    pub(super) roll: Option<KnownRoll>,
    /// The highest epoch ever taken.
    pub(super) taken: Epoch,
    taken_etag: Option<String>,
    pub(super) checkpoint: Option<Blob>,
}

pub(super) fn damaged(what: &str, partition: PartitionId, group: &GroupId, why: &str) -> StoreError {
    StoreError::Damaged { what: format!("the {what} of partition {partition} of {group}: {why}") }
}

/// A lease that cannot be read, and what to do about it: its epoch is in another blob, so that nothing is lost with it.
pub(super) fn damaged_lease(names: &Names, partition: PartitionId, group: &GroupId, why: &str) -> StoreError {
    let mend = format!("{why}; delete the blob {}, and it is claimed anew", names.ownership(partition));
    damaged("lease", partition, group, &mend)
}

/// The highest epoch that was ever taken. One that cannot be read is no zero: epochs would be given out again.
pub(super) fn read_epoch(blob: &Blob) -> Result<Epoch, Unreadable> {
    let text = blob.metadata.get(EPOCH).ok_or("the metadata epoch is missing")?;
    let shown = || text.chars().take(40).collect::<String>();
    text.parse()
        .map(Epoch::from_stored)
        .map_err(|_| format!("the metadata epoch is no number: {:?}", shown()))
}

/// The same with what to do about it.
pub(super) fn damaged_epoch(names: &Names, partition: PartitionId, group: &GroupId, why: &str) -> StoreError {
    let name = names.epoch(partition);
    let mend = format!(
        "{why}; set epoch in the metadata of the blob {name} to a number above every epoch that was used: `ephor lease \
         history` shows those of this store, and one million more is above all others. Its owner goes on meanwhile, and \
         nobody else can claim it"
    );
    damaged("highest epoch", partition, group, &mend)
}

impl Session {
    /// How a partition stands, with its owner's roll.
    pub(super) async fn standing_on_roll(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<Standing, StoreError> {
        let mut standing = self.standing(group, names, partition).await?;
        if let Some(lease) = standing.lease.take() {
            let now = self.with_roll(names, lease, standing.now).await?;
            standing.put_lease(Some(now));
        }
        Ok(standing)
    }

    /// The same by its own blobs alone: when its owner renewed last is then unknown.
    pub(super) async fn standing(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<Standing, StoreError> {
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
        Ok(Standing {
            now: first.at.max(taken.at).max(checkpoint.at),
            lease: lease.map_err(|why| damaged_lease(names, partition, group, &why))?,
            roll: None,
            taken: highest,
            taken_etag: taken.blob.map(|blob| blob.stamp.etag),
            checkpoint: checkpoint.blob,
        })
    }

    /// The lease as its own blob says it now.
    pub(super) async fn ownership_now(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<Option<(Ownership, Timestamp)>, StoreError> {
        let read = self.container.head(&names.ownership(partition)).await?;
        let Some(blob) = read.blob else { return Ok(None) };
        // A record of ours knows its epoch, and what is foreign is nobody's to renew.
        let lease = ownership::read(partition, &blob, Epoch::NONE);
        let lease = lease.map_err(|why| damaged_lease(names, partition, group, &why))?;
        Ok(Some((lease, read.at)))
    }

    /// Takes an epoch: nobody else will ever have it, whatever becomes of the lease. False if somebody took one first.
    pub(super) async fn take_epoch(
        &self,
        names: &Names,
        partition: PartitionId,
        standing: &Standing,
        epoch: Epoch,
    ) -> Result<bool, StoreError> {
        let name = names.epoch(partition);
        let metadata = pairs([(EPOCH, epoch.get().to_string())]);
        let write = match &standing.taken_etag {
            None => self.container.create(&name, &metadata, "").await?,
            Some(etag) => self.container.update(&name, &metadata, etag).await?,
        };
        Ok(write != Write::Refused)
    }

    /// Writes the lease, if it is as it was read.
    pub(super) async fn write_lease(
        &self,
        names: &Names,
        before: Option<&Ownership>,
        record: &LeaseRecord,
    ) -> Result<Option<Ownership>, StoreError> {
        let name = names.ownership(record.partition);
        let on_roll = self.by_roll() && record.owner.is_some();
        let metadata = ownership::write(record, on_roll);
        self.leases.doubt(names, record.partition);
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
            foreign: None,
            on_roll,
            beat: None,
        };
        self.leases.put(names, record.partition, written.clone());
        Ok(Some(written))
    }
}

impl Standing {
    /// The lease was read anew.
    pub(super) fn put_lease(&mut self, now: Option<Enrolled>) {
        (self.lease, self.roll) = (None, None);
        if let Some(Enrolled { lease, roll, now }) = now {
            (self.lease, self.roll, self.now) = (Some(lease), roll, now);
        }
    }

    pub(super) fn record(&self) -> Option<&LeaseRecord> {
        self.lease.as_ref().map(|lease| &lease.record)
    }

    pub(super) fn version(&self) -> Option<LeaseVersion> {
        self.lease.as_ref().map(Ownership::version)
    }

    /// The lease as a view would show it.
    pub(super) fn seen_lease(&self) -> Option<Lease> {
        self.lease.as_ref().map(|lease| lease.seen_at(self.now))
    }

    /// The epoch that may save.
    pub(super) fn seal(&self) -> Epoch {
        self.checkpoint.as_ref().and_then(checkpoint::seal).unwrap_or_default()
    }

    /// The highest epoch that is written anywhere.
    pub(super) fn highest(&self) -> Epoch {
        self.taken.max(self.seal())
    }

    /// The checkpoint; damage is an error.
    pub(super) fn checkpoint(
        &self,
        group: &GroupId,
        partition: PartitionId,
    ) -> Result<CheckpointRecord, StoreError> {
        read_checkpoint(self.checkpoint.as_ref(), group, partition)
    }
}

pub(super) fn read_checkpoint(
    blob: Option<&Blob>,
    group: &GroupId,
    partition: PartitionId,
) -> Result<CheckpointRecord, StoreError> {
    let read = blob.map(checkpoint::read).transpose();
    Ok(read.map_err(|why| damaged("checkpoint", partition, group, &why))?.unwrap_or_default())
}
