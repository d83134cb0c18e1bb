//! Tests of the tables: they are created once, keep unknown columns, and are refused if a later release
//! created or migrated them. Also tests damaged records, the length of the history, and the deletion of dead
//! hosts.

use std::sync::atomic::Ordering;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::lease::{
    ClaimCause, ClaimRequest, LeaseToken, ReleaseCause, ReleaseRequest, TransferRequest,
};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{
    ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome, SaveRequest,
    SeekRequest, Store, StoreError,
};
use ephor_stores::postgres::PostgresOptions;
use ephor_stores::postgres::sqlx::{Connection, PgConnection, Row};

use crate::fixture::{
    LEASE, P, claim, database, database_on, finished, group, host, open, open_with, record, save, sql,
    stored, try_claim, wait,
};
use crate::proxy;
use crate::server::shared;

#[test]
fn many_that_come_at_once_make_the_tables_once() {
    wait(async {
        let url = database().await;
        let stores: Vec<_> = (0..12).map(|_| open(&url)).collect();
        let mut checks = tokio::task::JoinSet::new();
        for store in stores.clone() {
            checks.spawn(async move { store.check().await });
        }
        for outcome in checks.join_all().await {
            outcome.unwrap();
        }
        let rows = sql(&url, "SELECT version FROM ephor.schema_version").await;
        assert_eq!(rows.len(), 1);
        claim(&stores[0], P, "a").await;
        assert_eq!(stores[11].view(&group()).await.unwrap().leases.len(), 1);
    });
}

#[test]
fn schemas_of_one_database_are_apart() {
    wait(async {
        let url = database().await;
        let other = open_with(&url, PostgresOptions { schema: "other".into(), ..PostgresOptions::default() });
        claim(&open(&url), P, "a").await;
        assert!(other.groups().await.unwrap().is_empty());
        assert_eq!(claim(&other, P, "b").await.epoch.get(), 1);
    });
}

#[test]
fn tables_of_a_later_release_are_refused_and_left_alone() {
    wait(async {
        let url = database().await;
        open(&url).check().await.unwrap();
        sql(&url, "UPDATE ephor.schema_version SET version = 7").await;
        let store = open(&url);
        for _ in 0..2 {
            let error = store.groups().await.expect_err("they are newer");
            let StoreError::Refused { message, .. } = &error else { panic!("{error}") };
            assert!(message.contains("version 7") && message.contains("up to 1"), "{message}");
        }
        // Once that is decided, it goes on.
        sql(&url, "UPDATE ephor.schema_version SET version = 1").await;
        assert!(store.groups().await.unwrap().is_empty());
    });
}

#[test]
fn tables_that_somebody_dropped_are_made_again() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        claim(&store, P, "a").await;
        sql(&url, "DROP SCHEMA ephor CASCADE").await;
        let error = store.groups().await.expect_err("they are gone");
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        assert!(store.groups().await.unwrap().is_empty());
    });
}

/// A release to come has added columns: this one writes around them.
#[test]
fn values_of_unknown_columns_are_kept() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        store.heartbeat(&group(), &record("a")).await.unwrap();
        let token = claim(&store, P, "a").await;
        save(&store, &token, 1).await.unwrap();
        assert!(store.set_desired_state(&group(), &host("a"), DesiredState { drain: true }).await.unwrap());
        let tables = ["leases", "checkpoints", "hosts", "orders"];
        for table in tables {
            let add = format!(
                "ALTER TABLE ephor.{table} ADD COLUMN zone text; UPDATE ephor.{table} SET zone = 'b'"
            );
            sql(&url, &add).await;
        }
        store.heartbeat(&group(), &record("a")).await.unwrap();
        store.set_desired_state(&group(), &host("a"), DesiredState { drain: false }).await.unwrap();
        assert_eq!(
            store.renew(&group(), LEASE, std::slice::from_ref(&token)).await.unwrap(),
            [RenewalOutcome::Renewed]
        );
        assert!(matches!(save(&store, &token, 2).await.unwrap(), SaveOutcome::Saved(_)));
        let request = TransferRequest { token, to: host("b"), duration: LEASE, checkpoint_saved: true };
        assert_eq!(store.transfer(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
        let token = store.view(&group()).await.unwrap().lease(P).unwrap().token().unwrap();
        let request =
            ReleaseRequest { token, cause: ReleaseCause::Shutdown, successor: None, checkpoint_saved: true };
        assert_eq!(store.release(&group(), &request).await.unwrap(), GiveUpOutcome::Done);
        claim(&store, P, "c").await;
        for table in tables {
            let rows = sql(&url, &format!("SELECT zone FROM ephor.{table}")).await;
            let zones: Vec<Option<String>> = rows.iter().map(|row| row.get("zone")).collect();
            assert_eq!(zones, [Some("b".to_owned())], "{table}");
        }
        assert_eq!(stored(&store, P).await, Some(2));
    });
}

#[test]
fn one_damaged_record_hides_no_other() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        for name in ["a", "b"] {
            store.heartbeat(&group(), &record(name)).await.unwrap();
        }
        let mine = claim(&store, P, "a").await;
        save(&store, &mine, 5).await.unwrap();
        for partition in [7, 8, 9] {
            let token = claim(&store, ephor_core::ids::PartitionId(partition), "a").await;
            save(&store, &token, 5).await.unwrap();
        }
        sql(
            &url,
            "UPDATE ephor.leases SET owner = 'nobody' WHERE partition = 7; \
                   UPDATE ephor.checkpoints SET position = '{}' WHERE partition = 8; \
                   UPDATE ephor.checkpoints SET epoch = -1 WHERE partition = 9; \
                   UPDATE ephor.hosts SET record = 'x' WHERE host LIKE 'b#%'; \
                   INSERT INTO ephor.groups VALUES ('ns homes alarms', 'x')",
        )
        .await;
        let view = store.view(&group()).await.unwrap();
        assert_eq!((view.leases.len(), view.checkpoints.len(), view.hosts.len()), (3, 2, 1));
        assert_eq!(view.damaged.len(), 5, "{:?}", view.damaged);
        for words in [
            "lease of partition 7",
            "checkpoint of partition 8",
            "checkpoint of partition 9",
            "host b#",
            "origin record",
        ] {
            assert!(view.damaged.iter().any(|what| what.contains(words)), "{words}: {:?}", view.damaged);
        }
        // What is damaged is not taken over blindly, and a seek mends a position.
        let eight = ephor_core::ids::PartitionId(8);
        let error = try_claim(&store, eight, "b", ClaimCause::Expired).await.expect_err("no position");
        assert!(matches!(error, StoreError::Damaged { .. }), "{error}");
        let request = ephor_core::store::SeekRequest {
            partition: eight,
            position: crate::fixture::finished(3),
            log: None,
            by: "ada".into(),
            force: false,
        };
        store.seek(&group(), &request).await.unwrap();
        let won = try_claim(&store, eight, "b", ClaimCause::Unowned).await.unwrap();
        assert!(matches!(won, ClaimOutcome::Won { checkpoint: Some(_), .. }), "{won:?}");
        // The others are renewed whatever one of them says.
        let lost =
            ephor_core::lease::LeaseToken { partition: ephor_core::ids::PartitionId(7), ..mine.clone() };
        let answers = store.renew(&group(), LEASE, &[lost, mine]).await.unwrap();
        assert!(
            matches!(&answers[..], [RenewalOutcome::Unknown { .. }, RenewalOutcome::Renewed]),
            "{answers:?}"
        );
    });
}

#[test]
fn a_hundred_changes_of_each_partition_are_remembered() {
    wait(async {
        let store = open(&database().await);
        for _ in 0..105 {
            claim(&store, P, "a").await;
        }
        claim(&store, ephor_core::ids::PartitionId(4), "a").await;
        let history = store.history(&group(), Some(P), 1_000).await.unwrap();
        assert_eq!(history.len(), 100);
        assert_eq!((history[0].epoch.get(), history[99].epoch.get()), (105, 6));
        assert_eq!(store.history(&group(), None, 1_000).await.unwrap().len(), 101);
    });
}

/// Their records as if they had been written so many minutes ago.
async fn age(url: &str, name: &str, minutes: i64) {
    let age = minutes * 60 * 1_000;
    let back = format!(
        "UPDATE ephor.hosts SET written_at = \
         floor(extract(epoch FROM clock_timestamp()) * 1000)::bigint - {age} WHERE host LIKE '{name}#%'"
    );
    sql(url, &back).await;
}

#[test]
fn a_host_is_forgotten_after_an_hour() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        store.heartbeat(&group(), &record("a")).await.unwrap();
        for (minutes, left) in [(59, 2), (61, 1)] {
            age(&url, "a", minutes).await;
            store.heartbeat(&group(), &record("b")).await.unwrap();
            assert_eq!(store.view(&group()).await.unwrap().hosts.len(), left, "{minutes}");
        }
    });
}

#[test]
fn a_host_that_shall_drain_is_forgotten_a_day_later_and_its_desired_state_with_it() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        for (minutes, left) in [(24 * 60 - 1, 1), (24 * 60 + 1, 0)] {
            store.heartbeat(&group(), &record("a")).await.unwrap();
            assert!(
                store.set_desired_state(&group(), &host("a"), DesiredState { drain: true }).await.unwrap()
            );
            age(&url, "a", minutes).await;
            store.heartbeat(&group(), &record("b")).await.unwrap();
            assert_eq!(sql(&url, "SELECT host FROM ephor.orders").await.len(), left, "{minutes}");
            // One that was only paused still learns of it.
            assert_eq!(store.heartbeat(&group(), &record("a")).await.unwrap().drain, left == 1);
        }
    });
}

/// Every row of every table.
async fn rows(url: &str) -> Vec<String> {
    let mut all = Vec::new();
    for table in ["groups", "leases", "checkpoints", "hosts", "orders", "history"] {
        let select = format!("SELECT '{table}: ' || t::text AS line FROM ephor.{table} t ORDER BY 1");
        all.extend(sql(url, &select).await.iter().map(|row| row.get::<String, _>("line")));
    }
    all
}

fn is_refused<T>(call: &str, outcome: Result<T, StoreError>) {
    match outcome {
        Err(StoreError::Refused { message, .. }) if message.contains("version 99") => {}
        Err(other) => panic!("{call}: {other}"),
        Ok(_) => panic!("{call} was carried out"),
    }
}

fn requests(token: &LeaseToken) -> (TransferRequest, ReleaseRequest, ClaimRequest, SeekRequest) {
    let transfer =
        TransferRequest { token: token.clone(), to: host("b"), duration: LEASE, checkpoint_saved: true };
    let cause = ReleaseCause::Shutdown;
    let release = ReleaseRequest { token: token.clone(), cause, successor: None, checkpoint_saved: true };
    let claim = ClaimRequest {
        partition: PartitionId(9),
        host: host("a"),
        duration: LEASE,
        seen: None,
        above: Epoch::NONE,
        cause: ClaimCause::Unowned,
    };
    let position = finished(3);
    let seek = SeekRequest { partition: P, position, log: None, by: "ada".into(), force: false };
    (transfer, release, claim, seek)
}

/// A later release has changed the tables while this one runs: no call reads or writes them any more.
#[test]
fn a_host_of_an_earlier_release_is_refused_every_call_when_the_tables_become_newer() {
    wait(async {
        let url = database().await;
        let store = open(&url);
        let (group, host) = (group(), host("a"));
        store.heartbeat(&group, &record("a")).await.unwrap();
        let token = claim(&store, P, "a").await;
        let tokens = std::slice::from_ref(&token);
        assert_eq!(store.renew(&group, LEASE, tokens).await.unwrap(), [RenewalOutcome::Renewed]);
        save(&store, &token, 1).await.unwrap();
        // The next heartbeat would delete this one.
        store.heartbeat(&group, &record("dead")).await.unwrap();
        age(&url, "dead", 61).await;
        let before = rows(&url).await;
        sql(&url, "UPDATE ephor.schema_version SET version = 99").await;
        let (transfer, release, claim, seek) = requests(&token);
        for _ in 0..2 {
            is_refused("renew", store.renew(&group, LEASE, tokens).await);
            is_refused("heartbeat", store.heartbeat(&group, &record("a")).await);
            is_refused("save", save(&store, &token, 2).await);
            is_refused("claim", store.claim(&group, &claim).await);
            is_refused("transfer", store.transfer(&group, &transfer).await);
            is_refused("release", store.release(&group, &release).await);
            is_refused("seek", store.seek(&group, &seek).await);
            let origin = GroupOrigin { partitions: vec![P], log: None };
            is_refused("found", store.init_group(&group, &origin).await);
            is_refused("order", store.set_desired_state(&group, &host, DesiredState { drain: true }).await);
            is_refused("retire", store.retire(&group, &host).await);
            is_refused("view", store.view(&group).await);
            is_refused("groups", store.groups().await);
            is_refused("history", store.history(&group, None, 10).await);
            let mut connection = PgConnection::connect(&url).await.unwrap();
            let mut transaction = connection.begin().await.unwrap();
            let request = SaveRequest::new(&token, &finished(2), None);
            let saved = store.save_in(&mut transaction, &group, &request, SequenceNumber(2)).await;
            is_refused("save_in", saved);
            transaction.commit().await.unwrap();
        }
        assert_eq!(rows(&url).await, before);
    });
}

/// The migration comes between the two statements of a call: the second one must not write, either.
#[test]
fn a_call_that_has_read_the_tables_does_not_write_them_when_they_have_become_newer() {
    wait(async {
        let server = shared();
        let name = database_on(server).await;
        let url = server.url(&name);
        let (port, weather) = proxy::start(server.port).await;
        let options = PostgresOptions { listen: false, connections: 1, ..PostgresOptions::default() };
        let store = open_with(&url.replace(&server.port.to_string(), &port.to_string()), options);
        let token = claim(&store, P, "a").await;
        save(&store, &token, 1).await.unwrap();
        let before = rows(&url).await;
        let (transfer, release, claim, seek) = requests(&token);
        for call in ["save", "claim", "transfer", "release", "seek"] {
            sql(&url, "UPDATE ephor.schema_version SET version = 1").await;
            store.groups().await.unwrap();
            weather.held.store(true, Ordering::SeqCst);
            let act = async {
                let group = group();
                match call {
                    "save" => is_refused(call, save(&store, &token, 2).await),
                    "claim" => is_refused(call, store.claim(&group, &claim).await),
                    "transfer" => is_refused(call, store.transfer(&group, &transfer).await),
                    "release" => is_refused(call, store.release(&group, &release).await),
                    _ => is_refused(call, store.seek(&group, &seek).await),
                }
            };
            let migrate = async {
                let read = "SELECT 1 FROM pg_stat_activity WHERE state = 'idle' \
                            AND datname = current_database() AND query LIKE '%AS kind%'";
                while sql(&url, read).await.is_empty() {}
                sql(&url, "UPDATE ephor.schema_version SET version = 99").await;
                weather.held.store(false, Ordering::SeqCst);
            };
            tokio::join!(act, migrate);
            assert_eq!(rows(&url).await, before, "{call}");
        }
    });
}
