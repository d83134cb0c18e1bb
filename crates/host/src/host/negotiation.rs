//! Handover requests between hosts: this host's requests for partitions of others, and its answers to
//! theirs. Both are written in its own host record.

use std::collections::BTreeMap;
use std::time::Duration;

use ephor_core::handover::{self, NextStep, PendingHandoverRequest};
use ephor_core::host_record::{HandoverAnswer, HandoverReply, HandoverRequest, HostRecord};
use ephor_core::ids::{HostId, PartitionId};
use ephor_core::store::View;
use ephor_core::time::{Monotonic, Timestamp};

/// If the announced end of a handover is off by this much or more, it is announced again.
const MAX_ANNOUNCEMENT_ERROR: Duration = Duration::from_secs(10);

#[derive(Debug, Default)]
pub(super) struct Negotiation {
    asks: BTreeMap<PartitionId, PendingHandoverRequest>,
    answers: BTreeMap<PartitionId, HandoverAnswer>,
}

/// The patience with owners: the time that a handover may take, and the time that news take.
#[derive(Clone, Copy, Debug)]
pub(super) struct Patience {
    pub(super) handover: Duration,
    pub(super) news: Duration,
}

impl Negotiation {
    /// Our requests, for our record.
    pub(super) fn wants(&self) -> Vec<HandoverRequest> {
        self.asks.values().map(PendingHandoverRequest::request).collect()
    }

    /// Our answers, for our record.
    pub(super) fn answers(&self) -> Vec<HandoverAnswer> {
        self.answers.values().cloned().collect()
    }

    pub(super) fn has_asks(&self) -> bool {
        !self.asks.is_empty()
    }

    pub(super) fn has_answers(&self) -> bool {
        !self.answers.is_empty()
    }

    /// The owner that we asked for this partition, if we did.
    pub(super) fn asked_owner(&self, partition: PartitionId) -> Option<&HostId> {
        self.asks.get(&partition).map(|ask| &ask.owner)
    }

    /// The number of partitions that others drain for us.
    pub(super) fn coming(&self) -> usize {
        self.asks.values().filter(|ask| ask.draining_since.is_some()).count()
    }

    pub(super) fn ask(&mut self, ask: PendingHandoverRequest) {
        self.asks.insert(ask.partition, ask);
    }

    pub(super) fn withdraw_all(&mut self) {
        self.asks.clear();
    }

    /// Drops the requests since this time, because our record could not be written: nobody has seen
    /// them, and their time without an answer must not start.
    pub(super) fn drop_asks_since(&mut self, since: Monotonic) {
        self.asks.retain(|_, ask| ask.asked_at < since);
    }

    /// Finds the next step of our requests by a view that was received at `now`, and keeps those
    /// that are still to be answered: if they are planned, or their owner drains already. Returns
    /// the partitions to steal, because their owners did not answer.
    pub(super) fn advance_requests(
        &mut self,
        me: &HostId,
        view: &View,
        now: Monotonic,
        patience: Patience,
        is_planned: impl Fn(PartitionId) -> bool,
    ) -> Vec<PartitionId> {
        let mut steals = vec![];
        self.asks.retain(|&partition, ask| {
            let lease = view.lease(partition);
            let answers = view.host(&ask.owner).map_or(&[][..], |owner| &owner.record.answers);
            let Patience { handover, news } = patience;
            match handover::next_step(ask, lease, answers, me, now, view.at, handover, news) {
                NextStep::Withdraw => false,
                NextStep::Steal => {
                    steals.push(partition);
                    false
                }
                // If an owner drains for us, the request stays until it is done.
                NextStep::Wait => is_planned(partition) || ask.draining_since.is_some(),
            }
        });
        steals
    }

    /// Drops the answers to requests that were withdrawn.
    pub(super) fn keep_answers_to(&mut self, asked: &[(&HostRecord, &HandoverRequest)]) {
        self.answers.retain(|partition, answer| {
            asked.iter().any(|(asker, want)| asker.id == answer.asker && want.partition == *partition)
        });
    }

    /// Answers a request for one of our partitions.
    pub(super) fn answer(&mut self, partition: PartitionId, asker: &HostId, reply: HandoverReply) {
        self.answers.insert(partition, HandoverAnswer { partition, asker: asker.clone(), reply });
    }

    /// Answers a request for a partition that drains already, until `end` by the store's clock. An
    /// asker that got an answer before expects the same end, unless the store's clock was set.
    pub(super) fn announce_end(&mut self, partition: PartitionId, asker: &HostId, end: Timestamp) {
        match self.answers.get_mut(&partition).map(|answer| &mut answer.reply) {
            Some(HandoverReply::DrainingUntil(announced)) => {
                if announced.since(end).max(end.since(*announced)) >= MAX_ANNOUNCEMENT_ERROR {
                    *announced = end;
                }
            }
            Some(HandoverReply::No) | None => {
                self.answer(partition, asker, HandoverReply::DrainingUntil(end))
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::epoch::Epoch;
    use ephor_core::lease::{Lease, LeaseVersion};

    use super::super::test_values::{at, host, record, view_of};
    use super::*;

    const PARTITION: PartitionId = PartitionId(3);
    const PATIENCE: Patience = Patience { handover: Duration::from_secs(30), news: Duration::from_secs(5) };

    fn me() -> HostId {
        host("me", 1)
    }

    fn owner() -> HostId {
        host("owner", 1)
    }

    /// A negotiation with one request, of second 100.
    fn asked() -> Negotiation {
        let mut negotiation = Negotiation::default();
        negotiation.ask(PendingHandoverRequest {
            partition: PARTITION,
            owner: owner(),
            epoch: Epoch::FIRST,
            asked_at: at(100),
            draining_since: None,
            announced_end: None,
        });
        negotiation
    }

    /// The owner still has the lease, and gave this answer.
    fn view(reply: Option<HandoverReply>) -> View {
        let lease = Lease {
            partition: PARTITION,
            owner: Some(owner()),
            epoch: Epoch::FIRST,
            duration: Some(Duration::from_secs(30)),
            acquired_at: Timestamp(0),
            age: Duration::ZERO,
            age_known: true,
            version: LeaseVersion::revision(1),
            previous_owner: None,
            takeover_delay: Duration::ZERO,
            successor: None,
        };
        let answers = reply.map(|reply| HandoverAnswer { partition: PARTITION, asker: me(), reply });
        let owner = HostRecord { answers: answers.into_iter().collect(), ..record(owner(), 1) };
        View { leases: vec![lease], ..view_of([owner]) }
    }

    #[test]
    fn an_owner_that_does_not_answer_loses_the_partition_after_a_while() {
        let mut negotiation = asked();
        let judged = |negotiation: &mut Negotiation, second| {
            negotiation.advance_requests(&me(), &view(None), at(second), PATIENCE, |_| true)
        };
        assert!(judged(&mut negotiation, 129).is_empty());
        assert_eq!(negotiation.asked_owner(PARTITION), Some(&owner()));
        assert_eq!(judged(&mut negotiation, 130), [PARTITION]);
        assert!(!negotiation.has_asks(), "it is stolen once");
    }

    #[test]
    fn a_request_that_is_no_longer_planned_stays_only_if_the_owner_drains() {
        let draining = view(Some(HandoverReply::DrainingUntil(Timestamp(0))));
        for (view, stays) in [(view(None), false), (draining, true), (view(Some(HandoverReply::No)), false)] {
            let mut negotiation = asked();
            assert!(negotiation.advance_requests(&me(), &view, at(101), PATIENCE, |_| false).is_empty());
            assert_eq!((negotiation.has_asks(), negotiation.coming()), (stays, usize::from(stays)));
        }
    }

    #[test]
    fn a_request_that_nobody_has_seen_is_dropped() {
        let mut negotiation = asked();
        negotiation.drop_asks_since(at(101));
        assert_eq!(negotiation.wants().len(), 1);
        negotiation.drop_asks_since(at(100));
        assert!(negotiation.wants().is_empty());
    }

    #[test]
    fn an_announced_end_stays_unless_it_is_far_off() {
        let mut negotiation = Negotiation::default();
        let announce = |negotiation: &mut Negotiation, milliseconds| {
            negotiation.announce_end(PARTITION, &owner(), Timestamp(milliseconds));
            negotiation.answers()[0].reply
        };
        assert_eq!(announce(&mut negotiation, 50_000), HandoverReply::DrainingUntil(Timestamp(50_000)));
        for near in [40_001, 59_999] {
            assert_eq!(announce(&mut negotiation, near), HandoverReply::DrainingUntil(Timestamp(50_000)));
        }
        assert_eq!(announce(&mut negotiation, 60_000), HandoverReply::DrainingUntil(Timestamp(60_000)));
        negotiation.answer(PARTITION, &owner(), HandoverReply::No);
        assert_eq!(announce(&mut negotiation, 60_000), HandoverReply::DrainingUntil(Timestamp(60_000)));
    }

    #[test]
    fn an_answer_stays_as_long_as_its_request() {
        let mut negotiation = Negotiation::default();
        negotiation.answer(PARTITION, &owner(), HandoverReply::No);
        let asker = record(owner(), 1);
        let want = HandoverRequest { partition: PARTITION, owner: me(), epoch: Epoch::FIRST };
        negotiation.keep_answers_to(&[(&asker, &want)]);
        assert!(negotiation.has_answers());
        let other = record(host("other", 1), 1);
        negotiation.keep_answers_to(&[(&other, &want)]);
        assert!(!negotiation.has_answers());
    }
}
