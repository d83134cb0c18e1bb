//! A future that waits until a point of virtual time.

use std::pin::Pin;
use std::task::{Context, Poll};

use ephor_core::time::Monotonic;

use super::Machine;
use super::handle::Handle;
use super::state::{Timer, TimerKey};

/// Completes when a clock reads at least a time.
#[derive(Debug)]
#[must_use = "a future does nothing unless it is awaited"]
pub struct Sleep {
    handle: Handle,
    /// The machine whose clock counts; virtual time if `None`.
    machine: Option<Machine>,
    at: Monotonic,
    timer: Option<TimerKey>,
}

impl Sleep {
    pub(super) fn new(handle: Handle, machine: Option<Machine>, at: Monotonic) -> Self {
        Self { handle, machine, at, timer: None }
    }
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let shared = self.handle.0.clone();
        let now = shared.now();
        let mut state = shared.lock();
        let due = match self.machine {
            None => self.at,
            Some(machine) => state.machine(machine).clock.when(self.at),
        };
        let set = self.timer.and_then(|key| state.timers.get_mut(&key));
        // The replaced waker is dropped without the lock, because dropping it may run any code.
        let mut replaced = None;
        if due <= now {
            replaced = self.timer.take().and_then(|key| state.timers.remove(&key)).map(|timer| timer.waker);
            drop(state);
            drop(replaced);
            return Poll::Ready(());
        }
        match set {
            Some(timer) if timer.waker.will_wake(cx.waker()) => {}
            Some(timer) => replaced = Some(std::mem::replace(&mut timer.waker, cx.waker().clone())),
            None if due == Monotonic::NEVER => {}
            None => {
                let timer = Timer { machine: self.machine, waker: cx.waker().clone() };
                self.timer = Some(state.set_timer(due, timer));
            }
        }
        drop(state);
        drop(replaced);
        Poll::Pending
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        if let Some(key) = self.timer.take() {
            let timer = self.handle.0.lock().timers.remove(&key);
            drop(timer);
        }
    }
}
