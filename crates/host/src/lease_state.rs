//! The state of a lease that this host holds: its deadline, its end, and the call in progress.
//!
//! Shared by the pump that serves the partition, the renewer that extends the deadline, and the
//! contexts that processors keep. All of it is atomics, because a pump reads it before every
//! delivery.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use ephor_core::lease::LeaseToken;
use ephor_core::time::Monotonic;

use crate::pump::state::PumpState;

#[derive(Debug)]
pub(crate) struct LeaseState {
    token: LeaseToken,
    deadline: AtomicU64,
    over: AtomicBool,
    /// The time at which the call in progress started; zero if there is none.
    call_started: AtomicU64,
    /// The latest time at which that call is given up.
    call_until: AtomicU64,
    stuck: AtomicBool,
    pump_state: AtomicU8,
}

impl LeaseState {
    pub(crate) fn new(token: LeaseToken, deadline: Monotonic) -> Self {
        Self {
            token,
            deadline: AtomicU64::new(deadline.0),
            over: AtomicBool::new(false),
            call_started: AtomicU64::new(0),
            call_until: AtomicU64::new(Monotonic::NEVER.0),
            stuck: AtomicBool::new(false),
            pump_state: AtomicU8::new(PumpState::Opening as u8),
        }
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

    /// Notes that the user's code is called, and is given up at `until`.
    pub(crate) fn call_starts(&self, now: Monotonic, until: Monotonic) {
        self.call_until.store(until.0, Ordering::Release);
        self.call_started.store(now.0.max(1), Ordering::Release);
    }

    /// Notes that the call returned or was given up.
    pub(crate) fn call_ended(&self) {
        self.call_started.store(0, Ordering::Release);
        self.not_stuck();
    }

    /// The latest time at which the call in progress is given up.
    pub(crate) fn call_until(&self) -> Monotonic {
        Monotonic(self.call_until.load(Ordering::Acquire))
    }

    /// The time at which the call in progress started.
    pub(crate) fn call_running_since(&self) -> Option<Monotonic> {
        let started = self.call_started.load(Ordering::Acquire);
        (started != 0).then_some(Monotonic(started))
    }

    /// Marks the call as stuck: it does not return and cannot be given up, so the lease is not
    /// renewed until it does. True if it was not marked before.
    pub(crate) fn mark_stuck(&self) -> bool {
        !self.stuck.swap(true, Ordering::AcqRel)
    }

    /// Clears the mark, because no call is in progress.
    pub(crate) fn not_stuck(&self) {
        self.stuck.store(false, Ordering::Release);
    }

    pub(crate) fn set_pump_state(&self, pump_state: PumpState) {
        self.pump_state.store(pump_state as u8, Ordering::Release);
    }

    pub(crate) fn pump_state(&self) -> PumpState {
        PumpState::ALL[usize::from(self.pump_state.load(Ordering::Acquire))]
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::epoch::Epoch;
    use ephor_core::ids::{HostId, Incarnation, PartitionId};

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
        lease.call_starts(Monotonic(0), Monotonic(7));
        assert_eq!((lease.call_running_since(), lease.call_until()), (Some(Monotonic(1)), Monotonic(7)));
        assert!(lease.mark_stuck());
        assert!(!lease.mark_stuck());
        assert!(lease.is_stuck());
        lease.call_ended();
        assert_eq!((lease.call_running_since(), lease.is_stuck()), (None, false));
        for pump_state in PumpState::ALL {
            lease.set_pump_state(pump_state);
            assert_eq!(lease.pump_state(), pump_state);
        }
    }
}
