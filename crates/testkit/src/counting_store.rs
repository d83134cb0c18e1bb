//! A store that counts its calls, and forwards them to another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor::{GroupId, HostId, PartitionId, Store};
use ephor_core::BoxFuture;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, Claim, DesiredState, GroupOrigin, Handoff, Renewal, Save, SaveRequest, Seek, SeekRequest,
    StoreFuture, View,
};

/// Counts the calls of a host by their names: `renew`, `view`, … Clones share the counts.
#[derive(Clone)]
pub struct CountingStore {
    inner: Arc<dyn Store>,
    calls: Arc<Mutex<BTreeMap<&'static str, usize>>>,
}

impl CountingStore {
    /// Counts the calls to this store.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self { inner, calls: Arc::default() }
    }

    /// The calls since the start or the last [`reset`](Self::reset).
    pub fn all_calls(&self) -> BTreeMap<&'static str, usize> {
        self.calls().clone()
    }

    /// Resets the counts.
    pub fn reset(&self) {
        self.calls().clear();
    }

    fn calls(&self) -> MutexGuard<'_, BTreeMap<&'static str, usize>> {
        self.calls.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn count(&self, name: &'static str) -> &dyn Store {
        *self.calls().entry(name).or_default() += 1;
        &*self.inner
    }
}

impl Store for CountingStore {
    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        self.count("groups").groups()
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        self.count("init_group").init_group(group, origin)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.count("view").view(group)
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        self.count("heartbeat").heartbeat(group, record)
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.count("retire").retire(group, host)
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        self.count("set_desired_state").set_desired_state(group, host, desired)
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        self.count("claim").claim(group, request)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        self.count("renew").renew(group, duration, tokens)
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, Handoff> {
        self.count("transfer").transfer(group, request)
    }

    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, Handoff> {
        self.count("release").release(group, request)
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        self.count("save").save(group, request)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        self.count("seek").seek(group, request)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.count("history").history(group, partition, max)
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        // Not counted, because it is a wait and not a call.
        self.inner.changed(group, host)
    }
}
