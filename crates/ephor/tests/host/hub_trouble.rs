//! A hub that hangs does not stop the heartbeats of its host, and receivers that reconnect to a new
//! log by themselves skip nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::common::troubled_store::pass;
use crate::recorder::{Call, Recorder};
use ephor::memory::MemoryHub;
use ephor::{EventProcessorHost, EventProcessorOptions, EventSource, PartitionId, StartPosition};
use ephor_core::BoxFuture;
use ephor_core::event::Event;
use ephor_core::ids::{HubName, Namespace};
use ephor_core::source::{
    HubProperties, LastEnqueued, OpenError, OpenRequest, PartitionProperties, ReceiveError, Receiver,
    SourceError,
};
use ephor_testkit::TestFleet;

const SECOND: Duration = Duration::from_secs(1);

/// A hub that can hang on requests for partition properties, and whose receivers reconnect by
/// themselves when their link breaks.
#[derive(Clone)]
struct Odd {
    hub: MemoryHub,
    hangs: Arc<AtomicBool>,
}

impl EventSource for Odd {
    fn namespace(&self) -> &Namespace {
        self.hub.namespace()
    }
    fn hub(&self) -> &HubName {
        self.hub.hub()
    }
    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        self.hub.hub_properties()
    }
    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        if self.hangs.load(Ordering::SeqCst) {
            return Box::pin(std::future::pending());
        }
        self.hub.partition_properties(partition)
    }
    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        Box::pin(async move {
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
        most: usize,
    ) -> BoxFuture<'a, Result<(), ReceiveError>> {
        Box::pin(async move {
            loop {
                if self.receiver.receive(into, most).await.is_ok() {
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
    Odd { hub: fleet.hub().clone(), hangs: Arc::default() }
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_hangs_does_not_keep_a_host_from_its_heartbeat() {
    const PARTITIONS: u32 = 200;
    let fleet = TestFleet::new(PARTITIONS).unwrap();
    let source = odd(&fleet);
    let host = EventProcessorHost::builder_from(Arc::new(source.clone()), fleet.store().clone())
        .environment(fleet.environment())
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap();
    host.start().await.unwrap();
    let running =
        || host.snapshot().unwrap().partitions.iter().filter(|it| it.stage == ephor::Stage::Running).count();
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
async fn a_receiver_that_moves_into_a_new_log_by_itself_skips_nothing() {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    let options = EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() };
    let host = EventProcessorHost::builder_from(Arc::new(odd(&fleet)), fleet.store().clone())
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
