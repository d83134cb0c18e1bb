//! Tests of stuck calls, which block their thread and cannot be cancelled. In real time, because virtual
//! time would not advance.
//!
//! The host reports it, keeps the slot and lets the lease expire; another host takes over, and the
//! old one is fenced.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Condvar, Mutex, OnceLock, Weak, mpsc};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder};
use ephor::environment::TokioEnvironment;
use ephor::{
    CloseReason, Epoch, ErrorHandler, EventProcessorHost, EventProcessorOptions, HostBuilder, HostError,
    HostId, HostSnapshot, PartitionContext, PartitionId, PartitionManagerOptions, PartitionSnapshot,
};
use ephor_core::history::OwnershipChange;
use ephor_core::ids::Incarnation;
use ephor_core::lease::{ClaimCause, ClaimRequest};
use ephor_core::store::ClaimOutcome;
use ephor_testkit::TestFleet;

const MILLISECOND: Duration = Duration::from_millis(1);
/// Far more than anything here takes, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(60);

/// Blocks the thread of the first batch of one partition until it is opened.
struct Gate {
    partition: PartitionId,
    taken: AtomicBool,
    open: Mutex<bool>,
    changed: Condvar,
    /// True if the checkpoint that the blocked call then tried was refused.
    refused: Mutex<Option<bool>>,
}

impl Gate {
    fn new(partition: PartitionId) -> Arc<Self> {
        Arc::new(Self {
            partition,
            taken: AtomicBool::new(false),
            open: Mutex::default(),
            changed: Condvar::new(),
            refused: Mutex::default(),
        })
    }

    fn open(&self) {
        *self.open.lock().unwrap() = true;
        self.changed.notify_all();
    }

    fn block(&self) {
        let open = self.open.lock().unwrap();
        // Not for ever, so that a failing test also ends.
        drop(self.changed.wait_timeout_while(open, PATIENCE * 2, |open| !*open).unwrap());
    }

    fn recorder(self: &Arc<Self>) -> Recorder {
        let gate = self.clone();
        Recorder::scripted(move |context: PartitionContext, call| {
            let gate = gate.clone();
            async move {
                let batch = matches!(call, Call::Batch(_)) && context.partition() == gate.partition;
                if batch && !gate.taken.swap(true, Ordering::SeqCst) {
                    gate.block();
                    let late = context.checkpoint().await?;
                    *gate.refused.lock().unwrap() = Some(late.is_refused());
                }
                Ok(())
            }
        })
    }
}

/// Opens the gate at the end of a test, even if it fails: the runtime waits for its threads.
struct OpenAtTheEnd(Arc<Gate>);

impl Drop for OpenAtTheEnd {
    fn drop(&mut self) {
        self.0.open();
    }
}

fn quick(host: HostBuilder, recorder: &Recorder, process_timeout: Option<Duration>) -> HostBuilder {
    let manager = PartitionManagerOptions {
        lease_duration: MILLISECOND * 3_000,
        renew_interval: MILLISECOND * 400,
        slow_scan: MILLISECOND * 300,
        fast_scan: MILLISECOND * 100,
        handover_timeout: MILLISECOND * 2_000,
        fence_margin: MILLISECOND * 300,
        store_timeout: MILLISECOND * 500,
        ..PartitionManagerOptions::default()
    };
    let options = EventProcessorOptions {
        process_timeout,
        on_error: recorder.on_error(),
        ..EventProcessorOptions::default()
    };
    // The real environment, and not that of a test, because it is part of what is tested.
    host.environment(Arc::new(TokioEnvironment)).options(options).manager_options(manager)
}

async fn until(fleet: &TestFleet, what: &str, mut holds: impl FnMut() -> bool) {
    let began = tokio::time::Instant::now();
    while !holds() {
        assert!(began.elapsed() < PATIENCE, "{what}:\n{fleet:?}");
        fleet.pass(MILLISECOND * 20).await;
    }
}

fn owned(fleet: &TestFleet, host: &str, partition: PartitionId) -> Option<PartitionSnapshot> {
    fleet.snapshot(host).partitions.into_iter().find(|owned| owned.partition == partition)
}

/// The changes of ownership, newest first.
async fn history(fleet: &TestFleet, partition: PartitionId) -> Vec<OwnershipChange> {
    fleet.admin().history(Some(partition), 100).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_blocked_call_is_reported_and_another_host_takes_over_fenced_while_all_else_goes_on() {
    // The partition that the plan would move first, if the second host asked for its share.
    let blocked = PartitionId(2);
    let gate = Gate::new(blocked);
    let _open = OpenAtTheEnd(gate.clone());
    let mut fleet = TestFleet::new(4).unwrap();
    let recorders = [gate.recorder(), gate.recorder()];
    for (name, recorder) in ["a", "b"].into_iter().zip(&recorders) {
        let timeout = Some(MILLISECOND * 500);
        fleet.start(name, |host| quick(host, recorder, timeout).processor(recorder.make())).await.unwrap();
    }
    fleet.until_balanced().await.unwrap();
    fleet.hub().send(blocked, "event").unwrap();
    until(&fleet, "blocked", || gate.taken.load(Ordering::SeqCst)).await;
    let (first, second) = if owned(&fleet, "a", blocked).is_some() { (0, 1) } else { (1, 0) };
    let name = |index: usize| ["a", "b"][index];
    let before = owned(&fleet, name(first), blocked).unwrap();

    until(&fleet, "reported", || recorders[first].reports("Stuck") > 0).await;
    let text = recorders[first].report_texts().into_iter().find(|text| text.contains("cannot be given up"));
    assert!(
        text.is_some_and(|text| text.starts_with("partition 2: a call to the processor has not returned"))
    );
    assert!(owned(&fleet, name(first), blocked).unwrap().stuck);

    let done = || recorders[second].finished(blocked.0) == [0];
    until(&fleet, "done by the other", done).await;
    let after = owned(&fleet, name(second), blocked).unwrap();
    assert!(after.epoch > before.epoch);

    // While the call is blocked, for several leases: the first host neither claims the partition
    // again nor releases it, and everything else goes on.
    let finished = |partition: u32| -> usize {
        recorders.iter().map(|recorder| recorder.finished(partition).len()).sum()
    };
    for n in 1..=7 {
        for partition in 0..4 {
            fleet.hub().send(PartitionId(partition), format!("{n}")).unwrap();
        }
        fleet.pass(MILLISECOND * 700).await;
        let all = || (0..4).all(|p| finished(p) >= n);
        until(&fleet, "everything goes on", all).await;
    }
    let me = fleet.snapshot(name(first)).host;
    let changes = history(&fleet, blocked).await;
    let since: Vec<_> = changes.iter().take_while(|change| change.epoch > before.epoch).collect();
    assert!(since.iter().all(|change| change.to.as_ref() != Some(&me)), "{since:?}");
    assert!(
        changes.iter().all(|change| change.from.as_ref() != Some(&me) || change.to.is_some()),
        "{changes:?}"
    );
    assert_eq!(recorders[first].delivered(blocked.0), [0]);
    assert_eq!(recorders[first].closes(blocked.0), []);
    let kept = owned(&fleet, name(first), blocked).unwrap();
    assert_eq!((kept.epoch, kept.stuck), (before.epoch, true), "it keeps its slot");
    assert_eq!(recorders[first].reports("Stuck"), 1, "said once");

    gate.open();
    until(&fleet, "returned", || recorders[first].closes(blocked.0) == [CloseReason::LeaseLost]).await;
    assert_eq!(*gate.refused.lock().unwrap(), Some(true), "the late checkpoint is refused");
    until(&fleet, "the slot is free", || {
        owned(&fleet, name(first), blocked).is_none_or(|owned| owned.epoch > after.epoch)
    })
    .await;
    fleet.until_balanced().await.unwrap();
    for name in ["a", "b"] {
        let report = fleet.stop(name).await;
        assert!(report.is_clean(), "{report}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_stop_abandons_a_blocked_call_says_so_and_does_not_release_its_partition() {
    let blocked = PartitionId(0);
    let gate = Gate::new(blocked);
    let _open = OpenAtTheEnd(gate.clone());
    let mut fleet = TestFleet::new(2).unwrap();
    let (recorder, next) = (gate.recorder(), gate.recorder());
    fleet.hub().send(blocked, "event").unwrap();
    fleet.start("a", |host| quick(host, &recorder, None).processor(recorder.make())).await.unwrap();
    until(&fleet, "blocked", || gate.taken.load(Ordering::SeqCst)).await;
    until(&fleet, "both", || fleet.snapshot("a").partitions.len() == 2).await;
    let me = fleet.snapshot("a").host;
    let report = fleet.host("a").stop(MILLISECOND * 100).await.unwrap();
    assert_eq!((report.abandoned.clone(), report.drained.clone()), (vec![blocked], vec![PartitionId(1)]));
    assert_eq!(report.to_string(), "1 partition drained, 1 abandoned [p0]");
    let leases = fleet.admin().leases().await.unwrap();
    assert_eq!((&leases[0].owner, &leases[1].owner), (&Some(me), &None));
    fleet.kill("a");

    fleet.start("b", |host| quick(host, &next, None).processor(next.make())).await.unwrap();
    until(&fleet, "taken over", || next.finished(0) == [0]).await;
    gate.open();
    until(&fleet, "returned", || recorder.running() == 0).await;
    fleet.pass(MILLISECOND * 500).await;
    assert_ne!(*gate.refused.lock().unwrap(), Some(false), "it may be dropped before it saves, never save");
    let closes = recorder.closes(0);
    assert!(closes.is_empty() || closes == [CloseReason::LeaseLost], "{closes:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_blocked_call_is_given_to_another_host_while_its_own_still_waits_to_stop() {
    let blocked = PartitionId(0);
    let gate = Gate::new(blocked);
    let _open = OpenAtTheEnd(gate.clone());
    let mut fleet = TestFleet::new(1).unwrap();
    let (recorder, next) = (gate.recorder(), gate.recorder());
    fleet.hub().send(blocked, "event").unwrap();
    let builder = EventProcessorHost::builder(fleet.hub().clone(), fleet.store().clone());
    let timeout = Some(MILLISECOND * 500);
    let host = Arc::new(quick(builder, &recorder, timeout).processor(recorder.make()).unwrap());
    host.start().await.unwrap();
    until(&fleet, "blocked", || gate.taken.load(Ordering::SeqCst)).await;
    #[expect(clippy::disallowed_methods, reason = "in real time, on threads of its own")]
    let stop = tokio::spawn({
        let host = host.clone();
        async move { host.stop(PATIENCE * 2).await }
    });
    until(&fleet, "reported", || recorder.reports("Stuck") == 1).await;
    // Nobody asks for it: its lease expires.
    fleet.pass(MILLISECOND * 4_000).await;
    let lease = fleet.admin().leases().await.unwrap().remove(0);
    assert!(lease.age > lease.duration.unwrap(), "{lease:?}");
    fleet.start("b", |host| quick(host, &next, None).processor(next.make())).await.unwrap();
    until(&fleet, "taken over", || next.finished(0) == [0]).await;
    assert!(!stop.is_finished(), "it waits for its call");
    gate.open();
    let report = stop.await.unwrap().unwrap();
    assert_eq!(report.lost, [blocked], "{report}");
    assert_eq!(*gate.refused.lock().unwrap(), Some(true));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_host_whose_lease_was_stolen_during_a_blocked_call_does_not_claim_again_before_it_returns() {
    let blocked = PartitionId(0);
    let gate = Gate::new(blocked);
    let _open = OpenAtTheEnd(gate.clone());
    let mut fleet = TestFleet::new(1).unwrap();
    let recorder = gate.recorder();
    fleet.hub().send(blocked, "event").unwrap();
    fleet.start("a", |host| quick(host, &recorder, None).processor(recorder.make())).await.unwrap();
    until(&fleet, "blocked", || gate.taken.load(Ordering::SeqCst)).await;
    let taker = HostId { name: "taker".parse().unwrap(), incarnation: Incarnation(1) };
    loop {
        let view = fleet.store().view(fleet.group()).await.unwrap();
        let request = ClaimRequest {
            partition: blocked,
            host: taker.clone(),
            duration: MILLISECOND * 200,
            seen: view.lease(blocked).map(|lease| lease.version.clone()),
            above: Epoch::NONE,
            cause: ClaimCause::Unresponsive,
        };
        // A renewal may come in between.
        if let ClaimOutcome::Won { .. } = fleet.store().claim(fleet.group(), &request).await.unwrap() {
            break;
        }
    }
    // Without a `process_timeout`: the call goes on although its partition is lost.
    until(&fleet, "reported", || recorder.reports("Stuck") == 1).await;
    fleet.pass(MILLISECOND * 2_000).await;
    assert_eq!(history(&fleet, blocked).await[0].to, Some(taker), "free for long, and not claimed");
    gate.open();
    until(&fleet, "claimed again", || recorder.finished(0) == [0, 0]).await;
    assert_eq!(*gate.refused.lock().unwrap(), Some(true));
    assert_eq!(recorder.closes(0), [CloseReason::LeaseLost]);
    assert_eq!(recorder.most_in_one_partition(), 1);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn an_error_handler_may_look_at_its_own_host_while_it_hears_of_a_blocked_call() {
    let gate = Gate::new(PartitionId(0));
    let _open = OpenAtTheEnd(gate.clone());
    let fleet = TestFleet::new(2).unwrap();
    let recorder = gate.recorder();
    let myself: Arc<OnceLock<Weak<EventProcessorHost>>> = Arc::default();
    let seen: Arc<Mutex<Vec<Option<HostSnapshot>>>> = Arc::default();
    let (looks_at, notes) = (myself.clone(), seen.clone());
    let on_error = ErrorHandler::new(move |error: &HostError| {
        if let HostError::Stuck { .. } = error {
            let host = looks_at.get().and_then(Weak::upgrade).unwrap();
            let (sender, answer) = mpsc::channel();
            // On a thread of its own, so that a failing test also ends.
            std::thread::spawn(move || drop(sender.send(host.snapshot())));
            notes.lock().unwrap().push(answer.recv_timeout(MILLISECOND * 5_000).ok().flatten());
        }
    });
    let options = EventProcessorOptions {
        process_timeout: Some(MILLISECOND * 500),
        on_error: Some(on_error),
        ..EventProcessorOptions::default()
    };
    fleet.hub().send(PartitionId(0), "event").unwrap();
    let builder = EventProcessorHost::builder(fleet.hub().clone(), fleet.store().clone());
    let host = quick(builder, &recorder, None).options(options).processor(recorder.make()).unwrap();
    let host = Arc::new(host);
    myself.set(Arc::downgrade(&host)).unwrap();
    host.start().await.unwrap();
    until(&fleet, "heard", || !seen.lock().unwrap().is_empty()).await;
    let snapshot = seen.lock().unwrap()[0].clone().expect("the host answers its own handler");
    let of = |partition| snapshot.partitions.iter().find(|owned| owned.partition == PartitionId(partition));
    assert!(of(0).is_some_and(|owned| owned.stuck));
    assert!(of(1).is_some_and(|owned| !owned.stuck));

    // And the host goes on.
    fleet.hub().send(PartitionId(1), "event").unwrap();
    until(&fleet, "the other partition", || recorder.finished(1) == [0]).await;
    until(&fleet, "the scans", || host.snapshot().unwrap().scans > snapshot.scans + 1).await;
    gate.open();
    until(&fleet, "returned", || recorder.running() == 0).await;
    host.stop(PATIENCE).await.unwrap();
}
