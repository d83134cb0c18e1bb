//! The mode for hubs that do not fence readers: the pump asks the store before every attach whether its
//! host still owns the partition.
//!
//! | cause | readers |
//! |---|---|
//! | processors of other SDKs share the group, and know no epochs | all attach with epoch 0, and the last one reads |
//! | the source does not fence readers ([`SourceCapabilities`]) | all read side by side |
//!
//! Calls still never overlap: no call begins after the owner's own deadline, and whoever takes a
//! partition from an owner that may be at work waits for that deadline. A host that was stopped by
//! its hypervisor, and whose clock does not know it, delivers until the store refuses its next
//! renewal or attach, where epochs would stop it as soon as its successor reads.
//!
//! ```text
//!   before an attach:          renew this lease ─► ours: attach     not ours: lost     no answer: retry
//!   another took our place:    renew this lease ─► ours: it came late; wait, and attach again
//!                                                ─► not ours: lost
//! ```
//!
//! It uses a renewal and not a view, because that is one request however many partitions there are,
//! and because the store refuses it to a host that is not the owner at that very moment.
//!
//! [`SourceCapabilities`]: ephor_core::source::SourceCapabilities

use ephor_core::epoch::Epoch;
use ephor_core::expiry::deadline;
use ephor_core::store::RenewalOutcome;
use ephor_core::time::Monotonic;

use super::{Ending, Pump, SOURCE_BACKOFF};
use crate::error::HostError;
use crate::lease_state::loss_reason;
use crate::limits::{FAILURES_FORGOTTEN_AFTER, FOREIGN_BACKOFF, MAX_FOREIGN_ATTEMPTS};
use crate::processor::{CloseReason, EventProcessor};
use crate::pump_activity::PumpState;

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
        self.services.store.capabilities().shared_with_other_sdks
    }

    /// True if the hub refuses and disconnects former owners by their epochs.
    pub(super) fn hub_fences(&self) -> bool {
        self.services.source.capabilities().fences_readers && !self.shares_with_other_sdks()
    }

    /// The epoch to open receivers with.
    pub(super) fn attach_epoch(&self) -> Epoch {
        if self.hub_fences() { self.context.epoch() } else { Epoch::NONE }
    }

    /// Retries until the store confirms that the partition is ours, or that it is not.
    pub(super) async fn confirm_ownership(&mut self) -> Result<(), Ending> {
        let services = self.services.clone();
        let (store, manager) = (&services.store, &services.manager);
        let token = self.context.inner().lease.token().clone();
        for attempt in 1.. {
            let sent = self.now();
            let renewed = self.unless_stopped(store.renew_one(manager.lease_duration, &token)).await?;
            match renewed.ok().flatten() {
                Some(RenewalOutcome::Renewed) => {
                    let from = services.counts_from(sent);
                    let until = deadline(from, manager.lease_duration, manager.fence_margin);
                    self.context.inner().lease.extend(until);
                    break;
                }
                Some(RenewalOutcome::Lost { holder }) => {
                    return Err(Ending::Lost(loss_reason(holder.as_ref(), &services.me)));
                }
                Some(RenewalOutcome::Unknown { .. }) | None => {
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
        if self.hub_fences() {
            return Err(Ending::Displaced { epoch, by });
        }
        self.confirm_ownership().await?;
        let now = self.now();
        let attempt = self.displacements.add(now);
        if attempt > MAX_FOREIGN_ATTEMPTS {
            let pause = self.services.manager.lease_duration * 2;
            return Err(Ending::Failed { reason: CloseReason::SourceFailed, pause });
        }
        let partition = self.context.partition();
        self.services.reporter.report(&HostError::Displaced { partition, by, attempt });
        self.set_state(PumpState::Retrying);
        self.wait(now + FOREIGN_BACKOFF.delay(attempt, self.random())).await?;
        self.set_state(PumpState::Opening);
        Ok(())
    }
}
