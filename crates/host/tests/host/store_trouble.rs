//! Tests of a store that fails, hangs, gives wrong answers, or whose clock jumps: the host keeps running,
//! stops in time, and recovers.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{
    P0, events, millis, owner, seconds, send, start, stored_sequence, until_finished,
};
use crate::common::faulty_store::{FaultyStore, HOST_OPS, Op, Trouble};
use ephor::environment::Environment;
use ephor::memory::MemoryStore;
use ephor::{CheckpointPolicy, Clock, CloseReason, EventProcessorOptions, Monotonic, PartitionId, Timestamp};
use ephor_core::history::ChangeReason;
use ephor_core::lease::{ClaimCause, ReleaseCause};
use ephor_testkit::TestFleet;

const TROUBLES: [Trouble; 4] =
    [Trouble::Fails, Trouble::Hangs, Trouble::LandsAndFails, Trouble::LandsAndHangs];

fn troubled(partitions: u32) -> (TestFleet, ActionRecorder, FaultyStore) {
    let fleet = TestFleet::new(partitions).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store()));
    let fleet = fleet.with_store(Arc::new(store.clone()));
    (fleet, recorder, store)
}

fn all(partitions: u32) -> impl Iterator<Item = PartitionId> {
    (0..partitions).map(PartitionId)
}

fn every_two(recorder: &ActionRecorder) -> EventProcessorOptions {
    EventProcessorOptions { checkpoint: CheckpointPolicy::every_events(2), ..recorder.options() }
}

/// Checks that no epoch of a partition was opened twice, by any host.
fn assert_no_epoch_is_served_twice(recorder: &ActionRecorder) {
    let mut served = BTreeSet::new();
    for entry in recorder.entries().into_iter().filter(|entry| entry.what == What::Opened) {
        assert!(served.insert((entry.partition, entry.epoch)), "served twice: {entry:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_loop_survives_every_trouble_with_every_call() {
    for op in HOST_OPS {
        for trouble in TROUBLES {
            let (mut fleet, recorder, store) = troubled(4);
            store.trouble(op, trouble);
            start(&mut fleet, "a", every_two(&recorder), &recorder.scribe()).await;
            fleet.pass(seconds(20)).await;
            start(&mut fleet, "b", every_two(&recorder), &recorder.scribe()).await;
            fleet.pass(seconds(40)).await;
            for partition in all(4) {
                send(&fleet, partition, 4);
            }
            fleet.pass(seconds(40)).await;
            store.heal();
            fleet.pass(seconds(70)).await;
            fleet.until_balanced().await.unwrap_or_else(|error| panic!("{op:?} {trouble:?}: {error}"));
            for partition in all(4) {
                send(&fleet, partition, 4);
            }
            fleet.until_caught_up().await.unwrap_or_else(|error| panic!("{op:?} {trouble:?}: {error}"));
            let report = fleet.stop("a").await;
            assert!(report.is_clean(), "{op:?} {trouble:?}: {report}");
            for partition in all(4) {
                let seen: BTreeSet<u64> = recorder.finished(partition).into_iter().collect();
                let sent: BTreeSet<u64> = (0..8).collect();
                assert_eq!(seen, sent, "{op:?} {trouble:?}, partition {partition}");
            }
            assert_no_epoch_is_served_twice(&recorder);
            if store.calls(op) > 0 && op != Op::Retire && op != Op::Transfer && op != Op::Release {
                assert!(!recorder.reports("Store").is_empty(), "{op:?} {trouble:?} is not reported");
            }
        }
    }
}

/// One event a second into every partition.
async fn load(fleet: &TestFleet, partitions: u32, for_seconds: u64) {
    for _ in 0..for_seconds {
        for partition in all(partitions) {
            send(fleet, partition, 1);
        }
        fleet.pass(seconds(1)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_less_than_a_lease_stops_nothing_and_moves_nothing() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let (mut fleet, recorder, store) = troubled(4);
        for name in ["a", "b"] {
            start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
        }
        fleet.until_balanced().await.unwrap();
        fleet.pass(seconds(60)).await;
        let changes = recorder.entries().len();
        store.trouble_all(trouble);
        // Wherever in the interval the outage begins, a lease has at least 17 s left.
        load(&fleet, 4, 15).await;
        store.heal();
        load(&fleet, 4, 30).await;
        for partition in all(4) {
            assert_eq!(recorder.finished(partition), events(0, 44), "{trouble:?}");
        }
        let moves =
            recorder.entries()[changes..].iter().filter(|e| matches!(e.what, What::Changed(_))).count();
        assert_eq!(moves, 0, "{trouble:?}");
        assert!(recorder.reports("SelfFenced").is_empty());
        assert!(!recorder.reports("Store").is_empty(), "one failed renewal is only reported, but it is");
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_that_is_away_for_longer_makes_the_host_stop_before_its_lease_ends_and_resume_after() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let (mut fleet, recorder, store) = troubled(2);
        start(&mut fleet, "a", every_two(&recorder), &recorder.scribe()).await;
        fleet.pass(seconds(64)).await;
        let view = fleet.store().view(fleet.group()).await.unwrap();
        // A lease of 30 s since its last renewal, of which the last 3 are never used.
        let deadline = recorder.now().before(view.lease(P0).unwrap().age) + seconds(27);
        store.trouble_all(trouble);
        load(&fleet, 2, 60).await;
        let fenced = recorder.reports("SelfFenced");
        assert_eq!(fenced.len(), 2, "{trouble:?}: {:?}", recorder.all_reports());
        assert!(fenced.iter().all(|report| report.at >= deadline && report.at <= deadline + millis(10)));
        let calls = recorder.entries().into_iter().filter(|e| matches!(e.what, What::Delivered(_)));
        let last = calls.map(|entry| entry.at).max().unwrap();
        assert!(last < deadline, "{trouble:?}: delivered at {last:?}, past {deadline:?}");
        // A checkpoint that hangs delays a batch by the 5 s that a store call may take.
        assert!(last + seconds(6) > deadline, "{trouble:?}: it did not work for as long as it could");
        assert!(all(2).all(|partition| recorder.closings(partition) == [CloseReason::LeaseLost]));
        let healed = recorder.now();
        store.heal();
        for partition in all(2) {
            until_finished(&fleet, &recorder, partition, 59).await;
        }
        let took = recorder.now().since(healed);
        assert!(took < seconds(8), "{trouble:?}: back after {took:?}");
        assert_no_epoch_is_served_twice(&recorder);
    }
}

/// The first host that recovers does not declare the others dead: they had no store, either.
#[tokio::test(start_paused = true)]
async fn when_the_store_is_back_nobody_takes_more_than_its_share() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let (mut fleet, recorder, store) = troubled(6);
        for name in ["a", "b", "c"] {
            start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
        }
        fleet.until_balanced().await.unwrap();
        fleet.pass(seconds(60)).await;
        store.trouble_all(trouble);
        fleet.pass(seconds(60)).await;
        let before = fleet.store().history(fleet.group(), None, 100).await.unwrap().len();
        store.heal();
        load(&fleet, 6, 30).await;
        fleet.until_balanced().await.unwrap();
        fleet.until_caught_up().await.unwrap();
        let history = fleet.store().history(fleet.group(), None, 100).await.unwrap();
        let lines = &history[..history.len() - before];
        let moved = lines.iter().filter(|line| line.reason == ChangeReason::HandedOver).count();
        assert_eq!(moved, 0, "{trouble:?}: {lines:#?}");
        // Released by its last owner, and claimed by one.
        assert!(lines.len() <= 12, "{trouble:?}: {lines:#?}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_host_says_what_is_wrong_with_the_store_and_for_how_long() {
    for (trouble, what) in
        [(Trouble::Fails, "not available"), (Trouble::Hangs, "no answer from the store within 5s")]
    {
        let (mut fleet, recorder, store) = troubled(1);
        start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
        fleet.pass(seconds(64)).await;
        let well = fleet.snapshot("a");
        assert!(well.store_failing_for.is_none() && well.store_error.is_none(), "{well:?}");
        store.trouble_all(trouble);
        fleet.pass(seconds(60)).await;
        // The first call after that belongs to a scan within 5 s, and may hang for 5 s more.
        let failing = fleet.snapshot("a");
        let time = failing.store_failing_for.unwrap();
        assert!(time > seconds(49) && time <= seconds(60), "{trouble:?}: {time:?}");
        let error = failing.store_error.unwrap().to_string();
        assert!(error.contains(what), "{trouble:?}: {error}");
        let last = recorder.reports("Store").pop().unwrap().text;
        assert!(
            last.contains("the store has been failing for 5") && last.contains(what),
            "{trouble:?}: {last}"
        );
        let stopped = recorder.reports("SelfFenced").pop().unwrap().text;
        assert!(stopped.contains("the store has been failing for "), "{trouble:?}: {stopped}");
        store.heal();
        fleet.pass(seconds(10)).await;
        let well = fleet.snapshot("a");
        assert!(well.store_failing_for.is_none() && well.store_error.is_none(), "{trouble:?}: {well:?}");
        // From now on it is a new outage.
        store.trouble_all(trouble);
        fleet.pass(seconds(20)).await;
        let time = fleet.snapshot("a").store_failing_for.unwrap();
        assert!(time <= seconds(20), "{trouble:?}: {time:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_call_in_flight_is_dropped_at_the_deadline() {
    let (mut fleet, recorder, store) = troubled(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe().taking(seconds(100))).await;
    fleet.pass(seconds(5)).await;
    send(&fleet, P0, 1);
    fleet.pass(millis(10)).await;
    let deadline = recorder.now() + fleet.snapshot("a").partitions[0].lease_left;
    store.trouble_all(Trouble::Fails);
    fleet.until("not closed", || !recorder.closings(P0).is_empty()).await.unwrap();
    let closed = recorder.first(|entry| matches!(entry.what, What::Closing(_))).unwrap();
    assert!(closed.at >= deadline && closed.at <= deadline + millis(10), "{:?} {deadline:?}", closed.at);
    fleet.pass(seconds(200)).await;
    assert_eq!(recorder.finished(P0), [], "the call went on although the lease was over");
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_landed_although_it_failed_is_adopted_at_the_next_scan() {
    for trouble in [Trouble::LandsAndFails, Trouble::LandsAndHangs] {
        let (mut fleet, recorder, store) = troubled(4);
        for partition in all(4) {
            send(&fleet, partition, 3);
        }
        store.trouble_times(Op::Claim, trouble, 4);
        start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
        fleet.until_caught_up().await.unwrap();
        assert!(recorder.now().since(Monotonic(0)) < seconds(5 + 2), "{trouble:?}: {:?}", recorder.now());
        assert_eq!(store.calls(Op::Claim), 4, "{trouble:?}: what is ours is not claimed again");
        assert_eq!(recorder.entries().iter().filter(|e| matches!(e.what, What::Changed(_))).count(), 4);
        assert_no_epoch_is_served_twice(&recorder);
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_ours_that_nobody_could_take_up_in_time_is_given_back_at_the_next_scan() {
    let (mut fleet, recorder, store) = troubled(4);
    for partition in all(4) {
        send(&fleet, partition, 3);
    }
    store.trouble_times(Op::Claim, Trouble::LandsAndFails, 4);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(millis(100)).await;
    assert_eq!(store.calls(Op::Claim), 4);
    store.trouble(Op::View, Trouble::Fails);
    fleet.pass(seconds(29)).await;
    assert_eq!(recorder.entries().iter().filter(|entry| entry.what == What::Opened).count(), 0);
    store.heal();
    let healed = recorder.now();
    fleet.until_caught_up().await.unwrap();
    assert!(recorder.now().since(healed) < seconds(5 + 2), "{:?}", recorder.now().since(healed));
    let unserved = ChangeReason::Released(ReleaseCause::Unserved);
    let released =
        recorder.entries().into_iter().filter(|entry| entry.what == What::Changed(unserved.clone()));
    assert_eq!(released.count(), 4);
    assert_no_epoch_is_served_twice(&recorder);
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_landed_although_it_failed_is_served_by_the_new_owner_alone() {
    for trouble in [Trouble::LandsAndFails, Trouble::LandsAndHangs] {
        let (mut fleet, recorder, store) = troubled(4);
        start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
        load(&fleet, 4, 5).await;
        store.trouble(Op::Transfer, trouble);
        start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
        load(&fleet, 4, 20).await;
        fleet.until_balanced().await.unwrap();
        fleet.until_caught_up().await.unwrap();
        for partition in all(4) {
            assert_eq!(recorder.delivered(partition), events(0, 24), "{trouble:?}: nothing is repeated");
        }
        assert_no_epoch_is_served_twice(&recorder);
        assert_eq!(store.calls(Op::Transfer), 2);
    }
}

#[tokio::test(start_paused = true)]
async fn a_transfer_that_failed_is_followed_by_a_release_and_never_served_again_in_that_epoch() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let (mut fleet, recorder, store) = troubled(4);
        start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
        load(&fleet, 4, 5).await;
        store.trouble(Op::Transfer, trouble);
        start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
        load(&fleet, 4, 40).await;
        fleet.until_balanced().await.unwrap();
        fleet.until_caught_up().await.unwrap();
        for partition in all(4) {
            assert_eq!(recorder.delivered(partition), events(0, 44), "{trouble:?}: nothing is repeated");
        }
        assert_no_epoch_is_served_twice(&recorder);
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_landed_although_it_failed_is_known_to_have_landed_when_the_host_stops() {
    for trouble in [Trouble::LandsAndFails, Trouble::LandsAndHangs] {
        let (mut fleet, recorder, store) = troubled(2);
        start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
        load(&fleet, 2, 5).await;
        store.trouble_times(Op::Release, trouble, 2);
        let report = fleet.stop("a").await;
        assert!(report.is_clean() && report.drained.len() == 2, "{trouble:?}: {report}");
        start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
        fleet.until_balanced().await.unwrap();
        load(&fleet, 2, 5).await;
        for partition in all(2) {
            assert_eq!(recorder.delivered(partition), events(0, 9), "{trouble:?}: nothing is repeated");
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_release_that_cannot_be_made_is_reported_once_as_abandoned() {
    let (mut fleet, recorder, store) = troubled(2);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    load(&fleet, 2, 5).await;
    store.trouble(Op::Release, Trouble::Fails);
    let report = fleet.stop("a").await;
    assert_eq!(report.abandoned, [0, 1].map(PartitionId), "{report}");
    assert!(report.drained.is_empty() && report.unsaved.is_empty(), "each partition once: {report:?}");
    assert_eq!(stored_sequence(&fleet, P0).await, Some(4), "but its checkpoint is written");
    store.heal();
    start(&mut fleet, "b", recorder.options(), &recorder.scribe()).await;
    let began = recorder.now();
    fleet.until_balanced().await.unwrap();
    assert!(recorder.now().since(began) > seconds(20), "the lease had to run out");
    load(&fleet, 2, 2).await;
    for partition in all(2) {
        assert_eq!(recorder.delivered(partition), events(0, 6));
    }
}

/// A store clock that can be set.
struct Settable {
    environment: Arc<dyn Environment>,
    ahead_ms: Arc<AtomicI64>,
}

impl Clock for Settable {
    fn now(&self) -> Monotonic {
        self.environment.now()
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.environment.wall().0 + self.ahead_ms.load(Ordering::Relaxed))
    }
}

#[tokio::test(start_paused = true)]
async fn a_store_clock_that_jumps_by_five_minutes_moves_nothing() {
    for jump in [5 * 60_000, -5 * 60_000] {
        for after_ms in [0, 1_300, 4_700, 9_900] {
            let fleet = TestFleet::new(6).unwrap();
            let recorder = ActionRecorder::new(&fleet);
            let ahead_ms = Arc::new(AtomicI64::new(0));
            let clock = Settable { environment: fleet.environment(), ahead_ms: ahead_ms.clone() };
            let mut fleet = fleet.with_store(Arc::new(MemoryStore::new(Arc::new(clock))));
            for name in ["a", "b", "c"] {
                start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
            }
            fleet.until_balanced().await.unwrap();
            fleet.pass(seconds(60) + millis(after_ms)).await;
            let before = fleet.admin().history(None, 1_000).await.unwrap();
            ahead_ms.store(jump, Ordering::Relaxed);
            load(&fleet, 6, 120).await;
            assert_eq!(fleet.admin().history(None, 1_000).await.unwrap(), before, "by {jump} ms: it moved");
            assert!(all(6).all(|partition| recorder.delivered(partition) == events(0, 119)));
            assert_eq!(recorder.reports("ClockSkew").len(), 3, "each host says so once");
            // A host that really dies is declared dead all the same.
            fleet.kill("b");
            let died = recorder.now();
            fleet.until_balanced().await.unwrap();
            assert!(recorder.now().since(died) < seconds(35), "{:?}", recorder.now().since(died));
        }
    }
}

#[tokio::test(start_paused = true)]
async fn a_crash_during_a_store_clock_jump_is_noticed_within_two_leases() {
    for jump in [5 * 60_000, -5 * 60_000] {
        let fleet = TestFleet::new(2).unwrap();
        let recorder = ActionRecorder::new(&fleet);
        let ahead_ms = Arc::new(AtomicI64::new(0));
        let clock = Settable { environment: fleet.environment(), ahead_ms: ahead_ms.clone() };
        let mut fleet = fleet.with_store(Arc::new(MemoryStore::new(Arc::new(clock))));
        for name in ["a", "b"] {
            start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
        }
        fleet.until_balanced().await.unwrap();
        fleet.pass(seconds(60)).await;
        fleet.kill("a");
        ahead_ms.store(jump, Ordering::Relaxed);
        let died = recorder.now();
        fleet.until_balanced().await.unwrap();
        let took = recorder.now().since(died);
        assert!(took >= seconds(20) && took < seconds(60), "by {jump} ms: {took:?}");
        assert_eq!(owner(&fleet, P0).await.as_deref(), Some("b"));
        let history = fleet.admin().history(None, 1).await.unwrap();
        assert_eq!(history[0].reason, ChangeReason::Claimed(ClaimCause::Expired));
    }
}
