//! Tests of the health of a namespace: broken hubs, stopped committers, failing and hanging disks.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_hub::health::{FAILURE_SHOWN_FOR, MAX_COMMIT_TIME, Problem};
use ephor_hub::{Hub, HubConfig, LocalNamespace, NamespaceConfig, NewEvent, Receipt, SendError};
use ephor_testkit::conformance::source::check;

use tokio::task::JoinSet;

use crate::common::blocking_files::{Gate, Gated, Gates};

/// A clock that stands where it is put, and kills the committer that asks it.
#[derive(Debug, Default)]
struct DeadlyClock {
    now: AtomicU64,
    deadly: AtomicBool,
}

impl Clock for DeadlyClock {
    fn now(&self) -> Monotonic {
        Monotonic(self.now.load(Ordering::SeqCst))
    }

    fn wall(&self) -> Timestamp {
        let committer = std::thread::current().name().is_some_and(|name| name.starts_with("hub "));
        assert!(!committer || !self.deadly.load(Ordering::SeqCst), "the committer shall die");
        Timestamp(1_700_000_000_000)
    }
}

fn one_hub() -> NamespaceConfig {
    NamespaceConfig { hubs: vec![HubConfig::new("homes", 1).unwrap()], ..NamespaceConfig::default() }
}

#[tokio::test]
async fn a_hub_at_work_is_healthy_and_a_closed_one_is_not() {
    let folder = tempfile::tempdir().unwrap();
    let namespace = LocalNamespace::open(folder.path(), one_hub()).unwrap();
    let hub = namespace.hub("homes").unwrap();
    hub.producer().send(NewEvent::new("door")).await.unwrap();
    assert_eq!((namespace.health(), hub.health()), (vec![], vec![]));
    namespace.close().unwrap();
    assert_eq!(namespace.health(), [Problem::Closed]);
}

#[tokio::test]
async fn a_hub_that_could_not_be_opened_is_named_with_its_reason() {
    let folder = tempfile::tempdir().unwrap();
    drop(LocalNamespace::open(folder.path(), one_hub()).unwrap());
    let hubs = folder.path().join("hubs");
    let hub = std::fs::read_dir(&hubs).unwrap().next().unwrap().unwrap().path();
    std::fs::write(hub.join("hub.json"), "nonsense").unwrap();
    let namespace = LocalNamespace::open(folder.path(), one_hub()).unwrap();
    let health = namespace.health();
    assert!(matches!(&health[..], [Problem::Broken { hub, .. }] if hub.starts_with("homes")), "{health:?}");
    assert!(health[0].to_string().contains("hub.json is damaged"), "{}", health[0]);
}

#[tokio::test]
async fn a_committer_that_died_is_noticed_and_its_senders_are_told() {
    let clock = Arc::new(DeadlyClock::default());
    let namespace = LocalNamespace::on(Gated::new().0, one_hub(), clock.clone()).unwrap();
    let hub = namespace.hub("homes").unwrap();
    hub.producer().send(NewEvent::new("door")).await.unwrap();
    clock.deadly.store(true, Ordering::SeqCst);
    let refused = hub.producer().send(NewEvent::new("window")).await.unwrap_err();
    assert!(matches!(refused, SendError::Closed(_)), "{refused}");
    check(async {
        while namespace.health().is_empty() {
            tokio::task::yield_now().await;
        }
    })
    .await;
    assert_eq!(namespace.health(), [Problem::CommitterStopped { hub: "homes".parse().unwrap() }]);
    assert_eq!(hub.health(), namespace.health());
}

/// A hub on a disk whose calls can be held up.
struct GatedHub {
    gates: Gates,
    clock: Arc<DeadlyClock>,
    namespace: LocalNamespace,
    hub: Hub,
}

impl GatedHub {
    fn new() -> Self {
        let (files, gates) = Gated::new();
        let clock = Arc::new(DeadlyClock::default());
        let namespace = LocalNamespace::on(files, one_hub(), clock.clone()).unwrap();
        let hub = namespace.hub("homes").unwrap();
        Self { gates, clock, namespace, hub }
    }

    /// Sends an event, whose commit hangs in its sync.
    fn send_and_hang(&self) -> JoinSet<Result<Receipt, SendError>> {
        self.gates.syncs.set_shut(true);
        let producer = self.hub.producer();
        let mut sending = JoinSet::new();
        sending.spawn(async move { producer.send(NewEvent::new("door")).await });
        sending
    }
}

/// Waits for a call that hangs, asserts that this is noticed after [`MAX_COMMIT_TIME`], and lets the call go on.
fn assert_noticed(gate: &Gate, namespace: &LocalNamespace, clock: &DeadlyClock) {
    gate.waiting();
    let healthy = namespace.health();
    let waiting = MAX_COMMIT_TIME + Duration::from_secs(1);
    clock.now.fetch_add(waiting.as_nanos() as u64, Ordering::SeqCst);
    let hanging = namespace.health();
    // Opened before anything is asserted: a hub that is dropped waits for its disk.
    gate.set_shut(false);
    assert_eq!(healthy, []);
    assert_eq!(hanging, [Problem::DiskHangs { hub: "homes".parse().unwrap(), waiting }]);
}

#[tokio::test]
async fn a_disk_that_hangs_is_noticed_without_waiting_for_it() {
    let gated = GatedHub::new();
    let mut sending = gated.send_and_hang();
    let GatedHub { gates, clock, namespace, hub } = gated;
    let waited = tokio::task::spawn_blocking(move || {
        assert_noticed(&gates.syncs, &namespace, &clock);
        namespace
    });
    let _namespace = waited.await.unwrap();
    sending.join_next().await.unwrap().unwrap().unwrap();
    assert_eq!(hub.health(), []);
}

#[tokio::test]
async fn a_disk_that_hangs_while_the_hub_rests_is_noticed() {
    let GatedHub { gates, clock, namespace, hub } = GatedHub::new();
    gates.times.set_shut(true);
    // The hub writes its time before it rests again.
    clock.now.store(Duration::from_secs(3_600).as_nanos() as u64, Ordering::SeqCst);
    hub.producer().send(NewEvent::new("door")).await.unwrap();
    let waited = tokio::task::spawn_blocking(move || {
        assert_noticed(&gates.times, &namespace, &clock);
        namespace
    });
    let namespace = waited.await.unwrap();
    hub.producer().send(NewEvent::new("door")).await.unwrap();
    assert_eq!(namespace.health(), []);
}

#[tokio::test]
async fn a_commit_that_hung_and_then_failed_counts_from_its_end() {
    let gated = GatedHub::new();
    let mut sending = gated.send_and_hang();
    let GatedHub { gates, clock, namespace: _namespace, hub } = gated;
    let hung = 2 * FAILURE_SHOWN_FOR;
    let ended = clock.clone();
    tokio::task::spawn_blocking(move || {
        gates.syncs.waiting();
        ended.now.store(hung.as_nanos() as u64, Ordering::SeqCst);
        gates.syncs.fail_next();
        gates.syncs.set_shut(false);
    })
    .await
    .unwrap();
    sending.join_next().await.unwrap().unwrap().unwrap_err();
    assert!(matches!(&hub.health()[..], [Problem::CommitFailed { .. }]), "{:?}", hub.health());
    // The committer dates it, and then it is over some time.
    check(async {
        while !hub.health().is_empty() {
            clock.now.fetch_add(FAILURE_SHOWN_FOR.as_nanos() as u64 / 10, Ordering::SeqCst);
            tokio::task::yield_now().await;
        }
    })
    .await;
}
