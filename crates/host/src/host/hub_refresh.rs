//! Refreshes the manager's knowledge of the hub: its partitions, and their ends for the lag.

use ephor_core::same_hub::HUB_REFRESH;
use ephor_core::source::HubProperties;
use ephor_core::time::Monotonic;
use futures_util::StreamExt;

use super::manager::Manager;
use super::same_hub;
use crate::context::PartitionContext;
use crate::error::HostError;
use crate::pump::guard::{Disposition, Drain};
use crate::pump::open::within_limit;
use crate::pump::state::PumpState;

/// The most concurrent requests to the hub.
const MAX_CONCURRENT_REQUESTS: usize = 16;

/// The properties of the hub, with their time.
pub(super) struct HubAnswer {
    pub(super) hub: HubProperties,
    /// The time of the request. The properties are not older than that, but may have been long on
    /// their way.
    pub(super) asked: Monotonic,
}

impl Manager {
    /// Asks the hub for its partitions periodically, because it may grow.
    pub(super) async fn refresh_hub(&mut self) {
        if self.shared.now() < self.refresh_at {
            return;
        }
        let (environment, limit) = (&*self.shared.environment, self.shared.manager.store_timeout);
        let asked = self.shared.now();
        match within_limit(environment, limit, self.shared.source.hub_properties()).await {
            Ok(hub) => {
                self.shared.hub_health.reads(None, self.shared.now());
                self.refresh_at = asked + HUB_REFRESH;
                if std::mem::take(&mut self.hub_away) {
                    // The hub was the cause, and it is back: the host is healthy again.
                    self.health.recovered();
                }
                self.partitions = hub.partitions;
                self.partitions.sort_unstable();
                if self.log != hub.log {
                    // The other hosts learn of the new log at their own times.
                    self.hub_tracker = same_hub::hub_tracker(&self.shared);
                    self.log = hub.log;
                    self.end_pumps_of_the_old_log();
                }
            }
            // The pumps will report whether the hub is really unreachable.
            Err(error) => {
                self.hub_away = true;
                self.refresh_at = self.shared.now() + self.shared.manager.slow_scan;
                self.shared.hub_health.failed(None, self.shared.now(), &error);
                self.shared.reporter.report_one_of_many(&HostError::Hub { error });
            }
        }
    }

    /// The hub was deleted and created again, and a receiver may have reconnected to the new log by
    /// itself, perhaps in the middle. So everything that started in the old log starts again.
    fn end_pumps_of_the_old_log(&self) {
        let until = self.shared.now() + self.shared.manager.handover_timeout;
        let successor = Some(self.shared.me.clone());
        for slot in self.shared.slots().values().filter(|slot| slot.context.inner().log != self.log) {
            slot.stop(Drain { until, disposition: Disposition::Release { successor: successor.clone() } });
        }
    }

    /// Reads the end of the partitions that are owned but not read at the moment, so that their lag
    /// stays current.
    pub(super) async fn refresh_lag(&mut self) {
        let shared = self.shared.clone();
        let now = shared.now();
        if now < self.lag_at {
            return;
        }
        self.lag_at = now + shared.manager.renew_interval;
        let standing: Vec<PartitionContext> = shared
            .slots()
            .values()
            .filter(|slot| {
                let lease = &slot.context.inner().lease;
                let long = |since: Monotonic| now.since(since) >= shared.manager.renew_interval;
                matches!(lease.pump_state(), PumpState::Paused | PumpState::Failing | PumpState::Halted)
                    || lease.call_running_since().is_some_and(long)
            })
            .map(|slot| slot.context.clone())
            .collect();
        let asked = standing.into_iter().map(|context| {
            let shared = shared.clone();
            async move {
                let limit = shared.manager.store_timeout;
                let question = shared.source.partition_properties(context.partition());
                // The pump reports a hub that does not answer.
                if let Ok(properties) = within_limit(&*shared.environment, limit, question).await {
                    let mut progress = context.progress();
                    progress.first_kept = properties.first;
                    progress.last_enqueued = properties.last;
                }
            }
        });
        let asked =
            futures_util::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_REQUESTS).collect::<Vec<()>>();
        // All of them share the time of one, so that a hub that hangs does not delay our heartbeat.
        let limit = shared.environment.sleep_until(now + shared.manager.store_timeout);
        tokio::select! {
            biased;
            _ = asked => {}
            () = limit => {}
        }
    }
}
