//! Refuses to start a host in a group whose hosts read another hub of the same name: they would share
//! leases. Such hosts that appear later are reported (`other_hubs_while_running.rs`).

use std::time::Duration;

use ephor_core::host_record::ReadHub;
use ephor_core::hub_tracker::{HUB_REFRESH, HubFinding, HubTracker, patience_with};
use ephor_core::ids::{HostId, LogId};
use ephor_core::source::EventSource;

use super::StartError;
use super::hub_refresh::HubAnswer;
use super::running_host::RunningHost;
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
    running: &RunningHost,
    mut answer: HubAnswer,
) -> Result<HubAnswer, StartError> {
    let start_to_track = || HubTracker::new(patience(&running.manager));
    let mut others = start_to_track();
    let limit = max_wait(&running.manager);
    let last = running.now() + limit;
    let mut said = false;
    loop {
        let Some(ours) = read_hub(&*running.source, answer.hub.log.as_ref()) else { return Ok(answer) };
        let store = &running.store;
        let view = running.reporter.catch_panics("start", store.view()).await;
        let Some(Ok(view)) = view else { return Ok(answer) };
        match others.observe(&running.me, &ours, &view.hosts, running.now()) {
            HubFinding::Same => return Ok(answer),
            HubFinding::Different { host, reads } => {
                return Err(StartError::AnotherHub { ours, host, theirs: reads });
            }
            HubFinding::Unsure { .. } if running.now() >= last => {
                tracing::warn!(group = %store.group(), host = %running.me, "starting, although others of the group still report another log: if they read another hub, that is reported later");
                return Ok(answer);
            }
            HubFinding::Unsure { host, reads } => {
                if !std::mem::replace(&mut said, true) {
                    tracing::warn!(group = %store.group(), host = %running.me, "{}", waiting(&ours, &host, &reads, limit));
                }
            }
        }
        running.environment.sleep_until(running.now() + running.manager.slow_scan).await;
        // Our own hub may have been created again.
        let (asked, answers_within) = (running.now(), running.manager.store_timeout);
        match within_limit(&*running.environment, answers_within, running.source.hub_properties()).await {
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
