//! Tests of hub faults: a hub that hangs does not stop heartbeats, receivers that reconnect to a new log
//! skip no events, and a slow connection does not count as dead.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::faulty_store::pass;
use crate::recording_processor::{Call, Recorder};
use ephor::memory::MemoryHub;
use ephor::{
    EventProcessorHost, EventProcessorOptions, EventSource, OnInvalidPosition, PartitionId, StartPosition,
};
use ephor_core::BoxFuture;
use ephor_core::event::Event;
use ephor_core::ids::{HubName, LogId, Namespace};
use ephor_core::source::{
    HubProperties, LastEnqueued, OpenError, OpenRequest, PartitionProperties, ReceiveError, Receiver,
    SourceCapabilities, SourceError,
};
use ephor_testkit::TestFleet;
use tokio::time::Instant;

const SECOND: Duration = Duration::from_secs(1);

/// A hub that can hang on requests for partition properties, and whose receivers reconnect by
/// themselves when their link breaks.
#[derive(Clone)]
struct Odd {
    hub: MemoryHub,
    hangs: Arc<AtomicBool>,
    /// Its next answer names a log that never existed.
    names_wrong_log: Arc<AtomicBool>,
    /// The time that an answer takes on its slow connection, and the bytes of a second meanwhile.
    slow: Option<(Duration, u64)>,
    began: Instant,
}

impl Odd {
    async fn arrive(&self) {
        if let Some((time, _)) = self.slow {
            pass(time).await;
        }
    }
}

impl EventSource for Odd {
    fn namespace(&self) -> &Namespace {
        self.hub.namespace()
    }
    fn hub(&self) -> &HubName {
        self.hub.hub()
    }
    fn capabilities(&self) -> SourceCapabilities {
        self.hub.capabilities()
    }
    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        Box::pin(async {
            let mut properties = self.hub.hub_properties().await?;
            if self.names_wrong_log.swap(false, Ordering::SeqCst) {
                properties.log = Some(LogId::new("never existed"));
            }
            Ok(properties)
        })
    }
    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        if self.hangs.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        Box::pin(async move {
            self.arrive().await;
            self.hub.partition_properties(partition).await
        })
    }
    fn received_bytes(&self) -> u64 {
        self.slow.map_or(0, |(_, rate)| rate * self.began.elapsed().as_secs())
    }
    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        Box::pin(async move {
            // The host looks whether the group exists before anything else uses the connection.
            if request.epoch.is_some() {
                self.arrive().await;
            }
            let receiver = self.hub.open(request.clone()).await?;
            Ok(Box::new(Reattaching { hub: self.hub.clone(), request, receiver }) as Box<dyn Receiver>)
        })
    }
}

/// A receiver that reconnects at its position, even if the hub is another one by then.
struct Reattaching {
    hub: MemoryHub,
    request: OpenRequest,
    receiver: Box<dyn Receiver>,
}

impl Receiver for Reattaching {
    fn receive<'a>(
        &'a mut self,
        into: &'a mut Vec<Event>,
        max: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(async move {
            loop {
                if self.receiver.receive(into, max).await.is_ok() {
                    if let Some(last) = into.last() {
                        self.request.start = StartPosition::after(last.sequence);
                    }
                    return Ok(());
                }
                pass(SECOND).await;
                self.receiver = self.hub.open(self.request.clone()).await.map_err(|error| {
                    ReceiveError::Source(SourceError::Unavailable(error.to_string().into()))
                })?;
            }
        })
    }
    fn close(self: Box<Self>) -> BoxFuture<'static, ()> {
        self.receiver.close()
    }
    fn last_enqueued(&self) -> Option<LastEnqueued> {
        self.receiver.last_enqueued()
    }
}

fn odd(fleet: &TestFleet) -> Odd {
    let hub = fleet.hub().clone();
    Odd { hub, hangs: Arc::default(), names_wrong_log: Arc::default(), slow: None, began: Instant::now() }
}

/// Whether a host reads an event, and the errors that its processor hears meanwhile, over a connection on
/// which each answer takes a minute.
async fn reads_over_a_slow_connection(bytes_of_a_second: u64) -> (bool, Vec<String>) {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    let source = Odd { slow: Some((SECOND * 60, bytes_of_a_second)), ..odd(&fleet) };
    let host = EventProcessorHost::builder(source, fleet.store().clone())
        .environment(fleet.environment())
        .processor(recorder.make())
        .unwrap();
    host.start().await.unwrap();
    fleet.hub().send(PartitionId(0), "event").unwrap();
    fleet.pass(SECOND * 300).await;
    let read = recorder.finished(0) == [0];
    host.stop(SECOND).await.unwrap();
    (read, recorder.heard(0))
}

#[tokio::test(start_paused = true)]
async fn an_answer_is_waited_for_while_bytes_come_from_the_hub() {
    assert_eq!(reads_over_a_slow_connection(10_000).await, (true, vec![]));
    // Heartbeats are no progress.
    let (read, heard) = reads_over_a_slow_connection(8).await;
    assert!(!read, "{heard:?}");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_hangs_does_not_keep_a_host_from_its_heartbeat() {
    const PARTITIONS: u32 = 200;
    let fleet = TestFleet::new(PARTITIONS).unwrap();
    let source = odd(&fleet);
    let host = EventProcessorHost::builder(source.clone(), fleet.store().clone())
        .environment(fleet.environment())
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap();
    host.start().await.unwrap();
    let running = || {
        host.snapshot().unwrap().partitions.iter().filter(|it| it.state == ephor::PumpState::Running).count()
    };
    fleet.until("owns all", || running() == PARTITIONS as usize).await.unwrap();
    // Paused, so that the host asks for their ends.
    (0..PARTITIONS).for_each(|partition| host.pause(PartitionId(partition)));
    fleet.pass(SECOND * 20).await;
    source.hangs.store(true, Ordering::SeqCst);
    for _ in 0..40 {
        fleet.pass(SECOND * 5).await;
        let age = fleet.admin().hosts().await.unwrap()[0].age;
        assert!(age <= SECOND * 20, "its last heartbeat is {age:?} old");
    }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_answers_too_late_is_reported_with_what_may_help() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    let options = EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() };
    let source = odd(&fleet);
    let host = EventProcessorHost::builder(source.clone(), fleet.store().clone())
        .environment(fleet.environment())
        .options(options)
        .processor(recorder.make())
        .unwrap();
    source.hangs.store(true, Ordering::SeqCst);
    host.start().await.unwrap();
    let told = |words: &str| recorder.report_texts().iter().any(|text| text.contains(words));
    fleet.until("reports it", || told("no answer within 15s")).await.unwrap();
    assert!(told("the link is so slow"), "{:?}", recorder.report_texts());
    assert!(told("lower prefetch_bytes or prefetch_count"), "{:?}", recorder.report_texts());
    host.stop(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_receiver_that_moves_into_a_new_log_by_itself_skips_nothing() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    let options = EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() };
    let host = EventProcessorHost::builder(odd(&fleet), fleet.store().clone())
        .environment(fleet.environment())
        .options(options)
        .processor(recorder.make())
        .unwrap();
    host.start().await.unwrap();
    let send = |events: usize| {
        for _ in 0..events {
            fleet.hub().send(PartitionId(0), "event").unwrap();
        }
    };
    send(10);
    fleet.until("read", || recorder.finished(0).len() == 10).await.unwrap();
    fleet.hub().recreate(1);
    send(20);
    fleet.pass(SECOND * 120).await;
    let new: Vec<u64> = recorder.finished(0).into_iter().skip(10).collect();
    assert!((0..20).all(|event| new.contains(&event)), "of the new log were read: {new:?}");
    let opened = recorder.calls(0).into_iter().filter(|call| *call == Call::Open).count();
    assert_eq!(opened, 2, "{:?}", recorder.report_texts());
    host.stop(SECOND).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn one_answer_that_names_another_log_skips_nothing() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    let source = odd(&fleet);
    let run = async |events: u64| {
        let options = EventProcessorOptions {
            on_invalid_position: OnInvalidPosition::Latest,
            on_error: recorder.on_error(),
            ..EventProcessorOptions::default()
        };
        let host = EventProcessorHost::builder(source.clone(), fleet.store().clone())
            .environment(fleet.environment())
            .options(options)
            .processor(recorder.make())
            .unwrap();
        host.start().await.unwrap();
        let all: Vec<u64> = (0..events).collect();
        fleet.until("read", || recorder.finished(0) == all).await.unwrap();
        host.stop(SECOND).await.unwrap();
    };
    let send = || {
        for _ in 0..5 {
            fleet.hub().send(PartitionId(0), "event").unwrap();
        }
    };
    send();
    run(5).await;
    send();
    // The answer on which the host builds when it starts. Believed alone, it would put the checkpoint of another log
    // at the end of this one.
    source.names_wrong_log.store(true, Ordering::SeqCst);
    run(10).await;
    assert!(!source.names_wrong_log.load(Ordering::SeqCst), "the answer was given");
    assert_eq!(recorder.heard(0), [""; 0]);
}
