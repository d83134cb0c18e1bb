//! The owners of partitions and the changes of owners, read from the store of the hosts; and the lag, read
//! from the hub.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use ephor::source::PartitionProperties;
use ephor::store::View;
use ephor::{BoxError, EventSource, GroupId, OwnershipChange, PartitionId, Position, Store};
use ephor_core::progress::lag;

use super::model::{GroupNow, PartitionNow};
use crate::fleet::{ALARMS, CONSOLIDATE};
use crate::reading::PARTITIONS;

/// The number of ownership changes that are shown for each group.
const CHANGES: usize = 20;

/// A hub that has not answered by then is not waited for: who owns what must be seen all the same.
const HUB_PATIENCE: Duration = Duration::from_secs(2);

/// Looks at both groups.
pub struct Operator {
    store: Arc<dyn Store>,
    /// None once the hub is about to end.
    source: Mutex<Option<Arc<dyn EventSource>>>,
    groups: Vec<GroupId>,
}

/// The result of a look.
#[derive(Clone, Debug, Default)]
pub struct Seen {
    /// The groups.
    pub groups: Vec<GroupNow>,
    /// The newest changes of ownership, newest first.
    pub changes: Vec<String>,
}

impl Operator {
    /// Looks at the groups of this hub in this store.
    pub fn new(store: Arc<dyn Store>, source: Arc<dyn EventSource>) -> Result<Self, BoxError> {
        let mut groups = Vec::new();
        for name in [CONSOLIDATE, ALARMS] {
            groups.push(GroupId {
                namespace: source.namespace().clone(),
                hub: source.hub().clone(),
                group: name.parse()?,
            });
        }
        Ok(Self { store, source: Mutex::new(Some(source)), groups })
    }

    /// Asks the hub nothing more: it ends, and nobody has to tell us so. Its connection ends with the last question.
    pub fn leave_hub(&self) {
        self.source.lock().unwrap_or_else(PoisonError::into_inner).take();
    }

    /// Looks once. A hub that does not answer leaves the lag as it was known from `before`.
    pub async fn look(&self, before: &Seen) -> Result<Seen, BoxError> {
        let properties = tokio::time::timeout(HUB_PATIENCE, self.ask_hub()).await.unwrap_or_default();
        let (mut groups, mut changes) = (Vec::new(), Vec::new());
        for group in &self.groups {
            let view = self.store.view(group).await?;
            let known = before.groups.iter().find(|known| known.name == group.group.as_str());
            groups.push(GroupNow {
                name: group.group.as_str().to_owned(),
                partitions: partitions(&view, &properties, known),
            });
            let history = self.store.history(group, None, CHANGES).await?;
            changes.extend(history.into_iter().map(|change| (change.at, describe(group, &change))));
        }
        changes.sort_by_key(|(at, _)| std::cmp::Reverse(*at));
        let changes = changes.into_iter().take(CHANGES).map(|(_, text)| text).collect();
        Ok(Seen { groups, changes })
    }

    /// Whether every partition of every group has a position in the store: nothing that is sent from now on is skipped.
    pub(crate) async fn all_have_begun(&self) -> Result<bool, BoxError> {
        for group in &self.groups {
            let view = self.store.view(group).await?;
            if !(0..PARTITIONS).all(|partition| view.checkpoint(PartitionId(partition)).is_some()) {
                return Ok(false);
            }
        }
        Ok(true)
    }

    async fn ask_hub(&self) -> BTreeMap<PartitionId, PartitionProperties> {
        let mut found = BTreeMap::new();
        let source = self.source.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let Some(source) = source else { return found };
        let Ok(hub) = source.hub_properties().await else { return found };
        for id in hub.partitions {
            if let Ok(properties) = source.partition_properties(id).await {
                found.insert(id, properties);
            }
        }
        found
    }
}

fn partitions(
    view: &View,
    properties: &BTreeMap<PartitionId, PartitionProperties>,
    before: Option<&GroupNow>,
) -> Vec<PartitionNow> {
    let one = |lease: &ephor::Lease| {
        let id = lease.partition;
        let finished = view.checkpoint(id).and_then(|checkpoint| match &checkpoint.position {
            Position::Finished { sequence, enqueued_at, .. } => Some((*sequence, *enqueued_at)),
            Position::Start(_) => None,
        });
        let known = || before?.partitions.iter().find(|known| known.id == id.0).map(|known| known.lag);
        let behind = properties.get(&id).map(|properties| lag(properties, finished).events);
        PartitionNow {
            id: id.0,
            owner: lease.owner.as_ref().map(|owner| owner.name.to_string()),
            epoch: lease.epoch.get(),
            since: u64::try_from(view.at.since(lease.acquired_at).as_millis()).unwrap_or(u64::MAX),
            expired: lease.owner.is_some() && lease.duration.is_some_and(|lasts| lease.age > lasts),
            lag: behind.or_else(known).unwrap_or(0),
        }
    };
    view.leases.iter().map(one).collect()
}

/// A change of ownership in a sentence.
fn describe(group: &GroupId, change: &OwnershipChange) -> String {
    let name = |host: &Option<ephor::HostId>| host.as_ref().map(|host| host.name.to_string());
    let from = name(&change.from).map(|from| format!(" from {from}")).unwrap_or_default();
    let to = name(&change.to).map_or("nobody".into(), |to| to);
    format!(
        "{} partition {} moves{from} to {to}, epoch {}: {}",
        group.group,
        change.partition,
        change.epoch.get(),
        change.reason
    )
}
