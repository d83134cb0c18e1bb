//! Tracks the handover deadlines that owners announce: when the partition is released, and how long its
//! call in flight may take. The checks are in `steals.rs` (nobody takes a partition that is still given away) and
//! `stops.rs` (the call in flight ends in time).

use std::time::Duration;

use ephor::{Epoch, HostId, PartitionId};
use ephor_core::host_record::{HandoverReply, HostRecord};
use ephor_core::time::{Clock, Monotonic, Timestamp};

use super::Judge;
use super::state::JudgeState;

/// The most that closing and the last two store calls take after the call in flight. An owner adds it to the
/// deadline that it announces.
const MAX_GIVE_AWAY: Duration = Duration::from_secs(13);
/// A host that answers has seen the store's clock within this time.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// An owner's announcement that it gives a partition away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    /// The epoch of the owner.
    pub(super) epoch: Epoch,
    /// The announced deadline, by the store's clock.
    until: Timestamp,
    /// The time at which it first announced this deadline.
    pub(super) told_at: Monotonic,
    /// The deadline of the call in flight, by the owner's own clock. `None` if the store's clock was set
    /// within 60 s before the announcement: the deadline is then unknown, and the call is not checked.
    pub(super) call_until: Option<Monotonic>,
}

impl Judge {
    /// The store's time.
    pub(super) fn store_time(&self) -> Timestamp {
        self.handle.clock(self.store_clock).wall()
    }

    /// Notes the partitions that a host announces to give away.
    pub(super) fn note_draining(&self, state: &mut JudgeState, record: &HostRecord) {
        let (now, store_now) = (self.handle.now(), self.store_time());
        let set = state.store_set_at.is_some_and(|at| now.since(at) < SEEN_WITHIN);
        let JudgeState { hosts, partitions, .. } = state;
        let Some(host_facts) = hosts.get_mut(&record.id) else { return };
        let own = self.own_time(host_facts.machine);
        for answer in &record.answers {
            let HandoverReply::DrainingUntil(until) = answer.reply else { continue };
            let epoch = partitions.get(&answer.partition).map(|facts| facts.epoch).unwrap_or_default();
            let known =
                host_facts.draining.get(&answer.partition).filter(|known| known.epoch == epoch).copied();
            let left = until.since(store_now).saturating_sub(MAX_GIVE_AWAY);
            // A drain's deadline is never extended: the first announcement counts.
            let call_until = known.map_or((!set).then(|| own + left), |known| known.call_until);
            let told_at = known.filter(|known| known.until == until).map_or(now, |known| known.told_at);
            host_facts.draining.insert(answer.partition, Draining { epoch, until, told_at, call_until });
        }
    }
}

impl JudgeState {
    /// A host's announcement for a partition that it gives away in this epoch.
    pub(super) fn draining(&self, host: &HostId, partition: PartitionId, epoch: Epoch) -> Option<Draining> {
        let draining = self.hosts.get(host)?.draining.get(&partition)?;
        (draining.epoch == epoch).then_some(*draining)
    }
}
