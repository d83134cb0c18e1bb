//! Reads renewal batches and revokes leases in them. A takeover revokes a lease in its owner's batch first.
//!
//! A renewal and a takeover conflict at that blob: a lease that is revoked is not renewed, a lease that is
//! renewed gets another version, and a revocation that did not see the renewal is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::store::StoreError;
use ephor_core::time::Timestamp;

use crate::azblob::layout::blob_names::Names;
use crate::azblob::records::ownership::Ownership;
use crate::azblob::renewal::batch::{RenewalBatch, batch_number};
use crate::azblob::service::container::Write;
use crate::azblob::session::{Session, locked};

/// A batch in one state of its blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::azblob) struct KnownBatch {
    pub(in crate::azblob) batch: RenewalBatch,
    pub(in crate::azblob) etag: String,
}

/// Serializes the writes of a batch, and caches its last known state.
type Cell = Arc<tokio::sync::Mutex<Option<KnownBatch>>>;

/// The batches that this process knows, by the names of their blobs.
#[derive(Default)]
pub(in crate::azblob) struct KnownBatches {
    cells: Mutex<BTreeMap<String, Cell>>,
    /// The last beat of each batch, and when it was first seen.
    seen: Mutex<BTreeMap<String, (u64, Instant)>>,
}

impl KnownBatches {
    pub(in crate::azblob) fn cell(&self, name: &str) -> Cell {
        locked(&self.cells).entry(name.to_owned()).or_default().clone()
    }

    /// Drops the unused batches that fail `keep`.
    pub(in crate::azblob) fn retain(&self, mut keep: impl FnMut(&str) -> bool) {
        locked(&self.cells).retain(|name, cell| Arc::strong_count(cell) > 1 || keep(name));
        locked(&self.seen).retain(|name, _| keep(name));
    }

    /// Notes the beat with which a batch was listed.
    #[expect(clippy::disallowed_methods, reason = "requests to a service take real time")]
    pub(in crate::azblob) fn note_beat(&self, name: &str, beat: u64) {
        let mut seen = locked(&self.seen);
        match seen.get(name) {
            Some((known, _)) if *known == beat => {}
            _ => {
                seen.insert(name.to_owned(), (beat, Instant::now()));
            }
        }
    }

    /// Whether a batch has had the same beat for at least the duration of its leases.
    pub(in crate::azblob) fn is_stale(&self, name: &str, batch: &RenewalBatch) -> bool {
        let seen = locked(&self.seen);
        seen.get(name).is_some_and(|(beat, since)| *beat == batch.beat() && since.elapsed() >= batch.duration)
    }
}

/// A lease, with the renewal batch by which it is judged.
pub(in crate::azblob) struct LeaseWithBatch {
    pub(in crate::azblob) lease: Ownership,
    /// None if there is no batch, or its owner does not renew in one.
    pub(in crate::azblob) batch: Option<KnownBatch>,
    /// The service's time.
    pub(in crate::azblob) now: Timestamp,
}

impl LeaseWithBatch {
    /// The lease as a view would show it.
    pub(in crate::azblob) fn seen(&self) -> Lease {
        self.lease.seen_at(self.now)
    }
}

impl Session {
    /// Whether hosts renew in batches.
    pub(in crate::azblob) fn renews_in_batches(&self) -> bool {
        !self.shared_with_other_sdks()
    }

    /// Reads a batch. A damaged one counts as empty, and is overwritten.
    pub(in crate::azblob) async fn read_batch(
        &self,
        name: &str,
        batch_number: u32,
    ) -> Result<(Option<KnownBatch>, Timestamp), StoreError> {
        let read = self.container.head(name).await?;
        let known = read.blob.map(|blob| {
            let batch = RenewalBatch::read(batch_number, &blob).unwrap_or_else(|why| {
                tracing::warn!(
                    store = self.container.place,
                    name,
                    why,
                    "the renewal batch of a host is damaged"
                );
                RenewalBatch::empty(batch_number)
            });
            KnownBatch { batch, etag: blob.stamp.etag }
        });
        Ok((known, read.at))
    }

    /// Reads the owner's batch after the lease was read, and combines both.
    pub(in crate::azblob) async fn with_batch(
        &self,
        names: &Names,
        lease: Ownership,
        now: Timestamp,
    ) -> Result<LeaseWithBatch, StoreError> {
        let partition = lease.record.partition;
        let Some(owner) = lease.batch_renewed_by() else {
            return Ok(LeaseWithBatch { lease, batch: None, now });
        };
        let (batch, at) = self.read_batch(&names.batch(owner, partition), batch_number(partition)).await?;
        let lease = lease.with_renewal_from(batch.as_ref().map(|known| &known.batch));
        Ok(LeaseWithBatch { lease, batch, now: now.max(at) })
    }

    /// Reads a lease and its owner's batch.
    pub(in crate::azblob) async fn lease_now(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<Option<LeaseWithBatch>, StoreError> {
        match self.ownership_now(group, names, partition).await? {
            Some((lease, now)) => Ok(Some(self.with_batch(names, lease, now).await?)),
            None => Ok(None),
        }
    }

    /// Revokes a lease in its owner's batch, if it was not renewed since it was read; false if it was, or if that
    /// is unknown. Also revokes all leases that have expired at the time `expired`.
    pub(in crate::azblob) async fn revoke(
        &self,
        names: &Names,
        lease: &Ownership,
        batch: Option<&KnownBatch>,
        expired: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let Some(owner) = lease.batch_renewed_by() else { return Ok(true) };
        let (partition, epoch) = (lease.record.partition, lease.record.epoch);
        let name = names.batch(owner, partition);
        let cell = self.batches.cell(&name);
        let mut known = cell.lock().await;
        let is_revoked = |known: &KnownBatch| {
            let beat = known.batch.renewal(partition, epoch).map(|renewed| renewed.beat);
            known.batch.is_revoked(partition, epoch) && beat == lease.beat
        };
        // A revocation is final, so the cached state suffices.
        if batch.is_some_and(is_revoked) || known.as_ref().is_some_and(is_revoked) {
            return Ok(true);
        }
        let mut next =
            batch.map_or_else(|| RenewalBatch::empty(batch_number(partition)), |known| known.batch.clone());
        next.revoke(partition, epoch);
        if let Some(now) = expired {
            next.revoke_expired(now);
        }
        if !next.is_revoked(partition, epoch) {
            return Ok(false);
        }
        let metadata = next.metadata_by_other();
        let write = match batch {
            None => self.container.create(&name, &metadata, "").await?,
            Some(known) => self.container.update(&name, &metadata, &known.etag).await?,
        };
        *known = match write {
            Write::Done(stamp) => Some(KnownBatch { batch: next, etag: stamp.etag }),
            // Another process may have revoked it with others.
            Write::Refused => self.read_batch(&name, batch_number(partition)).await?.0,
        };
        self.forget_leases_not_in(names, owner, batch_number(partition), known.as_ref());
        Ok(known.as_ref().is_some_and(is_revoked))
    }

    /// Drops cached leases without an entry in a batch that another process may have written: they may no longer
    /// belong to its host.
    pub(in crate::azblob) fn forget_leases_not_in(
        &self,
        names: &Names,
        owner: &HostId,
        of: u32,
        known: Option<&KnownBatch>,
    ) {
        self.leases.retain(names, |partition, lease| {
            let record = &lease.record;
            batch_number(partition) != of
                || record.owner.as_ref() != Some(owner)
                || known.is_some_and(|known| known.batch.holds(partition, record.epoch))
        });
    }

    /// Whether this process runs the host: it writes its record. It need not revoke leases that it gives away,
    /// because no other process renews for this host.
    pub(in crate::azblob) fn is_local_host(&self, names: &Names, host: &HostId) -> bool {
        locked(&self.hosts).contains_key(&names.host(host))
    }
}
