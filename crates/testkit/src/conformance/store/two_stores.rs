//! Two store clients as one store: simulates a fleet in two processes.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::history::OwnershipChange;
use ephor_core::host_record::HostRecord;
use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::lease::{ClaimRequest, LeaseToken, ReleaseRequest, TransferRequest};
use ephor_core::store::{
    Capabilities, Claim, DesiredState, GroupOrigin, Handoff, Renewal, Save, SaveRequest, Seek, SeekRequest,
    Store, StoreFuture, View,
};

/// Two clients of one database that know nothing of each other, as in two processes, behind one
/// [`Store`]. With it the conformance suite finds errors in state that a client caches beside the
/// records.
pub struct TwoStores<S> {
    stores: [S; 2],
    hosts_stay: bool,
    turns: AtomicUsize,
}

impl<S> TwoStores<S> {
    /// Each host uses one client; calls that belong to no host use both in turn.
    pub fn by_host(stores: [S; 2]) -> Self {
        Self { stores, hosts_stay: true, turns: AtomicUsize::default() }
    }

    /// Calls alternate between the clients. Only heartbeats and waits for changes go to the first.
    pub fn in_turn(stores: [S; 2]) -> Self {
        Self { stores, hosts_stay: false, turns: AtomicUsize::default() }
    }

    fn next(&self) -> &S {
        &self.stores[self.turns.fetch_add(1, Ordering::Relaxed) % 2]
    }

    /// The client for a host's heartbeats.
    fn home(&self, host: &HostId) -> &S {
        let sum: usize = host.name.as_str().bytes().map(usize::from).sum();
        if self.hosts_stay { &self.stores[sum % 2] } else { &self.stores[0] }
    }

    /// The client for this call of a host.
    fn by(&self, host: &HostId) -> &S {
        if self.hosts_stay { self.home(host) } else { self.next() }
    }
}

impl<S: Store> Store for TwoStores<S> {
    fn capabilities(&self) -> Capabilities {
        self.stores[0].capabilities()
    }

    fn groups(&self) -> StoreFuture<'_, Vec<GroupId>> {
        self.next().groups()
    }

    fn init_group<'a>(&'a self, group: &'a GroupId, origin: &'a GroupOrigin) -> StoreFuture<'a, GroupOrigin> {
        self.next().init_group(group, origin)
    }

    fn view<'a>(&'a self, group: &'a GroupId) -> StoreFuture<'a, View> {
        self.next().view(group)
    }

    fn heartbeat<'a>(&'a self, group: &'a GroupId, record: &'a HostRecord) -> StoreFuture<'a, DesiredState> {
        self.home(&record.id).heartbeat(group, record)
    }

    fn retire<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> StoreFuture<'a, ()> {
        self.by(host).retire(group, host)
    }

    fn set_desired_state<'a>(
        &'a self,
        group: &'a GroupId,
        host: &'a HostId,
        desired: DesiredState,
    ) -> StoreFuture<'a, bool> {
        self.next().set_desired_state(group, host, desired)
    }

    fn claim<'a>(&'a self, group: &'a GroupId, request: &'a ClaimRequest) -> StoreFuture<'a, Claim> {
        self.by(&request.host).claim(group, request)
    }

    fn renew<'a>(
        &'a self,
        group: &'a GroupId,
        duration: Duration,
        tokens: &'a [LeaseToken],
    ) -> StoreFuture<'a, Vec<Renewal>> {
        let store = tokens.first().map_or_else(|| self.next(), |token| self.by(&token.owner));
        store.renew(group, duration, tokens)
    }

    fn transfer<'a>(&'a self, group: &'a GroupId, request: &'a TransferRequest) -> StoreFuture<'a, Handoff> {
        self.by(&request.token.owner).transfer(group, request)
    }

    fn release<'a>(&'a self, group: &'a GroupId, request: &'a ReleaseRequest) -> StoreFuture<'a, Handoff> {
        self.by(&request.token.owner).release(group, request)
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, Save> {
        self.by(&request.token.owner).save(group, request)
    }

    fn seek<'a>(&'a self, group: &'a GroupId, request: &'a SeekRequest) -> StoreFuture<'a, Seek> {
        self.next().seek(group, request)
    }

    fn history<'a>(
        &'a self,
        group: &'a GroupId,
        partition: Option<PartitionId>,
        max: usize,
    ) -> StoreFuture<'a, Vec<OwnershipChange>> {
        self.next().history(group, partition, max)
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        self.home(host).changed(group, host)
    }
}
