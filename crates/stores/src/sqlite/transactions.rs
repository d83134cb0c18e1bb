//! The store's operations on partitions, each in one transaction: read, decide by [`ephor_core::record`],
//! write. Views, host records and the history are in `records/`.

use std::time::Duration;

use ephor_core::checkpoint::Checkpoint;
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::record::{self, SaveVerdict};
use ephor_core::rules::Rules;
use ephor_core::store::{
    ClaimOutcome, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome, SaveRequest, SeekOutcome,
    SeekRequest,
};

use super::records::{Records, TransactionError, TransactionResult};

pub(super) fn init_group(records: &Records<'_>, origin: &GroupOrigin) -> TransactionResult<GroupOrigin> {
    if let Some(origin) = records.origin()? {
        return Ok(origin);
    }
    records.write_origin(origin)?;
    Ok(origin.clone())
}

pub(super) fn claim(records: &Records<'_>, request: &ClaimRequest) -> TransactionResult<ClaimOutcome> {
    let partition = request.partition;
    let old = records.lease(partition)?;
    let fence = records.fence(partition)?;
    let Some(change) = record::claim(old.as_ref(), fence, request, records.now, &Rules::default())? else {
        return Ok(ClaimOutcome::Lost { holder: old.map(|lease| lease.seen_at(records.now)) });
    };
    records.apply(&change)?;
    let lease = change.lease.seen_at(records.now);
    let token = LeaseToken { partition, owner: request.host.clone(), epoch: lease.epoch };
    // An unreadable position fails the claim: an owner could not start from it.
    Ok(ClaimOutcome::Won { token, lease, checkpoint: records.checkpoint(partition)?.checkpoint })
}

pub(super) fn renew(
    records: &Records<'_>,
    duration: Duration,
    tokens: &[LeaseToken],
) -> TransactionResult<Vec<RenewalOutcome>> {
    tokens.iter().map(|token| renew_one(records, duration, token)).collect()
}

fn renew_one(
    records: &Records<'_>,
    duration: Duration,
    token: &LeaseToken,
) -> TransactionResult<RenewalOutcome> {
    let old = match records.lease(token.partition) {
        Err(TransactionError::Damaged(what)) => {
            return Ok(RenewalOutcome::Unknown { what, retry_after: None });
        }
        old => old?,
    };
    let Some(lease) = record::renew(old.as_ref(), token, duration, records.now) else {
        return Ok(RenewalOutcome::Lost { holder: old.map(|lease| lease.seen_at(records.now)) });
    };
    records.write_lease(&lease)?;
    Ok(RenewalOutcome::Renewed)
}

pub(super) fn transfer(records: &Records<'_>, request: &TransferRequest) -> TransactionResult<GiveUpOutcome> {
    let partition = request.token.partition;
    let (old, fence) = (records.lease(partition)?, records.fence(partition)?);
    let Some(change) = record::transfer(old.as_ref(), fence, request, records.now)? else {
        return Ok(GiveUpOutcome::NotOurs);
    };
    records.apply(&change)?;
    records.wake(&request.to)?;
    Ok(GiveUpOutcome::Done)
}

pub(super) fn release(records: &Records<'_>, request: &ReleaseRequest) -> TransactionResult<GiveUpOutcome> {
    let partition = request.token.partition;
    let (old, fence) = (records.lease(partition)?, records.fence(partition)?);
    let Some(change) = record::release(old.as_ref(), fence, request, records.now) else {
        return Ok(GiveUpOutcome::NotOurs);
    };
    records.apply(&change)?;
    match &request.successor {
        Some(successor) => records.wake(successor)?,
        None => records.wake_all()?,
    }
    Ok(GiveUpOutcome::Done)
}

pub(super) fn save(records: &Records<'_>, request: &SaveRequest) -> TransactionResult<SaveOutcome> {
    let partition = request.token.partition;
    let old = records.checkpoint(partition)?;
    Ok(match record::save(&old, request, records.now, &Rules::default()) {
        SaveVerdict::Write(checkpoint) => {
            records.write_position(partition, &checkpoint)?;
            SaveOutcome::Saved(checkpoint)
        }
        SaveVerdict::Behind(stored) => SaveOutcome::Behind { stored },
        SaveVerdict::Fenced { epoch } => SaveOutcome::Fenced { epoch },
    })
}

/// Moves a position. `force` has no effect: every owner here is a host of Ephor, which notices the
/// seek. The old position is not read, so that a seek can replace a damaged one.
pub(super) fn seek(records: &Records<'_>, request: &SeekRequest) -> TransactionResult<SeekOutcome> {
    let partition = request.partition;
    let (old, fence) = (records.lease(partition)?, records.fence(partition)?);
    let change = record::seek(old.as_ref(), fence, partition, &request.by, records.now, &Rules::default())?;
    let epoch = change.lease.epoch;
    let (position, log) = (request.position.clone(), request.log.clone());
    records.write_position(partition, &Checkpoint { position, log, epoch, saved_at: records.now })?;
    records.apply(&change)?;
    if let Some(owner) = &change.history.from {
        records.wake(owner)?;
    }
    Ok(SeekOutcome::Done { epoch })
}
