//! Applies the plan of a scan: claims, hands over and releases partitions.

use ephor_core::epoch::Epoch;
use ephor_core::expiry::deadline;
use ephor_core::handover::PendingHandoverRequest;
use ephor_core::host_record::{HandoverReply, HandoverRequest, HostRecord};
use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, ClaimRequest, Lease, ReleaseCause, ReleaseRequest};
use ephor_core::store::{ClaimOutcome, View};
use ephor_core::time::Monotonic;
use futures_util::StreamExt;

use super::cooldowns::ForeignReaction;
use super::manager::{Manager, ScanView};
use super::negotiation::Patience;
use super::ownership_changes::OwnershipReason;
#[cfg(feature = "mutations")]
use super::switched_off_rules;
use crate::lease_state::loss_reason;
use crate::limits::CLOSE_GRACE;
use crate::pump_interface::{Disposition, Drain};

/// The most concurrent claims.
const MAX_CONCURRENT_CLAIMS: usize = 16;

impl Manager {
    /// Compares the partitions that we serve with the leases that the store has for us.
    pub(super) async fn reconcile(&mut self, scan: &ScanView) {
        let me = self.running.me.clone();
        for (partition, slot) in self.running.slots().iter() {
            let lease = scan.view.lease(*partition);
            let ours = lease.and_then(Lease::token).as_ref() == Some(slot.token());
            if !ours && slot.started < scan.sent {
                slot.lose(loss_reason(lease, &me));
            }
        }
        let unserved: Vec<Lease> = {
            let slots = self.running.slots();
            let mine = scan.view.leases.iter().filter(|lease| lease.owner.as_ref() == Some(&me));
            mine.filter(|lease| !slots.contains_key(&lease.partition)).cloned().collect()
        };
        for lease in unserved {
            // A store that does not answer is called again at the next scan, and not for each
            // lease.
            if !self.serve_or_release(lease, scan).await {
                break;
            }
        }
    }

    /// Handles a lease of ours without a pump: it was handed over, a claim of ours succeeded late,
    /// or giving it away failed. False if the store failed.
    async fn serve_or_release(&mut self, lease: Lease, scan: &ScanView) -> bool {
        let partition = lease.partition;
        let now = self.running.now();
        let Some(token) = lease.token() else { return true };
        let served_before = self.epochs.is_served(partition, lease.epoch);
        let cooling_down = self.is_cooling_down(partition);
        let manager = &self.running.manager;
        // If the store's clock was set back, a lease looks younger than it is. Then only our own
        // observation counts.
        let age_known = lease.age_known && scan.ages_unknown.binary_search(&partition).is_err();
        let by_store = self.running.counts_from(scan.sent).before(lease.age);
        let renewed = written_by(by_store, age_known, self.fleet_tracker.liveness.written_after(partition));
        let until = renewed.map(|at| deadline(at, lease.duration.unwrap_or_default(), manager.fence_margin));
        // After the deadline, or with an unknown age, the lease is released and can be claimed
        // again.
        let in_time = until.filter(|until| now < *until);
        let may_serve = !served_before && !cooling_down && self.takes_part() && self.room() > 0;
        if let Some(until) = in_time.filter(|_| may_serve) {
            let checkpoint = scan.view.checkpoint(partition).cloned();
            let from = self.negotiation.asked_owner(partition).cloned();
            self.start_pump(token, &lease, checkpoint, until, from, OwnershipReason::Received);
            return true;
        }
        // A host that leaves does not wait until a foreign reader is gone.
        let waits = served_before && self.takes_part();
        let intruded = if waits { self.notice_foreign_reader(partition) } else { None };
        match intruded {
            Some((until, above)) => {
                if now >= until && self.takes_part() {
                    let request =
                        self.claim_request(partition, Some(&lease), above, ClaimCause::AboveForeignReader);
                    self.make_claims(vec![request], scan).await;
                }
                true
            }
            None => {
                // The release may be carried out late, so this epoch is over for us, whatever the
                // next view shows.
                self.epochs.mark_served(partition, lease.epoch);
                let cause = ReleaseCause::Unserved;
                // It is no longer known whether its pump saved everything.
                let checkpoint_saved = !served_before;
                let request = ReleaseRequest { token, cause, successor: None, checkpoint_saved };
                // If it fails, the next scan finds the lease again, or the lease expires.
                self.running.store.release(&request).await.is_ok()
            }
        }
    }

    /// Reports a foreign reader of our partition. Returns the time from which to claim it back and
    /// the epoch to claim above, unless that was tried often enough.
    fn notice_foreign_reader(&mut self, partition: PartitionId) -> Option<(Monotonic, Epoch)> {
        let highest = self.epochs.highest(partition);
        let ForeignReaction { report, claim_back } =
            self.cooldowns.react_to_foreign_reader(partition, highest);
        if let Some(error) = report {
            self.running.reporter.report(&error);
        }
        claim_back
    }

    /// Answers the requests for our partitions, and starts the handovers to which we agree.
    pub(super) fn answer(&mut self, scan: &ScanView) {
        let asked = self.asked_of_us(&scan.view);
        self.negotiation.keep_answers_to(&asked);
        self.forget_askers_that_left(scan);
        let now = self.running.now();
        // A host that stops gives calls in flight only the time that it was given.
        let until = self.running.stop.borrow().unwrap_or(now + self.running.manager.handover_timeout);
        // Closing, the final checkpoint and the transfer take additional time after the call.
        let to_give_away = CLOSE_GRACE + self.running.manager.store_timeout.saturating_mul(2);
        let end = |until: Monotonic| scan.view.at + until.since(now) + to_give_away;
        for (asker, want) in asked {
            let slots = self.running.slots();
            let partition = want.partition;
            let Some(slot) = slots.get(&partition).filter(|slot| slot.token().epoch == want.epoch) else {
                continue;
            };
            let granted =
                scan.fleet.member(&asker.id).is_some_and(|asker| scan.plan.grants(partition, scan.me, asker));
            if let Some(until) = slot.drains_until() {
                // It is draining already, so there is no need to steal it.
                self.negotiation.announce_end(partition, &asker.id, end(until));
            } else if granted && !slot.activity.is_stuck() {
                let disposition =
                    Disposition::HandOver { to: asker.id.clone(), duration: asker.lease_duration };
                slot.stop(Drain { until, disposition });
                self.negotiation.answer(partition, &asker.id, HandoverReply::DrainingUntil(end(until)));
            } else {
                self.negotiation.answer(partition, &asker.id, HandoverReply::No);
            }
        }
    }

    /// The requests for our partitions, with their askers.
    fn asked_of_us<'a>(&self, view: &'a View) -> Vec<(&'a HostRecord, &'a HandoverRequest)> {
        let me = &self.running.me;
        #[cfg(feature = "mutations")]
        if !self.running.rules.asks_stand_in_the_askers_record() {
            return switched_off_rules::asked_in_our_record(view, me);
        }
        let records = view.hosts.iter().map(|entry| &entry.record);
        let wants = records.flat_map(|record| record.wants.iter().map(move |want| (record, want)));
        wants.filter(|(_, want)| want.owner == *me).collect()
    }

    /// A partition that drains for a host that has left, or takes no more partitions, is released
    /// instead: the first host that comes gets it sooner than after a whole lease.
    fn forget_askers_that_left(&self, scan: &ScanView) {
        for slot in self.running.slots().values() {
            slot.redirect(|to| {
                scan.fleet.member(to).is_none_or(|member| !scan.fleet.members[member].takes_part)
                    || scan.view.host(to).is_none()
            });
        }
    }

    /// Keeps, withdraws and adds requests; steals from owners that do not answer.
    pub(super) async fn ask(&mut self, scan: &ScanView) {
        let running = self.running.clone();
        let patience =
            Patience { handover: running.manager.handover_timeout, news: running.manager.slow_scan };
        let is_planned = |partition| scan.plan.asks_of(scan.me).any(|step| step.partition == partition);
        let steals =
            self.negotiation.advance_requests(&running.me, &scan.view, scan.received, patience, is_planned);
        if !self.takes_part() {
            return;
        }
        let steal = |partition| {
            let lease = scan.view.lease(partition);
            self.claim_request(partition, lease, Epoch::NONE, ClaimCause::Unresponsive)
        };
        let steals = steals.into_iter().map(steal).collect();
        self.make_claims(steals, scan).await;
        for step in scan.plan.asks_of(scan.me) {
            let Some(lease) = scan.view.lease(step.partition) else { continue };
            let asked = self.negotiation.asked_owner(step.partition).is_some();
            // A partition that an old call still occupies here could not be served.
            let occupied = running.slots().contains_key(&step.partition);
            if asked || occupied || self.is_cooling_down(step.partition) {
                continue;
            }
            let ask = PendingHandoverRequest {
                partition: step.partition,
                owner: scan.fleet.members[step.from].id.clone(),
                epoch: lease.epoch,
                asked_at: running.now(),
                draining_since: None,
                announced_end: None,
            };
            #[cfg(feature = "mutations")]
            if !running.rules.asks_stand_in_the_askers_record() {
                switched_off_rules::ask_in_the_owners_record(&running, &scan.view, &ask).await;
            }
            self.negotiation.ask(ask);
        }
    }

    /// The number of further partitions that we may serve. Every partition with a pump counts,
    /// whatever the store currently says.
    fn room(&self) -> usize {
        let max = self.running.manager.max_partitions.map_or(usize::MAX, |max| max as usize);
        max.saturating_sub(self.running.slots().len())
    }

    fn is_cooling_down(&self, partition: PartitionId) -> bool {
        self.cooldowns.is_cooling_down(partition, self.running.now())
    }

    /// Claims the free partitions that the plan gives to us.
    pub(super) async fn claim(&mut self, scan: &ScanView) {
        if !self.takes_part() {
            return;
        }
        let mine = scan.plan.claims_of(&scan.fleet, scan.me);
        let room = self.room();
        let requests = {
            let slots = self.running.slots();
            mine.into_iter()
                .filter(|partition| !slots.contains_key(partition) && !self.is_cooling_down(*partition))
                // Partitions that others drain for us come on top.
                .take(room.saturating_sub(self.negotiation.coming()))
                .map(|partition| {
                    let lease = scan.view.lease(partition);
                    let expired = lease.is_some_and(|lease| lease.owner.is_some());
                    let cause = if expired { ClaimCause::Expired } else { ClaimCause::Unowned };
                    self.claim_request(partition, lease, self.cooldowns.claim_above(partition), cause)
                })
                .collect()
        };
        self.make_claims(requests, scan).await;
    }

    fn claim_request(
        &self,
        partition: PartitionId,
        lease: Option<&Lease>,
        above: Epoch,
        cause: ClaimCause,
    ) -> ClaimRequest {
        ClaimRequest {
            partition,
            host: self.running.me.clone(),
            duration: self.running.manager.lease_duration,
            seen: lease.map(|lease| lease.version.clone()),
            above: above.max(self.epochs.highest(partition)),
            cause,
        }
    }

    /// Makes claims, a few at a time, and starts a pump for each one that is won. Once the host is told to stop, it makes
    /// no further ones.
    async fn make_claims(&mut self, requests: Vec<ClaimRequest>, scan: &ScanView) {
        let running = self.running.clone();
        let claims = requests.into_iter().map(|request| {
            let running = running.clone();
            async move {
                if running.is_stop_requested() {
                    return None;
                }
                let sent = running.now();
                Some((sent, running.store.claim(&request).await, request))
            }
        });
        let mut claims = futures_util::stream::iter(claims).buffer_unordered(MAX_CONCURRENT_CLAIMS);
        while let Some(claim) = claims.next().await {
            let Some((sent, outcome, request)) = claim else { continue };
            // Lost, or unknown: the next scan shows the outcome.
            if let Ok(ClaimOutcome::Won { token, lease, checkpoint }) = outcome {
                let manager = &running.manager;
                let until = deadline(running.counts_from(sent), manager.lease_duration, manager.fence_margin);
                let checkpoint = if running.rules.claims_bring_the_checkpoint() {
                    checkpoint
                } else {
                    scan.view.checkpoint(request.partition).cloned()
                };
                let from = scan.view.lease(request.partition).and_then(|lease| lease.owner.clone());
                let reason = OwnershipReason::Claimed(request.cause);
                self.start_pump(token, &lease, checkpoint, until, from, reason);
            }
        }
    }
}

/// The earliest time at which a lease may have been written, from which its deadline safely counts:
/// by the store's age, or, if that is unknown, by our own observation, if there is one.
fn written_by(by_store: Monotonic, age_known: bool, seen: Option<Monotonic>) -> Option<Monotonic> {
    if age_known { Some(by_store) } else { seen.map(|seen| seen.min(by_store)) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_age_that_the_store_does_not_know_is_not_taken_for_zero() {
        let (now, seen) = (Monotonic(100), Some(Monotonic(70)));
        assert_eq!(written_by(now, true, seen), Some(now));
        assert_eq!(written_by(now, false, seen), seen);
        assert_eq!(written_by(now, false, None), None);
    }
}
