//! Tests of saves inside the user's transaction: results and position are committed together, and a fenced
//! owner's are refused.

use std::time::Duration;

use ephor_core::lease::{ClaimCause, LeaseToken};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{ClaimOutcome, RenewalOutcome, SaveOutcome, SaveRequest, Store, StoreError};
use ephor_stores::postgres::sqlx::{Connection, PgConnection, Postgres, Row, Transaction, raw_sql};
use ephor_stores::postgres::{PostgresOptions, PostgresStore};

use crate::fixture::{
    LEASE, P, claim, database, finished, group, open, open_with, save, sql, stored, try_claim, wait,
};

async fn tables() -> (String, PgConnection) {
    let url = database().await;
    sql(&url, "CREATE TABLE results (sequence bigint)").await;
    let connection = PgConnection::connect(&url).await.unwrap();
    (url, connection)
}

async fn results(url: &str) -> Vec<i64> {
    let rows = sql(url, "SELECT sequence FROM results ORDER BY 1").await;
    rows.iter().map(|row| row.get("sequence")).collect()
}

/// Writes results from `first` to `last`, and the position.
async fn work(
    store: &PostgresStore,
    transaction: &mut Transaction<'_, Postgres>,
    token: &LeaseToken,
    (first, last): (u64, u64),
) -> Result<SaveOutcome, StoreError> {
    let insert = format!("INSERT INTO results SELECT generate_series({first}, {last})");
    raw_sql(ephor_stores::postgres::sqlx::AssertSqlSafe(insert)).execute(&mut **transaction).await.unwrap();
    let request = SaveRequest::new(token, &finished(last), None);
    store.save_in(transaction, &group(), &request, SequenceNumber(first)).await
}

#[test]
fn results_and_progress_are_committed_together_or_not_at_all() {
    wait(async {
        let (url, mut connection) = tables().await;
        let store = open(&url);
        let token = claim(&store, P, "a").await;
        let mut transaction = connection.begin().await.unwrap();
        assert!(matches!(
            work(&store, &mut transaction, &token, (1, 3)).await.unwrap(),
            SaveOutcome::Saved(_)
        ));
        assert_eq!((stored(&store, P).await, results(&url).await), (None, vec![]));
        transaction.commit().await.unwrap();
        assert_eq!((stored(&store, P).await, results(&url).await), (Some(3), vec![1, 2, 3]));
        let mut transaction = connection.begin().await.unwrap();
        assert!(matches!(
            work(&store, &mut transaction, &token, (4, 5)).await.unwrap(),
            SaveOutcome::Saved(_)
        ));
        transaction.rollback().await.unwrap();
        assert_eq!((stored(&store, P).await, results(&url).await), (Some(3), vec![1, 2, 3]));
    });
}

#[test]
fn what_is_done_already_is_not_done_twice() {
    wait(async {
        let (url, mut connection) = tables().await;
        let store = open(&url);
        let token = claim(&store, P, "a").await;
        let mut transaction = connection.begin().await.unwrap();
        work(&store, &mut transaction, &token, (1, 3)).await.unwrap();
        transaction.commit().await.unwrap();
        // The answer to the commit was lost: the same batch, a longer one, and one that begins within it.
        for range in [(1, 3), (1, 5), (3, 5), (2, 2)] {
            let mut transaction = connection.begin().await.unwrap();
            let outcome = work(&store, &mut transaction, &token, range).await.unwrap();
            assert!(
                matches!(&outcome, SaveOutcome::Behind { stored } if stored.position == finished(3)),
                "{outcome:?}"
            );
            transaction.rollback().await.unwrap();
        }
        let mut transaction = connection.begin().await.unwrap();
        assert!(matches!(
            work(&store, &mut transaction, &token, (4, 5)).await.unwrap(),
            SaveOutcome::Saved(_)
        ));
        transaction.commit().await.unwrap();
        assert_eq!((stored(&store, P).await, results(&url).await), (Some(5), vec![1, 2, 3, 4, 5]));
    });
}

#[test]
fn who_is_no_longer_the_owner_is_fenced() {
    wait(async {
        let (url, mut connection) = tables().await;
        let store = open(&url);
        let token = claim(&store, P, "a").await;
        let next = claim(&store, P, "b").await;
        let mut transaction = connection.begin().await.unwrap();
        let outcome = work(&store, &mut transaction, &token, (1, 3)).await.unwrap();
        assert_eq!(outcome, SaveOutcome::Fenced { epoch: next.epoch });
        transaction.rollback().await.unwrap();
        let elsewhere = LeaseToken { partition: ephor_core::ids::PartitionId(9), ..next };
        let mut transaction = connection.begin().await.unwrap();
        let outcome = work(&store, &mut transaction, &elsewhere, (1, 3)).await.unwrap();
        assert!(matches!(outcome, SaveOutcome::Fenced { .. }), "{outcome:?}");
    });
}

#[test]
fn a_takeover_waits_for_the_commit_and_renewals_do_not() {
    wait(async {
        let (url, mut connection) = tables().await;
        let store = open(&url);
        let token = claim(&store, P, "a").await;
        let mut transaction = connection.begin().await.unwrap();
        work(&store, &mut transaction, &token, (1, 3)).await.unwrap();
        let taker = store.clone();
        let takeover = tokio::spawn(async move { try_claim(&taker, P, "b", ClaimCause::Expired).await });
        let waiting = "SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                       AND datname = current_database()";
        while sql(&url, waiting).await.is_empty() {
            assert!(!takeover.is_finished(), "it did not wait");
        }
        // While the other waits for the checkpoint, the lease is renewed as if nothing were.
        let renewed = store.renew(&group(), LEASE, std::slice::from_ref(&token)).await.unwrap();
        assert_eq!(renewed, [RenewalOutcome::Renewed]);
        assert!(!takeover.is_finished(), "the renewal had to wait for it");
        let refused = takeover.await.unwrap().expect_err("the row is held");
        assert!(matches!(refused, StoreError::Unavailable(_)), "{refused}");
        assert!(refused.to_string().contains("should commit soon"), "{refused}");
        transaction.commit().await.unwrap();
        let won = try_claim(&store, P, "b", ClaimCause::Expired).await.unwrap();
        let ClaimOutcome::Won { checkpoint: Some(checkpoint), .. } = won else { panic!("{won:?}") };
        assert_eq!(checkpoint.position, finished(3));
        assert!(matches!(save(&store, &token, 4).await.unwrap(), SaveOutcome::Fenced { .. }));
    });
}

#[test]
fn a_transaction_that_is_left_open_is_ended() {
    wait(async {
        let (url, mut connection) = tables().await;
        let options = PostgresOptions {
            lock_wait: Duration::from_secs(10),
            call_limit: Duration::from_secs(20),
            transaction_idle: Duration::from_millis(300),
            ..PostgresOptions::default()
        };
        let store = open_with(&url, options);
        let token = claim(&store, P, "a").await;
        let mut transaction = connection.begin().await.unwrap();
        work(&store, &mut transaction, &token, (1, 3)).await.unwrap();
        // Its owner hangs. The takeover waits until the server has ended it, and finds nothing of it.
        let won = try_claim(&store, P, "b", ClaimCause::Expired).await.unwrap();
        assert!(matches!(won, ClaimOutcome::Won { checkpoint: None, .. }), "{won:?}");
        transaction.commit().await.expect_err("it is gone");
        assert!(results(&url).await.is_empty());
    });
}
