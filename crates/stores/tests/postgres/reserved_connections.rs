//! Tests that renewals, heartbeats, views and changes of ownership do not wait for saves: database
//! connections are reserved for them.

use std::time::Duration;

use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, LeaseToken, ReleaseCause, ReleaseRequest};
use ephor_core::store::{
    ClaimOutcome, GiveUpOutcome, RenewalOutcome, SaveOutcome, SaveRequest, Store, StoreError,
};
use ephor_stores::postgres::sqlx::{self, Connection, PgConnection, Row};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};
use tokio::task::JoinSet;

use crate::fixture::{LEASE, P, claim, database_on, finished, group, record, transfer, try_claim, wait};
use crate::server::shared;

/// A store of two connections, each of which waits for the row of `P`'s checkpoint, and the transaction that holds that
/// row and the one of `LOCKED`.
struct Busy {
    store: PostgresStore,
    /// Of `P`, `LOCKED`, `GIVEN` and `LEFT`.
    tokens: Vec<LeaseToken>,
    holder: PgConnection,
    saves: JoinSet<Result<SaveOutcome, StoreError>>,
    url: String,
}

const LOCKED: PartitionId = PartitionId(4);
const GIVEN: PartitionId = PartitionId(5);
const LEFT: PartitionId = PartitionId(6);
const FREE: PartitionId = PartitionId(7);

impl Busy {
    async fn start() -> Self {
        let url = shared().url(&database_on(shared()).await);
        let long = Duration::from_secs(60);
        let options = PostgresOptions {
            connections: 2,
            call_limit: long,
            lock_wait: long,
            ..PostgresOptions::default()
        };
        let store = PostgresStore::new(&url, options).unwrap();
        let mut tokens = Vec::new();
        for partition in [P, LOCKED, GIVEN, LEFT] {
            tokens.push(claim(&store, partition, "a").await);
        }
        let mut holder = PgConnection::connect(&url).await.unwrap();
        let lock = "BEGIN; SELECT 1 FROM ephor.checkpoints WHERE partition IN (3, 4) FOR UPDATE";
        sqlx::raw_sql(lock).execute(&mut holder).await.unwrap();
        let mut saves = JoinSet::new();
        for sequence in 1..=8 {
            let (store, request) = (store.clone(), SaveRequest::new(&tokens[0], &finished(sequence), None));
            saves.spawn(async move { store.save(&group(), &request).await });
        }
        let busy = Self { store, tokens, holder, saves, url };
        busy.until_waiting(2).await;
        busy
    }

    /// Until this many connections wait for a row.
    async fn until_waiting(&self, count: i64) {
        let waiting = "SELECT count(*) AS n FROM pg_stat_activity \
                       WHERE wait_event_type = 'Lock' AND datname = current_database()";
        // Within one transaction the answer would stay the same.
        while crate::fixture::sql(&self.url, waiting).await[0].get::<i64, _>("n") < count {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    }

    async fn end(mut self) {
        sqlx::raw_sql("COMMIT").execute(&mut self.holder).await.unwrap();
        for saved in self.saves.join_all().await {
            let saved = saved.unwrap();
            assert!(matches!(saved, SaveOutcome::Saved(_) | SaveOutcome::Behind { .. }), "{saved:?}");
        }
    }
}

/// Fails if a call waits for the saves, which wait for as long as the test does.
async fn at_once<T>(call: impl Future<Output = Result<T, StoreError>>) -> T {
    let within = Duration::from_secs(10);
    tokio::time::timeout(within, call).await.expect("it waits for no save").unwrap()
}

#[test]
fn while_saves_use_up_all_connections_leases_are_renewed_and_heartbeats_written() {
    wait(async {
        let busy = Busy::start().await;
        let (group, store) = (group(), &busy.store);
        let renewed = at_once(store.renew(&group, LEASE, &busy.tokens)).await;
        assert_eq!(
            renewed,
            [
                RenewalOutcome::Renewed,
                RenewalOutcome::Renewed,
                RenewalOutcome::Renewed,
                RenewalOutcome::Renewed
            ]
        );
        at_once(store.heartbeat(&group, &record("a"))).await;
        busy.end().await;
    });
}

#[test]
fn while_saves_use_up_all_connections_hosts_look_claim_and_give_away() {
    wait(async {
        let busy = Busy::start().await;
        let (group, store) = (group(), &busy.store);
        assert_eq!(at_once(store.view(&group)).await.leases.len(), 4);
        let done = at_once(store.transfer(&group, &transfer(&busy.tokens[2], "b"))).await;
        assert_eq!(done, GiveUpOutcome::Done);
        let (token, cause) = (busy.tokens[3].clone(), ReleaseCause::Shutdown);
        let release = ReleaseRequest { token, cause, successor: None, checkpoint_saved: true };
        assert_eq!(at_once(store.release(&group, &release)).await, GiveUpOutcome::Done);
        let claimed = at_once(try_claim(store, FREE, "b", ClaimCause::Unowned)).await;
        assert!(matches!(claimed, ClaimOutcome::Won { .. }), "{claimed:?}");
        busy.end().await;
    });
}

/// A transfer may have to wait for somebody's transaction, and renewals must not wait for the transfer.
#[test]
fn leases_are_renewed_while_a_change_of_ownership_waits_for_a_row() {
    wait(async {
        let busy = Busy::start().await;
        let (store, request) = (busy.store.clone(), transfer(&busy.tokens[1], "b"));
        let waits = tokio::spawn(async move { store.transfer(&group(), &request).await });
        busy.until_waiting(3).await;
        let renewed = at_once(busy.store.renew(&group(), LEASE, &busy.tokens[..1])).await;
        assert_eq!(renewed, [RenewalOutcome::Renewed]);
        busy.end().await;
        assert_eq!(waits.await.unwrap().unwrap(), GiveUpOutcome::Done);
    });
}
