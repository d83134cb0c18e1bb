//! Tests of the hub in memory: the conformance suites, and its rules for names, keys, times, epochs and
//! growth. Its simulated faults are tested in `memory_hub/simulated_faults.rs`.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on shall fail right there")]

mod simulated_faults;

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};

use bytes::Bytes;
use ephor::NewEvent;
use ephor::memory::MemoryHub;
use ephor_core::epoch::Epoch;
use ephor_core::event::Event;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::producer::Producer;
use ephor_core::source::{EventSource, OpenError, OpenRequest, ReceiveError, Receiver, SourceError};
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_testkit::conformance::producer::ProducerFixture;
use ephor_testkit::conformance::source::{SourceFixture, check};

/// A clock that advances by a millisecond whenever it is read, or stands where it is set.
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Monotonic {
        Monotonic(0)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.0.fetch_add(1, Ordering::SeqCst))
    }
}

/// A hub in memory, with epochs or without.
struct InMemory<const EPOCHS: bool>(MemoryHub);

impl<const EPOCHS: bool> SourceFixture for InMemory<EPOCHS> {
    async fn new(partitions: u32) -> Self {
        let hub = MemoryHub::new("homes", partitions).unwrap();
        hub.create_group("second").unwrap();
        let hub = hub.with_clock(Arc::new(Ticking(AtomicI64::new(1_000))));
        Self(if EPOCHS { hub } else { hub.without_fencing() })
    }

    fn source(&self) -> &dyn EventSource {
        &self.0
    }

    fn second_group(&self) -> ConsumerGroup {
        "second".parse().unwrap()
    }

    async fn send(&self, partition: PartitionId, event: NewEvent) {
        self.0.send_event(partition, event).unwrap();
    }

    async fn send_with_key(&self, key: &str, body: Bytes) {
        self.0.send_with_key(key, body).unwrap();
    }

    fn can_forget(&self) -> bool {
        true
    }

    async fn forget_before(&self, partition: PartitionId, sequence: SequenceNumber) {
        self.0.forget_before(partition, sequence).unwrap();
    }

    fn can_lose(&self) -> bool {
        true
    }

    async fn lose(&self, partition: PartitionId, numbers: Range<SequenceNumber>) {
        self.0.lose(partition, numbers).unwrap();
    }
}

impl ProducerFixture for InMemory<true> {
    async fn new(partitions: u32) -> Self {
        <Self as SourceFixture>::new(partitions).await
    }

    fn producer(&self) -> Arc<dyn Producer> {
        Arc::new(self.0.producer())
    }

    fn source(&self) -> Arc<dyn EventSource> {
        Arc::new(self.0.clone())
    }
}

ephor_testkit::producer_conformance!(InMemory<true>);
ephor_testkit::source_conformance!(InMemory<true>);
ephor_testkit::event_hubs_conformance!(InMemory<true>);

mod without_fencing {
    ephor_testkit::source_conformance!(super::InMemory<false>);
}

const HERE: PartitionId = PartitionId(0);

fn request(start: StartPosition, epoch: Option<u64>) -> OpenRequest {
    OpenRequest {
        group: ConsumerGroup::default_group(),
        partition: HERE,
        start,
        epoch: epoch.map(Epoch::from_stored),
        receiver: "reader".into(),
        prefetch_events: 0,
        prefetch_bytes: 0,
    }
}

async fn open(hub: &MemoryHub, start: StartPosition) -> Box<dyn Receiver> {
    hub.open(request(start, Some(5))).await.unwrap()
}

/// The events that are there now; `None` if there are none and no error.
fn now(receiver: &mut Box<dyn Receiver>) -> Option<Result<Vec<Event>, ReceiveError>> {
    let mut events = Vec::new();
    let polled = receiver.receive(&mut events, 100).as_mut().poll(&mut Context::from_waker(Waker::noop()));
    match polled {
        Poll::Ready(result) => Some(result.map(|()| events)),
        Poll::Pending => None,
    }
}

fn texts(events: &[Event]) -> Vec<&str> {
    events.iter().map(|event| event.text().unwrap()).collect()
}

#[tokio::test]
async fn names_are_checked_and_the_defaults_are_said() {
    assert!(MemoryHub::new("a b", 1).is_err());
    let hub = MemoryHub::new("homes", 2).unwrap();
    assert!(hub.create_group("a b").is_err());
    assert_eq!(format!("{hub:?}"), "MemoryHub(memory/homes)");
    let hub = hub.with_namespace("contoso").unwrap();
    assert_eq!((hub.namespace().as_str(), hub.hub().as_str()), ("contoso", "homes"));
}

#[tokio::test]
async fn what_does_not_exist_is_named() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    let group: ConsumerGroup = "alarms".parse().unwrap();
    let error =
        hub.open(OpenRequest { group, ..request(StartPosition::Earliest, None) }).await.err().unwrap();
    assert_eq!(error.to_string(), "consumer group \"alarms\" of hub \"homes\" does not exist");
    let error = hub.send(PartitionId(7), "x").unwrap_err();
    assert_eq!(error.to_string(), "partition 7 of hub \"homes\" does not exist");
}

#[tokio::test]
async fn sending_tells_the_number_and_a_batch_its_first() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    assert_eq!(hub.send(HERE, "a").unwrap(), SequenceNumber(0));
    assert_eq!(hub.send_batch(HERE, ["b", "c"].map(NewEvent::new)).unwrap(), SequenceNumber(1));
    assert_eq!(hub.send_batch(HERE, []).unwrap(), SequenceNumber(3));
    assert_eq!(hub.send_with_key("k", "d").unwrap(), (HERE, SequenceNumber(3)));
    let events = now(&mut open(&hub, StartPosition::Earliest).await).unwrap().unwrap();
    assert_eq!(texts(&events), ["a", "b", "c", "d"]);
    // Both begin at 0, and no other offset is mistaken for a number.
    assert_eq!(events[0].offset.as_number(), Some(0));
    assert!(events[1..].iter().all(|event| event.offset.as_number().unwrap() != event.sequence.0));
}

#[tokio::test]
async fn keys_spread_over_the_partitions() {
    let hub = MemoryHub::new("homes", 4).unwrap();
    for number in 0..100 {
        hub.send_with_key(&format!("home-{number}"), "x").unwrap();
    }
    for id in 0..4 {
        let last = hub.partition_properties(PartitionId(id)).await.unwrap().last.unwrap();
        assert!(last.sequence.0 > 10, "{last:?}");
    }
}

#[tokio::test]
async fn enqueued_times_follow_the_clock_and_never_go_back() {
    let clock = Arc::new(Ticking(AtomicI64::new(5_000)));
    let hub = MemoryHub::new("homes", 1).unwrap().with_clock(clock.clone());
    clock.0.store(5_000, Ordering::SeqCst);
    hub.send(HERE, "a").unwrap();
    clock.0.store(4_000, Ordering::SeqCst);
    hub.send(HERE, "b").unwrap();
    clock.0.store(6_000, Ordering::SeqCst);
    hub.send(HERE, "c").unwrap();
    let events = now(&mut open(&hub, StartPosition::Earliest).await).unwrap().unwrap();
    let times: Vec<i64> = events.iter().map(|event| event.enqueued_at.0).collect();
    assert_eq!(times, [5_000, 5_000, 6_000]);
}

#[tokio::test]
async fn a_start_in_the_future_passes_over_what_comes_before() {
    let clock = Arc::new(Ticking(AtomicI64::new(5_000)));
    let hub = MemoryHub::new("homes", 1).unwrap().with_clock(clock.clone());
    hub.send(HERE, "a").unwrap();
    let mut receiver = open(&hub, StartPosition::EnqueuedTime(Timestamp(7_000))).await;
    hub.send(HERE, "b").unwrap();
    assert!(now(&mut receiver).is_none());
    clock.0.store(7_000, Ordering::SeqCst);
    hub.send(HERE, "c").unwrap();
    assert_eq!(texts(&now(&mut receiver).unwrap().unwrap()), ["c"]);
}

#[tokio::test]
async fn the_newest_event_is_told_as_of_the_last_delivery() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    hub.send_batch(HERE, ["a", "b", "c"].map(NewEvent::new)).unwrap();
    let mut receiver = open(&hub, StartPosition::Earliest).await;
    receiver.receive(&mut Vec::new(), 1).await.unwrap();
    hub.send(HERE, "d").unwrap();
    assert_eq!(receiver.last_enqueued().unwrap().sequence, SequenceNumber(2));
    receiver.receive(&mut Vec::new(), 1).await.unwrap();
    assert_eq!(receiver.last_enqueued(), hub.partition_properties(HERE).await.unwrap().last);
}

#[tokio::test]
async fn a_disconnected_owner_gets_nothing_more_though_events_are_there() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    hub.send(HERE, "a").unwrap();
    let mut old = open(&hub, StartPosition::Earliest).await;
    let _new = open(&hub, StartPosition::Earliest).await;
    assert!(matches!(now(&mut old), Some(Err(ReceiveError::Disconnected { .. }))));
}

#[tokio::test]
async fn without_fencing_no_reader_is_disconnected_by_another() {
    let hub = MemoryHub::new("homes", 1).unwrap().without_fencing();
    let mut readers = vec![];
    for epoch in [Some(5), Some(9), Some(0), None, None, None, None, None, None] {
        readers.push(hub.open(request(StartPosition::Earliest, epoch)).await.unwrap());
    }
    hub.send(HERE, "a").unwrap();
    for reader in &mut readers {
        assert_eq!(texts(&now(reader).unwrap().unwrap()), ["a"]);
    }
}

#[tokio::test]
async fn a_reader_without_epoch_learns_the_owners_name() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    let _owner = open(&hub, StartPosition::Earliest).await;
    match hub.open(request(StartPosition::Earliest, None)).await {
        Err(OpenError::Refused { by, .. }) => assert_eq!(by.as_deref(), Some("reader")),
        other => panic!("not refused, but {:?}", other.err()),
    }
}

#[tokio::test]
async fn a_hub_grows_and_never_shrinks() {
    let hub = MemoryHub::new("homes", 2).unwrap();
    hub.send(PartitionId(1), "a").unwrap();
    hub.grow(4);
    hub.grow(1);
    let properties = hub.hub_properties().await.unwrap();
    assert_eq!(properties.partitions, [0, 1, 2, 3].map(PartitionId));
    assert_eq!(hub.send(PartitionId(3), "b").unwrap(), SequenceNumber(0));
    assert_eq!(hub.send(PartitionId(1), "c").unwrap(), SequenceNumber(1));
}

#[tokio::test]
async fn forgetting_more_than_there_is_forgets_what_there_is() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    hub.send(HERE, "a").unwrap();
    hub.forget_before(HERE, SequenceNumber(100)).unwrap();
    hub.forget_before(HERE, SequenceNumber(0)).unwrap();
    assert_eq!(hub.partition_properties(HERE).await.unwrap().first, SequenceNumber(1));
    assert_eq!(hub.send(HERE, "b").unwrap(), SequenceNumber(1));
}

#[tokio::test]
async fn offsets_of_lost_events_are_positions_and_what_lies_beyond_them_is_none() {
    let hub = MemoryHub::new("homes", 1).unwrap();
    let at = |number| StartPosition::Offset {
        offset: ephor_core::position::Offset::number(number),
        inclusive: true,
    };
    assert!(hub.open(request(at(0), None)).await.is_err(), "nothing was stored");
    hub.send_batch(HERE, ["a", "b"].map(NewEvent::new)).unwrap();
    let last = hub.partition_properties(HERE).await.unwrap().last.unwrap().offset.as_number().unwrap();
    hub.lose(HERE, SequenceNumber(1)..SequenceNumber(2)).unwrap();
    let mut receiver = open(&hub, at(last)).await;
    hub.send(HERE, "c").unwrap();
    assert_eq!(texts(&now(&mut receiver).unwrap().unwrap()), ["c"]);
    drop(receiver);
    let beyond = hub.partition_properties(HERE).await.unwrap().last.unwrap().offset.as_number().unwrap() + 1;
    let error = hub.open(request(at(beyond), None)).await.err().unwrap();
    let OpenError::InvalidPosition { message } = error else { panic!("{error}") };
    let said = format!("'{beyond}' is invalid. The last offset in the system is '{}'", beyond - 1);
    assert!(message.ends_with(&said), "{message}");
}

/// Every event is sent just when its receivers, on another thread, are about to wait for it. A
/// single missed wake-up stops the whole test.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_sleeps_through_news_on_several_threads() {
    const ROUNDS: u64 = 20_000;
    const RECEIVERS: usize = 2;
    let hub = MemoryHub::new("homes", 1).unwrap();
    let (done, mut rounds) = tokio::sync::mpsc::channel(RECEIVERS);
    let mut tasks = tokio::task::JoinSet::new();
    for _ in 0..RECEIVERS {
        let mut receiver = hub.open(request(StartPosition::Earliest, None)).await.unwrap();
        let done = done.clone();
        tasks.spawn(async move {
            let mut events = Vec::new();
            for round in 0..ROUNDS {
                receiver.receive(&mut events, 10).await.unwrap();
                assert_eq!(events.drain(..).map(|event| event.sequence.0).collect::<Vec<_>>(), [round]);
                done.send(()).await.unwrap();
            }
        });
    }
    tasks.spawn(async move {
        for _ in 0..ROUNDS {
            hub.send(HERE, "x").unwrap();
            for _ in 0..RECEIVERS {
                rounds.recv().await.unwrap();
            }
        }
    });
    check(async move {
        while let Some(result) = tasks.join_next().await {
            result.unwrap();
        }
    })
    .await;
}
