//! Test helper of the store suite: a store with a group of its own, and the store calls with which most
//! tests begin.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::checkpoint::Position;
use ephor_core::epoch::Epoch;
use ephor_core::host_record::{HostRecord, HostState, HostStatistics};
use ephor_core::ids::{GroupId, HostId, Incarnation, LogId, PartitionId};
use ephor_core::lease::{
    ClaimCause, ClaimRequest, Lease, LeaseToken, ReleaseCause, ReleaseRequest, TransferRequest,
};
use ephor_core::position::SequenceNumber;
use ephor_core::store::{
    Capabilities, ClaimOutcome, GiveUpOutcome, RenewalOutcome, SaveOutcome, SaveRequest, SeekOutcome,
    SeekRequest, Store, View,
};
use ephor_core::time::Timestamp;

use super::StoreFixture;

/// Long enough that no lease expires while a property runs.
pub(super) const LEASE: Duration = Duration::from_secs(600);

pub(super) const P: PartitionId = PartitionId(3);

/// Texts that a careless backend corrupts: quotes, separators, escapes, other scripts.
pub(super) const ODD_TEXTS: [&str; 6] =
    ["two words", "O'Brien \"the 3rd\"; --", "100% a%2Fb", "a/b\\c?d#e&f=g", "åäö 日本 🏠", "line\nbreak\t."];

pub(super) fn host(name: &str) -> HostId {
    HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
}

pub(super) fn finished(sequence: u64) -> Position {
    Position::Finished { sequence: SequenceNumber(sequence), offset: None, enqueued_at: None }
}

/// A record with default values.
pub(super) fn plain_record(id: HostId) -> HostRecord {
    HostRecord {
        id,
        beat: 1,
        state: HostState::Active,
        lease_duration: LEASE,
        max_partitions: None,
        wants: Vec::new(),
        answers: Vec::new(),
        statistics: HostStatistics::default(),
        software: "conformance".into(),
        hub: None,
    }
}

/// The view without the parts that change just because time passes.
pub(super) fn timeless(mut view: View) -> View {
    view.at = Timestamp(0);
    for entry in &mut view.hosts {
        entry.age = Duration::ZERO;
    }
    for lease in &mut view.leases {
        lease.age = Duration::ZERO;
        lease.takeover_delay = Duration::ZERO;
    }
    view
}

/// Runs all calls concurrently and returns the results in the order of the calls.
pub(super) async fn at_once<T: Send + 'static>(calls: Vec<BoxFuture<'static, T>>) -> Vec<T> {
    let mut tasks = tokio::task::JoinSet::new();
    for (index, call) in calls.into_iter().enumerate() {
        tasks.spawn(async move { (index, call.await) });
    }
    let mut results = tasks.join_all().await;
    results.sort_by_key(|(index, _)| *index);
    results.into_iter().map(|(_, result)| result).collect()
}

#[derive(Clone)]
pub(super) struct Scene {
    pub(super) store: Arc<dyn Store>,
    pub(super) group: GroupId,
}

impl Scene {
    pub(super) async fn new(fixture: &dyn StoreFixture) -> Self {
        Self { store: fixture.store().await, group: fixture.group() }
    }

    /// The same store, with another group.
    pub(super) fn in_group(&self, group: GroupId) -> Self {
        Self { store: self.store.clone(), group }
    }

    pub(super) fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    pub(super) fn resolution(&self) -> Duration {
        self.capabilities().clock_resolution
    }

    /// A time that the store's clock can distinguish from zero.
    pub(super) fn tick(&self) -> Duration {
        (4 * self.resolution()).max(Duration::from_millis(100))
    }

    pub(super) async fn view(&self) -> View {
        self.store.view(&self.group).await.unwrap()
    }

    pub(super) async fn lease(&self, partition: PartitionId) -> Lease {
        self.view().await.lease(partition).cloned().expect("there is a lease")
    }

    pub(super) async fn position(&self, partition: PartitionId) -> Option<Position> {
        self.view().await.checkpoint(partition).map(|checkpoint| checkpoint.position.clone())
    }

    /// A request to claim the partition in its current state.
    pub(super) async fn request(
        &self,
        partition: PartitionId,
        name: &str,
        cause: ClaimCause,
    ) -> ClaimRequest {
        let seen = self.view().await.lease(partition).map(|lease| lease.version.clone());
        ClaimRequest { partition, host: host(name), duration: LEASE, seen, above: Epoch::NONE, cause }
    }

    pub(super) async fn try_claim(&self, request: &ClaimRequest) -> ClaimOutcome {
        self.store.claim(&self.group, request).await.unwrap()
    }

    /// A claim that must win.
    pub(super) async fn claim_as(&self, partition: PartitionId, name: &str, cause: ClaimCause) -> LeaseToken {
        let request = self.request(partition, name, cause).await;
        match self.try_claim(&request).await {
            ClaimOutcome::Won { token, .. } => token,
            ClaimOutcome::Lost { holder } => panic!("a claim right after a view lost to {holder:?}"),
        }
    }

    pub(super) async fn claim(&self, partition: PartitionId, name: &str) -> LeaseToken {
        self.claim_as(partition, name, ClaimCause::Unowned).await
    }

    pub(super) async fn steal(&self, partition: PartitionId, name: &str) -> LeaseToken {
        self.claim_as(partition, name, ClaimCause::Unresponsive).await
    }

    pub(super) async fn renew(&self, token: &LeaseToken) -> RenewalOutcome {
        let tokens = std::slice::from_ref(token);
        let mut answers = self.store.renew(&self.group, LEASE, tokens).await.unwrap();
        assert_eq!(answers.len(), 1, "one answer for one token");
        answers.remove(0)
    }

    pub(super) async fn transfer(&self, token: &LeaseToken, to: &str) -> GiveUpOutcome {
        let request =
            TransferRequest { token: token.clone(), to: host(to), duration: LEASE, checkpoint_saved: true };
        self.store.transfer(&self.group, &request).await.unwrap()
    }

    /// A transfer that must succeed, and the token of the new owner.
    pub(super) async fn hand_over(&self, token: &LeaseToken, to: &str) -> LeaseToken {
        assert_eq!(self.transfer(token, to).await, GiveUpOutcome::Done);
        self.lease(token.partition).await.token().expect("there is an owner")
    }

    pub(super) async fn release_as(&self, token: &LeaseToken, cause: ReleaseCause) -> GiveUpOutcome {
        let request = ReleaseRequest { token: token.clone(), cause, successor: None, checkpoint_saved: true };
        self.store.release(&self.group, &request).await.unwrap()
    }

    pub(super) async fn release(&self, token: &LeaseToken) -> GiveUpOutcome {
        self.release_as(token, ReleaseCause::Shutdown).await
    }

    pub(super) async fn save(&self, token: &LeaseToken, position: &Position) -> SaveOutcome {
        self.save_in(token, position, None).await
    }

    pub(super) async fn save_in(
        &self,
        token: &LeaseToken,
        position: &Position,
        log: Option<&LogId>,
    ) -> SaveOutcome {
        self.store.save(&self.group, &SaveRequest::new(token, position, log)).await.unwrap()
    }

    /// A save that must succeed.
    pub(super) async fn saved(&self, token: &LeaseToken, position: Position) {
        let outcome = self.save(token, &position).await;
        assert!(matches!(&outcome, SaveOutcome::Saved(c) if c.position == position), "{outcome:?}");
    }

    /// A seek that must succeed, and its epoch.
    pub(super) async fn seek(&self, partition: PartitionId, position: Position) -> Epoch {
        let request = SeekRequest { partition, position, log: None, by: "ada".into(), force: false };
        match self.store.seek(&self.group, &request).await.unwrap() {
            SeekOutcome::Done { epoch } => epoch,
            SeekOutcome::OtherSdkOwner { owner } => panic!("{owner} is not an owner of another SDK"),
        }
    }

    pub(super) async fn heartbeat(&self, record: &HostRecord) -> ephor_core::store::DesiredState {
        self.store.heartbeat(&self.group, record).await.unwrap()
    }

    /// Gives hosts a plain record each.
    pub(super) async fn introduce(&self, names: &[&str]) {
        for name in names {
            self.heartbeat(&plain_record(host(name))).await;
        }
    }
}
