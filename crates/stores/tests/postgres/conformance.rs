//! The PostgreSQL store keeps every promise of a store: alone, beside another process's store, and without
//! listening.

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
use ephor_stores::postgres::{PostgresOptions, PostgresStore};
use ephor_testkit::conformance::store::StoreFixture;

use crate::server::shared;
use crate::world::open_with;

fn store_with(options: PostgresOptions) -> PostgresStore {
    // All share one database: the suite works in groups of its own.
    open_with(&shared().url("postgres"), options)
}

struct One(PostgresStore);

impl One {
    fn new() -> Self {
        Self(store_with(PostgresOptions::default()))
    }

    fn without_listening() -> Self {
        Self(store_with(PostgresOptions { listen: false, connections: 1, ..PostgresOptions::default() }))
    }
}

impl StoreFixture for One {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::new(self.0.clone()) as Arc<dyn Store> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

/// Two stores that know nothing of each other, as two processes would have them; each call goes to the other
/// one. Only the hosts' own calls, heartbeats and waiting, go to the first.
struct Two {
    stores: [PostgresStore; 2],
    calls: AtomicUsize,
}

struct TwoFixture(Arc<Two>);

impl TwoFixture {
    fn new() -> Self {
        let stores = [0, 1].map(|_| store_with(PostgresOptions::default()));
        Self(Arc::new(Two { stores, calls: AtomicUsize::new(0) }))
    }
}

impl StoreFixture for TwoFixture {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { self.0.clone() as Arc<dyn Store> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

impl Two {
    fn next(&self) -> &PostgresStore {
        &self.stores[self.calls.fetch_add(1, Ordering::Relaxed) % 2]
    }
}

impl Store for Two {
    fn capabilities(&self) -> Capabilities {
        self.stores[0].capabilities()
    }
    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        self.next().groups()
    }
    fn found<'a>(&'a self, group: &'a GroupId, founding: &'a Founding) -> StoreFuture<'a, Founding> {
        self.next().found(group, founding)
    }
    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.next().view(group)
    }
    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, HostOrders> {
        self.stores[0].heartbeat(group, record)
    }
    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.next().retire(group, host)
    }
    fn order<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        orders: HostOrders,
    ) -> StoreFuture<'a, bool> {
        self.next().order(group, host, orders)
    }
    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        self.next().claim(group, request)
    }
    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        self.next().renew(group, duration, tokens)
    }
    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, GiveAway> {
        self.next().transfer(group, request)
    }
    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, GiveAway> {
        self.next().release(group, request)
    }
    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        self.next().save(group, request)
    }
    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        self.next().seek(group, request)
    }
    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        most: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.next().history(group, partition, most)
    }
    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        self.stores[0].changed(group, host)
    }
}

mod one_store {
    use super::*;
    ephor_testkit::store_conformance!(One::new());
}

mod two_stores {
    use super::*;
    ephor_testkit::store_conformance!(TwoFixture::new());
}

mod without_listening {
    use super::*;
    ephor_testkit::store_conformance!(One::without_listening());
}
