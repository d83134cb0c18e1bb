//! Tests of races between hosts: requesting hosts that leave, stops during handovers, pauses around a claim,
//! and reused host names. Also tests of the errors of seeks, drains and options.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, OnceLock, Weak};
use std::time::Duration;

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{P0, events, millis, owner, seconds, send, start, until_finished};
use ephor::admin::{Admin, AdminError, SeekMode, SeekStepOutcome, SeekTo};
use ephor::environment::{Environment, TaskHandle};
use ephor::memory::{MemoryStore, StoreEvent};
use ephor::{
    BoxFuture, BuildError, ChangeReason, Clock, CloseReason, EventProcessorHost, EventProcessorOptions,
    GroupId, HostBuilder, Monotonic, PartitionId, PartitionManagerOptions, PumpState, SourceError, Timestamp,
};
use ephor_testkit::TestFleet;

fn handed_over_to(recorder: &ActionRecorder, host: &str) -> bool {
    let handed_over = What::Changed(ChangeReason::HandedOver);
    recorder.first(|entry| entry.host == host && entry.what == handed_over).is_some()
}

fn without_wakes(partitions: u32) -> (TestFleet, ActionRecorder) {
    let fleet = TestFleet::new(partitions).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = recorder.store().without_wakes();
    (fleet.with_store(Arc::new(store)), recorder)
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_drains_for_a_host_that_left_is_not_handed_to_it_and_has_an_owner_soon() {
    for (mut fleet, recorder) in [ActionRecorder::with_fleet(2), without_wakes(2)] {
        start(&mut fleet, "a", recorder.options(), &recorder.scribe().taking(seconds(25))).await;
        fleet.until_balanced().await.unwrap();
        for partition in [0, 1].map(PartitionId) {
            send(&fleet, partition, 1);
        }
        fleet.pass(seconds(1)).await;
        start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
        fleet.pass(seconds(9)).await;
        let hosts = fleet.admin().hosts().await.unwrap();
        let giver = hosts.iter().find(|entry| entry.record.id.name.as_str() == "a").unwrap();
        assert_eq!(giver.record.answers.len(), 1, "it drains for b");
        let draining = giver.record.answers[0].partition;
        fleet.stop("b").await;
        assert_eq!(recorder.finished(draining), [], "the call still runs");

        until_finished(&fleet, &recorder, draining, 0).await;
        fleet.pass(seconds(3)).await;
        assert_eq!(owner(&fleet, draining).await.as_deref(), Some("a"), "not b, and not after a lease");
        send(&fleet, draining, 1);
        until_finished(&fleet, &recorder, draining, 1).await;
        assert_eq!(recorder.delivered(draining), [0, 1]);
        assert!(!recorder.entries().iter().any(|entry| entry.host == "b"), "b never had anything");
    }
}

#[tokio::test(start_paused = true)]
async fn a_partition_that_closes_for_a_host_that_left_is_not_handed_to_it_either() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    let environment = fleet.environment();
    let slow_to_close = recorder.scribe().closing(move |_, _| {
        let done = environment.sleep_until(environment.now() + seconds(20));
        async move {
            done.await;
            Ok(())
        }
    });
    start(&mut fleet, "a", recorder.options(), &slow_to_close).await;
    fleet.until_balanced().await.unwrap();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    let closing = || recorder.first(|entry| entry.what == What::Closing(CloseReason::Handover));
    fleet.until("nothing closes", || closing().is_some()).await.unwrap();
    let moving = closing().unwrap().partition;
    fleet.pass(seconds(2)).await;
    fleet.stop("b").await;
    let closed = || recorder.first(|entry| entry.what == What::Closed(CloseReason::Handover)).is_some();
    assert!(!closed(), "b left before");
    fleet.until("it does not close", closed).await.unwrap();
    fleet.pass(seconds(3)).await;
    assert_eq!(owner(&fleet, moving).await.as_deref(), Some("a"));
    assert!(!recorder.entries().iter().any(|entry| entry.host == "b"), "b never had anything");
}

#[tokio::test(start_paused = true)]
async fn a_stop_right_after_a_handover_to_us_leaves_nothing_that_is_ours() {
    // Nothing wakes the receiver: it learns of the handover by its next scan, and is stopped before
    // that.
    let (mut fleet, recorder) = without_wakes(2);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.until_balanced().await.unwrap();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    fleet.until("nothing is handed over", || handed_over_to(&recorder, "b")).await.unwrap();
    assert!(fleet.snapshot("b").partitions.is_empty(), "b does not know yet");
    let report = fleet.stop("b").await;
    assert!(report.is_clean(), "{report}");
    for partition in [0, 1].map(PartitionId) {
        assert_ne!(owner(&fleet, partition).await.as_deref(), Some("b"), "{partition}");
    }
    let began = recorder.now();
    fleet.until_balanced().await.unwrap();
    let took = recorder.now().since(began);
    assert!(took <= seconds(6), "{took:?}: a slow scan, and not a lease");
}

/// Calls `tell` right before a task is spawned.
struct Spawning {
    inner: Arc<dyn Environment>,
    spawned: AtomicUsize,
    tell: Arc<dyn Fn(usize) + Send + Sync>,
}

impl Clock for Spawning {
    fn now(&self) -> Monotonic {
        self.inner.now()
    }
    fn wall(&self) -> Timestamp {
        self.inner.wall()
    }
}

impl Environment for Spawning {
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()> {
        self.inner.sleep_until(at)
    }
    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle {
        (self.tell)(self.spawned.fetch_add(1, Ordering::SeqCst) + 1);
        self.inner.spawn(task)
    }
    fn random(&self) -> u64 {
        self.inner.random()
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Moment {
    BeforeTheStart,
    /// The store has just carried out the claim, and has not answered yet.
    DuringTheClaim,
    /// Only the host knows that it owns the partition.
    WhileThePumpStarts,
}

/// The manager and the renewer are spawned before.
const THE_PUMP: usize = 3;

#[tokio::test(start_paused = true)]
async fn a_pause_around_the_claim_lets_nothing_through_until_it_is_over() {
    for moment in [Moment::BeforeTheStart, Moment::DuringTheClaim, Moment::WhileThePumpStarts] {
        let fleet = TestFleet::new(1).unwrap();
        let recorder = ActionRecorder::new(&fleet);
        let paused: Arc<OnceLock<Weak<EventProcessorHost>>> = Arc::default();
        let pause = {
            let host = paused.clone();
            move || host.get().and_then(Weak::upgrade).unwrap().pause(P0)
        };
        let observer = {
            let pause = pause.clone();
            move |_: &GroupId, event: &StoreEvent| {
                if moment == Moment::DuringTheClaim && matches!(event, StoreEvent::Changed { .. }) {
                    pause();
                }
            }
        };
        let tell = {
            let pause = pause.clone();
            move |task| {
                if moment == Moment::WhileThePumpStarts && task == THE_PUMP {
                    pause();
                }
            }
        };
        let store = MemoryStore::new(fleet.environment()).with_observer(Arc::new(observer));
        let environment =
            Spawning { inner: fleet.environment(), spawned: AtomicUsize::new(0), tell: Arc::new(tell) };
        let scribe = recorder.scribe();
        let host = EventProcessorHost::builder(fleet.hub().clone(), store)
            .environment(Arc::new(environment))
            .processor(move |_| scribe.clone())
            .unwrap();
        let host = Arc::new(host);
        paused.set(Arc::downgrade(&host)).unwrap();
        if moment == Moment::BeforeTheStart {
            pause();
        }
        send(&fleet, P0, 3);
        host.start().await.unwrap();
        fleet.pass(seconds(60)).await;
        let owned = host.snapshot().unwrap().partitions;
        assert_eq!((owned.len(), owned[0].state), (1, PumpState::Paused), "{moment:?}");
        assert_eq!(recorder.delivered(P0), [], "{moment:?}");
        host.resume(P0);
        fleet.pass(millis(10)).await;
        assert_eq!(recorder.finished(P0), events(0, 2), "{moment:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_name_is_in_use_if_its_host_lives_and_not_if_it_crashed() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    start(&mut fleet, "fixed", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(25)).await;
    fleet.kill("fixed");
    start(&mut fleet, "fixed", recorder.options(), &recorder.scribe()).await;
    fleet.pass(millis(200)).await;
    let records = fleet.admin().hosts().await.unwrap();
    assert_eq!(records.len(), 2, "the record of the dead one is still there");
    fleet.pass(seconds(120)).await;
    assert_eq!(fleet.snapshot("fixed").partitions.len(), 2);
    assert!(recorder.all_reports().is_empty(), "{:?}", recorder.all_reports());

    let scribe = recorder.scribe();
    let twin = EventProcessorHost::builder(fleet.hub().clone(), fleet.store().clone())
        .environment(fleet.environment())
        .host_name("fixed")
        .options(recorder.options())
        .processor(move |_| scribe.clone())
        .unwrap();
    twin.start().await.unwrap();
    fleet.pass(seconds(60)).await;
    assert_eq!(recorder.reports("NameInUse").len(), 2, "each of the two, once");
}

#[tokio::test(start_paused = true)]
async fn a_step_needs_a_checkpoint_to_start_from_and_says_in_words_what_it_does() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    send(&fleet, P0, 10);
    for mode in [SeekMode::DryRun, SeekMode::Apply] {
        let error = fleet.admin().seek(&[], &SeekTo::By(-1), mode).await.unwrap_err();
        assert!(matches!(error, AdminError::NoCheckpoint { partition: P0 }), "{error}");
    }
    let steps = fleet.admin().seek(&[], &SeekTo::Latest, SeekMode::DryRun).await.unwrap();
    assert_eq!(
        steps[0].to_string(),
        "partition 0: no checkpoint -> at sequence number 10, 10 events skipped"
    );
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    until_finished(&fleet, &recorder, P0, 9).await;
    fleet.stop("a").await;
    let words = "partition 0: after sequence number 9 -> at sequence number 7, 3 events repeated";
    let steps = fleet.admin().seek(&[P0], &SeekTo::By(-3), SeekMode::DryRun).await.unwrap();
    assert_eq!(steps[0].to_string(), words);
    let steps = fleet.admin().seek(&[P0], &SeekTo::By(-3), SeekMode::Apply).await.unwrap();
    let Some(SeekStepOutcome::Done(epoch)) = steps[0].outcome else { panic!("{steps:?}") };
    assert_eq!(steps[0].to_string(), format!("{words}, done in epoch {epoch}"));
}

#[tokio::test(start_paused = true)]
async fn a_seek_in_a_group_that_does_not_exist_is_an_error_and_leaves_nothing_behind() {
    let fleet = TestFleet::new(2).unwrap();
    let group = GroupId { group: "alarm".parse().unwrap(), ..fleet.group().clone() };
    let admin = Admin::new(fleet.store().clone(), Arc::new(fleet.hub().clone()), group, "a test");
    for mode in [SeekMode::DryRun, SeekMode::Apply, SeekMode::Force] {
        let error = admin.seek(&[], &SeekTo::Earliest, mode).await.unwrap_err();
        assert!(matches!(error, AdminError::Source(SourceError::NotFound { .. })), "{error:?}");
        assert!(error.to_string().contains("alarm"), "{error}");
    }
    assert_eq!(fleet.store().groups().await.unwrap(), []);
}

#[tokio::test(start_paused = true)]
async fn a_drain_of_a_host_that_is_not_there_says_who_is() {
    let mut fleet = TestFleet::new(1).unwrap();
    let error = fleet.admin().drain("home").await.unwrap_err();
    assert_eq!(error.to_string(), "no host \"home\" in this group; there is none");
    for name in ["a", "b"] {
        fleet.start(name, |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    }
    fleet.pass(seconds(1)).await;
    let error = fleet.admin().drain("home").await.unwrap_err();
    assert_eq!(error.to_string(), "no host \"home\" in this group; there are: a, b");
}

const MORE_THAN_A_DAY: Duration = Duration::from_secs(24 * 60 * 60 + 1);

#[tokio::test(start_paused = true)]
async fn options_of_more_than_a_day_are_refused_with_a_way_out() {
    let fleet = TestFleet::new(1).unwrap();
    let refused = |change: &dyn Fn(HostBuilder) -> HostBuilder| {
        let host = EventProcessorHost::builder(fleet.hub().clone(), MemoryStore::default());
        match change(host).for_each_event(|_, _| async { Ok(()) }) {
            Err(BuildError::Option(error)) => error.to_string(),
            other => panic!("{other:?}"),
        }
    };
    let process_timeout = Some(MORE_THAN_A_DAY);
    assert_eq!(
        refused(&|host| host
            .options(EventProcessorOptions { process_timeout, ..EventProcessorOptions::default() })),
        "process_timeout is longer than a day; leave it out for none, or try 60s"
    );
    type Field = fn(&mut PartitionManagerOptions) -> &mut Duration;
    let fields: [(&str, Field, &str); 8] = [
        ("lease_duration", |options| &mut options.lease_duration, "30s"),
        ("renew_interval", |options| &mut options.renew_interval, "10s"),
        ("slow_scan", |options| &mut options.slow_scan, "5s"),
        ("fast_scan", |options| &mut options.fast_scan, "1s"),
        ("handover_timeout", |options| &mut options.handover_timeout, "30s"),
        ("fence_margin", |options| &mut options.fence_margin, "3s"),
        ("store_timeout", |options| &mut options.store_timeout, "5s"),
        ("other_sdk_lease_duration", |options| &mut options.other_sdk_lease_duration, "120s"),
    ];
    for (name, field, default) in fields {
        let mut options = PartitionManagerOptions::default();
        *field(&mut options) = MORE_THAN_A_DAY;
        assert_eq!(
            refused(&|host| host.manager_options(options.clone())),
            format!("{name} (86401s) is longer than a day; try {default}")
        );
    }
}
