//! Tests of checkpoints whose position no longer exists: retention, a hub that was created again, a log
//! that ends too early.

use std::sync::Arc;

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{
    P0, events, seconds, send, start, stored, stored_sequence, until_finished,
};
use ephor::admin::{SeekMode, SeekTo};
use ephor::{
    CheckpointPolicy, CloseReason, EventProcessorOptions, EventSource, HostId, LogId, OnInvalidPosition,
    PartitionId, Position, PumpState, SequenceNumber,
};
use ephor_core::ids::Incarnation;
use ephor_core::lease::{ClaimCause, ClaimRequest, ReleaseCause, ReleaseRequest};
use ephor_core::store::{ClaimOutcome, GiveUpOutcome, SaveOutcome, SaveRequest};
use ephor_testkit::TestFleet;

fn on_invalid(recorder: &ActionRecorder, on_invalid_position: OnInvalidPosition) -> EventProcessorOptions {
    EventProcessorOptions { on_invalid_position, ..recorder.options() }
}

/// Five events are finished and saved; of the next fifteen, the first seven are gone.
async fn overtaken() -> (TestFleet, ActionRecorder) {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 5);
    start(&mut fleet, "first", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 4).await;
    fleet.stop("first").await;
    send(&fleet, P0, 15);
    fleet.hub().forget_before(P0, SequenceNumber(12)).unwrap();
    recorder.clear();
    (fleet, recorder)
}

/// The group as the command `ephor` takes it.
fn seek_target(fleet: &TestFleet) -> String {
    format!("{}/{}", fleet.group().hub, fleet.group().group)
}

fn told(recorder: &ActionRecorder) -> usize {
    let lost = |what: &What| matches!(what, What::Told(text) if text.contains("PositionGone"));
    recorder.of(P0).iter().filter(|entry| lost(&entry.what)).count()
}

#[tokio::test(start_paused = true)]
async fn what_retention_took_is_counted_and_reading_goes_on_at_the_earliest() {
    let (mut fleet, recorder) = overtaken().await;
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 19).await;
    assert_eq!(recorder.delivered(P0), events(12, 19));
    let reports = recorder.reports("Partition");
    assert!(reports.len() == 1 && reports[0].text.contains("7 events are gone"), "{reports:?}");
    assert_eq!(told(&recorder), 1, "the processor hears of it too");
    // It is not reported again the next time.
    fleet.stop("a").await;
    recorder.clear();
    send(&fleet, P0, 1);
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 20).await;
    assert_eq!(recorder.delivered(P0), [20]);
    assert!(recorder.all_reports().is_empty(), "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn reading_may_go_on_at_the_end_instead_and_the_end_is_found_once() {
    let (mut fleet, recorder) = overtaken().await;
    let options = on_invalid(&recorder, OnInvalidPosition::Latest);
    start(&mut fleet, "a", options.clone(), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    assert_eq!(recorder.delivered(P0), []);
    let reports = recorder.reports("Partition");
    assert!(reports.len() == 1 && reports[0].text.contains("7 events are gone"), "{reports:?}");
    let skipped = "reading goes on at 20, and 8 events that the hub keeps (12 to 19) are skipped";
    assert!(reports[0].text.contains(skipped), "{reports:?}");
    fleet.kill("a");
    // These arrive after the end that was found: they are not skipped a second time.
    send(&fleet, P0, 3);
    start(&mut fleet, "b", options, &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 22).await;
    assert_eq!(recorder.delivered(P0), events(20, 22));
    assert_eq!(recorder.reports("Partition").len(), 1, "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn reading_may_stand_still_until_somebody_seeks() {
    let (mut fleet, recorder) = overtaken().await;
    start(&mut fleet, "a", on_invalid(&recorder, OnInvalidPosition::Stop), &recorder.scribe()).await;
    fleet.pass(seconds(300)).await;
    let snapshot = fleet.snapshot("a");
    assert_eq!(snapshot.partitions[0].state, PumpState::Halted);
    assert_eq!(recorder.delivered(P0), []);
    let changes = recorder.of(P0).iter().filter(|entry| matches!(entry.what, What::Changed(_))).count();
    assert_eq!(changes, 1, "the lease is kept, in one epoch");
    let reports = recorder.reports("Halted");
    assert!(reports.len() == 1 && reports[0].text.contains("7 events are gone"), "{reports:?}");
    let command = format!("ephor checkpoint seek '{}' --partition 0 --to seq:12", seek_target(&fleet));
    assert!(reports[0].text.contains(&command), "{command}: {reports:?}");
    fleet.admin().seek(&[P0], &SeekTo::Sequence(SequenceNumber(15)), SeekMode::Apply).await.unwrap();
    let sought = recorder.now();
    until_finished(&fleet, &recorder, P0, 19).await;
    assert_eq!(recorder.delivered(P0), events(15, 19));
    assert!(recorder.now().since(sought) < seconds(1), "{:?}", recorder.now().since(sought));
}

/// Twenty events are finished by a reader that then pauses; of the next twenty, eight are gone.
async fn overtaken_in_mid_stream(choice: OnInvalidPosition) -> (TestFleet, ActionRecorder) {
    let (fleet, recorder) = ActionRecorder::with_fleet(1);
    overtaken_in_mid_stream_of(fleet, recorder, choice).await
}

async fn overtaken_in_mid_stream_of(
    mut fleet: TestFleet,
    recorder: ActionRecorder,
    choice: OnInvalidPosition,
) -> (TestFleet, ActionRecorder) {
    send(&fleet, P0, 20);
    start(&mut fleet, "a", on_invalid(&recorder, choice), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 19).await;
    fleet.host("a").pause(P0);
    fleet.pass(seconds(1)).await;
    send(&fleet, P0, 20);
    fleet.hub().forget_before(P0, SequenceNumber(28)).unwrap();
    fleet.pass(seconds(60)).await;
    assert_eq!(recorder.finished(P0), events(0, 19), "paused is paused");
    recorder.clear();
    fleet.host("a").resume(P0);
    fleet.pass(seconds(5)).await;
    (fleet, recorder)
}

#[tokio::test(start_paused = true)]
async fn retention_that_overtakes_a_reader_under_way_is_counted() {
    let (_fleet, recorder) = overtaken_in_mid_stream(OnInvalidPosition::Earliest).await;
    assert_eq!(recorder.delivered(P0), events(28, 39));
    let reports = recorder.reports("Partition");
    assert!(reports.len() == 1 && reports[0].text.contains("8 events are gone"), "{reports:?}");
    assert_eq!(told(&recorder), 1);
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_was_overtaken_under_way_may_go_on_at_the_end() {
    let (fleet, recorder) = overtaken_in_mid_stream(OnInvalidPosition::Latest).await;
    assert_eq!(recorder.delivered(P0), []);
    send(&fleet, P0, 2);
    until_finished(&fleet, &recorder, P0, 41).await;
    assert_eq!(recorder.delivered(P0), events(40, 41));
    let reports = recorder.reports("Partition");
    assert!(reports.len() == 1 && reports[0].text.contains("8 events are gone"), "{reports:?}");
    let skipped = "reading goes on at 40, and 12 events that the hub keeps (28 to 39) are skipped";
    assert!(reports[0].text.contains(skipped), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn events_of_a_hub_made_anew_that_are_skipped_are_counted() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.stop("a").await;
    fleet.hub().recreate(1);
    send(&fleet, P0, 20);
    recorder.clear();
    start(&mut fleet, "b", on_invalid(&recorder, OnInvalidPosition::Latest), &recorder.scribe()).await;
    fleet.pass(seconds(5)).await;
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 20).await;
    assert_eq!(recorder.delivered(P0), [20]);
    let reports = recorder.reports("Partition");
    let skipped = "reading goes on at 20, and 20 events that the hub keeps (0 to 19) are skipped";
    assert!(reports.len() == 1 && reports[0].text.contains(skipped), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_went_on_at_the_end_does_not_skip_again_after_a_link_fault() {
    for shared_with_other_sdks in [false, true] {
        let (fleet, recorder) = ActionRecorder::with_fleet(1);
        let fleet = if shared_with_other_sdks {
            fleet.with_store(Arc::new(recorder.store().with_other_sdks()))
        } else {
            fleet
        };
        let (fleet, recorder) = overtaken_in_mid_stream_of(fleet, recorder, OnInvalidPosition::Latest).await;
        fleet.hub().disconnect(P0).unwrap();
        send(&fleet, P0, 2);
        until_finished(&fleet, &recorder, P0, 41).await;
        assert_eq!(recorder.delivered(P0), events(40, 41));
        let gone = |report: &&crate::common::action_recorder::Report| report.text.contains("are gone");
        assert_eq!(
            recorder.reports("Partition").iter().filter(gone).count(),
            1,
            "{:?}",
            recorder.all_reports()
        );
    }
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_was_overtaken_under_way_may_stand_still() {
    let (fleet, recorder) = overtaken_in_mid_stream(OnInvalidPosition::Stop).await;
    assert_eq!(recorder.delivered(P0), []);
    assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Halted);
    assert_eq!(recorder.reports("Halted").len(), 1, "{:?}", recorder.all_reports());
    fleet.admin().seek(&[P0], &SeekTo::Earliest, SeekMode::Apply).await.unwrap();
    until_finished(&fleet, &recorder, P0, 39).await;
    assert_eq!(recorder.closings(P0), [CloseReason::Seek]);
    assert_eq!(recorder.delivered(P0), events(28, 39));
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_made_anew_under_way_is_noticed_and_read_from_its_start() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(4);
    let partitions = [0, 1, 2, 3].map(PartitionId);
    let options =
        EventProcessorOptions { checkpoint: CheckpointPolicy::every_events(5), ..recorder.options() };
    start(&mut fleet, "a", options, &recorder.scribe()).await;
    for partition in partitions {
        send(&fleet, partition, 10);
    }
    fleet.until_caught_up().await.unwrap();
    let old = stored(&fleet, P0).await.unwrap();
    assert_eq!(old.position.finished(), Some(SequenceNumber(9)));
    recorder.clear();
    fleet.hub().recreate(4);
    for partition in partitions {
        send(&fleet, partition, 5);
    }
    let made_anew = recorder.now();
    fleet
        .until("the new log is not read", || partitions.iter().all(|p| recorder.finished(*p).contains(&4)))
        .await
        .unwrap();
    let took = recorder.now().since(made_anew);
    assert!(took < seconds(5), "{took:?}: {:?}", recorder.all_reports());
    for partition in partitions {
        assert_eq!(recorder.delivered(partition), events(0, 4));
    }
    let noticed =
        |report: &&crate::common::action_recorder::Report| report.text.contains("created again as log");
    assert_eq!(
        recorder.reports("Partition").iter().filter(noticed).count(),
        4,
        "{:?}",
        recorder.all_reports()
    );
    fleet.pass(seconds(1)).await;
    for partition in partitions {
        let new = stored(&fleet, partition).await.unwrap();
        assert_eq!(
            new.position.finished(),
            Some(SequenceNumber(4)),
            "the policy counts events of the new log"
        );
        assert_ne!(new.log, old.log);
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_was_made_anew_while_nobody_read_is_noticed_and_read_from_its_start() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.stop("a").await;
    fleet.hub().recreate(1);
    // Longer than the old log: sequence numbers alone would not show the difference.
    send(&fleet, P0, 20);
    recorder.clear();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 19).await;
    assert_eq!(recorder.delivered(P0), events(0, 19));
    let reports = recorder.reports("Partition");
    assert!(reports.len() == 1 && reports[0].text.contains("created again as log"), "{reports:?}");
    fleet.stop("b").await;
    fleet.hub().recreate(1);
    send(&fleet, P0, 3);
    start(&mut fleet, "c", recorder.options(), &recorder.scribe()).await;
    fleet.until("c got less", || recorder.delivered_to("c", P0) == events(0, 2)).await.unwrap();
    assert!(fleet.stop("c").await.is_clean());
    assert_eq!(stored_sequence(&fleet, P0).await, Some(2), "in another log there is no back");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_of_another_log_does_not_make_a_partition_seem_caught_up() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.stop("a").await;
    fleet.hub().recreate(1);
    send(&fleet, P0, 5);
    let scribe = recorder.scribe().working(|_, _| std::future::pending());
    let manual = EventProcessorOptions { checkpoint: CheckpointPolicy::manual(), ..recorder.options() };
    start(&mut fleet, "b", manual.clone(), &scribe).await;
    fleet.pass(seconds(1)).await;
    assert_eq!(recorder.context(P0).lag().events, 5);
    fleet.kill("b");
    start(&mut fleet, "c", manual, &recorder.scribe()).await;
    fleet.until("c got less", || recorder.delivered_to("c", P0) == events(0, 4)).await.unwrap();
    let report = fleet.stop("c").await;
    assert_eq!(report.unsaved, [P0], "what is finished of the new log is not saved: {report}");
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_beyond_the_end_is_reported_and_reading_begins_at_the_earliest() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 5);
    let log = fleet.hub().hub_properties().await.unwrap().log;
    save_by_other_means(&fleet, 100, log).await;
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 4).await;
    assert_eq!(recorder.delivered(P0), events(0, 4));
    let reports = recorder.reports("Partition");
    assert!(reports.len() == 1, "{reports:?}");
    assert!(reports[0].text.contains("should go on at 101, but the log ends before 5"), "{reports:?}");
    fleet.stop("a").await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(4), "the position that does not exist is gone");
    // The log grows past the old checkpoint: nothing in between is skipped.
    send(&fleet, P0, 2);
    recorder.clear();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 6).await;
    assert_eq!(recorder.delivered(P0), events(5, 6));
    fleet.stop("b").await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(6));
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_beyond_the_end_that_names_no_log_is_replaced_by_one_that_does() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    save_by_other_means(&fleet, 100, None).await;
    let checkpoint = CheckpointPolicy::every_events(5);
    start(&mut fleet, "a", EventProcessorOptions { checkpoint, ..recorder.options() }, &recorder.scribe())
        .await;
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 4).await;
    fleet.pass(seconds(1)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(4), "the policy counts too");
}

/// Writes a checkpoint that comes from no host of ours.
pub(crate) async fn save_by_other_means(fleet: &TestFleet, sequence: u64, log: Option<LogId>) {
    let (store, group) = (fleet.store(), fleet.group());
    let request = ClaimRequest {
        partition: P0,
        host: HostId { name: "elsewhere".parse().unwrap(), incarnation: Incarnation(1) },
        duration: seconds(30),
        seen: None,
        above: ephor::Epoch::NONE,
        cause: ClaimCause::Unowned,
    };
    let ClaimOutcome::Won { token, .. } = store.claim(group, &request).await.unwrap() else {
        panic!("not won")
    };
    let position = Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None };
    let save = store.save(group, &SaveRequest::new(&token, &position, log.as_ref())).await.unwrap();
    assert!(matches!(save, SaveOutcome::Saved(_)));
    let release =
        ReleaseRequest { token, cause: ReleaseCause::Shutdown, successor: None, checkpoint_saved: true };
    assert_eq!(store.release(group, &release).await.unwrap(), GiveUpOutcome::Done);
}
