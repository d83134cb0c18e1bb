//! The steps that most tests begin with.

use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostRecord, HostState, HostStatistics};
use ephor_core::ids::{GroupId, HostId, Incarnation, PartitionId};
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken, TransferRequest};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{Claim, Save, SaveRequest, SeekRequest, Store, StoreError};

pub(crate) const P: PartitionId = PartitionId(3);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Nothing that is to come takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// Where the group's blobs are.
pub(crate) const BASE: &str = "ns.example.net/homes/$default";

/// Runs to the end on several threads, or fails after a long time.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("an end in time") })
}

pub(crate) fn group() -> GroupId {
    GroupId {
        namespace: "ns.example.net".parse().unwrap(),
        hub: "Homes".parse().unwrap(),
        group: "$Default".parse().unwrap(),
    }
}

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
    }
}

pub(crate) async fn try_claim(
    store: &dyn Store,
    partition: PartitionId,
    name: &str,
    cause: ClaimCause,
) -> Result<Claim, StoreError> {
    let view = store.view(&group()).await?;
    let seen = view.lease(partition).map(|lease| lease.version.clone());
    let request =
        ClaimRequest { partition, host: host(name), duration: LEASE, seen, above: Epoch::NONE, cause };
    store.claim(&group(), &request).await
}

pub(crate) async fn claim(store: &dyn Store, partition: PartitionId, name: &str) -> LeaseToken {
    match try_claim(store, partition, name, ClaimCause::Expired).await.unwrap() {
        Claim::Won { token, .. } => token,
        Claim::Lost { holder } => panic!("lost to {holder:?}"),
    }
}

pub(crate) async fn save(store: &dyn Store, token: &LeaseToken, sequence: u64) -> Result<Save, StoreError> {
    store.save(&group(), &SaveRequest::new(token, &finished(sequence), None)).await
}

pub(crate) fn transfer(token: &LeaseToken, to: &str) -> TransferRequest {
    TransferRequest { token: token.clone(), to: host(to), duration: LEASE, settled: true }
}

pub(crate) fn seek(sequence: u64) -> SeekRequest {
    SeekRequest { partition: P, position: finished(sequence), log: None, by: "ada".into(), force: false }
}

/// What is stored as finished.
pub(crate) async fn stored(store: &dyn Store, partition: PartitionId) -> Option<u64> {
    let view = store.view(&group()).await.unwrap();
    view.checkpoint(partition)?.position.finished().map(|sequence| sequence.0)
}
