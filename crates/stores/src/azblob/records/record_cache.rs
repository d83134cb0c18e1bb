//! Caches the records that one store has read or written, by group and partition.
//!
//! A record that this process wrote stays valid until its next write. While a write is in flight, and after
//! a write whose answer was lost, the cache has no value, and it accepts no value that was read meanwhile.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ephor_core::ids::PartitionId;

use crate::azblob::layout::blob_names::Names;
use crate::azblob::session::locked;

/// The cached records, by group and partition.
pub(in crate::azblob) struct RecordCache<V>(Mutex<BTreeMap<(Names, PartitionId), Slot<V>>>);

struct Slot<V> {
    value: Option<V>,
    /// Increases with every change of the slot.
    changes: u64,
    /// The number of writes whose outcome is unknown.
    unknown_writes: u32,
}

/// The version of a slot before a read: see [`RecordCache::put_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::azblob) struct SlotVersion(u64);

impl<V> Default for RecordCache<V> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<V: Clone> RecordCache<V> {
    fn change<T>(&self, names: &Names, partition: PartitionId, change: impl FnOnce(&mut Slot<V>) -> T) -> T {
        let mut slots = locked(&self.0);
        let fresh = Slot { value: None, changes: 0, unknown_writes: 0 };
        let slot = slots.entry((names.clone(), partition)).or_insert(fresh);
        slot.changes += 1;
        change(slot)
    }

    pub(in crate::azblob) fn get(&self, names: &Names, partition: PartitionId) -> Option<V> {
        locked(&self.0).get(&(names.clone(), partition))?.value.clone()
    }

    /// Stores the record of a successful write. It makes the conditions of all writes in flight fail.
    pub(in crate::azblob) fn put(&self, names: &Names, partition: PartitionId, value: V) {
        self.change(names, partition, |slot| (slot.value, slot.unknown_writes) = (Some(value), 0));
    }

    /// Drops the record, after a write was refused or because it is outdated.
    pub(in crate::azblob) fn forget(&self, names: &Names, partition: PartitionId) {
        self.change(names, partition, |slot| {
            (slot.value, slot.unknown_writes) = (None, slot.unknown_writes.saturating_sub(1));
        });
    }

    /// Drops the record before a write is sent, until its answer arrives.
    pub(in crate::azblob) fn begin_write(&self, names: &Names, partition: PartitionId) {
        self.change(names, partition, |slot| {
            (slot.value, slot.unknown_writes) = (None, slot.unknown_writes + 1)
        });
    }

    /// Drops records that fail `keep`. Slots with a write in flight are not changed.
    pub(in crate::azblob) fn retain(&self, names: &Names, mut keep: impl FnMut(PartitionId, &V) -> bool) {
        for ((of, partition), slot) in locked(&self.0).iter_mut() {
            if of == names && slot.value.as_ref().is_some_and(|value| !keep(*partition, value)) {
                slot.value = None;
                slot.changes += 1;
            }
        }
    }

    /// The version of a slot. Take it before a record is read.
    pub(in crate::azblob) fn version(&self, names: &Names, partition: PartitionId) -> SlotVersion {
        SlotVersion(locked(&self.0).get(&(names.clone(), partition)).map_or(0, |slot| slot.changes))
    }

    /// Stores a record that was read, if the slot has not changed since and no write is in flight.
    pub(in crate::azblob) fn put_read(
        &self,
        names: &Names,
        partition: PartitionId,
        since: SlotVersion,
        value: V,
    ) {
        if self.version(names, partition) != since {
            return;
        }
        self.change(names, partition, |slot| {
            if slot.unknown_writes == 0 && SlotVersion(slot.changes - 1) == since {
                slot.value = Some(value);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::ids::GroupId;

    use super::*;
    use crate::azblob::layout::blob_names::Case;

    const P: PartitionId = PartitionId(1);

    fn names() -> Names {
        let group = GroupId {
            namespace: "ns".parse().unwrap(),
            hub: "h".parse().unwrap(),
            group: "g".parse().unwrap(),
        };
        Names::of("", &group, Case::Lower).unwrap()
    }

    #[test]
    fn what_was_read_before_a_write_is_not_known_after_it() {
        let (cache, names) = (RecordCache::default(), names());
        let before = cache.version(&names, P);
        cache.put_read(&names, P, before, 1);
        assert_eq!(cache.get(&names, P), Some(1));
        let before = cache.version(&names, P);
        cache.put(&names, P, 2);
        cache.put_read(&names, P, before, 1);
        assert_eq!(cache.get(&names, P), Some(2));
        let before = cache.version(&names, P);
        cache.retain(&names, |_, value| *value != 2);
        cache.put_read(&names, P, before, 1);
        assert_eq!(cache.get(&names, P), None);
    }

    #[test]
    fn nothing_that_is_read_ends_a_doubt() {
        let (cache, names) = (RecordCache::default(), names());
        cache.put(&names, P, 1);
        cache.begin_write(&names, P);
        assert_eq!(cache.get(&names, P), None);
        cache.put_read(&names, P, cache.version(&names, P), 1);
        assert_eq!(cache.get(&names, P), None);
        cache.put(&names, P, 2);
        assert_eq!(cache.get(&names, P), Some(2));
        // Two writes are in flight and one is refused: the other may still succeed.
        cache.begin_write(&names, P);
        cache.begin_write(&names, P);
        cache.forget(&names, P);
        cache.put_read(&names, P, cache.version(&names, P), 3);
        assert_eq!(cache.get(&names, P), None);
        cache.forget(&names, P);
        cache.put_read(&names, P, cache.version(&names, P), 3);
        assert_eq!(cache.get(&names, P), Some(3));
    }
}
