//! Renews the leases of all served partitions at an interval, in one store call, and soon again those whose
//! result is unknown. A partition with a stuck call is not renewed.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ephor_core::expiry::deadline;
use ephor_core::ids::PartitionId;
use ephor_core::lease::LeaseToken;
use ephor_core::store::{RenewalOutcome, StoreError};
use ephor_core::time::Monotonic;

use super::running_host::RunningHost;
#[cfg(feature = "mutations")]
use super::switched_off_rules;
use crate::error::{HostError, StoreCallError};
use crate::error_reports::Reporter;
use crate::lease_state::loss_reason;
use crate::options::PartitionManagerOptions;

/// The schedule of renewals: all leases at the interval, and in between only those with an unknown
/// outcome.
struct Schedule {
    /// The time at which all leases are due.
    all_at: Monotonic,
    /// The retry before that: its time, and its leases.
    again: Option<(Monotonic, BTreeSet<PartitionId>)>,
    /// The number of renewals in a row that the store throttled.
    throttled: u32,
}

/// The leases that were not certainly renewed by a call.
enum Unrenewed {
    /// These have an unknown outcome.
    Some { unknown: BTreeSet<PartitionId>, retry_after: Option<Duration> },
    /// The call failed, and all leases in it have an unknown outcome.
    All { retry_after: Option<Duration> },
}

impl Schedule {
    fn next(&self) -> Monotonic {
        self.again.as_ref().map_or(self.all_at, |(at, _)| self.all_at.min(*at))
    }

    /// The leases to renew now; `None` means all.
    fn due(&self, now: Monotonic) -> Option<BTreeSet<PartitionId>> {
        self.again.as_ref().filter(|_| now < self.all_at).map(|(_, partitions)| partitions.clone())
    }

    /// Plans the next call after one that was sent and answered at these times.
    fn note(
        &mut self,
        manager: &PartitionManagerOptions,
        only: Option<BTreeSet<PartitionId>>,
        unrenewed: Unrenewed,
        [sent, now]: [Monotonic; 2],
        earliest: Monotonic,
    ) {
        self.again = None;
        let retry_after = match &unrenewed {
            Unrenewed::Some { retry_after, .. } | Unrenewed::All { retry_after } => *retry_after,
        };
        self.throttled = if retry_after.is_some() { self.throttled.saturating_add(1) } else { 0 };
        let again_at = match retry_after {
            None => sent + manager.fast_scan,
            // However long the store wants to be left alone, several attempts remain before a lease
            // expires.
            Some(asked) => now + pause(manager, self.throttled, asked).min(earliest.since(now) / 3),
        };
        let whole = only.is_none();
        if whole {
            self.all_at = sent + manager.renew_interval;
        }
        match unrenewed {
            Unrenewed::Some { unknown, .. } if unknown.is_empty() => {}
            Unrenewed::Some { unknown, .. } => self.again = Some((again_at, unknown)),
            Unrenewed::All { .. } => match only {
                Some(only) => self.again = Some((again_at, only)),
                None => self.all_at = again_at,
            },
        }
    }
}

/// The pause after throttling (backoff): longer each time, as long as the store asks for, but never
/// so long that leases are in danger.
fn pause(manager: &PartitionManagerOptions, times: u32, asked: Duration) -> Duration {
    let doubled = manager.fast_scan.saturating_mul(1 << times.saturating_sub(1).min(10));
    let max = manager.renew_interval / 2;
    doubled.min(max).max(asked.min(manager.renew_interval))
}

/// Renews until it is dropped. A failed renewal or a panic is reported and soon retried, and has no
/// other effect: the deadline decides.
pub(crate) async fn run(running: Arc<RunningHost>) {
    let manager = &running.manager;
    let all_at = running.now() + manager.renew_interval;
    let mut schedule = Schedule { all_at, again: None, throttled: 0 };
    loop {
        running.environment.sleep_until(schedule.next()).await;
        let sent = running.now();
        let only = schedule.due(sent);
        let round = async {
            running.notice_stuck_calls();
            renew(&running, only.as_ref()).await
        };
        let unrenewed = running.reporter.catch_panics("renewer", round).await;
        let unrenewed = unrenewed.unwrap_or(Unrenewed::All { retry_after: None });
        schedule.note(manager, only, unrenewed, [sent, running.now()], earliest_deadline(&running));
    }
}

/// The deadline of the first served lease to expire.
fn earliest_deadline(running: &RunningHost) -> Monotonic {
    let slots = running.slots();
    let now = running.now();
    let leases = slots.values().map(|slot| slot.context.lease());
    leases.filter(|lease| lease.is_ours(now)).map(|lease| lease.deadline()).min().unwrap_or(Monotonic::NEVER)
}

/// The leases that a pump serves.
pub(super) fn served(running: &RunningHost, now: Monotonic) -> Vec<LeaseToken> {
    let slots = running.slots();
    let served = slots.values().filter(|slot| slot.context.lease().is_ours(now) && !slot.activity.is_stuck());
    let mut served: Vec<_> =
        served.map(|slot| (slot.context.lease().deadline(), slot.token().clone())).collect();
    // The first to expire comes first, in case the store does not get through all of them.
    served.sort_by_key(|(deadline, _)| *deadline);
    served.into_iter().map(|(_, token)| token).collect()
}

/// Renews all served leases, or only these.
async fn renew(running: &RunningHost, only: Option<&BTreeSet<PartitionId>>) -> Unrenewed {
    let sent = running.now();
    let mut tokens = served(running, sent);
    #[cfg(feature = "mutations")]
    if !running.rules.only_the_served_is_renewed() {
        tokens = switched_off_rules::all_under_our_name(running).await;
    }
    if let Some(only) = only {
        tokens.retain(|token| only.contains(&token.partition));
    }
    let mut unknown = BTreeSet::new();
    let mut retry_after = None;
    if tokens.is_empty() {
        return Unrenewed::Some { unknown, retry_after };
    }
    let duration = running.manager.lease_duration;
    let renewals = match running.store.renew(duration, &tokens).await {
        Ok(renewals) => renewals,
        Err(StoreCallError::Failed(error)) => return Unrenewed::All { retry_after: error.retry_after() },
        Err(_) => return Unrenewed::All { retry_after: None },
    };
    let mut errors = vec![];
    let slots = running.slots();
    for (token, renewal) in tokens.iter().zip(renewals) {
        let Some(slot) = slots.get(&token.partition).filter(|slot| slot.token() == token) else { continue };
        match renewal {
            RenewalOutcome::Renewed => {
                let until = deadline(running.counts_from(sent), duration, running.manager.fence_margin);
                slot.context.lease().extend(until);
            }
            RenewalOutcome::Unknown { what, retry_after: asked } => {
                unknown.insert(token.partition);
                retry_after = retry_after.max(asked);
                let failing_for = running.store.failing_for(sent).unwrap_or_default();
                let error = StoreCallError::Failed(Arc::new(StoreError::Unavailable(what.into())));
                errors.push(HostError::Store {
                    operation: "renew",
                    partition: Some(token.partition),
                    failing_for,
                    error,
                });
            }
            RenewalOutcome::Lost { holder } => slot.lose(loss_reason(holder.as_ref(), &running.me)),
        }
    }
    drop(slots);
    report_unknown(&running.reporter, &errors);
    Unrenewed::Some { unknown, retry_after }
}

/// Reports leases whose renewal is unknown: each to the handler and the metrics, but only the first one in the log. They
/// have one cause, a store that did not answer in time, and there may be a thousand of them.
fn report_unknown(reporter: &Reporter, errors: &[HostError]) {
    let Some((first, others)) = errors.split_first() else { return };
    reporter.report(first);
    for error in others {
        reporter.report_one_of_many(error);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicUsize, Ordering};

    use ephor_core::ids::GroupId;
    use ephor_testkit::CapturedLog;

    use super::*;
    use crate::options::ErrorHandler;

    #[test]
    fn a_thousand_unknown_leases_reach_the_handler_and_are_one_line_in_the_log() {
        let unknown = |partition| HostError::Store {
            operation: "renew",
            partition: Some(PartitionId(partition)),
            failing_for: Duration::ZERO,
            error: StoreCallError::Failed(Arc::new(StoreError::Unavailable("it hangs".into()))),
        };
        let errors: Vec<_> = (0..1_000).map(unknown).collect();
        let reported = Arc::new(AtomicUsize::new(0));
        let handler = {
            let reported = reported.clone();
            move |_: &HostError| {
                reported.fetch_add(1, Ordering::SeqCst);
            }
        };
        let group = GroupId {
            namespace: "local".parse().unwrap(),
            hub: "homes".parse().unwrap(),
            group: "$Default".parse().unwrap(),
        };
        let reporter =
            Reporter::new(group, "host#0123456789abcdef".parse().unwrap(), Some(ErrorHandler::new(handler)));
        let log = CapturedLog::of_this_thread();
        report_unknown(&reporter, &errors);
        assert_eq!((reported.load(Ordering::SeqCst), log.take().len()), (1_000, 1));
    }
}
