//! A consolidated state in a lock: the task that follows the results updates it, and the page reads it.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::consolidate::Consolidation;
use crate::reading::Reading;

/// The same state in several hands.
#[derive(Debug, Default)]
pub(super) struct LockedState<C>(Arc<Mutex<C>>);

impl<C> LockedState<C> {
    /// Locks the state for reading. The follower waits meanwhile.
    pub(super) fn look(&self) -> MutexGuard<'_, C> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<C> Clone for LockedState<C> {
    fn clone(&self) -> Self {
        Self(self.0.clone())
    }
}

impl<C: Serialize> Serialize for LockedState<C> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.look().serialize(serializer)
    }
}

impl<'de, C: Deserialize<'de>> Deserialize<'de> for LockedState<C> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        Ok(Self(Arc::new(Mutex::new(C::deserialize(deserializer)?))))
    }
}

impl<C: Consolidation> Consolidation for LockedState<C> {
    type Update = C::Update;

    fn fold(&mut self, sequence: u64, reading: &Reading) {
        self.look().fold(sequence, reading);
    }

    fn skip(&mut self, sequence: u64) {
        self.look().skip(sequence);
    }

    fn take_update(&mut self) -> Option<Self::Update> {
        self.look().take_update()
    }

    fn apply(&mut self, update: Self::Update) {
        self.look().apply(update);
    }

    fn last(&self) -> Option<u64> {
        self.look().last()
    }
}
