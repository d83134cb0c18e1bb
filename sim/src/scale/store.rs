//! A store with a latency of a few milliseconds that records every call: its time, its host and its kind.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::memory::MemoryStore;
use ephor_core::ids::GroupId;
use ephor_core::lease::ClaimRequest;
use ephor_core::store::{ClaimOutcome, Store, StoreFuture, StoreLayer, StoreRequest};
use ephor_core::time::Monotonic;
use fastrand::Rng;

use crate::executor::Handle;

/// The shortest duration of one way to the store.
const MIN_LATENCY: Duration = Duration::from_millis(1);
/// The longest duration of one way to the store.
const MAX_LATENCY: Duration = Duration::from_millis(4);

/// A call, recorded when it is sent.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Call {
    pub(super) at: Monotonic,
    pub(super) host: usize,
    pub(super) kind: &'static str,
}

/// The calls of a whole fleet.
#[derive(Debug, Default)]
pub(super) struct CallLog {
    pub(super) calls: Vec<Call>,
    /// The number of claims that came too late.
    pub(super) claims_lost: u64,
}

/// One host's connection to the store that all share.
pub(super) struct MeteredStore {
    handle: Handle,
    inner: MemoryStore,
    host: usize,
    log: Arc<Mutex<CallLog>>,
    random: Mutex<Rng>,
}

impl MeteredStore {
    pub(super) fn new(handle: &Handle, inner: &MemoryStore, host: usize, log: &Arc<Mutex<CallLog>>) -> Self {
        let random = Mutex::new(handle.fork_random());
        Self { handle: handle.clone(), inner: inner.clone(), host, log: log.clone(), random }
    }

    fn log(&self) -> MutexGuard<'_, CallLog> {
        self.log.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn latency(&self) -> Duration {
        let mut random = self.random.lock().unwrap_or_else(PoisonError::into_inner);
        let micros = |latency: Duration| u64::try_from(latency.as_micros()).unwrap_or(u64::MAX);
        Duration::from_micros(random.u64(micros(MIN_LATENCY)..=micros(MAX_LATENCY)))
    }
}

impl StoreLayer for MeteredStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    /// Delays a call on the way there and back.
    fn forward<T: Send + 'static>(&self, request: StoreRequest<T>) -> StoreFuture<'_, T> {
        Box::pin(async move {
            let kind = request.method().name();
            self.log().calls.push(Call { at: self.handle.now(), host: self.host, kind });
            self.handle.sleep(self.latency()).await;
            let answer = request.send(&self.inner).await;
            self.handle.sleep(self.latency()).await;
            answer
        })
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        Box::pin(async move {
            let claim = self.forward(StoreRequest::claim(group, request)).await;
            if let Ok(ClaimOutcome::Lost { .. }) = claim {
                self.log().claims_lost += 1;
            }
            claim
        })
    }
}
