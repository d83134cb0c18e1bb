//! A place for each session and each link, and keys that never mean another one.
//!
//! Channels and handles are used again as soon as they are free, by some peers at once. A key has the
//! number of its place and of its tenant, so that an owner who comes late finds nothing instead of the
//! next tenant.

/// Names one session of a connection, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId(Key);

/// Names one link of a connection, for good.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LinkId(Key);

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Key {
    index: u32,
    tenant: u32,
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
    tenant: u32,
    value: Option<T>,
}

/// Values of one kind, each in its place.
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
            self.slots.push(Slot { tenant: 0, value: None });
            self.slots.len() as u32 - 1
        });
        let slot = &mut self.slots[index as usize];
        slot.value = Some(value);
        K::from(Key { index, tenant: slot.tenant })
    }

    #[inline]
    pub(super) fn get(&self, key: impl Into<Key>) -> Option<&T> {
        let key = key.into();
        let slot = self.slots.get(key.index as usize)?;
        slot.value.as_ref().filter(|_| slot.tenant == key.tenant)
    }

    #[inline]
    pub(super) fn get_mut(&mut self, key: impl Into<Key>) -> Option<&mut T> {
        let key = key.into();
        let slot = self.slots.get_mut(key.index as usize)?;
        if slot.tenant == key.tenant { slot.value.as_mut() } else { None }
    }

    pub(super) fn remove(&mut self, key: impl Into<Key>) -> Option<T> {
        let key = key.into();
        self.get_mut(key)?;
        let slot = &mut self.slots[key.index as usize];
        slot.tenant = slot.tenant.wrapping_add(1);
        self.free.push(key.index);
        slot.value.take()
    }

    /// All keys, in the order of their places.
    pub(super) fn keys<K: From<Key>>(&self) -> Vec<K> {
        let key = |(index, slot): (usize, &Slot<T>)| {
            slot.value.is_some().then(|| K::from(Key { index: index as u32, tenant: slot.tenant }))
        };
        self.slots.iter().enumerate().filter_map(key).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_never_means_the_next_tenant() {
        let mut slots = Slots::default();
        let first: LinkId = slots.insert('a');
        assert_eq!(slots.remove(first), Some('a'));
        let second: LinkId = slots.insert('b');
        assert_eq!(slots.get(first), None);
        assert_eq!(slots.remove(first), None);
        assert_eq!((slots.get(second), slots.len()), (Some(&'b'), 1));
    }
}
