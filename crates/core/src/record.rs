//! The lease and checkpoint records of a partition, and the rules by which every store changes and fences
//! them; each change comes with its entry of the history.
//!
//! Each function takes the current record and returns the next one, or the reason for refusing it.
//! A store runs one of them inside one atomic step, or does the same in a statement of its own; the
//! memory store, the conformance suite and the model checker share these.
//!
//! A claim, a transfer and a seek take a new epoch for the lease and *fence* the checkpoint with it
//! (the field `fence`). A save is checked against this fence, never against the lease, so that
//! checkpoints and renewals do not get in each other's way.

#[cfg(test)]
mod tests;

use std::time::Duration;

use crate::checkpoint::Checkpoint;
use crate::epoch::Epoch;
use crate::history::{ChangeReason, OwnershipChange};
use crate::ids::{HostId, PartitionId};
use crate::lease::{
    ClaimCause, ClaimRequest, Lease, LeaseToken, LeaseVersion, ReleaseRequest, TransferRequest,
};
use crate::rules::Rules;
use crate::store::{RefusalCause, SaveRequest, StoreError};
use crate::time::Timestamp;

/// A lease as it is stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseRecord {
    /// The partition.
    pub partition: PartitionId,
    /// The owner.
    pub owner: Option<HostId>,
    /// The epoch of the last change of owner.
    pub epoch: Epoch,
    /// The time that a renewal lasts; `None` if another SDK wrote the record.
    pub duration: Option<Duration>,
    /// The time of the last change of owner.
    pub acquired_at: Timestamp,
    /// The time of the last write.
    pub renewed_at: Timestamp,
    /// Grows with every write.
    pub revision: u64,
    /// The owner from which the lease was taken by a takeover or a seek; see [`Lease::previous_owner`].
    /// Stored as `previous`.
    pub previous_owner: Option<HostId>,
    /// The time until which a host that lost the lease may be at work without knowing it.
    /// Stored as `previous_until`.
    pub previous_owner_until: Timestamp,
    /// The successor that the last owner named when it released the lease. Stored as `heir`.
    pub successor: Option<HostId>,
}

impl LeaseRecord {
    fn unowned(partition: PartitionId) -> Self {
        Self {
            partition,
            owner: None,
            epoch: Epoch::NONE,
            duration: None,
            acquired_at: Timestamp(0),
            renewed_at: Timestamp(0),
            revision: 0,
            previous_owner: None,
            previous_owner_until: Timestamp(0),
            successor: None,
        }
    }

    /// The lease as a view shows it at `now`, by the store's clock.
    pub fn seen_at(&self, now: Timestamp) -> Lease {
        Lease {
            partition: self.partition,
            owner: self.owner.clone(),
            epoch: self.epoch,
            duration: self.duration,
            acquired_at: self.acquired_at,
            age: now.since(self.renewed_at),
            age_known: true,
            version: LeaseVersion::revision(self.revision),
            previous_owner: self.previous_owner.clone(),
            takeover_delay: self.takeover_delay_at(now),
            successor: self.successor.clone(),
        }
    }

    /// The time for which a previous owner may still be at work. A clock that was set back since
    /// does not make it longer than it was when the owner changed.
    fn takeover_delay_at(&self, now: Timestamp) -> Duration {
        self.previous_owner_until.since(now.max(self.acquired_at))
    }

    /// The end of that time, to be written into the next record.
    fn previous_owner_until_at(&self, now: Timestamp) -> Timestamp {
        self.previous_owner_until.min(now + self.takeover_delay_at(now))
    }

    fn is_held_by(&self, token: &LeaseToken) -> bool {
        self.owner.as_ref() == Some(&token.owner) && self.epoch == token.epoch
    }

    /// The host that may still be at work if the lease is taken away now, and the time until which
    /// it may be.
    fn unaware_if_taken(&self, now: Timestamp) -> (Option<HostId>, Timestamp) {
        match (&self.owner, self.duration) {
            (Some(owner), Some(duration)) => {
                // A clock that was set back must not make anybody wait longer than a lease lasts.
                let until = (self.renewed_at + duration).min(now + duration);
                // If a host before it may be at work for longer, this owner alone cannot vouch that
                // all have stopped.
                let before = self.previous_owner_until_at(now);
                let alone = before <= until;
                (alone.then(|| owner.clone()), until.max(before))
            }
            _ => (self.previous_owner.clone(), self.previous_owner_until_at(now)),
        }
    }
}

/// The checkpoint of a partition as it is stored, with its fence.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct CheckpointRecord {
    /// The fence: only this epoch may write. Stored as `seal`.
    pub fence: Epoch,
    /// The position, once there is one.
    pub checkpoint: Option<Checkpoint>,
}

/// A change for a store to carry out: the new records and the entry of the history.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Change {
    /// The next lease.
    pub lease: LeaseRecord,
    /// The next fence of the checkpoint.
    pub fence: Epoch,
    /// The entry of the history.
    pub history: OwnershipChange,
}

/// The error of a partition whose epochs are used up: it can have no new owner and no seek.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "partition {partition} has no epoch left: {highest} is known of it, and {} is the highest that a hub and a store \
     can carry; stop the hosts, export the checkpoints of the group, import them into an empty store, and start the \
     hosts there",
    Epoch::MAX
)]
pub struct NoEpochLeft {
    /// The partition.
    pub partition: PartitionId,
    /// The highest epoch that is known of it.
    pub highest: Epoch,
}

impl From<NoEpochLeft> for StoreError {
    fn from(error: NoEpochLeft) -> Self {
        Self::refused(RefusalCause::NoEpochLeft, error.to_string())
    }
}

fn epoch_above(partition: PartitionId, highest: Epoch) -> Result<Epoch, NoEpochLeft> {
    highest.next().ok_or(NoEpochLeft { partition, highest })
}

/// Claims a partition: allowed if the record is in the state that the claimant saw.
pub fn claim(
    lease: Option<&LeaseRecord>,
    fence: Epoch,
    request: &ClaimRequest,
    now: Timestamp,
    rules: &Rules,
) -> Result<Option<Change>, NoEpochLeft> {
    let seen = lease.map(|record| LeaseVersion::revision(record.revision));
    if seen != request.seen {
        return Ok(None);
    }
    let blank = LeaseRecord::unowned(request.partition);
    let old = lease.unwrap_or(&blank);
    let takeover = matches!(request.cause, ClaimCause::Expired | ClaimCause::Unresponsive);
    let highest = if rules.epochs_never_restart() || old.owner.is_some() {
        old.epoch.max(fence).max(request.above)
    } else {
        Epoch::NONE
    };
    let epoch = if takeover && !rules.takeover_raises_the_epoch() {
        old.epoch
    } else {
        epoch_above(request.partition, highest)?
    };
    // A host that found the owner expired has seen that its time is over. A host that takes the
    // lease from a living owner must wait until that owner has certainly noticed.
    let (previous_owner, previous_owner_until) = match request.cause {
        ClaimCause::Unresponsive => old.unaware_if_taken(now),
        // The owner's own time is over; that of a host from which it took the lease may not be.
        ClaimCause::Expired | ClaimCause::Unowned | ClaimCause::AboveForeignReader => {
            (old.previous_owner.clone(), old.previous_owner_until_at(now))
        }
    };
    let lease = LeaseRecord {
        owner: Some(request.host.clone()),
        epoch,
        duration: Some(request.duration),
        acquired_at: now,
        renewed_at: now,
        revision: old.revision + 1,
        previous_owner,
        previous_owner_until,
        successor: None,
        partition: request.partition,
    };
    let history = OwnershipChange {
        at: now,
        partition: request.partition,
        epoch,
        from: old.owner.clone(),
        to: Some(request.host.clone()),
        reason: ChangeReason::Claimed(request.cause),
    };
    Ok(Some(Change { lease, fence: epoch, history }))
}

/// Renews a lease: allowed to its holder.
pub fn renew(
    lease: Option<&LeaseRecord>,
    token: &LeaseToken,
    duration: Duration,
    now: Timestamp,
) -> Option<LeaseRecord> {
    let old = lease.filter(|record| record.is_held_by(token))?;
    Some(LeaseRecord { duration: Some(duration), renewed_at: now, revision: old.revision + 1, ..old.clone() })
}

/// Hands a lease over in a new epoch: allowed to its holder.
pub fn transfer(
    lease: Option<&LeaseRecord>,
    fence: Epoch,
    request: &TransferRequest,
    now: Timestamp,
) -> Result<Option<Change>, NoEpochLeft> {
    let Some(old) = lease.filter(|record| record.is_held_by(&request.token)) else { return Ok(None) };
    let epoch = epoch_above(old.partition, old.epoch.max(fence))?;
    let lease = LeaseRecord {
        owner: Some(request.to.clone()),
        epoch,
        duration: Some(request.duration),
        acquired_at: now,
        renewed_at: now,
        revision: old.revision + 1,
        previous_owner_until: old.previous_owner_until_at(now),
        successor: None,
        ..old.clone()
    };
    let history = OwnershipChange {
        at: now,
        partition: old.partition,
        epoch,
        from: old.owner.clone(),
        to: Some(request.to.clone()),
        reason: ChangeReason::HandedOver,
    };
    Ok(Some(Change { lease, fence: epoch, history }))
}

/// Releases a lease: allowed to its holder. The epoch stays, so that a save in flight still
/// succeeds.
pub fn release(
    lease: Option<&LeaseRecord>,
    fence: Epoch,
    request: &ReleaseRequest,
    now: Timestamp,
) -> Option<Change> {
    let old = lease.filter(|record| record.is_held_by(&request.token))?;
    let lease = LeaseRecord {
        owner: None,
        duration: None,
        acquired_at: now,
        renewed_at: now,
        revision: old.revision + 1,
        previous_owner_until: old.previous_owner_until_at(now),
        successor: request.successor.clone(),
        ..old.clone()
    };
    let history = OwnershipChange {
        at: now,
        partition: old.partition,
        epoch: old.epoch,
        from: old.owner.clone(),
        to: None,
        reason: ChangeReason::Released(request.cause),
    };
    Some(Change { lease, fence, history })
}

/// Moves a position for an operator: takes a new epoch and removes the owner in one step. The
/// caller writes the new position together with the change.
pub fn seek(
    lease: Option<&LeaseRecord>,
    fence: Epoch,
    partition: PartitionId,
    by: &str,
    now: Timestamp,
    rules: &Rules,
) -> Result<Change, NoEpochLeft> {
    let blank = LeaseRecord::unowned(partition);
    let old = lease.unwrap_or(&blank);
    let highest = old.epoch.max(fence);
    let epoch = if rules.seeks_take_a_new_epoch() { epoch_above(partition, highest)? } else { highest };
    let (previous_owner, previous_owner_until) = old.unaware_if_taken(now);
    let lease = LeaseRecord {
        owner: None,
        epoch,
        duration: None,
        acquired_at: now,
        renewed_at: now,
        revision: old.revision + 1,
        previous_owner,
        previous_owner_until,
        successor: None,
        partition,
    };
    let history = OwnershipChange {
        at: now,
        partition,
        epoch,
        from: old.owner.clone(),
        to: None,
        reason: ChangeReason::Seek { by: by.into() },
    };
    Ok(Change { lease, fence: epoch, history })
}

/// The outcome of a save.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum SaveVerdict {
    /// Write this.
    Write(Checkpoint),
    /// The stored position is further ahead.
    Behind(Checkpoint),
    /// The epoch may no longer write.
    Fenced {
        /// The epoch that may write.
        epoch: Epoch,
    },
}

/// Saves a position: allowed to the epoch with which the checkpoint is fenced, and backwards only
/// for a rewind, when the stored position does not exist.
pub fn save(record: &CheckpointRecord, request: &SaveRequest, now: Timestamp, rules: &Rules) -> SaveVerdict {
    let SaveRequest { token, position, log, rewind } = request;
    // Nobody has the epoch before the first one, not even while nobody has claimed yet.
    let fenced = record.fence != token.epoch || token.epoch == Epoch::NONE;
    if rules.checkpoints_are_fenced() && fenced {
        return SaveVerdict::Fenced { epoch: record.fence };
    }
    // A save without a log means the log that is stored.
    let log = log.as_ref().or_else(|| record.checkpoint.as_ref()?.log.as_ref());
    let backwards = record.checkpoint.as_ref().filter(|stored| !rewind && stored.forbids(position, log));
    match backwards {
        Some(stored) if rules.checkpoints_are_fenced() => SaveVerdict::Behind(stored.clone()),
        _ => SaveVerdict::Write(Checkpoint {
            position: position.clone(),
            log: log.cloned(),
            epoch: token.epoch,
            saved_at: now,
        }),
    }
}
