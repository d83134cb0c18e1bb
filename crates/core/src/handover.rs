//! Handover requests: decides whether a host that asked for a partition goes on waiting, withdraws its
//! request, or steals the lease, from the lease and the owner's answers. `ephor-host` carries it out.
//!
//! Both hosts write into their own host records and read each other's.
//!
//! | the owner answers | the owner does | the host that asked does |
//! |---|---|---|
//! | draining until a time | finishes, closes, saves a checkpoint, transfers the lease | waits until then |
//! | no: I have no more than my share | keeps the partition | withdraws its request |
//! | nothing | – | steals the lease, after a while |

use std::time::Duration;

use crate::epoch::Epoch;
use crate::host_record::{HandoverAnswer, HandoverReply, HandoverRequest};
use crate::ids::{HostId, PartitionId};
use crate::lease::Lease;
use crate::time::{Monotonic, Timestamp};

/// A pending request of ours, with its progress so far.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PendingHandoverRequest {
    /// The partition.
    pub partition: PartitionId,
    /// Its owner.
    pub owner: HostId,
    /// The epoch of the lease that was asked for.
    pub epoch: Epoch,
    /// The time at which it was put into our record. The request is dropped if the record could not
    /// be written.
    pub asked_at: Monotonic,
    /// The time at which the owner was first seen draining, and the time that it said it needs.
    pub draining_since: Option<(Monotonic, Duration)>,
    /// The end of draining that the owner announced last, by the store's clock.
    pub announced_end: Option<Timestamp>,
}

impl PendingHandoverRequest {
    /// The request as it is written in our record.
    pub fn request(&self) -> HandoverRequest {
        HandoverRequest { partition: self.partition, owner: self.owner.clone(), epoch: self.epoch }
    }
}

/// The next step for a request that is pending.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NextStep {
    /// Keep it.
    Wait,
    /// Withdraw it: it was refused, or the lease has changed since the request.
    Withdraw,
    /// Take the lease: the owner did not answer in time, or announced a handover and did not carry
    /// it out.
    Steal,
}

/// Returns the next step for a request, by the current lease and the owner's answers.
///
/// `patience` is the time that a handover may take. It starts again when the owner is seen
/// draining, plus `grace`, because the news takes time to arrive.
#[expect(clippy::too_many_arguments, reason = "all that the next step depends on, and nothing else")]
pub fn next_step(
    ask: &mut PendingHandoverRequest,
    lease: Option<&Lease>,
    answers: &[HandoverAnswer],
    me: &HostId,
    now: Monotonic,
    store_now: Timestamp,
    patience: Duration,
    grace: Duration,
) -> NextStep {
    let as_asked =
        lease.is_some_and(|lease| lease.owner.as_ref() == Some(&ask.owner) && lease.epoch == ask.epoch);
    if !as_asked {
        return NextStep::Withdraw;
    }
    let of_it = || answers.iter().filter(|answer| answer.partition == ask.partition);
    // An owner that drains for another host drains, too: when it is done, the lease has changed.
    let drains = || of_it().find(|answer| matches!(answer.reply, HandoverReply::DrainingUntil(_)));
    let reply = of_it().find(|answer| answer.asker == *me).or_else(drains).map(|answer| answer.reply);
    match reply {
        Some(HandoverReply::No) => return NextStep::Withdraw,
        Some(HandoverReply::DrainingUntil(until)) => {
            let promised = until.since(store_now);
            // The first announcement counts, unless the owner corrects it: the store's clock may
            // have been set.
            let corrected = ask.announced_end.replace(until).is_some_and(|announced| announced != until);
            let later = |(since, then): (Monotonic, Duration)| corrected && now + promised > since + then;
            if ask.draining_since.is_none_or(later) {
                ask.draining_since = Some((now, promised));
            }
        }
        _ => {}
    }
    let (since, limit) = match ask.draining_since {
        // The owner's announcement counts if it is longer than our patience.
        Some((since, promised)) => (since, patience.max(promised).saturating_add(grace)),
        None => (ask.asked_at, patience),
    };
    if now.since(since) < limit { NextStep::Wait } else { NextStep::Steal }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Incarnation;
    use crate::lease::LeaseVersion;

    const PATIENCE: Duration = Duration::from_secs(30);
    const GRACE: Duration = Duration::from_secs(5);

    fn host(name: &str) -> HostId {
        HostId { name: name.parse().unwrap(), incarnation: Incarnation(1) }
    }

    fn seconds(n: u64) -> Monotonic {
        Monotonic(n * 1_000_000_000)
    }

    fn ask() -> PendingHandoverRequest {
        PendingHandoverRequest {
            partition: PartitionId(1),
            owner: host("owner"),
            epoch: Epoch::FIRST,
            asked_at: seconds(100),
            draining_since: None,
            announced_end: None,
        }
    }

    fn lease(owner: Option<&str>, epoch: Epoch) -> Lease {
        Lease {
            partition: PartitionId(1),
            owner: owner.map(host),
            epoch,
            duration: Some(PATIENCE),
            acquired_at: Timestamp(0),
            age: Duration::ZERO,
            age_known: true,
            version: LeaseVersion::revision(1),
            previous_owner: None,
            takeover_delay: Duration::ZERO,
            successor: None,
        }
    }

    fn answer(partition: u32, asker: &str, reply: HandoverReply) -> HandoverAnswer {
        HandoverAnswer { partition: PartitionId(partition), asker: host(asker), reply }
    }

    fn step_after(ask: &mut PendingHandoverRequest, answers: &[HandoverAnswer], now: u64) -> NextStep {
        let lease = lease(Some("owner"), ask.epoch);
        next_step(ask, Some(&lease), answers, &host("me"), seconds(now), Timestamp(0), PATIENCE, GRACE)
    }

    #[test]
    fn silence_permits_a_steal_and_only_after_a_while() {
        assert_eq!(step_after(&mut ask(), &[], 129), NextStep::Wait);
        assert_eq!(step_after(&mut ask(), &[], 130), NextStep::Steal);
    }

    #[test]
    fn an_owner_that_drains_gets_its_time_from_then() {
        let draining = [answer(1, "me", HandoverReply::DrainingUntil(Timestamp(0)))];
        let mut ask = ask();
        assert_eq!(step_after(&mut ask, &draining, 128), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &draining, 162), NextStep::Wait);
        // The answer is gone from the record, but the owner still has the lease: the time does not
        // start again.
        assert_eq!(step_after(&mut ask, &[], 162), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &[], 163), NextStep::Steal);
        assert_eq!(step_after(&mut ask, &draining, 163), NextStep::Steal);
    }

    #[test]
    fn an_owner_that_corrects_its_word_is_believed() {
        // The store's clock was set ahead: the announced end lies in the past.
        let mut ask = ask();
        assert_eq!(
            step_after(&mut ask, &[answer(1, "me", HandoverReply::DrainingUntil(Timestamp(0)))], 100),
            NextStep::Wait
        );
        let corrected = [answer(1, "me", HandoverReply::DrainingUntil(Timestamp(90_000)))];
        assert_eq!(step_after(&mut ask, &corrected, 110), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &[], 204), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &[], 205), NextStep::Steal);
    }

    #[test]
    fn an_owner_that_drains_for_another_gets_its_time_too() {
        let slow = [answer(1, "you", HandoverReply::DrainingUntil(Timestamp(300_000)))];
        let mut ask = ask();
        assert_eq!(step_after(&mut ask, &slow, 100), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &slow, 404), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &slow, 405), NextStep::Steal);
    }

    #[test]
    fn an_owner_that_says_it_needs_longer_is_given_longer() {
        let slow = [answer(1, "me", HandoverReply::DrainingUntil(Timestamp(300_000)))];
        let mut ask = ask();
        assert_eq!(step_after(&mut ask, &slow, 100), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &slow, 404), NextStep::Wait);
        assert_eq!(step_after(&mut ask, &slow, 405), NextStep::Steal);
    }

    #[test]
    fn a_no_is_taken_for_an_answer() {
        assert_eq!(step_after(&mut ask(), &[answer(1, "me", HandoverReply::No)], 101), NextStep::Withdraw);
        let to_others = [answer(1, "you", HandoverReply::No), answer(2, "me", HandoverReply::No)];
        assert_eq!(step_after(&mut ask(), &to_others, 101), NextStep::Wait);
    }

    #[test]
    fn a_request_for_what_no_longer_is_gets_withdrawn() {
        let mut ask = ask();
        let mut with = |lease: Option<Lease>| {
            next_step(&mut ask, lease.as_ref(), &[], &host("me"), seconds(500), Timestamp(0), PATIENCE, GRACE)
        };
        let epoch = Epoch::FIRST;
        assert_eq!(with(None), NextStep::Withdraw);
        assert_eq!(with(Some(lease(None, epoch))), NextStep::Withdraw);
        assert_eq!(with(Some(lease(Some("other"), epoch))), NextStep::Withdraw);
        assert_eq!(with(Some(lease(Some("owner"), Epoch::from_stored(2)))), NextStep::Withdraw);
        assert_eq!(with(Some(lease(Some("owner"), epoch))), NextStep::Steal);
    }

    #[test]
    fn what_is_asked_stands_in_the_record() {
        let ask = ask();
        let want = HandoverRequest { partition: PartitionId(1), owner: host("owner"), epoch: Epoch::FIRST };
        assert_eq!(ask.request(), want);
    }
}
