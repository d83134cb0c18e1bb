//! Stops a host gracefully, and reports it to the judge.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use crate::fleet::{SimHost, World};

/// The time that a stop usually leaves to calls in flight.
pub(crate) const STOP_WITHIN: Duration = Duration::from_secs(20);

/// The time for closing, and for the notifications of it.
const STOP_GRACE: Duration = Duration::from_secs(6);
/// At most this many attempts, with a pause of `STOP_AGAIN`, to stop a process that is still starting.
const STOP_ATTEMPTS: u32 = 60;
const STOP_AGAIN: Duration = Duration::from_secs(1);
/// At most this many store calls in a row fail before a stop gives up.
const STOP_CALLS: u32 = 7;

impl SimHost {
    /// Stops the process gracefully, and leaves calls in flight this much time.
    pub(crate) fn stop(&mut self, world: &World, within: Duration) {
        let Some(process) = self.process.clone().filter(|_| self.stopping.is_none()) else { return };
        let (history, judge, name) = (world.history.clone(), world.judge.clone(), self.name.clone());
        let stopped = Arc::new(AtomicBool::new(false));
        self.stopping = Some(stopped.clone());
        let (handle, machine, begun) = (world.handle.clone(), self.machine, world.handle.now());
        let longest = within + self.style.manager_options().store_timeout * STOP_CALLS + STOP_GRACE;
        world.handle.spawn_on(self.machine, async move {
            // A process that is still starting cannot be stopped yet.
            for _ in 0..STOP_ATTEMPTS {
                if process.snapshot().is_some() {
                    break;
                }
                handle.sleep(STOP_AGAIN).await;
            }
            let host = process.snapshot().map(|snapshot| snapshot.host);
            if let Some(host) = &host {
                judge.told_to_stop(host, within);
            }
            match process.stop(within).await {
                Ok(report) => {
                    history.tell(format_args!("{name} stopped: {report}"));
                    if let Some(host) = host {
                        judge.stopped(&host, &report);
                    }
                    judge.stopped_in_time(machine, begun, longest + STOP_AGAIN * STOP_ATTEMPTS);
                }
                Err(error) => history.tell(format_args!("{name} does not stop: {error}")),
            }
            stopped.store(true, Ordering::Relaxed);
        });
    }
}
