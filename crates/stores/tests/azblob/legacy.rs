//! Tests that the container of a legacy Event Processor Host is read under blob leases that Ephor acquires,
//! and that no blob in it is written.

use ephor_core::ids::PartitionId;
use ephor_core::position::SequenceNumber;
use ephor_core::store::StoreError;
use ephor_stores::{StoreUrl, open as open_by_url, open_existing};

use crate::fixture::{claim, wait};
use crate::proxy::{Fate, Proxy};
use crate::raw_blobs::Raw;
use crate::server::{place, shared};

fn old(place: &str) -> StoreUrl {
    format!("{place};Layout=eph;Namespace=ns.example.net;Hub=homes").parse().unwrap()
}

fn body(partition: u32, sequence: u32) -> String {
    format!(
        r#"{{"partitionId":"{partition}","owner":"h","epoch":4,"sequenceNumber":{sequence},"token":"t","offset":"{}"}}"#,
        sequence * 32
    )
}

#[test]
fn a_stopped_fleet_is_read_and_left_as_it_is() {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        let error = open_existing(&old(&place)).await.err().unwrap().to_string();
        assert!(
            error.contains("the container does not exist") && error.contains("correct its name"),
            "{error}"
        );
        raw.make().await;
        for partition in 0..4 {
            raw.put(
                &format!("$default/{partition}"),
                &[("owninghost", "h")],
                &body(partition, 10 + partition),
            )
            .await;
        }
        raw.put("eventhub.info", &[], "x").await;
        raw.put("alarms/0", &[], &body(0, 99)).await;
        let before = raw.names().await;
        let fleet = open_existing(&old(&place)).await.unwrap().unwrap();
        let groups = fleet.groups().await.unwrap();
        assert_eq!(
            groups.iter().map(|group| group.group.as_str()).collect::<Vec<_>>(),
            ["$Default", "alarms"],
            "whatever case the old fleet wrote it in"
        );
        for _ in 0..2 {
            let view = fleet.view(&groups[0]).await.unwrap();
            assert_eq!(view.damaged, [""; 0]);
            let positions: Vec<_> = view
                .checkpoints
                .iter()
                .map(|(partition, checkpoint)| (*partition, checkpoint.position.finished().unwrap()))
                .collect();
            let expected = (0..4).map(|number| (PartitionId(number), SequenceNumber(10 + u64::from(number))));
            assert_eq!(positions, expected.collect::<Vec<_>>());
            assert!(view.leases.iter().all(|lease| lease.owner.is_none() && lease.epoch.get() == 4));
        }
        assert_eq!(raw.names().await, before);
        let error = open_by_url(&old(&place)).await.err().unwrap().to_string();
        assert!(error.contains("read-only"), "{error}");
        let error = fleet.retire(&groups[0], &crate::fixture::host("a")).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Refused { message, .. } if message.contains("import")),
            "{error}"
        );
    });
}

#[test]
fn a_fleet_that_still_runs_is_not_taken_over() {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        raw.make().await;
        for partition in 0..3 {
            raw.put(&format!("$Default/{partition}"), &[], &body(partition, 5)).await;
        }
        raw.lease("$Default/1").await;
        let fleet = open_existing(&old(&place)).await.unwrap().unwrap();
        let groups = fleet.groups().await.unwrap();
        let error = fleet.view(&groups[0]).await.unwrap_err();
        assert!(
            matches!(&error, StoreError::Refused { message, .. } if message.contains("still run")),
            "{error}"
        );
        // What was taken on the way there is given back.
        raw.lease("$Default/0").await;
    });
}

/// Python wrote no group into its names.
#[test]
fn partitions_at_the_root_belong_to_whatever_group_is_asked_for() {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        raw.make().await;
        raw.put(
            "0",
            &[],
            r#"{"partition_id":"0","owner":"h","token":"t","epoch":5,"offset":"99","sequence_number":12}"#,
        )
        .await;
        raw.put("1", &[], "nonsense").await;
        let fleet = open_existing(&old(&place)).await.unwrap().unwrap();
        let groups = fleet.groups().await.unwrap();
        let view = fleet.view(&groups[0]).await.unwrap();
        assert_eq!(view.checkpoints.len(), 1);
        let says =
            |one: &str| one.contains("partition 1") && one.contains("the blob 1") && one.contains("by hand");
        assert!(matches!(&view.damaged[..], [one] if says(one)), "{:?}", view.damaged);
    });
}

/// Exports go from every store to every other.
#[test]
fn positions_of_old_hosts_are_imported_into_another_store() {
    wait(async {
        let (from, to) = (place(), place());
        let raw = Raw::new(shared().port, &from);
        raw.make().await;
        raw.put("$Default/3", &[], &body(3, 41)).await;
        let fleet = open_existing(&old(&from)).await.unwrap().unwrap();
        let group = fleet.groups().await.unwrap().remove(0);
        let view = fleet.view(&group).await.unwrap();
        let text = ephor_stores::export::write(&group, &view.checkpoints);
        let export = ephor_stores::export::read(&text).unwrap();
        let store = open_by_url(&to.parse().unwrap()).await.unwrap();
        for entry in export.checkpoints {
            let request = ephor_core::store::SeekRequest {
                partition: entry.partition,
                position: entry.position,
                log: entry.log,
                by: "ada".into(),
                force: false,
            };
            store.seek(&crate::fixture::group(), &request).await.unwrap();
        }
        claim(&*store, PartitionId(3), "a").await;
        assert_eq!(crate::fixture::stored(&*store, PartitionId(3)).await, Some(41));
    });
}

/// What is finished of partition 0 of the default group, under a prefix.
async fn finished_under(place: &str, prefix: &str) -> Option<u64> {
    let fleet = open_existing(&old(&format!("{place}/{prefix}"))).await.unwrap().unwrap();
    let groups = fleet.groups().await.unwrap();
    assert_eq!(groups.len(), 1, "{prefix}: {groups:?}");
    assert_eq!(groups[0].group.as_str(), "$Default", "{prefix}");
    let view = fleet.view(&groups[0]).await.unwrap();
    assert_eq!(view.checkpoints.len(), view.leases.len(), "{prefix}");
    view.checkpoint(PartitionId(0)).and_then(|checkpoint| checkpoint.position.finished()).map(|found| found.0)
}

/// The old hosts put nothing between prefix and group: a slash there was part of the prefix.
#[test]
fn a_prefix_is_found_with_its_last_slash_and_without() {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        raw.make().await;
        for (name, sequence) in [
            ("fleet/$Default/0", 1),
            ("fleet/$Default/1", 1),
            ("joined$default/0", 2),
            ("ns.example.net/homes/$Default/0", 3),
            ("both$Default/0", 4),
            ("both/$Default/0", 5),
        ] {
            raw.put(name, &[], &body(0, sequence)).await;
        }
        for (prefix, expected) in [
            ("fleet/", 1),
            ("fleet", 1),
            ("joined", 2),
            ("joined/", 2),
            ("ns.example.net/homes/", 3),
            ("ns.example.net/homes", 3),
            // Where there are both, it is as it was written.
            ("both", 4),
            ("both/", 5),
        ] {
            assert_eq!(finished_under(&place, prefix).await, Some(expected), "{prefix}");
        }
    });
}

#[test]
fn without_leases_of_old_hosts_the_error_says_what_is_there() {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        raw.make().await;
        let said = async |prefix: &str| {
            let fleet = open_existing(&old(&format!("{place}{prefix}"))).await.unwrap().unwrap();
            let error = fleet.groups().await.unwrap_err();
            assert!(matches!(&error, StoreError::Refused { .. }), "{error}");
            error.to_string()
        };
        let empty = said("").await;
        assert!(empty.contains("Check the name of the container"), "{empty}");
        raw.put("blue/$Default/0", &[], &body(0, 1)).await;
        for prefix in ["", "/green"] {
            let other = said(prefix).await;
            assert!(other.contains("blue/$Default/0") && other.contains("the prefix"), "{other}");
        }
        raw.put("ns.example.net/homes/$default/checkpoint/0", &[("sequencenumber", "1")], "").await;
        let today = said("").await;
        assert!(today.contains("without layout=eph"), "{today}");
    });
}

/// The hub takes both names for one group: which of the two is the present one, a person must say.
#[test]
fn two_blobs_that_differ_in_case_alone_are_told_instead_of_exported() {
    wait(async {
        let place = place();
        let raw = Raw::new(shared().port, &place);
        raw.make().await;
        raw.put("$default/0", &[], &body(0, 10)).await;
        raw.put("$Default/0", &[], &body(0, 20)).await;
        raw.put("$Default/1", &[], &body(1, 21)).await;
        let fleet = open_existing(&old(&place)).await.unwrap().unwrap();
        let groups = fleet.groups().await.unwrap();
        assert_eq!(groups.len(), 1, "{groups:?}");
        let error = fleet.view(&groups[0]).await.unwrap_err();
        assert!(matches!(error, StoreError::Refused { .. }), "{error}");
        let text = error.to_string();
        assert!(
            text.contains("$default/0 and $Default/0") || text.contains("$Default/0 and $default/0"),
            "{text}"
        );
        raw.delete("$default/0").await;
        assert_eq!(fleet.view(&groups[0]).await.unwrap().checkpoints.len(), 2);
    });
}

/// Whoever tries again with another tool, or the fleet that comes back, would wait for a minute.
#[test]
fn a_lease_is_given_back_if_its_blob_cannot_be_read() {
    wait(async {
        let place = place();
        let proxy = Proxy::start(shared().port).await;
        let raw = Raw::new(shared().port, &place);
        raw.make().await;
        for partition in 0..2 {
            raw.put(&format!("$default/{partition}"), &[], &body(partition, 10)).await;
        }
        let fleet = open_existing(&old(&proxy.place(&place, shared().port))).await.unwrap().unwrap();
        let groups = fleet.groups().await.unwrap();
        proxy.rule(|asked| match asked.line.starts_with("GET") && asked.line.contains("default/1") {
            true => Fate::Answered(500, "InternalError"),
            false => Fate::Through,
        });
        fleet.view(&groups[0]).await.unwrap_err();
        // It fails where somebody still holds it.
        raw.lease("$default/0").await;
        raw.lease("$default/1").await;
    });
}
