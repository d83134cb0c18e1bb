//! Tests of processor calls that hang at an await: they are cancelled after `process_timeout`, and in the
//! end the partition is released.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder};
use ephor::{Backoff, CloseReason, EventProcessorOptions, FailurePolicy, HostState, PartitionId};
use ephor_testkit::TestFleet;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);

/// The first `times` batches with an event hang.
fn hangs(times: u32) -> Recorder {
    let left = Arc::new(AtomicU32::new(times));
    Recorder::scripted(move |_, call| {
        let left = left.clone();
        async move {
            let batch = matches!(call, Call::Batch(events) if !events.is_empty());
            if batch && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    })
}

fn options(recorder: &Recorder) -> EventProcessorOptions {
    EventProcessorOptions {
        process_timeout: Some(SECOND * 10),
        on_error: recorder.on_error(),
        failure: FailurePolicy::Retry(Backoff { first: SECOND, max: SECOND }),
        ..EventProcessorOptions::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_that_hangs_is_given_up_reported_and_made_again_with_the_same_instance() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = hangs(2);
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let heard = recorder.heard(0);
    let said =
        |n| format!("events 0 to 0 failed (attempt {n}): it did not return within 10s and was given up");
    assert_eq!(heard, [said(1), said(2)]);
    assert_eq!(recorder.reports("Partition"), 2);
    let begun = recorder.times(0, |call| matches!(call, Call::Batch(_)));
    assert!(begun.windows(2).all(|pair| (SECOND * 10..SECOND * 12).contains(&(pair[1] - pair[0]))));
    assert_eq!((recorder.finished(0), recorder.running()), (vec![0], 0));
    assert!(recorder.entries().iter().all(|entry| entry.instance == 1));
    assert_eq!(recorder.most_in_one_partition(), 1, "the call was dropped before the next");
}

#[tokio::test(start_paused = true)]
async fn without_a_timeout_a_slow_call_keeps_its_partition_for_as_long_as_it_takes() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = hangs(1);
    fleet.hub().send(P0, "event").unwrap();
    let options = EventProcessorOptions { process_timeout: None, ..options(&recorder) };
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    fleet.pass(SECOND * 3_600).await;
    assert_eq!((recorder.delivered(0), recorder.running()), (vec![0], 1));
    let owned = &fleet.snapshot("a").partitions[0];
    assert!(!owned.stuck && owned.in_call_for.unwrap() > SECOND * 3_590);
    assert!(recorder.report_texts().is_empty(), "{:?}", recorder.report_texts());
}

#[tokio::test(start_paused = true)]
async fn after_three_timeouts_in_a_row_the_partition_is_given_to_another_host() {
    let mut fleet = TestFleet::new(1).unwrap();
    let (stalled, well) = (hangs(u32::MAX), Recorder::new());
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("stalled", |host| host.options(options(&stalled)).processor(stalled.make())).await.unwrap();
    fleet.until("in a call", || stalled.running() == 1).await.unwrap();
    fleet.start("well", |host| host.processor(well.make())).await.unwrap();
    fleet.until("done by the other", || well.finished(0) == [0]).await.unwrap();
    assert_eq!(stalled.delivered(0), [0, 0, 0]);
    assert_eq!(stalled.closes(0), [CloseReason::ProcessorFailed]);
    fleet.pass(SECOND * 300).await;
    assert_eq!(stalled.delivered(0).len(), 3, "nothing comes back to it");
    assert_eq!(fleet.snapshot("well").state, HostState::Active);
}

#[tokio::test(start_paused = true)]
async fn a_stalled_partition_without_another_host_is_left_alone_for_half_a_minute() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = hangs(4);
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let begun = recorder.times(0, |call| matches!(call, Call::Batch(_)));
    let pauses: Vec<u64> = begun.windows(2).map(|pair| (pair[1] - pair[0]).as_secs()).collect();
    assert_eq!(pauses.len(), 4, "{pauses:?}");
    assert!((38..=50).contains(&pauses[2]), "{pauses:?}");
    assert_eq!(recorder.finished(0), [0]);
    assert_eq!(recorder.reports("Stuck"), 0, "it could be given up, so it was never stuck");
}

#[tokio::test(start_paused = true)]
async fn an_empty_batch_that_hangs_is_given_up_too_and_closes_nothing() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::scripted(|_, call| async move {
        if call == Call::Batch(vec![]) {
            std::future::pending::<()>().await;
        }
        Ok(())
    });
    let options = EventProcessorOptions {
        invoke_after_receive_timeout: true,
        receive_timeout: SECOND,
        ..options(&recorder)
    };
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    fleet.pass(SECOND * 120).await;
    assert!(recorder.heard(0).len() > 5);
    fleet.hub().send(P0, "event").unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!((recorder.finished(0), recorder.closes(0)), (vec![0], vec![]));
}

#[tokio::test(start_paused = true)]
async fn an_open_that_hangs_is_given_up_and_tried_again() {
    let mut fleet = TestFleet::new(1).unwrap();
    let left = Arc::new(AtomicU32::new(1));
    let recorder = Recorder::scripted(move |_, call| {
        let left = left.clone();
        async move {
            let open = matches!(call, Call::Open);
            if open && left.fetch_update(Ordering::SeqCst, Ordering::SeqCst, |n| n.checked_sub(1)).is_ok() {
                std::future::pending::<()>().await;
            }
            Ok(())
        }
    });
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.reports("OpenFailed"), 1);
    assert_eq!(recorder.finished(0), vec![0]);
}
