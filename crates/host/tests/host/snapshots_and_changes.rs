//! Tests of monitoring a host: snapshots, ownership changes, and the context of a partition.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use crate::recording_processor::{Call, Recorder};
use ephor::admin::{SeekMode, SeekTo};
use ephor::{
    Checkpointed, CloseReason, EventProcessorHost, EventProcessorOptions, FailurePolicy, HostState, Lag,
    OwnershipEvent, OwnershipReason, PartitionContext, PartitionId, PumpState,
};
use ephor_core::lease::{ClaimCause, ReleaseCause};
use ephor_testkit::TestFleet;
use futures_util::FutureExt;

const P0: PartitionId = PartitionId(0);
const SECOND: Duration = Duration::from_secs(1);

fn everything_said(changes: &mut ephor::OwnershipChanges) -> Vec<OwnershipEvent> {
    std::iter::from_fn(|| changes.next().now_or_never().flatten()).collect()
}

/// Hangs at this event until the end of the test.
fn hangs_at(event: u64) -> Recorder {
    Recorder::scripted(move |_, call| async move {
        if call == Call::Batch(vec![event]) {
            std::future::pending::<()>().await;
        }
        Ok(())
    })
}

fn one_by_one() -> EventProcessorOptions {
    EventProcessorOptions { max_batch_size: 1, ..EventProcessorOptions::default() }
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_what_is_owned_since_when_why_and_how_far_it_is() {
    let mut fleet = TestFleet::new(2).unwrap();
    let environment = fleet.environment();
    let recorder = hangs_at(2);
    fleet.pass(SECOND * 100).await;
    let began = environment.wall();
    for n in 0..5 {
        fleet.hub().send(P0, format!("event {n}")).unwrap();
        fleet.pass(SECOND).await;
    }
    let host = |host: ephor::HostBuilder| host.options(one_by_one()).processor(recorder.make());
    fleet.start("a", host).await.unwrap();
    let started = environment.wall();
    fleet.until("in the third call", || recorder.delivered(0) == [0, 1, 2]).await.unwrap();
    fleet.pass(SECOND * 42).await;
    let all = fleet.snapshot("a");
    assert_eq!((all.host.name.as_str(), all.state, all.share), ("a", HostState::Active, 2));
    assert_eq!((all.hosts_alive, all.hub_partitions), (1, 2));
    assert!(all.scans >= 8, "{}", all.scans);
    assert_eq!((all.statistics.owned, all.statistics.events, all.statistics.failures), (2, 2, 0));
    assert_eq!(all.statistics.lag_events, 3);
    assert_eq!(all.store_failing_for, None);
    assert!(!all.is_standby());
    let ids: Vec<u32> = all.partitions.iter().map(|owned| owned.partition.0).collect();
    assert_eq!(ids, [0, 1], "in order");

    let busy = &all.partitions[0];
    assert!((started..started + SECOND).contains(&busy.since), "{:?}", busy.since);
    assert!(busy.since > began);
    assert_eq!(busy.reason, OwnershipReason::Claimed(ClaimCause::Unowned));
    assert_eq!((busy.state, busy.stuck), (PumpState::Running, false));
    let in_call = busy.in_call_for.unwrap();
    assert!((SECOND * 42..SECOND * 43).contains(&in_call), "{in_call:?}");
    assert!((SECOND * 10..=SECOND * 27).contains(&busy.lease_left), "{:?}", busy.lease_left);
    assert_eq!((busy.finished.map(|event| event.0), busy.events), (Some(1), 2));
    assert_eq!(busy.checkpoint, None);
    assert_eq!((busy.lag.events, busy.lag.time), (3, SECOND * 3));

    let idle = &all.partitions[1];
    assert_eq!((idle.state, idle.in_call_for, idle.finished), (PumpState::Running, None, None));
    assert_eq!(idle.lag, Lag::default());
}

#[tokio::test(start_paused = true)]
async fn a_snapshot_shows_the_checkpoint_and_that_a_standby_stands_by() {
    let mut fleet = TestFleet::new(1).unwrap();
    fleet.hub().send(P0, "event").unwrap();
    let manual = |context: PartitionContext, _| async move {
        let _ = context.checkpoint().await?;
        Ok(())
    };
    fleet.start("a", |host| host.for_each_batch(manual)).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    fleet.start("b", |host| host.for_each_batch(manual)).await.unwrap();
    fleet.pass(SECOND * 20).await;
    let owned = fleet.snapshot("a").partitions[0].clone();
    let saved = owned.checkpoint.unwrap();
    assert_eq!((saved.position.finished(), saved.epoch), (owned.finished, owned.epoch));
    let standby = fleet.snapshot("b");
    assert!(standby.is_standby());
    assert_eq!((standby.share, standby.hosts_alive, standby.partitions.len()), (0, 2, 0));
}

#[tokio::test(start_paused = true)]
async fn changes_tell_of_a_claim_and_a_release() {
    let fleet = TestFleet::new(1).unwrap();
    let environment = fleet.environment();
    let host = EventProcessorHost::builder(fleet.hub().clone(), fleet.store().clone())
        .environment(environment.clone())
        .host_name("a")
        .for_each_event(|_, _| async { Ok(()) })
        .unwrap();
    let mut changes = host.changes();
    host.start().await.unwrap();
    let came = changes.next().await.unwrap();
    let owned = host.snapshot().unwrap();
    let me = owned.host.clone();
    let epoch = owned.partitions[0].epoch;
    let reason = OwnershipReason::Claimed(ClaimCause::Unowned);
    assert_eq!((came.partition, came.epoch, &came.reason), (P0, epoch, &reason));
    assert_eq!((&came.from, &came.to), (&None, &Some(me.clone())));
    assert_eq!(came.at, owned.partitions[0].since);
    assert_eq!(came.to_string(), format!("partition 0 from nobody to a in epoch {epoch}: unowned"));
    fleet.pass(SECOND * 60).await;
    assert_eq!(everything_said(&mut changes), [], "nothing changes, nothing is said");
    host.stop(SECOND).await.unwrap();
    let went = changes.next().await.unwrap();
    let reason = OwnershipReason::Released(ReleaseCause::Shutdown);
    assert_eq!((went.partition, went.epoch, &went.reason), (P0, epoch, &reason));
    assert_eq!((&went.from, &went.to), (&Some(me), &None));
    assert_eq!(went.at, environment.wall());
    drop(host);
    assert_eq!(changes.next().await, None, "it ends with the host");
}

#[tokio::test(start_paused = true)]
async fn changes_tell_both_ends_of_a_handover() {
    let mut fleet = TestFleet::new(2).unwrap();
    fleet.start("a", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    fleet.until_balanced().await.unwrap();
    let mut at_a = fleet.host("a").changes();
    let mut at_b = None;
    fleet
        .start("b", |host| {
            let host = host.for_each_event(|_, _| async { Ok(()) })?;
            at_b = Some(host.changes());
            Ok(host)
        })
        .await
        .unwrap();
    fleet.until_balanced().await.unwrap();
    fleet.pass(SECOND * 30).await;
    let (a, b) = (fleet.snapshot("a").host, fleet.snapshot("b").host);
    let gave = everything_said(&mut at_a);
    let got = everything_said(at_b.as_mut().unwrap());
    assert_eq!((gave.len(), got.len()), (1, 1), "{gave:?} {got:?}");
    let (gave, got) = (&gave[0], &got[0]);
    assert_eq!(gave.partition, got.partition);
    assert_eq!(
        (&gave.from, &gave.to, gave.reason),
        (&Some(a), &Some(b.clone()), OwnershipReason::HandedOver)
    );
    assert_eq!((&got.to, got.reason), (&Some(b), OwnershipReason::Received));
    assert!(got.epoch > gave.epoch, "a had it in the epoch before");
}

#[tokio::test(start_paused = true)]
async fn changes_tell_that_a_dead_hosts_lease_ran_out_and_whose_it_was() {
    let mut fleet = TestFleet::new(1).unwrap();
    fleet.start("a", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    fleet.until_balanced().await.unwrap();
    let a = fleet.snapshot("a").host;
    fleet.start("b", |host| host.for_each_event(|_, _| async { Ok(()) })).await.unwrap();
    let mut changes = fleet.host("b").changes();
    fleet.kill("a");
    let came = changes.next().await.unwrap();
    assert_eq!((came.from, came.reason), (Some(a), OwnershipReason::Claimed(ClaimCause::Expired)));
}

#[tokio::test(start_paused = true)]
async fn changes_tell_of_a_seek_and_of_a_failure() {
    let mut fleet = TestFleet::new(1).unwrap();
    let options = EventProcessorOptions {
        failure: FailurePolicy::Close { pause: SECOND },
        ..EventProcessorOptions::default()
    };
    fleet
        .start("a", |host| host.options(options).for_each_event(|_, _| async { Err("bad".into()) }))
        .await
        .unwrap();
    fleet.until_balanced().await.unwrap();
    let mut changes = fleet.host("a").changes();
    fleet.admin().seek(&[P0], &SeekTo::Earliest, SeekMode::Apply).await.unwrap();
    fleet.pass(SECOND * 10).await;
    fleet.hub().send(P0, "event").unwrap();
    fleet.pass(Duration::from_millis(100)).await;
    let reasons: Vec<OwnershipReason> = everything_said(&mut changes).iter().map(|one| one.reason).collect();
    let expected = [
        OwnershipReason::Lost(CloseReason::Seek),
        OwnershipReason::Claimed(ClaimCause::Unowned),
        OwnershipReason::Released(ReleaseCause::ProcessorFailed),
    ];
    assert_eq!(reasons, expected);
}

#[tokio::test(start_paused = true)]
async fn a_context_knows_its_partition_its_host_and_its_epoch() {
    let mut fleet = TestFleet::new(2).unwrap();
    let seen: Arc<Mutex<Option<PartitionContext>>> = Arc::default();
    let kept = seen.clone();
    fleet.hub().create_group("alarms").unwrap();
    fleet.hub().send(PartitionId(1), "event").unwrap();
    let keep = move |context: PartitionContext, _| {
        *kept.lock().unwrap() = Some(context);
        async { Ok(()) }
    };
    fleet.start("a", |host| host.consumer_group("alarms").for_each_event(keep)).await.unwrap();
    fleet.until("delivered", || seen.lock().unwrap().is_some()).await.unwrap();
    let context = seen.lock().unwrap().take().unwrap();
    assert_eq!(context.namespace().as_str(), "memory");
    assert_eq!(context.hub().as_str(), "test");
    assert_eq!(context.consumer_group().as_str(), "alarms");
    assert_eq!(context.partition(), PartitionId(1));
    let snapshot = fleet.snapshot("a");
    assert_eq!(*context.host(), snapshot.host);
    assert_eq!(context.epoch(), snapshot.partitions[1].epoch);
    assert_eq!(context.last_checkpoint(), None);
    assert!(!context.is_cancelled());
    assert!(context.cancelled().now_or_never().is_none());
    fleet.stop("a").await;
    assert!(context.is_cancelled());
    context.cancelled().await;
    let saved = context.last_checkpoint().unwrap();
    assert_eq!(saved.position.finished().map(|event| event.0), Some(0), "the final checkpoint");
    assert!(
        context.checkpoint().await.unwrap().is_refused(),
        "a clone that outlives the ownership is harmless"
    );
}

#[tokio::test(start_paused = true)]
async fn a_context_says_how_far_behind_it_is() {
    let mut fleet = TestFleet::new(1).unwrap();
    let lags: Arc<Mutex<Vec<u64>>> = Arc::default();
    let log = lags.clone();
    for n in 0..4 {
        fleet.hub().send(P0, format!("event {n}")).unwrap();
    }
    let note = move |context: PartitionContext, _| {
        log.lock().unwrap().push(context.lag().events);
        async { Ok(()) }
    };
    fleet.start("a", |host| host.options(one_by_one()).for_each_batch(note)).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(*lags.lock().unwrap(), [4, 3, 2, 1], "what is being processed is not finished");
    assert_eq!(fleet.snapshot("a").partitions[0].lag, Lag::default());
}

#[tokio::test(start_paused = true)]
async fn a_checkpoint_is_written_only_for_what_was_delivered() {
    let outcomes: Arc<Mutex<Vec<String>>> = Arc::default();
    let log = outcomes.clone();
    let recorder = Recorder::scripted(move |context: PartitionContext, call| {
        let log = log.clone();
        async move {
            if call == Call::Open {
                let early = context.checkpoint().await;
                log.lock().unwrap().push(format!("{:?}", early.unwrap()));
            }
            if let Call::Batch(_) = call {
                assert!(matches!(context.checkpoint().await?, Checkpointed::Saved(_)));
                assert!(matches!(context.checkpoint().await?, Checkpointed::Unchanged(_)));
                log.lock().unwrap().push("saved".into());
            }
            Ok(())
        }
    });
    let mut fleet = TestFleet::new(1).unwrap();
    fleet.hub().send(P0, "event").unwrap();
    fleet.start("a", |host| host.processor(recorder.make())).await.unwrap();
    fleet.until_caught_up().await.unwrap();
    assert_eq!(*outcomes.lock().unwrap(), ["Nothing", "saved"]);
}
