//! What is known of records, by their blob's place.
//!
//! What this process writes itself it knows for certain, until it writes again. While a write is under way, and after one
//! whose answer never came, nothing is known; and what was read meanwhile is no use either.

use std::collections::BTreeMap;
use std::sync::Mutex;

use ephor_core::ids::PartitionId;

use super::names::Names;
use super::session::locked;

/// Records by their blob's place, as they were last seen.
pub(super) struct Shelf<V>(Mutex<BTreeMap<(Names, PartitionId), Slot<V>>>);

struct Slot<V> {
    value: Option<V>,
    /// Grows with everything that happens to it.
    changes: u64,
    /// So many writes were sent of which nobody knows what became.
    doubts: u32,
}

/// Names a moment: see [`Shelf::put_read`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Moment(u64);

impl<V> Default for Shelf<V> {
    fn default() -> Self {
        Self(Mutex::new(BTreeMap::new()))
    }
}

impl<V: Clone> Shelf<V> {
    fn change<T>(&self, names: &Names, partition: PartitionId, change: impl FnOnce(&mut Slot<V>) -> T) -> T {
        let mut slots = locked(&self.0);
        let fresh = Slot { value: None, changes: 0, doubts: 0 };
        let slot = slots.entry((names.clone(), partition)).or_insert(fresh);
        slot.changes += 1;
        change(slot)
    }

    pub(super) fn get(&self, names: &Names, partition: PartitionId) -> Option<V> {
        locked(&self.0).get(&(names.clone(), partition))?.value.clone()
    }

    /// A write was carried out. Every other that is still under way has a condition that this one has broken.
    pub(super) fn put(&self, names: &Names, partition: PartitionId, value: V) {
        self.change(names, partition, |slot| (slot.value, slot.doubts) = (Some(value), 0));
    }

    /// A write was refused, or what was known is old.
    pub(super) fn forget(&self, names: &Names, partition: PartitionId) {
        self.change(names, partition, |slot| {
            (slot.value, slot.doubts) = (None, slot.doubts.saturating_sub(1));
        });
    }

    /// A write is sent: until its answer is here, nothing is known.
    pub(super) fn doubt(&self, names: &Names, partition: PartitionId) {
        self.change(names, partition, |slot| (slot.value, slot.doubts) = (None, slot.doubts + 1));
    }

    /// Forgets what does not please, for it may be old. What is in doubt stays so.
    pub(super) fn retain(&self, names: &Names, mut pleases: impl FnMut(PartitionId, &V) -> bool) {
        for ((of, partition), slot) in locked(&self.0).iter_mut() {
            if of == names && slot.value.as_ref().is_some_and(|value| !pleases(*partition, value)) {
                slot.value = None;
                slot.changes += 1;
            }
        }
    }

    /// Before a record is read.
    pub(super) fn moment(&self, names: &Names, partition: PartitionId) -> Moment {
        Moment(locked(&self.0).get(&(names.clone(), partition)).map_or(0, |slot| slot.changes))
    }

    /// A record was read: that counts, if nothing has happened since that moment and no write is in doubt.
    pub(super) fn put_read(&self, names: &Names, partition: PartitionId, since: Moment, value: V) {
        if self.moment(names, partition) != since {
            return;
        }
        self.change(names, partition, |slot| {
            if slot.doubts == 0 && Moment(slot.changes - 1) == since {
                slot.value = Some(value);
            }
        });
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::ids::GroupId;

    use super::super::names::Case;
    use super::*;

    const P: PartitionId = PartitionId(1);

    fn names() -> Names {
        let group = GroupId {
            namespace: "ns".parse().unwrap(),
            hub: "h".parse().unwrap(),
            group: "g".parse().unwrap(),
        };
        Names::of("", &group, Case::Small).unwrap()
    }

    #[test]
    fn what_was_read_before_a_write_is_not_known_after_it() {
        let (shelf, names) = (Shelf::default(), names());
        let before = shelf.moment(&names, P);
        shelf.put_read(&names, P, before, 1);
        assert_eq!(shelf.get(&names, P), Some(1));
        let before = shelf.moment(&names, P);
        shelf.put(&names, P, 2);
        shelf.put_read(&names, P, before, 1);
        assert_eq!(shelf.get(&names, P), Some(2));
        let before = shelf.moment(&names, P);
        shelf.retain(&names, |_, value| *value != 2);
        shelf.put_read(&names, P, before, 1);
        assert_eq!(shelf.get(&names, P), None);
    }

    #[test]
    fn nothing_that_is_read_ends_a_doubt() {
        let (shelf, names) = (Shelf::default(), names());
        shelf.put(&names, P, 1);
        shelf.doubt(&names, P);
        assert_eq!(shelf.get(&names, P), None);
        shelf.put_read(&names, P, shelf.moment(&names, P), 1);
        assert_eq!(shelf.get(&names, P), None);
        shelf.put(&names, P, 2);
        assert_eq!(shelf.get(&names, P), Some(2));
        // Two are under way, and one is refused: the other may still come through.
        shelf.doubt(&names, P);
        shelf.doubt(&names, P);
        shelf.forget(&names, P);
        shelf.put_read(&names, P, shelf.moment(&names, P), 3);
        assert_eq!(shelf.get(&names, P), None);
        shelf.forget(&names, P);
        shelf.put_read(&names, P, shelf.moment(&names, P), 3);
        assert_eq!(shelf.get(&names, P), Some(3));
    }
}
