//! The interface of stores that wrap another store: layers that count, delay, lose or observe its calls.
//!
//! A type that implements [`StoreLayer`] is a [`Store`]. Every call goes to the inner store, unless the layer
//! overrides [`StoreLayer::forward`] for all calls or the method of one call. A new method of [`Store`] is added
//! here and in `request.rs`, and all layers forward it.

use std::time::Duration;

use super::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome,
    SaveRequest, SeekOutcome, SeekRequest, Store, StoreFuture, StoreRequest, View,
};
use crate::BoxFuture;
use crate::history::OwnershipChange;
use crate::host_record::HostRecord;
use crate::ids::{GroupId, HostId, PartitionId};
use crate::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};

/// A store that wraps another one. The methods have the meaning of those of [`Store`].
#[expect(missing_docs, reason = "documented at `Store`")]
pub trait StoreLayer: Send + Sync + 'static {
    /// The wrapped store.
    fn inner(&self) -> &dyn Store;

    /// Carries out a call. All methods below use it, except `capabilities` and `changed`, which ask for nothing.
    fn forward<T: Send + 'static>(&self, request: StoreRequest<T>) -> StoreFuture<'_, T> {
        request.send(self.inner())
    }

    fn capabilities(&self) -> Capabilities {
        self.inner().capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        self.forward(StoreRequest::groups())
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        self.forward(StoreRequest::init_group(group, origin))
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.forward(StoreRequest::view(group))
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        self.forward(StoreRequest::heartbeat(group, record))
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.forward(StoreRequest::retire(group, host))
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        self.forward(StoreRequest::set_desired_state(group, host, desired))
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        self.forward(StoreRequest::claim(group, request))
    }

    /// Both [`Store::renew_within`] and, without a limit, [`Store::renew`].
    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        limit: Option<Duration>,
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        self.forward(StoreRequest::renew(group, duration, tokens, limit))
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        self.forward(StoreRequest::transfer(group, request))
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        self.forward(StoreRequest::release(group, request))
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        self.forward(StoreRequest::save(group, request))
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        self.forward(StoreRequest::seek(group, request))
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.forward(StoreRequest::history(group, partition, max))
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        self.inner().changed(group, host)
    }
}

impl<L: StoreLayer> Store for L {
    fn capabilities(&self) -> Capabilities {
        StoreLayer::capabilities(self)
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        StoreLayer::groups(self)
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        StoreLayer::init_group(self, group, origin)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        StoreLayer::view(self, group)
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        StoreLayer::heartbeat(self, group, record)
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        StoreLayer::retire(self, group, host)
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        StoreLayer::set_desired_state(self, group, host, desired)
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        StoreLayer::claim(self, group, request)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        StoreLayer::renew(self, group, duration, tokens, None)
    }

    fn renew_within<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        limit: Duration,
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        StoreLayer::renew(self, group, duration, tokens, Some(limit))
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        StoreLayer::transfer(self, group, request)
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        StoreLayer::release(self, group, request)
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        StoreLayer::save(self, group, request)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        StoreLayer::seek(self, group, request)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        StoreLayer::history(self, group, partition, max)
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        StoreLayer::changed(self, group, host)
    }
}
