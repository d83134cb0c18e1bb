//! Changes of ownership. Why each of their steps is safe is told in the module's own documentation.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::ids::GroupId;
use ephor_core::lease::{ClaimRequest, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest};
use ephor_core::record::{self, Change};
use ephor_core::rules::Rules;
use ephor_core::store::{Claim, GiveAway, Seek, SeekRequest, StoreError};

use super::names::Names;
use super::seals::{Sealing, changing_without_end};
use super::session::{MOST_ATTEMPTS, Session};
use super::standing::Standing;

impl Session {
    pub(super) async fn claim(&self, group: &GroupId, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let names = self.introduced(group).await?;
        let partition = request.partition;
        for _ in 0..MOST_ATTEMPTS {
            let standing = self.standing(group, &names, partition).await?;
            // A position that cannot be read fails the claim: nobody shall own what it cannot begin.
            standing.checkpoint(group, partition)?;
            let old = standing.record();
            let lost = || Claim::Lost { holder: standing.seen_lease() };
            if standing.version() != request.seen {
                return Ok(lost());
            }
            let asked = ClaimRequest {
                seen: old.map(|record| LeaseVersion::revision(record.revision)),
                above: request.above.max(standing.highest()),
                ..request.clone()
            };
            let change = record::claim(old, standing.seal(), &asked, standing.now, &Rules::default());
            let Some(change) = change else { return Ok(lost()) };
            let epoch = change.lease.epoch;
            if !self.take_epoch(&names, partition, &standing, epoch).await? {
                continue;
            }
            let lease = self.write_lease(&names, standing.lease.as_ref(), &change.lease).await?;
            let Some(lease) = lease else { continue };
            let seen = standing.checkpoint.clone();
            let sealing = self.seal(group, &names, partition, epoch, seen).await?;
            let Sealing::Sealed(sealed) = sealing else {
                // A seek came between: it takes the lease away, too.
                let holder = self.lease_now(group, &names, partition).await?;
                return Ok(Claim::Lost { holder: holder.map(|(lease, now)| lease.seen_at(now)) });
            };
            self.remember(group, &names, change.history).await;
            let token = LeaseToken { partition, owner: request.host.clone(), epoch };
            let lease = lease.seen_at(standing.now);
            return Ok(Claim::Won { token, lease, checkpoint: sealed.checkpoint });
        }
        Err(changing_without_end(partition))
    }

    pub(super) async fn transfer(
        &self,
        group: &GroupId,
        request: &TransferRequest,
    ) -> Result<GiveAway, StoreError> {
        let names = self.introduced(group).await?;
        let partition = request.token.partition;
        for _ in 0..MOST_ATTEMPTS {
            let standing = self.standing(group, &names, partition).await?;
            let highest = standing.highest();
            let Some(change) = record::transfer(standing.record(), highest, request, standing.now) else {
                return Ok(GiveAway::NotOurs);
            };
            let epoch = change.lease.epoch;
            if !self.take_epoch(&names, partition, &standing, epoch).await? {
                continue;
            }
            if self.write_lease(&names, standing.lease.as_ref(), &change.lease).await?.is_none() {
                continue;
            }
            self.seal(group, &names, partition, epoch, standing.checkpoint).await?;
            self.remember(group, &names, change.history).await;
            return Ok(GiveAway::Done);
        }
        Err(changing_without_end(partition))
    }

    /// The epoch stays, and so does the seal: a save that is under way still counts.
    pub(super) async fn release(
        &self,
        group: &GroupId,
        request: &ReleaseRequest,
    ) -> Result<GiveAway, StoreError> {
        let names = self.introduced(group).await?;
        let partition = request.token.partition;
        for _ in 0..MOST_ATTEMPTS {
            let Some((lease, now)) = self.lease_now(group, &names, partition).await? else {
                return Ok(GiveAway::NotOurs);
            };
            let seal = lease.record.epoch;
            let Some(change) = record::release(Some(&lease.record), seal, request, now) else {
                return Ok(GiveAway::NotOurs);
            };
            if self.write_lease(&names, Some(&lease), &change.lease).await?.is_some() {
                self.remember(group, &names, change.history).await;
                return Ok(GiveAway::Done);
            }
        }
        Err(changing_without_end(partition))
    }

    /// The old position is not read: a seek is also how a damaged one is mended.
    pub(super) async fn seek(&self, group: &GroupId, request: &SeekRequest) -> Result<Seek, StoreError> {
        let names = self.introduced(group).await?;
        for _ in 0..MOST_ATTEMPTS {
            let standing = self.standing(group, &names, request.partition).await?;
            if let (Some(owner), false) =
                (standing.lease.as_ref().and_then(|l| l.foreign.clone()), request.force)
            {
                return Ok(Seek::ForeignOwner { owner });
            }
            let change = self.sought(&standing, request);
            let epoch = change.lease.epoch;
            if !self.take_epoch(&names, request.partition, &standing, epoch).await? {
                continue;
            }
            let position = Checkpoint {
                position: request.position.clone(),
                log: request.log.clone(),
                epoch,
                saved_at: standing.now,
            };
            // From here on it is done: the owner can save no more, and whoever comes next begins there.
            let seen = standing.checkpoint.clone();
            if !self.overwrite(&names, request.partition, &position, seen).await? {
                continue;
            }
            self.take_away(group, &names, standing, change, request).await?;
            return Ok(Seek::Done { epoch });
        }
        Err(changing_without_end(request.partition))
    }

    fn sought(&self, standing: &Standing, request: &SeekRequest) -> Change {
        let (highest, now) = (standing.highest(), standing.now);
        record::seek(standing.record(), highest, request.partition, &request.by, now, &Rules::default())
    }

    /// Leaves the partition to nobody, in the epoch of the seek, unless somebody is past that epoch.
    async fn take_away(
        &self,
        group: &GroupId,
        names: &Names,
        standing: Standing,
        change: Change,
        request: &SeekRequest,
    ) -> Result<(), StoreError> {
        let epoch = change.lease.epoch;
        let (mut before, mut change) = (standing.lease, change);
        for _ in 0..MOST_ATTEMPTS {
            if self.write_lease(names, before.as_ref(), &change.lease).await?.is_some() {
                self.remember(group, names, change.history).await;
                return Ok(());
            }
            let now = self.lease_now(group, names, request.partition).await?;
            let Some((lease, now)) = now else {
                before = None;
                continue;
            };
            if lease.record.epoch >= epoch {
                return Ok(());
            }
            // The highest is below this epoch, which nobody else has.
            let highest = ephor_core::epoch::Epoch::from_stored(epoch.get().saturating_sub(1));
            change = record::seek(
                Some(&lease.record),
                highest,
                request.partition,
                &request.by,
                now,
                &Rules::default(),
            );
            before = Some(lease);
        }
        Err(changing_without_end(request.partition))
    }
}
