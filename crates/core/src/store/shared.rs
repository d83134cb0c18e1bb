//! Implements `Store` for `Arc<S>`, for programs that choose their store at run time. Every method is
//! forwarded, including those with a default.

use std::sync::Arc;
use std::time::Duration;

use super::{
    Capabilities, ClaimOutcome, DesiredState, GiveUpOutcome, GroupOrigin, RenewalOutcome, SaveOutcome,
    SaveRequest, SeekOutcome, SeekRequest, Store, StoreFuture, View,
};
use crate::BoxFuture;
use crate::history::OwnershipChange;
use crate::host_record::HostRecord;
use crate::ids::{GroupId, HostId, PartitionId};
use crate::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};

impl<S: Store + ?Sized> Store for Arc<S> {
    fn capabilities(&self) -> Capabilities {
        (**self).capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        (**self).groups()
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        (**self).init_group(group, origin)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        (**self).view(group)
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        (**self).heartbeat(group, record)
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        (**self).retire(group, host)
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        (**self).set_desired_state(group, host, desired)
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, ClaimOutcome> {
        (**self).claim(group, request)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        (**self).renew(group, duration, tokens)
    }

    fn renew_within<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
        limit: Duration,
    ) -> StoreFuture<'a, Vec<RenewalOutcome>> {
        (**self).renew_within(group, duration, tokens, limit)
    }

    fn transfer<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a TransferRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        (**self).transfer(group, request)
    }

    fn release<'a>(
        &'a self,
        group: &'a GroupId,
        request: &'a ReleaseRequest,
    ) -> StoreFuture<'a, GiveUpOutcome> {
        (**self).release(group, request)
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
        (**self).save(group, request)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, SeekOutcome> {
        (**self).seek(group, request)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        (**self).history(group, partition, max)
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        (**self).changed(group, host)
    }
}
