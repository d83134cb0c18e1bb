//! Tests of properties that only the memory store has. The conformance suite tests the properties of all
//! stores.

use std::sync::Barrier;
use std::sync::atomic::{AtomicI64, Ordering};
use std::task::{Context, Poll, Waker};

use ephor_core::epoch::Epoch;
use ephor_core::history::ChangeReason;
use ephor_core::host_record::{HostState, HostStatistics};
use ephor_core::ids::Incarnation;
use ephor_core::lease::{ClaimCause, ReleaseCause};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{FORGET_DRAINED_HOSTS_AFTER, FORGET_HOSTS_AFTER, MAX_HISTORY_PER_PARTITION};

use ephor_core::checkpoint::Position;
use futures_util::FutureExt;

use super::*;

const P: PartitionId = PartitionId(3);
const LEASE: Duration = Duration::from_secs(30);

#[derive(Default)]
struct ManualClock(AtomicI64);

impl Clock for ManualClock {
    fn now(&self) -> ephor_core::time::Monotonic {
        ephor_core::time::Monotonic(0)
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.0.load(Ordering::SeqCst))
    }
}

/// The steps of this store never wait, so its futures are ready when first polled.
fn done<T>(future: StoreFuture<'_, T>) -> T {
    poll(future).expect("ready at once").unwrap()
}

fn poll<T>(mut future: BoxFuture<'_, T>) -> Option<T> {
    match future.as_mut().poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(value) => Some(value),
        Poll::Pending => None,
    }
}

fn group() -> GroupId {
    GroupId {
        namespace: "ns".parse().unwrap(),
        hub: "homes".parse().unwrap(),
        group: "alarms".parse().unwrap(),
    }
}

fn host(name: &str) -> HostId {
    HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
}

fn finished(sequence: u64) -> Position {
    Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None }
}

fn beat(store: &MemoryStore, name: &str) -> DesiredState {
    let record = HostRecord {
        id: host(name),
        beat: 1,
        state: HostState::Active,
        lease_duration: LEASE,
        max_partitions: None,
        wants: Vec::new(),
        answers: Vec::new(),
        statistics: HostStatistics::default(),
        software: "test".into(),
        hub: None,
    };
    done(store.heartbeat(&group(), &record))
}

fn claim(store: &MemoryStore, name: &str) -> LeaseToken {
    let seen = done(store.view(&group())).lease(P).map(|lease| lease.version.clone());
    let cause = ClaimCause::Expired;
    let request =
        ClaimRequest { partition: P, host: host(name), duration: LEASE, seen, above: Epoch::NONE, cause };
    match done(store.claim(&group(), &request)) {
        ClaimOutcome::Won { token, .. } => token,
        ClaimOutcome::Lost { holder } => panic!("lost to {holder:?}"),
    }
}

fn release(store: &MemoryStore, token: &LeaseToken, successor: Option<HostId>) {
    let cause = ReleaseCause::Shutdown;
    let request = ReleaseRequest { token: token.clone(), cause, successor, checkpoint_saved: true };
    assert_eq!(done(store.release(&group(), &request)), GiveUpOutcome::Done);
}

fn woken(store: &MemoryStore, name: &str) -> bool {
    poll(store.changed(&group(), &host(name))).is_some()
}

fn wakers(store: &MemoryStore) -> usize {
    store.groups.lock().unwrap().get(&group()).map_or(0, Records::wakers)
}

#[test]
fn the_history_of_a_partition_is_bounded() {
    let store = MemoryStore::default();
    let mut last = claim(&store, "a");
    for _ in 0..MAX_HISTORY_PER_PARTITION {
        last = claim(&store, "a");
    }
    let history = done(store.history(&group(), None, usize::MAX));
    assert_eq!(history.len(), usize::from(MAX_HISTORY_PER_PARTITION));
    assert_eq!(history[0].epoch, last.epoch);
    assert_eq!(history.last().unwrap().epoch.get(), 2);
}

#[test]
fn who_is_not_heard_of_is_forgotten() {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::new(clock.clone());
    beat(&store, "lost");
    let almost = i64::try_from(FORGET_HOSTS_AFTER.as_millis()).unwrap() - 1;
    clock.0.store(almost, Ordering::SeqCst);
    beat(&store, "a");
    assert_eq!((done(store.view(&group())).hosts.len(), wakers(&store)), (2, 2));
    clock.0.store(almost + 1, Ordering::SeqCst);
    beat(&store, "a");
    assert_eq!((done(store.view(&group())).hosts.len(), wakers(&store)), (1, 1));
}

#[test]
fn who_shall_drain_is_forgotten_a_day_later_and_its_desired_state_with_it() {
    let clock = Arc::new(ManualClock::default());
    let store = MemoryStore::new(clock.clone());
    let day = i64::try_from(FORGET_DRAINED_HOSTS_AFTER.as_millis()).unwrap();
    for (after, left) in [(day - 1, 2), (day, 1)] {
        clock.0.store(0, Ordering::SeqCst);
        beat(&store, "lost");
        assert!(done(store.set_desired_state(&group(), &host("lost"), DesiredState { drain: true })));
        clock.0.store(after, Ordering::SeqCst);
        beat(&store, "a");
        assert_eq!(done(store.view(&group())).hosts.len(), left);
        assert_eq!(beat(&store, "lost").drain, left == 2);
    }
}

#[test]
fn nothing_is_left_of_a_host_that_retired() {
    let store = MemoryStore::default();
    beat(&store, "a");
    done(store.set_desired_state(&group(), &host("a"), DesiredState { drain: true }));
    let store_again = store.clone();
    let (here, of_a) = (group(), host("a"));
    assert!(woken(&store, "a"));
    let mut waiting = store_again.changed(&here, &of_a);
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    done(store.retire(&group(), &host("a")));
    assert!(waiting.as_mut().poll(&mut context).is_ready());
    assert!(store.groups.lock().unwrap().is_empty());
}

#[test]
fn a_call_ends_when_its_host_retires_before_it_waits() {
    let store = MemoryStore::default();
    beat(&store, "a");
    // As a call on another thread has it.
    let waker = store.step(&group(), |records, _| records.waker(&host("a")));
    done(store.retire(&group(), &host("a")));
    assert!(waker.notified().now_or_never().is_some());
}

#[test]
fn who_waits_without_a_record_is_woken_and_leaves_nothing_behind() {
    let store = MemoryStore::default();
    let token = claim(&store, "a");
    let (here, stranger) = (group(), host("stranger"));
    let mut waiting = store.changed(&here, &stranger);
    let mut context = Context::from_waker(Waker::noop());
    assert!(waiting.as_mut().poll(&mut context).is_pending());
    beat(&store, "a");
    release(&store, &token, Some(host("stranger")));
    assert!(waiting.as_mut().poll(&mut context).is_ready());
    drop(waiting);
    assert_eq!(wakers(&store), 2);
    beat(&store, "a");
    assert_eq!(wakers(&store), 1);
}

#[test]
fn who_only_waits_makes_no_group() {
    let store = MemoryStore::default();
    assert!(!woken(&store, "a"));
    assert_eq!(done(store.groups()), []);
}

#[test]
fn a_release_without_a_successor_wakes_everybody() {
    let store = MemoryStore::default();
    for name in ["a", "b", "c"] {
        beat(&store, name);
        assert!(!woken(&store, name));
    }
    release(&store, &claim(&store, "a"), None);
    assert!(woken(&store, "b") && woken(&store, "c"));
    release(&store, &claim(&store, "a"), Some(host("b")));
    assert!(woken(&store, "b") && !woken(&store, "c"));
}

#[test]
fn clones_share_what_is_stored() {
    let store = MemoryStore::default();
    let token = claim(&store.clone(), "a");
    assert_eq!(done(store.view(&group())).leases[0].token(), Some(token));
}

#[test]
fn of_claims_on_many_threads_one_wins() {
    const THREADS: usize = 8;
    for _ in 0..50 {
        let (store, start) = (MemoryStore::default(), Barrier::new(THREADS));
        let won = std::thread::scope(|scope| {
            let runners: Vec<_> = (0..THREADS)
                .map(|runner| {
                    let request = ClaimRequest {
                        partition: P,
                        host: host(&format!("runner-{runner}")),
                        duration: LEASE,
                        seen: None,
                        above: Epoch::NONE,
                        cause: ClaimCause::Unowned,
                    };
                    let (store, start) = (&store, &start);
                    scope.spawn(move || {
                        start.wait();
                        matches!(done(store.claim(&group(), &request)), ClaimOutcome::Won { .. })
                    })
                })
                .collect();
            runners.into_iter().map(|runner| runner.join().unwrap()).filter(|won| *won).count()
        });
        assert_eq!(won, 1);
    }
}

#[test]
fn a_rule_that_is_off_shows() {
    let rules = Rules { checkpoints_are_fenced: false, takeover_raises_the_epoch: false, ..Rules::default() };
    let store = MemoryStore::default().with_rules(rules);
    assert!(!store.capabilities().fences_checkpoints);
    let late = claim(&store, "a");
    assert_eq!(claim(&store, "b").epoch, late.epoch);
    release(&store, &claim(&store, "c"), None);
    assert!(matches!(
        done(store.save(&group(), &SaveRequest::new(&late, &finished(9), None))),
        SaveOutcome::Saved(_)
    ));
    assert!(matches!(
        done(store.save(&group(), &SaveRequest::new(&late, &finished(3), None))),
        SaveOutcome::Saved(_)
    ));
}

#[test]
fn the_observer_is_told_of_what_was_done_and_of_nothing_else() {
    let told = Arc::new(Mutex::new(Vec::new()));
    let events = told.clone();
    let store = MemoryStore::default().with_observer(Arc::new(move |of: &GroupId, event: &StoreEvent| {
        assert_eq!(of, &group());
        events.lock().unwrap().push(event.clone());
    }));
    let news = || std::mem::take(&mut *told.lock().unwrap());
    let changed = |reason: ChangeReason, checkpoint_saved| {
        let news = news();
        let [StoreEvent::Changed { change, checkpoint_saved: told_saved }] = &news[..] else {
            panic!("{news:?}")
        };
        assert_eq!((&change.reason, *told_saved), (&reason, checkpoint_saved));
    };
    let token = claim(&store, "a");
    changed(ChangeReason::Claimed(ClaimCause::Expired), false);
    let stranger = LeaseToken { owner: host("b"), ..token.clone() };
    done(store.renew(&group(), LEASE, &[stranger.clone(), token.clone()]));
    assert_eq!(news(), [StoreEvent::Renewed { token: token.clone() }]);
    let SaveOutcome::Saved(checkpoint) =
        done(store.save(&group(), &SaveRequest::new(&token, &finished(5), None)))
    else {
        panic!("the owner may save");
    };
    assert_eq!(news(), [StoreEvent::Saved { token: token.clone(), checkpoint }]);
    done(store.save(&group(), &SaveRequest::new(&token, &finished(4), None)));
    let transfer = |token: &LeaseToken, checkpoint_saved| {
        let request =
            TransferRequest { token: token.clone(), to: host("b"), duration: LEASE, checkpoint_saved };
        done(store.transfer(&group(), &request))
    };
    assert_eq!(transfer(&stranger, true), GiveUpOutcome::NotOurs);
    assert_eq!(news(), []);
    assert_eq!(transfer(&token, false), GiveUpOutcome::Done);
    changed(ChangeReason::HandedOver, false);
    let token = claim(&store, "a");
    news();
    release(&store, &token, None);
    changed(ChangeReason::Released(ReleaseCause::Shutdown), true);
    let request =
        SeekRequest { partition: P, position: finished(1), log: None, by: "ada".into(), force: false };
    done(store.seek(&group(), &request));
    changed(ChangeReason::Seek { by: "ada".into() }, false);
    beat(&store, "a");
    assert_eq!(news(), []);
}

#[test]
fn the_store_survives_an_observer_that_panics() {
    let store =
        MemoryStore::default().with_observer(Arc::new(|_: &GroupId, _: &StoreEvent| panic!("found it")));
    let panicked = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| claim(&store, "a")));
    assert!(panicked.is_err());
    assert_eq!(done(store.view(&group())).leases[0].owner, Some(host("a")));
}

#[test]
fn a_copy_that_is_restored_brings_back_what_was_stored_and_wakes_those_who_wait() {
    let store = MemoryStore::default();
    beat(&store, "a");
    let old = claim(&store, "a");
    let copy = store.copy();
    release(&store, &old, None);
    let request = SaveRequest::new(&old, &finished(5), None);
    assert!(matches!(done(store.save(&group(), &request)), SaveOutcome::Saved(_)));
    let (group, me) = (group(), host("a"));
    let waiting = store.changed(&group, &me);
    store.restore(&copy);
    let view = done(store.view(&group));
    assert_eq!((view.leases[0].owner.clone(), view.checkpoints.len()), (Some(host("a")), 0));
    assert!(waiting.now_or_never().is_some());
    assert_eq!(done(store.renew(&group, LEASE, &[old])), [RenewalOutcome::Renewed]);
}

/// The watching hosts decide who is dead; the store makes nobody wait for it.
#[test]
fn a_wall_clock_that_jumps_by_years_takes_no_lease_away_and_makes_nobody_wait() {
    const YEARS: i64 = 10 * 365 * 86_400_000;
    for jump in [YEARS, -YEARS] {
        let clock = Arc::new(ManualClock(AtomicI64::new(2 * YEARS)));
        let store = MemoryStore::new(clock.clone());
        claim(&store, "previous");
        let token = claim(&store, "a");
        clock.0.fetch_add(jump, Ordering::SeqCst);
        assert!(done(store.view(&group())).lease(P).unwrap().takeover_delay <= LEASE);
        assert_eq!(
            done(store.renew(&group(), LEASE, std::slice::from_ref(&token))),
            [RenewalOutcome::Renewed]
        );
        let lease = done(store.view(&group())).lease(P).unwrap().clone();
        assert_eq!((lease.token(), lease.age), (Some(token), Duration::ZERO));
        claim(&store, "b");
        assert!(done(store.view(&group())).lease(P).unwrap().takeover_delay <= LEASE);
    }
}
