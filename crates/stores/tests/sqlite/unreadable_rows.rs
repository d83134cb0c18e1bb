//! Tests that unreadable rows are reported and hide no others, that unknown columns keep their values, and
//! that old rows are deleted.

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::store::{Claim, DesiredState, GroupOrigin, Renewal, Save, SeekRequest, Store, StoreError};
use ephor_stores::sqlite::{OpenError, SqliteStore};

use crate::fixture::{
    Folder, HandMachine, LEASE, P, beat, claim, finished, group, hand_over, host, save, stored, try_claim,
    wait,
};

const Q: PartitionId = PartitionId(4);

fn damaged<T: std::fmt::Debug>(result: Result<T, StoreError>) -> String {
    match result {
        Err(StoreError::Damaged { what }) => what,
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_damaged_lease_is_told_and_the_others_are_served() {
    let folder = Folder::new();
    let store = folder.open();
    let (lost, fine) = (claim(&store, P, "a"), claim(&store, Q, "a"));
    folder.sql().execute("UPDATE leases SET owner = 'nobody' WHERE partition = 3", []).unwrap();
    let view = wait(store.view(&group())).unwrap();
    assert_eq!(view.leases.iter().map(|lease| lease.partition).collect::<Vec<_>>(), [Q]);
    assert_eq!(view.damaged.len(), 1);
    assert!(view.damaged[0].contains("the lease of partition 3 of ns/homes/alarms: owner"), "{view:?}");
    let answers = wait(store.renew(&group(), LEASE, &[lost.clone(), fine.clone()])).unwrap();
    assert!(
        matches!(&answers[0], Renewal::Unknown { what, .. } if what.contains("partition 3")),
        "{answers:?}"
    );
    assert_eq!(answers[1], Renewal::Renewed);
    assert!(damaged(try_claim(&store, P, "b", Epoch::NONE)).contains("partition 3"));
    assert!(matches!(save(&store, &fine, 1).unwrap(), Save::Saved(_)));
}

#[test]
fn a_damaged_checkpoint_is_told_and_a_seek_mends_it() {
    let folder = Folder::new();
    let store = folder.open();
    let token = claim(&store, P, "a");
    save(&store, &token, 7).unwrap();
    let other = claim(&store, Q, "a");
    save(&store, &other, 8).unwrap();
    for harm in ["position = '{\"before\":7}'", "position = CAST(x'ff' AS TEXT)", "epoch = -1"] {
        let sql = format!("UPDATE checkpoints SET {harm} WHERE partition = 3");
        folder.sql().execute(&sql, []).unwrap();
        let view = wait(store.view(&group())).unwrap();
        assert_eq!((view.checkpoints.len(), view.damaged.len()), (1, 1), "{harm}");
        assert!(view.damaged[0].contains("the checkpoint of partition 3"), "{view:?}");
        // To guess a position could lose events: nobody owns it without one, and nobody saves over it.
        damaged(save(&store, &token, 9));
        let lease = view.lease(P).unwrap().version.clone();
        damaged(try_claim(&store, P, "b", Epoch::NONE));
        assert_eq!(wait(store.view(&group())).unwrap().lease(P).unwrap().version, lease);
        let request =
            SeekRequest { partition: P, position: finished(7), log: None, by: "ada".into(), force: false };
        wait(store.seek(&group(), &request)).unwrap();
        assert_eq!(stored(&store, P), Some(7));
    }
    let claimed = try_claim(&store, P, "b", Epoch::NONE).unwrap();
    assert!(matches!(claimed, Claim::Won { checkpoint: Some(_), .. }), "{claimed:?}");
}

#[test]
fn damaged_hosts_origins_and_lines_of_the_history_hide_nothing_else() {
    let folder = Folder::new();
    let store = folder.open();
    let origin = GroupOrigin { partitions: vec![P], log: None };
    wait(store.init_group(&group(), &origin)).unwrap();
    for name in ["a", "b"] {
        beat(&store, name);
        claim(&store, P, name);
    }
    let sql = folder.sql();
    sql.execute_batch(
        "UPDATE hosts SET record = '{}' WHERE host LIKE 'a#%';
         UPDATE groups SET founding = '';
         UPDATE history SET reason = 'borrowed' WHERE number = 1;
         INSERT INTO groups (namespace, hub, consumer_group, founding) VALUES ('n s', 'h', 'g', '{}');",
    )
    .unwrap();
    let view = wait(store.view(&group())).unwrap();
    assert_eq!((view.hosts.len(), view.leases.len(), view.damaged.len()), (1, 1, 2));
    assert!(view.damaged.iter().any(|what| what.contains("the record of host a#")), "{view:?}");
    assert!(view.damaged.iter().any(|what| what.contains("the origin record")), "{view:?}");
    assert!(damaged(wait(store.init_group(&group(), &origin))).contains("the origin record"));
    assert_eq!(wait(store.history(&group(), None, 10)).unwrap().len(), 1);
    assert_eq!(wait(store.groups()).unwrap(), [group()]);
    // The host itself writes its record anew.
    beat(&store, "a");
    assert_eq!(wait(store.view(&group())).unwrap().hosts.len(), 2);
}

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
        assert!(matches!(save(&store, &token, 3).unwrap(), Save::Fenced { .. }));
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

#[test]
fn the_history_of_a_partition_is_bounded() {
    let folder = Folder::new();
    let store = folder.open();
    claim(&store, Q, "b");
    let mut last = claim(&store, P, "a");
    for _ in 0..100 {
        last = claim(&store, P, "a");
    }
    let history = wait(store.history(&group(), Some(P), usize::MAX)).unwrap();
    assert_eq!((history.len(), history[0].epoch), (100, last.epoch));
    assert_eq!(history.last().unwrap().epoch.get(), 2);
    assert_eq!(wait(store.history(&group(), None, usize::MAX)).unwrap().len(), 101);
}

#[test]
fn who_is_not_heard_of_for_an_hour_is_forgotten() {
    let (folder, machine) = (Folder::new(), HandMachine::new(None, "boot", 1_800_000_000_000, 0));
    let store = folder.open_on(&machine);
    let hosts = || wait(store.view(&group())).unwrap().hosts.len();
    let wakes =
        || -> i64 { folder.sql().query_row("SELECT count(*) FROM wakes", [], |row| row.get(0)).unwrap() };
    beat(&store, "lost");
    // An order that was taken back leaves it as it was, and a wake that nobody hears.
    for drain in [true, false] {
        assert!(wait(store.set_desired_state(&group(), &host("lost"), DesiredState { drain })).unwrap());
    }
    machine.pass(3_599_999);
    beat(&store, "a");
    assert_eq!((hosts(), wakes()), (2, 1));
    machine.pass(1);
    beat(&store, "a");
    assert_eq!((hosts(), wakes()), (1, 0));
}

#[test]
fn who_shall_drain_is_forgotten_a_day_later_and_its_desired_state_with_it() {
    let (folder, machine) = (Folder::new(), HandMachine::new(None, "boot", 1_800_000_000_000, 0));
    let store = folder.open_on(&machine);
    let orders =
        || -> i64 { folder.sql().query_row("SELECT count(*) FROM orders", [], |row| row.get(0)).unwrap() };
    for (after, left) in [(86_399_999, 1), (86_400_000, 0)] {
        beat(&store, "lost");
        assert!(
            wait(store.set_desired_state(&group(), &host("lost"), DesiredState { drain: true })).unwrap()
        );
        machine.pass(after);
        beat(&store, "a");
        assert_eq!(orders(), left);
        // One that was only paused still learns of it.
        assert_eq!(beat(&store, "lost").drain, left == 1);
    }
    beat(&store, "lost");
    assert!(wait(store.set_desired_state(&group(), &host("lost"), DesiredState { drain: true })).unwrap());
    wait(store.retire(&group(), &host("lost"))).unwrap();
    assert!(!beat(&store, "lost").drain);
}

#[test]
fn an_epoch_beyond_what_can_be_counted_is_refused_and_the_store_goes_on() {
    let folder = Folder::new();
    let store = folder.open();
    let largest = Epoch::from_stored(i64::MAX as u64);
    let refused = try_claim(&store, P, "a", largest).expect_err("it does not fit");
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    let refused = try_claim(&store, P, "a", Epoch::from_stored(u64::MAX)).expect_err("there is none above");
    assert!(matches!(refused, StoreError::Refused { .. }), "{refused}");
    assert!(wait(store.view(&group())).unwrap().leases.is_empty());
    assert_eq!(claim(&store, P, "a").epoch.get(), 1);
}
