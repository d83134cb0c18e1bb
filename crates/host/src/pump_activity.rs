//! The activity of a pump: its state, and the call to the processor that is in progress.
//!
//! The pump writes it; its host reads it for snapshots and renewals, and marks stuck calls. All of
//! it is atomics, because a pump writes it with every call.

use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU64, Ordering};

use ephor_core::time::Monotonic;

/// The state of a partition's pump.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(u8)]
#[non_exhaustive]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum PumpState {
    /// The partition is ours; waiting until its previous owner has certainly stopped.
    Waiting,
    /// Finding the position, creating and opening the processor, attaching the receiver.
    Opening,
    /// Receiving and delivering.
    Running,
    /// The last call failed; the same batch is redelivered.
    Failing,
    /// Held by `pause`: owned, but nothing is delivered.
    Paused,
    /// The hub cannot be read; retrying.
    Retrying,
    /// The position does not exist, and by the options the partition waits for a seek.
    Halted,
    /// Finishing, closing, saving and giving away.
    Closing,
}

impl PumpState {
    /// All states, in the order of their numbers.
    const ALL: [Self; 8] = [
        Self::Waiting,
        Self::Opening,
        Self::Running,
        Self::Failing,
        Self::Paused,
        Self::Retrying,
        Self::Halted,
        Self::Closing,
    ];
}

#[derive(Debug)]
pub(crate) struct PumpActivity {
    state: AtomicU8,
    /// The time at which the call in progress started; zero if there is none.
    call_started: AtomicU64,
    /// The latest time at which that call is given up.
    call_until: AtomicU64,
    stuck: AtomicBool,
}

impl Default for PumpActivity {
    fn default() -> Self {
        Self {
            state: AtomicU8::new(PumpState::Opening as u8),
            call_started: AtomicU64::new(0),
            call_until: AtomicU64::new(Monotonic::NEVER.0),
            stuck: AtomicBool::new(false),
        }
    }
}

impl PumpActivity {
    pub(crate) fn set_state(&self, state: PumpState) {
        self.state.store(state as u8, Ordering::Release);
    }

    pub(crate) fn state(&self) -> PumpState {
        PumpState::ALL[usize::from(self.state.load(Ordering::Acquire))]
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

    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Acquire)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_call_is_known_until_it_ends_and_its_mark_ends_with_it() {
        let activity = PumpActivity::default();
        assert_eq!(activity.call_running_since(), None);
        activity.call_starts(Monotonic(0), Monotonic(7));
        assert_eq!(
            (activity.call_running_since(), activity.call_until()),
            (Some(Monotonic(1)), Monotonic(7))
        );
        assert!(activity.mark_stuck());
        assert!(!activity.mark_stuck());
        assert!(activity.is_stuck());
        activity.call_ended();
        assert_eq!((activity.call_running_since(), activity.is_stuck()), (None, false));
    }

    #[test]
    fn every_state_is_read_as_it_was_set() {
        let activity = PumpActivity::default();
        assert_eq!(activity.state(), PumpState::Opening);
        for state in PumpState::ALL {
            activity.set_state(state);
            assert_eq!(activity.state(), state);
        }
    }
}
