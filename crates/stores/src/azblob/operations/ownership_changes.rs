//! Changes ownership: claim, transfer, release and seek. The documentation of `azblob` explains why each
//! step is safe.

use ephor_core::checkpoint::Checkpoint;
use ephor_core::epoch::Epoch;
use ephor_core::ids::GroupId;
use ephor_core::lease::{
    ClaimCause, ClaimRequest, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest,
};
use ephor_core::record::{self, Change, LeaseRecord, NoEpochLeft};
use ephor_core::rules::Rules;
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, SeekOutcome, SeekRequest, StoreError};
use ephor_core::time::Timestamp;

use crate::azblob::layout::blob_names::Names;
use crate::azblob::operations::fencing::{Fencing, too_many_conflicts};
use crate::azblob::operations::partition_state::PartitionState;
use crate::azblob::session::{MAX_ATTEMPTS, Session};

impl Session {
    pub(in crate::azblob) async fn claim(
        &self,
        group: &GroupId,
        request: &ClaimRequest,
    ) -> Result<ClaimOutcome, StoreError> {
        let names = self.ensure_group(group).await?;
        let partition = request.partition;
        for _ in 0..MAX_ATTEMPTS {
            let state = self.read_state_with_batch(group, &names, partition).await?;
            // An unreadable position fails the claim: an owner could not start from it.
            state.checkpoint(group, partition)?;
            let old = state.record();
            let lost = || ClaimOutcome::Lost { holder: state.seen_lease() };
            if state.version() != request.seen {
                return Ok(lost());
            }
            let asked = ClaimRequest {
                seen: old.map(|record| LeaseVersion::revision(record.revision)),
                above: request.above.max(state.highest()),
                ..request.clone()
            };
            let change = record::claim(old, state.fence(), &asked, state.now, &Rules::default())?;
            let Some(change) = change else { return Ok(lost()) };
            let expired = (request.cause == ClaimCause::Expired).then_some(state.now);
            let expired = expired.filter(|_| self.is_stale(&names, &state));
            if !self.revoke_present(&names, &state, expired).await? {
                continue;
            }
            let epoch = change.lease.epoch;
            if !self.take_epoch(&names, partition, &state, epoch).await? {
                continue;
            }
            let lease = self.write_lease(&names, state.lease.as_ref(), &change.lease).await?;
            let Some(lease) = lease else { continue };
            let seen = state.checkpoint.clone();
            let fencing = self.raise_fence(group, &names, partition, epoch, seen).await?;
            let Fencing::Fenced(fenced) = fencing else {
                // A seek intervened: it also removes the owner.
                let holder = self.lease_now(group, &names, partition).await?;
                return Ok(ClaimOutcome::Lost { holder: holder.map(|now| now.seen()) });
            };
            self.append_history(group, &names, change.history).await;
            let token = LeaseToken { partition, owner: request.host.clone(), epoch };
            let lease = lease.seen_at(state.now);
            return Ok(ClaimOutcome::Won { token, lease, checkpoint: fenced.checkpoint });
        }
        Err(too_many_conflicts(partition))
    }

    pub(in crate::azblob) async fn transfer(
        &self,
        group: &GroupId,
        request: &TransferRequest,
    ) -> Result<GiveUpOutcome, StoreError> {
        let names = self.ensure_group(group).await?;
        let partition = request.token.partition;
        for _ in 0..MAX_ATTEMPTS {
            let is_local = self.is_local_host(&names, &request.token.owner);
            let state = match is_local {
                true => self.read_state(group, &names, partition).await?,
                false => self.read_state_with_batch(group, &names, partition).await?,
            };
            // A successor that cannot read the position would start at the initial one.
            state.checkpoint(group, partition)?;
            let highest = state.highest();
            let Some(change) = record::transfer(state.record(), highest, request, state.now)? else {
                return Ok(GiveUpOutcome::NotOurs);
            };
            if !is_local && !self.revoke_present(&names, &state, None).await? {
                continue;
            }
            let epoch = change.lease.epoch;
            if !self.take_epoch(&names, partition, &state, epoch).await? {
                continue;
            }
            if self.write_lease(&names, state.lease.as_ref(), &change.lease).await?.is_none() {
                continue;
            }
            self.raise_fence(group, &names, partition, epoch, state.checkpoint).await?;
            self.append_history(group, &names, change.history).await;
            return Ok(GiveUpOutcome::Done);
        }
        Err(too_many_conflicts(partition))
    }

    /// Releases a lease. Epoch and fence stay, so that a save in flight still counts.
    pub(in crate::azblob) async fn release(
        &self,
        group: &GroupId,
        request: &ReleaseRequest,
    ) -> Result<GiveUpOutcome, StoreError> {
        let names = self.ensure_group(group).await?;
        let partition = request.token.partition;
        for _ in 0..MAX_ATTEMPTS {
            let Some((lease, now)) = self.ownership_now(group, &names, partition).await? else {
                return Ok(GiveUpOutcome::NotOurs);
            };
            let fence = lease.record.epoch;
            let Some(change) = record::release(Some(&lease.record), fence, request, now) else {
                return Ok(GiveUpOutcome::NotOurs);
            };
            if !self.is_local_host(&names, &request.token.owner) {
                let now = self.with_batch(&names, lease.clone(), now).await?;
                if !self.revoke(&names, &now.lease, now.batch.as_ref(), None).await? {
                    continue;
                }
            }
            if self.write_lease(&names, Some(&lease), &change.lease).await?.is_some() {
                self.append_history(group, &names, change.history).await;
                return Ok(GiveUpOutcome::Done);
            }
        }
        Err(too_many_conflicts(partition))
    }

    /// Whether this process has seen the owner's batch unchanged for a whole lease. The service's dates do not
    /// prove that: a front end with a wrong clock would cost a host all its leases.
    fn is_stale(&self, names: &Names, state: &PartitionState) -> bool {
        let owner =
            state.lease.as_ref().and_then(|lease| Some((lease.batch_renewed_by()?, lease.record.partition)));
        let (Some((owner, partition)), Some(known)) = (owner, &state.batch) else { return false };
        self.batches.is_stale(&names.batch(owner, partition), &known.batch)
    }

    /// Revokes the lease in its owner's batch, so that it can be taken; false if it has changed since it was read.
    async fn revoke_present(
        &self,
        names: &Names,
        state: &PartitionState,
        expired: Option<Timestamp>,
    ) -> Result<bool, StoreError> {
        match &state.lease {
            Some(lease) => self.revoke(names, lease, state.batch.as_ref(), expired).await,
            None => Ok(true),
        }
    }

    /// Moves a position. The old position is not read, so that a seek can replace a damaged one.
    pub(in crate::azblob) async fn seek(
        &self,
        group: &GroupId,
        request: &SeekRequest,
    ) -> Result<SeekOutcome, StoreError> {
        let names = self.ensure_group(group).await?;
        for _ in 0..MAX_ATTEMPTS {
            let state = self.read_state_with_batch(group, &names, request.partition).await?;
            if let (Some(owner), false) =
                (state.lease.as_ref().and_then(|l| l.other_sdk_owner.clone()), request.force)
            {
                return Ok(SeekOutcome::OtherSdkOwner { owner });
            }
            let epoch = seek_change(state.record(), state.highest(), request, state.now)?.lease.epoch;
            if !self.take_epoch(&names, request.partition, &state, epoch).await? {
                continue;
            }
            let position = Checkpoint {
                position: request.position.clone(),
                log: request.log.clone(),
                epoch,
                saved_at: state.now,
            };
            // The seek is done: the owner can no longer save, and the next owner starts there.
            let seen = state.checkpoint.clone();
            if !self.overwrite_position(&names, request.partition, &position, seen).await? {
                continue;
            }
            self.remove_owner(group, &names, state, epoch, request).await?;
            return Ok(SeekOutcome::Done { epoch });
        }
        Err(too_many_conflicts(request.partition))
    }

    /// Removes the owner, in the epoch of the seek, unless the lease has reached that epoch.
    async fn remove_owner(
        &self,
        group: &GroupId,
        names: &Names,
        mut state: PartitionState,
        epoch: Epoch,
        request: &SeekRequest,
    ) -> Result<(), StoreError> {
        // The present epoch is below this one, which only this seek has.
        let below = Epoch::from_stored(epoch.get().saturating_sub(1));
        for _ in 0..MAX_ATTEMPTS {
            if state.record().is_some_and(|record| record.epoch >= epoch) {
                return Ok(());
            }
            let change = seek_change(state.record(), below, request, state.now)?;
            if self.revoke_present(names, &state, None).await?
                && self.write_lease(names, state.lease.as_ref(), &change.lease).await?.is_some()
            {
                self.append_history(group, names, change.history).await;
                return Ok(());
            }
            let now = self.lease_now(group, names, request.partition).await?;
            state.set_lease(now);
        }
        Err(too_many_conflicts(request.partition))
    }
}

fn seek_change(
    lease: Option<&LeaseRecord>,
    highest: Epoch,
    request: &SeekRequest,
    now: Timestamp,
) -> Result<Change, NoEpochLeft> {
    record::seek(lease, highest, request.partition, &request.by, now, &Rules::default())
}
