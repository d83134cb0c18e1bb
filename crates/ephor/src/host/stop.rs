//! Stopping: its order is written here, once.
//!
//! Stop claiming, drain, close, checkpoint, release, leave the fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::{LeaseToken, ReleaseCause, ReleaseRequest};

use super::manager::Manager;
use crate::pump::Outcome;
use crate::pump::close::CLOSE_GRACE;
use crate::pump::guard::{Drain, Stop, Way};
use crate::stop_report::StopReport;

impl Manager {
    /// Gives everything back. Calls in flight have until the end of `within`.
    pub(super) async fn stop(&mut self, within: Duration) -> StopReport {
        let shared = self.shared.clone();
        let until = shared.now() + within;
        self.stopping = true;
        self.asks.clear();
        let heirs = if shared.slots().is_empty() { BTreeMap::new() } else { self.heirs().await };
        for (partition, slot) in shared.slots().iter() {
            let heir = heirs.get(partition).cloned();
            slot.stop(Stop::Drain(Drain { until, way: Way::Release { heir } }));
        }
        let mut report = StopReport::default();
        let mut unconfirmed = vec![];
        // A pump needs its grace to close, and two store calls to save and release.
        let last = until + CLOSE_GRACE + shared.manager.store_timeout * 2;
        while !shared.slots().is_empty() {
            tokio::select! {
                biased;
                end = self.ends.recv() => {
                    let Some(end) = end else { break };
                    note(&mut report, end.partition, &end.outcome, end.settled);
                    if let Outcome::GivenAway { confirmed: false, .. } = end.outcome {
                        unconfirmed.push((end.partition, end.epoch, end.settled));
                    }
                    self.pump_ended(end);
                }
                () = shared.environment.sleep_until(last) => break,
            }
        }
        // What is still here cannot be given up: its lease runs out, and is not released.
        let left = std::mem::take(&mut *shared.slots());
        report.abandoned.extend(left.keys());
        for slot in left.values() {
            slot.context.inner().lease.end();
            slot.context.cancel();
        }
        for (partition, epoch, settled) in unconfirmed {
            if !self.release_again(partition, epoch, settled).await {
                report.abandoned.push(partition);
            }
        }
        let store = &shared.store;
        let call = store.store().retire(store.group(), &shared.me);
        // If it fails, the record grows old and is forgotten.
        let _ = store.call("retire", None, call).await;
        report
    }

    /// Repeats a release whose outcome is unknown. True if the lease is certainly no longer ours.
    async fn release_again(&self, partition: PartitionId, epoch: Epoch, settled: bool) -> bool {
        let store = &self.shared.store;
        let token = LeaseToken { partition, owner: self.shared.me.clone(), epoch };
        let request = ReleaseRequest { token, cause: ReleaseCause::Shutdown, heir: None, settled };
        let call = store.store().release(store.group(), &request);
        store.call("release", Some(partition), call).await.is_ok()
    }

    /// Says that we are leaving, and works out who should have what we own.
    async fn heirs(&mut self) -> BTreeMap<PartitionId, HostId> {
        self.heartbeat().await;
        let Some(sight) = self.look().await else { return BTreeMap::new() };
        let mine = sight.plan.moves.iter().filter(|step| step.from == sight.me);
        mine.map(|step| (step.partition, sight.fleet.members[step.to].id.clone())).collect()
    }
}

fn note(report: &mut StopReport, partition: PartitionId, outcome: &Outcome, settled: bool) {
    match outcome {
        Outcome::GivenAway { .. } | Outcome::Failed { .. } if settled => report.drained.push(partition),
        Outcome::GivenAway { .. } | Outcome::Failed { .. } => report.unsettled.push(partition),
        Outcome::Lost { .. } | Outcome::Displaced { .. } => report.lost.push(partition),
    }
}
