//! Stops a host gracefully. This file alone decides the order of the steps.
//!
//! Stop claiming, hand over to askers, drain, close, checkpoint, release, leave the fleet.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::lease::{LeaseToken, ReleaseCause, ReleaseRequest};
use ephor_core::store::StoreError;
use ephor_core::time::Monotonic;

use futures_util::StreamExt;

use super::manager::Manager;
use super::running_host::RunningHost;
use super::stop_progress::Unconfirmed;
use crate::error::StoreCallError;
use crate::limits::CLOSE_GRACE;
use crate::pump_interface::PumpEnd;
use crate::stop_report::StopReport;

/// The most time for one round of offering partitions to others; after that the pumps are stopped
/// all the same.
const MAX_OFFER_TIME: Duration = Duration::from_secs(2);
/// The most concurrent releases.
const MAX_CONCURRENT_RELEASES: usize = 16;

impl Manager {
    /// Gives everything back, and leaves the fleet. Calls in flight are given up at the time that the
    /// callers of `stop` gave. The host is stopped even if something panics on the way.
    pub(super) async fn stop(&mut self) -> StopReport {
        let running = self.running.clone();
        let reporter = &running.reporter;
        let asked = self.negotiation.has_asks();
        if reporter.catch_panics("manager", self.release_all()).await.is_none() {
            self.stopping.abandon_unconfirmed();
        }
        // The calls that remain cannot be given up: their leases expire, and are not released.
        let left = std::mem::take(&mut *running.slots());
        for (partition, slot) in &left {
            self.stopping.pump_left(*partition);
            slot.context.lease().end();
            slot.context.cancel();
        }
        drop(left);
        // If it fails, the record ages and is removed later.
        let retired = reporter.catch_panics("manager", running.store.retire(&running.me)).await;
        // A store that gave no answer would not answer the next call either.
        if asked && retired.is_some_and(|retired| has_answered(&retired)) {
            reporter.catch_panics("manager", self.release_late_handovers()).await;
        }
        self.stopping.take_report()
    }

    /// Releases partitions that others handed to this host after its last scan, because they had agreed to that before it
    /// left. Otherwise nobody would read them until their leases expire.
    async fn release_late_handovers(&mut self) {
        let running = self.running.clone();
        let Ok(view) = running.store.view().await else { return };
        let mut answers = true;
        for lease in view.leases.iter().filter(|lease| lease.owner.as_ref() == Some(&running.me)) {
            if !self.epochs.is_served(lease.partition, lease.epoch) {
                answers =
                    answers && release_again(&running, lease.partition, lease.epoch, true).await.is_ok();
                if !answers {
                    self.stopping.abandon(lease.partition);
                }
            }
        }
    }

    async fn release_all(&mut self) {
        let running = self.running.clone();
        // Another call of `stop` may shorten the time at any moment.
        let mut limit = running.stop.subscribe();
        let mut until = limit.borrow_and_update().unwrap_or_else(|| running.now());
        self.negotiation.withdraw_all();
        if !running.store.capabilities().wakes {
            tokio::select! {
                biased;
                () = self.offer(until) => {}
                Ok(()) = limit.changed() => {}
            }
            until = limit.borrow_and_update().unwrap_or(until);
        }
        // Before any further store call, which may be slow.
        running.stop_slots(until);
        let mut successors = BTreeMap::new();
        if !running.slots().is_empty() {
            tokio::select! {
                biased;
                found = self.successors() => successors = found,
                Ok(()) = limit.changed() => limit.mark_changed(),
            }
        }
        for (partition, slot) in running.slots().iter() {
            slot.decide(successors.get(partition).cloned());
        }
        // A pump needs its grace period to close, and two store calls to save and release, however late it hears of it.
        let last_at = |until: Monotonic| {
            until.max(running.now()) + CLOSE_GRACE + running.manager.store_timeout.saturating_mul(2)
        };
        let mut last = last_at(until);
        let mut scan_at = running.now() + running.manager.fast_scan;
        while !running.slots().is_empty() {
            tokio::select! {
                biased;
                end = self.ends.recv() => {
                    let Some(end) = end else { break };
                    self.note_end(end);
                }
                () = running.environment.sleep_until(last) => break,
                Ok(()) = limit.changed() => {
                    until = limit.borrow_and_update().unwrap_or(until);
                    running.stop_slots(until);
                    last = last.min(last_at(until));
                }
                () = running.environment.sleep_until(scan_at) => {
                    tokio::select! {
                        biased;
                        () = self.heartbeat_and_answer() => {}
                        () = running.environment.sleep_until(last) => break,
                        Ok(()) = limit.changed() => limit.mark_changed(),
                    }
                    scan_at = running.now() + running.manager.slow_scan;
                }
            }
        }
        if !self.release_unconfirmed().await {
            // It would not answer a scan either.
            return;
        }
        // A partition may have been handed to us while we were leaving.
        let time_is_up =
            running.environment.sleep_until(running.now() + running.manager.store_timeout.saturating_mul(2));
        let last_scan = async {
            if let Some(scan) = self.read_fleet().await {
                self.reconcile(&scan).await;
            }
        };
        tokio::select! {
            biased;
            () = last_scan => {}
            () = time_is_up => {}
        }
    }

    /// Releases the partitions whose first release had no answer. Gives the rest up once the store has not confirmed any
    /// for the time of two calls. False if the store answered none of these calls.
    async fn release_unconfirmed(&mut self) -> bool {
        let running = self.running.clone();
        let again = self.stopping.unconfirmed().to_vec().into_iter().map(|release| {
            let running = running.clone();
            async move {
                let Unconfirmed { partition, epoch, checkpoint_saved } = release;
                (partition, release_again(&running, partition, epoch, checkpoint_saved).await)
            }
        });
        let mut again = futures_util::stream::iter(again).buffer_unordered(MAX_CONCURRENT_RELEASES);
        let patience = running.manager.store_timeout.saturating_mul(2);
        let mut last = running.now() + patience;
        let mut answered = self.stopping.unconfirmed().is_empty();
        loop {
            tokio::select! {
                biased;
                next = again.next() => match next {
                    Some((partition, released)) => {
                        answered = answered || has_answered(&released);
                        if released.is_ok() {
                            self.stopping.confirmed(partition);
                            last = running.now() + patience;
                        }
                    }
                    None => break,
                },
                () = running.environment.sleep_until(last) => break,
            }
        }
        self.stopping.abandon_unconfirmed();
        answered
    }

    /// Writes heartbeats and answers requests during long calls: others see that we are alive and
    /// how long to wait. Without an answer they would steal the partitions.
    async fn heartbeat_and_answer(&mut self) {
        self.write_heartbeat().await;
        let Some(scan) = self.read_fleet().await else { return };
        self.reconcile(&scan).await;
        self.answer(&scan);
        self.write_heartbeat().await;
    }

    /// If the store cannot wake hosts, a release would go unnoticed until they scan. So we go on
    /// working, announce that we are leaving, and hand over to hosts that ask; all of them scan
    /// within a slow scan.
    async fn offer(&mut self, until: Monotonic) {
        let running = self.running.clone();
        let (slow, fast) = (running.manager.slow_scan, running.manager.fast_scan);
        // Half of the time at most, because calls in flight need the rest.
        let left = until.since(running.now()) / 2;
        let last = running.now() + left.min(slow + fast * 2);
        while running.now() < last && !running.slots().is_empty() {
            // A store that takes longer than this is no help.
            let limit = running.environment.sleep_until((running.now() + MAX_OFFER_TIME).min(last));
            tokio::select! {
                biased;
                wanted = self.offer_once() => if !wanted { return },
                () = limit => return,
            }
            let next = (running.now() + fast / 2).min(last);
            while !running.slots().is_empty() {
                tokio::select! {
                    biased;
                    end = self.ends.recv() => {
                        let Some(end) = end else { return };
                        self.note_end(end);
                    }
                    () = running.environment.sleep_until(next) => break,
                }
            }
        }
    }

    /// Announces that we are leaving, and agrees to hand over to askers. False if no host should
    /// get any of our partitions, or the store does not answer.
    async fn offer_once(&mut self) -> bool {
        if !self.write_heartbeat().await {
            return false;
        }
        let Some(scan) = self.read_fleet().await else { return false };
        if !scan.plan.moves.iter().any(|step| step.from == scan.me) && !self.negotiation.has_answers() {
            return false;
        }
        self.reconcile(&scan).await;
        self.answer(&scan);
        self.write_heartbeat().await
    }

    /// Announces that we are leaving, and computes the successor of each of our partitions.
    async fn successors(&mut self) -> BTreeMap<PartitionId, HostId> {
        self.write_heartbeat().await;
        let Some(scan) = self.read_fleet().await else { return BTreeMap::new() };
        let mine = scan.plan.moves.iter().filter(|step| step.from == scan.me);
        mine.map(|step| (step.partition, scan.fleet.members[step.to].id.clone())).collect()
    }

    /// Handles a pump that ended while the host stops.
    fn note_end(&mut self, end: PumpEnd) {
        self.stopping.pump_ended(&end);
        self.pump_ended(end);
    }
}

/// Repeats a release with an unknown outcome. If it succeeds, the lease is certainly no longer ours.
async fn release_again(
    running: &RunningHost,
    partition: PartitionId,
    epoch: Epoch,
    checkpoint_saved: bool,
) -> Result<(), StoreCallError> {
    let token = LeaseToken { partition, owner: running.me.clone(), epoch };
    let request = ReleaseRequest { token, cause: ReleaseCause::Shutdown, successor: None, checkpoint_saved };
    running.store.release(&request).await.map(drop)
}

/// True if the store answered this call, be it with an error.
fn has_answered<T>(result: &Result<T, StoreCallError>) -> bool {
    match result {
        Ok(_) => true,
        Err(StoreCallError::TimedOut { .. }) => false,
        Err(StoreCallError::Failed(error)) => !matches!(**error, StoreError::Unavailable(_)),
    }
}
