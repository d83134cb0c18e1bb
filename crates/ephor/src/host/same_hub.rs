//! Keeps hosts of two hubs of one name from sharing leases: refuses to start among them, and reports them later.

use std::time::Duration;

use ephor_core::host_record::ReadHub;
use ephor_core::ids::LogId;
use ephor_core::same_hub::{HubFinding, HubWatch};
use ephor_core::source::{EventSource, HubProperties};
use ephor_core::store::HostEntry;

use super::StartError;
use super::hub_look::HUB_REFRESH;
use super::manager::Manager;
use super::shared::HostShared;
use crate::error::HostError;
use crate::options::PartitionManagerOptions;
use crate::pump::open::within_limit;

/// After so long, every host that is alive has looked at its hub again and has written what it found, or says that it
/// does not know: a heartbeat and a view may take their time on the way, each twice.
fn patience(options: &PartitionManagerOptions) -> Duration {
    HUB_REFRESH + options.slow_scan + options.store_timeout * 4
}

/// Begins to watch which hubs the others read.
pub(super) fn watch(shared: &HostShared) -> HubWatch {
    HubWatch::new(patience(&shared.manager))
}

/// The hub as our record names it.
pub(super) fn read_hub(source: &dyn EventSource, log: Option<&LogId>) -> Option<ReadHub> {
    log.map(|log| ReadHub { endpoint: source.endpoint(), log: log.clone() })
}

/// Waits until everybody else who is alive in the group reads this hub too, and tells what the hub is then. In the
/// common case that is at once. A store or a hub that does not answer is no reason to wait: that is seen to later.
pub(super) async fn refuse_another(
    shared: &HostShared,
    mut hub: HubProperties,
) -> Result<HubProperties, StartError> {
    let mut others = watch(shared);
    loop {
        let Some(ours) = read_hub(&*shared.source, hub.log.as_ref()) else { return Ok(hub) };
        let store = &shared.store;
        let view = async { store.call("view", None, store.store().view(store.group())).await };
        let Some(Ok(view)) = shared.reporter.survive("start", view).await else { return Ok(hub) };
        match others.look(&shared.me, &ours.log, &view.hosts, shared.now()) {
            HubFinding::Same => return Ok(hub),
            HubFinding::Different { host, reads } => {
                return Err(StartError::AnotherHub { ours, host, theirs: reads });
            }
            HubFinding::Unsure => {}
        }
        tracing::info!(host = %shared.me, ours = ours.endpoint, "others of the group report another log: waiting for them to look at the hub again");
        shared.environment.sleep_until(shared.now() + shared.manager.slow_scan).await;
        // It may be ours that was made anew.
        let limit = shared.manager.store_timeout;
        match within_limit(&*shared.environment, limit, shared.source.hub_properties()).await {
            Ok(now) if now.log == hub.log => {}
            Ok(now) => (hub, others) = (now, watch(shared)),
            Err(_) => return Ok(hub),
        }
    }
}

impl Manager {
    /// The hub that we read, unless it is away or the look at it is overdue: a slow store holds it up, too.
    pub(super) fn read_hub(&self) -> Option<ReadHub> {
        let overdue = self.shared.now() > self.refresh_at + self.shared.manager.slow_scan;
        read_hub(&*self.shared.source, self.log.as_ref()).filter(|_| !self.hub_away && !overdue)
    }

    /// Hosts that started at the same time may find out only later that they read different hubs.
    pub(super) fn notice_another_hub(&mut self, hosts: &[HostEntry]) {
        let Some(ours) = self.read_hub() else { return };
        let found = self.hub_watch.look(&self.shared.me, &ours.log, hosts, self.shared.now());
        if let HubFinding::Different { host, reads } = found
            && self.elsewhere.insert(host.clone())
        {
            self.shared.reporter.report(&HostError::AnotherHub { ours, host, theirs: reads });
        }
    }
}
