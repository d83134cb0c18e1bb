//! Tests of building and starting a host: the errors and their texts, faults that only delay the start,
//! second starts, two hosts with one name, and a host on standby.

use std::future::Future;
use std::sync::Arc;
use std::time::Duration;

use crate::recording_processor::{Call, Recorder};
use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{
    EventProcessor, EventProcessorHost, EventProcessorOptions, EventSource, HostBuilder, HostState, HubName,
    Namespace, PartitionContext, PartitionId, PartitionManagerOptions, Receiver, StartError,
};
use ephor_core::BoxFuture;
use ephor_core::source::{
    HubProperties, OpenError, OpenRequest, PartitionProperties, SourceCapabilities, SourceError,
};
use ephor_testkit::{FleetError, TestFleet};
use futures_util::FutureExt;

const SECOND: Duration = Duration::from_secs(1);

fn builder() -> HostBuilder {
    EventProcessorHost::builder(MemoryHub::new("homes", 2).unwrap(), MemoryStore::default())
}

fn build_error(builder: HostBuilder) -> String {
    builder.for_each_event(|_, _| async { Ok(()) }).unwrap_err().to_string()
}

/// A host of the fleet's group that the fleet does not own.
fn host_of(fleet: &TestFleet, name: &str, recorder: &Recorder) -> EventProcessorHost {
    let options = EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() };
    EventProcessorHost::builder(fleet.hub().clone(), fleet.store().clone())
        .environment(fleet.environment())
        .host_name(name)
        .options(options)
        .processor(recorder.make())
        .unwrap()
}

#[test]
fn wrong_names_and_options_are_refused_in_words_that_help() {
    assert_eq!(
        build_error(builder().consumer_group("two words")),
        "consumer group \"two words\" contains ' '; allowed are letters, digits, dots, hyphens, underscores and the dollar sign"
    );
    assert_eq!(build_error(builder().host_name("")), "host name \"\" is empty");
    let options = EventProcessorOptions { max_batch_size: 0, ..EventProcessorOptions::default() };
    assert_eq!(
        build_error(builder().options(options)),
        "max_batch_size is 0, so no event could be delivered; try 100"
    );
    let options =
        PartitionManagerOptions { renew_interval: SECOND * 20, ..PartitionManagerOptions::default() };
    assert_eq!(
        build_error(builder().manager_options(options)),
        "lease_duration (30s) must be at least 2 x renew_interval (20s), or leases expire between renewals; \
         try 60s"
    );
    assert_eq!(
        MemoryHub::new("no spaces", 1).unwrap_err().to_string(),
        "hub name \"no spaces\" contains ' '; allowed are letters, digits, dots, hyphens, underscores and slashes"
    );
}

#[tokio::test(start_paused = true)]
async fn an_unknown_consumer_group_is_refused_by_name_and_nothing_is_left_behind() {
    let mut fleet = TestFleet::new(1).unwrap();
    let refused =
        fleet.start("a", |host| host.consumer_group("alarms").for_each_event(|_, _| async { Ok(()) })).await;
    let Err(FleetError::Start(error @ StartError::Hub { .. })) = refused else { panic!("{refused:?}") };
    assert_eq!(
        error.to_string(),
        "cannot start on hub memory/test: consumer group \"alarms\" of hub \"test\" does not exist"
    );
    fleet.pass(SECOND * 60).await;
    assert!(fleet.store().groups().await.unwrap().is_empty());
}

#[tokio::test(start_paused = true)]
async fn a_host_that_did_not_start_may_be_started_when_the_reason_is_gone() {
    let fleet = TestFleet::new(1).unwrap();
    let host = EventProcessorHost::builder(fleet.hub().clone(), fleet.store().clone())
        .environment(fleet.environment())
        .consumer_group("alarms")
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap();
    assert!(matches!(host.start().await, Err(StartError::Hub { .. })));
    assert!(host.snapshot().is_none());
    fleet.hub().create_group("alarms").unwrap();
    host.start().await.unwrap();
    fleet.until("owns", || host.snapshot().unwrap().partitions.len() == 1).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_hub_without_partitions_is_refused() {
    let mut fleet = TestFleet::new(0).unwrap();
    let error = fleet.start("a", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap_err();
    assert_eq!(error.to_string(), "the hub memory/test has no partitions, so there is nothing to process");
}

#[tokio::test(start_paused = true)]
async fn a_hub_that_is_down_at_the_start_is_waited_for() {
    let mut fleet = TestFleet::new(2).unwrap();
    let recorder = Recorder::new();
    fleet.hub().send(PartitionId(1), "event").unwrap();
    fleet.hub().fail(Some("the hub is away"));
    let options = EventProcessorOptions { on_error: recorder.on_error(), ..EventProcessorOptions::default() };
    fleet.start("a", |host| host.options(options).processor(recorder.make())).await.unwrap();
    fleet.pass(SECOND * 120).await;
    assert!(recorder.reports("Hub") > 2, "it goes on asking");
    assert_eq!(
        recorder.report_texts()[0],
        "the hub could not be read: the hub is not available: the hub is away"
    );
    assert!(recorder.entries().is_empty());
    fleet.hub().fail(None);
    fleet.until_caught_up().await.unwrap();
    assert_eq!(recorder.finished(1), [0]);
}

#[tokio::test(start_paused = true)]
async fn a_second_start_is_refused_and_disturbs_nothing() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until_balanced().await.unwrap();
    let me = fleet.snapshot("a").host;
    let error = fleet.host("a").start().await.unwrap_err();
    let StartError::AlreadyStarted { host } = &error else { panic!("{error:?}") };
    assert_eq!(*host, me);
    assert_eq!(
        error.to_string(),
        format!("the host {me} is running already; stop it before starting it again")
    );
    fleet.pass(SECOND * 60).await;
    assert_eq!(recorder.calls(0), [Call::Made, Call::Open]);
    assert_eq!(fleet.snapshot("a").host, me);
}

/// A hub that does not answer until it is notified.
struct Slow {
    hub: MemoryHub,
    answers: Arc<tokio::sync::Notify>,
}

impl EventSource for Slow {
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
            self.answers.notified().await;
            self.hub.hub_properties().await
        })
    }
    fn partition_properties(
        &self,
        partition: PartitionId,
    ) -> BoxFuture<'_, Result<PartitionProperties, SourceError>> {
        self.hub.partition_properties(partition)
    }
    fn open(&self, request: OpenRequest) -> BoxFuture<'_, Result<Box<dyn Receiver>, OpenError>> {
        self.hub.open(request)
    }
}

#[tokio::test(start_paused = true)]
async fn while_a_start_is_under_way_another_is_refused_and_giving_it_up_leaves_the_host_startable() {
    let fleet = TestFleet::new(1).unwrap();
    let answers: Arc<tokio::sync::Notify> = Arc::default();
    let source = Slow { hub: fleet.hub().clone(), answers: answers.clone() };
    let host = EventProcessorHost::builder(source, fleet.store().clone())
        .environment(fleet.environment())
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap();
    let mut first = Box::pin(host.start());
    assert!((&mut first).now_or_never().is_none());
    assert!(matches!(host.start().await, Err(StartError::AlreadyStarted { .. })));
    drop(first);
    assert!(host.snapshot().is_none());
    answers.notify_one();
    host.start().await.unwrap();
    assert!(host.snapshot().is_some());
}

#[tokio::test(start_paused = true)]
async fn a_start_after_a_stop_is_a_new_incarnation_that_goes_on_where_the_last_one_stopped() {
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = Recorder::new();
    fleet.hub().send(PartitionId(0), "event").unwrap();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let before = fleet.snapshot("a");
    assert!(fleet.host("a").stop(SECOND).await.unwrap().is_clean());
    assert!(fleet.host("a").snapshot().is_none());
    fleet.hub().send(PartitionId(0), "event").unwrap();
    fleet.host("a").start().await.unwrap();
    fleet.until_caught_up().await.unwrap();
    let after = fleet.snapshot("a");
    assert_eq!(after.host.name, before.host.name);
    assert_ne!(after.host.incarnation, before.host.incarnation);
    assert!(after.partitions[0].epoch > before.partitions[0].epoch);
    assert_eq!(recorder.delivered(0), [0, 1]);
}

#[tokio::test(start_paused = true)]
async fn two_hosts_under_one_name_share_the_load_and_say_so() {
    let fleet = TestFleet::new(4).unwrap();
    let (one, two) = (Recorder::new(), Recorder::new());
    let (first, second) = (host_of(&fleet, "twin", &one), host_of(&fleet, "twin", &two));
    first.start().await.unwrap();
    fleet.until("owns all", || first.snapshot().unwrap().partitions.len() == 4).await.unwrap();
    assert_eq!(one.reports("NameInUse"), 0);
    second.start().await.unwrap();
    let owned = |host: &EventProcessorHost| -> Vec<PartitionId> {
        host.snapshot().unwrap().partitions.iter().map(|owned| owned.partition).collect()
    };
    for n in 0..2_000 {
        fleet.hub().send(PartitionId(n % 4), "event").unwrap();
        fleet.pass(Duration::from_millis(30)).await;
        let (mine, yours) = (owned(&first), owned(&second));
        assert!(mine.iter().all(|partition| !yours.contains(partition)), "{mine:?} {yours:?}");
    }
    assert_eq!((owned(&first).len(), owned(&second).len()), (2, 2));
    for recorder in [&one, &two] {
        assert_eq!(recorder.reports("NameInUse"), 1, "each says it once");
    }
    let other = first.snapshot().unwrap().host;
    let texts = two.report_texts();
    assert!(
        texts.iter().any(|text| text.contains("\"twin\"") && text.contains(&other.to_string())),
        "{texts:?}"
    );
    for partition in 0..4 {
        let mut all = [one.delivered(partition), two.delivered(partition)].concat();
        all.sort_unstable();
        assert_eq!(all, (0..500).collect::<Vec<u64>>(), "nothing lost, nothing repeated");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_with_nothing_to_own_stands_by() {
    let mut fleet = TestFleet::new(1).unwrap();
    for name in ["a", "b"] {
        fleet.start(name, |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    }
    fleet.pass(SECOND * 30).await;
    let states = [fleet.snapshot("a"), fleet.snapshot("b")].map(|one| (one.partitions.len(), one.state));
    assert!(
        states.contains(&(1, HostState::Active)) && states.contains(&(0, HostState::Standby)),
        "{states:?}"
    );
    let standby = if states[0].0 == 0 { "a" } else { "b" };
    assert!(fleet.snapshot(standby).is_standby());
    let owner = if standby == "a" { "b" } else { "a" };
    fleet.kill(owner);
    fleet.until_balanced().await.unwrap();
    assert_eq!(fleet.snapshot(standby).state, HostState::Active);
}

/// Never runs: it is enough that it compiles.
#[expect(dead_code, reason = "checked by the compiler")]
fn everything_may_move_between_threads(host: &EventProcessorHost, context: &PartitionContext) {
    fn sendable<T: Send>(_: T) {}
    fn shareable<T: Send + Sync + 'static>() {}
    fn driven<P: EventProcessor>(processor: &mut P, context: &PartitionContext) -> impl Future + Send {
        processor.process_events(context, &[])
    }
    sendable(host.start());
    sendable(host.stop(SECOND));
    sendable(host.run_until(std::future::pending(), SECOND));
    sendable(context.checkpoint());
    sendable(context.cancelled());
    sendable(async { host.changes().next().await });
    sendable(driven(&mut crate::recording_processor::Recorder::new().make()(context), context));
    shareable::<EventProcessorHost>();
    shareable::<PartitionContext>();
    shareable::<ephor::admin::Admin>();
}
