//! A runtime environment on tokio's clock: virtual under `#[tokio::test(start_paused = true)]`, real
//! otherwise.

use std::sync::Arc;

use ephor::environment::{Environment, TaskHandle};
use ephor_core::BoxFuture;
use ephor_core::time::{Clock, Monotonic, Timestamp};

/// The start of virtual time: midnight of 2026-01-01.
const BEGINNING: Timestamp = Timestamp(1_767_225_600_000);

/// An environment whose clock is tokio's. With paused time, hours pass in an instant as soon as
/// every task waits.
#[derive(Clone, Debug)]
pub struct VirtualEnvironment {
    start: tokio::time::Instant,
    chance: Arc<std::sync::Mutex<u64>>,
}

impl VirtualEnvironment {
    /// An environment that starts now. Must be created inside a tokio runtime.
    #[expect(
        clippy::new_without_default,
        reason = "it reads the runtime's clock, which a default should not"
    )]
    pub fn new() -> Self {
        Self { start: tokio::time::Instant::now(), chance: Arc::new(std::sync::Mutex::new(1)) }
    }
}

impl Clock for VirtualEnvironment {
    fn now(&self) -> Monotonic {
        Monotonic(u64::try_from(self.start.elapsed().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> Timestamp {
        BEGINNING + self.start.elapsed()
    }
}

impl Environment for VirtualEnvironment {
    #[expect(clippy::disallowed_methods, reason = "this is where sleeping comes from")]
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()> {
        Box::pin(tokio::time::sleep(at.since(self.now())))
    }

    #[expect(clippy::disallowed_methods, reason = "this is where tasks come from")]
    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle {
        let handle = tokio::spawn(task).abort_handle();
        TaskHandle::new(move || handle.abort())
    }

    /// The same numbers in every run, so that tests are repeatable.
    fn random(&self) -> u64 {
        let mut state = self.chance.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *state = state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (*state ^ (*state >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed ^ (mixed >> 31)
    }
}
