//! The names of the blobs of a group.
//!
//! ```text
//!   [PREFIX/]NAMESPACE/HUB/GROUP/ownership/PARTITION      who owns it: ours, and every other SDK's
//!                              /checkpoint/PARTITION      how far it is: ours, and every other SDK's
//!                              /ephor/group               the three names as they were given
//!                              /ephor/founding            how the group began
//!                              /ephor/epoch/PARTITION     the highest epoch ever taken
//!                              /ephor/history/PARTITION   the last changes of owner
//!                              /ephor/hosts/SHA-256       a host's record, and what is wanted of it
//!                              /ephor/renewals/SHA-256/N  the leases that a host renews, of the partitions from 256 N on
//! ```
//!
//! The SDKs for .NET, JavaScript and Python write the three names in small letters, and so do we. Those for Java,
//! Go and Rust keep the case: [`Case::AsGiven`] is for fleets with these.

use ephor_core::ids::{ConsumerGroup, GroupId, HostId, HubName, Namespace, PartitionId};
use sha2::{Digest, Sha256};

use super::roll::bucket;

/// How the names of a group are written in the names of blobs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Case {
    /// In small letters, as .NET, JavaScript and Python do.
    #[default]
    Small,
    /// As they are given, as Java, Go and Rust do.
    AsGiven,
}

/// The longest name that the service takes.
const LONGEST: usize = 1_024;

/// As many digits as a bucket's number has.
const LONGEST_NUMBER: usize = 10;

/// The names of one group's blobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Names {
    base: String,
}

/// What a blob of a group is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Ownership(PartitionId),
    Checkpoint(PartitionId),
    Epoch(PartitionId),
    History(PartitionId),
    Host,
    /// With the number of its bucket.
    Roll(u32),
    Founding,
    Group,
}

impl Names {
    /// The names of a group; none if they would be too long for the service.
    pub(super) fn of(prefix: &str, group: &GroupId, case: Case) -> Option<Self> {
        let joined = format!("{}/{}/{}", group.namespace, group.hub, group.group);
        let joined = match case {
            Case::Small => joined.to_lowercase(),
            Case::AsGiven => joined,
        };
        let base = if prefix.is_empty() { joined } else { format!("{prefix}/{joined}") };
        let names = Self { base };
        (names.rolls_named(&"0".repeat(64)).len() + LONGEST_NUMBER <= LONGEST).then_some(names)
    }

    /// What all names of the group begin with.
    pub(super) fn all(&self) -> String {
        format!("{}/", self.base)
    }

    pub(super) fn ownership(&self, partition: PartitionId) -> String {
        format!("{}/ownership/{partition}", self.base)
    }

    pub(super) fn checkpoints(&self) -> String {
        format!("{}/checkpoint/", self.base)
    }

    pub(super) fn checkpoint(&self, partition: PartitionId) -> String {
        format!("{}{partition}", self.checkpoints())
    }

    pub(super) fn epoch(&self, partition: PartitionId) -> String {
        format!("{}/ephor/epoch/{partition}", self.base)
    }

    pub(super) fn histories(&self) -> String {
        format!("{}/ephor/history/", self.base)
    }

    pub(super) fn history(&self, partition: PartitionId) -> String {
        format!("{}{partition}", self.histories())
    }

    /// A host's id may hold what no name can, and be longer: its record says who it is.
    pub(super) fn host(&self, id: &HostId) -> String {
        format!("{}/ephor/hosts/{}", self.base, digest(id))
    }

    /// Where a host renews the lease of a partition.
    pub(super) fn roll(&self, host: &HostId, partition: PartitionId) -> String {
        self.roll_named(host, bucket(partition))
    }

    pub(super) fn roll_named(&self, host: &HostId, bucket: u32) -> String {
        format!("{}{bucket}", self.rolls(host))
    }

    /// What the names of a host's rolls begin with.
    pub(super) fn rolls(&self, host: &HostId) -> String {
        self.rolls_named(&digest(host))
    }

    /// The record of the host whose roll this is.
    pub(super) fn host_of_roll(&self, name: &str) -> Option<String> {
        let (host, _bucket) =
            name.strip_prefix(&self.base)?.strip_prefix("/ephor/renewals/")?.split_once('/')?;
        Some(format!("{}/ephor/hosts/{host}", self.base))
    }

    fn rolls_named(&self, host: &str) -> String {
        format!("{}/ephor/renewals/{host}/", self.base)
    }

    pub(super) fn founding(&self) -> String {
        format!("{}/ephor/founding", self.base)
    }

    pub(super) fn group(&self) -> String {
        format!("{}/ephor/group", self.base)
    }

    /// What this blob is, if it is one of the group.
    pub(super) fn kind(&self, name: &str) -> Option<Kind> {
        kind(name.strip_prefix(&self.base)?.strip_prefix('/')?)
    }
}

fn digest(id: &HostId) -> String {
    Sha256::digest(id.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// What is behind the name of a group. A hub's name may hold slashes, so that the blobs of another group can
/// begin like this: only what is exactly of one of the forms counts.
fn kind(rest: &str) -> Option<Kind> {
    let parts: Vec<&str> = rest.split('/').collect();
    let partition = |text: &str| text.parse().ok();
    match parts[..] {
        ["ownership", text] => partition(text).map(Kind::Ownership),
        ["checkpoint", text] => partition(text).map(Kind::Checkpoint),
        ["ephor", "epoch", text] => partition(text).map(Kind::Epoch),
        ["ephor", "history", text] => partition(text).map(Kind::History),
        ["ephor", "hosts", text] if text.len() == 64 => Some(Kind::Host),
        ["ephor", "renewals", text, bucket] if text.len() == 64 => bucket.parse().ok().map(Kind::Roll),
        ["ephor", "founding"] => Some(Kind::Founding),
        ["ephor", "group"] => Some(Kind::Group),
        _ => None,
    }
}

/// The group that a blob of ownership or checkpoint belongs to, by its name alone: how groups of other SDKs are
/// found. Ours say it themselves.
pub(super) fn group_of(prefix: &str, name: &str) -> Option<GroupId> {
    let rest = if prefix.is_empty() { name } else { name.strip_prefix(prefix)?.strip_prefix('/')? };
    let parts: Vec<&str> = rest.split('/').collect();
    let (front, back) = parts.split_at_checked(parts.len().checked_sub(2)?)?;
    let counts = matches!(back, ["ownership" | "checkpoint", text] if text.parse::<PartitionId>().is_ok());
    let (namespace, hub, group) = match front {
        [namespace, hub @ .., group] if counts && !hub.is_empty() => (namespace, hub.join("/"), group),
        _ => return None,
    };
    Some(GroupId {
        namespace: namespace.parse::<Namespace>().ok()?,
        hub: hub.parse::<HubName>().ok()?,
        group: group.parse::<ConsumerGroup>().ok()?,
    })
}

/// Whether a prefix can stand before all names.
pub(super) fn is_prefix(text: &str) -> bool {
    text.len() <= 300 && !text.split('/').any(|part| part.is_empty() || part == "." || part == "..")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn group(namespace: &str, hub: &str, group: &str) -> GroupId {
        GroupId {
            namespace: namespace.parse().unwrap(),
            hub: hub.parse().unwrap(),
            group: group.parse().unwrap(),
        }
    }

    #[test]
    fn names_are_those_of_the_other_sdks() {
        let group = group("Contoso.servicebus.windows.net", "Homes", "$Default");
        let names = Names::of("", &group, Case::Small).unwrap();
        assert_eq!(
            names.ownership(PartitionId(3)),
            "contoso.servicebus.windows.net/homes/$default/ownership/3"
        );
        assert_eq!(
            names.checkpoint(PartitionId(0)),
            "contoso.servicebus.windows.net/homes/$default/checkpoint/0"
        );
        let kept = Names::of("blue/green", &group, Case::AsGiven).unwrap();
        assert_eq!(
            kept.checkpoint(PartitionId(0)),
            "blue/green/Contoso.servicebus.windows.net/Homes/$Default/checkpoint/0"
        );
    }

    #[test]
    fn every_name_says_what_it_is() {
        let names = Names::of("p", &group("ns", "a/b", "g"), Case::Small).unwrap();
        let p = PartitionId(12);
        let id = "ж#0000000000000001".parse().unwrap();
        for (name, expected) in [
            (names.ownership(p), Kind::Ownership(p)),
            (names.checkpoint(p), Kind::Checkpoint(p)),
            (names.epoch(p), Kind::Epoch(p)),
            (names.history(p), Kind::History(p)),
            (names.host(&id), Kind::Host),
            (names.roll(&id, PartitionId(700)), Kind::Roll(2)),
            (names.founding(), Kind::Founding),
            (names.group(), Kind::Group),
        ] {
            assert_eq!(names.kind(&name), Some(expected), "{name}");
        }
        for other in ["p/ns/a/b/g/ownership/x", "p/ns/a/b/g/ownership/1/2", "p/ns/a/b/gg/ownership/1", "x"] {
            assert_eq!(names.kind(other), None, "{other}");
        }
    }

    /// `a/b` with the group `ownership` begins like `a` with the group `b`.
    #[test]
    fn the_blobs_of_a_group_are_never_taken_for_those_of_another() {
        let outer = Names::of("", &group("ns", "a", "b"), Case::Small).unwrap();
        for (hub, inner) in [
            ("a/b", "ownership"),
            ("a/b", "ephor"),
            ("a/b/ephor", "epoch"),
            ("a/b/ephor", "hosts"),
            ("a/b/ephor", "renewals"),
        ] {
            let inner = Names::of("", &group("ns", hub, inner), Case::Small).unwrap();
            let p = PartitionId(1);
            let id = "h#0000000000000001".parse().unwrap();
            for name in [
                inner.ownership(p),
                inner.checkpoint(p),
                inner.epoch(p),
                inner.host(&id),
                inner.roll(&id, p),
                inner.group(),
            ] {
                assert!(name.starts_with(&outer.all()), "{name}");
                assert_eq!(outer.kind(&name), None, "{name}");
            }
        }
    }

    #[test]
    fn a_name_tells_the_group_that_another_sdk_wrote() {
        let found = group_of("", "ns/a/b/$default/ownership/3");
        assert_eq!(found, Some(group("ns", "a/b", "$default")));
        assert_eq!(group_of("p", "p/ns/h/g/checkpoint/3"), Some(group("ns", "h", "g")));
        for other in ["ns/h/ownership/3", "ns/h/g/ownership/x", "ns/h/g/ephor/group", "3", ""] {
            assert_eq!(group_of("", other), None, "{other}");
        }
    }

    #[test]
    fn what_is_too_long_is_refused() {
        let long = group(&"n".repeat(260), &"h".repeat(256), &"g".repeat(50));
        assert!(Names::of(&"p".repeat(300), &long, Case::Small).is_some());
        assert!(Names::of(&"p".repeat(500), &long, Case::Small).is_none());
        for prefix in ["/a", "a/", "a//b", "..", "a/./b"] {
            assert!(!is_prefix(prefix), "{prefix}");
        }
        assert!(is_prefix("blue/green"));
    }
}
