//! Tests of `close`: the reason that a processor receives, and whether it may still write a checkpoint.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder, sleep};
use ephor::admin::{SeekMode, SeekTo};
use ephor::{
    CheckpointPolicy, Checkpointed, CloseReason, Epoch, EventProcessorOptions, EventSource, FailurePolicy,
    HostId, PartitionContext, PartitionId, SequenceNumber, StartPosition,
};
use ephor_core::ids::Incarnation;
use ephor_core::lease::{ClaimCause, ClaimRequest};
use ephor_core::source::OpenRequest;
use ephor_core::store::ClaimOutcome;
use ephor_testkit::TestFleet;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);

/// The outcome of a checkpoint that was tried in `close`.
type Saves = Arc<Mutex<Vec<(CloseReason, bool)>>>;

/// A processor that does not checkpoint before `close`, and notes whether it is accepted there.
fn saves_in_close() -> (Recorder, Saves) {
    let saves = Saves::default();
    let log = saves.clone();
    let recorder = Recorder::scripted(move |context: PartitionContext, call| {
        let log = log.clone();
        async move {
            if let Call::Close(reason) = call {
                let saved = !context.checkpoint().await?.is_refused();
                log.lock().unwrap().push((reason, saved));
            }
            Ok(())
        }
    });
    (recorder, saves)
}

fn send(fleet: &TestFleet, events: usize) {
    for n in 0..events {
        fleet.hub().send(P0, format!("event {n}")).unwrap();
    }
}

async fn one_host(recorder: &Recorder) -> TestFleet {
    let mut fleet = TestFleet::new(1).unwrap();
    send(&fleet, 3);
    let options = EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() };
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    fleet
}

async fn until_closed(fleet: &TestFleet, recorder: &Recorder) {
    fleet.until("closed", || !recorder.closes(0).is_empty()).await.unwrap();
    fleet.pass(Duration::from_millis(10)).await;
}

fn saved(saves: &Saves) -> Vec<(CloseReason, bool)> {
    saves.lock().unwrap().clone()
}

async fn stored(fleet: &TestFleet) -> Option<u64> {
    let stored = fleet.admin().checkpoints().await.unwrap();
    stored.first().and_then(|(_, checkpoint)| checkpoint.position.finished()).map(|sequence| sequence.0)
}

/// Steals the partition, as a host that found its owner unresponsive would.
async fn steal(fleet: &TestFleet) -> Epoch {
    let view = fleet.store().view(fleet.group()).await.unwrap();
    let request = ClaimRequest {
        partition: P0,
        host: HostId { name: "taker".parse().unwrap(), incarnation: Incarnation(1) },
        duration: SECOND * 30,
        seen: view.lease(P0).map(|lease| lease.version.clone()),
        above: Epoch::NONE,
        cause: ClaimCause::Unresponsive,
    };
    match fleet.store().claim(fleet.group(), &request).await.unwrap() {
        ClaimOutcome::Won { token, .. } => token.epoch,
        ClaimOutcome::Lost { .. } => panic!("the record is as it was seen"),
    }
}

#[tokio::test(start_paused = true)]
async fn a_stop_closes_with_shutdown_and_still_accepts_checkpoints() {
    let (recorder, saves) = saves_in_close();
    let mut fleet = one_host(&recorder).await;
    let report = fleet.stop("a").await;
    assert_eq!(report.drained, [P0]);
    assert_eq!(saved(&saves), [(CloseReason::Shutdown, true)]);
    assert_eq!(stored(&fleet).await, Some(2));
}

#[tokio::test(start_paused = true)]
async fn a_request_of_another_host_closes_with_handover_and_nothing_is_repeated() {
    let (recorder, saves) = saves_in_close();
    let mut fleet = TestFleet::new(2).unwrap();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    for n in 0..10 {
        fleet.hub().send(PartitionId(n % 2), "event").unwrap();
    }
    fleet.until_caught_up().await.unwrap();
    let before = fleet.snapshot("a").partitions;
    let b = Recorder::new();
    fleet.start("b", |host| host.processor(b.make())).await.unwrap();
    fleet.until_balanced().await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(saved(&saves), [(CloseReason::Handover, true)]);
    let moved = fleet.snapshot("b").partitions[0].clone();
    assert!(moved.epoch > before.iter().find(|p| p.partition == moved.partition).unwrap().epoch);
    fleet.pass(SECOND * 60).await;
    assert_eq!(b.delivered(moved.partition.0), [], "a finished it all, and saved it");
}

#[tokio::test(start_paused = true)]
async fn a_claim_by_another_closes_with_lease_lost_and_refuses_checkpoints() {
    let (recorder, saves) = saves_in_close();
    let fleet = one_host(&recorder).await;
    steal(&fleet).await;
    until_closed(&fleet, &recorder).await;
    assert_eq!(saved(&saves), [(CloseReason::LeaseLost, false)]);
    assert_eq!(stored(&fleet).await, None);
    assert!(fleet.snapshot("a").partitions.is_empty());
    // The taker does not renew: the partition comes back, and unsaved events are delivered again.
    fleet.until("back", || recorder.finished(0) == [0, 1, 2, 0, 1, 2]).await.unwrap();
    let epochs: Vec<Epoch> = recorder.entries().iter().map(|entry| entry.epoch).collect();
    assert!(epochs.is_sorted() && epochs.first() < epochs.last(), "{epochs:?}");
}

#[tokio::test(start_paused = true)]
async fn a_call_is_dropped_and_cancelled_fires_when_the_lease_is_lost() {
    let fired: Arc<Mutex<Vec<bool>>> = Arc::default();
    let log = fired.clone();
    let environment = TestFleet::new(1).unwrap().environment();
    let recorder = Recorder::scripted(move |context: PartitionContext, call| {
        let (log, environment) = (log.clone(), environment.clone());
        async move {
            if matches!(call, Call::Batch(_)) {
                let watched = context.clone();
                let watch = environment.spawn(Box::pin(async move {
                    watched.cancelled().await;
                    log.lock().unwrap().push(watched.is_cancelled());
                }));
                // Ends only with the test.
                std::mem::forget(watch);
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let mut fleet = TestFleet::new(1).unwrap();
    send(&fleet, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.delivered(0) == [0]).await.unwrap();
    fleet.pass(SECOND * 100).await;
    assert_eq!(*fired.lock().unwrap(), [], "a slow call alone is no reason");
    steal(&fleet).await;
    until_closed(&fleet, &recorder).await;
    assert_eq!(*fired.lock().unwrap(), [true]);
    assert_eq!(recorder.running(), 0, "the call was dropped");
    assert_eq!(recorder.finished(0), []);
    assert_eq!(recorder.closes(0), [CloseReason::LeaseLost]);
}

#[tokio::test(start_paused = true)]
async fn a_receiver_with_a_higher_epoch_closes_with_disconnected_and_is_reported_and_overtaken() {
    let (recorder, saves) = saves_in_close();
    let fleet = one_host(&recorder).await;
    let request = OpenRequest {
        group: fleet.group().group.clone(),
        partition: P0,
        start: StartPosition::Earliest,
        epoch: Some(Epoch::from_stored(77)),
        receiver: "a stranger".into(),
        prefetch_events: 10,
        prefetch_bytes: 1_000,
    };
    let _stranger = fleet.hub().open(request).await.unwrap();
    until_closed(&fleet, &recorder).await;
    assert_eq!(saved(&saves), [(CloseReason::Disconnected, false)]);
    fleet.until("reported", || recorder.reports("ForeignReader") == 1).await.unwrap();
    let texts = recorder.report_texts();
    assert!(texts.iter().any(|text| text.contains("a stranger") && text.contains("77")), "{texts:?}");
    let epoch = || fleet.snapshot("a").partitions.first().map(|owned| owned.epoch);
    fleet.until("claimed above it", || epoch() > Some(Epoch::from_stored(77))).await.unwrap();
    fleet.until("again", || recorder.finished(0) == [0, 1, 2, 0, 1, 2]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_person_who_seeks_closes_with_seek_and_the_position_holds() {
    let (recorder, saves) = saves_in_close();
    let fleet = one_host(&recorder).await;
    let to = SeekTo::Sequence(SequenceNumber(1));
    fleet.admin().seek(&[P0], &to, SeekMode::Apply).await.unwrap();
    until_closed(&fleet, &recorder).await;
    assert_eq!(saved(&saves), [(CloseReason::Seek, false)]);
    fleet.until("from there on", || recorder.finished(0) == [0, 1, 2, 1, 2]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_processor_that_runs_into_a_seek_by_saving_still_hears_that_it_was_a_seek() {
    let environment = TestFleet::new(1).unwrap().environment();
    let clock = environment.clone();
    let refused: Arc<Mutex<bool>> = Arc::default();
    let log = refused.clone();
    let recorder = Recorder::scripted(move |context: PartitionContext, call| {
        let (clock, log) = (clock.clone(), log.clone());
        async move {
            if matches!(call, Call::Batch(_)) {
                // Busy, and saving more often than the host scans the store.
                sleep(&clock, Duration::from_millis(1)).await;
                *log.lock().unwrap() |= context.checkpoint().await?.is_refused();
            }
            Ok(())
        }
    });
    let mut fleet = TestFleet::new(1).unwrap();
    let store = ephor::memory::MemoryStore::new(Arc::new(ephor_testkit::VirtualEnvironment::new()));
    fleet = fleet.with_store(Arc::new(store.without_wakes()));
    let checkpoint = CheckpointPolicy::default().spaced(Duration::ZERO);
    let options = EventProcessorOptions { max_batch_size: 1, checkpoint, ..EventProcessorOptions::default() };
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    send(&fleet, 2_000);
    fleet.until("busy", || recorder.finished(0).len() > 10).await.unwrap();
    fleet.admin().seek(&[P0], &SeekTo::Earliest, SeekMode::Apply).await.unwrap();
    until_closed(&fleet, &recorder).await;
    assert!(*refused.lock().unwrap(), "the save came first");
    assert_eq!(recorder.closes(0), [CloseReason::Seek]);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_cannot_be_read_for_longer_than_hub_unavailable_timeout_closes_with_source_failed() {
    let (recorder, saves) = saves_in_close();
    let fleet = one_host(&recorder).await;
    fleet.hub().fail(Some("the hub is away"));
    fleet.pass(SECOND * 25).await;
    assert_eq!(recorder.closes(0), [], "not before its patience (30 s) is over");
    assert!(recorder.heard(0).iter().any(|text| text.contains("the hub is away")), "{:?}", recorder.heard(0));
    fleet.pass(SECOND * 20).await;
    assert_eq!(saved(&saves), [(CloseReason::SourceFailed, true)]);
    assert_eq!(stored(&fleet).await, Some(2));
    fleet.hub().fail(None);
    send(&fleet, 1);
    fleet.until("goes on", || recorder.finished(0) == [0, 1, 2, 3]).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_failure_under_the_policy_to_close_closes_with_processor_failed() {
    let saves = Saves::default();
    let log = saves.clone();
    let recorder = Recorder::scripted(move |context: PartitionContext, call| {
        let log = log.clone();
        async move {
            match call {
                Call::Batch(events) if events == [3] => Err("three is bad".into()),
                Call::Close(reason) => {
                    let saved = context.checkpoint().await?;
                    log.lock().unwrap().push((reason, matches!(saved, Checkpointed::Saved(_))));
                    Ok(())
                }
                _ => Ok(()),
            }
        }
    });
    let mut fleet = TestFleet::new(1).unwrap();
    let options = EventProcessorOptions {
        failure: FailurePolicy::Close { pause: SECOND * 60 },
        ..EventProcessorOptions::default()
    };
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    send(&fleet, 3);
    fleet.until_caught_up().await.unwrap();
    send(&fleet, 1);
    until_closed(&fleet, &recorder).await;
    assert_eq!(saved(&saves), [(CloseReason::ProcessorFailed, true)]);
    assert_eq!(stored(&fleet).await, Some(2), "in close, a checkpoint goes up to the last finished batch");
}

#[test]
fn only_an_owner_is_told_that_it_may_still_save() {
    let owner = [
        CloseReason::Shutdown,
        CloseReason::Handover,
        CloseReason::ProcessorFailed,
        CloseReason::SourceFailed,
    ];
    let not = [CloseReason::LeaseLost, CloseReason::Disconnected, CloseReason::Seek];
    assert!(owner.iter().all(|reason| reason.still_owner()));
    assert!(!not.iter().any(|reason| reason.still_owner()));
}
