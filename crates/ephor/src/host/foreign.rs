//! A reader outside the fleet that took a partition, and how a host answers it.
//!
//! It chose its name and its epoch itself, so neither is believed to be reasonable. A host claims above its epoch, a
//! bounded number of times; an epoch beyond [`Epoch::MAX_FOREIGN`] is not followed, because whoever follows it to the
//! highest epoch there is could never change hands again. The host then tries with epochs of its own, until that
//! reader is gone.

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;

use crate::error::HostError;

/// A foreign reader, as the hub told of it.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    pub(super) epoch: Epoch,
    pub(super) by: Option<String>,
    /// How often in a row it had the partition.
    pub(super) attempts: u32,
    pub(super) reported: bool,
}

impl Foreign {
    /// The epoch that a claim goes above on its account.
    pub(super) fn above(&self) -> Epoch {
        if self.epoch <= Epoch::MAX_FOREIGN { self.epoch } else { Epoch::NONE }
    }

    /// Whether a claim above `known`, the highest epoch of the fleet's own, does not get past it either.
    pub(super) fn is_beyond_reach(&self, known: Epoch) -> bool {
        self.epoch > known.max(Epoch::MAX_FOREIGN)
    }

    /// What there is to report.
    pub(super) fn error(&self, partition: PartitionId, known: Epoch) -> HostError {
        let (by, epoch, attempt) = (self.by.clone(), self.epoch, self.attempts);
        if self.is_beyond_reach(known) {
            HostError::ForeignReaderBeyondReach { partition, by, epoch, attempt }
        } else {
            HostError::ForeignReader { partition, by, epoch, attempt }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reader(epoch: u64) -> Foreign {
        Foreign { epoch: Epoch::from_stored(epoch), by: None, attempts: 1, reported: false }
    }

    #[test]
    fn an_epoch_is_followed_up_to_the_limit_and_none_beyond_it() {
        for followed in [0, 7, 1 << 62] {
            assert_eq!(reader(followed).above().get(), followed);
            assert!(!reader(followed).is_beyond_reach(Epoch::NONE));
        }
        for extreme in [(1 << 62) + 1, i64::MAX as u64 - 1, i64::MAX as u64, u64::MAX] {
            assert_eq!(reader(extreme).above(), Epoch::NONE);
            assert!(reader(extreme).is_beyond_reach(Epoch::from_stored(extreme - 1)));
            assert!(
                !reader(extreme).is_beyond_reach(Epoch::from_stored(extreme)),
                "the next one is above it"
            );
        }
    }
}
