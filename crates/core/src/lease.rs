//! Leases, which say who owns a partition; their tokens; and the requests to claim, transfer and release
//! them. The rules for these are in `record.rs`.
//!
//! ```text
//!            claim                       renew
//!   (nobody) ──────────► owned, epoch e ◄──────┐
//!       ▲                 │  │  │  └───────────┘
//!       │ release, seek   │  │  └─ expired or unresponsive ─ claim ─► owned by another, epoch > e
//!       └─────────────────┘  └──── transfer ───────────────────────► owned by the asker, epoch > e
//! ```

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::epoch::Epoch;
use crate::ids::{HostId, PartitionId};
use crate::time::Timestamp;

/// The proof of ownership that every write of a lease or a checkpoint presents.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LeaseToken {
    /// The partition.
    pub partition: PartitionId,
    /// The host that holds the lease.
    pub owner: HostId,
    /// The epoch of the lease.
    pub epoch: Epoch,
}

/// Identifies one state of a lease record, so that a claim can name the state that it saw. It
/// changes with every write, renewals included.
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

/// A lease as a view shows it, with ages that the store computed by its own clock.
#[derive(Clone, Debug, PartialEq, Eq)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
pub struct Lease {
    /// The partition.
    pub partition: PartitionId,
    /// The owner, if there is one.
    pub owner: Option<HostId>,
    /// The epoch of the last change of owner.
    pub epoch: Epoch,
    /// The time that a renewal lasts. `None` if the owner wrote none (another SDK).
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::duration_setting::option::millis"))]
    pub duration: Option<Duration>,
    /// The time of the last change of owner, by the store's clock.
    pub acquired_at: Timestamp,
    /// The time since the record was last written, by a renewal or by a change of owner.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::duration_setting::millis"))]
    pub age: Duration,
    /// True if `age` is known. After a restart of the store it is not; `age` is then zero, so that
    /// the owner does not count as expired until a host has watched the record for long enough.
    pub age_known: bool,
    /// The state of the record.
    pub version: LeaseVersion,
    /// The owner from which the lease was taken by a takeover or a seek, not by a handover. It may
    /// take the lease back without waiting. `None`, too, if a host before it may be at work for
    /// longer.
    pub previous_owner: Option<HostId>,
    /// The time for which a host that lost the lease may still be at work without knowing it.
    #[cfg_attr(feature = "serde", serde(serialize_with = "crate::duration_setting::millis"))]
    pub takeover_delay: Duration,
    /// The successor that the last owner named when it released the lease.
    pub successor: Option<HostId>,
}

impl Lease {
    /// The token of the owner.
    pub fn token(&self) -> Option<LeaseToken> {
        let owner = self.owner.clone()?;
        Some(LeaseToken { partition: self.partition, owner, epoch: self.epoch })
    }
}

/// The reason for a claim.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum ClaimCause {
    /// Nobody owns it.
    Unowned,
    /// Its owner has stopped renewing.
    Expired,
    /// Its owner renews, but does not answer a request to hand over, or does not do as it answered.
    /// Stored as `silent`.
    Unresponsive,
    /// It is our own, and a foreign reader came with a newer epoch. The claim takes one above it.
    /// Stored as `foreign`.
    #[cfg_attr(feature = "serde", serde(rename = "foreign"))]
    AboveForeignReader,
}

/// A claim: takes this partition, if its lease is still in the state that was seen.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClaimRequest {
    /// The partition.
    pub partition: PartitionId,
    /// The host that claims.
    pub host: HostId,
    /// The time that its renewals will last.
    pub duration: Duration,
    /// The state of the record that was seen; `None` if there was no record.
    pub seen: Option<LeaseVersion>,
    /// The new epoch must be higher than this one, and higher than any before.
    pub above: Epoch,
    /// The reason for the claim.
    pub cause: ClaimCause,
}

/// The reason for a release.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize), serde(rename_all = "snake_case"))]
pub enum ReleaseCause {
    /// The host stops.
    Shutdown,
    /// The processor failed, and its policy is to close.
    ProcessorFailed,
    /// The hub could not be read.
    SourceFailed,
    /// A claim was carried out after its host had given up waiting for it, and nobody serves the
    /// partition.
    Unserved,
}

/// A release: gives a lease back.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ReleaseRequest {
    /// Proof of ownership.
    pub token: LeaseToken,
    /// The reason for the release.
    pub cause: ReleaseCause,
    /// The successor, if one is to be named. It is written in the lease, so that the plans of all
    /// hosts agree, and a store that can wake hosts wakes it.
    pub successor: Option<HostId>,
    /// True if all finished events are also saved.
    pub checkpoint_saved: bool,
}

/// A handover of a lease to another host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TransferRequest {
    /// Proof of ownership.
    pub token: LeaseToken,
    /// The new owner.
    pub to: HostId,
    /// The time that the new owner's renewals last.
    pub duration: Duration,
    /// True if all finished events are also saved.
    pub checkpoint_saved: bool,
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
            previous_owner: None,
            takeover_delay: Duration::ZERO,
            successor: None,
        };
        let token = LeaseToken { partition: PartitionId(2), owner, epoch: Epoch::FIRST };
        assert_eq!(lease.token(), Some(token));
        lease.owner = None;
        assert_eq!(lease.token(), None);
    }
}
