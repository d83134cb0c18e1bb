//! Tests of ownership in a fleet in memory: load is balanced again after a crash, and leases of unknown age
//! expire.

use std::sync::Arc;

use ephor::PartitionId;
use ephor_testkit::TestFleet;

use crate::common::action_recorder::{ActionRecorder, What, millis, seconds, start};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};

#[tokio::test(start_paused = true)]
async fn load_is_shared_and_shared_again_when_a_host_dies() {
    let mut fleet = TestFleet::new(16).unwrap();
    for name in ["a", "b", "c", "d", "e"] {
        fleet.start(name, |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    }
    fleet.until_balanced().await.unwrap();
    for n in 0..400 {
        fleet.hub().send(PartitionId(n % 16), format!("{n}")).unwrap();
    }
    fleet.until_caught_up().await.unwrap();
    fleet.kill("c");
    fleet.until_balanced().await.unwrap();
    let report = fleet.stop("a").await;
    assert!(report.is_clean(), "{report}");
    fleet.until_balanced().await.unwrap();
}

/// The claim was carried out and its answer was lost; the next view comes when the lease is nearly over.
#[tokio::test(start_paused = true)]
async fn a_lease_of_unknown_age_counts_from_the_last_view_before_it() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    store.trouble_times(Op::Claim, Trouble::LandsAndFails, 1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(millis(100)).await;
    assert_eq!(store.calls(Op::Claim), 1);
    store.trouble(Op::View, Trouble::Fails);
    fleet.pass(seconds(29)).await;
    store.heal();
    store.forget_ages();
    fleet.until_balanced().await.unwrap();
    let opened = recorder.first(|entry| entry.what == What::Opened).unwrap();
    assert_eq!(opened.epoch.get(), 2, "a lease that others may take soon is not served: {opened:?}");
}
