//! Tests of rewinds: a checkpoint is moved back only if it is proven that its position does not exist.

use std::sync::{Arc, Mutex};

use crate::common::action_recorder::{
    ActionRecorder, P0, events, seconds, send, start, stored, stored_sequence, until_finished,
};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use crate::positions_gone::save_by_other_means;
use crate::recording_processor::{Call, Recorder, sleep};
use ephor::environment::TaskHandle;
use ephor::memory::MemoryStore;
use ephor::{
    CheckpointPolicy, EventProcessorOptions, EventSource, OnInvalidPosition, PumpState, StartPosition,
};
use ephor_core::checkpoint::Position;
use ephor_testkit::TestFleet;

/// A host that writes a checkpoint for every event has finished ten of them.
async fn ten_are_finished(on_invalid_position: OnInvalidPosition) -> (TestFleet, ActionRecorder) {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    let checkpoint = CheckpointPolicy::every_events(1);
    let options = EventProcessorOptions { checkpoint, on_invalid_position, ..recorder.options() };
    start(&mut fleet, "a", options, &recorder.scribe()).await;
    send(&fleet, P0, 10);
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.pass(seconds(1)).await;
    recorder.clear();
    (fleet, recorder)
}

fn position_gone_reports(recorder: &ActionRecorder) -> Vec<String> {
    let reports = recorder.reports("Partition").into_iter().map(|report| report.text);
    reports.filter(|text| !text.contains("could not be read")).collect()
}

#[tokio::test(start_paused = true)]
async fn properties_that_lag_behind_the_receivers_repeat_nothing() {
    let (fleet, recorder) = ten_are_finished(OnInvalidPosition::Earliest).await;
    fleet.hub().hold_properties(true);
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 14).await;
    fleet.hub().disconnect(P0).unwrap();
    fleet.pass(seconds(20)).await;
    fleet.hub().hold_properties(false);
    fleet.pass(seconds(60)).await;
    send(&fleet, P0, 2);
    until_finished(&fleet, &recorder, P0, 16).await;
    assert_eq!(recorder.delivered(P0), events(10, 16), "each of them once");
    assert_eq!(position_gone_reports(&recorder), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_checkpoint_is_ahead_of_lagging_properties_starts_behind_it() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    fleet.hub().hold_properties(true);
    send(&fleet, P0, 5);
    let log = fleet.hub().hub_properties().await.unwrap().log;
    save_by_other_means(&fleet, 4, log).await;
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(15)).await;
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 5).await;
    assert_eq!(recorder.delivered(P0), [5]);
    fleet.pass(seconds(300)).await;
    assert_eq!(recorder.delivered(P0), [5], "an event that came is proof that the position is there");
    assert_eq!(position_gone_reports(&recorder), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_power_failure_that_lost_what_was_read_does_not_repeat_the_log() {
    let (fleet, recorder) = ten_are_finished(OnInvalidPosition::Earliest).await;
    // Events 6 to 9 are lost, and the numbers 10 to 13 will never be used.
    fleet.hub().lose_power(|_| 4);
    fleet.pass(seconds(120)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(9), "{:?}", stored(&fleet, P0).await);
    assert_eq!(position_gone_reports(&recorder), [""; 0]);
    send(&fleet, P0, 3);
    until_finished(&fleet, &recorder, P0, 16).await;
    assert_eq!(recorder.delivered(P0), events(14, 16));
    let reports = position_gone_reports(&recorder);
    assert!(reports.len() == 1 && reports[0].contains("4 events are gone"), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_missing_in_the_middle_of_a_batch_is_told_before_what_follows() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 5);
    fleet.hub().lose_power(|_| 2);
    send(&fleet, P0, 3);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!(recorder.delivered(P0), [0, 1, 2, 7, 8, 9]);
    let reports = position_gone_reports(&recorder);
    let words = "4 events are gone (removed, damaged, or their numbers were never used): \
                 reading should go on at 3, and the next event is 7";
    assert!(reports.len() == 1 && reports[0].contains(words), "{reports:?}");
}

#[tokio::test(start_paused = true)]
async fn an_end_that_lags_behind_the_receivers_does_not_lead_back() {
    let (fleet, recorder) = ten_are_finished(OnInvalidPosition::Latest).await;
    fleet.hub().hold_properties(true);
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 14).await;
    fleet.hub().lose_power(|_| 2);
    send(&fleet, P0, 2);
    fleet.pass(seconds(20)).await;
    fleet.hub().hold_properties(false);
    send(&fleet, P0, 1);
    until_finished(&fleet, &recorder, P0, 19).await;
    assert_eq!(recorder.delivered(P0), events(10, 14).into_iter().chain(17..=19).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn no_event_is_skipped_at_numbers_that_were_passed_over() {
    let (mut fleet, recorder) = ten_are_finished(OnInvalidPosition::Latest).await;
    fleet.hub().lose_power(|_| 4);
    send(&fleet, P0, 3);
    until_finished(&fleet, &recorder, P0, 16).await;
    assert_eq!(recorder.delivered(P0), events(14, 16), "the position lies inside the log");
    let reports = position_gone_reports(&recorder);
    assert!(reports.len() == 1 && reports[0].contains("4 events are gone"), "{reports:?}");
    assert!(reports[0].ends_with("; reading goes on at 14"), "{reports:?}");
    // Neither by whoever comes next.
    fleet.pass(seconds(1)).await;
    fleet.kill("a");
    fleet.hub().lose_power(|_| 2);
    send(&fleet, P0, 1);
    let options =
        EventProcessorOptions { on_invalid_position: OnInvalidPosition::Latest, ..recorder.options() };
    recorder.clear();
    start(&mut fleet, "b", options, &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 19).await;
    assert_eq!(recorder.delivered(P0), [19]);
    assert_eq!(position_gone_reports(&recorder).len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_position_that_is_refused_once_is_tried_again_before_anything_is_written() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 5);
    let log = fleet.hub().hub_properties().await.unwrap().log;
    save_by_other_means(&fleet, 9, log).await;
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(1)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(9));
    // The node that refused it lagged behind the others.
    send(&fleet, P0, 6);
    until_finished(&fleet, &recorder, P0, 10).await;
    assert_eq!(recorder.delivered(P0), [10]);
    assert_eq!(position_gone_reports(&recorder), [""; 0]);
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_takes_a_position_beyond_its_end_skips_nothing() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    fleet.hub().take_any_position(true);
    send(&fleet, P0, 5);
    let log = fleet.hub().hub_properties().await.unwrap().log;
    save_by_other_means(&fleet, 100, log).await;
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(20)).await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(100), "not proven yet");
    until_finished(&fleet, &recorder, P0, 4).await;
    assert!(recorder.now().since(ephor_core::time::Monotonic(0)) < seconds(60));
    assert_eq!(recorder.delivered(P0), events(0, 4));
    let reports = position_gone_reports(&recorder);
    assert!(reports.len() == 1 && reports[0].contains("should go on at 101"), "{reports:?}");
    fleet.stop("a").await;
    assert_eq!(stored_sequence(&fleet, P0).await, Some(4));
}

#[tokio::test(start_paused = true)]
async fn whoever_wants_to_stand_still_does_so_only_on_proof() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 5);
    let log = fleet.hub().hub_properties().await.unwrap().log;
    save_by_other_means(&fleet, 100, log).await;
    let stop = EventProcessorOptions { on_invalid_position: OnInvalidPosition::Stop, ..recorder.options() };
    start(&mut fleet, "a", stop, &recorder.scribe()).await;
    fleet.pass(seconds(1)).await;
    assert_ne!(fleet.snapshot("a").partitions[0].state, PumpState::Halted);
    fleet.pass(seconds(60)).await;
    assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Halted);
    assert_eq!(recorder.reports("Halted").len(), 1);
    assert_eq!(stored_sequence(&fleet, P0).await, Some(100), "a person decides");
}

/// A host that begins to save, and then rewinds. Returns the position that is stored in the end, and the first
/// event that is delivered after the rewind.
async fn rewound_while_saving(trouble: Trouble) -> (Option<Position>, u64) {
    let fleet = TestFleet::new(1).unwrap();
    let store = FaultyStore::new(Arc::new(MemoryStore::new(fleet.environment())));
    let mut fleet = fleet.with_store(Arc::new(store.clone()));
    let (environment, tasks) = (fleet.environment(), Mutex::<Vec<TaskHandle>>::default());
    let recorder = Recorder::scripted(move |context, call| {
        let environment = environment.clone();
        let rewinds = matches!(&call, Call::Error(text) if text.contains("the log ends before"));
        if rewinds {
            // What the processor has begun to save when it hears that it will begin again.
            store.trouble_times(Op::Save, trouble, 1);
            let save = Box::pin(async move { drop(context.checkpoint().await) });
            tasks.lock().unwrap().push(environment.spawn(save));
        }
        let again = !tasks.lock().unwrap().is_empty() && matches!(call, Call::Batch(_));
        async move {
            if rewinds {
                sleep(&environment, seconds(1)).await;
            } else if again {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    let options =
        EventProcessorOptions { checkpoint: CheckpointPolicy::manual(), ..EventProcessorOptions::default() };
    send(&fleet, P0, 5);
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    fleet.until("five are finished", || recorder.finished(0).len() == 5).await.unwrap();
    fleet.hub().hold_properties(true);
    send(&fleet, P0, 5);
    fleet.until("ten are finished", || recorder.finished(0).len() == 10).await.unwrap();
    // The partition ends before what was read, for so long that it is believed.
    fleet.hub().disconnect(P0).unwrap();
    fleet.until("it begins again", || recorder.delivered(0).len() > 10).await.unwrap();
    fleet.pass(seconds(10)).await;
    (stored(&fleet, P0).await.map(|stored| stored.position), recorder.delivered(0)[10])
}

#[tokio::test(start_paused = true)]
async fn a_save_in_flight_does_not_land_behind_a_rewind() {
    let (position, delivered) = rewound_while_saving(Trouble::LandsAfter(seconds(2))).await;
    assert_eq!(delivered, 0);
    let begins_again = Position::Start(StartPosition::Earliest);
    assert_eq!(position, Some(begins_again), "whoever comes next begins again, too");
}

#[tokio::test(start_paused = true)]
async fn a_save_that_timed_out_does_not_land_behind_a_rewind() {
    let (position, delivered) = rewound_while_saving(Trouble::LandsUnheardAfter(seconds(7))).await;
    assert_eq!(delivered, 0);
    let begins_again = Position::Start(StartPosition::Earliest);
    assert_eq!(position, Some(begins_again), "whoever comes next begins again, too");
}
