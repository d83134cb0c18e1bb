//! The scan of a host: reconcile, answer, ask, claim, in the order of `host/ownership.rs` in `crates/host`.

use ephor_core::epoch::Epoch;
use ephor_core::expiry::deadline;
use ephor_core::handover::{NextStep, PendingHandoverRequest, next_step};
use ephor_core::host_record::{HandoverAnswer, HandoverReply};
use ephor_core::lease::Lease;

use crate::bounds::{GRACE, LEASE, MARGIN, NOW, PATIENCE, STORE_NOW, in_ticks, ticks};
use crate::host_view::{HostView, bit};
use crate::state::{Answered, Asked, Call, ClaimReason, Disposition, Message, Slot};
use crate::step::{Kind, Step};

impl Step<'_> {
    /// Lets a host scan the store and carry out its part of the plan.
    pub fn look(&mut self, host: usize, host_view: &HostView) {
        let leaving = self.state.hosts[host].leaving;
        for partition in 0..self.protocol.bounds.partitions {
            self.reconcile(host, partition, leaving);
        }
        if leaving {
            return;
        }
        for partition in 0..self.protocol.bounds.partitions {
            self.answer(host, partition, host_view);
        }
        let all = 0..self.protocol.bounds.partitions;
        let steals: Vec<bool> = all.map(|partition| self.follow_up(host, partition, host_view)).collect();
        for (partition, steal) in steals.into_iter().enumerate() {
            if !steal {
                self.ask(host, partition, host_view);
            }
            self.claim(host, partition, host_view, steal);
        }
    }

    fn seen(&self, partition: usize) -> Option<Lease> {
        Some(self.protocol.lease_record(&self.state, partition)?.seen_at(STORE_NOW))
    }

    /// Compares the partitions that a host serves with those that it owns by the store.
    fn reconcile(&mut self, host: usize, partition: usize, leaving: bool) {
        let lease = self.state.partitions[partition].lease;
        let mine = lease.filter(|lease| lease.owner.map(usize::from) == Some(host));
        if let Some(slot) = self.state.hosts[host].slots[partition] {
            if mine.is_none_or(|lease| lease.epoch != slot.epoch) {
                self.lose_slot(host, partition);
            } else {
                return;
            }
        }
        let Some(lease) = mine else { return };
        let served_before = self.state.hosts[host].served[partition] >= lease.epoch;
        if !served_before && !leaving {
            let until = deadline(NOW.before(ticks(lease.age)), ticks(LEASE), ticks(MARGIN));
            // Past the deadline it can only be claimed again, once it has expired.
            if NOW < until {
                let takeover_delay = if lease.previous_owner.map(usize::from) == Some(host) {
                    0
                } else {
                    lease.takeover_delay
                };
                let position = self.state.partitions[partition].position;
                self.note(Kind::Adopted);
                let left = in_ticks(until.since(NOW));
                let slot =
                    Slot { epoch: lease.epoch, left, takeover_delay, finished: position, ..Slot::default() };
                self.start(host, partition, slot);
            }
            return;
        }
        let (name, p) = (self.name(host), Step::id(partition));
        self.log(format_args!(
            "{name} owns {p:?} according to the store but does not serve it, and releases it"
        ));
        self.send(Message {
            host: small(host),
            awaited: true,
            call: Call::Handoff {
                partition: small(partition),
                epoch: lease.epoch,
                disposition: Disposition::Release(None),
                checkpoint_saved: !served_before,
                finished: 0,
                unserved: true,
            },
        });
    }

    /// Answers the hosts that ask for a partition, and starts the handovers that are agreed.
    fn answer(&mut self, host: usize, partition: usize, host_view: &HostView) {
        let wanted_by = |step: &Self, asker: usize| {
            step.state.hosts[asker].asks[partition].filter(|asked| usize::from(asked.owner) == host)
        };
        if let Some(old) = self.state.hosts[host].answers[partition]
            && wanted_by(self, usize::from(old.asker)).is_none()
        {
            self.state.hosts[host].answers[partition] = None;
        }
        // A handover to a host that takes no more partitions becomes a release.
        if let Some(slot) = self.slot(host, partition)
            && let Some(Disposition::HandOver(to)) = slot.disposition
            && host_view.members & bit(usize::from(to)) == 0
        {
            slot.disposition = Some(Disposition::Release(None));
        }
        for asker in 0..self.protocol.bounds.hosts {
            let Some(asked) = wanted_by(self, asker) else { continue };
            let granted = host_view.grants[partition] & bit(asker) != 0;
            let Some(slot) = self.slot(host, partition) else { continue };
            if slot.epoch != asked.epoch || slot.disposition.is_some() {
                continue;
            }
            if granted {
                slot.disposition = Some(Disposition::HandOver(small(asker)));
                slot.takeover_delay = 0;
            }
            let draining = granted.then_some(PATIENCE);
            self.note(if granted { Kind::Agreed } else { Kind::Declined });
            let (name, asker_name, p) = (self.name(host), self.name(asker), Step::id(partition));
            let word = if granted { "agrees to hand" } else { "declines to hand" };
            self.log(format_args!("{name} {word} {p:?} over to {asker_name}"));
            self.state.hosts[host].answers[partition] = Some(Answered { asker: small(asker), draining });
        }
    }

    /// Follows up a request: keeps it, withdraws it, or steals from an owner that does not respond. True if it steals.
    fn follow_up(&mut self, host: usize, partition: usize, host_view: &HostView) -> bool {
        let Some(asked) = self.state.hosts[host].asks[partition] else { return false };
        let ids = &self.protocol.ids;
        let mut ask = PendingHandoverRequest {
            partition: Step::id(partition),
            owner: ids[usize::from(asked.owner)].clone(),
            epoch: Epoch::from_stored(u64::from(asked.epoch)),
            asked_at: NOW.before(ticks(asked.age)),
            draining_since: asked.draining.map(|(age, promised)| (NOW.before(ticks(age)), ticks(promised))),
            // Clocks are not set here: no host corrects its answer.
            announced_end: None,
        };
        let answers: Vec<HandoverAnswer> = self.state.hosts[usize::from(asked.owner)].answers[partition]
            .iter()
            .map(|answered| HandoverAnswer {
                partition: ask.partition,
                asker: ids[usize::from(answered.asker)].clone(),
                reply: answered
                    .draining
                    .map_or(HandoverReply::No, |left| HandoverReply::DrainingUntil(STORE_NOW + ticks(left))),
            })
            .collect();
        let lease = self.seen(partition);
        let step = next_step(
            &mut ask,
            lease.as_ref(),
            &answers,
            &ids[host],
            NOW,
            STORE_NOW,
            ticks(PATIENCE),
            ticks(GRACE),
        );
        let draining =
            ask.draining_since.map(|(since, promised)| (in_ticks(NOW.since(since)), in_ticks(promised)));
        let planned = host_view.asks[partition].is_some();
        let kept = step == NextStep::Wait && (planned || draining.is_some());
        self.state.hosts[host].asks[partition] = kept.then_some(Asked { draining, ..asked });
        if !kept && step != NextStep::Steal {
            self.note(Kind::Withdrawn);
        }
        step == NextStep::Steal
    }

    fn ask(&mut self, host: usize, partition: usize, host_view: &HostView) {
        let Some(owner) = host_view.asks[partition] else { return };
        let Some(lease) = self.state.partitions[partition].lease else { return };
        let record = &mut self.state.hosts[host];
        if record.asks[partition].is_some() || record.slots[partition].is_some() {
            return;
        }
        record.asks[partition] = Some(Asked { owner, epoch: lease.epoch, age: 0, draining: None });
        self.note(Kind::Asked);
        let (name, owner, p) = (self.name(host), self.name(owner), Step::id(partition));
        self.log(format_args!("{name} asks {owner} for {p:?}"));
    }

    /// Claims a free partition by the plan, or one whose owner does not respond.
    fn claim(&mut self, host: usize, partition: usize, host_view: &HostView, steal: bool) {
        let occupied = self.state.hosts[host].slots[partition].is_some();
        if !steal && (!host_view.claims[partition] || occupied) {
            return;
        }
        let lease = self.state.partitions[partition].lease;
        let owned = lease.is_some_and(|lease| lease.owner.is_some());
        let reason = match (steal, owned) {
            (true, _) => ClaimReason::Unresponsive,
            (false, true) => ClaimReason::Expired,
            (false, false) => ClaimReason::Unowned,
        };
        let (name, p) = (self.name(host), Step::id(partition));
        self.log(format_args!("{name} claims {p:?} ({reason:?})"));
        let viewed_position = self.viewed_position(partition);
        let call =
            Call::Claim { partition: small(partition), reason, current: true, age: 0, viewed_position };
        self.send(Message { host: small(host), awaited: true, call });
    }

    /// Returns the position in the view. Only the mutation uses it.
    fn viewed_position(&self, partition: usize) -> u8 {
        let used = !self.protocol.rules.claims_bring_the_checkpoint;
        if used { self.state.partitions[partition].position } else { 0 }
    }

    /// Lets a host stop: it takes no more partitions, and releases its own to the hosts that should have them.
    pub fn stop(&mut self, host: usize) {
        self.note(Kind::Stopped);
        let name = self.name(host);
        self.log(format_args!("{name} begins to stop"));
        self.state.stops += 1;
        self.state.hosts[host].leaving = true;
        self.state.hosts[host].asks = Default::default();
        let host_views = self.protocol.host_views(&self.state, host);
        for partition in 0..self.protocol.bounds.partitions {
            if let Some(slot) = self.slot(host, partition) {
                slot.disposition.get_or_insert(Disposition::Release(host_views[0].successors[partition]));
            }
        }
    }
}

/// Converts an index to the type of the state.
pub fn small(index: usize) -> u8 {
    u8::try_from(index).unwrap_or(u8::MAX)
}
