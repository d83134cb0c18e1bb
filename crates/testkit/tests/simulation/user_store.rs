//! Test helper: a user's own store in memory. With fencing off it accepts saves from hosts that are not the
//! owner.

use ephor::memory::MemoryStore;
use ephor::{GroupId, Lease, Store};
use ephor_core::store::{SaveOutcome, SaveRequest, StoreFuture, StoreLayer};

pub(crate) struct UserStore {
    pub(crate) inner: MemoryStore,
    pub(crate) fences: bool,
}

impl StoreLayer for UserStore {
    fn inner(&self) -> &dyn Store {
        &self.inner
    }

    fn save<'a>(&'a self, group: &'a GroupId, request: &'a SaveRequest) -> StoreFuture<'a, SaveOutcome> {
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
}
