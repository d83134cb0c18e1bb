//! A database of its own for each test, and the steps that most tests begin with.

#![allow(dead_code, reason = "each kind of test uses its part")]

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostRecord, HostState, HostStatistics};
use ephor_core::ids::{GroupId, HostId, Incarnation, PartitionId};
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{Claim, Save, SaveRequest, Store, StoreError};
use ephor_stores::postgres::sqlx::postgres::PgRow;
use ephor_stores::postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use crate::server::{Server, shared};

pub(crate) const P: PartitionId = PartitionId(3);
pub(crate) const LEASE: Duration = Duration::from_secs(30);

/// Nothing that is to come takes this long.
pub(crate) const PATIENCE: Duration = Duration::from_secs(60);

/// Runs to the end on several threads, or fails after a long time.
pub(crate) fn wait<T>(future: impl Future<Output = T>) -> T {
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    runtime.block_on(async { tokio::time::timeout(PATIENCE, future).await.expect("an end in time") })
}

/// Runs statements as the admin sees them, past the store.
pub(crate) async fn sql(url: &str, text: &str) -> Vec<PgRow> {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let rows = sqlx::raw_sql(AssertSqlSafe(text)).fetch_all(&mut connection).await.unwrap();
    connection.close().await.unwrap();
    rows
}

/// The URL of a new database on the shared server.
pub(crate) async fn database() -> String {
    let server = shared();
    server.url(&database_on(server).await)
}

/// The name of a new database.
pub(crate) async fn database_on(server: &Server) -> String {
    static COUNT: AtomicUsize = AtomicUsize::new(0);
    let name = format!("test_{}", COUNT.fetch_add(1, Ordering::Relaxed));
    sql(&server.url("postgres"), &format!("CREATE DATABASE {name}")).await;
    name
}

pub(crate) fn open(url: &str) -> PostgresStore {
    open_with(url, PostgresOptions::default())
}

pub(crate) fn open_with(url: &str, options: PostgresOptions) -> PostgresStore {
    PostgresStore::connect(url, options).unwrap()
}

pub(crate) fn group() -> GroupId {
    GroupId {
        namespace: "ns".parse().unwrap(),
        hub: "homes".parse().unwrap(),
        group: "alarms".parse().unwrap(),
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

/// What is stored as finished.
pub(crate) async fn stored(store: &dyn Store, partition: PartitionId) -> Option<u64> {
    let view = store.view(&group()).await.unwrap();
    view.checkpoint(partition)?.position.finished().map(|sequence| sequence.0)
}
