//! The environment of a host: clocks, tasks and randomness, which tests and the simulation replace; with the
//! one that runs on tokio and the machine's clock.
//!
//! The host takes all three from its [`Environment`] and never from the operating system, so that a
//! simulation can control them: pause one host, let another's clock drift, and replay a run from
//! its seed.

use std::fmt;
use std::time::Duration;

use ephor_core::BoxFuture;
use ephor_core::time::{Clock, Monotonic, Timestamp};

use crate::os;

/// The environment in which a host runs.
pub trait Environment: Clock {
    /// Completes at this instant, or at once if it has passed.
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()>;

    /// Runs a task in the background until it ends or its handle is dropped.
    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle;

    /// A random number.
    fn random(&self) -> u64;

    /// Keeps timers running while a task blocks its thread, until the handle is dropped. `None` if
    /// nothing needs to be done for that.
    fn keep_timers_running(&self) -> Option<TaskHandle> {
        None
    }
}

/// A running task. Dropping the handle ends the task at its next await.
#[must_use = "dropping the handle ends the task"]
pub struct TaskHandle(Option<Box<dyn FnOnce() + Send + Sync>>);

impl TaskHandle {
    /// A handle that ends its task by calling `abort`.
    pub fn new(abort: impl FnOnce() + Send + Sync + 'static) -> Self {
        Self(Some(Box::new(abort)))
    }
}

impl Drop for TaskHandle {
    fn drop(&mut self) {
        if let Some(abort) = self.0.take() {
            abort();
        }
    }
}

impl fmt::Debug for TaskHandle {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TaskHandle")
    }
}

/// The machine's own clock: `CLOCK_BOOTTIME`, which goes on while the machine is suspended.
/// (`std::time::Instant` does not, so a laptop that wakes up would trust leases that have expired.)
///
/// It does not count the time in which a hypervisor stops the whole virtual machine: a snapshot, a
/// live migration, `virsh suspend`. An owner that wakes up from that trusts its lease until its
/// next renewal is refused; until then its calls may overlap with those of the next owner. Its
/// writes are fenced all the same: the hub refuses its epoch, and the store its checkpoints.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Monotonic {
        Monotonic(u64::try_from(os::since_boot().as_nanos()).unwrap_or(u64::MAX))
    }

    fn wall(&self) -> Timestamp {
        Timestamp(i64::try_from(os::since_1970().as_millis()).unwrap_or(i64::MAX))
    }
}

/// The environment of a program that runs on tokio.
#[derive(Clone, Copy, Debug, Default)]
pub struct TokioEnvironment;

/// The time by which timers may be late while a task blocks the thread that drives them.
const PULSE: Duration = Duration::from_millis(250);

/// The longest single sleep. Tokio's timers do not count suspended time, so they are set again at
/// least this often.
const MAX_SLEEP: Duration = Duration::from_secs(1);

impl Clock for TokioEnvironment {
    fn now(&self) -> Monotonic {
        SystemClock.now()
    }

    fn wall(&self) -> Timestamp {
        SystemClock.wall()
    }
}

impl Environment for TokioEnvironment {
    #[expect(clippy::disallowed_methods, reason = "this is where sleeping comes from")]
    fn sleep_until(&self, at: Monotonic) -> BoxFuture<'static, ()> {
        Box::pin(async move {
            loop {
                let left = at.since(SystemClock.now());
                if left.is_zero() {
                    return;
                }
                tokio::time::sleep(left.min(MAX_SLEEP)).await;
            }
        })
    }

    #[expect(clippy::disallowed_methods, reason = "this is where tasks come from")]
    fn spawn(&self, task: BoxFuture<'static, ()>) -> TaskHandle {
        let handle = tokio::spawn(task).abort_handle();
        TaskHandle::new(move || handle.abort())
    }

    fn random(&self) -> u64 {
        os::random()
    }

    /// One worker of tokio drives all timers. If the next task that it runs blocks, no idle worker
    /// takes over until something wakes it from outside. So a thread of its own does.
    fn keep_timers_running(&self) -> Option<TaskHandle> {
        let runtime = tokio::runtime::Handle::current();
        if runtime.runtime_flavor() == tokio::runtime::RuntimeFlavor::CurrentThread {
            return None;
        }
        let (stop, stopped) = std::sync::mpsc::channel::<()>();
        let pulse = std::thread::Builder::new().name("ephor-pulse".into()).spawn(move || {
            while stopped.recv_timeout(PULSE) == Err(std::sync::mpsc::RecvTimeoutError::Timeout) {
                runtime.spawn(async {});
            }
        });
        // Without this thread, only a processor that blocks does more harm.
        pulse.ok().map(|_| TaskHandle::new(move || drop(stop)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_clock_moves_on_and_knows_the_date() {
        let before = SystemClock.now();
        while SystemClock.now() == before {}
        assert!(SystemClock.now() > before);
        assert!(SystemClock.wall() > Timestamp(1_700_000_000_000));
    }

    #[tokio::test]
    async fn a_dropped_handle_ends_its_task() {
        let (sender, receiver) = tokio::sync::oneshot::channel::<()>();
        let handle = TokioEnvironment.spawn(Box::pin(async move {
            let _held = sender;
            std::future::pending::<()>().await;
        }));
        drop(handle);
        assert!(receiver.await.is_err());
    }

    #[tokio::test]
    async fn sleeping_ends_no_earlier_than_asked() {
        let until = TokioEnvironment.now() + Duration::from_millis(20);
        TokioEnvironment.sleep_until(until).await;
        assert!(TokioEnvironment.now() >= until);
        TokioEnvironment.sleep_until(Monotonic(0)).await;
    }
}
