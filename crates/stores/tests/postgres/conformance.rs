//! Runs the conformance suite on the PostgreSQL store: with one store, with two stores that stand for two
//! processes, and without listening for wake-ups.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::store::Store;
use ephor_stores::postgres::{PostgresOptions, PostgresStore};
use ephor_testkit::conformance::store::{StoreFixture, TwoStores};

use crate::fixture::open_with;
use crate::server::shared;

fn store_with(options: PostgresOptions) -> PostgresStore {
    // All share one database: the suite works in groups of its own.
    open_with(&shared().url("postgres"), options)
}

struct Fixture(Arc<dyn Store>);

impl Fixture {
    fn one() -> Self {
        Self(Arc::new(store_with(PostgresOptions::default())))
    }

    fn two() -> Self {
        Self(Arc::new(TwoStores::in_turn([0, 1].map(|_| store_with(PostgresOptions::default())))))
    }

    fn without_listening() -> Self {
        let options = PostgresOptions { listen: false, connections: 1, ..PostgresOptions::default() };
        Self(Arc::new(store_with(options)))
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

mod two_stores {
    use super::*;
    ephor_testkit::store_conformance!(Fixture::two());
}

mod without_listening {
    use super::*;
    ephor_testkit::store_conformance!(Fixture::without_listening());
}
