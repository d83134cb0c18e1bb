//! Carries out the result of a scan: gains, hands over and releases partitions.

use std::time::Duration;

use ephor_core::epoch::Epoch;
use ephor_core::expiry::deadline;
use ephor_core::handover::{self, Ask, Verdict};
use ephor_core::host_record::{Answer, HostRecord, Reply, Want};
use ephor_core::ids::PartitionId;
use ephor_core::lease::{ClaimCause, ClaimRequest, Lease, ReleaseCause, ReleaseRequest};
use ephor_core::store::{Claim, View};
use ephor_core::time::Monotonic;
use futures_util::StreamExt;

use super::changes::OwnershipReason;
use super::foreign::Foreign;
use super::manager::{Manager, ScanView};
use super::planted;
use super::pumps::MAX_FOREIGN_ATTEMPTS;
use super::shared::loss_reason;
use crate::pump::close::CLOSE_GRACE;
use crate::pump::guard::{Disposition, Drain, Stop};

/// If the announced end of a handover is off by this much or more, it is announced again.
const MAX_ANNOUNCEMENT_ERROR: Duration = Duration::from_secs(10);
/// The most concurrent claims.
const MAX_CONCURRENT_CLAIMS: usize = 16;

impl Manager {
    /// Compares the partitions that we serve with the leases that the store has for us.
    pub(super) async fn reconcile(&mut self, scan: &ScanView) {
        let me = self.shared.me.clone();
        for (partition, slot) in self.shared.slots().iter() {
            let lease = scan.view.lease(*partition);
            let ours = lease.and_then(Lease::token).as_ref() == Some(slot.token());
            if !ours && slot.started < scan.sent {
                slot.lose(loss_reason(lease, &me));
            }
        }
        let unserved: Vec<Lease> = {
            let slots = self.shared.slots();
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
        let now = self.shared.now();
        let Some(token) = lease.token() else { return true };
        let served_before = self.served.get(&partition).is_some_and(|epoch| *epoch >= lease.epoch);
        let cooling_down = self.cooldowns.get(&partition).filter(|cooldown| now < cooldown.until).is_some();
        let manager = &self.shared.manager;
        // If the store's clock was set back, a lease looks younger than it is. Then only our own
        // observation counts.
        let age_known = lease.age_known && scan.ages_unknown.binary_search(&partition).is_err();
        let by_store = self.shared.counts_from(scan.sent).before(lease.age);
        let renewed = written_by(by_store, age_known, self.liveness_tracker.written_after(partition));
        let until = renewed.map(|at| deadline(at, lease.duration.unwrap_or_default(), manager.fence_margin));
        // After the deadline, or with an unknown age, the lease is released and can be claimed
        // again.
        let in_time = until.filter(|until| now < *until);
        let may_serve = !served_before && !cooling_down && self.takes_part() && self.room() > 0;
        if let Some(until) = in_time.filter(|_| may_serve) {
            let checkpoint = scan.view.checkpoint(partition).cloned();
            let from = self.asks.get(&partition).map(|ask| ask.owner.clone());
            self.start_pump(token, &lease, checkpoint, until, from, OwnershipReason::Received);
            return true;
        }
        // A host that leaves does not wait until a foreign reader is gone.
        let waits = served_before && self.takes_part();
        let intruded = if waits { self.notice_foreign_reader(partition) } else { None };
        match intruded {
            Some((until, above)) => {
                if now >= until && self.takes_part() {
                    let request = self.claim_request(partition, Some(&lease), above, ClaimCause::Foreign);
                    self.make_claims(vec![request], scan).await;
                }
                true
            }
            None => {
                // The release may be carried out late, so this epoch is over for us, whatever the
                // next view shows.
                self.mark_served(partition, lease.epoch);
                let store = &self.shared.store;
                let cause = ReleaseCause::Unserved;
                // It is no longer known whether its pump saved everything.
                let settled = !served_before;
                let request = ReleaseRequest { token, cause, successor: None, settled };
                let call = store.store().release(store.group(), &request);
                // If it fails, the next scan finds the lease again, or the lease expires.
                store.call("release", Some(partition), call).await.is_ok()
            }
        }
    }

    /// Reports a foreign reader of our partition, once each time that it takes it. Returns the time
    /// from which to claim it back and the epoch to claim above, unless that was tried often
    /// enough.
    fn notice_foreign_reader(&mut self, partition: PartitionId) -> Option<(Monotonic, Epoch)> {
        let known = self.known.get(&partition).copied().unwrap_or_default();
        let cooldown = self.cooldowns.get_mut(&partition)?;
        let foreign = cooldown.foreign.as_mut()?;
        let claims_back = foreign.attempts <= MAX_FOREIGN_ATTEMPTS;
        // A reader beyond reach is reported for as long as it lasts, because nothing of the
        // partition is processed meanwhile.
        if (claims_back || foreign.is_beyond_reach(known)) && !foreign.reported {
            foreign.reported = true;
            self.shared.reporter.report(&foreign.error(partition, known));
        }
        claims_back.then_some((cooldown.until, foreign.above()))
    }

    /// Answers the requests for our partitions, and starts the handovers to which we agree.
    pub(super) fn answer(&mut self, scan: &ScanView) {
        let mut answers = std::mem::take(&mut self.answers);
        let asked = self.asked_of_us(&scan.view);
        answers.retain(|partition, answer| {
            asked.iter().any(|(asker, want)| asker.id == answer.asker && want.partition == *partition)
        });
        self.forget_askers_that_left(scan);
        let now = self.shared.now();
        // A host that stops gives calls in flight only the time that it was given.
        let until = self.shared.stop.borrow().unwrap_or(now + self.shared.manager.handover_timeout);
        // Closing, the final checkpoint and the transfer take additional time after the call.
        let to_give_away = CLOSE_GRACE + self.shared.manager.store_timeout.saturating_mul(2);
        for (asker, want) in asked {
            let slots = self.shared.slots();
            let partition = want.partition;
            let Some(slot) = slots.get(&partition).filter(|slot| slot.token().epoch == want.epoch) else {
                continue;
            };
            let draining = match &slot.control.borrow().stop {
                Some(Stop::Drain(drain)) => Some(drain.until),
                _ => None,
            };
            let granted =
                scan.fleet.member(&asker.id).is_some_and(|asker| scan.plan.grants(partition, scan.me, asker));
            let reply = if let Some(until) = draining {
                // It is draining already, so there is no need to steal it.
                let end = scan.view.at + until.since(now) + to_give_away;
                // An asker that got an answer before expects the same end, unless the store's clock
                // was set.
                let is_announced = |answer: &Answer| match answer.reply {
                    Reply::DrainingUntil(announced) => {
                        announced.since(end).max(end.since(announced)) < MAX_ANNOUNCEMENT_ERROR
                    }
                    Reply::No => false,
                };
                match answers.get_mut(&partition) {
                    Some(answer) if is_announced(answer) => {}
                    Some(answer) if matches!(answer.reply, Reply::DrainingUntil(_)) => {
                        answer.reply = Reply::DrainingUntil(end);
                    }
                    _ => {
                        let (asker, reply) = (asker.id.clone(), Reply::DrainingUntil(end));
                        answers.insert(partition, Answer { partition, asker, reply });
                    }
                }
                continue;
            } else if granted && !slot.context.inner().lease.is_stuck() {
                let disposition =
                    Disposition::HandOver { to: asker.id.clone(), duration: asker.lease_duration };
                slot.stop(Drain { until, disposition });
                Reply::DrainingUntil(scan.view.at + until.since(now) + to_give_away)
            } else {
                Reply::No
            };
            answers.insert(partition, Answer { partition, asker: asker.id.clone(), reply });
        }
        self.answers = answers;
    }

    /// The requests for our partitions, with their askers.
    fn asked_of_us<'a>(&self, view: &'a View) -> Vec<(&'a HostRecord, &'a Want)> {
        let me = &self.shared.me;
        if !self.shared.rules.asks_stand_in_the_askers_record {
            return planted::asked_in_our_record(view, me);
        }
        let records = view.hosts.iter().map(|entry| &entry.record);
        let wants = records.flat_map(|record| record.wants.iter().map(move |want| (record, want)));
        wants.filter(|(_, want)| want.owner == *me).collect()
    }

    /// A partition that drains for a host that has left, or takes no more partitions, is released
    /// instead: the first host that comes gets it sooner than after a whole lease.
    fn forget_askers_that_left(&self, scan: &ScanView) {
        for slot in self.shared.slots().values() {
            slot.redirect(|to| {
                scan.fleet.member(to).is_none_or(|member| !scan.fleet.members[member].takes_part)
                    || scan.view.host(to).is_none()
            });
        }
    }

    /// Keeps, withdraws and adds requests; steals from owners that do not answer.
    pub(super) async fn ask(&mut self, scan: &ScanView) {
        let shared = self.shared.clone();
        let now = scan.received;
        let mut thefts = vec![];
        let mut asks = std::mem::take(&mut self.asks);
        asks.retain(|partition, ask| {
            let lease = scan.view.lease(*partition);
            let answers = scan.view.host(&ask.owner).map_or(&[][..], |owner| &owner.record.answers);
            let patience = shared.manager.handover_timeout;
            let at = scan.view.at;
            match handover::judge(
                ask,
                lease,
                answers,
                &shared.me,
                now,
                at,
                patience,
                shared.manager.slow_scan,
            ) {
                Verdict::Withdraw => false,
                Verdict::Steal => {
                    thefts.push(self.claim_request(*partition, lease, Epoch::NONE, ClaimCause::Unresponsive));
                    false
                }
                // If an owner drains for us, the request stays until it is done.
                Verdict::Wait => {
                    let planned = scan.plan.asks_of(scan.me).any(|step| step.partition == *partition);
                    planned || ask.draining_since.is_some()
                }
            }
        });
        self.asks = asks;
        if self.takes_part() {
            self.make_claims(thefts, scan).await;
            for step in scan.plan.asks_of(scan.me) {
                let Some(lease) = scan.view.lease(step.partition) else { continue };
                // A partition that an old call still occupies here could not be served.
                let occupied = shared.slots().contains_key(&step.partition);
                if self.asks.contains_key(&step.partition) || self.is_cooling_down(step.partition) || occupied
                {
                    continue;
                }
                let ask = Ask {
                    partition: step.partition,
                    owner: scan.fleet.members[step.from].id.clone(),
                    epoch: lease.epoch,
                    asked_at: shared.now(),
                    draining_since: None,
                    announced_end: None,
                };
                if !shared.rules.asks_stand_in_the_askers_record {
                    planted::ask_in_the_owners_record(&shared, &scan.view, &ask).await;
                }
                self.asks.insert(step.partition, ask);
            }
        }
    }

    /// The number of further partitions that we may serve. Every partition with a pump counts,
    /// whatever the store currently says.
    fn room(&self) -> usize {
        let max = self.shared.manager.max_partitions.map_or(usize::MAX, |max| max as usize);
        max.saturating_sub(self.shared.slots().len())
    }

    fn is_cooling_down(&self, partition: PartitionId) -> bool {
        let now = self.shared.now();
        self.cooldowns.get(&partition).is_some_and(|cooldown| now < cooldown.until)
    }

    /// Claims the free partitions that the plan gives to us.
    pub(super) async fn claim(&mut self, scan: &ScanView) {
        if !self.takes_part() {
            return;
        }
        let mine = scan.plan.claims_of(&scan.fleet, scan.me);
        let room = self.room();
        let requests = {
            let slots = self.shared.slots();
            // Partitions that others drain for us come on top.
            let coming = self.asks.values().filter(|ask| ask.draining_since.is_some()).count();
            mine.into_iter()
                .filter(|partition| !slots.contains_key(partition) && !self.is_cooling_down(*partition))
                .take(room.saturating_sub(coming))
                .map(|partition| {
                    let lease = scan.view.lease(partition);
                    let expired = lease.is_some_and(|lease| lease.owner.is_some());
                    let cause = if expired { ClaimCause::Expired } else { ClaimCause::Unowned };
                    let foreign =
                        self.cooldowns.get(&partition).and_then(|cooldown| cooldown.foreign.as_ref());
                    let above = foreign.map_or(Epoch::NONE, Foreign::above);
                    self.claim_request(partition, lease, above, cause)
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
            host: self.shared.me.clone(),
            duration: self.shared.manager.lease_duration,
            seen: lease.map(|lease| lease.version.clone()),
            above: self.known.get(&partition).map_or(above, |known| above.max(*known)),
            cause,
        }
    }

    /// Makes claims, a few at a time, and starts a pump for each one that is won. Once the host is told to stop, it makes
    /// no further ones.
    async fn make_claims(&mut self, requests: Vec<ClaimRequest>, scan: &ScanView) {
        let shared = self.shared.clone();
        let claims = requests.into_iter().map(|request| {
            let shared = shared.clone();
            async move {
                if shared.is_stop_requested() {
                    return None;
                }
                let sent = shared.now();
                let store = &shared.store;
                let call = store.store().claim(store.group(), &request);
                Some((sent, store.call("claim", Some(request.partition), call).await, request))
            }
        });
        let mut claims = futures_util::stream::iter(claims).buffer_unordered(MAX_CONCURRENT_CLAIMS);
        while let Some(claim) = claims.next().await {
            let Some((sent, outcome, request)) = claim else { continue };
            // Lost, or unknown: the next scan shows the outcome.
            if let Ok(Claim::Won { token, lease, checkpoint }) = outcome {
                let manager = &shared.manager;
                let until = deadline(shared.counts_from(sent), manager.lease_duration, manager.fence_margin);
                let checkpoint = if shared.rules.claims_bring_the_checkpoint {
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
