//! Tests of checkpoints that a processor writes itself: the events that they cover, and the cases in which
//! they are refused.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{
    P0, events, millis, seconds, send, start, stored_sequence, until_finished,
};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use ephor::{CheckpointError, CheckpointPolicy, Checkpointed, EventProcessorOptions, HostId, SequenceNumber};
use ephor_core::ids::Incarnation;
use ephor_core::lease::{ClaimCause, ClaimRequest};
use ephor_testkit::TestFleet;

fn manual(recorder: &ActionRecorder) -> EventProcessorOptions {
    // Each is written at once; the rate limit is tested in `rate_limited_checkpoints.rs`.
    let checkpoint = CheckpointPolicy::manual().spaced(Duration::ZERO);
    EventProcessorOptions { checkpoint, ..recorder.options() }
}

/// The event up to which a checkpoint was written.
fn saved(result: Result<Checkpointed, CheckpointError>) -> u64 {
    match result {
        Ok(Checkpointed::Saved(checkpoint)) => checkpoint.position.finished().unwrap().0,
        other => panic!("not saved: {other:?}"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_reaches_to_the_end_of_the_batch_in_hand() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let scribe = recorder.scribe().working(|context, batch| async move {
        assert_eq!(saved(context.checkpoint().await), batch.last().unwrap().sequence.0);
        std::future::pending().await
    });
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    fleet.until("no checkpoint", || !recorder.saved(P0).is_empty()).await.unwrap();
    assert_eq!(stored_sequence(&fleet, P0).await, Some(9));
    fleet.kill("a");
    send(&fleet, P0, 3);
    start(&mut fleet, "b", manual(&recorder), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 12).await;
    assert_eq!(recorder.delivered_to("b", P0), events(10, 12));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_at_an_event_lets_the_successor_go_on_right_behind_it() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let scribe = recorder.scribe().working(|context, batch| async move {
        assert_eq!(saved(context.checkpoint_at(&batch[3]).await), 3);
        Ok(())
    });
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(3));
    fleet.kill("a");
    start(&mut fleet, "b", manual(&recorder), &recorder.scribe()).await;
    fleet.until("b got nothing", || !recorder.delivered_to("b", P0).is_empty()).await.unwrap();
    assert_eq!(recorder.delivered_to("b", P0), events(4, 9));
}

#[tokio::test(start_paused = true)]
async fn close_may_write_a_low_water_mark_and_then_the_high_one() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let batch = Arc::new(Mutex::new(vec![]));
    let kept = batch.clone();
    let scribe = recorder
        .scribe()
        .working(move |_, batch| {
            kept.lock().unwrap().extend(batch);
            async { Ok(()) }
        })
        .closing(move |context, _| {
            let batch = batch.lock().unwrap().clone();
            async move {
                assert_eq!(saved(context.checkpoint_at(&batch[3]).await), 3);
                assert_eq!(saved(context.checkpoint().await), 9);
                let back = context.checkpoint_at(&batch[5]).await.unwrap();
                assert!(matches!(back, Checkpointed::Unchanged(_)), "{back:?}");
                Ok(())
            }
        });
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    let report = fleet.stop("a").await;
    assert!(report.is_clean(), "{report}");
    assert_eq!(recorder.saved(P0), [3, 9]);
    assert!(recorder.reports("CloseFailed").is_empty(), "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn for_a_closure_per_event_the_checkpoint_is_that_event() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    let options = manual(&recorder);
    fleet
        .start("a", |host| {
            host.options(options).for_each_event(|context, event| async move {
                if event.sequence.0 == 4 {
                    assert_eq!(saved(context.checkpoint().await), 4);
                    std::future::pending::<()>().await;
                }
                Ok(())
            })
        })
        .await
        .unwrap();
    fleet.until("no checkpoint", || !recorder.saved(P0).is_empty()).await.unwrap();
    assert_eq!(recorder.saved(P0), [4]);
    fleet.kill("a");
    start(&mut fleet, "b", manual(&recorder), &recorder.scribe()).await;
    fleet.until("b got nothing", || !recorder.delivered(P0).is_empty()).await.unwrap();
    assert_eq!(recorder.delivered(P0), events(5, 9));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_saved_for_an_owner_whose_lease_another_has_claimed() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    let context = recorder.context(P0);
    let view = fleet.store().view(fleet.group()).await.unwrap();
    let request = ClaimRequest {
        partition: P0,
        host: HostId { name: "taker".parse().unwrap(), incarnation: Incarnation(7) },
        duration: seconds(30),
        seen: view.lease(P0).map(|lease| lease.version.clone()),
        above: ephor::Epoch::NONE,
        cause: ClaimCause::Unresponsive,
    };
    fleet.store().claim(fleet.group(), &request).await.unwrap();
    // The host has not scanned since, and would still trust its lease.
    assert!(!context.is_cancelled());
    assert_eq!(context.checkpoint().await.unwrap(), Checkpointed::Refused);
    assert!(context.is_cancelled(), "whoever is refused knows that it is no longer the owner");
    assert_eq!(stored_sequence(&fleet, P0).await, None);
    fleet.until("a did not close", || !recorder.closings(P0).is_empty()).await.unwrap();
    assert_eq!(recorder.closings(P0), [ephor::CloseReason::LeaseLost]);
    assert_eq!(context.checkpoint().await.unwrap(), Checkpointed::Refused);
    assert_eq!(stored_sequence(&fleet, P0).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_context_that_is_kept_after_stop_is_refused() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    let context = recorder.context(P0);
    fleet.stop("a").await;
    assert!(context.is_cancelled());
    context.cancelled().await;
    assert_eq!(context.checkpoint().await.unwrap(), Checkpointed::Refused);
    assert_eq!(stored_sequence(&fleet, P0).await, None);
    // The same host, started again, owns the partition in another epoch: the old context stays
    // refused.
    start(&mut fleet, "a", manual(&recorder), &recorder.scribe()).await;
    fleet.until("no new epoch", || recorder.context(P0).epoch() > context.epoch()).await.unwrap();
    assert_eq!(context.checkpoint().await.unwrap(), Checkpointed::Refused);
    assert_eq!(stored_sequence(&fleet, P0).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_fails_is_an_error_and_a_lease_that_ran_out_is_a_refusal() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    let context = recorder.context(P0);
    store.trouble_all(Trouble::Fails);
    let error = context.checkpoint().await.unwrap_err();
    assert!(matches!(error, CheckpointError::Store(_)), "{error:?}");
    store.trouble(Op::Save, Trouble::Hangs);
    let error = context.checkpoint().await.unwrap_err();
    assert!(error.to_string().contains("no answer from the store within 5s"), "{error}");
    // A lease of 30 s, of which the last 3 are not used.
    fleet.pass(seconds(27)).await;
    store.reset();
    assert_eq!(context.checkpoint().await.unwrap(), Checkpointed::Refused);
    assert_eq!(store.calls(Op::Save), 0, "past the deadline the store is not even asked");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_never_moves_back() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let scribe = recorder.scribe().working(|context, batch| async move {
        assert_eq!(saved(context.checkpoint_at(&batch[7]).await), 7);
        for earlier in &batch[..=7] {
            let Checkpointed::Unchanged(stored) = context.checkpoint_at(earlier).await? else {
                panic!("event {} is not ahead of 7", earlier.sequence)
            };
            assert_eq!(stored.position.finished(), Some(SequenceNumber(7)));
        }
        assert_eq!(context.last_checkpoint().unwrap().position.finished(), Some(SequenceNumber(7)));
        Ok(())
    });
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(recorder.saved(P0), [7]);
    assert_eq!(stored_sequence(&fleet, P0).await, Some(7));
}

#[tokio::test(start_paused = true)]
async fn only_what_was_delivered_can_be_checkpointed() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let scribe = recorder.scribe().working(|context, batch| async move {
        let mut event = batch[9].clone();
        event.sequence = SequenceNumber(10);
        let error = context.checkpoint_at(&event).await.unwrap_err();
        assert!(matches!(error, CheckpointError::NotDelivered { sequence: SequenceNumber(10) }), "{error:?}");
        Ok(())
    });
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    fleet.until("a did not open", || !recorder.of(P0).is_empty()).await.unwrap();
    fleet.pass(millis(10)).await;
    assert_eq!(recorder.context(P0).checkpoint().await.unwrap(), Checkpointed::Nothing);
    send(&fleet, P0, 10);
    until_finished(&fleet, &recorder, P0, 9).await;
    assert!(recorder.reports("Partition").is_empty(), "{:?}", recorder.all_reports());
    assert_eq!(stored_sequence(&fleet, P0).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_that_landed_although_the_store_said_it_failed_can_be_written_again() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    store.trouble_times(Op::Save, Trouble::LandsAndFails, 1);
    let scribe = recorder.scribe().working(|context, _| async move {
        context.checkpoint().await.unwrap_err();
        assert_eq!(saved(context.checkpoint().await), 9);
        assert!(matches!(context.checkpoint().await?, Checkpointed::Unchanged(_)));
        Ok(())
    });
    send(&fleet, P0, 10);
    start(&mut fleet, "a", manual(&recorder), &scribe).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(recorder.saved(P0), [9, 9]);
    let opened = recorder.first(|entry| entry.what == What::Opened).unwrap();
    assert_eq!(fleet.store().view(fleet.group()).await.unwrap().leases[0].epoch, opened.epoch);
}
