//! Tests of operator actions on a fleet: seek, drain and pause.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{
    P0, events, millis, owner, seconds, send, start, stored, until_finished,
};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use ephor::admin::{AdminError, SeekMode, SeekStepOutcome, SeekTo};
use ephor::{
    Checkpointed, CloseReason, EventProcessorHost, HostState, PartitionId, Position, SequenceNumber,
    StartPosition,
};
use ephor_core::history::ChangeReason;
use ephor_testkit::TestFleet;

fn all(partitions: u32) -> impl Iterator<Item = PartitionId> {
    (0..partitions).map(PartitionId)
}

/// Hosts in balance, with ten events finished in every partition.
async fn balanced(partitions: u32, names: &[&str]) -> (TestFleet, ActionRecorder) {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(partitions);
    for name in names {
        start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
    }
    fleet.until_balanced().await.unwrap();
    for partition in all(partitions) {
        send(&fleet, partition, 10);
    }
    fleet.until_caught_up().await.unwrap();
    fleet.pass(seconds(30)).await;
    recorder.clear();
    (fleet, recorder)
}

async fn owners(fleet: &TestFleet, partitions: u32) -> BTreeMap<PartitionId, String> {
    let mut owners = BTreeMap::new();
    for partition in all(partitions) {
        owners.insert(partition, owner(fleet, partition).await.unwrap());
    }
    owners
}

#[tokio::test(start_paused = true)]
async fn a_seek_closes_the_partition_and_its_owner_goes_on_at_the_new_position() {
    let (fleet, recorder) = balanced(4, &["a", "b"]).await;
    let before = owners(&fleet, 4).await;
    let epoch = recorder.context(P0).epoch();
    let steps =
        fleet.admin().seek(&[P0], &SeekTo::Sequence(SequenceNumber(4)), SeekMode::Apply).await.unwrap();
    let Some(SeekStepOutcome::Done(sought)) = steps[0].outcome else { panic!("{steps:?}") };
    assert!(sought > epoch);
    let began = recorder.now();
    until_finished(&fleet, &recorder, P0, 9).await;
    assert!(recorder.now().since(began) < seconds(1), "{:?}", recorder.now().since(began));
    assert_eq!(recorder.closings(P0), [CloseReason::Seek]);
    assert_eq!(recorder.delivered(P0), events(4, 9));
    assert!(recorder.context(P0).epoch() > sought, "the seek took an epoch of its own");
    fleet.pass(seconds(30)).await;
    assert_eq!(owners(&fleet, 4).await, before, "nothing moves");
    assert!(all(4).skip(1).all(|other| recorder.of(other).is_empty()), "the others do not notice");
    let history = fleet.admin().history(Some(P0), 2).await.unwrap();
    assert_eq!(history[1].reason, ChangeReason::Seek { by: "a test".into() });
    assert!(recorder.all_reports().is_empty(), "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn a_seek_of_everything_moves_nothing_to_another_host() {
    let (fleet, recorder) = balanced(16, &["a", "b", "c"]).await;
    let before = owners(&fleet, 16).await;
    fleet.admin().seek(&[], &SeekTo::Earliest, SeekMode::Apply).await.unwrap();
    fleet.until("not read", || all(16).all(|p| recorder.finished(p) == events(0, 9))).await.unwrap();
    fleet.pass(seconds(30)).await;
    assert_eq!(owners(&fleet, 16).await, before);
    assert!(all(16).all(|partition| recorder.closings(partition) == [CloseReason::Seek]));
}

#[tokio::test(start_paused = true)]
async fn a_seek_drops_the_call_in_flight_and_refuses_its_checkpoint() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe().taking(seconds(20))).await;
    send(&fleet, P0, 10);
    fleet.pass(seconds(2)).await;
    let context = recorder.context(P0);
    fleet.admin().seek(&[P0], &SeekTo::Sequence(SequenceNumber(7)), SeekMode::Apply).await.unwrap();
    assert_eq!(context.checkpoint().await.unwrap(), Checkpointed::Refused);
    fleet.pass(seconds(25)).await;
    assert_eq!(recorder.finished(P0), events(7, 9), "the call before the seek never finished");
    assert!(matches!(recorder.closings(P0)[..], [CloseReason::Seek]), "{:?}", recorder.closings(P0));
}

#[tokio::test(start_paused = true)]
async fn a_store_that_wakes_nobody_is_asked_at_the_next_scan() {
    let fleet = TestFleet::new(2).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let mut fleet = fleet.with_store(Arc::new(recorder.store().without_wakes()));
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    send(&fleet, P0, 10);
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.pass(seconds(30)).await;
    let before = owner(&fleet, P0).await;
    recorder.clear();
    fleet.admin().seek(&[P0], &SeekTo::Earliest, SeekMode::Apply).await.unwrap();
    fleet.pass(seconds(5) + millis(200)).await;
    assert_eq!(recorder.finished(P0), events(0, 9));
    assert_eq!(owner(&fleet, P0).await, before, "whoever had it gets it back");
}

#[tokio::test(start_paused = true)]
async fn a_dry_run_tells_everything_and_changes_nothing() {
    let (mut fleet, recorder) = balanced(2, &["a"]).await;
    fleet.stop("a").await;
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    recorder.clear();
    let before = fleet.store().view(fleet.group()).await.unwrap();
    let steps = fleet.admin().seek(&[], &SeekTo::By(-3), SeekMode::DryRun).await.unwrap();
    assert_eq!(fleet.store().view(fleet.group()).await.unwrap(), before);
    assert_eq!(steps.len(), 2);
    for step in steps {
        assert_eq!(step.from.and_then(|from| from.finished()), Some(SequenceNumber(9)));
        assert_eq!(step.to, Position::Start(StartPosition::at(SequenceNumber(7))));
        assert_eq!(step.distance, Some(-3));
        assert_eq!(step.owner.unwrap().name.as_str(), "b");
        assert_eq!(step.outcome, None);
    }
    fleet.pass(seconds(60)).await;
    assert!(recorder.entries().is_empty(), "{:?}", recorder.entries());
}

#[tokio::test(start_paused = true)]
async fn a_seek_that_one_partition_cannot_follow_changes_none() {
    let (fleet, recorder) = balanced(2, &["a"]).await;
    send(&fleet, P0, 10);
    fleet.until_caught_up().await.unwrap();
    let before = fleet.store().view(fleet.group()).await.unwrap();
    let error =
        fleet.admin().seek(&[], &SeekTo::Sequence(SequenceNumber(15)), SeekMode::Apply).await.unwrap_err();
    assert!(matches!(error, AdminError::OutOfRange { partition: PartitionId(1), .. }), "{error}");
    let error = fleet.admin().seek(&[P0, PartitionId(2)], &SeekTo::Earliest, SeekMode::Apply).await;
    assert!(matches!(error, Err(AdminError::UnknownPartition { .. })), "{error:?}");
    assert_eq!(fleet.store().view(fleet.group()).await.unwrap(), before);
    assert!(recorder.closings(P0).is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_seek_while_no_host_runs_is_where_the_next_one_begins() {
    let (mut fleet, recorder) = balanced(1, &["a"]).await;
    fleet.stop("a").await;
    fleet.admin().seek(&[P0], &SeekTo::By(-4), SeekMode::Apply).await.unwrap();
    assert_eq!(
        stored(&fleet, P0).await.unwrap().position,
        Position::Start(StartPosition::at(SequenceNumber(6)))
    );
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(recorder.delivered_to("b", P0), events(6, 9));
    // The seek moved it back, and from there it advances again.
    fleet.stop("b").await;
    assert_eq!(stored(&fleet, P0).await.unwrap().position.finished(), Some(SequenceNumber(9)));
}

#[tokio::test(start_paused = true)]
async fn a_drained_host_hands_everything_over_takes_nothing_and_comes_back() {
    let (mut fleet, recorder) = balanced(9, &["a", "b", "c"]).await;
    fleet.admin().drain("b").await.unwrap();
    let began = recorder.now();
    fleet.until("b is not drained", || fleet.snapshot("b").partitions.is_empty()).await.unwrap();
    let took = recorder.now().since(began);
    // It is woken and reports it at once; the others see it at their next scan.
    assert!(took < seconds(5) + millis(500), "{took:?}");
    fleet.pass(seconds(5)).await;
    assert_eq!(fleet.snapshot("b").state, HostState::Draining);
    let closings: Vec<CloseReason> = all(9).flat_map(|partition| recorder.closings(partition)).collect();
    assert_eq!(closings, [CloseReason::Handover; 3]);
    for partition in all(9) {
        send(&fleet, partition, 5);
    }
    fleet.until_caught_up().await.unwrap();
    assert!(all(9).all(|partition| recorder.delivered(partition) == events(10, 14)), "nothing is repeated");
    // Not even partitions without an owner.
    fleet.kill("a");
    fleet.pass(seconds(60)).await;
    assert_eq!(fleet.snapshot("c").partitions.len(), 9);
    assert!(fleet.snapshot("b").partitions.is_empty());
    fleet.admin().undrain("b").await.unwrap();
    let began = recorder.now();
    fleet.until_balanced().await.unwrap();
    let took = recorder.now().since(began);
    assert!(took < seconds(1), "{took:?}");
    fleet.pass(seconds(5)).await;
    assert_eq!(fleet.snapshot("b").state, HostState::Active);
}

#[tokio::test(start_paused = true)]
async fn a_host_that_is_drained_while_it_is_alone_works_on_until_another_comes() {
    let (mut fleet, recorder) = balanced(4, &["a"]).await;
    fleet.admin().drain("a").await.unwrap();
    fleet.pass(seconds(60)).await;
    assert_eq!(fleet.snapshot("a").partitions.len(), 4, "better late than never");
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 14).await;
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    fleet.until("b has not got everything", || fleet.snapshot("b").partitions.len() == 4).await.unwrap();
    assert!(fleet.snapshot("a").partitions.is_empty());
    let told = |what: &What| matches!(what, What::Changed(ChangeReason::HandedOver));
    assert_eq!(recorder.entries().iter().filter(|entry| told(&entry.what)).count(), 4);
}

#[tokio::test(start_paused = true)]
async fn draining_a_host_that_is_not_there_is_an_error_that_names_those_who_are() {
    let (fleet, _recorder) = balanced(2, &["a", "b"]).await;
    let error = fleet.admin().drain("z").await.unwrap_err();
    assert_eq!(error.to_string(), "no host \"z\" in this group; there are: a, b");
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_is_paused_or_resumed_while_the_host_starts_stays_so() {
    let fleet = TestFleet::new(2).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let fleet = fleet.with_store(Arc::new(store.clone()));
    let (hub, scribe) = (fleet.hub().clone(), recorder.scribe());
    let host = EventProcessorHost::builder(hub, fleet.store().clone())
        .environment(fleet.environment())
        .host_name("a")
        .options(recorder.options())
        .processor(move |_| scribe.clone())
        .unwrap();
    let other = PartitionId(1);
    host.pause(other);
    store.trouble_times(Op::View, Trouble::Hangs, 1);
    let meanwhile = async {
        fleet.pass(seconds(2)).await;
        assert!(host.snapshot().is_none(), "it waits for the store");
        host.pause(P0);
        host.resume(other);
    };
    let (started, ()) = tokio::join!(host.start(), meanwhile);
    started.unwrap();
    send(&fleet, P0, 1);
    send(&fleet, other, 1);
    until_finished(&fleet, &recorder, other, 0).await;
    fleet.pass(seconds(60)).await;
    assert!(recorder.delivered(P0).is_empty());
    host.resume(P0);
    until_finished(&fleet, &recorder, P0, 0).await;
}
