//! Runs the conformance suite on the Azure Blob store: with one store, with two stores that stand for two
//! processes, and shared with other SDKs.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::store::Store;
use ephor_stores::azblob::{BlobOptions, SharedWith};
use ephor_testkit::conformance::store::{StoreFixture, TwoStores};

use crate::server::{open, open_with, place};

struct Fixture(Arc<dyn Store>);

impl Fixture {
    fn one() -> Self {
        Self(Arc::new(open(&format!("{}/blue/green", place()))))
    }

    fn two() -> Self {
        let place = place();
        Self(Arc::new(TwoStores::by_host([open(&place), open(&place)])))
    }

    fn shared_with_sdks() -> Self {
        let options = BlobOptions { shared_with: SharedWith::OtherSdks, ..BlobOptions::default() };
        Self(Arc::new(open_with(&place(), options)))
    }
}

impl StoreFixture for Fixture {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { self.0.clone() })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        Box::pin(tokio::time::sleep(time))
    }
}

mod one_store {
    use super::*;
    ephor_testkit::store_conformance!(Fixture::one());
}

mod in_two_processes {
    use super::*;
    ephor_testkit::store_conformance!(Fixture::two());
}

mod shared_with_sdks {
    use super::*;
    ephor_testkit::store_conformance!(Fixture::shared_with_sdks());
}
