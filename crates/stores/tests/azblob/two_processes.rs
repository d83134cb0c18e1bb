//! A fleet in two processes, as one store: each host calls its own, and looks go to the one and the other in turn.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, Claim, Founding, GiveAway, HostOrders, Renewal, Save, SaveRequest, Seek, SeekRequest,
    Store, StoreFuture, View,
};
use ephor_stores::azblob::BlobStore;
use ephor_testkit::conformance::store::StoreFixture;

use crate::server::{open, place};

#[derive(Clone)]
pub(crate) struct Two {
    stores: [BlobStore; 2],
    turns: Arc<AtomicUsize>,
}

impl Two {
    pub(crate) fn new() -> Self {
        let place = place();
        Self { stores: [open(&place), open(&place)], turns: Arc::default() }
    }

    fn of(&self, host: &HostId) -> &BlobStore {
        let sum: usize = host.name.as_str().bytes().map(usize::from).sum();
        &self.stores[sum % 2]
    }

    fn in_turn(&self) -> &BlobStore {
        &self.stores[self.turns.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

impl StoreFixture for Two {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::new(self.clone()) as Arc<dyn Store> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

impl Store for Two {
    fn capabilities(&self) -> Capabilities {
        self.in_turn().capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        self.in_turn().groups()
    }

    fn found<'a>(&'a self, group: &'a GroupId, founding: &'a Founding) -> StoreFuture<'a, Founding> {
        self.in_turn().found(group, founding)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.in_turn().view(group)
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, HostOrders> {
        self.of(&record.id).heartbeat(group, record)
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.of(host).retire(group, host)
    }

    fn order<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        orders: HostOrders,
    ) -> StoreFuture<'a, bool> {
        self.in_turn().order(group, host, orders)
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        self.of(&request.host).claim(group, request)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        let store = tokens.first().map_or_else(|| self.in_turn(), |token| self.of(&token.owner));
        store.renew(group, duration, tokens)
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, GiveAway> {
        self.of(&request.token.owner).transfer(group, request)
    }

    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, GiveAway> {
        self.of(&request.token.owner).release(group, request)
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        self.of(&request.token.owner).save(group, request)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        self.in_turn().seek(group, request)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.in_turn().history(group, partition, most)
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        self.of(host).changed(group, host)
    }
}
