//! Test helpers that all store tests share: claim, save, seek and other calls. `fixture.rs` of each test
//! binary names the group.

#![allow(dead_code, reason = "each kind of test uses its part")]

use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostRecord, HostState, HostStatistics};
use ephor_core::ids::{HostId, Incarnation, PartitionId};
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken, TransferRequest};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{ClaimOutcome, SaveOutcome, SaveRequest, Store, StoreError};

use crate::fixture::group;

pub(crate) const P: PartitionId = PartitionId(3);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

pub(crate) fn host(name: &str) -> HostId {
    HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
}

pub(crate) fn finished(sequence: u64) -> Position {
    Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None }
}

pub(crate) fn record(name: &str) -> HostRecord {
    HostRecord {
        id: host(name),
        beat: 1,
        state: HostState::Active,
        lease_duration: LEASE,
        max_partitions: None,
        wants: Vec::new(),
        answers: Vec::new(),
        statistics: HostStatistics::default(),
        software: "test".into(),
        hub: None,
    }
}

pub(crate) fn transfer(token: &LeaseToken, to: &str) -> TransferRequest {
    TransferRequest { token: token.clone(), to: host(to), duration: LEASE, checkpoint_saved: true }
}

pub(crate) async fn try_claim_above(
    store: &dyn Store,
    partition: PartitionId,
    name: &str,
    cause: ClaimCause,
    above: Epoch,
) -> Result<ClaimOutcome, StoreError> {
    let view = store.view(&group()).await?;
    let seen = view.lease(partition).map(|lease| lease.version.clone());
    let request = ClaimRequest { partition, host: host(name), duration: LEASE, seen, above, cause };
    store.claim(&group(), &request).await
}

pub(crate) async fn try_claim(
    store: &dyn Store,
    partition: PartitionId,
    name: &str,
    cause: ClaimCause,
) -> Result<ClaimOutcome, StoreError> {
    try_claim_above(store, partition, name, cause, Epoch::NONE).await
}

pub(crate) async fn claim(store: &dyn Store, partition: PartitionId, name: &str) -> LeaseToken {
    match try_claim(store, partition, name, ClaimCause::Expired).await.unwrap() {
        ClaimOutcome::Won { token, .. } => token,
        ClaimOutcome::Lost { holder } => panic!("lost to {holder:?}"),
    }
}

pub(crate) async fn save(
    store: &dyn Store,
    token: &LeaseToken,
    sequence: u64,
) -> Result<SaveOutcome, StoreError> {
    store.save(&group(), &SaveRequest::new(token, &finished(sequence), None)).await
}

/// The number that is stored as finished.
pub(crate) async fn stored(store: &dyn Store, partition: PartitionId) -> Option<u64> {
    let view = store.view(&group()).await.unwrap();
    view.checkpoint(partition)?.position.finished().map(|sequence| sequence.0)
}
