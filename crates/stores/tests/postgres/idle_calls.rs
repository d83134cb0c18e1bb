//! Tests that an idle host makes as many store calls with 256 partitions as with 16: on the stores in memory,
//! SQLite and PostgreSQL.
//!
//! Everything is counted from one renewal to another, so that a busy machine, where all goes slower, counts the
//! same. `crates/host/tests/host/store_costs.rs` asks the same on virtual time.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{EventProcessorHost, PartitionManagerOptions, Store};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};
use ephor_stores::sqlite::SqliteStore;
use ephor_testkit::CountingStore;
use ephor_testkit::postgres_server::Server;

use crate::proxy;

/// Renewals that are counted: an interval each.
const INTERVALS: usize = 8;
/// Nothing that is to come takes this long.
const PATIENCE: Duration = Duration::from_secs(60);

fn quick() -> PartitionManagerOptions {
    PartitionManagerOptions {
        lease_duration: Duration::from_secs(10),
        renew_interval: Duration::from_secs(1),
        slow_scan: Duration::from_millis(500),
        fast_scan: Duration::from_millis(250),
        fence_margin: Duration::from_secs(1),
        store_timeout: Duration::from_secs(5),
        ..PartitionManagerOptions::default()
    }
}

type Calls = BTreeMap<&'static str, usize>;

/// The calls of an idle host in [`INTERVALS`], and the traffic meanwhile, where there is a connection.
struct Counted {
    calls: Calls,
    round_trips: Option<usize>,
}

async fn until(what: &str, mut done: impl FnMut() -> bool) {
    let waiting = async {
        while !done() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(PATIENCE, waiting).await.expect(what);
}

/// Waits until so many renewals are counted.
async fn renewals(store: &CountingStore, count: usize) {
    until("leases are renewed", || store.all_calls().get("renew").is_some_and(|have| *have >= count)).await;
}

async fn count(store: Arc<dyn Store>, partitions: u32, weather: Option<&proxy::Weather>) -> Counted {
    let store = CountingStore::new(store);
    let hub = MemoryHub::new("homes", partitions).unwrap();
    let host = EventProcessorHost::builder(hub, store.clone())
        .host_name("counted")
        .manager_options(quick())
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap();
    host.start().await.unwrap();
    let owned = || host.snapshot().unwrap().partitions.len();
    until("all partitions are owned", || owned() == partitions as usize).await;
    // Some intervals for what follows the claims, and then from one renewal to another.
    store.reset();
    renewals(&store, 3).await;
    store.reset();
    weather.map(proxy::Weather::take_kinds);
    renewals(&store, INTERVALS).await;
    let calls = store.all_calls();
    let round_trips = weather.map(|weather| {
        let kinds = weather.take_kinds();
        assert!(kinds.chars().all(|kind| kind == 'Q'), "{kinds}");
        kinds.len()
    });
    assert_eq!(owned(), partitions as usize);
    host.stop(Duration::from_secs(30)).await.unwrap();
    Counted { calls, round_trips }
}

async fn on_memory(partitions: u32) -> Counted {
    count(Arc::new(MemoryStore::default()), partitions, None).await
}

async fn on_sqlite(partitions: u32) -> Counted {
    let folder = tempfile::tempdir().unwrap();
    let store = SqliteStore::open(folder.path().join("ephor.db")).unwrap();
    count(Arc::new(store), partitions, None).await
}

async fn on_postgres(server: &Server, partitions: u32) -> Counted {
    let (port, weather) = proxy::start(server.port).await;
    let url = server.url("postgres").replace(&format!(":{}/", server.port), &format!(":{port}/"));
    let options = PostgresOptions { schema: format!("of_{partitions}"), ..PostgresOptions::default() };
    let store = PostgresStore::new(&url, options).unwrap();
    count(Arc::new(store), partitions, Some(&weather)).await
}

/// Renewals and heartbeats come once in an interval; looks come every half interval less up to a quarter of it.
fn assert_constant(store: &str, partitions: u32, counted: &Counted) {
    let Counted { calls, round_trips } = counted;
    let most = |kind: &str| match kind {
        "renew" => INTERVALS,
        "heartbeat" => INTERVALS + 1,
        "view" => INTERVALS * 8 / 3 + 2,
        _ => 0,
    };
    for (kind, count) in calls {
        assert!(*count <= most(kind), "{store}, {partitions} partitions: {count} times {kind}");
    }
    assert_eq!(calls.len(), 3, "{store}: {calls:?}");
    // One may have been on its way at either end.
    let all: usize = calls.values().sum();
    let beside = round_trips.unwrap_or(all).abs_diff(all);
    assert!(beside <= 2, "{store}, {partitions} partitions: {round_trips:?} round trips for {calls:?}");
}

fn print(store: &str, partitions: u32, counted: &Counted) {
    let each = |count: usize| format!("{:.2}", count as f64 / INTERVALS as f64);
    let [renew, view, heartbeat] =
        ["renew", "view", "heartbeat"].map(|kind| each(counted.calls.get(kind).copied().unwrap_or(0)));
    let trips = counted.round_trips.map_or("-".to_owned(), each);
    println!("{store:<12}{partitions:>10}{renew:>8}{view:>8}{heartbeat:>11}{trips:>13}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_still_host_calls_its_store_as_often_with_256_partitions_as_with_16() {
    let server = Server::start();
    let counted = tokio::join!(
        on_memory(16),
        on_memory(256),
        on_sqlite(16),
        on_sqlite(256),
        on_postgres(&server, 16),
        on_postgres(&server, 256),
    );
    let rows = [
        ("memory", 16, counted.0),
        ("memory", 256, counted.1),
        ("SQLite", 16, counted.2),
        ("SQLite", 256, counted.3),
        ("PostgreSQL", 16, counted.4),
        ("PostgreSQL", 256, counted.5),
    ];
    println!(
        "calls of a still host from one renewal to the next, which is an interval; {INTERVALS} intervals"
    );
    println!(
        "{:<12}{:>10}{:>8}{:>8}{:>11}{:>13}",
        "store", "partitions", "renew", "view", "heartbeat", "round trips"
    );
    rows.iter().for_each(|(store, partitions, counted)| print(store, *partitions, counted));
    rows.iter().for_each(|(store, partitions, counted)| assert_constant(store, *partitions, counted));
}
