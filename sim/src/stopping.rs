//! Stops a simulated host gracefully: once, twice, or with a caller that gives up; and reports it to the
//! judge.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use ephor::{EventProcessorHost, HostId};
use ephor_core::time::Monotonic;

use crate::executor::{Handle, Machine};
use crate::fleet::{SimHost, World};
use crate::history::History;
use crate::judge::Judge;

/// The time that a stop usually leaves to calls in flight.
pub(crate) const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The time for closing, and for the notifications of it.
const STOP_GRACE: Duration = Duration::from_secs(6);
/// At most this many attempts, with a pause of `STOP_RETRY`, to stop a process that is still starting.
const MAX_STOP_ATTEMPTS: u32 = 60;
const STOP_RETRY: Duration = Duration::from_secs(1);
/// At most this many store calls in a row fail before a stop gives up.
const MAX_STOP_CALLS: u32 = 7;

/// A stop of a host that has stopped already returns within this time.
const ANSWER_TIME: Duration = Duration::from_secs(1);

/// The callers of a stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum StopCallers {
    /// One caller, which waits for the report.
    One,
    /// Another caller stops the host again, this much later and within this time. Both get the report.
    Two { after: Duration, within: Duration },
    /// The only caller goes away after this time. Another one asks for the report after `again`.
    Leaves { after: Duration, again: Duration },
}

/// The number of stops of one process that have not returned.
#[derive(Clone, Debug, Default)]
pub(crate) struct PendingStops(Arc<AtomicUsize>);

impl PendingStops {
    pub(crate) fn is_zero(&self) -> bool {
        self.0.load(Ordering::Relaxed) == 0
    }

    fn add(&self) {
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    fn remove(&self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// A process that is to be stopped.
#[derive(Clone)]
struct Stop {
    process: Arc<EventProcessorHost>,
    name: String,
    machine: Machine,
    handle: Handle,
    history: History,
    judge: Judge,
    /// The longest time of a stop beyond the time for calls in flight.
    longest: Duration,
}

impl SimHost {
    /// Stops the process gracefully, and leaves calls in flight this much time.
    pub(crate) fn stop(&mut self, world: &World, within: Duration) {
        self.stop_for(world, within, StopCallers::One);
    }

    /// Stops the process gracefully, for these callers.
    pub(crate) fn stop_for(&mut self, world: &World, within: Duration, callers: StopCallers) {
        let Some(process) = self.process.clone().filter(|_| self.stopping.is_none()) else { return };
        let stop = Stop {
            process,
            name: self.name.clone(),
            machine: self.machine,
            handle: world.handle.clone(),
            history: world.history.clone(),
            judge: world.judge.clone(),
            longest: self.config.manager_options().store_timeout * MAX_STOP_CALLS + STOP_GRACE,
        };
        let pending = PendingStops::default();
        self.stopping = Some(pending.clone());
        pending.add();
        if let StopCallers::Two { after, within } = callers {
            pending.add();
            let (stop, pending) = (stop.clone(), pending.clone());
            world.handle.spawn_on(self.machine, async move {
                stop.handle.sleep(after).await;
                stop.call(within, stop.running_host(), stop.handle.now()).await;
                pending.remove();
            });
        }
        world.handle.spawn_on(self.machine, async move {
            // A process that is still starting cannot be stopped yet.
            for _ in 0..MAX_STOP_ATTEMPTS {
                if stop.process.snapshot().is_some() {
                    break;
                }
                stop.handle.sleep(STOP_RETRY).await;
            }
            let host = stop.running_host();
            match callers {
                StopCallers::Leaves { after, again } => stop.call_twice(within, host, after, again).await,
                _ => stop.call(within, host, stop.handle.now()).await,
            }
            pending.remove();
        });
    }
}

impl Stop {
    fn running_host(&self) -> Option<HostId> {
        Some(self.process.snapshot()?.host)
    }

    /// Stops the process and waits for the report. `host` is the host that is to be stopped, if one runs, and
    /// `told_at` the time at which it was first told.
    async fn call(&self, within: Duration, host: Option<HostId>, told_at: Monotonic) {
        if let Some(host) = &host {
            self.judge.told_to_stop(host, within);
        }
        let longest = (within + self.longest).max(self.handle.now().since(told_at) + ANSWER_TIME);
        match (self.process.stop(within).await, host) {
            (Ok(report), host) => {
                self.history.append(format_args!("{} stopped: {report}", self.name));
                if let Some(host) = host {
                    self.judge.stopped(&host, &report);
                }
                self.judge.stopped_in_time(self.machine, told_at, longest);
            }
            (Err(error), None) => {
                self.history.append(format_args!("{} does not stop: {error}", self.name));
            }
            (Err(error), Some(host)) => self.judge.stop_was_refused(&host, &error.to_string()),
        }
    }

    /// Stops the process with a caller that goes away, and asks for the report later.
    async fn call_twice(&self, within: Duration, host: Option<HostId>, after: Duration, again: Duration) {
        let told_at = self.handle.now();
        tokio::select! {
            biased;
            () = self.call(within, host.clone(), told_at) => return,
            () = self.handle.sleep(after) => {}
        }
        self.history.append(format_args!("{}: the caller of its stop goes away", self.name));
        self.handle.sleep(again).await;
        self.call(within, host, told_at).await;
    }
}
