//! Tests of hubs that do not fence readers, where the lease decides who owns the partition: a group that is
//! shared with processors of other SDKs, which all read with epoch 0, so that the last one that attached is
//! served; and a source that does not fence readers.

use std::sync::Arc;

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{P0, events, millis, owner, seconds, send, start, until_finished};
use crate::common::faulty_store::{FaultyStore, Op, Trouble};
use ephor::{CloseReason, Epoch, EventSource, HostId, PartitionId, PumpState, Receiver, StartPosition};
use ephor_core::ids::Incarnation;
use ephor_core::lease::{ClaimCause, ClaimRequest};
use ephor_core::source::{OpenError, OpenRequest, ReceiveError};
use ephor_core::store::{ClaimOutcome, RenewalOutcome};
use ephor_testkit::TestFleet;
use futures_util::FutureExt;

/// A fleet of one partition whose store is shared with other SDKs, and that store, to make it fail.
fn mixed() -> (TestFleet, ActionRecorder, FaultyStore) {
    let fleet = TestFleet::new(1).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store().without_wakes().with_other_sdks()));
    (fleet.with_store(Arc::new(store.clone())), recorder, store)
}

/// A fleet of one partition whose hub does not fence readers, and its store, to make it fail.
fn unfenced() -> (TestFleet, ActionRecorder, FaultyStore) {
    let fleet = TestFleet::new(1).unwrap().without_fencing();
    let recorder = ActionRecorder::new(&fleet);
    let store = FaultyStore::new(Arc::new(recorder.store().without_wakes()));
    (fleet.with_store(Arc::new(store.clone())), recorder, store)
}

async fn running(fleet: &mut TestFleet, recorder: &ActionRecorder) {
    start(fleet, "a", recorder.options(), &recorder.scribe()).await;
    send(fleet, P0, 5);
    until_finished(fleet, recorder, P0, 4).await;
}

async fn open(fleet: &TestFleet, epoch: Option<u64>) -> Result<Box<dyn Receiver>, OpenError> {
    let request = OpenRequest {
        group: fleet.group().group.clone(),
        partition: P0,
        start: StartPosition::Latest,
        epoch: epoch.map(Epoch::from_stored),
        receiver: "other-sdk".into(),
        prefetch_events: 1,
        prefetch_bytes: 1,
    };
    fleet.hub().open(request).await
}

/// Attaches the other SDK's processor, with epoch 0.
async fn attach(fleet: &TestFleet) -> Box<dyn Receiver> {
    open(fleet, Some(0)).await.unwrap()
}

/// True if another reader has taken its place.
fn disconnected(receiver: &mut dyn Receiver) -> bool {
    let received = receiver.receive(&mut vec![], 1).now_or_never();
    matches!(received, Some(Err(ReceiveError::Disconnected { .. })))
}

/// True if any receiver reads with an epoch, even with 0. The check disconnects nobody.
async fn is_read(fleet: &TestFleet) -> bool {
    open(fleet, None).await.is_err()
}

/// The other SDK's processor takes the lease without asking.
async fn take(fleet: &TestFleet, partition: PartitionId) {
    let view = fleet.store().view(fleet.group()).await.unwrap();
    let request = ClaimRequest {
        partition,
        host: HostId { name: "other-sdk".parse().unwrap(), incarnation: Incarnation(0) },
        duration: seconds(60),
        seen: view.lease(partition).map(|lease| lease.version.clone()),
        above: Epoch::NONE,
        cause: ClaimCause::Unowned,
    };
    let claim = fleet.store().claim(fleet.group(), &request).await.unwrap();
    assert!(matches!(claim, ClaimOutcome::Won { .. }), "{claim:?}");
}

#[tokio::test(start_paused = true)]
async fn another_sdk_that_took_the_lease_gets_the_partition_and_is_not_disturbed() {
    let (mut fleet, recorder, _) = mixed();
    running(&mut fleet, &recorder).await;
    take(&fleet, P0).await;
    let mut other_sdk = attach(&fleet).await;
    let attached = recorder.now();
    fleet.until("not closed", || !recorder.closings(P0).is_empty()).await.unwrap();
    assert!(recorder.now().since(attached) < millis(100), "the hub told, not the next renewal");
    assert_eq!(recorder.closings(P0), [CloseReason::LeaseLost]);
    fleet.pass(seconds(50)).await;
    assert!(!disconnected(&mut *other_sdk));
    assert!(recorder.all_reports().is_empty(), "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn a_link_that_is_lost_is_not_made_again_once_the_lease_is_another_sdks() {
    let (mut fleet, recorder, _) = mixed();
    running(&mut fleet, &recorder).await;
    take(&fleet, P0).await;
    assert!(is_read(&fleet).await, "nobody has told the host yet");
    fleet.hub().disconnect(P0).unwrap();
    for _ in 0..200 {
        fleet.pass(millis(10)).await;
        assert!(!is_read(&fleet).await);
    }
    assert_eq!(recorder.closings(P0), [CloseReason::LeaseLost]);
}

#[tokio::test(start_paused = true)]
async fn another_sdk_that_comes_late_is_named_and_the_partition_read_again_under_the_same_lease() {
    let (mut fleet, recorder, _) = mixed();
    running(&mut fleet, &recorder).await;
    let epoch = recorder.context(P0).epoch();
    let mut other_sdk = attach(&fleet).await;
    fleet.pass(millis(500)).await;
    assert!(!disconnected(&mut *other_sdk), "not at once: it may be about to leave");
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 9).await;
    assert!(disconnected(&mut *other_sdk));
    let reports = recorder.reports("Displaced");
    assert_eq!(reports.len(), 1, "{:?}", recorder.all_reports());
    assert!(reports[0].text.contains("another reader (other-sdk) took our place"), "{reports:?}");
    assert_eq!(recorder.delivered(P0), events(0, 9), "each once");
    assert_eq!((recorder.closings(P0), recorder.context(P0).epoch()), (vec![], epoch));
}

#[tokio::test(start_paused = true)]
async fn a_reader_that_insists_is_given_way_to_for_a_while() {
    let (mut fleet, recorder, _) = mixed();
    running(&mut fleet, &recorder).await;
    let mut other_sdk = attach(&fleet).await;
    let mut came_back = 0;
    let end = recorder.now() + seconds(120);
    fleet.pass(millis(10)).await;
    while recorder.closings(P0).is_empty() && recorder.now() < end {
        if disconnected(&mut *other_sdk) {
            came_back += 1;
            other_sdk = attach(&fleet).await;
        }
        fleet.pass(millis(10)).await;
    }
    assert_eq!((came_back, recorder.reports("Displaced").len()), (5, 5));
    assert_eq!(recorder.closings(P0), [CloseReason::SourceFailed]);
    assert_eq!(recorder.reports("ForeignReader").len(), 0);
    fleet.pass(seconds(50)).await;
    assert!(!disconnected(&mut *other_sdk));
    assert_eq!(owner(&fleet, P0).await, None, "whoever else wants it may have it");
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 9).await;
}

#[tokio::test(start_paused = true)]
async fn a_reader_with_an_epoch_is_waited_for_and_no_epoch_is_claimed_above_its_own() {
    let (mut fleet, recorder, _) = mixed();
    running(&mut fleet, &recorder).await;
    let epoch = recorder.context(P0).epoch();
    let with_epoch = open(&fleet, Some(50)).await.unwrap();
    send(&fleet, P0, 5);
    fleet.pass(seconds(4)).await;
    assert!(!recorder.finished(P0).contains(&5));
    drop(with_epoch);
    until_finished(&fleet, &recorder, P0, 9).await;
    assert_eq!((recorder.delivered(P0), recorder.closings(P0)), (events(0, 9), vec![]));
    assert_eq!(recorder.context(P0).epoch(), epoch);
}

#[tokio::test(start_paused = true)]
async fn a_store_that_cannot_say_whose_it_is_keeps_the_host_from_the_hub() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let (mut fleet, recorder, store) = mixed();
        running(&mut fleet, &recorder).await;
        store.trouble(Op::Renew, trouble);
        fleet.hub().disconnect(P0).unwrap();
        send(&fleet, P0, 5);
        for _ in 0..100 {
            fleet.pass(millis(100)).await;
            assert!(!is_read(&fleet).await, "{trouble:?}");
        }
        store.heal();
        until_finished(&fleet, &recorder, P0, 9).await;
        assert_eq!((recorder.delivered(P0), recorder.closings(P0)), (events(0, 9), vec![]), "{trouble:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_host_past_its_own_deadline_does_not_come_back_to_the_hub() {
    let (mut fleet, recorder, store) = mixed();
    running(&mut fleet, &recorder).await;
    store.trouble(Op::Renew, Trouble::Fails);
    fleet.hub().disconnect(P0).unwrap();
    fleet.until("not closed", || !recorder.closings(P0).is_empty()).await.unwrap();
    assert_eq!(recorder.closings(P0), [CloseReason::LeaseLost], "past its own deadline");
    assert_eq!(recorder.reports("SelfFenced").len(), 1);
    assert!(!is_read(&fleet).await);
}

#[tokio::test(start_paused = true)]
async fn owners_without_a_record_count_and_are_taken_from_until_all_have_their_share() {
    let fleet = TestFleet::new(8).unwrap();
    let recorder = ActionRecorder::new(&fleet);
    let store = recorder.store().without_wakes().with_other_sdks();
    let mut fleet = fleet.with_store(Arc::new(store));
    for partition in (0..8).map(PartitionId) {
        take(&fleet, partition).await;
    }
    let other_sdk = {
        let (store, group, environment) = (fleet.store().clone(), fleet.group().clone(), fleet.environment());
        async move {
            loop {
                let view = store.view(&group).await.unwrap();
                let held = view.leases.iter().filter_map(|lease| lease.token());
                let held: Vec<_> = held.filter(|token| token.owner.name.as_str() == "other-sdk").collect();
                let renewals = store.renew(&group, seconds(60), &held).await.unwrap();
                assert!(renewals.iter().all(|renewal| *renewal == RenewalOutcome::Renewed));
                environment.sleep_until(environment.now() + seconds(10)).await;
            }
        }
    };
    let _other_sdk = fleet.environment().spawn(Box::pin(other_sdk));
    for name in ["a", "b"] {
        start(&mut fleet, name, recorder.options(), &recorder.scribe()).await;
    }
    let owned = |name: &str| fleet.snapshot(name).partitions.len();
    fleet.until("no share", || owned("a") + owned("b") == 5).await.unwrap();
    assert!(owned("a").abs_diff(owned("b")) == 1);
    let moves = |recorder: &ActionRecorder| {
        recorder.entries().iter().filter(|entry| matches!(entry.what, What::Changed(_))).count()
    };
    let before = moves(&recorder);
    fleet.pass(seconds(300)).await;
    assert_eq!(moves(&recorder), before, "and then it rests");
    let states = fleet.snapshot("a").partitions.into_iter().map(|owned| owned.state);
    assert!(states.eq([PumpState::Running; 3].into_iter().take(owned("a"))));
}

#[tokio::test(start_paused = true)]
async fn a_fleet_on_a_source_that_does_not_fence_delivers_each_event_once_while_hosts_come_and_go() {
    let fleet = TestFleet::new(4).unwrap().without_fencing();
    let recorder = ActionRecorder::new(&fleet);
    let store = recorder.store();
    let mut fleet = fleet.with_store(Arc::new(store));
    let partitions = || (0..4).map(PartitionId);
    let mut last = 0;
    for step in ["start a", "start b", "start c", "stop a", "stop b"] {
        match step.split_once(' ') {
            Some(("start", name)) => start(&mut fleet, name, recorder.options(), &recorder.scribe()).await,
            Some((_, name)) => assert!(fleet.stop(name).await.is_clean()),
            None => unreachable!(),
        }
        last = partitions().map(|partition| send(&fleet, partition, 10)).max().unwrap();
        fleet.until_balanced().await.unwrap();
        fleet.until_caught_up().await.unwrap();
    }
    for partition in partitions() {
        assert_eq!(recorder.delivered(partition), events(0, last), "{partition}: each once, in order");
    }
    assert!(recorder.all_reports().is_empty(), "{:?}", recorder.all_reports());
}

#[tokio::test(start_paused = true)]
async fn without_fencing_a_lost_link_is_not_made_again_once_another_host_has_the_lease() {
    let (mut fleet, recorder, _) = unfenced();
    running(&mut fleet, &recorder).await;
    take(&fleet, P0).await;
    fleet.hub().disconnect(P0).unwrap();
    send(&fleet, P0, 5);
    fleet.until("not closed", || !recorder.closings(P0).is_empty()).await.unwrap();
    assert_eq!((recorder.closings(P0), recorder.delivered(P0)), (vec![CloseReason::LeaseLost], events(0, 4)));
}

#[tokio::test(start_paused = true)]
async fn without_fencing_a_store_that_cannot_say_whose_it_is_keeps_the_host_from_the_hub() {
    for trouble in [Trouble::Fails, Trouble::Hangs] {
        let (mut fleet, recorder, store) = unfenced();
        running(&mut fleet, &recorder).await;
        store.trouble(Op::Renew, trouble);
        fleet.hub().disconnect(P0).unwrap();
        send(&fleet, P0, 5);
        fleet.pass(seconds(10)).await;
        assert_eq!(recorder.delivered(P0), events(0, 4), "{trouble:?}");
        store.heal();
        until_finished(&fleet, &recorder, P0, 9).await;
        assert_eq!((recorder.delivered(P0), recorder.closings(P0)), (events(0, 9), vec![]), "{trouble:?}");
    }
}
