//! Generational slots for sessions and links, whose keys are never reused; and a table of the channel numbers
//! that peers choose.
//!
//! Channels and handles are reused as soon as they are free, by some peers at once. A key has an index and a
//! generation, so that a late command of the owner finds nothing instead of the next session or
//! link.

use std::collections::BTreeMap;

/// Identifies one session of a connection; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Key);

/// Identifies one link of a connection; never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(Key);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    index: u32,
    generation: u32,
}

impl From<Key> for SessionId {
    fn from(key: Key) -> Self {
        Self(key)
    }
}

impl From<Key> for LinkId {
    fn from(key: Key) -> Self {
        Self(key)
    }
}

impl From<SessionId> for Key {
    fn from(id: SessionId) -> Self {
        id.0
    }
}

impl From<LinkId> for Key {
    fn from(id: LinkId) -> Self {
        id.0
    }
}

struct Slot<T> {
    generation: u32,
    value: Option<T>,
}

/// Values of one kind, by key.
pub(super) struct Slots<T> {
    slots: Vec<Slot<T>>,
    free: Vec<u32>,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self { slots: Vec::new(), free: Vec::new() }
    }
}

impl<T> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.slots.len() - self.free.len()
    }

    pub(super) fn insert<K: From<Key>>(&mut self, value: T) -> K {
        let index = self.free.pop().unwrap_or_else(|| {
            self.slots.push(Slot { generation: 0, value: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        K::from(Key { index, generation: slot.generation })
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &T> {
        self.slots.iter().filter_map(|slot| slot.value.as_ref())
    }

    /// The bytes that the slots take, also those that are free.
    pub(super) fn memory(&self) -> usize {
        self.slots.capacity() * size_of::<Slot<T>>() + self.free.capacity() * size_of::<u32>()
    }

    #[inline]
    pub(super) fn get(&self, key: impl Into<Key>) -> Option<&T> {
        let key = key.into();
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.generation == key.generation)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: impl Into<Key>) -> Option<&mut T> {
        let key = key.into();
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.generation == key.generation { slot.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: impl Into<Key>) -> Option<T> {
        let key = key.into();
        self.get_mut(key)?;
        let slot = &mut self.slots[key.index as usize];
        slot.generation = slot.generation.wrapping_add(1);
        self.free.push(key.index);
        slot.value.take()
    }
}

/// Numbers below this are in a vector. Nearly all peers begin at 0.
const LOW_CHANNELS: u16 = 256;
/// The number of higher channels beyond which ended ones are forgotten.
const MAX_HIGH_CHANNELS: usize = 256;

/// Values by channel number. A high number does not allocate room for all lower ones.
pub(super) struct Table<T> {
    low: Vec<Option<T>>,
    high: BTreeMap<u16, T>,
}

impl<T> Default for Table<T> {
    fn default() -> Self {
        Self { low: Vec::new(), high: BTreeMap::new() }
    }
}

impl<T: Copy> Table<T> {
    #[inline]
    pub(super) fn get(&self, number: u16) -> Option<T> {
        match number < LOW_CHANNELS {
            true => self.low.get(usize::from(number)).copied().flatten(),
            false => self.high.get(&number).copied(),
        }
    }

    pub(super) fn set(&mut self, number: u16, value: T) {
        if number >= LOW_CHANNELS {
            self.high.insert(number, value);
            return;
        }
        let index = usize::from(number);
        if self.low.len() <= index {
            self.low.resize(index + 1, None);
        }
        self.low[index] = Some(value);
    }

    pub(super) fn remove(&mut self, number: u16) {
        self.high.remove(&number);
        if let Some(value) = self.low.get_mut(usize::from(number)) {
            *value = None;
        }
    }

    /// Forgets high numbers whose sessions have ended, once there are many.
    pub(super) fn forget_many(&mut self, is_over: impl Fn(T) -> bool) {
        if self.high.len() > MAX_HIGH_CHANNELS {
            self.high.retain(|_, value| !is_over(*value));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_table_keeps_few_of_the_high_numbers_that_are_over() {
        let mut table = Table::default();
        for number in 0..5_000 {
            table.set(number, 'x');
            table.forget_many(|value| value == 'x');
        }
        table.set(4_999, 'y');
        table.forget_many(|value| value == 'x');
        assert_eq!((table.get(0), table.get(255), table.get(4_999)), (Some('x'), Some('x'), Some('y')));
        assert!(table.high.len() <= MAX_HIGH_CHANNELS && table.low.len() == usize::from(LOW_CHANNELS));
        table.remove(4_999);
        table.remove(0);
        assert_eq!((table.get(0), table.get(4_999)), (None, None));
    }

    #[test]
    fn a_key_never_means_the_next_generation() {
        let mut slots = Slots::default();
        let first: LinkId = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second: LinkId = slots.insert('b');
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!((slots.get(second), slots.len()), (Some(&'b'), 1));
    }
}
