//! Tests of an unreliable connection to the hub: links that break, a hub that restarts or is unreachable
//! for a while. No event is lost, and none is repeated as long as the owner stays the same.

use std::time::Duration;

use crate::recording_processor::{Call, Recorder, sleep};
use ephor::{CloseReason, EventProcessorOptions, HostState, PartitionId, PumpState};
use ephor_testkit::TestFleet;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);
const MILLISECOND: Duration = Duration::from_millis(1);

fn options(recorder: &Recorder) -> EventProcessorOptions {
    EventProcessorOptions {
        max_batch_size: 3,
        on_error: recorder.on_error(),
        ..EventProcessorOptions::default()
    }
}

/// Each batch takes seven milliseconds.
fn working(fleet: &TestFleet) -> Recorder {
    let environment = fleet.environment();
    Recorder::scripted(move |_, call| {
        let environment = environment.clone();
        async move {
            if matches!(call, Call::Batch(_)) {
                sleep(&environment, MILLISECOND * 7).await;
            }
            Ok(())
        }
    })
}

/// Sends for a while, with a fault at regular intervals, and checks that each event came once and
/// in order.
async fn through(fault: impl Fn(&TestFleet, u32)) {
    for every in [1, 2, 3, 5, 8, 13] {
        let mut fleet = TestFleet::new(2).unwrap();
        let recorder = working(&fleet);
        fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
        for n in 0..200 {
            fleet.hub().send(PartitionId(n % 2), format!("event {n}")).unwrap();
            if n % every == 0 {
                fault(&fleet, n);
            }
            // Shorter and longer than a batch, so that faults hit all moments.
            fleet.pass(MILLISECOND * (n * n % 17)).await;
        }
        fleet.until_caught_up().await.unwrap();
        for partition in 0..2 {
            let expected: Vec<u64> = (0..100).collect();
            assert_eq!(recorder.delivered(partition), expected, "a fault every {every} events");
            assert_eq!(recorder.closes(partition), [], "the owner stays");
        }
        assert!(recorder.reports("Partition") > 0, "somebody hears of it");
        assert_eq!(recorder.most_in_one_partition(), 1);
    }
}

#[tokio::test(start_paused = true)]
async fn links_that_break_at_any_time_lose_and_repeat_nothing() {
    through(|fleet, n| fleet.hub().disconnect(PartitionId(n / 3 % 2)).unwrap()).await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_restarts_at_any_time_loses_and_repeats_nothing() {
    through(|fleet, _| fleet.hub().restart()).await;
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_away_for_less_than_hub_unavailable_timeout_is_waited_for_with_the_partition_kept() {
    for away in [1, 5, 20] {
        let mut fleet = TestFleet::new(1).unwrap();
        let recorder = working(&fleet);
        fleet.hub().send(P0, "event").unwrap();
        fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
        fleet.until_caught_up().await.unwrap();
        let epoch = fleet.snapshot("a").partitions[0].epoch;
        fleet.hub().fail(Some("maintenance"));
        fleet.pass(SECOND * away).await;
        assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Retrying);
        fleet.hub().fail(None);
        fleet.hub().send(P0, "event").unwrap();
        fleet.until_caught_up().await.unwrap();
        assert_eq!((recorder.delivered(0), recorder.closes(0)), (vec![0, 1], vec![]));
        let owned = &fleet.snapshot("a").partitions[0];
        assert_eq!((owned.epoch, owned.state), (epoch, PumpState::Running));
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_away_for_long_is_asked_less_and_less_often_and_read_again_when_it_is_back() {
    let mut fleet = TestFleet::new(2).unwrap();
    let recorder = working(&fleet);
    for partition in 0..2 {
        fleet.hub().send(PartitionId(partition), "event").unwrap();
    }
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    fleet.hub().fail(Some("a long outage"));
    fleet.pass(SECOND * 600).await;
    assert!(recorder.closes(0).contains(&CloseReason::SourceFailed));
    assert_eq!(fleet.snapshot("a").state, HostState::Unhealthy, "it reaches the store but not the hub");
    assert!(recorder.heard(0).len() < 60, "{}", recorder.heard(0).len());
    fleet.hub().fail(None);
    for partition in 0..2 {
        fleet.hub().send(PartitionId(partition), "event").unwrap();
    }
    fleet.until_caught_up().await.unwrap();
    for partition in 0..2 {
        assert_eq!(recorder.delivered(partition), [0, 1], "the checkpoint of the close held");
    }
}

#[tokio::test(start_paused = true)]
async fn a_link_that_breaks_during_a_call_does_not_disturb_the_call() {
    let mut fleet = TestFleet::new(1).unwrap();
    let environment = fleet.environment();
    let recorder = Recorder::scripted(move |_, call| {
        let environment = environment.clone();
        async move {
            if matches!(call, Call::Batch(_)) {
                sleep(&environment, SECOND * 20).await;
            }
            Ok(())
        }
    });
    for n in 0..6 {
        fleet.hub().send(P0, format!("event {n}")).unwrap();
    }
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.running() == 1).await.unwrap();
    fleet.hub().restart();
    fleet.hub().fail(Some("away"));
    fleet.pass(SECOND * 19).await;
    assert_eq!(recorder.running(), 1);
    fleet.hub().fail(None);
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.delivered(0), [0, 1, 2, 3, 4, 5]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_is_kept_however_often_its_link_is_cut_now_and_then() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = working(&fleet);
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_balanced().await.unwrap();
    let epoch = fleet.snapshot("a").partitions[0].epoch;
    for _ in 0..20 {
        fleet.pass(SECOND * 20).await;
        fleet.hub().disconnect(P0).unwrap();
    }
    fleet.hub().send(P0, "event").unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.closes(0), []);
    assert_eq!(fleet.snapshot("a").partitions[0].epoch, epoch);
    assert_eq!(recorder.heard(0).len(), 20, "each is told all the same");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_lets_itself_be_opened_but_not_be_read_is_given_up_after_hub_unavailable_timeout() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = working(&fleet);
    fleet.start("a", |host| host.options(options(&recorder)).processor(recorder.make())).await.unwrap();
    fleet.until_balanced().await.unwrap();
    for _ in 0..4_000 {
        fleet.hub().disconnect(P0).unwrap();
        fleet.pass(MILLISECOND * 10).await;
    }
    assert_eq!(recorder.closes(0), [CloseReason::SourceFailed]);
}
