//! Parses the names of lease blobs that the legacy Event Processor Host wrote, and advises if there are
//! none.

use ephor_core::ids::{ConsumerGroup, PartitionId};

use crate::azblob::layout::blob_names::group_of;

/// How well a blob's name matches the prefix; the best match comes first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Fit {
    /// The group follows the prefix.
    Exact,
    /// The group follows the prefix with a slash added or removed.
    Slash,
    /// There is no group in the name.
    NoGroup,
}

/// The group and the partition of a blob. The prefix may lack its last slash, or have one too many.
pub(super) fn place(prefix: &str, name: &str) -> Option<(Option<ConsumerGroup>, PartitionId, Fit)> {
    let Some((folder, last)) = name.rsplit_once('/') else {
        return Some((None, name.parse().ok()?, Fit::NoGroup));
    };
    let partition = last.parse().ok()?;
    let group_after = |prefix: &str| folder.strip_prefix(prefix)?.parse::<ConsumerGroup>().ok();
    if let Some(group) = group_after(prefix) {
        return Some((Some(group), partition, Fit::Exact));
    }
    let other = match prefix.strip_suffix('/') {
        Some(without) => without.to_owned(),
        None if prefix.is_empty() => return None,
        None => format!("{prefix}/"),
    };
    Some((Some(group_after(&other)?), partition, Fit::Slash))
}

/// The advice if there is no lease of an old host, by the names that are there.
pub(super) fn instead(names: &[&str]) -> String {
    let is_lease =
        |name: &str| name.rsplit_once('/').is_some_and(|(_, last)| last.parse::<PartitionId>().is_ok());
    let advice = if names.iter().any(|name| group_of("", name).is_some()) {
        "The blobs here are those of the present SDKs or of Ephor: try without layout=eph, or with another prefix".to_owned()
    } else if let Some(name) = names.iter().find(|name| is_lease(name)) {
        format!(
            "There are others, such as {name}: the part before the consumer group is the prefix; add it after the \
             container's name"
        )
    } else {
        "Check the name of the container".to_owned()
    };
    format!("there is no lease of an old Event Processor Host here. {advice}")
}

/// The group's name as hubs write it: the JavaScript host wrote `$default`, Python none.
pub(super) fn plain(group: Option<ConsumerGroup>) -> ConsumerGroup {
    let default = ConsumerGroup::default_group();
    group.filter(|group| !group.as_str().eq_ignore_ascii_case(default.as_str())).unwrap_or(default)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_blob_is_found_whatever_is_before_its_group() {
        let named =
            |group: &str, partition, fit| Some((Some(group.parse().unwrap()), PartitionId(partition), fit));
        assert_eq!(place("", "$Default/3"), named("$Default", 3, Fit::Exact));
        assert_eq!(place("blue", "blue$default/12"), named("$default", 12, Fit::Exact));
        assert_eq!(place("blue", "blue/$default/12"), named("$default", 12, Fit::Slash));
        assert_eq!(place("blue/", "blue/alarms/0"), named("alarms", 0, Fit::Exact));
        assert_eq!(place("blue/", "bluealarms/0"), named("alarms", 0, Fit::Slash));
        assert_eq!(place("ns/homes/", "ns/homes/alarms/0"), named("alarms", 0, Fit::Exact));
        assert_eq!(place("", "7"), Some((None, PartitionId(7), Fit::NoGroup)));
        for other in ["eventhub.info", "$Default/x", "a/b/3", "$Default/3/4"] {
            assert_eq!(place("", other), None, "{other}");
        }
        assert_eq!(place("green", "blue$default/12"), None);
    }
}
