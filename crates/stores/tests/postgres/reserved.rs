//! Renewals and heartbeats do not wait for other calls: a connection is reserved for them.

use std::time::Duration;

use ephor_core::store::{Renewal, Save, SaveRequest, Store};
use ephor_stores::postgres::sqlx::{self, Connection, PgConnection, Row};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use crate::server::shared;
use crate::world::{LEASE, P, claim, database_on, finished, group, record, wait};

/// Every connection waits for the row of a checkpoint, which somebody else's transaction holds.
#[test]
fn while_saves_use_up_all_connections_leases_are_renewed_and_heartbeats_written() {
    wait(async {
        let url = shared().url(&database_on(shared()).await);
        let long = Duration::from_secs(60);
        let options = PostgresOptions {
            connections: 2,
            call_limit: long,
            lock_wait: long,
            ..PostgresOptions::default()
        };
        let store = PostgresStore::connect(&url, options).unwrap();
        let token = claim(&store, P, "a").await;
        let mut other = PgConnection::connect(&url).await.unwrap();
        let lock = "BEGIN; SELECT 1 FROM ephor.checkpoints FOR UPDATE";
        sqlx::raw_sql(lock).execute(&mut other).await.unwrap();
        let mut saves = JoinSet::new();
        for sequence in 1..=8 {
            let (store, request) = (store.clone(), SaveRequest::new(&token, &finished(sequence), None));
            saves.spawn(async move { store.save(&group(), &request).await });
        }
        // Until both connections wait.
        loop {
            let sql = "SELECT count(*) AS n FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND datname = current_database()";
            // Within one transaction the answer would stay the same.
            if crate::world::sql(&url, sql).await[0].get::<i64, _>("n") >= 2 {
                break;
            }
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
        let group = group();
        let tokens = [token.clone()];
        let within = Duration::from_secs(10);
        let renewed = tokio::time::timeout(within, store.renew(&group, LEASE, &tokens)).await;
        assert_eq!(renewed.expect("it waits for no save").unwrap(), [Renewal::Renewed]);
        let beat = tokio::time::timeout(within, store.heartbeat(&group, &record("a"))).await;
        beat.expect("nor does a heartbeat").unwrap();
        sqlx::raw_sql("COMMIT").execute(&mut other).await.unwrap();
        for saved in saves.join_all().await {
            let saved = saved.unwrap();
            assert!(matches!(saved, Save::Saved(_) | Save::Behind { .. }), "{saved:?}");
        }
    });
}
