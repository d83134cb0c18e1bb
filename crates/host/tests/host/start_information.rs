//! Tests of the start information that a processor gets: the seek that set its position, and the id of the
//! hub's log.

use crate::common::action_recorder::ActionRecorder;
use crate::common::action_recorder::{P0, send, start, stored, until_finished};
use ephor::admin::{SeekMode, SeekStepOutcome, SeekTo};
use ephor::{Epoch, EventProcessorOptions, EventSource, LastSeek, Position, SequenceNumber, StartPosition};
use ephor_testkit::TestFleet;

/// Seeks to this event, and returns the epoch that the seek took.
async fn seek(fleet: &TestFleet, to: u64) -> Epoch {
    let steps = fleet.admin().seek(&[P0], &SeekTo::Sequence(SequenceNumber(to)), SeekMode::Apply).await;
    let steps = steps.unwrap();
    let Some(SeekStepOutcome::Done(epoch)) = steps[0].outcome else { panic!("{steps:?}") };
    epoch
}

/// The seek of which the present owner knows.
async fn last_seek(recorder: &ActionRecorder) -> Option<LastSeek> {
    recorder.context(P0).last_seek().await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn every_owner_learns_of_a_seek_until_a_checkpoint_follows_it() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 10);
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(last_seek(&recorder).await, None, "without a checkpoint");
    recorder.clear();
    let epoch = seek(&fleet, 4).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    let first = last_seek(&recorder).await.unwrap();
    assert_eq!((first.epoch, first.by.as_str()), (epoch, "a test"));
    assert!(first.at > ephor::Timestamp(0) && epoch < recorder.context(P0).epoch());
    // Nothing was saved since, so the next owner starts after the same seek.
    fleet.kill("a");
    recorder.clear();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(last_seek(&recorder).await.as_ref(), Some(&first));
    fleet.stop("b").await;
    start(&mut fleet, "c", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 10).await;
    assert_eq!(last_seek(&recorder).await, None, "a checkpoint was written after it");
    let again = seek(&fleet, 2).await;
    until_finished(&fleet, &recorder, P0, 2).await;
    assert_eq!(last_seek(&recorder).await.map(|seek| seek.epoch), Some(again), "a seek of its own");
}

#[tokio::test(start_paused = true)]
async fn an_owner_knows_where_it_starts() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(recorder.context(P0).starts_at(), Some(StartPosition::Earliest));
    fleet.stop("a").await;
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 10).await;
    assert_eq!(recorder.context(P0).starts_at(), Some(StartPosition::after(SequenceNumber(9))));
    recorder.clear();
    seek(&fleet, 4).await;
    until_finished(&fleet, &recorder, P0, 10).await;
    assert_eq!(recorder.context(P0).starts_at(), Some(StartPosition::at(SequenceNumber(4))));
}

#[tokio::test(start_paused = true)]
async fn a_start_that_an_owner_saved_is_no_seek() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    let latest =
        || EventProcessorOptions { initial_position: StartPosition::Latest.into(), ..recorder.options() };
    start(&mut fleet, "a", latest(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 10).await;
    fleet.kill("a");
    let checkpoint = stored(&fleet, P0).await.unwrap();
    assert!(matches!(checkpoint.position, Position::Start(_)), "{checkpoint:?}");
    recorder.clear();
    start(&mut fleet, "b", latest(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 10).await;
    assert_eq!(last_seek(&recorder).await, None);
}

#[tokio::test(start_paused = true)]
async fn a_processor_sees_that_the_hub_was_created_again_by_the_id_of_its_log() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 3);
    until_finished(&fleet, &recorder, P0, 2).await;
    let before = recorder.context(P0).log().cloned();
    assert_eq!(before, fleet.hub().hub_properties().await.unwrap().log);
    fleet.hub().recreate(1);
    recorder.clear();
    send(&fleet, P0, 3);
    until_finished(&fleet, &recorder, P0, 2).await;
    let after = recorder.context(P0).log().cloned();
    assert_eq!(after, fleet.hub().hub_properties().await.unwrap().log);
    assert_ne!(after, before);
}
