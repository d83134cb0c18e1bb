//! The mode beside processors of other SDKs, which know no epochs: all receivers attach with
//! epoch 0, the hub admits every one of them, and the last one reads. So the store decides who owns
//! the partition, before every attach.
//!
//! ```text
//!   before an attach:          renew this lease ─► ours: attach     not ours: lost     no answer: retry
//!   another took our place:    renew this lease ─► ours: it came late; wait, and attach again
//!                                                ─► not ours: lost
//! ```
//!
//! It uses a renewal and not a view, because that is one request however many partitions there are,
//! and because the store refuses it to a host that is not the owner at that very moment.

use ephor_core::epoch::Epoch;
use ephor_core::expiry::deadline;
use ephor_core::store::Renewal;
use ephor_core::time::Monotonic;

use super::{Ending, Pump, SOURCE_BACKOFF};
use crate::error::HostError;
use crate::host::pumps::{FAILURES_FORGOTTEN_AFTER, FOREIGN_BACKOFF, MAX_FOREIGN_ATTEMPTS};
use crate::host::shared::loss_reason;
use crate::processor::{CloseReason, EventProcessor};
use crate::pump::state::PumpState;

/// The number of times in a row that our place was taken although the lease was ours, and the last
/// time.
#[derive(Default)]
pub(super) struct Displacements {
    count: u32,
    last: Option<Monotonic>,
}

impl Displacements {
    fn add(&mut self, now: Monotonic) -> u32 {
        if self.last.is_some_and(|last| now.since(last) >= FAILURES_FORGOTTEN_AFTER) {
            self.count = 0;
        }
        self.last = Some(now);
        self.count += 1;
        self.count
    }
}

impl<P: EventProcessor> Pump<P> {
    pub(super) fn shares_with_other_sdks(&self) -> bool {
        self.shared.store.store().capabilities().shared_with_other_sdks
    }

    /// The epoch to open receivers with.
    pub(super) fn attach_epoch(&self) -> Epoch {
        if self.shares_with_other_sdks() { Epoch::NONE } else { self.context.epoch() }
    }

    /// Retries until the store confirms that the partition is ours, or that it is not.
    pub(super) async fn confirm_ownership(&mut self) -> Result<(), Ending> {
        let shared = self.shared.clone();
        let (store, manager) = (&shared.store, &shared.manager);
        let token = self.context.inner().lease.token().clone();
        for attempt in 1.. {
            let sent = self.now();
            let tokens = std::slice::from_ref(&token);
            let call = store.store().renew(store.group(), manager.lease_duration, tokens);
            let renewed = self.unless_stopped(store.call("renew", Some(token.partition), call)).await?;
            match renewed.ok().and_then(|mut renewals| renewals.pop()) {
                Some(Renewal::Renewed) => {
                    let from = shared.counts_from(sent);
                    let until = deadline(from, manager.lease_duration, manager.fence_margin);
                    self.context.inner().lease.extend(until);
                    break;
                }
                Some(Renewal::Lost { holder }) => {
                    return Err(Ending::Lost(loss_reason(holder.as_ref(), &shared.me)));
                }
                Some(Renewal::Unknown { .. }) | None => {
                    let wait = SOURCE_BACKOFF.delay(attempt, self.random());
                    self.wait(self.now() + wait).await?;
                }
            }
        }
        Ok(())
    }

    /// Handles another reader that has our place at the hub. With epochs that is the end; without
    /// them, the lease decides.
    pub(super) async fn displaced(&mut self, epoch: Option<Epoch>, by: Option<String>) -> Result<(), Ending> {
        if !self.shares_with_other_sdks() {
            return Err(Ending::Displaced { epoch, by });
        }
        self.confirm_ownership().await?;
        let now = self.now();
        let attempt = self.displacements.add(now);
        if attempt > MAX_FOREIGN_ATTEMPTS {
            let pause = self.shared.manager.lease_duration * 2;
            return Err(Ending::Failed { reason: CloseReason::SourceFailed, pause });
        }
        let partition = self.context.partition();
        self.shared.reporter.report(&HostError::Displaced { partition, by, attempt });
        self.set_state(PumpState::Retrying);
        self.wait(now + FOREIGN_BACKOFF.delay(attempt, self.random())).await?;
        self.set_state(PumpState::Opening);
        Ok(())
    }
}
