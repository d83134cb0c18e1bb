//! Who owns a partition: the life of a lease.
//!
//! ```text
//!            claim                       renew
//!   (nobody) ──────────► owned, epoch e ◄──────┐
//!       ▲                 │  │  │  └───────────┘
//!       │ release, seek   │  │  └─ expired or silent ─ claim ─► owned by another, epoch > e
//!       └─────────────────┘  └──── transfer ──────────────────► owned by the asker, epoch > e
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::epoch::Epoch;
use crate::ids::{HostId, PartitionId};
use crate::time::Timestamp;

/// Proof of ownership: every write of a lease or a checkpoint presents one.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// The partition.
    pub partition: PartitionId,
    /// The host that holds it.
    pub owner: HostId,
    /// The epoch in which it holds it.
    pub epoch: Epoch,
}

/// Names one state of a lease record, so that a claim can say which it saw.
/// It changes with every write, renewals among them.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseVersion(Version);

#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
enum Version {
    Revision(u64),
    Tag(Arc<str>),
}

impl LeaseVersion {
    /// A version that a store counts.
    pub const fn revision(number: u64) -> Self {
        Self(Version::Revision(number))
    }

    /// A version that a store names, such as an ETag.
    pub fn tag(text: &str) -> Self {
        Self(Version::Tag(Arc::from(text)))
    }

    /// The text given to [`LeaseVersion::tag`].
    pub fn as_tag(&self) -> Option<&str> {
        match &self.0 {
            Version::Tag(text) => Some(text),
            Version::Revision(_) => None,
        }
    }

    /// The number given to [`LeaseVersion::revision`].
    pub fn as_revision(&self) -> Option<u64> {
        match self.0 {
            Version::Revision(number) => Some(number),
            Version::Tag(_) => None,
        }
    }
}

impl fmt::Debug for LeaseVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.0 {
            Version::Revision(number) => write!(f, "v{number}"),
            Version::Tag(text) => write!(f, "v{text:?}"),
        }
    }
}

/// A lease as a view shows it: times already turned into durations by the
/// store's own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Lease {
    /// The partition.
    pub partition: PartitionId,
    /// Who owns it, if anybody does.
    pub owner: Option<HostId>,
    /// The epoch of the last change of owner.
    pub epoch: Epoch,
    /// How long a renewal lasts. None where the owner did not say (another SDK).
    pub duration: Option<Duration>,
    /// When the owner changed last, by the store's clock.
    pub acquired_at: Timestamp,
    /// How long ago the record was last written: by a renewal, or by a change of owner.
    pub age: Duration,
    /// Whether that is so. After a store's restart nobody can tell: the age is then zero, so that nobody is taken
    /// for dead, and only watching tells more.
    pub age_known: bool,
    /// Which state of the record this is.
    pub version: LeaseVersion,
    /// Who owned it before, if the lease was taken away and not given.
    pub previous: Option<HostId>,
    /// How long that previous owner may still be at work without knowing.
    pub quiet: Duration,
    /// Who should have it next, by the word of whoever released it.
    pub heir: Option<HostId>,
}

impl Lease {
    /// The owner's proof, as its own host would hold it.
    pub fn token(&self) -> Option<LeaseToken> {
        let owner = self.owner.clone()?;
        Some(LeaseToken { partition: self.partition, owner, epoch: self.epoch })
    }
}

/// On what ground a host claims.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ClaimCause {
    /// Nobody owns it.
    Unowned,
    /// Its owner has stopped renewing.
    Expired,
    /// Its owner renews, but answers no request to hand over.
    Silent,
    /// It is our own, and a foreign reader came with a newer epoch.
    Foreign,
}

/// A claim: take this partition, if its lease is still as it was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The partition.
    pub partition: PartitionId,
    /// Who claims.
    pub host: HostId,
    /// How long its renewals will last.
    pub duration: Duration,
    /// The state of the record that was seen; none if there was no record.
    pub seen: Option<LeaseVersion>,
    /// The new epoch must be higher than this, besides being higher than any before.
    pub above: Epoch,
    /// On what ground.
    pub cause: ClaimCause,
}

/// Why an owner gives a partition back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ReleaseCause {
    /// The host stops.
    Shutdown,
    /// The processor failed, and the policy says to close.
    ProcessorFailed,
    /// The hub could not be read.
    SourceFailed,
    /// A claim landed after it was given up, and nobody serves it.
    Unserved,
}

/// A release.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// Proof of ownership.
    pub token: LeaseToken,
    /// Why.
    pub cause: ReleaseCause,
    /// Who should have it next. It stands in the lease, so that all plans agree, and a store
    /// that can wake its users wakes that one.
    pub heir: Option<HostId>,
    /// Whether everything that was finished is also saved.
    pub settled: bool,
}

/// A handover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRequest {
    /// Proof of ownership.
    pub token: LeaseToken,
    /// Who gets it.
    pub to: HostId,
    /// How long the new owner's renewals last.
    pub duration: Duration,
    /// Whether everything that was finished is also saved.
    pub settled: bool,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Incarnation;

    #[test]
    fn versions_differ_by_kind_and_value() {
        assert_ne!(LeaseVersion::revision(1), LeaseVersion::tag("1"));
        assert_eq!(LeaseVersion::tag("a").as_tag(), Some("a"));
        assert_eq!(LeaseVersion::revision(3).as_tag(), None);
        assert_eq!(LeaseVersion::revision(3).as_revision(), Some(3));
        assert_eq!(LeaseVersion::tag("a").as_revision(), None);
        assert_eq!(format!("{:?} {:?}", LeaseVersion::revision(3), LeaseVersion::tag("x")), "v3 v\"x\"");
    }

    #[test]
    fn only_an_owned_lease_has_a_token() {
        let owner = HostId { name: "a".parse().unwrap(), incarnation: Incarnation(1) };
        let mut lease = Lease {
            partition: PartitionId(2),
            owner: Some(owner.clone()),
            epoch: Epoch::FIRST,
            duration: None,
            acquired_at: Timestamp(0),
            age: Duration::ZERO,
            age_known: true,
            version: LeaseVersion::revision(1),
            previous: None,
            quiet: Duration::ZERO,
            heir: None,
        };
        let token = LeaseToken { partition: PartitionId(2), owner, epoch: Epoch::FIRST };
        assert_eq!(lease.token(), Some(token));
        lease.owner = None;
        assert_eq!(lease.token(), None);
    }
}
