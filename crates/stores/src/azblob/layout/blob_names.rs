//! Makes and parses the names of the blobs of a group.
//!
//! ```text
//!   [PREFIX/]NAMESPACE/HUB/GROUP/ownership/PARTITION      owner: shared with the other SDKs
//!                              /checkpoint/PARTITION      position: shared with the other SDKs
//!                              /ephor/group               the three names in their original case
//!                              /ephor/founding            the partitions when the group was created
//!                              /ephor/epoch/PARTITION     the highest epoch ever taken
//!                              /ephor/history/PARTITION   the last changes of owner
//!                              /ephor/hosts/SHA-256       a host's record, and its desired state
//!                              /ephor/renewals/SHA-256/N  a host's renewal batch, for the partitions from 256 N on
//! ```
//!
//! The SDKs for .NET, JavaScript and Python write the three names in lower case, and so does Ephor. The
//! SDKs for Java, Go and Rust keep the case: [`Case::AsGiven`] is for groups with those.

use ephor_core::ids::{ConsumerGroup, GroupId, HostId, HubName, Namespace, PartitionId};
use sha2::{Digest, Sha256};

use crate::azblob::renewal::batch::batch_number;

/// The case of a group's names in the names of blobs. A URL writes `case=lower` or `case=as-given`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Case {
    /// Lower case, as .NET, JavaScript and Python write them (`small` in a URL).
    #[default]
    Lower,
    /// As given, as Java, Go and Rust write them.
    AsGiven,
}

/// The service's limit for the length of a name.
const MAX_NAME_LENGTH: usize = 1_024;

/// The number of digits of the largest batch number.
const MAX_BATCH_DIGITS: usize = 10;

/// The names of one group's blobs.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(in crate::azblob) struct Names {
    base: String,
}

/// The kinds of blobs of a group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::azblob) enum Kind {
    Ownership(PartitionId),
    Checkpoint(PartitionId),
    Epoch(PartitionId),
    History(PartitionId),
    Host,
    /// A renewal batch, with its number.
    RenewalBatch(u32),
    Origin,
    Group,
}

impl Names {
    /// The names of a group; none if they are too long for the service.
    pub(in crate::azblob) fn of(prefix: &str, group: &GroupId, case: Case) -> Option<Self> {
        let joined = format!("{}/{}/{}", group.namespace, group.hub, group.group);
        let joined = match case {
            Case::Lower => joined.to_lowercase(),
            Case::AsGiven => joined,
        };
        let base = if prefix.is_empty() { joined } else { format!("{prefix}/{joined}") };
        let names = Self { base };
        (names.batches_named(&"0".repeat(64)).len() + MAX_BATCH_DIGITS <= MAX_NAME_LENGTH).then_some(names)
    }

    /// The prefix of all names of the group.
    pub(in crate::azblob) fn all(&self) -> String {
        format!("{}/", self.base)
    }

    pub(in crate::azblob) fn ownership(&self, partition: PartitionId) -> String {
        format!("{}/ownership/{partition}", self.base)
    }

    pub(in crate::azblob) fn checkpoints(&self) -> String {
        format!("{}/checkpoint/", self.base)
    }

    pub(in crate::azblob) fn checkpoint(&self, partition: PartitionId) -> String {
        format!("{}{partition}", self.checkpoints())
    }

    pub(in crate::azblob) fn epoch(&self, partition: PartitionId) -> String {
        format!("{}/ephor/epoch/{partition}", self.base)
    }

    pub(in crate::azblob) fn histories(&self) -> String {
        format!("{}/ephor/history/", self.base)
    }

    pub(in crate::azblob) fn history(&self, partition: PartitionId) -> String {
        format!("{}{partition}", self.histories())
    }

    /// The name contains a digest, because a host's id may contain characters that a name cannot. The
    /// record has the id.
    pub(in crate::azblob) fn host(&self, id: &HostId) -> String {
        format!("{}/ephor/hosts/{}", self.base, digest(id))
    }

    /// The batch in which a host renews the lease of a partition.
    pub(in crate::azblob) fn batch(&self, host: &HostId, partition: PartitionId) -> String {
        self.batch_named(host, batch_number(partition))
    }

    pub(in crate::azblob) fn batch_named(&self, host: &HostId, batch_number: u32) -> String {
        format!("{}{batch_number}", self.batches(host))
    }

    /// The prefix of the names of a host's batches.
    pub(in crate::azblob) fn batches(&self, host: &HostId) -> String {
        self.batches_named(&digest(host))
    }

    /// The name of the record of the host that owns this batch.
    pub(in crate::azblob) fn host_of_batch(&self, name: &str) -> Option<String> {
        let (host, _batch_number) =
            name.strip_prefix(&self.base)?.strip_prefix("/ephor/renewals/")?.split_once('/')?;
        Some(format!("{}/ephor/hosts/{host}", self.base))
    }

    fn batches_named(&self, host: &str) -> String {
        format!("{}/ephor/renewals/{host}/", self.base)
    }

    pub(in crate::azblob) fn origin(&self) -> String {
        format!("{}/ephor/founding", self.base)
    }

    pub(in crate::azblob) fn group(&self) -> String {
        format!("{}/ephor/group", self.base)
    }

    /// The kind of a blob, if it belongs to the group.
    pub(in crate::azblob) fn kind(&self, name: &str) -> Option<Kind> {
        kind(name.strip_prefix(&self.base)?.strip_prefix('/')?)
    }
}

fn digest(id: &HostId) -> String {
    Sha256::digest(id.to_string()).iter().map(|byte| format!("{byte:02x}")).collect()
}

/// The kind of a blob by its name after that of the group. A hub's name may contain slashes, so names of
/// another group can have the same prefix: only the exact forms count.
fn kind(rest: &str) -> Option<Kind> {
    let parts: Vec<&str> = rest.split('/').collect();
    let partition = |text: &str| text.parse().ok();
    match parts[..] {
        ["ownership", text] => partition(text).map(Kind::Ownership),
        ["checkpoint", text] => partition(text).map(Kind::Checkpoint),
        ["ephor", "epoch", text] => partition(text).map(Kind::Epoch),
        ["ephor", "history", text] => partition(text).map(Kind::History),
        ["ephor", "hosts", text] if text.len() == 64 => Some(Kind::Host),
        ["ephor", "renewals", text, batch_number] if text.len() == 64 => {
            batch_number.parse().ok().map(Kind::RenewalBatch)
        }
        ["ephor", "founding"] => Some(Kind::Origin),
        ["ephor", "group"] => Some(Kind::Group),
        _ => None,
    }
}

/// The group of an ownership or checkpoint blob, by its name. This finds groups of other SDKs; groups of
/// Ephor have a blob with their names.
pub(in crate::azblob) fn group_of(prefix: &str, name: &str) -> Option<GroupId> {
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

/// Whether a text can be the prefix of all names.
pub(in crate::azblob) fn is_prefix(text: &str) -> bool {
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
        let names = Names::of("", &group, Case::Lower).unwrap();
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
        let names = Names::of("p", &group("ns", "a/b", "g"), Case::Lower).unwrap();
        let p = PartitionId(12);
        let id = "ж#0000000000000001".parse().unwrap();
        for (name, expected) in [
            (names.ownership(p), Kind::Ownership(p)),
            (names.checkpoint(p), Kind::Checkpoint(p)),
            (names.epoch(p), Kind::Epoch(p)),
            (names.history(p), Kind::History(p)),
            (names.host(&id), Kind::Host),
            (names.batch(&id, PartitionId(700)), Kind::RenewalBatch(2)),
            (names.origin(), Kind::Origin),
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
        let outer = Names::of("", &group("ns", "a", "b"), Case::Lower).unwrap();
        for (hub, inner) in [
            ("a/b", "ownership"),
            ("a/b", "ephor"),
            ("a/b/ephor", "epoch"),
            ("a/b/ephor", "hosts"),
            ("a/b/ephor", "renewals"),
        ] {
            let inner = Names::of("", &group("ns", hub, inner), Case::Lower).unwrap();
            let p = PartitionId(1);
            let id = "h#0000000000000001".parse().unwrap();
            for name in [
                inner.ownership(p),
                inner.checkpoint(p),
                inner.epoch(p),
                inner.host(&id),
                inner.batch(&id, p),
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
        assert!(Names::of(&"p".repeat(300), &long, Case::Lower).is_some());
        assert!(Names::of(&"p".repeat(500), &long, Case::Lower).is_none());
        for prefix in ["/a", "a/", "a//b", "..", "a/./b"] {
            assert!(!is_prefix(prefix), "{prefix}");
        }
        assert!(is_prefix("blue/green"));
    }
}
