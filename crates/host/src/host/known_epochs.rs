//! Remembers the epochs of each partition: those that this host has served, so that it serves no epoch twice,
//! and the highest that it has seen, so that it claims with a higher one.
//!
//! A store that is restored from an old backup forgets epochs and would issue them again. This memory
//! outlives that.

use std::collections::BTreeMap;

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;

#[derive(Debug, Default)]
pub(super) struct KnownEpochs {
    /// The highest epoch that was served here or given up: none is served twice.
    served: BTreeMap<PartitionId, Epoch>,
    /// The highest epoch that was ever seen. Claims go above it.
    seen: BTreeMap<PartitionId, Epoch>,
}

impl KnownEpochs {
    /// Notes an epoch that the store issued to some host.
    pub(super) fn observe(&mut self, partition: PartitionId, epoch: Epoch) {
        let seen = self.seen.entry(partition).or_default();
        *seen = epoch.max(*seen);
    }

    /// Marks this epoch and all before it as served: they are never served again.
    pub(super) fn mark_served(&mut self, partition: PartitionId, epoch: Epoch) {
        let served = self.served.entry(partition).or_default();
        *served = epoch.max(*served);
    }

    /// True if this epoch or a later one was served.
    pub(super) fn is_served(&self, partition: PartitionId, epoch: Epoch) -> bool {
        self.served.get(&partition).is_some_and(|served| *served >= epoch)
    }

    /// The highest epoch that was ever seen.
    pub(super) fn highest(&self, partition: PartitionId) -> Epoch {
        self.seen.get(&partition).copied().unwrap_or_default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PARTITION: PartitionId = PartitionId(3);

    fn epoch(number: u64) -> Epoch {
        Epoch::from_stored(number)
    }

    #[test]
    fn an_epoch_that_a_restored_store_brings_back_is_not_served_again() {
        let mut book = KnownEpochs::default();
        assert!(!book.is_served(PARTITION, epoch(1)));
        book.mark_served(PARTITION, epoch(7));
        book.mark_served(PARTITION, epoch(4));
        assert!(book.is_served(PARTITION, epoch(7)));
        assert!(book.is_served(PARTITION, epoch(5)), "older than one that was served");
        assert!(!book.is_served(PARTITION, epoch(8)));
        assert!(!book.is_served(PartitionId(4), epoch(1)), "another partition");
    }

    #[test]
    fn the_highest_epoch_outlives_a_store_that_forgot_it() {
        let mut book = KnownEpochs::default();
        assert_eq!(book.highest(PARTITION), Epoch::NONE);
        book.observe(PARTITION, epoch(9));
        book.observe(PARTITION, epoch(2));
        assert_eq!(book.highest(PARTITION), epoch(9));
        assert!(!book.is_served(PARTITION, epoch(2)), "seen is not served");
    }
}
