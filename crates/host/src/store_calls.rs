//! The store calls of a host and its pumps: one method for each operation that they use, each with a timeout.
//! Tracks the current outage of the store.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome,
    SaveRequest, Store, StoreError, View,
};
use ephor_core::time::Monotonic;

use crate::environment::Environment;
use crate::error::{HostError, StoreCallError};
use crate::error_reports::Reporter;

/// The result of a store call. A failure is reported before it is returned.
pub(crate) type StoreResult<T> = Result<T, StoreCallError>;

#[derive(Clone)]
pub(crate) struct StoreCalls {
    store: Arc<dyn Store>,
    environment: Arc<dyn Environment>,
    reporter: Reporter,
    group: GroupId,
    timeout: Duration,
    /// `None` while the store works.
    failing: Arc<Mutex<Option<Failing>>>,
}

/// An outage of the store.
#[derive(Clone, Debug)]
struct Failing {
    since: Monotonic,
    /// The error of the last call.
    error: StoreCallError,
}

impl StoreCalls {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        reporter: Reporter,
        group: GroupId,
        timeout: Duration,
    ) -> Self {
        Self { store, environment, reporter, group, timeout, failing: Arc::default() }
    }

    /// The optional features of the store.
    pub(crate) fn capabilities(&self) -> Capabilities {
        self.store.capabilities()
    }

    /// The timeout of a call.
    pub(crate) fn timeout(&self) -> Duration {
        self.timeout
    }

    pub(crate) fn group(&self) -> &GroupId {
        &self.group
    }

    pub(crate) fn reporter(&self) -> &Reporter {
        &self.reporter
    }

    /// Waits for a change of the group that concerns this host.
    pub(crate) async fn changed(&self, host: &HostId) {
        self.store.changed(&self.group, host).await;
    }

    /// Writes the origin of the group, unless there is one already; returns the stored one.
    pub(crate) async fn init_group(&self, origin: &GroupOrigin) -> StoreResult<GroupOrigin> {
        self.call("init_group", None, self.store.init_group(&self.group, origin)).await
    }

    /// Reads all records of the group.
    pub(crate) async fn view(&self) -> StoreResult<View> {
        self.call("view", None, self.store.view(&self.group)).await
    }

    /// Writes a host's record, and returns the desired state of the host.
    pub(crate) async fn heartbeat(&self, record: &HostRecord) -> StoreResult<DesiredState> {
        self.call("heartbeat", None, self.store.heartbeat(&self.group, record)).await
    }

    /// Removes the record of a host that has stopped.
    pub(crate) async fn retire(&self, host: &HostId) -> StoreResult<()> {
        self.call("retire", None, self.store.retire(&self.group, host)).await
    }

    /// Takes a partition in a new epoch.
    pub(crate) async fn claim(&self, request: &ClaimRequest) -> StoreResult<ClaimOutcome> {
        self.call("claim", Some(request.partition), self.store.claim(&self.group, request)).await
    }

    /// Renews leases, the most urgent first; returns one result for each, in order. A store that
    /// renews lease by lease returns the results that it has before the timeout.
    pub(crate) async fn renew(
        &self,
        duration: Duration,
        tokens: &[LeaseToken],
    ) -> StoreResult<Vec<RenewalOutcome>> {
        let limit = self.timeout * 4 / 5;
        self.call("renew", None, self.store.renew_within(&self.group, duration, tokens, limit)).await
    }

    /// Renews one lease. `None` if the store returned no result for it.
    pub(crate) async fn renew_one(
        &self,
        duration: Duration,
        token: &LeaseToken,
    ) -> StoreResult<Option<RenewalOutcome>> {
        let call = self.store.renew(&self.group, duration, std::slice::from_ref(token));
        Ok(self.call("renew", Some(token.partition), call).await?.pop())
    }

    /// Hands a lease over in a new epoch.
    pub(crate) async fn transfer(&self, request: &TransferRequest) -> StoreResult<GiveUpOutcome> {
        let partition = request.token.partition;
        self.call("transfer", Some(partition), self.store.transfer(&self.group, request)).await
    }

    /// Releases a lease.
    pub(crate) async fn release(&self, request: &ReleaseRequest) -> StoreResult<GiveUpOutcome> {
        let partition = request.token.partition;
        self.call("release", Some(partition), self.store.release(&self.group, request)).await
    }

    /// Saves a position.
    pub(crate) async fn save(&self, request: &SaveRequest) -> StoreResult<SaveOutcome> {
        self.call("save", Some(request.token.partition), self.store.save(&self.group, request)).await
    }

    /// Reads the latest changes of ownership of a partition, the newest first.
    pub(crate) async fn history(
        &self,
        partition: PartitionId,
        max: usize,
    ) -> StoreResult<Vec<OwnershipChange>> {
        let call = self.store.history(&self.group, Some(partition), max);
        self.call("history", Some(partition), call).await
    }

    async fn call<T>(
        &self,
        operation: &'static str,
        partition: Option<PartitionId>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> StoreResult<T> {
        let limit = self.environment.sleep_until(self.environment.now() + self.timeout);
        let result = tokio::select! {
            biased;
            result = call => result.map_err(|error| StoreCallError::Failed(Arc::new(error))),
            () = limit => Err(StoreCallError::TimedOut { after: self.timeout }),
        };
        match &result {
            Ok(_) => self.note_success(),
            Err(error) => {
                let failing_for = self.note_failure(error);
                let error = error.clone();
                self.reporter.report(&HostError::Store { operation, partition, failing_for, error });
            }
        }
        result
    }

    fn note_success(&self) {
        let Some(failing) = self.failing().take() else { return };
        let failed_for = self.environment.now().since(failing.since);
        tracing::info!(group = %self.group, ?failed_for, "the store answers again");
    }

    /// Notes a failure, and returns the time since the first one.
    fn note_failure(&self, error: &StoreCallError) -> Duration {
        let now = self.environment.now();
        let mut failing = self.failing();
        let since = failing.as_ref().map_or(now, |failing| failing.since);
        *failing = Some(Failing { since, error: error.clone() });
        now.since(since)
    }

    fn failing(&self) -> MutexGuard<'_, Option<Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The time for which the store has been failing without a success in between.
    pub(crate) fn failing_for(&self, now: Monotonic) -> Option<Duration> {
        self.failing().as_ref().map(|failing| now.since(failing.since))
    }

    /// The error of the last call, if it failed.
    pub(crate) fn error(&self) -> Option<StoreCallError> {
        self.failing().as_ref().map(|failing| failing.error.clone())
    }
}
