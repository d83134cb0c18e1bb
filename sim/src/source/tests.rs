//! Tests of the simulated network between a reader and a hub: delays, broken links and lost connections,
//! which lose no event.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor::memory::MemoryHub;
use ephor_core::epoch::Epoch;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::source::{EventSource, OpenRequest, ReceiveError, SourceError};
use futures_util::future::{Either, select};

use super::{FaultySource, SourceCall, SourceFaults};
use crate::call_faults::{FaultKind, Latency};
use crate::executor::{Executor, Handle, Machine};

const P: PartitionId = PartitionId(0);

type Seen = Arc<Mutex<Vec<(FaultKind, SourceCall, Option<PartitionId>)>>>;

struct Rig {
    executor: Executor,
    hub: MemoryHub,
    faults: Arc<Mutex<SourceFaults>>,
    source: Arc<FaultySource>,
    seen: Seen,
}

fn rig(seed: u64, faults: SourceFaults) -> Rig {
    let executor = Executor::new(seed);
    let clock = Arc::new(executor.clock(Machine::WORLD));
    let hub = MemoryHub::new("homes", 2).unwrap().with_clock(clock);
    let (faults, seen) = (Arc::new(Mutex::new(faults)), Seen::default());
    let log = seen.clone();
    let observer = Arc::new(move |fault, call, partition| log.lock().unwrap().push((fault, call, partition)));
    let source =
        FaultySource::observed(&executor, Arc::new(hub.clone()), faults.clone(), observer, Arc::new(|_| {}));
    Rig { hub, faults, source: Arc::new(source), seen, executor }
}

fn handle(rig: &Rig) -> Handle {
    Handle::clone(&rig.executor)
}

fn request(epoch: u64, start: StartPosition) -> OpenRequest {
    OpenRequest {
        group: ConsumerGroup::default_group(),
        partition: P,
        start,
        epoch: Some(Epoch::from_stored(epoch)),
        receiver: format!("reader-{epoch}"),
        prefetch_events: 100,
        prefetch_bytes: 1_000_000,
    }
}

#[test]
fn a_receive_that_is_dropped_at_any_time_loses_nothing() {
    for seed in 0..50 {
        let faults =
            SourceFaults { slow: 0.1, slow_latency: Latency::milliseconds(20, 50), ..Default::default() };
        let mut rig = rig(seed, faults);
        let (source, hub, handle) = (rig.source.clone(), rig.hub.clone(), handle(&rig));
        let (sender_handle, mut random) = (handle.clone(), rig.executor.fork_random());
        rig.executor.spawn_on(Machine::WORLD, async move {
            for number in 0..200 {
                sender_handle.sleep(Duration::from_millis(number % 7)).await;
                hub.send(P, number.to_string()).unwrap();
            }
        });
        let numbers = rig.executor.run(async move {
            let mut receiver = source.open(request(1, StartPosition::Earliest)).await.unwrap();
            let (mut events, mut dropped) = (Vec::new(), 0);
            while events.len() < 200 {
                let patience = handle.sleep(Duration::from_millis(random.u64(0..8)));
                let most = random.usize(1..20);
                match select(receiver.receive(&mut events, most), patience).await {
                    Either::Left((outcome, _)) => outcome.unwrap(),
                    Either::Right(_) => dropped += 1,
                }
            }
            assert!(dropped > 10);
            receiver.close().await;
            events.iter().map(|event| event.sequence.0).collect::<Vec<_>>()
        });
        assert_eq!(numbers, (0..200).collect::<Vec<_>>(), "seed {seed}");
        assert!(rig.seen.lock().unwrap().contains(&(FaultKind::Slow, SourceCall::Receive, Some(P))));
    }
}

#[test]
fn a_broken_link_is_gone_for_good_and_a_new_one_goes_on() {
    let mut rig = rig(1, SourceFaults { broken_link: 1.0, ..Default::default() });
    rig.hub.send(P, "one").unwrap();
    let (source, faults) = (rig.source.clone(), rig.faults.clone());
    rig.executor.run(async move {
        let mut events = Vec::new();
        let mut receiver = source.open(request(1, StartPosition::Earliest)).await.unwrap();
        for _ in 0..2 {
            let error = receiver.receive(&mut events, 10).await.unwrap_err();
            assert!(matches!(error, ReceiveError::Source(SourceError::Unavailable(_))));
            assert!(events.is_empty() && receiver.last_enqueued().is_none());
        }
        *faults.lock().unwrap() = SourceFaults::default();
        let mut again = source.open(request(1, StartPosition::Earliest)).await.unwrap();
        again.receive(&mut events, 10).await.unwrap();
        assert_eq!(events[0].sequence, SequenceNumber(0));
        assert_eq!(again.last_enqueued().unwrap().sequence, SequenceNumber(0));
    });
    assert_eq!(*rig.seen.lock().unwrap(), [(FaultKind::BrokenLink, SourceCall::Receive, Some(P))]);
}

#[test]
fn who_is_disconnected_learns_of_it_later() {
    let latency = Latency::milliseconds(100, 100);
    let mut rig = rig(1, SourceFaults { latency, ..Default::default() });
    let (source, hub, handle) = (rig.source.clone(), rig.hub.clone(), handle(&rig));
    rig.executor.run(async move {
        let mut old = source.open(request(1, StartPosition::Earliest)).await.unwrap();
        let mut new = hub.open(request(2, StartPosition::Earliest)).await.unwrap();
        let taken_at = handle.now();
        let mut events = Vec::new();
        // Even if it stops listening in between.
        let patience = handle.sleep(Duration::from_millis(50));
        assert!(matches!(select(old.receive(&mut events, 1), patience).await, Either::Right(_)));
        let error = old.receive(&mut events, 1).await.unwrap_err();
        assert!(
            matches!(error, ReceiveError::Disconnected { epoch: Some(e), .. } if e.get() == 2),
            "{error}"
        );
        assert_eq!(handle.now().since(taken_at), Duration::from_millis(100));
        hub.send(P, "one").unwrap();
        new.receive(&mut events, 1).await.unwrap();
    });
}

#[test]
fn an_open_arrives_even_if_its_sender_is_dead_by_then() {
    let mut rig = rig(1, SourceFaults { latency: Latency::milliseconds(100, 100), ..Default::default() });
    let host = rig.executor.add_machine("host");
    let source = rig.source.clone();
    rig.executor.spawn_on(host, async move {
        drop(source.open(request(2, StartPosition::Earliest)).await);
        unreachable!("dead by then");
    });
    let hub = rig.hub.clone();
    let mut old =
        rig.executor.run(async move { hub.open(request(1, StartPosition::Earliest)).await.unwrap() });
    rig.executor.run_for(Duration::from_millis(50));
    rig.executor.crash(host);
    let disconnected = rig.executor.run(async move { old.receive(&mut Vec::new(), 1).await });
    assert!(matches!(disconnected, Err(ReceiveError::Disconnected { .. })));
    // The hub closes its link when it notices: an older epoch may then come back.
    rig.executor.run_for(Duration::from_secs(1));
    let hub = rig.hub.clone();
    rig.executor.run(async move { hub.open(request(1, StartPosition::Earliest)).await.unwrap() });
}

#[test]
fn the_hub_notices_a_little_later_that_a_reader_is_gone() {
    for politely in [true, false] {
        let latency = Latency::milliseconds(100, 100);
        let mut rig = rig(1, SourceFaults { latency, ..Default::default() });
        let (source, hub, handle) = (rig.source.clone(), rig.hub.clone(), handle(&rig));
        rig.executor.run(async move {
            let receiver = source.open(request(2, StartPosition::Earliest)).await.unwrap();
            if politely {
                receiver.close().await;
            } else {
                drop(receiver);
                handle.sleep(Duration::from_millis(99)).await;
                assert!(hub.open(request(1, StartPosition::Earliest)).await.is_err());
                handle.sleep(Duration::from_millis(2)).await;
            }
            hub.open(request(1, StartPosition::Earliest)).await.unwrap();
        });
    }
}

#[test]
fn a_hub_out_of_reach_says_so() {
    let mut rig = rig(1, SourceFaults::cut_off());
    let source = rig.source.clone();
    rig.executor.run(async move {
        assert!(matches!(source.hub_properties().await, Err(SourceError::Unavailable(_))));
        assert!(source.partition_properties(P).await.is_err());
        assert!(source.open(request(1, StartPosition::Latest)).await.is_err());
    });
    let calls: Vec<SourceCall> = rig.seen.lock().unwrap().iter().map(|(_, call, _)| *call).collect();
    assert_eq!(calls, [SourceCall::HubProperties, SourceCall::PartitionProperties, SourceCall::Open]);
    *rig.faults.lock().unwrap() = SourceFaults::default();
    let source = rig.source.clone();
    let properties = rig.executor.run(async move { source.hub_properties().await.unwrap() });
    assert_eq!(properties.partitions.len(), 2);
    assert_eq!(format!("{:?}", rig.source), "FaultySource(memory/homes)");
}

#[test]
fn what_was_fetched_stays_in_front_of_what_retention_has_left() {
    let mut rig = rig(1, SourceFaults::default());
    let (source, hub) = (rig.source.clone(), rig.hub.clone());
    let numbers = rig.executor.run(async move {
        (0..20).for_each(|number: u32| drop(hub.send(P, number.to_string())));
        let request = OpenRequest { prefetch_events: 6, ..request(1, StartPosition::Earliest) };
        let mut receiver = source.open(request).await.unwrap();
        let mut batches = vec![];
        for _ in 0..3 {
            let mut events = Vec::new();
            receiver.receive(&mut events, 4).await.unwrap();
            batches.push(events.iter().map(|event| event.sequence.0).collect::<Vec<_>>());
            hub.forget_before(P, SequenceNumber(15)).unwrap();
        }
        batches
    });
    assert_eq!(numbers, [vec![0, 1, 2, 3], vec![4, 5, 15, 16], vec![17, 18, 19]]);
}
