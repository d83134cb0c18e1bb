//! Simulates one machine's connection to a store over an unreliable network.
//!
//! Every call becomes a task of the world. It may be slower than all timeouts and be applied after its caller
//! gave up, be lost on the way there or back, or come back with an error, applied or not.

mod faults;
mod observed;
#[cfg(test)]
mod tests;

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::ClaimRequest;
use ephor_core::store::{
    ClaimOutcome, DesiredState, Store, StoreError, StoreFuture, StoreLayer, StoreMethod, StoreRequest,
};
use fastrand::Rng;

use crate::call_faults::{FaultKind, FaultObserver, Latency, happens};
use crate::executor::Handle;
use crate::network::transmit;
pub use faults::StoreFaults;
pub(crate) use observed::ObservedStore;

/// One machine's connection to a store.
pub struct FaultyStore {
    handle: Handle,
    inner: Arc<dyn Store>,
    faults: Arc<Mutex<StoreFaults>>,
    /// The faults of all hosts.
    common: Arc<Mutex<StoreFaults>>,
    observer: FaultObserver<StoreMethod>,
    /// Called with every heartbeat when it is sent.
    on_heartbeat: Arc<dyn Fn(&HostRecord) + Send + Sync>,
    /// The most that one way takes on top of everything else.
    distance: Duration,
    random: Mutex<Rng>,
    /// Notifications that have come and were not yet received.
    undelivered: Mutex<BTreeSet<(GroupId, HostId)>>,
}

impl FaultyStore {
    /// A connection to `inner` with these faults, which may change at any time.
    pub fn new(handle: &Handle, inner: Arc<dyn Store>, faults: Arc<Mutex<StoreFaults>>) -> Self {
        Self {
            handle: handle.clone(),
            inner,
            faults,
            common: Arc::default(),
            observer: Arc::new(|_, _, _| {}),
            on_heartbeat: Arc::new(|_| {}),
            distance: Duration::ZERO,
            random: Mutex::new(handle.fork_random()),
            undelivered: Mutex::default(),
        }
    }

    /// Calls `observer` with every fault.
    pub fn with_observer(self, observer: FaultObserver<StoreMethod>) -> Self {
        Self { observer, ..self }
    }

    /// Adds faults that are shared with other hosts to its own.
    pub fn with_common(self, common: Arc<Mutex<StoreFaults>>) -> Self {
        Self { common, ..self }
    }

    /// Sets the distance of the store: each way takes up to this much longer, also without faults.
    pub fn with_distance(self, distance: Duration) -> Self {
        Self { distance, ..self }
    }

    /// Calls `on_heartbeat` with every heartbeat when it is sent.
    pub fn with_heartbeat_observer(self, on_heartbeat: Arc<dyn Fn(&HostRecord) + Send + Sync>) -> Self {
        Self { on_heartbeat, ..self }
    }

    fn faults(&self) -> StoreFaults {
        let own = *self.faults.lock().unwrap_or_else(PoisonError::into_inner);
        own.and(*self.common.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn draw<T>(&self, draw: impl FnOnce(&mut Rng) -> T) -> T {
        draw(&mut self.random.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn undelivered(&self, access: impl FnOnce(&mut BTreeSet<(GroupId, HostId)>) -> bool) -> bool {
        access(&mut self.undelivered.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// Sends a call. `apply` takes the store and owns all it needs.
    fn call<'a, T, F>(
        &'a self,
        call: StoreMethod,
        partition: Option<PartitionId>,
        apply: impl FnOnce(Arc<dyn Store>, Option<FaultKind>) -> F + Send + 'a,
    ) -> StoreFuture<'a, T>
    where
        T: Send + 'static,
        F: Future<Output = Result<T, StoreError>> + Send + 'static,
    {
        Box::pin(async move {
            let faults = self.faults();
            let mut fate = self.draw(|random| faults.fate(random, call));
            let hangs = faults.hangs_until.since(self.handle.now());
            fate.slow |= !hangs.is_zero();
            fate.request_delay += hangs;
            let far = Latency { min: Duration::ZERO, max: self.distance };
            fate.request_delay += self.draw(|random| far.draw(random));
            fate.answer_delay += self.draw(|random| far.draw(random));
            let observer = self.observer.clone();
            let report = move |fault| observer(fault, call, partition);
            let apply = apply(self.inner.clone(), fate.fault);
            let error = match fate.fault {
                Some(FaultKind::Throttled) => StoreError::Throttled,
                _ => StoreError::Unavailable,
            };
            transmit(&self.handle, fate, report, error, apply).await
        })
    }
}

impl std::fmt::Debug for FaultyStore {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "FaultyStore({:?})", self.faults())
    }
}

impl StoreLayer for FaultyStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn forward<T: Send + 'static>(&self, request: StoreRequest<T>) -> StoreFuture<'_, T> {
        self.call(
            request.method(),
            request.partition(),
            |store, _| async move { request.send(&*store).await },
        )
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        (self.on_heartbeat)(record);
        self.forward(StoreRequest::heartbeat(group, record))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        let (group, request) = (group.clone(), request.clone());
        self.call(StoreMethod::Claim, Some(request.partition), |store, fault| async move {
            if fault == Some(FaultKind::Conflict) {
                let view = store.view(&group).await?;
                return Ok(ClaimOutcome::Lost { holder: view.lease(request.partition).cloned() });
            }
            store.claim(&group, &request).await
        })
    }

    /// Waits in the caller's own task, because a wait applies nothing that could be late.
    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        Box::pin(async move {
            let key = (group.clone(), host.clone());
            while !self.undelivered(|undelivered| undelivered.contains(&key)) {
                self.inner.changed(group, host).await;
                if self.draw(|random| happens(random, self.faults().lost_notification)) {
                    (self.observer)(FaultKind::LostNotification, StoreMethod::Changed, None);
                } else {
                    // Kept until it is received: dropping this future and asking again misses nothing.
                    self.undelivered(|undelivered| undelivered.insert(key.clone()));
                }
            }
            let latency = self.draw(|random| self.faults().latency.draw(random));
            self.handle.sleep(latency).await;
            self.undelivered(|undelivered| undelivered.remove(&key));
        })
    }
}
