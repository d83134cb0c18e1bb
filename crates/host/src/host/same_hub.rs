//! Prevents hosts of two hubs with the same name from sharing leases: refuses to start among them.
//! Those that are found later are reported (`hosts_of_other_hubs.rs`).

use std::time::Duration;

use ephor_core::host_record::ReadHub;
use ephor_core::ids::{HostId, LogId};
use ephor_core::same_hub::{HUB_REFRESH, HubFinding, HubTracker, patience_with};
use ephor_core::source::EventSource;

use super::StartError;
use super::hub_refresh::HubAnswer;
use super::shared::HostShared;
use crate::hub_calls::within_limit;
use crate::options::PartitionManagerOptions;

/// The time after which every living host has asked its hub again and has written the result, or
/// that it does not know. A heartbeat and a view may each be slow twice.
pub(super) fn patience(options: &PartitionManagerOptions) -> Duration {
    let calls = options.store_timeout.saturating_mul(4);
    HUB_REFRESH.saturating_add(options.slow_scan).saturating_add(calls)
}

/// The longest time that a start waits for the others: two minutes with the default options. That
/// is enough to be sure of a host with a lease like ours; the manager reports any other one later.
fn max_wait(options: &PartitionManagerOptions) -> Duration {
    patience_with(patience(options), options.lease_duration).saturating_add(options.lease_duration)
}

/// The hub as our record names it.
pub(super) fn read_hub(source: &dyn EventSource, log: Option<&LogId>) -> Option<ReadHub> {
    log.map(|log| ReadHub { endpoint: source.endpoint(), log: log.clone() })
}

/// Waits until all other living hosts of the group read this hub, too, and returns the properties
/// of the hub then. Usually that is at once. It does not wait for a store or a hub that does not
/// answer, nor longer than the limit for hosts that leave it open: the manager handles those later.
pub(super) async fn refuse_another(
    shared: &HostShared,
    mut answer: HubAnswer,
) -> Result<HubAnswer, StartError> {
    let start_to_track = || HubTracker::new(patience(&shared.manager));
    let mut others = start_to_track();
    let limit = max_wait(&shared.manager);
    let last = shared.now() + limit;
    let mut said = false;
    loop {
        let Some(ours) = read_hub(&*shared.source, answer.hub.log.as_ref()) else { return Ok(answer) };
        let store = &shared.store;
        let view = shared.reporter.catch_panics("start", store.view()).await;
        let Some(Ok(view)) = view else { return Ok(answer) };
        match others.observe(&shared.me, &ours, &view.hosts, shared.now()) {
            HubFinding::Same => return Ok(answer),
            HubFinding::Different { host, reads } => {
                return Err(StartError::AnotherHub { ours, host, theirs: reads });
            }
            HubFinding::Unsure { .. } if shared.now() >= last => {
                tracing::warn!(group = %store.group(), host = %shared.me, "starting, although others of the group still report another log: if they read another hub, that is reported later");
                return Ok(answer);
            }
            HubFinding::Unsure { host, reads } => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(group = %store.group(), host = %shared.me, "{}", waiting(&ours, &host, &reads, limit));
                }
            }
        }
        shared.environment.sleep_until(shared.now() + shared.manager.slow_scan).await;
        // Our own hub may have been created again.
        let (asked, answers_within) = (shared.now(), shared.manager.store_timeout);
        match within_limit(&*shared.environment, answers_within, shared.source.hub_properties()).await {
            Ok(hub) => {
                if hub.log != answer.hub.log {
                    others = start_to_track();
                }
                answer = HubAnswer { hub, asked };
            }
            Err(_) => return Ok(answer),
        }
    }
}

/// The log message about the wait.
fn waiting(ours: &ReadHub, host: &HostId, theirs: &ReadHub, limit: Duration) -> String {
    format!(
        "host {host} of this group reports log {} of {}, this host reads log {} of {}; waiting up to {limit:?} to see \
         whether this is one hub that was created again",
        theirs.log, theirs.endpoint, ours.log, ours.endpoint
    )
}
