//! Keeps the leases of the partitions that are served, in one call.

use std::sync::Arc;

use ephor_core::expiry::deadline;
use ephor_core::lease::LeaseToken;
use ephor_core::store::{Renewal, StoreError};
use ephor_core::time::Monotonic;

use super::planted;
use super::shared::{HostShared, loss_reason};
use crate::error::{HostError, StoreCallError};

/// Renews until it is dropped. One failed renewal is reported, tried again
/// soon, and changes nothing else: the deadline decides. So does a panic.
pub(crate) async fn run(shared: Arc<HostShared>) {
    let manager = &shared.manager;
    let mut next = shared.now() + manager.renew_interval;
    loop {
        shared.environment.sleep_until(next).await;
        let sent = shared.now();
        let turn = async {
            shared.notice_stuck_calls();
            renew(&shared).await
        };
        let well = shared.reporter.survive("renewer", turn).await.unwrap_or(false);
        let pause = if well { manager.renew_interval } else { manager.fast_scan };
        next = sent + pause;
    }
}

/// The leases that a pump serves.
pub(super) fn served(shared: &HostShared, now: Monotonic) -> Vec<LeaseToken> {
    let slots = shared.slots();
    let served = slots.values().filter(|slot| {
        let lease = &slot.context.inner().lease;
        lease.is_ours(now) && !lease.is_stuck()
    });
    served.map(|slot| slot.token().clone()).collect()
}

/// One renewal of everything that is served. False if the store failed.
async fn renew(shared: &HostShared) -> bool {
    let sent = shared.now();
    let tokens = if shared.rules.only_the_served_is_renewed {
        served(shared, sent)
    } else {
        planted::all_under_our_name(shared).await
    };
    if tokens.is_empty() {
        return true;
    }
    let store = &shared.store;
    let duration = shared.manager.lease_duration;
    let call = store.store().renew(store.group(), duration, &tokens);
    let Ok(renewals) = store.call("renew", None, call).await else { return false };
    let mut unknown = vec![];
    let slots = shared.slots();
    for (token, renewal) in tokens.iter().zip(renewals) {
        let Some(slot) = slots.get(&token.partition).filter(|slot| slot.token() == token) else { continue };
        match renewal {
            Renewal::Renewed => {
                let until = deadline(shared.counts_from(sent), duration, shared.manager.fence_margin);
                slot.context.inner().lease.extend(until);
            }
            Renewal::Unknown { what, .. } => {
                let failing_for = shared.store.failing_for(sent).unwrap_or_default();
                let error = StoreCallError::Failed(Arc::new(StoreError::Unavailable(what.into())));
                unknown.push(HostError::Store {
                    operation: "renew",
                    partition: Some(token.partition),
                    failing_for,
                    error,
                });
            }
            Renewal::Lost { holder } => slot.lose(loss_reason(holder.as_ref(), &shared.me)),
        }
    }
    drop(slots);
    for error in &unknown {
        shared.reporter.report(error);
    }
    unknown.is_empty()
}
