//! What owners have said of partitions that they give away: until when that may take, and how long calls in flight have.

use std::time::Duration;

use ephor::{Epoch, HostId, PartitionId};
use ephor_core::host_record::{HostRecord, Reply};
use ephor_core::time::{Clock, Monotonic, Timestamp};

use super::Judge;
use super::docket::Docket;

/// What closing and the last two calls of the store take at most, behind the call in flight: an owner promises that on top.
const TO_GIVE_AWAY: Duration = Duration::from_secs(13);
/// Who answers has seen the store's clock at most this long before.
const SEEN_WITHIN: Duration = Duration::from_secs(60);

/// An owner's word that it gives a partition away.
#[derive(Clone, Copy, Debug)]
pub(super) struct Draining {
    /// In which epoch.
    pub(super) epoch: Epoch,
    /// Until when, by the store's clock.
    until: Timestamp,
    /// Since when it names this time.
    pub(super) told_at: Monotonic,
    /// Until when the call in flight has time, by the owner's own clock. None: the store's clock was set before it was told.
    pub(super) call_until: Option<Monotonic>,
}

impl Judge {
    /// The store's time.
    pub(super) fn store_time(&self) -> Timestamp {
        self.handle.clock(self.store_clock).wall()
    }

    /// Notes what a host says that it gives away.
    pub(super) fn note_draining(&self, docket: &mut Docket, record: &HostRecord) {
        let (now, store_now) = (self.handle.now(), self.store_time());
        let set = docket.store_set_at.is_some_and(|at| now.since(at) < SEEN_WITHIN);
        let Docket { seats, cases, .. } = docket;
        let Some(seat) = seats.get_mut(&record.id) else { return };
        let own = self.reading(seat.machine);
        for answer in &record.answers {
            let Reply::DrainingUntil(until) = answer.reply else { continue };
            let epoch = cases.get(&answer.partition).map(|case| case.epoch).unwrap_or_default();
            let known = seat.draining.get(&answer.partition).filter(|known| known.epoch == epoch).copied();
            let left = until.since(store_now).saturating_sub(TO_GIVE_AWAY);
            // A drain's end is never put off: what was told first counts.
            let call_until = known.map_or((!set).then(|| own + left), |known| known.call_until);
            let told_at = known.filter(|known| known.until == until).map_or(now, |known| known.told_at);
            seat.draining.insert(answer.partition, Draining { epoch, until, told_at, call_until });
        }
    }
}

impl Docket {
    /// What a host has said of a partition that it gives away in this epoch.
    pub(super) fn draining(&self, host: &HostId, partition: PartitionId, epoch: Epoch) -> Option<Draining> {
        let draining = self.seats.get(host)?.draining.get(&partition)?;
        (draining.epoch == epoch).then_some(*draining)
    }
}
