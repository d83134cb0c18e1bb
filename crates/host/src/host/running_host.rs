//! The state of a running host that its manager, its renewer and its methods share: served partitions,
//! status, the request to stop, and services.

use std::collections::{BTreeMap, BTreeSet};
use std::convert::Infallible;
use std::future::Future;
use std::ops::Deref;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::host_record::{HostState, HostStatistics};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::LeaseToken;
use ephor_core::panics::{self, Panicked};
use ephor_core::time::{Monotonic, Timestamp};
use tokio::sync::{broadcast, watch};

use super::ownership_changes::{OwnershipEvent, OwnershipReason};
use crate::context::PartitionContext;
use crate::environment::TaskHandle;
use crate::error::HostError;
use crate::host_services::HostServices;
use crate::processor::CloseReason;
use crate::pump_activity::PumpActivity;
use crate::pump_interface::{Control, Disposition, Drain, RunPump, Stop};

/// The state of a running host, which its tasks share.
pub(crate) struct RunningHost {
    services: Arc<HostServices>,
    pub(crate) run_pump: RunPump,
    pub(crate) changes: broadcast::Sender<OwnershipEvent>,
    slots: Mutex<BTreeMap<PartitionId, Slot>>,
    status: Mutex<Status>,
    /// The time until which calls in flight may go on, once the host is stopped.
    pub(crate) stop: watch::Sender<Option<Monotonic>>,
}

/// The services are used at every step, so they are reached without a name in between.
impl Deref for RunningHost {
    type Target = HostServices;

    fn deref(&self) -> &HostServices {
        &self.services
    }
}

/// A partition that this host serves.
pub(crate) struct Slot {
    pub(crate) context: PartitionContext,
    pub(crate) activity: Arc<PumpActivity>,
    pub(crate) control: watch::Sender<Control>,
    /// Dropping it ends the pump.
    pub(crate) _task: TaskHandle,
    pub(crate) since: Timestamp,
    pub(crate) started: Monotonic,
    pub(crate) reason: OwnershipReason,
    /// The time at which a call was first seen to go on although its own time or the lease is over.
    pub(crate) over_since: Option<Monotonic>,
}

impl Slot {
    pub(crate) fn token(&self) -> &LeaseToken {
        self.context.lease().token()
    }

    /// Notifies the pump that the partition is lost.
    pub(crate) fn lose(&self, reason: CloseReason) {
        self.control.send_if_modified(|control| {
            let news = !matches!(control.stop, Some(Stop::Lost(_)));
            if news {
                control.stop = Some(Stop::Lost(reason));
            }
            news
        });
        self.context.lease().end();
    }

    /// Asks the pump to stop gracefully. A second call can only shorten the time.
    pub(crate) fn stop(&self, drain: Drain) {
        self.control.send_if_modified(|control| match &mut control.stop {
            None => {
                control.stop = Some(Stop::Drain(drain));
                true
            }
            Some(Stop::Drain(earlier)) if drain.until < earlier.until => {
                earlier.until = drain.until;
                true
            }
            Some(_) => false,
        });
    }

    /// The time until which calls in flight may go on, if the pump was asked to stop gracefully.
    pub(crate) fn drains_until(&self) -> Option<Monotonic> {
        match &self.control.borrow().stop {
            Some(Stop::Drain(drain)) => Some(drain.until),
            _ => None,
        }
    }

    /// Names the successor of a partition that is to be released, if that is not decided yet.
    pub(crate) fn decide(&self, successor: Option<HostId>) {
        self.control.send_if_modified(|control| match &mut control.stop {
            Some(Stop::Drain(Drain { disposition: disposition @ Disposition::Undecided, .. })) => {
                *disposition = Disposition::Release { successor };
                true
            }
            _ => false,
        });
    }

    /// Turns a handover into a release, if its receiver has gone, as `gone` reports.
    pub(crate) fn redirect(&self, gone: impl Fn(&HostId) -> bool) {
        self.control.send_if_modified(|control| match &mut control.stop {
            Some(Stop::Drain(Drain { disposition, .. })) => match disposition {
                Disposition::HandOver { to, .. } if gone(to) => {
                    *disposition = Disposition::Release { successor: None };
                    true
                }
                _ => false,
            },
            _ => false,
        });
    }
}

/// The manager's last view of the fleet.
#[derive(Clone, Debug, Default)]
pub(crate) struct Status {
    pub(crate) state: HostState,
    pub(crate) share: u32,
    pub(crate) hosts_alive: usize,
    pub(crate) partitions: usize,
    pub(crate) scans: u64,
    pub(crate) paused: BTreeSet<PartitionId>,
}

impl RunningHost {
    pub(crate) fn new(
        services: HostServices,
        run_pump: RunPump,
        changes: broadcast::Sender<OwnershipEvent>,
    ) -> Self {
        Self {
            services: Arc::new(services),
            run_pump,
            changes,
            slots: Mutex::default(),
            status: Mutex::default(),
            stop: watch::Sender::new(None),
        }
    }

    /// The services, for a pump.
    pub(crate) fn services(&self) -> &Arc<HostServices> {
        &self.services
    }

    /// Starts a task without which this host cannot work. It catches its own panics; if it ends by
    /// one all the same, the host drops its partitions, so that others can serve them.
    pub(crate) fn spawn(
        self: &Arc<Self>,
        task: &'static str,
        run: impl Future<Output = ()> + Send + 'static,
    ) -> TaskHandle {
        let running = self.clone();
        self.environment.spawn(Box::pin(async move {
            if let Err(Panicked { message }) = panics::caught_async(run).await {
                running.drop_pumps();
                running.reporter.report(&HostError::TaskEnded { task, message });
            }
        }))
    }

    /// Ends all pumps without closing anything, so that their leases expire. Returns their number.
    pub(crate) fn drop_pumps(&self) -> usize {
        // The tasks go first, so that none of them closes anything on the way out.
        let slots = std::mem::take(&mut *self.slots());
        let contexts: Vec<_> = slots.values().map(|slot| slot.context.clone()).collect();
        drop(slots);
        for context in &contexts {
            context.lease().end();
            context.cancel();
        }
        contexts.len()
    }

    /// Asks all pumps to stop: nothing new is delivered, and calls in flight may go on until then.
    pub(crate) fn stop_slots(&self, until: Monotonic) {
        for slot in self.slots().values() {
            slot.stop(Drain { until, disposition: Disposition::Undecided });
        }
    }

    /// True once somebody has called `stop`.
    pub(crate) fn is_stop_requested(&self) -> bool {
        self.stop.borrow().is_some()
    }

    /// Completes once somebody has called `stop`.
    pub(crate) async fn stop_requested(&self) {
        // It cannot fail: the sender is ours.
        let _ = self.stop.subscribe().wait_for(Option::is_some).await;
    }

    /// Asks all pumps to stop `delay` after somebody has called `stop`, and again whenever another call
    /// shortens the time.
    pub(crate) async fn stop_slots_on_request(&self, delay: Duration) -> Infallible {
        let mut stop = self.stop.subscribe();
        let _ = stop.wait_for(Option::is_some).await;
        self.environment.sleep_until(self.now() + delay).await;
        loop {
            let until = *stop.borrow_and_update();
            if let Some(until) = until {
                self.stop_slots(until);
            }
            let _ = stop.changed().await;
        }
    }

    pub(crate) fn slots(&self) -> MutexGuard<'_, BTreeMap<PartitionId, Slot>> {
        self.slots.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn status(&self) -> MutexGuard<'_, Status> {
        self.status.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn statistics(&self) -> HostStatistics {
        let slots = self.slots();
        HostStatistics {
            owned: u32::try_from(slots.len()).unwrap_or(u32::MAX),
            events: self.events(),
            lag_events: slots.values().map(|slot| slot.context.lag().events).sum(),
            failures: self.failures(),
        }
    }
}
