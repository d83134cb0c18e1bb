//! Detects stuck calls: calls to the processor that block their thread, so that they cannot be cancelled.

use std::time::Duration;

use super::running_host::RunningHost;
use crate::error::HostError;
use crate::pump_activity::PumpState;

/// A call that goes on for this long after it was given up is stuck.
const STUCK_AFTER: Duration = Duration::from_secs(5);

impl RunningHost {
    /// Marks stuck calls. A call that goes on although it was given up blocks its thread. Its lease
    /// is no longer renewed, and its slot stays occupied until it returns. This runs at every scan
    /// and before every renewal, because there are no scans while the host stops. It takes two
    /// observations, so that after a suspend of the machine a call is not marked that had no chance
    /// to return.
    pub(super) fn notice_stuck_calls(&self) {
        let now = self.now();
        let mut stuck = vec![];
        for (partition, slot) in self.slots().iter_mut() {
            let (lease, activity) = (slot.context.lease(), &slot.activity);
            let Some(running) = activity.call_running_since().map(|since| now.since(since)) else {
                slot.over_since = None;
                // It may have returned during this check.
                activity.not_stuck();
                continue;
            };
            let lost = !lease.is_ours(now) && activity.state() != PumpState::Closing;
            if !lost && now < activity.call_until() {
                slot.over_since = None;
                continue;
            }
            let since = *slot.over_since.get_or_insert(now);
            if now.since(since) >= STUCK_AFTER && activity.mark_stuck() {
                stuck.push((*partition, running));
            }
        }
        // The handler is the user's code, so it runs under no lock of ours.
        for (partition, running) in stuck {
            self.reporter.report(&HostError::Stuck { partition, running });
        }
    }
}
