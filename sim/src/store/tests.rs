//! Tests of the effect of each fault on a call, and on the stored state.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor::memory::MemoryStore;
use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostRecord, HostState, HostStatistics};
use ephor_core::ids::{ConsumerGroup, GroupId, HostId, Incarnation, PartitionId};
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken, TransferRequest};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{
    ClaimOutcome, DesiredState, RenewalOutcome, SaveOutcome, SaveRequest, Store, StoreError, StoreMethod,
    View,
};
use ephor_core::time::Monotonic;
use futures_util::future::{Either, select};

use super::{FaultyStore, StoreFaults};
use crate::call_faults::{FaultKind, Latency};
use crate::executor::{Executor, Handle, Machine};

const P: PartitionId = PartitionId(3);
const LEASE: Duration = Duration::from_secs(30);
const SECOND: Duration = Duration::from_secs(1);

type Seen = Arc<Mutex<Vec<(FaultKind, StoreMethod, Option<PartitionId>)>>>;

struct Rig {
    executor: Executor,
    handle: Handle,
    inner: Arc<MemoryStore>,
    faults: Arc<Mutex<StoreFaults>>,
    store: Arc<FaultyStore>,
    seen: Seen,
}

fn rig(faults: StoreFaults) -> Rig {
    let executor = Executor::new(11);
    let handle = Handle::clone(&executor);
    let inner = Arc::new(MemoryStore::new(Arc::new(executor.clock(Machine::WORLD))));
    let (faults, seen) = (Arc::new(Mutex::new(faults)), Seen::default());
    let log = seen.clone();
    let store = FaultyStore::new(&executor, inner.clone(), faults.clone()).with_observer(Arc::new(
        move |fault, call, partition| log.lock().unwrap().push((fault, call, partition)),
    ));
    Rig { handle, inner, faults, store: Arc::new(store), seen, executor }
}

impl Rig {
    /// The state that is really stored.
    fn truth(&mut self) -> View {
        let inner = self.inner.clone();
        self.executor.run(async move { inner.view(&group()).await.unwrap() })
    }

    /// Claims over the bad network, and waits for ten seconds at most.
    fn claim(&mut self) -> Option<Result<ClaimOutcome, StoreError>> {
        let (store, handle) = (self.store.clone(), self.handle.clone());
        self.executor.run(async move {
            let (group, request) = (group(), request());
            match select(store.claim(&group, &request), handle.sleep(10 * SECOND)).await {
                Either::Left((answer, _)) => Some(answer),
                Either::Right(_) => None,
            }
        })
    }

    fn seen(&self) -> Vec<(FaultKind, StoreMethod, Option<PartitionId>)> {
        self.seen.lock().unwrap().clone()
    }
}

fn group() -> GroupId {
    GroupId {
        namespace: "ns".parse().unwrap(),
        hub: "homes".parse().unwrap(),
        group: ConsumerGroup::default_group(),
    }
}

fn host() -> HostId {
    HostId { name: "host-1".parse().unwrap(), incarnation: Incarnation(1) }
}

fn request() -> ClaimRequest {
    ClaimRequest {
        partition: P,
        host: host(),
        duration: LEASE,
        seen: None,
        above: Epoch::NONE,
        cause: ClaimCause::Unowned,
    }
}

fn owner(view: &View) -> Option<HostId> {
    view.lease(P).and_then(|lease| lease.owner.clone())
}

#[test]
fn a_good_network_takes_its_time_and_no_more() {
    let mut rig = rig(StoreFaults { latency: Latency::milliseconds(100, 100), ..Default::default() });
    assert!(matches!(rig.claim(), Some(Ok(ClaimOutcome::Won { .. }))));
    assert_eq!(rig.executor.now().0, 200_000_000);
    assert_eq!(rig.seen(), []);
    assert_eq!(rig.store.capabilities(), rig.inner.capabilities());
}

#[test]
fn a_lost_request_is_not_applied_and_never_answered() {
    let mut rig = rig(StoreFaults::cut_off());
    assert!(rig.claim().is_none());
    rig.executor.run_for(600 * SECOND);
    assert_eq!(owner(&rig.truth()), None);
    assert_eq!(rig.seen(), [(FaultKind::LostRequest, StoreMethod::Claim, Some(P))]);
}

#[test]
fn a_lost_response_is_applied_and_never_answered() {
    let mut rig = rig(StoreFaults { lost_response: 1.0, ..Default::default() });
    assert!(rig.claim().is_none());
    assert_eq!(owner(&rig.truth()), Some(host()));
    assert_eq!(rig.seen(), [(FaultKind::LostResponse, StoreMethod::Claim, Some(P))]);
}

#[test]
fn a_store_that_hangs_carries_everything_out_when_it_hangs_no_more() {
    let mut rig = rig(StoreFaults::hanging(Monotonic(15_000_000_000)));
    assert!(rig.claim().is_none());
    assert_eq!(owner(&rig.truth()), None);
    rig.executor.run_for(6 * SECOND);
    assert_eq!(owner(&rig.truth()), Some(host()));
    assert_eq!(rig.seen(), [(FaultKind::Slow, StoreMethod::Claim, Some(P))]);
    assert!(rig.faults.lock().unwrap().is_bad());
}

#[test]
fn an_error_may_come_before_or_after_the_fact() {
    let mut rig = rig(StoreFaults { error_before: 1.0, ..Default::default() });
    assert!(matches!(rig.claim(), Some(Err(StoreError::Unavailable(_)))));
    assert_eq!(owner(&rig.truth()), None);
    *rig.faults.lock().unwrap() = StoreFaults { error_after: 1.0, ..Default::default() };
    assert!(matches!(rig.claim(), Some(Err(StoreError::Unavailable(_)))));
    assert_eq!(owner(&rig.truth()), Some(host()));
    let kinds: Vec<FaultKind> = rig.seen().iter().map(|(kind, _, _)| *kind).collect();
    assert_eq!(kinds, [FaultKind::ErrorBefore, FaultKind::ErrorAfter]);
}

#[test]
fn a_conflict_applies_nothing_and_names_the_holder() {
    let mut rig = rig(StoreFaults { conflict: 1.0, ..Default::default() });
    assert!(matches!(rig.claim(), Some(Ok(ClaimOutcome::Lost { holder: None }))));
    let before = rig.truth();
    assert_eq!(owner(&before), None);
    *rig.faults.lock().unwrap() = StoreFaults::default();
    assert!(matches!(rig.claim(), Some(Ok(ClaimOutcome::Won { .. }))));
    *rig.faults.lock().unwrap() = StoreFaults { conflict: 1.0, ..Default::default() };
    let lost = rig.claim();
    assert!(
        matches!(lost, Some(Ok(ClaimOutcome::Lost { holder: Some(lease) })) if lease.owner == Some(host()))
    );
    let store = rig.store.clone();
    assert_eq!(rig.executor.run(async move { store.view(&group()).await.unwrap().leases.len() }), 1);
    assert_eq!(rig.seen(), [(FaultKind::Conflict, StoreMethod::Claim, Some(P)); 2]);
}

#[test]
fn a_slow_write_lands_after_its_caller_gave_up() {
    let slow_latency = Latency::milliseconds(20_000, 20_000);
    let mut rig = rig(StoreFaults { slow: 1.0, slow_latency, ..Default::default() });
    assert!(rig.claim().is_none());
    assert_eq!(owner(&rig.truth()), None);
    rig.executor.run_for(10 * SECOND);
    assert_eq!(owner(&rig.truth()), Some(host()));
    assert_eq!(rig.seen(), [(FaultKind::Slow, StoreMethod::Claim, Some(P))]);
}

#[test]
fn a_write_lands_though_its_machine_crashed_or_paused() {
    for crash in [true, false] {
        let mut rig = rig(StoreFaults { latency: Latency::milliseconds(100, 100), ..Default::default() });
        let machine = rig.executor.add_machine("host-1");
        let (store, answered) = (rig.store.clone(), Arc::new(Mutex::new(false)));
        let received = answered.clone();
        rig.executor.spawn_on(machine, async move {
            store.claim(&group(), &request()).await.unwrap();
            *received.lock().unwrap() = true;
        });
        rig.executor.run_for(Duration::from_millis(50));
        if crash {
            rig.executor.crash(machine)
        } else {
            rig.executor.pause(machine)
        }
        assert_eq!(owner(&rig.truth()), None);
        rig.executor.run_for(SECOND);
        assert_eq!(owner(&rig.truth()), Some(host()));
        assert!(!*answered.lock().unwrap());
        rig.executor.resume(machine);
        rig.executor.run_for(SECOND);
        assert_eq!(*answered.lock().unwrap(), !crash);
    }
}

#[test]
fn saves_and_renewals_pass_through_with_their_proof() {
    let mut rig = rig(StoreFaults::default());
    let store = rig.store.clone();
    rig.executor.run(async move {
        let ClaimOutcome::Won { token, .. } = store.claim(&group(), &request()).await.unwrap() else {
            panic!("lost")
        };
        let stale = LeaseToken { epoch: token.epoch.next().unwrap(), ..token.clone() };
        let position = Position::Finished { sequence: SequenceNumber(7), offset: None, enqueued_at: None };
        let saved = store.save(&group(), &SaveRequest::new(&token, &position, None)).await.unwrap();
        assert!(matches!(saved, SaveOutcome::Saved(checkpoint) if checkpoint.position == position));
        let fenced = store.save(&group(), &SaveRequest::new(&stale, &position, None)).await.unwrap();
        assert!(matches!(fenced, SaveOutcome::Fenced { .. }));
        let renewals = store.renew(&group(), LEASE, &[token, stale]).await.unwrap();
        assert!(matches!(renewals[..], [RenewalOutcome::Renewed, RenewalOutcome::Lost { .. }]));
        assert_eq!(store.groups().await.unwrap(), [group()]);
        assert_eq!(store.history(&group(), Some(P), 9).await.unwrap().len(), 1);
        assert!(!store.set_desired_state(&group(), &host(), DesiredState { drain: true }).await.unwrap());
    });
}

/// Hands a partition to a registered host, which notifies it.
async fn wake(store: &MemoryStore, partition: PartitionId) {
    let record = HostRecord {
        id: host(),
        beat: 1,
        state: HostState::Active,
        lease_duration: LEASE,
        max_partitions: None,
        wants: Vec::new(),
        answers: Vec::new(),
        statistics: HostStatistics::default(),
        software: String::new(),
        hub: None,
    };
    store.heartbeat(&group(), &record).await.unwrap();
    let giver = HostId { incarnation: Incarnation(9), ..host() };
    let claim = ClaimRequest { host: giver, partition, ..request() };
    let ClaimOutcome::Won { token, .. } = store.claim(&group(), &claim).await.unwrap() else {
        panic!("lost")
    };
    let transfer = TransferRequest { token, to: host(), duration: LEASE, checkpoint_saved: true };
    store.transfer(&group(), &transfer).await.unwrap();
}

#[test]
fn a_wake_up_call_comes_late_and_once() {
    let mut rig = rig(StoreFaults { latency: Latency::milliseconds(100, 100), ..Default::default() });
    let (store, inner, handle) = (rig.store.clone(), rig.inner.clone(), rig.handle.clone());
    rig.executor.run(async move {
        let (group, host) = (group(), host());
        wake(&inner, P).await;
        let sent = handle.now();
        // A waiter that stops listening before it arrives receives it the next time.
        let patience = handle.sleep(Duration::from_millis(50));
        assert!(matches!(select(store.changed(&group, &host), patience).await, Either::Right(_)));
        store.changed(&group, &host).await;
        assert_eq!(handle.now().since(sent), Duration::from_millis(150));
        let again = select(store.changed(&group, &host), handle.sleep(10 * SECOND)).await;
        assert!(matches!(again, Either::Right(_)));
    });
    assert_eq!(rig.seen(), []);
}

#[test]
fn a_wake_up_call_may_be_lost() {
    let mut rig = rig(StoreFaults { lost_notification: 1.0, ..Default::default() });
    let (store, inner, handle, faults) =
        (rig.store.clone(), rig.inner.clone(), rig.handle.clone(), rig.faults.clone());
    rig.executor.run(async move {
        let (group, host) = (group(), host());
        wake(&inner, P).await;
        let received = select(store.changed(&group, &host), handle.sleep(10 * SECOND)).await;
        assert!(matches!(received, Either::Right(_)));
        drop(received);
        *faults.lock().unwrap() = StoreFaults::default();
        wake(&inner, PartitionId(4)).await;
        store.changed(&group, &host).await;
    });
    assert_eq!(rig.seen(), [(FaultKind::LostNotification, StoreMethod::Changed, None)]);
}

#[test]
fn a_dice_roll_per_call_makes_every_fault_come_up_and_a_seed_repeats_them() {
    let roll = || {
        let faults = StoreFaults {
            slow: 0.1,
            lost_request: 0.1,
            lost_response: 0.1,
            error_before: 0.1,
            error_after: 0.1,
            conflict: 0.3,
            ..Default::default()
        };
        let mut rig = rig(faults);
        for _ in 0..200 {
            rig.claim();
        }
        (rig.seen(), rig.executor.fingerprint())
    };
    let (seen, _) = roll();
    let kinds: std::collections::BTreeSet<FaultKind> = seen.iter().map(|(kind, _, _)| *kind).collect();
    assert_eq!(kinds.len(), 6, "{kinds:?}");
    assert_eq!(roll(), roll());
}
