//! A store a few milliseconds away that records every call: its time, its host and its kind.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::memory::MemoryStore;
use ephor_core::BoxFuture;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, Claim, DesiredState, GroupOrigin, Handoff, Renewal, Save, SaveRequest, Seek, SeekRequest,
    Store, StoreFuture, View,
};
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

    /// Delays a call on the way there and back.
    fn delayed<'a, T: Send + 'a>(
        &'a self,
        kind: &'static str,
        step: StoreFuture<'a, T>,
    ) -> StoreFuture<'a, T> {
        Box::pin(async move {
            self.log().calls.push(Call { at: self.handle.now(), host: self.host, kind });
            self.handle.sleep(self.latency()).await;
            let answer = step.await;
            self.handle.sleep(self.latency()).await;
            answer
        })
    }
}

impl Store for MeteredStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        self.delayed("groups", self.inner.groups())
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        self.delayed("found", self.inner.init_group(group, origin))
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.delayed("view", self.inner.view(group))
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        self.delayed("heartbeat", self.inner.heartbeat(group, record))
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.delayed("retire", self.inner.retire(group, host))
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        self.delayed("order", self.inner.set_desired_state(group, host, desired))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        Box::pin(async move {
            let claim = self.delayed("claim", self.inner.claim(group, request)).await;
            if let Ok(Claim::Lost { .. }) = claim {
                self.log().claims_lost += 1;
            }
            claim
        })
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        self.delayed("renew", self.inner.renew(group, duration, tokens))
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, Handoff> {
        self.delayed("transfer", self.inner.transfer(group, request))
    }

    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, Handoff> {
        self.delayed("release", self.inner.release(group, request))
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        self.delayed("save", self.inner.save(group, request))
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        self.delayed("seek", self.inner.seek(group, request))
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.delayed("history", self.inner.history(group, partition, max))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        // This is a wait, not a call.
        self.inner.changed(group, host)
    }
}
