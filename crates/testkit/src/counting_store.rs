//! A store that counts its calls, and forwards them to another one.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::store::{Store, StoreFuture, StoreLayer, StoreRequest};

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
}

impl StoreLayer for CountingStore {
    fn inner(&self) -> &dyn Store {
        &*self.inner
    }

    fn forward<T: Send + 'static>(&self, request: StoreRequest<T>) -> StoreFuture<'_, T> {
        *self.calls().entry(request.method().name()).or_default() += 1;
        request.send(&*self.inner)
    }
}
