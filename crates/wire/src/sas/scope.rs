//! The scope of a token: a URI and all URIs below it.

use crate::address::{self, Address, InvalidAddress, same_name};

/// A host and an entity on it, compared without scheme, port, case and surrounding slashes.
///
/// Entities are compared as a whole and not by their prefix: a hub name may contain slashes, and `a/b` is
/// another hub than `a`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    host: Option<String>,
    /// The entity; none for the whole namespace.
    named: Option<Address>,
    /// The id of a partition of `named` that no partition has. SDKs put a token for whatever a user asked for,
    /// and the user is told what is wrong when the link attaches. Nothing that exists is in such a scope.
    odd_partition: Option<String>,
}

impl Scope {
    /// Parses a URI such as `sb://host:port/hub`. A URI without a scheme is a path on any host. None if the
    /// path is neither empty nor a valid address.
    pub fn parse(uri: &str) -> Option<Self> {
        let (authority, path) = address::split(uri).ok()?;
        let (named, odd_partition) = match Address::parse_path(&path) {
            _ if path.is_empty() => (None, None),
            Ok(address) => (Some(address), None),
            Err(InvalidAddress::Partition | InvalidAddress::NoPartition) => {
                let (parent, id) = Address::parent_of_partition(&path)?;
                (Some(parent), Some(id))
            }
            Err(_) => return None,
        };
        Some(Self { host: authority.map(host), named, odd_partition })
    }

    /// Parses the resource of a token. It begins with a host also without a scheme, as in `host/hub` of Azure's Go
    /// SDK, if its first part can be no plain hub name: clients choose the host that they ask for, so a token for
    /// the hub `homes` must not become one for every hub of a host of that name.
    pub fn of_token(resource: &str) -> Option<Self> {
        let first = resource.split('/').next().unwrap_or_default().to_ascii_lowercase();
        let is_known = first == "localhost" || first.contains(".servicebus.");
        let names_a_host = is_known || first.contains(':') || (first.contains('.') && resource.contains('/'));
        match names_a_host && !resource.contains("://") {
            true => Self::parse(&format!("sb://{resource}")),
            false => Self::parse(resource),
        }
    }

    /// True if `other` is the same scope or below it.
    pub fn covers(&self, other: &Self) -> bool {
        let same_host = match (&self.host, &other.host) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        let same_partition = match (&self.odd_partition, &other.odd_partition) {
            (Some(one), Some(its)) => one == its && self.named == other.named,
            (Some(_), None) => false,
            (None, _) => true,
        };
        same_host
            && same_partition
            && match (&self.named, &other.named) {
                (None, _) => true,
                (Some(_), None) => false,
                (Some(outer), Some(inner)) => lies_below(inner, outer),
            }
    }

    /// True if an address on the same host is in the scope.
    pub fn covers_address(&self, address: &Address) -> bool {
        self.odd_partition.is_none() && self.named.as_ref().is_none_or(|named| lies_below(address, named))
    }

    /// The entity; none for a whole namespace.
    pub fn address(&self) -> Option<&Address> {
        self.named.as_ref()
    }
}

/// True if `inner` is the same entity as `outer`, or a part of it.
fn lies_below(inner: &Address, outer: &Address) -> bool {
    let same_hub = match (inner.hub(), outer.hub()) {
        (Some(one), Some(other)) => same_name(one.as_str(), other.as_str()),
        (None, None) => true,
        _ => false,
    };
    same_hub
        && match (outer, inner) {
            (Address::Hub { .. }, _) => true,
            (
                Address::Group { group, .. },
                Address::Group { group: other, .. } | Address::Consumer { group: other, .. },
            ) => same_name(group.as_str(), other.as_str()),
            (
                Address::Consumer { group, partition, .. },
                Address::Consumer { group: other, partition: number, .. },
            ) => same_name(group.as_str(), other.as_str()) && partition == number,
            (Address::Partition { partition, .. }, Address::Partition { partition: number, .. }) => {
                partition == number
            }
            (Address::Cbs, Address::Cbs) | (Address::Management { .. }, Address::Management { .. }) => true,
            _ => false,
        }
}

/// The host of an authority, without its port.
fn host(authority: &str) -> String {
    let end = match authority.find(']') {
        // The colons of an IPv6 address are in brackets.
        Some(bracket) => bracket + 1,
        None => authority.find(':').unwrap_or(authority.len()),
    };
    authority[..end].to_ascii_lowercase()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_scope_covers_what_lies_below_whatever_the_scheme_the_port_and_the_case() {
        let scope = |uri| Scope::parse(uri).unwrap();
        for (outer, inner) in [
            ("amqps://localhost/hub", "amqps://localhost/hub/ConsumerGroups/$Default/Partitions/0"),
            ("amqps://localhost/hub", "sb://localhost:5672/HUB/$management"),
            ("sb://LOCALHOST/hub/", "amqp://localhost/hub"),
            ("https://ns.servicebus.windows.net", "sb://ns.servicebus.windows.net:5671/any/Partitions/1"),
            ("sb://[::1]:5672/hub", "sb://[::1]/hub/Partitions/1"),
            ("sb://h/hub/consumergroups/cg", "sb://h/hub/ConsumerGroups/CG/Partitions/3"),
        ] {
            assert!(scope(outer).covers(&scope(inner)), "{outer} {inner}");
        }
        for (outer, inner) in [
            ("sb://localhost/hub", "sb://localhost/hub2"),
            ("sb://localhost/hub/Partitions/1", "sb://localhost/hub/Partitions/10"),
            ("sb://localhost/hub/Partitions/1", "sb://localhost/hub"),
            ("sb://other/hub", "sb://localhost/hub"),
            ("sb://[::1]/hub", "sb://[::2]/hub"),
            ("sb://h/a", "sb://h/a/b"),
            ("sb://h/a", "sb://h/a/b/Partitions/0"),
            ("sb://h/a", "sb://h/a/b/ConsumerGroups/$Default/Partitions/0"),
            ("sb://h/hub/ConsumerGroups/one", "sb://h/hub/ConsumerGroups/two/Partitions/0"),
            ("sb://h/hub", "sb://h"),
            ("sb://h/hub", "sb://h/$management"),
            ("sb://h/a", "sb://h/b/ConsumerGroups/$Default/$management"),
            ("sb://h/hub/ConsumerGroups/one", "sb://h/hub/ConsumerGroups/two/$management"),
        ] {
            assert!(!scope(outer).covers(&scope(inner)), "{outer} {inner}");
        }
    }

    #[test]
    fn a_scope_of_an_odd_partition_covers_itself_alone() {
        let scope = |uri: &str| Scope::parse(uri).unwrap();
        for (parent, id) in
            [("sb://h/hub", "XYZ"), ("sb://h/hub/ConsumerGroups/g", "-1"), ("sb://h/hub", " ")]
        {
            let odd = scope(&format!("{parent}/Partitions/{id}"));
            for outer in ["sb://h/", "sb://h/hub", parent] {
                assert!(scope(outer).covers(&odd), "{outer} {id}");
                assert!(!odd.covers(&scope(outer)), "{outer} {id}");
            }
            assert!(odd.covers(&odd));
            for other in
                ["sb://h/hub/Partitions/+7", "sb://h/hub/Partitions/0", "sb://h/other/Partitions/XYZ"]
            {
                assert!(!odd.covers(&scope(other)), "{other} {id}");
            }
            for address in ["hub", "hub/Partitions/0", "hub/ConsumerGroups/g/Partitions/1"] {
                assert!(!odd.covers_address(&Address::parse(address).unwrap()), "{address} {id}");
            }
        }
    }

    #[test]
    fn the_resource_of_a_token_may_begin_with_a_host_without_a_scheme() {
        let scope = |uri| Scope::parse(uri).unwrap();
        for (resource, inner) in [
            ("localhost", "sb://localhost/hub/Partitions/0"),
            ("localhost:5672", "amqps://localhost/hub"),
            ("ns.servicebus.windows.net/hub", "amqps://ns.servicebus.windows.net/hub/$management"),
            ("ns.servicebus.windows.net", "amqps://ns.servicebus.windows.net/hub"),
            ("[::1]:5672/hub", "sb://[::1]/hub"),
            ("amqps://localhost/hub", "sb://localhost/hub"),
        ] {
            assert!(Scope::of_token(resource).unwrap().covers(&scope(inner)), "{resource}");
        }
        for (resource, inner) in [
            ("localhost/hub", "sb://localhost/other"),
            ("localhost/hub", "sb://other/hub"),
            ("ns.servicebus.windows.net/hub", "sb://ns.servicebus.windows.net/other"),
        ] {
            assert!(!Scope::of_token(resource).unwrap().covers(&scope(inner)), "{resource}");
        }
    }

    #[test]
    fn a_token_for_a_hub_without_a_host_is_for_no_other_hub_whatever_host_is_asked_for() {
        let scope = |uri: &str| Scope::parse(uri).unwrap();
        for hub in ["homes", "homes.eu", "homes/alarms"] {
            let token = Scope::of_token(hub).unwrap();
            assert!(token.covers(&scope(&format!("sb://localhost/{hub}"))), "{hub}");
            for other in
                ["sb://localhost/r", "sb://homes/r", "sb://homes.eu/r", "sb://homes/alarms", "sb://homes/"]
            {
                assert!(!token.covers(&scope(other)), "{hub} {other}");
            }
        }
    }

    #[test]
    fn a_path_that_names_nothing_is_no_scope() {
        for uri in ["sb://h/Partitions/zz", "sb://h/other/$$$"] {
            assert_eq!(Scope::parse(uri), None, "{uri}");
        }
        assert!(Scope::parse("sb://h/").unwrap().address().is_none());
    }
}
