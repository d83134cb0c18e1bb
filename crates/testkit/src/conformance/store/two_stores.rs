//! Test helper: two store clients behind one store, which take calls by host or in turn, as if the fleet ran
//! in two processes.

use std::sync::atomic::{AtomicUsize, Ordering};

use ephor_core::BoxFuture;
use ephor_core::ids::{GroupId, HostId};
use ephor_core::store::{Store, StoreFuture, StoreLayer, StoreMethod, StoreRequest};

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

    /// The client for a call.
    fn client<T>(&self, request: &StoreRequest<T>) -> &S {
        match request.caller() {
            Some(host) if self.hosts_stay || request.method() == StoreMethod::Heartbeat => self.home(host),
            _ => self.next(),
        }
    }
}

impl<S: Store> StoreLayer for TwoStores<S> {
    fn inner(&self) -> &dyn Store {
        &self.stores[0]
    }

    fn forward<T: Send + 'static>(&self, request: StoreRequest<T>) -> StoreFuture<'_, T> {
        let client = self.client(&request);
        request.send(client)
    }

    fn changed<'a>(&'a self, group: &'a GroupId, host: &'a HostId) -> BoxFuture<'a, ()> {
        self.home(host).changed(group, host)
    }
}
