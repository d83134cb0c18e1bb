//! Test helper: a database for each test, and the group that the tests use.

#![allow(dead_code, reason = "each kind of test uses its part")]

#[path = "../shared/store_steps.rs"]
mod store_steps;

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor_core::ids::GroupId;
use ephor_stores::postgres::sqlx::postgres::PgRow;
use ephor_stores::postgres::sqlx::{self, AssertSqlSafe, Connection, PgConnection};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use crate::server::{Server, shared};

pub(crate) use store_steps::{LEASE, P, claim, finished, host, record, save, stored, transfer, try_claim};

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
    PostgresStore::new(url, options).unwrap()
}

pub(crate) fn group() -> GroupId {
    GroupId {
        namespace: "ns".parse().unwrap(),
        hub: "homes".parse().unwrap(),
        group: "alarms".parse().unwrap(),
    }
}
