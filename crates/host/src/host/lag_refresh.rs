//! Refreshes the lag of the partitions that are owned but not read at the moment.

use std::sync::Arc;
use std::time::Duration;

use ephor_core::time::Monotonic;
use futures_util::StreamExt;

use super::running_host::RunningHost;
use crate::context::PartitionContext;
use crate::hub_calls::within_limit;
use crate::pump_activity::{PumpActivity, PumpState};

/// The most concurrent requests to the hub.
const MAX_CONCURRENT_REQUESTS: usize = 16;

#[derive(Debug)]
pub(super) struct LagRefresh {
    due_at: Monotonic,
}

impl LagRefresh {
    pub(super) fn new(now: Monotonic) -> Self {
        Self { due_at: now }
    }

    /// True once an interval.
    fn take_due(&mut self, now: Monotonic, interval: Duration) -> bool {
        let due = now >= self.due_at;
        if due {
            self.due_at = now + interval;
        }
        due
    }

    /// Reads the ends of the partitions that nobody reads, if that is due.
    pub(super) async fn refresh(&mut self, running: &Arc<RunningHost>) {
        let now = running.now();
        let interval = running.manager.renew_interval;
        if !self.take_due(now, interval) {
            return;
        }
        let unread: Vec<PartitionContext> = running
            .slots()
            .values()
            .filter(|slot| is_unread(&slot.activity, now, interval))
            .map(|slot| slot.context.clone())
            .collect();
        let asked = unread.into_iter().map(|context| {
            let running = running.clone();
            async move {
                let limit = running.manager.store_timeout;
                let question = running.source.partition_properties(context.partition());
                // The pump reports a hub that does not answer.
                if let Ok(properties) = within_limit(&*running.environment, limit, question).await {
                    let mut progress = context.progress();
                    progress.first_kept = properties.first;
                    progress.last_enqueued = properties.last;
                }
            }
        });
        let asked =
            futures_util::stream::iter(asked).buffer_unordered(MAX_CONCURRENT_REQUESTS).collect::<Vec<()>>();
        // All of them share the time of one, so that a hub that hangs does not delay our heartbeat.
        let limit = running.environment.sleep_until(now + running.manager.store_timeout);
        tokio::select! {
            biased;
            _ = asked => {}
            () = limit => {}
        }
    }
}

/// True if a pump does not learn by itself how far the log reaches.
fn is_unread(activity: &PumpActivity, now: Monotonic, interval: Duration) -> bool {
    let long = |since: Monotonic| now.since(since) >= interval;
    match activity.state() {
        PumpState::Paused | PumpState::Failing | PumpState::Halted => true,
        PumpState::Waiting
        | PumpState::Opening
        | PumpState::Running
        | PumpState::Retrying
        | PumpState::Closing => activity.call_running_since().is_some_and(long),
    }
}

#[cfg(test)]
mod tests {
    use super::super::test_values::at;
    use super::*;

    const INTERVAL: Duration = Duration::from_secs(10);

    #[test]
    fn the_lag_is_refreshed_once_an_interval() {
        let mut lag = LagRefresh::new(at(5));
        let refreshed = (5..=25).filter(|second| lag.take_due(at(*second), INTERVAL));
        assert_eq!(refreshed.collect::<Vec<_>>(), [5, 15, 25]);
    }

    #[test]
    fn a_partition_that_is_held_or_in_a_long_call_is_unread() {
        let activity = PumpActivity::default();
        activity.set_state(PumpState::Paused);
        assert!(is_unread(&activity, at(100), INTERVAL));
        activity.set_state(PumpState::Running);
        assert!(!is_unread(&activity, at(100), INTERVAL));
        activity.call_starts(at(100), Monotonic::NEVER);
        assert!(!is_unread(&activity, at(109), INTERVAL));
        assert!(is_unread(&activity, at(110), INTERVAL));
    }
}
