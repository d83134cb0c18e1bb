//! Rolls as they are read, and strikes: whoever takes a lease away from an owner writes so on that one's roll first.
//!
//! A renewal and a taking away meet at that blob. What is struck before a renewal is not renewed, what is renewed
//! before a strike has another version, and a strike that did not see that is refused.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};
use std::time::Instant;

use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::Lease;
use ephor_core::store::StoreError;
use ephor_core::time::Timestamp;

use super::container::Write;
use super::names::Names;
use super::ownership::Ownership;
use super::roll::{Roll, bucket};
use super::session::{Session, locked};

/// A roll in one state of its blob.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KnownRoll {
    pub(super) roll: Roll,
    pub(super) etag: String,
}

/// One write of a roll at a time, and what is known of it.
type Cell = Arc<tokio::sync::Mutex<Option<KnownRoll>>>;

/// By the names of their blobs.
#[derive(Default)]
pub(super) struct Rolls {
    cells: Mutex<BTreeMap<String, Cell>>,
    /// The last beat that was seen of each, and since when.
    seen: Mutex<BTreeMap<String, (u64, Instant)>>,
}

impl Rolls {
    pub(super) fn cell(&self, name: &str) -> Cell {
        locked(&self.cells).entry(name.to_owned()).or_default().clone()
    }

    /// Forgets what nobody uses and does not please.
    pub(super) fn retain(&self, mut pleases: impl FnMut(&str) -> bool) {
        locked(&self.cells).retain(|name, cell| Arc::strong_count(cell) > 1 || pleases(name));
        locked(&self.seen).retain(|name, _| pleases(name));
    }

    /// A roll was listed with this beat.
    #[expect(clippy::disallowed_methods, reason = "what a service is asked takes real time")]
    pub(super) fn note(&self, name: &str, beat: u64) {
        let mut seen = locked(&self.seen);
        match seen.get(name) {
            Some((known, _)) if *known == beat => {}
            _ => {
                seen.insert(name.to_owned(), (beat, Instant::now()));
            }
        }
    }

    /// Whether a roll was seen with this very beat at least as long ago as its renewals last.
    pub(super) fn is_silent(&self, name: &str, roll: &Roll) -> bool {
        let seen = locked(&self.seen);
        seen.get(name).is_some_and(|(beat, since)| *beat == roll.beat() && since.elapsed() >= roll.duration)
    }
}

/// A lease, with the roll that it was judged by.
pub(super) struct Enrolled {
    pub(super) lease: Ownership,
    /// None if there is none, or its owner has none.
    pub(super) roll: Option<KnownRoll>,
    /// The service's time.
    pub(super) now: Timestamp,
}

impl Enrolled {
    /// The lease as a view would show it.
    pub(super) fn seen(&self) -> Lease {
        self.lease.seen_at(self.now)
    }
}

impl Session {
    /// Whether hosts renew on rolls.
    pub(super) fn by_roll(&self) -> bool {
        !self.shared_with_others()
    }

    /// Reads a roll. One that is damaged says nothing, and is written over.
    pub(super) async fn read_roll(
        &self,
        name: &str,
        bucket: u32,
    ) -> Result<(Option<KnownRoll>, Timestamp), StoreError> {
        let read = self.container.head(name).await?;
        let known = read.blob.map(|blob| {
            let roll = Roll::read(bucket, &blob).unwrap_or_else(|why| {
                tracing::warn!(store = self.container.place, name, why, "the renewals of a host are damaged");
                Roll::empty(bucket)
            });
            KnownRoll { roll, etag: blob.stamp.etag }
        });
        Ok((known, read.at))
    }

    /// A lease with what its owner's roll says, which is read behind it.
    pub(super) async fn with_roll(
        &self,
        names: &Names,
        lease: Ownership,
        now: Timestamp,
    ) -> Result<Enrolled, StoreError> {
        let partition = lease.record.partition;
        let Some(owner) = lease.enrolled() else { return Ok(Enrolled { lease, roll: None, now }) };
        let (roll, at) = self.read_roll(&names.roll(owner, partition), bucket(partition)).await?;
        let lease = lease.renewed_on(roll.as_ref().map(|known| &known.roll));
        Ok(Enrolled { lease, roll, now: now.max(at) })
    }

    /// The lease as it is now, and its owner's roll.
    pub(super) async fn lease_now(
        &self,
        group: &GroupId,
        names: &Names,
        partition: PartitionId,
    ) -> Result<Option<Enrolled>, StoreError> {
        match self.ownership_now(group, names, partition).await? {
            Some((lease, now)) => Ok(Some(self.with_roll(names, lease, now).await?)),
            None => Ok(None),
        }
    }

    /// Strikes a lease from its owner's roll, if it was not renewed since it was read; false if it was, or that is not known. All that has run out at
    /// `expired` is struck with it.
    pub(super) async fn strike(
        &self,
        names: &Names,
        lease: &Ownership,
        roll: Option<&KnownRoll>,
        expired: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        let Some(owner) = lease.enrolled() else { return Ok(true) };
        let (partition, epoch) = (lease.record.partition, lease.record.epoch);
        let name = names.roll(owner, partition);
        let cell = self.rolls.cell(&name);
        let mut known = cell.lock().await;
        let has_struck = |known: &KnownRoll| {
            let beat = known.roll.renewal(partition, epoch).map(|renewed| renewed.beat);
            known.roll.has_struck(partition, epoch) && beat == lease.beat
        };
        // What is struck stays so: what is known of it is no guess.
        if roll.is_some_and(has_struck) || known.as_ref().is_some_and(has_struck) {
            return Ok(true);
        }
        let mut next = roll.map_or_else(|| Roll::empty(bucket(partition)), |known| known.roll.clone());
        next.strike(partition, epoch);
        if let Some(now) = expired {
            next.strike_expired(now);
        }
        if !next.has_struck(partition, epoch) {
            return Ok(false);
        }
        let metadata = next.written_by_another();
        let write = match roll {
            None => self.container.create(&name, &metadata, "").await?,
            Some(known) => self.container.update(&name, &metadata, &known.etag).await?,
        };
        *known = match write {
            Write::Done(stamp) => Some(KnownRoll { roll: next, etag: stamp.etag }),
            // Somebody may have struck it with others.
            Write::Refused => self.read_roll(&name, bucket(partition)).await?.0,
        };
        self.forget_what_is_not_on(names, owner, bucket(partition), known.as_ref());
        Ok(known.as_ref().is_some_and(has_struck))
    }

    /// After a roll was read that somebody else may have written: what does not stand on it is not known to be its host's.
    pub(super) fn forget_what_is_not_on(
        &self,
        names: &Names,
        owner: &HostId,
        of: u32,
        known: Option<&KnownRoll>,
    ) {
        self.leases.retain(names, |partition, lease| {
            let record = &lease.record;
            bucket(partition) != of
                || record.owner.as_ref() != Some(owner)
                || known.is_some_and(|known| known.roll.holds(partition, record.epoch))
        });
    }

    /// Whether this process is the host, for it writes its record. What it gives away itself it need not strike: nobody else
    /// renews in its name, and what it writes it knows.
    pub(super) fn is_at_home(&self, names: &Names, host: &HostId) -> bool {
        locked(&self.hosts).contains_key(&names.host(host))
    }
}
