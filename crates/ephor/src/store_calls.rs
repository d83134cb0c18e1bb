//! Store calls as the host makes them: each with a time limit, and with an eye
//! on for how long the store has been failing.

use std::future::Future;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ephor_core::ids::{GroupId, PartitionId};
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
    /// When the store began to fail; zero while it is well.
    failing_since: Arc<AtomicU64>,
}

impl StoreCalls {
    pub(crate) fn new(
        store: Arc<dyn Store>,
        environment: Arc<dyn Environment>,
        reporter: Reporter,
        group: GroupId,
        timeout: Duration,
    ) -> Self {
        Self { store, environment, reporter, group, timeout, failing_since: Arc::default() }
    }

    pub(crate) fn store(&self) -> &dyn Store {
        &*self.store
    }

    pub(crate) fn group(&self) -> &GroupId {
        &self.group
    }

    /// Makes a call. A failure is reported here and given back.
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
            Ok(_) => self.failing_since.store(0, Ordering::Release),
            Err(error) => {
                let now = self.environment.now();
                let _ =
                    self.failing_since.compare_exchange(0, now.0.max(1), Ordering::AcqRel, Ordering::Acquire);
                let failing_for = self.failing_for(now).unwrap_or_default();
                let error = error.clone();
                self.reporter.report(&HostError::Store { operation, partition, failing_for, error });
            }
        }
        result
    }

    /// For how long the store has been failing without a success in between.
    pub(crate) fn failing_for(&self, now: Monotonic) -> Option<Duration> {
        let since = self.failing_since.load(Ordering::Acquire);
        (since != 0).then(|| now.since(Monotonic(since)))
    }
}
