//! Logs once when the hub cannot be read and once when it can be read again, however many partitions are
//! affected.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::ids::{GroupId, HostId, PartitionId};
use ephor_core::time::Monotonic;

/// A reader of the hub: the pump of a partition, or the manager.
pub(crate) type Reader = Option<PartitionId>;

pub(crate) struct HubHealth {
    group: GroupId,
    host: HostId,
    /// Read for every batch, and rarely true.
    failing: AtomicBool,
    outage: Mutex<Option<Outage>>,
}

/// Removes a reader when it is dropped, for whatever reason.
pub(crate) struct ReaderGuard {
    health: Arc<HubHealth>,
    reader: Reader,
}

impl ReaderGuard {
    pub(crate) fn new(health: Arc<HubHealth>, reader: Reader) -> Self {
        Self { health, reader }
    }
}

impl Drop for ReaderGuard {
    fn drop(&mut self) {
        self.health.forget(self.reader);
    }
}

struct Outage {
    since: Monotonic,
    /// The readers that failed and have not succeeded since.
    failing: BTreeSet<Reader>,
}

impl HubHealth {
    pub(crate) fn new(group: GroupId, host: HostId) -> Self {
        Self { group, host, failing: AtomicBool::new(false), outage: Mutex::default() }
    }

    fn outage(&self) -> MutexGuard<'_, Option<Outage>> {
        self.outage.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Notes that a reader failed.
    pub(crate) fn failed(&self, reader: Reader, now: Monotonic, reason: &dyn fmt::Display) {
        if self.note_failure(reader, now) {
            let (group, host) = (&self.group, &self.host);
            let partition = reader.map(|partition| partition.0);
            tracing::warn!(%group, %host, partition, %reason, "the hub cannot be read");
        }
    }

    /// Notes that a reader succeeded.
    pub(crate) fn reads(&self, reader: Reader, now: Monotonic) {
        if let Some(failed_for) = self.note_success(reader, now) {
            let (group, host) = (&self.group, &self.host);
            tracing::info!(%group, %host, ?failed_for, "the hub is read again");
        }
    }

    /// Removes a reader that has ended, whatever the state of the hub.
    fn forget(&self, reader: Reader) {
        if let Some(outage) = &mut *self.outage() {
            outage.failing.remove(&reader);
        }
    }

    /// True if an outage begins.
    fn note_failure(&self, reader: Reader, now: Monotonic) -> bool {
        let mut outage = self.outage();
        let begins = outage.is_none();
        let current = outage.get_or_insert_with(|| Outage { since: now, failing: BTreeSet::new() });
        current.failing.insert(reader);
        self.failing.store(true, Ordering::Relaxed);
        begins
    }

    /// The length of the outage, if it ends here because no reader fails any more.
    fn note_success(&self, reader: Reader, now: Monotonic) -> Option<Duration> {
        if !self.failing.load(Ordering::Relaxed) {
            return None;
        }
        let mut outage = self.outage();
        outage.as_mut()?.failing.remove(&reader);
        let over = outage.take_if(|outage| outage.failing.is_empty())?;
        self.failing.store(false, Ordering::Relaxed);
        Some(now.since(over.since))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ephor_core::ids::Incarnation;

    fn health() -> HubHealth {
        let group = GroupId {
            namespace: "localhost".parse().unwrap(),
            hub: "homes".parse().unwrap(),
            group: "$Default".parse().unwrap(),
        };
        HubHealth::new(group, HostId { name: "host".parse().unwrap(), incarnation: Incarnation(1) })
    }

    const PARTITION: Reader = Some(PartitionId(0));
    const OTHER: Reader = Some(PartitionId(1));

    fn at(seconds: u64) -> Monotonic {
        Monotonic(seconds * 1_000_000_000)
    }

    #[test]
    fn an_outage_begins_with_the_first_who_fails_and_ends_with_the_last_who_reads() {
        let health = health();
        assert!(health.note_failure(PARTITION, at(1)));
        assert!(!health.note_failure(OTHER, at(2)));
        assert!(!health.note_failure(PARTITION, at(3)));
        assert_eq!(health.note_success(OTHER, at(4)), None, "one still fails");
        assert_eq!(health.note_success(PARTITION, at(5)), Some(Duration::from_secs(4)));
        assert_eq!(health.note_success(PARTITION, at(6)), None, "it is told once");
        assert!(health.note_failure(PARTITION, at(7)), "the next one is another");
    }

    #[test]
    fn a_partition_that_is_given_up_neither_ends_an_outage_nor_keeps_it_going() {
        let health = health();
        health.note_failure(PARTITION, at(1));
        health.forget(PARTITION);
        assert!(!health.note_failure(None, at(2)), "nobody has read since");
        assert_eq!(health.note_success(None, at(9)), Some(Duration::from_secs(8)));
    }
}
