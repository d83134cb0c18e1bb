//! The Azure Blob store keeps every promise of a store: alone, and with neighbours, as far as it says so.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::store::Store;
use ephor_stores::azblob::{BlobOptions, BlobStore, Neighbours};
use ephor_testkit::conformance::store::StoreFixture;

use crate::server::{open, open_with, place};

struct One(BlobStore);

impl One {
    fn new() -> Self {
        Self(open(&format!("{}/blue/green", place())))
    }

    fn with_neighbours() -> Self {
        Self(open_with(&place(), BlobOptions { neighbours: Neighbours::Sdk, ..BlobOptions::default() }))
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

mod one_store {
    use super::*;
    ephor_testkit::store_conformance!(One::new());
}

mod in_two_processes {
    use crate::two_processes::Two;
    ephor_testkit::store_conformance!(Two::new());
}

mod with_neighbours {
    use super::*;
    ephor_testkit::store_conformance!(One::with_neighbours());
}
