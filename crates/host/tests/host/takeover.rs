//! Tests of takeovers: from unresponsive owners, and from foreign readers up to a maximum number of times.
//! Also tests the maximum number of partitions of a host.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex};

use crate::common::action_recorder::{ActionRecorder, What};
use crate::common::action_recorder::{P0, events, millis, seconds, send, start, start_with, until_finished};
use ephor::environment::TaskHandle;
use ephor::{
    CloseReason, Epoch, EventSource, HostId, HostState, HostStatistics, Monotonic, PartitionId,
    PartitionManagerOptions, PumpState, Receiver, StartPosition,
};
use ephor_core::history::ChangeReason;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::Incarnation;
use ephor_core::lease::{ClaimCause, ClaimRequest, LeaseToken};
use ephor_core::source::OpenRequest;
use ephor_core::store::{ClaimOutcome, RenewalOutcome};
use ephor_testkit::TestFleet;

/// A host that renews and writes heartbeats, but never answers requests. Reports the time of the
/// last renewal of each of its leases.
struct Silent {
    renewed: Arc<Mutex<BTreeMap<PartitionId, Monotonic>>>,
    _task: TaskHandle,
}

impl Silent {
    async fn owning(fleet: &TestFleet, partitions: u32) -> Self {
        let id = HostId { name: "silent".parse().unwrap(), incarnation: Incarnation(1) };
        let (store, group) = (fleet.store().clone(), fleet.group().clone());
        let mut tokens = vec![];
        for partition in (0..partitions).map(PartitionId) {
            let request = ClaimRequest {
                partition,
                host: id.clone(),
                duration: seconds(30),
                seen: None,
                above: Epoch::NONE,
                cause: ClaimCause::Unowned,
            };
            let ClaimOutcome::Won { token, .. } = store.claim(&group, &request).await.unwrap() else {
                panic!()
            };
            tokens.push(token);
        }
        let renewed = Arc::new(Mutex::new(BTreeMap::new()));
        let (noted, environment) = (renewed.clone(), fleet.environment());
        let task = async move {
            for beat in 0.. {
                store.heartbeat(&group, &record(&id, beat)).await.unwrap();
                let held: Vec<LeaseToken> = std::mem::take(&mut tokens);
                let renewals = store.renew(&group, seconds(30), &held).await.unwrap();
                for (token, renewal) in held.into_iter().zip(renewals) {
                    if renewal == RenewalOutcome::Renewed {
                        noted.lock().unwrap().insert(token.partition, environment.now());
                        tokens.push(token);
                    }
                }
                environment.sleep_until(environment.now() + seconds(7)).await;
            }
        };
        Self { renewed, _task: fleet.environment().spawn(Box::pin(task)) }
    }

    fn last_renewed(&self, partition: PartitionId) -> Monotonic {
        self.renewed.lock().unwrap()[&partition]
    }
}

fn record(id: &HostId, beat: u64) -> HostRecord {
    HostRecord {
        id: id.clone(),
        beat,
        state: HostState::Active,
        lease_duration: seconds(30),
        max_partitions: None,
        wants: vec![],
        answers: vec![],
        statistics: HostStatistics::default(),
        software: "none of ours".into(),
        hub: None,
    }
}

#[tokio::test(start_paused = true)]
async fn the_lease_of_an_owner_that_never_answers_is_stolen_and_its_time_is_waited_out() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
    let silent = Silent::owning(&fleet, 2).await;
    for partition in [0, 1].map(PartitionId) {
        send(&fleet, partition, 5);
    }
    fleet.pass(seconds(3)).await;
    let asked = recorder.now();
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    let stolen = |what: &What| *what == What::Changed(ChangeReason::Claimed(ClaimCause::Unresponsive));
    fleet.until("nothing is stolen", || recorder.first(|e| stolen(&e.what)).is_some()).await.unwrap();
    let steal = recorder.first(|entry| stolen(&entry.what)).unwrap();
    let waited = steal.at.since(asked);
    assert!(waited >= seconds(30) && waited < seconds(32), "handover_timeout first: {waited:?}");
    assert_eq!(steal.epoch, Epoch::from_stored(2), "in a higher epoch");
    fleet.pass(millis(10)).await;
    let owned = &fleet.snapshot("a").partitions[0];
    assert_eq!((owned.partition, owned.state), (steal.partition, PumpState::Waiting));
    until_finished(&fleet, &recorder, steal.partition, 4).await;
    let first = recorder.first(|entry| matches!(entry.what, What::Delivered(_))).unwrap();
    let delay = first.at.since(silent.last_renewed(steal.partition));
    assert!(delay >= seconds(30), "delivered {delay:?} after the victim's last renewal");
    assert!(delay < seconds(31), "{delay:?}");
    fleet.pass(seconds(120)).await;
    let steals = recorder.entries().into_iter().filter(|entry| stolen(&entry.what)).count();
    assert_eq!(steals, 1, "each has its share now, and nothing more is stolen");
}

/// Opens a foreign reader.
pub(crate) async fn intrude(fleet: &TestFleet, epoch: u64) -> Box<dyn Receiver> {
    let request = OpenRequest {
        group: fleet.group().group.clone(),
        partition: P0,
        start: StartPosition::Latest,
        epoch: Some(Epoch::from_stored(epoch)),
        receiver: "intruder".into(),
        prefetch_events: 1,
        prefetch_bytes: 1,
    };
    fleet.hub().open(request).await.unwrap()
}

#[tokio::test(start_paused = true)]
async fn a_foreign_reader_is_named_and_the_partition_claimed_back_above_its_epoch() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 4).await;
    let intruder = intrude(&fleet, 50).await;
    let began = recorder.now();
    fleet.until("not claimed back", || recorder.context(P0).epoch() > Epoch::from_stored(50)).await.unwrap();
    let took = recorder.now().since(began);
    assert!(took < seconds(6), "{took:?}");
    assert_eq!(recorder.closings(P0), [CloseReason::Disconnected]);
    let reports = recorder.reports("ForeignReader");
    assert_eq!(reports.len(), 1, "{:?}", recorder.all_reports());
    assert!(reports[0].text.contains("(intruder) took it with epoch 50"), "{reports:?}");
    let cause = ChangeReason::Claimed(ClaimCause::AboveForeignReader);
    assert!(recorder.first(|entry| entry.what == What::Changed(cause.clone())).is_some());
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 9).await;
    drop(intruder);
    // Afterwards it is quiet: after a minute the failures are forgotten.
    fleet.pass(seconds(120)).await;
    assert_eq!(recorder.reports("ForeignReader").len(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_foreign_reader_that_insists_is_fought_five_times_and_then_left_alone_for_a_while() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(2)).await;
    let mut intruders = vec![];
    let mut taken = vec![];
    let mut last = Epoch::NONE;
    // Whenever the host is back, the foreign reader comes again with a higher epoch.
    let end = recorder.now() + seconds(110);
    while recorder.now() < end {
        let epoch = recorder.context(P0).epoch();
        if epoch > last {
            fleet.pass(millis(50)).await;
            last = epoch;
            taken.push(recorder.now());
            intruders.push(intrude(&fleet, epoch.get() + 10).await);
        }
        fleet.pass(millis(10)).await;
    }
    let attempts = recorder.reports("ForeignReader");
    assert_eq!(attempts.len(), 5, "{attempts:?}");
    for (report, attempt) in attempts.iter().zip(1..) {
        assert!(report.text.ends_with(&format!("attempt {attempt}")), "{report:?}");
    }
    // The first time, five times back, and once more after a long pause.
    assert_eq!(taken.len(), 7, "{taken:?}");
    let pauses: Vec<_> = taken.windows(2).map(|pair| pair[1].since(pair[0])).collect();
    assert!(pauses[..5].iter().all(|pause| *pause < seconds(14)), "{pauses:?}");
    assert!(pauses[5] >= seconds(60), "{pauses:?}");
}

#[tokio::test(start_paused = true)]
async fn a_foreign_reader_beyond_reach_is_named_waited_for_and_survived() {
    for epoch in [(1 << 62) + 1, i64::MAX as u64 - 1, i64::MAX as u64, u64::MAX] {
        let (mut fleet, recorder) = ActionRecorder::with_fleet(2);
        start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
        send(&fleet, P0, 5);
        until_finished(&fleet, &recorder, P0, 4).await;
        let intruder = intrude(&fleet, epoch).await;
        send(&fleet, P0, 5);
        send(&fleet, PartitionId(1), 5);
        fleet.pass(seconds(120)).await;
        assert!(recorder.reports("TaskPanicked").is_empty(), "{:?}", recorder.all_reports());
        assert_eq!(recorder.finished(PartitionId(1)), events(0, 4), "the other partition is served");
        assert_eq!(recorder.finished(P0), events(0, 4), "that reader has the partition");
        let reports = recorder.reports("ForeignReaderBeyondReach");
        let wanted = format!("(intruder) holds it with epoch {epoch}");
        assert!(reports.len() >= 6, "it is told again and again: {:?}", recorder.all_reports());
        assert!(reports.iter().all(|report| report.text.contains(&wanted)), "{reports:?}");
        assert!(reports[0].text.contains("stop that reader"), "{reports:?}");
        assert!(reports.len() < 15, "but not in a hurry: {reports:?}");
        drop(intruder);
        until_finished(&fleet, &recorder, P0, 9).await;
        let epoch = recorder.context(P0).epoch();
        assert!(epoch < Epoch::from_stored(100), "nobody climbed to {epoch}");
    }
}

#[tokio::test(start_paused = true)]
async fn the_highest_foreign_epoch_that_counts_leaves_room_for_hosts_for_ever() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(1);
    start(&mut fleet, "a", recorder.options(), &recorder.scribe()).await;
    fleet.pass(seconds(2)).await;
    let mut intruders = vec![intrude(&fleet, 1 << 62).await];
    let above = Epoch::from_stored((1 << 62) + 1);
    fleet.until("not claimed back", || recorder.context(P0).epoch() == above).await.unwrap();
    fleet.pass(millis(50)).await;
    // Equal to the owner's, and beyond the limit for foreign epochs; but the next epoch is above it
    // anyway.
    intruders.push(intrude(&fleet, above.get()).await);
    fleet.until("not claimed back", || recorder.context(P0).epoch() > above).await.unwrap();
    assert!(recorder.reports("ForeignReaderBeyondReach").is_empty(), "{:?}", recorder.all_reports());
    send(&fleet, P0, 5);
    until_finished(&fleet, &recorder, P0, 4).await;
}

#[tokio::test(start_paused = true)]
async fn no_host_owns_more_than_its_maximum_and_what_is_left_over_is_reported() {
    let (mut fleet, recorder) = ActionRecorder::with_fleet(8);
    let at_most =
        |n| PartitionManagerOptions { max_partitions: Some(n), ..PartitionManagerOptions::default() };
    for name in ["a", "b"] {
        start_with(&mut fleet, name, recorder.options(), at_most(3), &recorder.scribe()).await;
    }
    fleet.pass(seconds(60)).await;
    assert_eq!(["a", "b"].map(|name| fleet.snapshot(name).partitions.len()), [3, 3]);
    let reports = recorder.reports("PartitionsWithoutOwner");
    assert!(!reports.is_empty() && reports.len() <= 4, "it is said, and not again and again: {reports:?}");
    assert!(
        reports.iter().any(|report| report.text.starts_with("2 partitions have no owner")),
        "{reports:?}"
    );
    fleet.kill("a");
    fleet.pass(seconds(60)).await;
    assert_eq!(fleet.snapshot("b").partitions.len(), 3, "not even when another dies");
    start(&mut fleet, "c", recorder.options(), &recorder.scribe()).await;
    // Two are free; the three of the dead host count as expired after half a lease of watching.
    fleet.pass(seconds(20)).await;
    assert_eq!(["b", "c"].map(|name| fleet.snapshot(name).partitions.len()), [3, 5]);
    for partition in (0..8).map(PartitionId) {
        send(&fleet, partition, 2);
    }
    fleet.until_caught_up().await.unwrap();
    assert!((0..8).all(|n| recorder.finished(PartitionId(n)) == events(0, 1)));
}
