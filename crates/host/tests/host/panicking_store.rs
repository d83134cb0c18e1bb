//! Tests that a task whose store call panics reports the panic and continues.

use std::sync::Arc;

use crate::common::action_recorder::{
    ActionRecorder, P0, What, millis, owner, seconds, send, start, stored_sequence, until_finished,
};
use crate::common::faulty_store::{FaultyStore, HOST_OPS, Op, Trouble};
use ephor::{CheckpointPolicy, EventProcessorOptions, PartitionId};
use ephor_testkit::TestFleet;

fn fleet_with_store(partitions: u32) -> (TestFleet, ActionRecorder, FaultyStore) {
    let fleet = TestFleet::new(partitions).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let fleet = fleet.with_store(Arc::new(store.clone()));
    (fleet, recorder, store)
}

/// All operations that a host uses, and the wait for changes.
fn all_ops() -> impl Iterator<Item = Op> {
    HOST_OPS.into_iter().chain([Op::Changed])
}

#[tokio::test(start_paused = true)]
async fn a_renewal_that_panics_is_reported_and_costs_no_lease() {
    let (mut fleet, recorder, store) = fleet_with_store(2);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    recorder.clear();
    store.trouble_times(Op::Renew, Trouble::Panics, 1);
    fleet.pass(seconds(300)).await;
    let changes = recorder.entries().into_iter().filter(|entry| matches!(entry.what, What::Changed(_)));
    assert_eq!(changes.count(), 0, "nothing was lost: {:?}", recorder.all_reports());
    let panics = recorder.reports("TaskPanicked");
    assert!(panics.len() == 1 && panics[0].text.contains("the renewer of this host panicked"), "{panics:?}");
    assert!(panics[0].text.contains("the store panics in Renew"), "{panics:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deferred_checkpoint_whose_write_panics_is_reported_and_written_all_the_same() {
    let (mut fleet, recorder, store) = fleet_with_store(1);
    let scribe = recorder.scribe().working(|context, _| async move {
        context.checkpoint().await?;
        Ok(())
    });
    let checkpoint = CheckpointPolicy::manual().spaced(millis(100));
    let options = EventProcessorOptions { checkpoint, max_batch_size: 1, ..recorder.options() };
    start(&mut fleet, "a", options, &scribe).await;
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 0).await;
    store.trouble_times(Op::Save, Trouble::Panics, 1);
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 1).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(0), "the second waits for its turn");
    fleet.pass(seconds(3)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(1));
    let panics = recorder.reports("TaskPanicked");
    assert!(panics.len() == 1 && panics[0].text.contains("writer of deferred checkpoints"), "{panics:?}");
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_store_panics_in_any_call_comes_back_when_the_store_does() {
    for op in all_ops() {
        let (mut fleet, recorder, store) = fleet_with_store(2);
        store.trouble(op, Trouble::Panics);
        let options =
            EventProcessorOptions { checkpoint: CheckpointPolicy::every_events(1), ..recorder.options() };
        start(&mut fleet, "a", options, &recorder.scribe()).await;
        send(&fleet, P0, 1);
        fleet.pass(seconds(90)).await;
        store.heal();
        fleet.pass(seconds(90)).await;
        for partition in [0, 1].map(PartitionId) {
            let found = owner(&fleet, partition).await;
            assert!(found.is_some(), "{op:?}: {partition:?} has no owner: {:?}", recorder.all_reports());
        }
        send(&fleet, P0, 1);
        until_finished(&fleet, &recorder, P0, 1).await;
        if op == Op::Changed {
            let panics = recorder.reports("TaskPanicked");
            assert!(panics[0].text.contains("the manager of this host panicked"), "{panics:?}");
            assert!(panics.len() < 100, "it is asked once for each scan: {}", panics.len());
        }
        let report = fleet.stop("a").await;
        assert!(report.is_clean(), "{op:?}: {report}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_store_panics_while_it_stops_is_stopped_all_the_same() {
    for op in all_ops() {
        let (mut fleet, recorder, store) = fleet_with_store(2);
        let options =
            EventProcessorOptions { checkpoint: CheckpointPolicy::every_events(100), ..recorder.options() };
        start(&mut fleet, "a", options, &recorder.scribe()).await;
        fleet.until_balanced().await.unwrap();
        send(&fleet, P0, 1);
        until_finished(&fleet, &recorder, P0, 0).await;
        store.trouble(op, Trouble::Panics);
        let report = fleet.stop("a").await;
        let told = [&report.drained, &report.given_up, &report.unsaved, &report.lost, &report.abandoned];
        assert_eq!(told.iter().map(|list| list.len()).sum::<usize>(), 2, "{op:?}: {report}");
        store.reset();
        fleet.pass(seconds(120)).await;
        assert_eq!(store.calls(Op::Renew), 0, "{op:?}: nobody renews any more");
    }
}
