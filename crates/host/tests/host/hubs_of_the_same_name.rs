//! Tests of different hubs with the same name, and of a hub that was created again: hosts that share a
//! store must read the same hub.

use std::sync::Arc;

use crate::common::action_recorder::{ActionRecorder, P0, events, seconds, send, start, until_finished};
use ephor::memory::MemoryHub;
use ephor::{
    EventProcessorHost, EventSource, HostId, HubName, Namespace, PartitionId, Receiver, StartError,
    StopReport,
};
use ephor_core::BoxFuture;
use ephor_core::source::{
    HubProperties, OpenError, OpenRequest, PartitionProperties, SourceCapabilities, SourceError,
};
use ephor_testkit::TestFleet;

/// A hub with an address of its own.
struct At(&'static str, MemoryHub);

impl EventSource for At {
    fn namespace(&self) -> &Namespace {
        self.1.namespace()
    }

    fn hub(&self) -> &HubName {
        self.1.hub()
    }

    fn endpoint(&self) -> String {
        self.0.to_owned()
    }

    fn capabilities(&self) -> SourceCapabilities {
        self.1.capabilities()
    }

    fn hub_properties(&self) -> BoxFuture<'_, Result<HubProperties, SourceError>> {
        self.1.hub_properties()
    }

    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        self.1.partition_properties(partition)
    }

    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        self.1.open(request)
    }
}

/// Another hub with the same name and another log.
fn namesake(fleet: &TestFleet) -> MemoryHub {
    let hub = MemoryHub::new(fleet.hub().hub().as_str(), 2).unwrap();
    let hub = hub.with_clock(Arc::new(ephor_testkit::VirtualEnvironment::new()));
    hub.recreate(2);
    hub
}

/// A host of this fleet's group and store that reads a hub at this address.
fn host(
    fleet: &TestFleet,
    recorder: &ActionRecorder,
    name: &str,
    address: &'static str,
    hub: MemoryHub,
) -> EventProcessorHost {
    EventProcessorHost::builder(At(address, hub), fleet.store().clone())
        .environment(fleet.environment())
        .host_name(name)
        .options(recorder.options())
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_host_does_not_start_beside_one_that_reads_another_hub_of_that_name() {
    let (fleet, recorder) = ActionRecorder::with_fleet(2);
    let first = host(&fleet, &recorder, "a", "127.0.0.1:5672/test", fleet.hub().clone());
    first.start().await.unwrap();
    fleet.pass(seconds(20)).await;
    let owned = |host: &EventProcessorHost| host.snapshot().unwrap().partitions.len();
    assert_eq!(owned(&first), 2);
    let second = host(&fleet, &recorder, "b", "127.0.0.1:7672/test", namesake(&fleet));
    let begun = recorder.now();
    let error = second.start().await.unwrap_err();
    let took = recorder.now().since(begun);
    // The others have 90 s to ask the hub again, and a heartbeat comes every 10 s.
    assert!(took >= seconds(90) && took < seconds(120), "{took:?}");
    let StartError::AnotherHub { host: HostId { name, .. }, .. } = &error else { panic!("{error}") };
    assert_eq!(name.as_str(), "a");
    let text = error.to_string();
    for words in [
        "cannot start: this host reads the hub 127.0.0.1:7672/test",
        "host a#",
        "of the same group reads 127.0.0.1:5672/test",
        "give one of them another store or consumer group",
    ] {
        assert!(text.contains(words), "{text}");
    }
    assert!(second.snapshot().is_none());
    assert_eq!(owned(&first), 2, "whoever was there is not disturbed");
    // It is no longer in the way.
    assert_eq!(first.stop(seconds(5)).await.as_ref().map(StopReport::is_clean), Ok(true));
    second.start().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_host_that_starts_right_after_its_hub_was_made_anew_joins_the_others() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    fleet.hub().recreate(2);
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    send(&fleet, P0, 3);
    until_finished(&fleet, &recorder, P0, 2).await;
    fleet.pass(seconds(300)).await;
    assert_eq!(recorder.delivered(P0), events(0, 2));
    assert_eq!(recorder.reports("AnotherHub").len(), 0, "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn what_a_dead_host_read_is_no_matter() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    fleet.kill("a");
    fleet.hub().recreate(2);
    let begun = recorder.now();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    assert!(recorder.now().since(begun) <= seconds(40), "its lease is waited for, at most");
    fleet.pass(seconds(60)).await;
    fleet.kill("b");
    fleet.pass(seconds(60)).await;
    fleet.hub().recreate(2);
    let begun = recorder.now();
    start(&mut fleet, "c", recorder.options(), &recorder.scribe()).await;
    assert_eq!(recorder.now(), begun, "whoever is dead by the store's own clock is not waited for");
}

#[tokio::test(start_paused = true)]
async fn hosts_of_two_hubs_that_start_at_the_same_time_are_told_of_each_other() {
    let (fleet, recorder) = ActionRecorder::with_fleet(2);
    let first = host(&fleet, &recorder, "a", "127.0.0.1:5672/test", fleet.hub().clone());
    let second = host(&fleet, &recorder, "b", "127.0.0.1:7672/test", namesake(&fleet));
    let (a, b) = tokio::join!(first.start(), second.start());
    assert!(a.is_ok() && b.is_ok());
    fleet.pass(seconds(180)).await;
    let told = recorder.reports("AnotherHub");
    assert!(told.len() == 2, "each of them once: {told:?}");
}

#[tokio::test(start_paused = true)]
async fn hosts_that_reach_one_address_are_never_taken_for_hosts_of_two_hubs() {
    let (fleet, recorder) = ActionRecorder::with_fleet(2);
    let address = "homes.servicebus.windows.net:5671/test";
    let first = host(&fleet, &recorder, "a", address, fleet.hub().clone());
    let second = host(&fleet, &recorder, "b", address, namesake(&fleet));
    first.start().await.unwrap();
    fleet.pass(seconds(20)).await;
    let begun = recorder.now();
    second.start().await.unwrap();
    assert_eq!(recorder.now(), begun, "there is nothing to wait for");
    fleet.pass(seconds(300)).await;
    assert_eq!(recorder.reports("AnotherHub").len(), 0, "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn a_shutdown_is_heard_while_a_start_waits_for_the_others() {
    let (fleet, recorder) = ActionRecorder::with_fleet(2);
    let first = host(&fleet, &recorder, "a", "127.0.0.1:5672/test", fleet.hub().clone());
    first.start().await.unwrap();
    fleet.pass(seconds(20)).await;
    let second = host(&fleet, &recorder, "b", "127.0.0.1:7672/test", namesake(&fleet));
    let begun = recorder.now();
    let report = second.run_until(fleet.pass(seconds(12)), seconds(5)).await.unwrap();
    assert!(report.is_clean(), "{report}");
    let took = recorder.now().since(begun);
    assert!(took <= seconds(13), "{took:?}");
    assert!(second.snapshot().is_none());
    // It may be started again: the cancelled start is not in the way.
    first.stop(seconds(5)).await.unwrap();
    second.start().await.unwrap();
}
