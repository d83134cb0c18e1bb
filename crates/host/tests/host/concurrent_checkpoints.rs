//! Tests of checkpoints that processors write concurrently, and in their own transactions. One test is about
//! partitions that a host is to claim and cannot claim.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::common::faulty_store::{FaultyStore, Op, Trouble, pass};
use crate::recording_processor::{Call, Recorder};
use ephor::memory::MemoryStore;
use ephor::{
    Checkpoint, CheckpointPolicy, Event, EventProcessorHost, EventProcessorOptions, EventSource,
    PartitionContext, PartitionId, Position, SequenceNumber, StartPosition, Store,
};
use ephor_core::source::OpenRequest;
use ephor_core::store::SaveOutcome;
use ephor_testkit::TestFleet;
use futures_util::FutureExt;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);

fn manual() -> EventProcessorOptions {
    let checkpoint = CheckpointPolicy { spacing: Duration::ZERO, ..CheckpointPolicy::manual() };
    EventProcessorOptions { checkpoint, ..EventProcessorOptions::default() }
}

/// A host that has finished three events and saved none, with its context and the events.
async fn three_are_finished() -> (TestFleet, FaultyStore, PartitionContext, Vec<Event>) {
    let fleet = TestFleet::new(1).unwrap();
    let store = FaultyStore::new(Arc::new(MemoryStore::new(fleet.environment())));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    let contexts: Arc<Mutex<Vec<PartitionContext>>> = Arc::default();
    let kept = contexts.clone();
    let recorder = Recorder::scripted(move |context, call| {
        if call == Call::Open {
            kept.lock().unwrap().push(context);
        }
        async { Ok(()) }
    });
    fleet.start("a", |host| host.options(manual()).processor(recorder.make())).await.unwrap();
    for _ in 0..3 {
        fleet.hub().send(P0, "event").unwrap();
    }
    fleet.until("read", || recorder.finished(0).len() == 3).await.unwrap();
    let context = contexts.lock().unwrap()[0].clone();
    // The host's own group admits no other reader.
    fleet.hub().create_group("others").unwrap();
    let probe = OpenRequest::probe(&"others".parse().unwrap(), P0, "reader");
    let request = OpenRequest { start: StartPosition::Earliest, ..probe };
    let mut events = vec![];
    fleet.hub().open(request).await.unwrap().receive(&mut events, 3).await.unwrap();
    (fleet, store, context, events)
}

#[tokio::test(start_paused = true)]
async fn what_is_saved_does_not_go_back_when_an_answer_comes_late() {
    let (_fleet, store, context, events) = three_are_finished().await;
    store.trouble_times(Op::Save, Trouble::AnswersAfter(SECOND * 2), 1);
    let (first, second) = tokio::join!(context.checkpoint_at(&events[0]), context.checkpoint_at(&events[2]));
    assert!(first.is_ok() && second.is_ok(), "{first:?} {second:?}");
    let saved = context.last_checkpoint().and_then(|saved| saved.position.finished());
    assert_eq!(saved, Some(events[2].sequence));
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_told_of_a_commit_has_nothing_left_to_save() {
    for told in [false, true] {
        let (mut fleet, store, context, events) = three_are_finished().await;
        let saved = store.save(context.group(), &context.save_request(&events[2])).await.unwrap();
        let SaveOutcome::Saved(checkpoint) = saved else { panic!("{saved:?}") };
        if told {
            context.checkpoint_committed(&checkpoint);
        }
        let report = fleet.stop("a").await;
        assert_eq!(report.is_clean(), told, "{report}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_commit_of_another_epoch_or_partition_does_not_count() {
    let (mut fleet, store, context, events) = three_are_finished().await;
    let saved = store.save(context.group(), &context.save_request(&events[1])).await.unwrap();
    let SaveOutcome::Saved(checkpoint) = saved else { panic!("{saved:?}") };
    let of_an_earlier_owner =
        Checkpoint { position: Position::of(&events[2]), epoch: ephor::Epoch::NONE, ..checkpoint.clone() };
    context.checkpoint_committed(&of_an_earlier_owner);
    assert_eq!(context.last_checkpoint(), None, "of another epoch");
    // Only another partition has come that far.
    let mut ahead = events[2].clone();
    ahead.sequence = SequenceNumber(7);
    let of_another_partition = Checkpoint { position: Position::of(&ahead), ..checkpoint.clone() };
    context.checkpoint_committed(&of_another_partition);
    assert_eq!(context.last_checkpoint(), None, "of another partition");
    context.checkpoint_committed(&checkpoint);
    assert_eq!(context.last_checkpoint(), Some(checkpoint));
    let report = fleet.stop("a").await;
    assert_eq!(report.unsaved, [P0], "{report}");
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_its_claimant_never_claims_is_taken_by_another() {
    let fleet = TestFleet::new(2).unwrap();
    let shared: Arc<dyn Store> = Arc::new(MemoryStore::new(fleet.environment()));
    let troubled = FaultyStore::new(shared.clone());
    troubled.trouble(Op::Claim, Trouble::Fails);
    let host = |name: &str, store: Arc<dyn Store>| {
        EventProcessorHost::builder(fleet.hub().clone(), store)
            .host_name(name)
            .environment(fleet.environment())
            .for_each_event(|_, _| async { Ok(()) })
            .unwrap()
    };
    let (cannot, can) = (host("cannot", Arc::new(troubled)), host("can", shared));
    cannot.start().await.unwrap();
    fleet.pass(SECOND * 2).await;
    can.start().await.unwrap();
    fleet.pass(SECOND * 60).await;
    let served = |host: &EventProcessorHost| host.snapshot().unwrap().partitions.len();
    // The host that cannot claim may still get its share by a handover from the one that has
    // claimed everything.
    assert_eq!(served(&cannot) + served(&can), 2);
}

#[tokio::test(start_paused = true)]
async fn a_save_that_its_owner_does_not_drive_holds_up_no_other() {
    let (_fleet, store, context, events) = three_are_finished().await;
    store.trouble_times(Op::Save, Trouble::AnswersAfter(SECOND * 2), 1);
    let mut asleep = Box::pin(context.checkpoint_at(&events[0]));
    assert!((&mut asleep).now_or_never().is_none());
    let saved = tokio::select! {
        biased;
        saved = context.checkpoint_at(&events[2]) => Some(saved),
        () = pass(SECOND * 60) => None,
    };
    assert!(matches!(saved, Some(Ok(_))), "{saved:?}");
}
