//! What the manager asks of the hub: its partitions, and how far they have grown.

use ephor_core::same_hub::HUB_REFRESH;
use ephor_core::source::HubProperties;
use ephor_core::time::Monotonic;
use futures_util::StreamExt;

use super::manager::Manager;
use super::same_hub;
use crate::context::PartitionContext;
use crate::error::HostError;
use crate::lease_state::Stage;
use crate::pump::guard::{Drain, Way};
use crate::pump::open::within_limit;

/// Questions to the hub under way at the same time.
const QUESTIONS_AT_ONCE: usize = 16;

/// What the hub said of itself.
pub(super) struct HubLook {
    pub(super) hub: HubProperties,
    /// When it was asked. The answer is at least as young as that, and may have been long under way.
    pub(super) asked: Monotonic,
}

impl Manager {
    /// Asks the hub for its partitions from time to time: it may grow.
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
                    // It was the hub, and it is back: no reason to rest any longer.
                    self.fitness.well();
                }
                self.partitions = hub.partitions;
                self.partitions.sort_unstable();
                if self.log != hub.log {
                    // The others learn of it in their own time.
                    self.hub_watch = same_hub::watch(&self.shared);
                    self.log = hub.log;
                    self.end_pumps_of_the_old_log();
                }
            }
            // The pumps will tell whether the hub is really out of reach.
            Err(error) => {
                self.hub_away = true;
                self.refresh_at = self.shared.now() + self.shared.manager.slow_scan;
                self.shared.hub_health.failed(None, self.shared.now(), &error);
                self.shared.reporter.report_one_of_many(&HostError::Hub { error });
            }
        }
    }

    /// The hub was made anew, and a receiver may have found its way into the new log by itself: in the middle of it,
    /// perhaps. So whatever began in the old one begins again.
    fn end_pumps_of_the_old_log(&self) {
        let until = self.shared.now() + self.shared.manager.handover_timeout;
        let heir = Some(self.shared.me.clone());
        for slot in self.shared.slots().values().filter(|slot| slot.context.inner().log != self.log) {
            slot.stop(Drain { until, way: Way::Release { heir: heir.clone() } });
        }
    }

    /// Looks at the end of the partitions that are owned and not read at the
    /// moment, so that their lag does not stand still with them.
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
                matches!(lease.stage(), Stage::Paused | Stage::Failing | Stage::Halted)
                    || lease.call_running_since().is_some_and(long)
            })
            .map(|slot| slot.context.clone())
            .collect();
        let asked = standing.into_iter().map(|context| {
            let shared = shared.clone();
            async move {
                let limit = shared.manager.store_timeout;
                let question = shared.source.partition_properties(context.partition());
                // A hub that does not answer is the pump's to report.
                if let Ok(properties) = within_limit(&*shared.environment, limit, question).await {
                    let mut progress = context.progress();
                    progress.first_kept = properties.first;
                    progress.last_enqueued = properties.last;
                }
            }
        });
        let asked =
            futures_util::stream::iter(asked).buffer_unordered(QUESTIONS_AT_ONCE).collect::<Vec<()>>();
        // All of them together have the time of one: a hub that hangs does not keep us from our heartbeat.
        let limit = shared.environment.sleep_until(now + shared.manager.store_timeout);
        tokio::select! {
            biased;
            _ = asked => {}
            () = limit => {}
        }
    }
}
