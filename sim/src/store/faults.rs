//! The faults of the network between a machine and the store, and their effect on one call.

use ephor_core::store::StoreMethod;
use ephor_core::time::Monotonic;
use fastrand::Rng;

use crate::call_faults::{FaultKind, Latency, happens};
use crate::network::CallFate;

/// The faults of the network between one machine and the store. Numbers without a unit are probabilities, per
/// call.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct StoreFaults {
    /// The duration of one way.
    pub latency: Latency,
    /// The request takes [`StoreFaults::slow_latency`] instead.
    pub slow: f64,
    /// The duration of a slow request: longer than callers wait, so that it is applied after they have given
    /// up.
    pub slow_latency: Latency,
    /// The answer takes [`StoreFaults::slow_answer_latency`] instead.
    pub slow_answer: f64,
    /// The duration of a slow answer: not quite as long as callers wait.
    pub slow_answer_latency: Latency,
    /// Not applied, never answered.
    pub lost_request: f64,
    /// Applied, never answered.
    pub lost_response: f64,
    /// Not applied, answered with an error.
    pub error_before: f64,
    /// Applied, answered with an error.
    pub error_after: f64,
    /// Not applied, throttled.
    pub throttled: f64,
    /// A claim is answered with the holder of the lease, and not applied.
    pub conflict: f64,
    /// A notification is lost.
    pub lost_notification: f64,
    /// True if views and heartbeats never arrive; all other calls do.
    pub blind: bool,
    /// The virtual time until which it hangs: no request arrives sooner.
    pub hangs_until: Monotonic,
}

impl Default for StoreFaults {
    /// A good network.
    fn default() -> Self {
        Self {
            latency: Latency::milliseconds(1, 5),
            slow: 0.0,
            slow_latency: Latency::milliseconds(5_000, 60_000),
            slow_answer: 0.0,
            slow_answer_latency: Latency::milliseconds(1_000, 4_500),
            lost_request: 0.0,
            lost_response: 0.0,
            error_before: 0.0,
            error_after: 0.0,
            throttled: 0.0,
            conflict: 0.0,
            lost_notification: 0.0,
            blind: false,
            hangs_until: Monotonic(0),
        }
    }
}

impl StoreFaults {
    /// Cut off: nothing gets through any more. Requests in flight still arrive.
    pub fn cut_off() -> Self {
        Self { lost_request: 1.0, lost_notification: 1.0, ..Self::default() }
    }

    /// Deaf: every request arrives, and no answer comes back.
    pub fn deaf() -> Self {
        Self { lost_response: 1.0, lost_notification: 1.0, ..Self::default() }
    }

    /// Blind: a host owns, renews and saves, and neither sees the others nor is seen by them.
    pub fn blind() -> Self {
        Self { blind: true, lost_notification: 1.0, ..Self::default() }
    }

    /// Hanging: no request arrives before this instant, and then all do.
    pub fn hanging(until: Monotonic) -> Self {
        Self { hangs_until: until, ..Self::default() }
    }

    /// True if calls may fail or be late.
    pub fn is_bad(&self) -> bool {
        let harmless = Self { lost_notification: 0.0, ..*self };
        harmless != Self::default()
    }

    /// These faults combined with those of all hosts: the worse of both.
    pub(super) fn and(self, all: Self) -> Self {
        let worse = |a: Latency, b: Latency| if a.max >= b.max { a } else { b };
        Self {
            latency: worse(self.latency, all.latency),
            slow: self.slow.max(all.slow),
            slow_answer: self.slow_answer.max(all.slow_answer),
            lost_request: self.lost_request.max(all.lost_request),
            lost_response: self.lost_response.max(all.lost_response),
            error_before: self.error_before.max(all.error_before),
            error_after: self.error_after.max(all.error_after),
            throttled: self.throttled.max(all.throttled),
            conflict: self.conflict.max(all.conflict),
            lost_notification: self.lost_notification.max(all.lost_notification),
            hangs_until: self.hangs_until.max(all.hangs_until),
            ..self
        }
    }

    pub(super) fn fate(&self, random: &mut Rng, call: StoreMethod) -> CallFate {
        let slow = happens(random, self.slow);
        let request_delay = if slow { self.slow_latency } else { self.latency }.draw(random);
        let slow_answer = happens(random, self.slow_answer);
        let answer_delay = if slow_answer { self.slow_answer_latency } else { self.latency }.draw(random);
        let unseen = self.blind && matches!(call, StoreMethod::View | StoreMethod::Heartbeat);
        let mut fault = unseen.then_some(FaultKind::LostRequest);
        for (kind, probability) in [
            (FaultKind::LostRequest, self.lost_request),
            (FaultKind::LostResponse, self.lost_response),
            (FaultKind::ErrorBefore, self.error_before),
            (FaultKind::ErrorAfter, self.error_after),
            (FaultKind::Throttled, self.throttled),
            (FaultKind::Conflict, self.conflict),
        ] {
            let applies = kind != FaultKind::Conflict || call == StoreMethod::Claim;
            if happens(random, probability) && applies {
                fault = fault.or(Some(kind));
            }
        }
        CallFate { request_delay, answer_delay, slow, slow_answer, fault }
    }
}
