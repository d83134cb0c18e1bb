//! Tests of the handles of a host: clones, its administration, its error handler, and its stream of
//! ownership changes.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor::admin::{SeekMode, SeekTo};
use ephor::{
    ChangeReason, ErrorHandler, EventProcessorHost, EventProcessorOptions, HostBuilder, OwnershipEvent,
    OwnershipReason, PartitionId,
};
use ephor_testkit::TestFleet;
use futures_util::StreamExt;

const SECOND: Duration = Duration::from_secs(1);

fn builder(fleet: &TestFleet) -> HostBuilder {
    EventProcessorHost::builder(Arc::new(fleet.hub().clone()), fleet.store().clone())
        .environment(fleet.environment())
        .host_name("a")
}

fn idle(builder: HostBuilder) -> EventProcessorHost {
    builder.for_each_event(|_, _| async { Ok(()) }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn clones_are_one_host_and_it_runs_until_the_last_is_dropped() {
    let fleet = TestFleet::new(2).unwrap();
    let host = idle(builder(&fleet));
    let clone = host.clone();
    host.start().await.unwrap();
    fleet.until("owns all", || clone.snapshot().unwrap().partitions.len() == 2).await.unwrap();
    drop(host);
    fleet.pass(SECOND * 60).await;
    assert_eq!(clone.snapshot().unwrap().partitions.len(), 2, "it goes on");
    assert!(clone.stop(SECOND).await.unwrap().is_clean());
}

#[tokio::test(start_paused = true)]
async fn a_host_administers_its_own_group() {
    let fleet = TestFleet::new(1).unwrap();
    fleet.hub().send(PartitionId(0), "event").unwrap();
    let host = idle(builder(&fleet));
    host.start().await.unwrap();
    fleet.until("owns", || host.snapshot().unwrap().partitions.len() == 1).await.unwrap();
    let admin = host.admin("ada");
    assert_eq!(admin.hosts().await.unwrap()[0].record.id, host.snapshot().unwrap().host);
    admin.seek(&[], &SeekTo::Earliest, SeekMode::Apply).await.unwrap();
    let history = admin.history(None, 10).await.unwrap();
    let sought = ChangeReason::Seek { by: "ada".into() };
    assert!(history.iter().any(|change| change.reason == sought), "{history:?}");
}

#[tokio::test(start_paused = true)]
async fn the_builders_error_handler_takes_the_place_of_that_of_the_options() {
    let said: Arc<Mutex<Vec<&str>>> = Arc::default();
    let options = || {
        let said = said.clone();
        let handler = ErrorHandler::new(move |_| said.lock().unwrap().push("options"));
        EventProcessorOptions { on_error: Some(handler), ..EventProcessorOptions::default() }
    };
    let on_error = |builder: HostBuilder| {
        let said = said.clone();
        builder.on_error(move |_| said.lock().unwrap().push("builder"))
    };
    let orders: [&dyn Fn(HostBuilder) -> HostBuilder; 3] = [
        &|builder| on_error(builder.options(options())),
        &|builder| on_error(builder).options(options()),
        &|builder| builder.options(options()),
    ];
    for (order, expected) in orders.iter().zip(["builder", "builder", "options"]) {
        let fleet = TestFleet::new(1).unwrap();
        fleet.hub().fail(Some("the hub is away"));
        idle(order(builder(&fleet))).start().await.unwrap();
        assert_eq!(std::mem::take(&mut *said.lock().unwrap()), [expected]);
    }
}

#[tokio::test(start_paused = true)]
async fn changes_are_a_stream() {
    let fleet = TestFleet::new(3).unwrap();
    let host = idle(builder(&fleet));
    let changes = host.changes();
    host.start().await.unwrap();
    fleet.until("owns all", || host.snapshot().unwrap().partitions.len() == 3).await.unwrap();
    host.stop(SECOND).await.unwrap();
    drop(host);
    let came = |event: &OwnershipEvent| matches!(event.reason, OwnershipReason::Claimed(_));
    let all: Vec<OwnershipEvent> = changes.collect().await;
    assert_eq!((all.len(), all.iter().filter(|event| came(event)).count()), (6, 3), "{all:?}");
}
