//! Tests of ownership, on a fleet in memory and virtual time.

use ephor::PartitionId;
use ephor_testkit::TestFleet;

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
