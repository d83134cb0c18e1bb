//! A single-threaded executor with virtual time. A seed decides which task runs next.
//!
//! ```text
//!   woken ──► ready ──pick one at random, poll it──► pending ──► (a waker) ──► woken
//!     │         ▲                                       └──► done
//!     └─paused─►│resume      nothing ready: time moves to the next timer, which wakes
//! ```
//!
//! Every task belongs to a [`Machine`]. A paused machine is a process under SIGSTOP: none of its tasks is
//! polled, its timers take effect only when it resumes, and its clock runs. A crashed one loses all its tasks
//! at once; requests that it had sent are tasks of the world by then, and arrive.
//!
//! No lock is held while a future is polled or dropped, or while a waker runs:
//! all of them call back.

mod handle;
mod sleep;
mod state;
#[cfg(test)]
mod tests;

use std::ops::Deref;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex};
use std::task::{Context, Poll};
use std::time::Duration;

use ephor_core::time::Monotonic;

pub use handle::{Handle, Task};
pub use sleep::Sleep;
use state::{Next, Shared};

/// One simulated process, or the world around them all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Machine(u32);

impl Machine {
    /// The network, the store, the hub and the injection of faults. It does not pause and does not crash.
    pub const WORLD: Self = Self(0);
}

/// More polls than this at one instant mean a busy loop.
pub const MAX_POLLS_PER_INSTANT: u64 = 1_000_000;

/// The executor of one run. Everything else holds a [`Handle`]; dropping the
/// executor drops all tasks.
#[derive(Debug)]
pub struct Executor {
    handle: Handle,
}

impl Executor {
    /// An executor in which everything follows from this seed.
    pub fn new(seed: u64) -> Self {
        Self { handle: Handle(Arc::new(Shared::new(seed))) }
    }

    /// Panics after fewer polls at one instant than [`MAX_POLLS_PER_INSTANT`].
    pub fn limit_polls_per_instant(&mut self, max: u64) {
        self.handle.0.lock().max_polls = max;
    }

    /// Runs until this virtual time, including everything that is due at it.
    pub fn run_until(&mut self, at: Monotonic) {
        loop {
            while self.step() {}
            if !self.advance(at) {
                self.handle.0.set_now(at.max(self.now()));
                return;
            }
        }
    }

    /// Runs for this long.
    pub fn run_for(&mut self, duration: Duration) {
        self.run_until(self.now() + duration);
    }

    /// Runs a future on the world until it is done, together with all other tasks.
    ///
    /// Panics if nothing is left that could ever wake it.
    pub fn run<T: Send + 'static>(&mut self, future: impl Future<Output = T> + Send + 'static) -> T {
        let result = Arc::new(Mutex::new(None));
        let slot = result.clone();
        let task = self.spawn_on(Machine::WORLD, async move {
            let value = future.await;
            *slot.lock().expect("nobody panics here") = Some(value);
        });
        while !task.is_finished() {
            assert!(self.step() || self.advance(Monotonic::NEVER), "nothing can wake this future any more");
        }
        let value = result.lock().expect("nobody panics here").take();
        value.expect("a finished task has left its result")
    }

    /// Polls one task, or drops one that was aborted. Returns false if none is ready.
    fn step(&mut self) -> bool {
        let shared = &*self.handle.0;
        // The lock is released at the end of this statement.
        let next = shared.lock().next(shared.now());
        match next {
            Next::Nothing => return false,
            Next::Drop(future) => drop(future),
            Next::Poll { id, mut future, waker } => {
                match future.as_mut().poll(&mut Context::from_waker(&waker)) {
                    Poll::Ready(()) => {
                        let finished = shared.lock().remove(id);
                        drop((finished, future));
                    }
                    Poll::Pending => {
                        // A future that cannot be put back has crashed its own machine.
                        let orphan = shared.lock().put_back(id, future);
                        drop(orphan);
                    }
                }
            }
        }
        true
    }

    /// Moves time to the next timer that is due by `limit`, and fires it.
    fn advance(&mut self, limit: Monotonic) -> bool {
        let shared = &*self.handle.0;
        let Some((at, due)) = shared.lock().take_due(limit) else { return false };
        shared.set_now(at);
        due.into_iter().for_each(|timer| timer.waker.wake());
        true
    }
}

impl Deref for Executor {
    type Target = Handle;
    fn deref(&self) -> &Handle {
        &self.handle
    }
}

impl Drop for Executor {
    /// Drops all tasks, because tasks hold handles and handles hold tasks.
    fn drop(&mut self) {
        let shared = &*self.handle.0;
        shared.closed.store(true, Ordering::Relaxed);
        let tasks = std::mem::take(&mut shared.lock().tasks);
        drop(tasks);
        let timers = std::mem::take(&mut shared.lock().timers);
        drop(timers);
    }
}
