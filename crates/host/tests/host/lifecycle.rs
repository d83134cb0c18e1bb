//! Tests of the life cycle of a processor: created, opened, called batch by batch, closed. Also tests of
//! closures used as processors, idle partitions and pauses.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder, numbers, sleep};
use ephor::{CheckpointPolicy, CloseReason, EventProcessorOptions, PartitionId, PumpState};
use ephor_testkit::TestFleet;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);

fn send(fleet: &TestFleet, partition: u32, events: usize) {
    for n in 0..events {
        fleet.hub().send(PartitionId(partition), format!("event {n}")).unwrap();
    }
}

fn upto(end: u64) -> Vec<u64> {
    (0..end).collect()
}

#[tokio::test(start_paused = true)]
async fn each_partition_gets_an_instance_of_its_own_that_is_opened_fed_and_closed_in_this_order() {
    let mut fleet = TestFleet::new(3).unwrap();
    let recorder = Recorder::new();
    for partition in 0..3 {
        send(&fleet, partition, 5);
    }
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    fleet.stop("a").await;
    let mut instances: Vec<u64> = vec![];
    for partition in 0..3 {
        let calls = recorder.calls(partition);
        assert_eq!(calls[..2], [Call::Made, Call::Open], "{calls:?}");
        assert_eq!(calls.last(), Some(&Call::Close(CloseReason::Shutdown)), "{calls:?}");
        let between = &calls[2..calls.len() - 1];
        assert!(between.iter().all(|call| matches!(call, Call::Batch(_) | Call::Finished(_))), "{calls:?}");
        assert_eq!(recorder.finished(partition), upto(5));
        let mut own: Vec<u64> =
            recorder.entries().iter().filter(|e| e.partition.0 == partition).map(|e| e.instance).collect();
        own.dedup();
        assert_eq!(own.len(), 1, "one instance made all calls of partition {partition}");
        instances.extend(own);
    }
    instances.sort_unstable();
    assert_eq!(instances, [1, 2, 3]);
}

#[tokio::test(start_paused = true)]
async fn nothing_is_delivered_before_open_has_returned() {
    let mut fleet = TestFleet::new(1).unwrap();
    let environment = fleet.environment();
    let recorder = Recorder::scripted(move |_, call| {
        let environment = environment.clone();
        async move {
            if call == Call::Open {
                sleep(&environment, SECOND * 7).await;
            }
            Ok(())
        }
    });
    send(&fleet, 0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("opened", || recorder.calls(0).contains(&Call::Open)).await.unwrap();
    fleet.pass(SECOND * 6).await;
    assert_eq!(recorder.delivered(0), []);
    assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Opening);
    fleet.pass(SECOND * 2).await;
    assert_eq!(recorder.finished(0), [0]);
}

#[tokio::test(start_paused = true)]
async fn calls_for_one_partition_never_overlap_while_partitions_run_side_by_side() {
    let mut fleet = TestFleet::new(4).unwrap();
    let environment = fleet.environment();
    let recorder = Recorder::scripted(move |_, _| {
        let environment = environment.clone();
        async move {
            sleep(&environment, SECOND).await;
            Ok(())
        }
    });
    fleet
        .start("a", |host| {
            let options = EventProcessorOptions { max_batch_size: 2, ..EventProcessorOptions::default() };
            host.options(options).processor(recorder.make())
        })
        .await
        .unwrap();
    for _ in 0..10 {
        for partition in 0..4 {
            send(&fleet, partition, 1);
        }
        fleet.pass(Duration::from_millis(300)).await;
    }
    fleet.until_caught_up().await.unwrap();
    fleet.stop("a").await;
    assert_eq!(recorder.most_in_one_partition(), 1);
    assert_eq!(recorder.most_at_once(), 4);
    for partition in 0..4 {
        assert_eq!(recorder.delivered(partition), upto(10), "in order, each once");
    }
}

#[tokio::test(start_paused = true)]
async fn a_closure_may_take_events_one_by_one() {
    let mut fleet = TestFleet::new(2).unwrap();
    let seen: Arc<Mutex<Vec<(u32, u64, String)>>> = Arc::default();
    let log = seen.clone();
    send(&fleet, 1, 3);
    fleet
        .start("a", |host| {
            host.for_each_event(move |context, event| {
                let text = event.text().unwrap().to_string();
                log.lock().unwrap().push((context.partition().0, event.sequence.0, text));
                async { Ok(()) }
            })
        })
        .await
        .unwrap();
    fleet.until_caught_up().await.unwrap();
    let expected = [(1, 0, "event 0".into()), (1, 1, "event 1".into()), (1, 2, "event 2".into())];
    assert_eq!(*seen.lock().unwrap(), expected);
}

#[tokio::test(start_paused = true)]
async fn a_closure_may_take_events_batch_by_batch() {
    let mut fleet = TestFleet::new(1).unwrap();
    let seen: Arc<Mutex<Vec<Vec<u64>>>> = Arc::default();
    let log = seen.clone();
    send(&fleet, 0, 5);
    fleet
        .start("a", |host| {
            host.for_each_batch(move |_, events| {
                log.lock().unwrap().push(numbers(&events));
                async { Ok(()) }
            })
        })
        .await
        .unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(*seen.lock().unwrap(), [upto(5)]);
}

#[tokio::test(start_paused = true)]
async fn a_closure_that_checkpoints_at_each_event_saves_up_to_that_event_and_not_up_to_its_batch() {
    let mut fleet = TestFleet::new(1).unwrap();
    send(&fleet, 0, 5);
    fleet
        .start("a", |host| {
            host.for_each_event(move |context, event| async move {
                if event.sequence.0 == 2 {
                    // Hangs with two events checkpointed by hand and two more in the same batch.
                    return std::future::pending().await;
                }
                let _ = context.checkpoint().await?;
                Ok(())
            })
        })
        .await
        .unwrap();
    fleet.pass(SECOND * 5).await;
    let saved = fleet.admin().checkpoints().await.unwrap();
    assert_eq!(saved[0].1.position.finished().map(|sequence| sequence.0), Some(1));
}

#[tokio::test(start_paused = true)]
async fn max_batch_size_is_a_maximum() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    send(&fleet, 0, 25);
    fleet
        .start("a", |host| {
            let options = EventProcessorOptions { max_batch_size: 10, ..EventProcessorOptions::default() };
            host.options(options).processor(recorder.make())
        })
        .await
        .unwrap();
    fleet.until_caught_up().await.unwrap();
    let sizes: Vec<usize> = recorder
        .calls(0)
        .iter()
        .filter_map(|call| if let Call::Batch(events) = call { Some(events.len()) } else { None })
        .collect();
    assert_eq!(sizes, [10, 10, 5]);
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_never_waited_for_to_fill() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet
        .until("running", || fleet.snapshot("a").partitions.iter().any(|p| p.state == PumpState::Running))
        .await
        .unwrap();
    for n in 0..3 {
        let before = tokio::time::Instant::now();
        send(&fleet, 0, 1);
        fleet.until("delivered", || recorder.finished(0).len() == n + 1).await.unwrap();
        assert!(before.elapsed() <= Duration::from_millis(10), "{:?}", before.elapsed());
    }
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_gets_an_empty_batch_each_receive_timeout_if_that_is_asked_for() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    fleet
        .start("a", |host| {
            let options = EventProcessorOptions {
                receive_timeout: SECOND * 20,
                invoke_after_receive_timeout: true,
                ..EventProcessorOptions::default()
            };
            host.options(options).processor(recorder.make())
        })
        .await
        .unwrap();
    let started = tokio::time::Instant::now();
    fleet.pass(SECOND * 15).await;
    send(&fleet, 0, 1);
    fleet.pass(SECOND * 50).await;
    let empty = Call::Batch(vec![]);
    let times: Vec<u64> =
        recorder.times(0, |call| *call == empty).iter().map(|at| (*at - started).as_secs()).collect();
    assert_eq!(times, [35, 55], "an event at 15 s puts it off");
    assert_eq!(recorder.delivered(0), [0]);
}

#[tokio::test(start_paused = true)]
async fn an_idle_partition_hears_nothing_by_default() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.pass(SECOND * 600).await;
    assert_eq!(recorder.calls(0), [Call::Made, Call::Open]);
}

#[tokio::test(start_paused = true)]
async fn a_paused_partition_is_kept_and_delivers_nothing_until_it_is_resumed() {
    let mut fleet = TestFleet::new(2).unwrap();
    let recorder = Recorder::new();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    send(&fleet, 0, 1);
    send(&fleet, 1, 1);
    fleet.until_caught_up().await.unwrap();
    let before = fleet.snapshot("a").partitions[0].clone();
    fleet.host("a").pause(P0);
    send(&fleet, 0, 1);
    send(&fleet, 1, 1);
    fleet.pass(SECOND * 300).await;
    let during = fleet.snapshot("a").partitions[0].clone();
    assert_eq!(
        (during.state, during.epoch),
        (PumpState::Paused, before.epoch),
        "ten leases later still ours"
    );
    assert!(!during.lease_left.is_zero());
    assert_eq!(recorder.delivered(0), [0]);
    assert_eq!(recorder.delivered(1), [0, 1], "the other one goes on");
    fleet.host("a").resume(P0);
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.delivered(0), [0, 1]);
    assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Running);
    assert_eq!(recorder.closes(0), []);
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_ends_normally_when_its_partition_is_paused() {
    let mut fleet = TestFleet::new(1).unwrap();
    let environment = fleet.environment();
    let recorder = Recorder::scripted(move |_, call| {
        let environment = environment.clone();
        async move {
            if matches!(call, Call::Batch(_)) {
                sleep(&environment, SECOND * 5).await;
            }
            Ok(())
        }
    });
    send(&fleet, 0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("in a call", || recorder.delivered(0) == [0]).await.unwrap();
    fleet.host("a").pause(P0);
    send(&fleet, 0, 1);
    fleet.pass(SECOND * 60).await;
    assert_eq!((recorder.finished(0), recorder.delivered(0)), (vec![0], vec![0]));
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_was_paused_between_two_attempts_runs_again_when_it_is_resumed() {
    let mut fleet = TestFleet::new(1).unwrap();
    let attempts: Arc<Mutex<u32>> = Arc::default();
    let counter = attempts.clone();
    let recorder = Recorder::scripted(move |_, call| {
        let mut attempts = counter.lock().unwrap();
        *attempts += u32::from(matches!(call, Call::Batch(_)));
        let failed = *attempts == 1 && matches!(call, Call::Batch(_));
        async move { if failed { Err("not yet".into()) } else { Ok(()) } }
    });
    send(&fleet, 0, 1);
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("failed once", || recorder.heard(0).len() == 1).await.unwrap();
    fleet.host("a").pause(P0);
    fleet.pass(SECOND * 60).await;
    assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Paused);
    assert_eq!(recorder.delivered(0), [0], "no attempt while paused");
    fleet.host("a").resume(P0);
    fleet.until_caught_up().await.unwrap();
    assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Running);
}

#[tokio::test(start_paused = true)]
async fn a_pause_holds_from_before_the_start_and_across_a_restart() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    send(&fleet, 0, 1);
    fleet
        .start("a", |host| {
            let host = host.processor(recorder.make())?;
            host.pause(P0);
            Ok(host)
        })
        .await
        .unwrap();
    fleet.pass(SECOND * 60).await;
    fleet.host("a").stop(SECOND).await.unwrap();
    fleet.host("a").start().await.unwrap();
    fleet.pass(SECOND * 60).await;
    assert_eq!(fleet.snapshot("a").partitions[0].state, PumpState::Paused);
    assert_eq!(recorder.delivered(0), []);
    fleet.host("a").resume(P0);
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.delivered(0), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_partition_may_move_on_while_it_is_paused() {
    let mut fleet = TestFleet::new(2).unwrap();
    let (a, b) = (Recorder::new(), Recorder::new());
    fleet.start("a", |host| host.processor(a.make())).await.unwrap();
    fleet.until_balanced().await.unwrap();
    for partition in 0..2 {
        fleet.host("a").pause(PartitionId(partition));
        send(&fleet, partition, 1);
    }
    fleet.start("b", |host| host.processor(b.make())).await.unwrap();
    fleet.until_balanced().await.unwrap();
    fleet.until("delivered by b", || b.delivered(0).len() + b.delivered(1).len() == 1).await.unwrap();
    assert_eq!((a.delivered(0), a.delivered(1)), (vec![], vec![]));
}

#[tokio::test(start_paused = true)]
async fn with_checkpoints_by_hand_a_stop_saves_nothing_and_everything_comes_again() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    let options = || EventProcessorOptions {
        checkpoint: CheckpointPolicy::manual(),
        ..EventProcessorOptions::default()
    };
    send(&fleet, 0, 2);
    fleet.start("a", |host| host.options(options()).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let report = fleet.stop("a").await;
    assert_eq!(report.unsaved, [P0], "{report}");
    fleet.start("b", |host| host.options(options()).processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.finished(0), [0, 1, 0, 1]);
}
