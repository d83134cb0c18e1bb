//! Caches the creation time and the largest event size of a hub, which never change, for the attach of
//! links, reads of the log and answers of `$management`.
//!
//! A description of a hub is a copy of all its properties. Links are attached all the time, and these values
//! stay the same for the life of a log.

use std::collections::BTreeMap;
use std::sync::{Mutex, PoisonError};

use ephor_core::ids::{LogId, PartitionId};
use ephor_core::source::EventSource;
use ephor_core::time::Timestamp;
use ephor_hub::Hub;
use futures_util::FutureExt;

/// The largest number of hubs in the cache. Beyond it the cache is cleared: hubs come and go, and asking
/// again does no harm.
const MAX_HUBS: usize = 1024;

/// The properties of a hub that never change.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HubInfo {
    pub(crate) created_at: Timestamp,
    pub(crate) max_event_bytes: u64,
}

/// The cache, by log id.
#[derive(Debug, Default)]
pub(crate) struct HubInfoCache(Mutex<BTreeMap<LogId, HubInfo>>);

impl HubInfoCache {
    pub(crate) fn get(&self, hub: &Hub) -> HubInfo {
        let log = identity(hub).1;
        let known = log.as_ref().and_then(|log| self.lock().get(log).copied());
        known.unwrap_or_else(|| {
            let description = hub.describe();
            let info =
                HubInfo { created_at: description.created_at, max_event_bytes: description.max_event_bytes };
            let mut known = self.lock();
            if known.len() >= MAX_HUBS {
                known.clear();
            }
            known.insert(description.log, info);
            info
        })
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, BTreeMap<LogId, HubInfo>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The partitions of a hub, and its log id. An embedded hub answers at once.
pub(crate) fn identity(hub: &Hub) -> (Vec<PartitionId>, Option<LogId>) {
    match hub.hub_properties().now_or_never() {
        Some(Ok(properties)) => (properties.partitions, properties.log),
        _ => ((0..hub.partition_count()).map(PartitionId).collect(), None),
    }
}
