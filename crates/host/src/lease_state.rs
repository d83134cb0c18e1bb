//! The state of a lease that this host holds: its deadline, and whether it has ended (not why). Shared by the
//! pump that serves the partition, the renewer that extends the deadline, and the contexts that processors
//! keep.
//!
//! All of it is atomics, because a pump reads it before every delivery. The reason for a loss follows from the lease in
//! the store (`loss_reason`).

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use ephor_core::ids::HostId;
use ephor_core::lease::{Lease, LeaseToken};
use ephor_core::time::Monotonic;

use crate::processor::CloseReason;

#[derive(Debug)]
pub(crate) struct LeaseState {
    token: LeaseToken,
    deadline: AtomicU64,
    over: AtomicBool,
}

impl LeaseState {
    pub(crate) fn new(token: LeaseToken, deadline: Monotonic) -> Self {
        Self { token, deadline: AtomicU64::new(deadline.0), over: AtomicBool::new(false) }
    }

    pub(crate) fn token(&self) -> &LeaseToken {
        &self.token
    }

    /// The instant after which nothing may be delivered.
    pub(crate) fn deadline(&self) -> Monotonic {
        Monotonic(self.deadline.load(Ordering::Acquire))
    }

    /// Notes a successful renewal. A deadline only moves forward.
    pub(crate) fn extend(&self, deadline: Monotonic) {
        self.deadline.fetch_max(deadline.0, Ordering::AcqRel);
    }

    /// Notes that the lease is lost or given away, for good.
    pub(crate) fn end(&self) {
        self.over.store(true, Ordering::Release);
    }

    /// True if this host may act for the partition now.
    pub(crate) fn is_ours(&self, now: Monotonic) -> bool {
        !self.over.load(Ordering::Acquire) && now < self.deadline()
    }
}

/// The reason why a lease is no longer ours.
pub(crate) fn loss_reason(lease: Option<&Lease>, me: &HostId) -> CloseReason {
    match lease {
        Some(lease) if lease.owner.is_none() && lease.previous_owner.as_ref() == Some(me) => {
            CloseReason::Seek
        }
        _ => CloseReason::LeaseLost,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::epoch::Epoch;
    use ephor_core::ids::{Incarnation, PartitionId};

    #[test]
    fn a_lease_is_ours_until_its_deadline_or_its_end() {
        let owner = HostId { name: "a".parse().unwrap(), incarnation: Incarnation(1) };
        let token = LeaseToken { partition: PartitionId(0), owner, epoch: Epoch::FIRST };
        let lease = LeaseState::new(token, Monotonic(10));
        assert!(lease.is_ours(Monotonic(9)));
        assert!(!lease.is_ours(Monotonic(10)));
        lease.extend(Monotonic(20));
        lease.extend(Monotonic(15));
        assert!(lease.is_ours(Monotonic(19)));
        lease.end();
        assert!(!lease.is_ours(Monotonic(11)));
    }
}
