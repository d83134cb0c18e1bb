//! Prevents hosts of two hubs with the same name from sharing leases: refuses to start among them,
//! and reports them later.

use std::time::Duration;

use ephor_core::host_record::ReadHub;
use ephor_core::ids::{HostId, LogId};
use ephor_core::same_hub::{HUB_REFRESH, HubFinding, HubTracker, patience_with};
use ephor_core::source::EventSource;
use ephor_core::store::HostEntry;

use super::StartError;
use super::hub_refresh::HubAnswer;
use super::manager::Manager;
use super::shared::HostShared;
use crate::error::HostError;
use crate::options::PartitionManagerOptions;
use crate::pump::open::within_limit;

/// The time after which every living host has asked its hub again and has written the result, or
/// that it does not know. A heartbeat and a view may each be slow twice.
fn patience(options: &PartitionManagerOptions) -> Duration {
    let calls = options.store_timeout.saturating_mul(4);
    HUB_REFRESH.saturating_add(options.slow_scan).saturating_add(calls)
}

/// The longest time that a start waits for the others: two minutes with the default options. That
/// is enough to be sure of a host with a lease like ours; the manager reports any other one later.
fn max_wait(options: &PartitionManagerOptions) -> Duration {
    patience_with(patience(options), options.lease_duration).saturating_add(options.lease_duration)
}

/// Starts to track the hubs that the others read.
pub(super) fn hub_tracker(shared: &HostShared) -> HubTracker {
    HubTracker::new(patience(&shared.manager))
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
    let mut others = hub_tracker(shared);
    let limit = max_wait(&shared.manager);
    let last = shared.now() + limit;
    let mut said = false;
    loop {
        let Some(ours) = read_hub(&*shared.source, answer.hub.log.as_ref()) else { return Ok(answer) };
        let store = &shared.store;
        let view = async { store.call("view", None, store.store().view(store.group())).await };
        let Some(Ok(view)) = shared.reporter.catch_panics("start", view).await else { return Ok(answer) };
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
                    others = hub_tracker(shared);
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

impl Manager {
    /// The hub that we read, unless it is unreachable or its refresh is overdue, which a slow store
    /// causes, too.
    pub(super) fn read_hub(&self) -> Option<ReadHub> {
        let overdue = self.shared.now() > self.refresh_at + self.shared.manager.slow_scan;
        read_hub(&*self.shared.source, self.log.as_ref()).filter(|_| !self.hub_away && !overdue)
    }

    /// Reports hosts that read another hub. Hosts that started at the same time may find that out
    /// only later.
    pub(super) fn notice_another_hub(&mut self, hosts: &[HostEntry]) {
        self.elsewhere.retain(|id| hosts.iter().any(|entry| entry.record.id == *id));
        let Some(ours) = self.read_hub() else { return };
        let found = self.hub_tracker.observe(&self.shared.me, &ours, hosts, self.shared.now());
        if let HubFinding::Different { host, reads } = found
            && self.elsewhere.insert(host.clone())
        {
            self.shared.reporter.report(&HostError::AnotherHub { ours, host, theirs: reads });
        }
    }
}
