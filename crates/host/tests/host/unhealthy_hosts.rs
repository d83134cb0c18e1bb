//! Tests of partitions whose processor does not open, on one host or on all: the host becomes unhealthy, or
//! others take the partition.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder};
use ephor::{HostState, PartitionContext, PartitionId};
use ephor_testkit::TestFleet;

const SECOND: Duration = Duration::from_secs(1);

/// `open` fails for contexts for which this returns true.
fn does_not_open(fails: impl Fn(&PartitionContext) -> bool + Send + Sync + 'static) -> Recorder {
    Recorder::scripted(move |context, call| {
        let failed = call == Call::Open && fails(&context);
        async move { if failed { Err("no disk".into()) } else { Ok(()) } }
    })
}

fn opens(recorder: &Recorder, partition: u32) -> usize {
    recorder.times(partition, |call| *call == Call::Open).len()
}

#[tokio::test(start_paused = true)]
async fn a_host_whose_processor_does_not_open_is_unhealthy_and_others_do_its_work_until_it_recovers() {
    let mut fleet = TestFleet::new(4).unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let flag = broken.clone();
    let bad = does_not_open(move |_| flag.load(Ordering::SeqCst));
    for partition in 0..4 {
        fleet.hub().send(PartitionId(partition), "event").unwrap();
    }
    fleet.start("bad", |host| host.processor(bad.make())).await.unwrap();
    fleet.until("unhealthy", || fleet.snapshot("bad").state == HostState::Unhealthy).await.unwrap();
    let tried = opens(&bad, 0);
    let good = Recorder::new();
    fleet.start("good", |host| host.processor(good.make())).await.unwrap();
    fleet.until("taken over", || fleet.snapshot("good").partitions.len() == 4).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(opens(&bad, 0), tried, "it does not try while it is unhealthy");
    broken.store(false, Ordering::SeqCst);
    fleet.until_balanced().await.unwrap();
    fleet.until("fit", || fleet.snapshot("bad").state == HostState::Active).await.unwrap();
    let all: Vec<u64> = (0..4).flat_map(|n| [good.finished(n), bad.finished(n)].concat()).collect();
    assert_eq!(all, [0, 0, 0, 0], "each event once");
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_opens_nowhere_moves_no_other_and_is_tried_ever_less_often() {
    let mut fleet = TestFleet::new(8).unwrap();
    let poisoned = PartitionId(3);
    let recorder = does_not_open(move |context| context.partition() == poisoned);
    for name in ["a", "b"] {
        fleet.start(name, |host| host.processor(recorder.make())).await.unwrap();
    }
    fleet.pass(SECOND * 120).await;
    let closes = || (0..8).map(|partition| recorder.closes(partition).len()).sum::<usize>();
    let (moved, tried) = (closes(), opens(&recorder, 3));
    for _ in 0..10 {
        for partition in 0..8 {
            fleet.hub().send(PartitionId(partition), "event").unwrap();
        }
        fleet.pass(SECOND * 60).await;
    }
    assert_eq!(closes() - moved, 0, "the others stay where they are");
    for partition in (0..8).filter(|partition| *partition != poisoned.0) {
        assert_eq!(recorder.finished(partition).len(), 10);
    }
    let tried = opens(&recorder, 3) - tried;
    assert!((5..=40).contains(&tried), "{tried} times in ten minutes, by two hosts");
    for name in ["a", "b"] {
        assert_eq!(fleet.snapshot(name).state, HostState::Active);
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_does_not_open_on_one_host_is_opened_by_another() {
    let mut fleet = TestFleet::new(4).unwrap();
    // The first host that opens is the one that cannot.
    let unable: Arc<std::sync::OnceLock<String>> = Arc::default();
    let first = unable.clone();
    let recorder = does_not_open(move |context| {
        let name = context.host().name.to_string();
        context.partition() == PartitionId(1) && *first.get_or_init(|| name.clone()) == name
    });
    for name in ["a", "b"] {
        fleet.start(name, |host| host.processor(recorder.make())).await.unwrap();
    }
    fleet.hub().send(PartitionId(1), "event").unwrap();
    fleet.until("done", || recorder.finished(1) == [0]).await.unwrap();
    let by = recorder.entries().into_iter().rfind(|entry| entry.partition == PartitionId(1)).unwrap().host;
    assert_ne!(Some(&by), unable.get());
    fleet.pass(SECOND * 30).await;
    let calls = recorder.entries().len();
    fleet.pass(SECOND * 600).await;
    assert_eq!(recorder.entries().len(), calls, "and there it stays");
}

#[tokio::test(start_paused = true)]
async fn a_single_failure_long_after_others_makes_no_host_unhealthy() {
    let mut fleet = TestFleet::new(2).unwrap();
    let broken = Arc::new(AtomicBool::new(true));
    let flag = broken.clone();
    let recorder =
        does_not_open(move |context| context.partition() == PartitionId(0) && flag.load(Ordering::SeqCst));
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until("twice", || opens(&recorder, 0) == 2).await.unwrap();
    broken.store(false, Ordering::SeqCst);
    fleet.until_balanced().await.unwrap();
    fleet.pass(SECOND * 600).await;
    broken.store(true, Ordering::SeqCst);
    let opened = opens(&recorder, 0);
    let to = ephor::admin::SeekTo::Earliest;
    fleet.admin().seek(&[PartitionId(0)], &to, ephor::admin::SeekMode::Apply).await.unwrap();
    fleet.until("failed", || opens(&recorder, 0) == opened + 1).await.unwrap();
    fleet.pass(SECOND).await;
    assert_eq!(fleet.snapshot("a").state, HostState::Active);
    fleet.pass(SECOND * 5).await;
    assert!(opens(&recorder, 0) > opened + 1, "and the next attempt comes as soon as the first time");
}
