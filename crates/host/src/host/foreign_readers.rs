//! Foreign readers: receivers outside the fleet that took a partition, and the host's reaction.
//!
//! A foreign reader chose its name and its epoch itself, so neither is trusted. A host claims above
//! its epoch, at most a few times. It does not go above [`Epoch::MAX_FOREIGN`]: a partition with
//! the highest possible epoch could never change its owner again. The host then retries with epochs
//! of its own, until that reader is gone.

use ephor_core::epoch::Epoch;
use ephor_core::ids::PartitionId;

use crate::error::HostError;

/// A foreign reader, as the hub reported it.
#[derive(Clone, Debug)]
pub(super) struct Foreign {
    pub(super) epoch: Epoch,
    pub(super) by: Option<String>,
    /// The number of times in a row that it had the partition.
    pub(super) attempts: u32,
    pub(super) reported: bool,
}

impl Foreign {
    /// The epoch above which to claim because of this reader.
    pub(super) fn above(&self) -> Epoch {
        if self.epoch <= Epoch::MAX_FOREIGN { self.epoch } else { Epoch::NONE }
    }

    /// True if a claim above `known`, the highest epoch of the fleet, is not enough, either.
    pub(super) fn is_beyond_reach(&self, known: Epoch) -> bool {
        self.epoch > known.max(Epoch::MAX_FOREIGN)
    }

    /// The error to report.
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
