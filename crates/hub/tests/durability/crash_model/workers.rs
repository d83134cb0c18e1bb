//! Runs independent checks in parallel: one thread for each CPU core.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use tokio::runtime::{Builder, Runtime};

use super::Checked;

/// A runtime without threads of its own.
pub fn runtime() -> Runtime {
    Builder::new_current_thread().build().expect("a runtime")
}

/// Does it for each of them, and yields all violations in the order of the items. A panic is one, too.
pub fn for_each<T: Sync>(items: &[T], act: impl Fn(&Runtime, &T) -> Checked + Sync) -> Vec<(usize, String)> {
    let (next, violations) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    std::thread::scope(|scope| {
        for _ in 0..std::thread::available_parallelism().map_or(1, usize::from) {
            scope.spawn(|| {
                let runtime = runtime();
                loop {
                    let at = next.fetch_add(1, Ordering::Relaxed);
                    let Some(item) = items.get(at) else { return };
                    let done = catch_unwind(AssertUnwindSafe(|| act(&runtime, item)));
                    let done = done.unwrap_or_else(|_| Err("it panicked, see above".to_owned()));
                    if let Err(violation) = done {
                        violations.lock().unwrap_or_else(PoisonError::into_inner).push((at, violation));
                    }
                }
            });
        }
    });
    let mut violations = violations.into_inner().unwrap_or_else(PoisonError::into_inner);
    violations.sort();
    violations
}
