//! Changes of ownership. Why each of their steps is safe is told in the module's own documentation.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::ids::GroupId;
use ephor_core::lease::{
    ClaimCause, ClaimRequest, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest,
};
use ephor_core::record::{self, Change, LeaseRecord, NoEpochLeft};
use ephor_core::rules::Rules;
use ephor_core::store::{Claim, GiveAway, Seek, SeekRequest, StoreError};
use ephor_core::time::Timestamp;

use super::names::Names;
use super::seals::{Sealing, changing_without_end};
use super::session::{MOST_ATTEMPTS, Session};
use super::standing::Standing;

impl Session {
    pub(super) async fn claim(&self, group: &GroupId, request: &ClaimRequest) -> Result<Claim, StoreError> {
        let names = self.introduced(group).await?;
        let partition = request.partition;
        for _ in 0..MOST_ATTEMPTS {
            let standing = self.standing_on_roll(group, &names, partition).await?;
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
            let change = record::claim(old, standing.seal(), &asked, standing.now, &Rules::default())?;
            let Some(change) = change else { return Ok(lost()) };
            let expired = (request.cause == ClaimCause::Expired).then_some(standing.now);
            let expired = expired.filter(|_| self.is_silent(&names, &standing));
            if !self.struck(&names, &standing, expired).await? {
                continue;
            }
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
                return Ok(Claim::Lost { holder: holder.map(|now| now.seen()) });
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
            let at_home = self.is_at_home(&names, &request.token.owner);
            let standing = match at_home {
                true => self.standing(group, &names, partition).await?,
                false => self.standing_on_roll(group, &names, partition).await?,
            };
            // Whoever receives what it cannot read would begin anew.
            standing.checkpoint(group, partition)?;
            let highest = standing.highest();
            let Some(change) = record::transfer(standing.record(), highest, request, standing.now)? else {
                return Ok(GiveAway::NotOurs);
            };
            if !at_home && !self.struck(&names, &standing, None).await? {
                continue;
            }
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
            let Some((lease, now)) = self.ownership_now(group, &names, partition).await? else {
                return Ok(GiveAway::NotOurs);
            };
            let seal = lease.record.epoch;
            let Some(change) = record::release(Some(&lease.record), seal, request, now) else {
                return Ok(GiveAway::NotOurs);
            };
            if !self.is_at_home(&names, &request.token.owner) {
                let now = self.with_roll(&names, lease.clone(), now).await?;
                if !self.strike(&names, &now.lease, now.roll.as_ref(), None).await? {
                    continue;
                }
            }
            if self.write_lease(&names, Some(&lease), &change.lease).await?.is_some() {
                self.remember(group, &names, change.history).await;
                return Ok(GiveAway::Done);
            }
        }
        Err(changing_without_end(partition))
    }

    /// Whether the owner's roll has not changed for a whole lease, as this process saw it. Dates alone do not show that:
    /// one of a front end with a wrong clock would cost a host everything.
    fn is_silent(&self, names: &Names, standing: &Standing) -> bool {
        let owner =
            standing.lease.as_ref().and_then(|lease| Some((lease.enrolled()?, lease.record.partition)));
        let (Some((owner, partition)), Some(known)) = (owner, &standing.roll) else { return false };
        self.rolls.is_silent(&names.roll(owner, partition), &known.roll)
    }

    /// Whether the lease is off its owner's roll, so that it can be taken away; false if it is not as it was read.
    async fn struck(
        &self,
        names: &Names,
        standing: &Standing,
        expired: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        match &standing.lease {
            Some(lease) => self.strike(names, lease, standing.roll.as_ref(), expired).await,
            None => Ok(true),
        }
    }

    /// The old position is not read: a seek is also how a damaged one is mended.
    pub(super) async fn seek(&self, group: &GroupId, request: &SeekRequest) -> Result<Seek, StoreError> {
        let names = self.introduced(group).await?;
        for _ in 0..MOST_ATTEMPTS {
            let standing = self.standing_on_roll(group, &names, request.partition).await?;
            if let (Some(owner), false) =
                (standing.lease.as_ref().and_then(|l| l.foreign.clone()), request.force)
            {
                return Ok(Seek::ForeignOwner { owner });
            }
            let epoch = sought(standing.record(), standing.highest(), request, standing.now)?.lease.epoch;
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
            self.take_away(group, &names, standing, epoch, request).await?;
            return Ok(Seek::Done { epoch });
        }
        Err(changing_without_end(request.partition))
    }

    /// Leaves the partition to nobody, in the epoch of the seek, unless somebody is past that epoch.
    async fn take_away(
        &self,
        group: &GroupId,
        names: &Names,
        mut standing: Standing,
        epoch: Epoch,
        request: &SeekRequest,
    ) -> Result<(), StoreError> {
        // What is there is below this epoch, which nobody else has.
        let below = Epoch::from_stored(epoch.get().saturating_sub(1));
        for _ in 0..MOST_ATTEMPTS {
            if standing.record().is_some_and(|record| record.epoch >= epoch) {
                return Ok(());
            }
            let change = sought(standing.record(), below, request, standing.now)?;
            if self.struck(names, &standing, None).await?
                && self.write_lease(names, standing.lease.as_ref(), &change.lease).await?.is_some()
            {
                self.remember(group, names, change.history).await;
                return Ok(());
            }
            let now = self.lease_now(group, names, request.partition).await?;
            standing.put_lease(now);
        }
        Err(changing_without_end(request.partition))
    }
}

fn sought(
    lease: Option<&LeaseRecord>,
    highest: Epoch,
    request: &SeekRequest,
    now: Timestamp,
) -> Result<Change, NoEpochLeft> {
    record::seek(lease, highest, request.partition, &request.by, now, &Rules::default())
}
