//! Tests of files that a later release has opened: unknown columns keep their values, and later tables are
//! refused.

use ephor_core::position::StartPosition;
use ephor_core::store::{DesiredState, GroupOrigin, SaveOutcome, SeekRequest, Store};
use ephor_stores::sqlite::{OpenError, SqliteStore};

use crate::fixture::{Folder, LEASE, P, beat, claim, group, hand_over, host, save, wait};

#[test]
fn columns_that_a_later_release_added_keep_their_values() {
    let folder = Folder::new();
    let store = folder.open();
    let token = claim(&store, P, "a");
    save(&store, &token, 1).unwrap();
    wait(store.init_group(&group(), &GroupOrigin { partitions: vec![P], log: None })).unwrap();
    beat(&store, "a");
    wait(store.set_desired_state(&group(), &host("a"), DesiredState { drain: false })).unwrap();
    let tables = ["state", "groups", "leases", "checkpoints", "hosts", "orders", "history", "wakes"];
    let sql = folder.sql();
    for table in tables {
        sql.execute_batch(&format!(
            "ALTER TABLE {table} ADD COLUMN mood TEXT; UPDATE {table} SET mood = 'new';"
        ))
        .unwrap();
    }
    for store in [store, folder.open()] {
        let token = wait(store.view(&group())).unwrap().lease(P).unwrap().token().unwrap();
        wait(store.renew(&group(), LEASE, std::slice::from_ref(&token))).unwrap();
        save(&store, &token, 2).unwrap();
        beat(&store, "a");
        wait(store.set_desired_state(&group(), &host("a"), DesiredState { drain: true })).unwrap();
        hand_over(&store, &token, "a");
        let token = claim(&store, P, "b");
        let position = ephor_core::checkpoint::Position::Start(StartPosition::Earliest);
        let seek = SeekRequest { partition: P, position, log: None, by: "ada".into(), force: false };
        wait(store.seek(&group(), &seek)).unwrap();
        assert!(matches!(save(&store, &token, 3).unwrap(), SaveOutcome::Fenced { .. }));
        claim(&store, P, "a");
    }
    for table in tables {
        let kept: i64 = sql
            .query_row(&format!("SELECT count(*) FROM {table} WHERE mood = 'new'"), [], |row| row.get(0))
            .unwrap();
        assert_eq!(kept, 1, "{table}");
    }
}

#[test]
fn tables_of_a_later_version_are_refused_and_left_alone() {
    let folder = Folder::new();
    drop(folder.open());
    folder.sql().pragma_update(None, "user_version", 7).unwrap();
    let error = SqliteStore::open(folder.database()).expect_err("they are newer");
    assert!(matches!(error, OpenError::Newer { found: 7, known: 1, .. }), "{error}");
    assert!(
        error.to_string().contains("version 7") && error.to_string().contains("later release"),
        "{error}"
    );
    let version: i64 = folder.sql().pragma_query_value(None, "user_version", |row| row.get(0)).unwrap();
    assert_eq!(version, 7);
}
