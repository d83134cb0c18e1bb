//! Serializes names, ids, offsets and times as text, and validates the text when it reads them. Log ids and
//! lease versions are only written; a version that a store counts is a number.

use std::borrow::Cow;

use serde::de::Error as _;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use crate::ids::{ConsumerGroup, HostId, HostName, HubName, LogId, Namespace};
use crate::lease::LeaseVersion;
use crate::position::Offset;
use crate::time::Timestamp;

/// Implements both traits for types with `Display` and `FromStr`.
macro_rules! as_text {
    ($($type:ty),+) => {
        $(impl Serialize for $type {
            fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
                serializer.collect_str(self)
            }
        }

        impl<'de> Deserialize<'de> for $type {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                Cow::<'de, str>::deserialize(deserializer)?.parse().map_err(D::Error::custom)
            }
        })+
    };
}

as_text!(Namespace, HubName, ConsumerGroup, HostName, HostId, Offset, Timestamp);

impl Serialize for LogId {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.as_str())
    }
}

impl Serialize for LeaseVersion {
    /// A number or a text, as the store counts or names it.
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        match self.as_tag() {
            Some(tag) => serializer.serialize_str(tag),
            None => self.as_revision().serialize(serializer),
        }
    }
}

#[cfg(test)]
mod tests;
