//! A user's store in memory. Without fencing it accepts saves from anybody, owner or not.

use std::time::Duration;

use ephor::memory::MemoryStore;
use ephor::{BoxFuture, GroupId, HostId, Lease, OwnershipChange, PartitionId, Store};
use ephor_core::host_record::HostRecord;
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, Claim, DesiredState, GroupOrigin, Handoff, Renewal, Save, SaveRequest, Seek, SeekRequest,
    StoreFuture, View,
};

pub(crate) struct UserStore {
    pub(crate) inner: MemoryStore,
    pub(crate) fences: bool,
}

impl Store for UserStore {
    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        Box::pin(async move {
            let view = self.inner.view(group).await?;
            let owner = view.lease(request.token.partition).and_then(Lease::token);
            match owner.filter(|owner| !self.fences && *owner != request.token) {
                // The bug: a late save is written in the name of the current owner.
                Some(token) => {
                    let late = SaveRequest { token, rewind: true, ..request.clone() };
                    self.inner.save(group, &late).await
                }
                None => self.inner.save(group, request).await,
            }
        })
    }

    fn capabilities(&self) -> Capabilities {
        self.inner.capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        self.inner.groups()
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        self.inner.init_group(group, origin)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.inner.view(group)
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        self.inner.heartbeat(group, record)
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.inner.retire(group, host)
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        self.inner.set_desired_state(group, host, desired)
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        self.inner.claim(group, request)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        self.inner.renew(group, duration, tokens)
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, Handoff> {
        self.inner.transfer(group, request)
    }

    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, Handoff> {
        self.inner.release(group, request)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        self.inner.seek(group, request)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.inner.history(group, partition, max)
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        self.inner.changed(group, host)
    }
}
