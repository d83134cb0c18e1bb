//! Tests that the memory store passes the conformance suite: with and without wake-ups, on a manual clock
//! and on the system clock, and through a layer that forwards every call.

use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use ephor::environment::{Environment, TokioEnvironment};
use ephor::memory::MemoryStore;
use ephor_core::BoxFuture;
use ephor_core::store::Store;
use ephor_core::time::{Clock, Monotonic, Timestamp};
use ephor_testkit::CountingStore;
use ephor_testkit::conformance::store::StoreFixture;

/// A clock that stands still unless it is set forward.
#[derive(Default)]
struct ManualClock {
    milliseconds: AtomicI64,
}

impl Clock for ManualClock {
    fn now(&self) -> Monotonic {
        Monotonic(0) + self.wall().since(Timestamp(0))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(self.milliseconds.load(Ordering::SeqCst))
    }
}

struct MemoryFixture {
    clock: Arc<ManualClock>,
    store: Arc<dyn Store>,
}

impl MemoryFixture {
    fn new(finish: impl FnOnce(MemoryStore) -> MemoryStore) -> Self {
        let clock = Arc::new(ManualClock::default());
        Self { store: Arc::new(finish(MemoryStore::new(clock.clone()))), clock }
    }

    fn with_wakes() -> Self {
        Self::new(|store| store)
    }

    fn without_wakes() -> Self {
        Self::new(MemoryStore::without_wakes)
    }

    fn through_a_layer() -> Self {
        let Self { clock, store } = Self::with_wakes();
        Self { clock, store: Arc::new(CountingStore::new(store)) }
    }
}

impl StoreFixture for MemoryFixture {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { self.store.clone() })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        let milliseconds = i64::try_from(time.as_millis()).expect("a short time");
        self.clock.milliseconds.fetch_add(milliseconds, Ordering::SeqCst);
        Box::pin(async {})
    }
}

/// The machine's own clock, as for a backend with its own server.
#[derive(Default)]
struct RealTimeFixture(MemoryStore);

impl StoreFixture for RealTimeFixture {
    fn store(&self) -> BoxFuture<'_, Arc<dyn Store>> {
        Box::pin(async { Arc::new(self.0.clone()) as Arc<dyn Store> })
    }

    fn pass(&self, time: Duration) -> BoxFuture<'_, ()> {
        TokioEnvironment.sleep_until(TokioEnvironment.now() + time)
    }
}

mod with_wakes {
    use super::*;
    ephor_testkit::store_conformance!(MemoryFixture::with_wakes());
}

mod without_wakes {
    use super::*;
    ephor_testkit::store_conformance!(MemoryFixture::without_wakes());
}

mod through_a_layer {
    use super::*;
    ephor_testkit::store_conformance!(MemoryFixture::through_a_layer());
}

mod in_real_time {
    use super::*;
    ephor_testkit::store_conformance!(RealTimeFixture::default());
}
