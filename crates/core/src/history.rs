//! An entry of the ownership history of a partition: one change of owner, with its reason. `record.rs` makes
//! the entries.

use std::fmt;

use crate::epoch::Epoch;
use crate::ids::{HostId, PartitionId};
use crate::lease::{ClaimCause, ReleaseCause};
use crate::time::Timestamp;

/// One change of owner.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct OwnershipChange {
    /// The time of the change, by the store's clock.
    pub at: Timestamp,
    /// The partition.
    pub partition: PartitionId,
    /// The epoch that the change took.
    pub epoch: Epoch,
    /// The owner before.
    pub from: Option<HostId>,
    /// The owner after.
    pub to: Option<HostId>,
    /// The reason.
    pub reason: ChangeReason,
}

/// The reason of a change of owner.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum ChangeReason {
    /// A host claimed it.
    Claimed(ClaimCause),
    /// Its owner handed it over.
    HandedOver,
    /// Its owner released it.
    Released(ReleaseCause),
    /// An operator moved the position. Stored as `sought`.
    #[cfg_attr(feature = "serde", serde(rename = "sought"))]
    Seek {
        /// The operator's name, as given to the seek.
        by: String,
    },
}

impl fmt::Display for ChangeReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claimed(ClaimCause::Unowned) => "nobody owned it",
            Self::Claimed(ClaimCause::Expired) => "its owner stopped renewing",
            Self::Claimed(ClaimCause::Unresponsive) => "its owner did not answer a request to hand over",
            Self::Claimed(ClaimCause::AboveForeignReader) => "a foreign reader came with a newer epoch",
            Self::HandedOver => "handed over",
            Self::Released(ReleaseCause::Shutdown) => "its owner stopped",
            Self::Released(ReleaseCause::ProcessorFailed) => "its processor failed",
            Self::Released(ReleaseCause::SourceFailed) => "the hub could not be read",
            Self::Released(ReleaseCause::Unserved) => "a late claim that nobody served",
            Self::Seek { by } => return write!(f, "sought by {by}"),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_reason_has_words_of_its_own() {
        let reasons = [
            ChangeReason::Claimed(ClaimCause::Unowned),
            ChangeReason::Claimed(ClaimCause::Expired),
            ChangeReason::Claimed(ClaimCause::Unresponsive),
            ChangeReason::Claimed(ClaimCause::AboveForeignReader),
            ChangeReason::HandedOver,
            ChangeReason::Released(ReleaseCause::Shutdown),
            ChangeReason::Released(ReleaseCause::ProcessorFailed),
            ChangeReason::Released(ReleaseCause::SourceFailed),
            ChangeReason::Released(ReleaseCause::Unserved),
            ChangeReason::Seek { by: "ada".into() },
        ];
        let words: std::collections::BTreeSet<String> = reasons.iter().map(ToString::to_string).collect();
        assert_eq!(words.len(), reasons.len());
        assert!(words.contains("sought by ada"));
    }
}
