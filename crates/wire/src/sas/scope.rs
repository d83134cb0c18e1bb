//! What a token is for: everything at and below a URI.

use crate::address::{self, Address};

/// A host and a path, compared without scheme, port, case and slashes around.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Scope {
    host: Option<String>,
    path: String,
}

impl Scope {
    /// Reads a URI such as `sb://host:port/hub`. One without scheme is a path on any host.
    pub fn parse(uri: &str) -> Option<Self> {
        let (authority, path) = address::split(uri).ok()?;
        Some(Self { host: authority.map(host), path: path.to_ascii_lowercase() })
    }

    /// Whether the other lies at it or below. Segments count, not letters: `hub` does not cover `hub2`.
    pub fn covers(&self, other: &Self) -> bool {
        let same_host = match (&self.host, &other.host) {
            (Some(one), Some(other)) => one == other,
            _ => true,
        };
        same_host && below(&other.path, &self.path)
    }

    /// Whether an address on the same host lies at it or below.
    pub fn covers_address(&self, address: &Address) -> bool {
        below(&address.to_string().to_ascii_lowercase(), &self.path)
    }

    /// What the path names; none for a whole namespace.
    pub fn address(&self) -> Option<Address> {
        Address::parse_path(&self.path).ok()
    }
}

fn below(path: &str, scope: &str) -> bool {
    match path.strip_prefix(scope) {
        Some(rest) => scope.is_empty() || rest.is_empty() || rest.starts_with('/'),
        None => false,
    }
}

/// The host of an authority, without its port.
fn host(authority: &str) -> String {
    let end = match authority.find(']') {
        // The colons of an IPv6 address stand in brackets.
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
        ] {
            assert!(!scope(outer).covers(&scope(inner)), "{outer} {inner}");
        }
    }
}
