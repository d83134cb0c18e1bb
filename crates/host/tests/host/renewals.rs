//! Tests of renewals with a result for each lease: only leases with an unknown result are retried, and not
//! too often.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ephor::PartitionId;
use ephor_core::store::RenewalOutcome;
use ephor_testkit::TestFleet;

use crate::common::action_recorder::{ActionRecorder, P0, millis, seconds, start};
use crate::common::faulty_store::{FaultyStore, Op};

const PARTITIONS: u32 = 8;

/// A host that serves everything and has just renewed it.
async fn just_renewed() -> (TestFleet, ActionRecorder, FaultyStore) {
    let fleet = TestFleet::new(PARTITIONS).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    store.reset();
    fleet.until("not renewed", || !store.renewed().is_empty()).await.unwrap();
    store.reset();
    (fleet, recorder, store)
}

fn unknown(retry_after: Option<Duration>) -> Option<RenewalOutcome> {
    Some(RenewalOutcome::Unknown { what: "out of order".into(), retry_after })
}

fn sizes(store: &FaultyStore) -> Vec<usize> {
    store.renewed().iter().map(Vec::len).collect()
}

#[tokio::test(start_paused = true)]
async fn only_what_is_unknown_is_asked_again() {
    let (fleet, recorder, store) = just_renewed().await;
    let mut failures = 2;
    store.answer_renewals(move |partition| {
        let fails = partition == P0 && failures > 0;
        failures -= u32::from(fails);
        fails.then(|| unknown(None)).flatten()
    });
    fleet.pass(seconds(25)).await;
    assert_eq!(sizes(&store), [8, 1, 1, 8], "the whole twice, and what failed twice between them");
    assert_eq!(store.renewed()[1], [P0]);
    assert!(recorder.closings(P0).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_store_that_throttles_is_asked_less_and_less() {
    let (fleet, recorder, store) = just_renewed().await;
    store.answer_renewals(|partition| (partition == P0).then(|| unknown(Some(Duration::ZERO))).flatten());
    // From just before a renewal of everything to just before the next.
    fleet.pass(seconds(19)).await;
    assert_eq!(sizes(&store), [8, 1, 1, 1], "after 1 s, 2 s more, and 4 s more");
    store.heal();
    store.reset();
    fleet.pass(seconds(20)).await;
    assert!(recorder.closings(P0).is_empty(), "{:?}", store.renewed());
}

#[tokio::test(start_paused = true)]
async fn a_pause_that_the_store_asks_for_is_kept_as_far_as_the_leases_allow() {
    for (asked, mut times) in [(seconds(6), 1), (seconds(3_600), 1), (seconds(3_600), 4)] {
        let (fleet, recorder, store) = just_renewed().await;
        store.answer_renewals(move |partition| {
            let fails = partition == P0 && times > 0;
            times -= u32::from(fails);
            fails.then(|| unknown(Some(asked))).flatten()
        });
        fleet.until("not renewed", || !store.renewed().is_empty()).await.unwrap();
        fleet.pass(millis(4_500)).await;
        assert_eq!(sizes(&store), [8], "{asked:?}: not before");
        fleet.pass(seconds(5)).await;
        // A third of the rest of the lease, and no more.
        assert_eq!(sizes(&store)[..2], [8, 1], "{asked:?}");
        fleet.pass(seconds(30)).await;
        assert!(recorder.closings(P0).is_empty(), "{asked:?}, {times} times: {:?}", sizes(&store));
    }
}

/// The most urgent leases come first, for a store that cannot renew everything in time.
#[tokio::test(start_paused = true)]
async fn the_leases_that_end_first_are_renewed_first() {
    let (fleet, _recorder, store) = just_renewed().await;
    let last = PartitionId(PARTITIONS - 1);
    store.answer_renewals(move |partition| (partition == last).then(|| unknown(None)).flatten());
    fleet.pass(seconds(22)).await;
    let whole = store.renewed().into_iter().rfind(|asked| asked.len() == 8).unwrap();
    assert_eq!(whole[0], last, "{:?}", store.renewed());
}

/// A view shows why a lease was lost, and one view is enough for all of them.
#[tokio::test(start_paused = true)]
async fn partitions_that_are_lost_together_are_explained_by_one_view() {
    let (fleet, recorder, store) = just_renewed().await;
    store.answer_renewals(|_| Some(RenewalOutcome::Lost { holder: None }));
    fleet.until("not renewed", || !store.renewed().is_empty()).await.unwrap();
    fleet.pass(millis(50)).await;
    let closed: BTreeSet<u32> =
        (0..PARTITIONS).filter(|number| !recorder.closings(PartitionId(*number)).is_empty()).collect();
    assert_eq!(closed.len(), 8);
    // Scans come in between.
    let views = store.calls(Op::View);
    assert!(views <= 5, "{views} views");
}
