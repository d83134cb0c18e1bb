//! Calls to the store: each with a timeout, and with a record of the current outage.

use std::future::Future;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::store::{Store, StoreError};
use ephor_core::time::Monotonic;

use crate::environment::Environment;
use crate::error::{HostError, StoreCallError};
use crate::report::Reporter;

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

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
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

    /// Makes a call. A failure is reported here, and returned.
    pub(crate) async fn call<T>(
        &self,
        operation: &'static str,
        partition: Option<PartitionId>,
        call: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreCallError> {
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
