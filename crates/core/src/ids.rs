//! Names and ids: of namespaces, hubs, consumer groups, partitions, hosts and logs.
//!
//! A name is checked where it enters ([`FromStr`]) and trusted from there on. Names keep their case
//! and compare exactly; a wire format or blob layout that folds case does so in its own code.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

/// The default consumer group, which every hub has.
pub const DEFAULT_CONSUMER_GROUP: &str = "$Default";

/// The reason why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{what} {given:?} {problem}")]
pub struct InvalidName {
    what: &'static str,
    given: String,
    problem: String,
}

fn check(
    what: &'static str,
    given: &str,
    max: usize,
    allowed: impl Fn(char) -> bool,
    allowed_words: &str,
) -> Result<Arc<str>, InvalidName> {
    let refuse = |problem: String| InvalidName { what, given: given.chars().take(80).collect(), problem };
    if given.is_empty() {
        return Err(refuse("is empty".into()));
    }
    let length = given.chars().count();
    if length > max {
        return Err(refuse(format!("has {length} characters; at most {max} are allowed")));
    }
    if let Some(bad) = given.chars().find(|c| !allowed(*c)) {
        return Err(refuse(format!("contains {bad:?}; allowed are {allowed_words}")));
    }
    Ok(Arc::from(given))
}

macro_rules! name {
    ($(#[$doc:meta])* $name:ident, $what:literal, $max:literal, $allowed:expr, $words:literal) => {
        $(#[$doc])*
        #[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub struct $name(Arc<str>);

        impl $name {
            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl FromStr for $name {
            type Err = InvalidName;
            fn from_str(given: &str) -> Result<Self, InvalidName> {
                check($what, given, $max, $allowed, $words).map(Self)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = InvalidName;
            fn try_from(given: &str) -> Result<Self, InvalidName> {
                given.parse()
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl fmt::Debug for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, "{:?}", &*self.0)
            }
        }
    };
}

fn entity_character(c: char) -> bool {
    c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | '/')
}

name!(
    /// The namespace of a hub: a host name such as `contoso.servicebus.windows.net`.
    Namespace, "namespace", 260,
    |c| c.is_ascii_alphanumeric() || matches!(c, '.' | '-' | '_' | ':' | '[' | ']'),
    "letters, digits, dots, hyphens, underscores, and a port"
);
name!(
    /// The name of an event hub.
    HubName, "hub name", 256, entity_character,
    "letters, digits, dots, hyphens, underscores and slashes"
);
name!(
    /// The name of a consumer group; `$Default` always exists.
    ConsumerGroup, "consumer group", 50,
    |c| (entity_character(c) && c != '/') || c == '$',
    "letters, digits, dots, hyphens, underscores and the dollar sign"
);
name!(
    /// The name of a host, as people see it. It is not an identity: see [`HostId`].
    HostName, "host name", 200,
    |c| !c.is_control() && !c.is_whitespace(),
    "visible characters without spaces"
);

impl ConsumerGroup {
    /// The group `$Default`.
    pub fn default_group() -> Self {
        Self(Arc::from(DEFAULT_CONSUMER_GROUP))
    }
}

/// The number of a partition in its hub.
///
/// The service defines it as an opaque string, but all known hubs use the decimal numbers from 0
/// on; anything else is refused when it is parsed.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(transparent))]
pub struct PartitionId(pub u32);

impl fmt::Display for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.fmt(f)
    }
}

impl fmt::Debug for PartitionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "p{}", self.0)
    }
}

impl FromStr for PartitionId {
    type Err = InvalidName;
    fn from_str(given: &str) -> Result<Self, InvalidName> {
        let canonical = given.parse::<u32>().ok().filter(|n| n.to_string() == given);
        canonical.map(Self).ok_or_else(|| InvalidName {
            what: "partition id",
            given: given.chars().take(80).collect(),
            problem: "is not a decimal number such as 0 or 15".into(),
        })
    }
}

/// A random number of one start of a host, so that two runs under one name differ.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Incarnation(pub u64);

impl fmt::Display for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

impl fmt::Debug for Incarnation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// The identity of a running host: its name and its incarnation.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct HostId {
    /// The name that people use.
    pub name: HostName,
    /// The run of the host.
    pub incarnation: Incarnation,
}

impl fmt::Display for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}#{}", self.name, self.incarnation)
    }
}

impl fmt::Debug for HostId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for HostId {
    type Err = InvalidName;
    /// Reads what [`Display`](fmt::Display) writes: `name#0123456789abcdef`.
    fn from_str(given: &str) -> Result<Self, InvalidName> {
        let refuse = || InvalidName {
            what: "host id",
            given: given.chars().take(80).collect(),
            problem: "is not of the form name#incarnation, with 16 hexadecimal digits".into(),
        };
        let (name, digits) = given.rsplit_once('#').ok_or_else(refuse)?;
        let hexadecimal = digits.len() == 16 && digits.bytes().all(|b| b.is_ascii_hexdigit());
        let number =
            hexadecimal.then(|| u64::from_str_radix(digits, 16).ok()).flatten().ok_or_else(refuse)?;
        Ok(Self { name: name.parse()?, incarnation: Incarnation(number) })
    }
}

/// A consumer group of a hub in a namespace: the scope of leases and checkpoints.
///
/// Its text is for people. Hub names may contain slashes, so two groups can have the same text: a
/// backend keys its records by the three names.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Debug)]
#[cfg_attr(feature = "serde", derive(serde::Serialize, serde::Deserialize), serde(deny_unknown_fields))]
pub struct GroupId {
    /// The namespace of the hub.
    pub namespace: Namespace,
    /// The hub.
    pub hub: HubName,
    /// The consumer group.
    pub group: ConsumerGroup,
}

impl GroupId {
    /// The group with these three names, given as text.
    ///
    /// ```
    /// # use ephor_core::ids::GroupId;
    /// let group = GroupId::new("contoso.servicebus.windows.net", "homes", "$Default")?;
    /// assert_eq!(group.hub.as_str(), "homes");
    /// # Ok::<(), ephor_core::ids::InvalidName>(())
    /// ```
    pub fn new(namespace: &str, hub: &str, group: &str) -> Result<Self, InvalidName> {
        Ok(Self { namespace: namespace.parse()?, hub: hub.parse()?, group: group.parse()? })
    }
}

impl fmt::Display for GroupId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.namespace, self.hub, self.group)
    }
}

/// Identifies one life of a hub's log, so that a hub that was deleted and created again under the
/// same name is not mistaken for its predecessor.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct LogId(Arc<str>);

impl LogId {
    /// A log id from any text; it is compared, never interpreted.
    pub fn new(text: &str) -> Self {
        Self(Arc::from(text))
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:?}", &*self.0)
    }
}

impl fmt::Display for LogId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_checked_and_the_error_says_what_is_wrong() {
        assert!("$Default".parse::<ConsumerGroup>().is_ok());
        assert_eq!(ConsumerGroup::default_group().as_str(), "$Default");
        let error = "a b".parse::<ConsumerGroup>().unwrap_err().to_string();
        assert_eq!(
            error,
            "consumer group \"a b\" contains ' '; allowed are letters, digits, dots, hyphens, underscores \
             and the dollar sign"
        );
        assert!("a/b".parse::<ConsumerGroup>().is_err());
        assert_eq!("".parse::<HubName>().unwrap_err().to_string(), "hub name \"\" is empty");
        assert!("x".repeat(50).parse::<ConsumerGroup>().is_ok());
        let long = "x".repeat(51).parse::<ConsumerGroup>().unwrap_err().to_string();
        assert!(long.ends_with("has 51 characters; at most 50 are allowed"), "{long}");
        assert!("host 1".parse::<HostName>().is_err());
        assert!("host\n".parse::<HostName>().is_err());
        assert!("höst-1".parse::<HostName>().is_ok());
        assert!("a.b-c_d/e".parse::<HubName>().is_ok());
        assert!("a$".parse::<HubName>().is_err());
        assert!("127.0.0.1:5672".parse::<Namespace>().is_ok());
        assert!("[::1]:5672".parse::<Namespace>().is_ok());
        assert!("a/b".parse::<Namespace>().is_err());
    }

    #[test]
    fn names_keep_their_case() {
        let a: ConsumerGroup = "Alarms".parse().unwrap();
        let b: ConsumerGroup = "alarms".parse().unwrap();
        assert_ne!(a, b);
        assert_eq!(format!("{a} {a:?} {}", a.as_str()), "Alarms \"Alarms\" Alarms");
        assert_eq!(ConsumerGroup::try_from("Alarms").unwrap(), a);
    }

    #[test]
    fn partition_ids_are_canonical_decimal_numbers() {
        assert_eq!("15".parse::<PartitionId>().unwrap(), PartitionId(15));
        for bad in ["", "-1", "01", "+1", "x", "4294967296"] {
            assert!(bad.parse::<PartitionId>().is_err(), "{bad}");
        }
        assert_eq!(format!("{} {:?}", PartitionId(7), PartitionId(7)), "7 p7");
    }

    #[test]
    fn a_host_id_reads_back_what_it_writes() {
        let id = HostId { name: "vm#3".parse().unwrap(), incarnation: Incarnation(0xab) };
        assert_eq!(id.to_string(), "vm#3#00000000000000ab");
        assert_eq!(format!("{id:?} {:?}", id.incarnation), "vm#3#00000000000000ab 00000000000000ab");
        assert_eq!(id.to_string().parse::<HostId>().unwrap(), id);
        for bad in ["vm", "vm#1", "#00000000000000ab", "vm#00000000000000zz", "vm#+0000000000000ab"] {
            assert!(bad.parse::<HostId>().is_err(), "{bad}");
        }
    }

    #[test]
    fn group_and_log_ids_are_readable() {
        let group = GroupId::new("ns", "homes", DEFAULT_CONSUMER_GROUP).unwrap();
        assert_eq!(group.to_string(), "ns/homes/$Default");
        assert_eq!(group.group, ConsumerGroup::default_group());
        let error = GroupId::new("ns", "my homes", "$Default").unwrap_err().to_string();
        assert!(error.starts_with("hub name \"my homes\" contains ' '"), "{error}");
        let log = LogId::new("a1");
        assert_eq!(format!("{log} {log:?} {}", log.as_str()), "a1 \"a1\" a1");
    }
}
