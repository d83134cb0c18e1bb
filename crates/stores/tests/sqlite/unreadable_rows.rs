//! Tests that unreadable rows are reported and hide no others.

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;
use ephor_core::store::{
    ClaimOutcome, GroupOrigin, RenewalOutcome, SaveOutcome, SeekRequest, Store, StoreError,
};

use crate::fixture::{Folder, LEASE, P, beat, claim, finished, group, save, stored, try_claim, wait};

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
        matches!(&answers[0], RenewalOutcome::Unknown { what, .. } if what.contains("partition 3")),
        "{answers:?}"
    );
    assert_eq!(answers[1], RenewalOutcome::Renewed);
    assert!(damaged(try_claim(&store, P, "b", Epoch::NONE)).contains("partition 3"));
    assert!(matches!(save(&store, &fine, 1).unwrap(), SaveOutcome::Saved(_)));
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
    assert!(matches!(claimed, ClaimOutcome::Won { checkpoint: Some(_), .. }), "{claimed:?}");
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
