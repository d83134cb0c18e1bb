//! Tests that a host behaves wrongly when a mutation switches off a protocol rule: each test runs with the
//! mutation and without it, and only the run with it may break the rule.

use std::sync::Arc;
use std::time::Duration;

use crate::recording_processor::{Call, Recorder};
use ephor::environment::{Environment, TaskHandle};
use ephor::{HostState, Monotonic, PartitionId, Timestamp};
use ephor_core::BoxFuture;
use ephor_core::history::ChangeReason;
use ephor_core::lease::ClaimCause;
use ephor_core::rules::Rules;
use ephor_core::time::Clock;
use ephor_testkit::TestFleet;

const SECOND: Duration = Duration::from_secs(1);

/// The environment of a machine whose wall clock is ahead of all others.
struct Ahead(Arc<dyn Environment>, Duration);

impl Clock for Ahead {
    fn now(&self) -> Monotonic {
        self.0.now()
    }

    fn wall(&self) -> Timestamp {
        self.0.wall() + self.1
    }
}

impl Environment for Ahead {
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()> {
        self.0.sleep_until(at)
    }

    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle {
        self.0.spawn(task)
    }

    fn random(&self) -> u64 {
        self.0.random()
    }
}

async fn start(fleet: &mut TestFleet, name: &str, rules: Rules, recorder: &Recorder) {
    fleet.start(name, |host| host.rules(rules).processor(recorder.make())).await.unwrap();
}

/// The number of claims with this cause.
async fn claims(fleet: &TestFleet, cause: ClaimCause) -> usize {
    let changes = fleet.admin().history(None, 1_000).await.unwrap();
    changes.iter().filter(|change| change.reason == ChangeReason::Claimed(cause)).count()
}

#[tokio::test(start_paused = true)]
async fn a_wall_clock_that_is_ahead_kills_the_living() {
    for (ages_are_the_stores, is_taken) in [(true, false), (false, true)] {
        let mut fleet = TestFleet::new(16).unwrap();
        let rules = Rules { ages_are_the_stores, ..Rules::default() };
        let recorder = Recorder::new();
        start(&mut fleet, "a", rules, &recorder).await;
        fleet.until_balanced().await.unwrap();
        let ahead = Arc::new(Ahead(fleet.environment(), SECOND * 60));
        let started =
            fleet.start("b", |host| host.environment(ahead).rules(rules).processor(recorder.make()));
        started.await.unwrap();
        fleet.pass(SECOND * 60).await;
        assert_eq!(claims(&fleet, ClaimCause::Expired).await > 0, is_taken);
    }
}

#[tokio::test(start_paused = true)]
async fn asks_in_the_owners_record_overwrite_each_other_and_end_in_steals() {
    for (asks_stand_in_the_askers_record, stolen) in [(true, false), (false, true)] {
        let mut fleet = TestFleet::new(8).unwrap();
        let rules = Rules { asks_stand_in_the_askers_record, ..Rules::default() };
        let recorder = Recorder::new();
        start(&mut fleet, "a", rules, &recorder).await;
        fleet.until_balanced().await.unwrap();
        start(&mut fleet, "b", rules, &recorder).await;
        fleet.until_balanced().await.unwrap();
        let changes = fleet.admin().history(None, 1_000).await.unwrap();
        let handed = changes.iter().filter(|change| change.reason == ChangeReason::HandedOver).count();
        assert!(handed > 0, "an ask that nothing overwrites is heard");
        assert_eq!(claims(&fleet, ClaimCause::Unresponsive).await > 0, stolen, "{changes:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_share_of_who_cannot_serve_leaves_partitions_to_nobody() {
    for (unhealthy_hosts_do_not_count, share) in [(true, 4), (false, 2)] {
        let mut fleet = TestFleet::new(4).unwrap();
        let rules = Rules { unhealthy_hosts_do_not_count, ..Rules::default() };
        let bad = Recorder::scripted(|_, call| async move {
            if call == Call::Open { Err("no disk".into()) } else { Ok(()) }
        });
        start(&mut fleet, "bad", rules, &bad).await;
        fleet.until("unhealthy", || fleet.snapshot("bad").state == HostState::Unhealthy).await.unwrap();
        start(&mut fleet, "good", rules, &Recorder::new()).await;
        fleet.until("a scan", || fleet.snapshot("good").scans > 0).await.unwrap();
        assert_eq!(fleet.snapshot("good").share, share);
        assert!(fleet.snapshot("good").partitions.len() <= share as usize);
    }
}

#[tokio::test(start_paused = true)]
async fn a_seek_that_keeps_the_epoch_is_undone() {
    use ephor::admin::{SeekMode, SeekTo};
    use ephor::memory::MemoryStore;
    for (seeks_take_a_new_epoch, epochs) in [(true, 2), (false, 1)] {
        let fleet = TestFleet::new(1).unwrap();
        let rules = Rules { seeks_take_a_new_epoch, ..Rules::default() };
        let store = MemoryStore::new(Arc::new(Ahead(fleet.environment(), Duration::ZERO))).with_rules(rules);
        let mut fleet = fleet.with_store(Arc::new(store));
        start(&mut fleet, "a", rules, &Recorder::new()).await;
        fleet.until_balanced().await.unwrap();
        fleet.admin().seek(&[PartitionId(0)], &SeekTo::Earliest, SeekMode::Apply).await.unwrap();
        let lease = fleet.admin().leases().await.unwrap().remove(0);
        assert_eq!((lease.owner, lease.epoch.get()), (None, epochs));
    }
}
