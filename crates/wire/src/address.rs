//! Parses and writes AMQP addresses: the target of a link, a token or a request.
//!
//! ```text
//! [scheme://host[:port]]/path        the scheme is ignored, because it may be wrong
//! path = $cbs | [hub/]$management | hub | hub/Partitions/n
//!      | hub/ConsumerGroups/group[/Partitions/n]
//! ```
//!
//! A path may begin and end with a slash and may be percent-encoded; its keywords are read in any case. A hub
//! name may contain slashes itself, so a path is parsed from its end. Names keep the case in which they came:
//! compare them with [`same_name`], which ignores case.

use std::fmt;

use ephor_core::ids::{ConsumerGroup, HubName, PartitionId};
use percent_encoding::percent_decode_str;

/// The maximum length of an address, in bytes. A longer one is refused before it is parsed.
pub const MAX_ADDRESS_LENGTH: usize = 2048;

const CBS: &str = "$cbs";
const MANAGEMENT: &str = "$management";
const PARTITIONS: &str = "Partitions";
const CONSUMER_GROUPS: &str = "ConsumerGroups";

/// The entity that an address names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Address {
    /// `$cbs`, the node that tokens are put to.
    Cbs,
    /// `$management`, the node that describes a hub and its partitions.
    Management {
        /// The hub, which most clients name in the request instead.
        hub: Option<HubName>,
    },
    /// A hub: events go to any of its partitions.
    Hub {
        /// The hub.
        hub: HubName,
    },
    /// One partition, to send to.
    Partition {
        /// The hub.
        hub: HubName,
        /// The partition.
        partition: PartitionId,
    },
    /// A consumer group: the audience of some tokens. No link attaches to it.
    Group {
        /// The hub.
        hub: HubName,
        /// The consumer group.
        group: ConsumerGroup,
    },
    /// One partition, to receive from.
    Consumer {
        /// The hub.
        hub: HubName,
        /// The consumer group.
        group: ConsumerGroup,
        /// The partition.
        partition: PartitionId,
    },
}

/// The reason why an address was refused. The address itself is not repeated, because it comes from a peer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidAddress {
    /// It is too long.
    #[error("the address is longer than {MAX_ADDRESS_LENGTH} bytes")]
    TooLong,
    /// It does not decode to text.
    #[error("the address is not percent-encoded UTF-8")]
    Encoding,
    /// No hub is named, or none before the partition.
    #[error("the address names no hub")]
    NoHub,
    /// No hub can have this name.
    #[error("the address names a hub with characters or a length that no hub has")]
    HubName,
    /// No consumer group can have this name.
    #[error("the address names a consumer group with characters or a length that no group has")]
    Group,
    /// No partition can have this id.
    #[error("the address names a partition that is not a decimal number")]
    Partition,
    /// The id of the partition is blank.
    #[error("the address names a partition without its id")]
    NoPartition,
}

impl Address {
    /// Parses an address in any of its forms.
    pub fn parse(text: &str) -> Result<Self, InvalidAddress> {
        let (_, path) = split(text)?;
        Self::parse_path(&path)
    }

    /// Parses a path that is already decoded.
    pub(crate) fn parse_path(path: &str) -> Result<Self, InvalidAddress> {
        if path.eq_ignore_ascii_case(CBS) {
            return Ok(Self::Cbs);
        }
        if path.eq_ignore_ascii_case(MANAGEMENT) {
            return Ok(Self::Management { hub: None });
        }
        match path.rsplit_once('/') {
            Some((rest, word)) if word.eq_ignore_ascii_case(MANAGEMENT) => {
                // One SDK puts its token below its consumer group; the description of a hub is the same for
                // all groups.
                let hub = before_word(rest, CONSUMER_GROUPS).map_or(rest, |(hub, _group)| hub);
                return Ok(Self::Management { hub: Some(hub_name(hub)?) });
            }
            _ => {}
        }
        let (rest, partition) = match before_word(path, PARTITIONS) {
            Some((_, id)) if id.trim().is_empty() => return Err(InvalidAddress::NoPartition),
            Some((rest, id)) => (rest, Some(id.parse().map_err(|_| InvalidAddress::Partition)?)),
            None => (path, None),
        };
        let (rest, group) = match before_word(rest, CONSUMER_GROUPS) {
            Some((rest, group)) => {
                (rest, Some(group.parse::<ConsumerGroup>().map_err(|_| InvalidAddress::Group)?))
            }
            None => (rest, None),
        };
        let hub = hub_name(rest)?;
        Ok(match (group, partition) {
            (None, None) => Self::Hub { hub },
            (None, Some(partition)) => Self::Partition { hub, partition },
            (Some(group), None) => Self::Group { hub, group },
            (Some(group), Some(partition)) => Self::Consumer { hub, group, partition },
        })
    }

    /// Splits an address that [`InvalidAddress::Partition`] refuses into the hub or the consumer group that it
    /// names, and the id, which no partition has.
    pub fn without_partition(text: &str) -> Option<(Self, String)> {
        let (_, path) = split(text).ok()?;
        Self::parent_of_partition(&path)
    }

    /// The same for a path that is already decoded.
    pub(crate) fn parent_of_partition(path: &str) -> Option<(Self, String)> {
        let (rest, id) = before_word(path, PARTITIONS)?;
        Some((Self::parse_path(rest).ok()?, id.to_owned()))
    }

    /// The hub that the address names.
    pub fn hub(&self) -> Option<&HubName> {
        match self {
            Self::Cbs => None,
            Self::Management { hub } => hub.as_ref(),
            Self::Hub { hub }
            | Self::Partition { hub, .. }
            | Self::Group { hub, .. }
            | Self::Consumer { hub, .. } => Some(hub),
        }
    }

    /// The audience of a token for this address: `sb://host/path`.
    pub fn audience(&self, host: &str) -> String {
        format!("sb://{host}/{self}")
    }
}

impl fmt::Display for Address {
    /// The bare path, as most clients write it.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Cbs => f.write_str(CBS),
            Self::Management { hub: None } => f.write_str(MANAGEMENT),
            Self::Management { hub: Some(hub) } => write!(f, "{hub}/{MANAGEMENT}"),
            Self::Hub { hub } => write!(f, "{hub}"),
            Self::Partition { hub, partition } => write!(f, "{hub}/{PARTITIONS}/{partition}"),
            Self::Group { hub, group } => write!(f, "{hub}/{CONSUMER_GROUPS}/{group}"),
            Self::Consumer { hub, group, partition } => {
                write!(f, "{hub}/{CONSUMER_GROUPS}/{group}/{PARTITIONS}/{partition}")
            }
        }
    }
}

/// True if two names of hubs or groups are the same: they are compared without case, as on the wire.
pub fn same_name(one: &str, other: &str) -> bool {
    one.eq_ignore_ascii_case(other)
}

/// Splits an address into its authority, if any, and its path, decoded and without surrounding slashes.
pub(crate) fn split(text: &str) -> Result<(Option<&str>, String), InvalidAddress> {
    if text.len() > MAX_ADDRESS_LENGTH {
        return Err(InvalidAddress::TooLong);
    }
    let (authority, path) = match text.split_once("://") {
        Some((_, rest)) => match rest.split_once('/') {
            Some((authority, path)) => (Some(authority), path),
            None => (Some(rest), ""),
        },
        None => (None, text),
    };
    let path = percent_decode_str(path).decode_utf8().map_err(|_| InvalidAddress::Encoding)?;
    let trimmed = path.trim_matches('/');
    // The last slash of `hub/Partitions/` says that there is an id, and that it is empty.
    let empty_id = path.ends_with('/')
        && trimmed.rsplit_once('/').is_some_and(|(_, word)| word.eq_ignore_ascii_case(PARTITIONS));
    Ok((authority, if empty_id { format!("{trimmed}/") } else { trimmed.to_owned() }))
}

fn hub_name(text: &str) -> Result<HubName, InvalidAddress> {
    match text.is_empty() {
        true => Err(InvalidAddress::NoHub),
        false => text.parse().map_err(|_| InvalidAddress::HubName),
    }
}

/// Splits `rest/word/value` into the rest and the value. The rest is empty if nothing precedes the word.
fn before_word<'a>(path: &'a str, word: &str) -> Option<(&'a str, &'a str)> {
    let (before, value) = path.rsplit_once('/')?;
    let (rest, found) = before.rsplit_once('/').unwrap_or(("", before));
    found.eq_ignore_ascii_case(word).then_some((rest, value))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn hub() -> HubName {
        "hub".parse().unwrap()
    }

    fn consumer(group: &str, partition: u32) -> Address {
        Address::Consumer { hub: hub(), group: group.parse().unwrap(), partition: PartitionId(partition) }
    }

    #[test]
    fn every_form_that_an_sdk_writes_is_read() {
        let partition = Address::Partition { hub: hub(), partition: PartitionId(3) };
        for (text, address) in [
            ("$cbs", Address::Cbs),
            ("$CBS", Address::Cbs),
            ("$management", Address::Management { hub: None }),
            ("hub/$management", Address::Management { hub: Some(hub()) }),
            ("sb://localhost:5672/hub/$management", Address::Management { hub: Some(hub()) }),
            ("amqps://h/hub/ConsumerGroups/$Default/$management", Address::Management { hub: Some(hub()) }),
            ("hub", Address::Hub { hub: hub() }),
            ("/hub", Address::Hub { hub: hub() }),
            ("/hub/", Address::Hub { hub: hub() }),
            ("amqps://localhost/hub", Address::Hub { hub: hub() }),
            ("amqps://localhost:5672/hub", Address::Hub { hub: hub() }),
            ("sb://[::1]:5672/hub", Address::Hub { hub: hub() }),
            ("hub/Partitions/3", partition.clone()),
            ("/hub/partitions/3", partition.clone()),
            ("amqps://localhost/hub/PARTITIONS/3", partition),
            ("hub/ConsumerGroups/$Default/Partitions/0", consumer("$Default", 0)),
            ("/hub/ConsumerGroups/%24Default/Partitions/0", consumer("$Default", 0)),
            ("amqps://h:1/hub/consumergroups/cg/partitions/31", consumer("cg", 31)),
            (
                "sb://localhost/hub/consumergroups/cg",
                Address::Group { hub: hub(), group: "cg".parse().unwrap() },
            ),
        ] {
            assert_eq!(Address::parse(text), Ok(address), "{text}");
        }
    }

    #[test]
    fn the_name_of_a_hub_may_contain_slashes_and_keeps_its_case() {
        for (text, name) in [
            ("a/B/c", "a/B/c"),
            ("a%2FB", "a/B"),
            ("sb://h/a/b/Partitions/1", "a/b"),
            ("a/b/ConsumerGroups/g/Partitions/1", "a/b"),
            ("Partitions", "Partitions"),
            ("Partitions/Partitions/1", "Partitions"),
        ] {
            let address = Address::parse(text).unwrap();
            assert_eq!(address.hub().map(HubName::as_str), Some(name), "{text}");
        }
    }

    #[test]
    fn what_names_nothing_says_why() {
        let long = "x".repeat(MAX_ADDRESS_LENGTH + 1);
        for (text, why) in [
            ("", InvalidAddress::NoHub),
            ("/", InvalidAddress::NoHub),
            ("amqps://localhost", InvalidAddress::NoHub),
            ("amqps://localhost/", InvalidAddress::NoHub),
            ("Partitions/0", InvalidAddress::NoHub),
            ("ConsumerGroups/g/Partitions/0", InvalidAddress::NoHub),
            ("hub/Partitions/x", InvalidAddress::Partition),
            ("hub/Partitions/-1", InvalidAddress::Partition),
            ("hub/Partitions/ ", InvalidAddress::NoPartition),
            ("sb://localhost/hub/Partitions/", InvalidAddress::NoPartition),
            ("hub/ConsumerGroups/g/Partitions/%20", InvalidAddress::NoPartition),
            ("hub/Partitions/99999999999", InvalidAddress::Partition),
            ("hub/ConsumerGroups/a b/Partitions/0", InvalidAddress::Group),
            ("h u b", InvalidAddress::HubName),
            ("hub?x=1", InvalidAddress::HubName),
            ("%ff", InvalidAddress::Encoding),
            (&long, InvalidAddress::TooLong),
        ] {
            assert_eq!(Address::parse(text), Err(why), "{text}");
        }
    }

    #[test]
    fn an_address_with_an_odd_partition_still_names_its_hub() {
        for id in ["XYZ", "-1", "-", "00", "+1", "4294967296", " 0"] {
            for (parent, address) in [
                ("hub", Address::Hub { hub: hub() }),
                ("hub/ConsumerGroups/g", Address::Group { hub: hub(), group: "g".parse().unwrap() }),
            ] {
                let text = format!("sb://localhost/{parent}/Partitions/{id}");
                assert_eq!(Address::parse(&text), Err(InvalidAddress::Partition), "{text}");
                assert_eq!(Address::without_partition(&text), Some((address, id.to_owned())));
            }
        }
        assert_eq!(Address::without_partition("hub"), None);
        assert_eq!(Address::without_partition("Partitions/x"), None);
    }

    #[test]
    fn an_audience_is_a_url_of_the_service_bus() {
        assert_eq!(Address::Hub { hub: hub() }.audience("localhost"), "sb://localhost/hub");
        let path = consumer("$Default", 7).audience("ns.servicebus.windows.net");
        assert_eq!(path, "sb://ns.servicebus.windows.net/hub/ConsumerGroups/$Default/Partitions/7");
    }

    fn any_address() -> impl Strategy<Value = Address> {
        let name = || "[a-z0-9][a-z0-9._-]{0,8}(/[A-Z0-9]{1,4})?".prop_map(|name| name.parse().unwrap());
        let group = || "[$A-Za-z0-9._-]{1,50}".prop_map(|name| name.parse().unwrap());
        let partition = || any::<u32>().prop_map(PartitionId);
        prop_oneof![
            Just(Address::Cbs),
            proptest::option::of(name()).prop_map(|hub| Address::Management { hub }),
            name().prop_map(|hub| Address::Hub { hub }),
            (name(), partition()).prop_map(|(hub, partition)| Address::Partition { hub, partition }),
            (name(), group()).prop_map(|(hub, group)| Address::Group { hub, group }),
            (name(), group(), partition()).prop_map(|(hub, group, partition)| Address::Consumer {
                hub,
                group,
                partition
            }),
        ]
    }

    proptest! {
        #![proptest_config(ProptestConfig { cases: 1_000, failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn an_address_reads_back_as_it_was_written(address in any_address()) {
            // A group may be called `$management`; at the end of an address that word means another node.
            prop_assume!(!address.to_string().to_ascii_lowercase().ends_with("/$management")
                || matches!(address, Address::Management { .. }));
            prop_assert_eq!(Address::parse(&address.to_string()), Ok(address.clone()));
            prop_assert_eq!(Address::parse(&address.audience("localhost:5672")), Ok(address.clone()));
            prop_assert_eq!(Address::parse(&format!("/{address}")), Ok(address));
        }

        #[test]
        fn any_text_is_read_or_refused(text in any::<String>(), tail in "[a-zA-Z$/%:]{0,40}") {
            let _ = Address::parse(&text);
            let _ = Address::parse(&tail);
        }
    }
}
