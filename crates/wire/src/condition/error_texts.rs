//! The error texts of Azure Event Hubs, word for word where they are known.
//!
//! The texts about receivers that displace one another are with those rules, in
//! [`ephor_core::receivers::error_texts`].

use std::fmt;

use ephor_core::ids::PartitionId;
use ephor_core::position::SequenceNumber;
use ephor_core::receivers::error_texts::invalid_sequence_number;
use ephor_core::time::Timestamp;

use super::{Condition, Refusal};
use crate::address::InvalidAddress;
use crate::peer_text::quoted;
use crate::sas::{Claims, InvalidToken};
use crate::selector::InvalidSelector;

/// The place and time of a refusal, to correlate the logs of both sides.
#[derive(Clone, Copy, Debug)]
pub struct Tracking<'a> {
    /// The tracking id, which also appears in the hub's log.
    pub id: &'a str,
    /// The namespace.
    pub namespace: &'a str,
    /// The hub, if the refusal is about one.
    pub hub: Option<&'a str>,
    /// The partition, if the refusal is about one.
    pub partition: Option<PartitionId>,
    /// The consumer group, if the refusal is about one.
    pub group: Option<&'a str>,
    /// The time of the refusal.
    pub at: Timestamp,
}

/// The end of the text in the answer to a request, which is not about a place in a hub.
#[derive(Clone, Copy, Debug)]
pub struct RequestTracking<'a> {
    /// The tracking id, which also appears in the hub's log.
    pub id: &'a str,
    /// The namespace and the hub, if the refusal is about one.
    pub entity: Option<(&'a str, &'a str)>,
    /// The time of the refusal.
    pub at: Timestamp,
}

impl fmt::Display for RequestTracking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { id, entity, at } = self;
        match entity {
            Some((namespace, hub)) => write!(f, " TrackingId:{id}, SystemTracker:{namespace}:{hub}")?,
            None => write!(f, " TrackingId:{id}, SystemTracker:NoSystemTracker")?,
        }
        write!(f, ", Timestamp:{at}")
    }
}

impl fmt::Display for Tracking<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, " TrackingId:{}, SystemTracker:{}", self.id, self.namespace)?;
        if let Some(hub) = self.hub {
            write!(f, ":eventhub:{hub}")?;
        }
        if let Some(partition) = self.partition {
            write!(f, "~{partition}")?;
        }
        if let Some(group) = self.group {
            write!(f, "|{group}")?;
        }
        write!(f, ", Timestamp:{}", self.at)
    }
}

/// No such hub or group: `sb://namespace/path`. SDKs look for these words.
pub fn not_found(entity: &str) -> Refusal {
    Refusal::new(
        Condition::NotFound,
        format!(
            "The messaging entity '{}' could not be found. To know more visit \
             https://aka.ms/sbResourceMgrExceptions. ",
            quoted(entity)
        ),
    )
}

/// No such partition. `partitions` is the number of partitions that exist.
pub fn no_such_partition(partitions: u32) -> Refusal {
    Refusal::new(
        Condition::ArgumentOutOfRange,
        format!(
            "The specified partition is invalid for an EventHub partition sender or receiver. It should be \
             between 0 and {}.",
            partitions.saturating_sub(1)
        ),
    )
}

/// An address that names a partition without an id. The first sentence is the service's.
pub fn invalid_address() -> Refusal {
    Refusal::new(
        Condition::ArgumentError,
        "Invalid EventHub address. It must be either of the following. Sender: hub or hub/Partitions/id. Receiver: \
         hub/ConsumerGroups/group/Partitions/id.",
    )
}

/// An operation of `$management` that does not exist.
pub fn invalid_command(operation: &str) -> Refusal {
    Refusal::new(Condition::NotAllowed, format!("Invalid command '{}'.", quoted(operation)))
}

/// A message is larger than the link accepts.
pub fn too_large(delivery: u32, size: u64, limit: u64) -> Refusal {
    Refusal::new(
        Condition::MessageSizeExceeded,
        format!(
            "The received message (delivery-id:{delivery}, size:{size} bytes) exceeds the limit ({limit} bytes) \
             currently allowed on the link."
        ),
    )
}

/// The client's tokens do not permit the operation.
pub fn missing_claim(needed: Claims, resource: &str) -> Refusal {
    Refusal::new(
        Condition::UnauthorizedAccess,
        format!(
            "Unauthorized access. '{needed}' claim(s) are required to perform this operation. Resource: '{}'.",
            quoted(resource)
        ),
    )
}

/// The client is throttled, and may retry after `seconds`.
pub fn throttled(seconds: u64) -> Refusal {
    Refusal::new(
        Condition::ServerBusy,
        format!(
            "The request was terminated because the entity is being throttled. Error code : 50002. Please wait \
             {seconds} seconds and try again."
        ),
    )
}

/// The hub failed. The cause is in its log only, because it may name files.
pub fn internal() -> Refusal {
    Refusal::new(
        Condition::InternalError,
        "The service was unable to process the request; please retry the operation.",
    )
}

/// A receiver asked for an event beyond the end of the log.
pub fn beyond_the_end(asked: SequenceNumber, last: Option<SequenceNumber>) -> Refusal {
    Refusal::new(Condition::ArgumentError, invalid_sequence_number(asked, last))
}

/// A link was idle for `minutes`.
pub fn idle_link(link: &str, minutes: u64) -> Refusal {
    Refusal::new(
        Condition::DetachForced,
        format!(
            "The link '{}' is force detached. Details: IdleTimerExpired: Idle timeout: {:02}:{:02}:00.",
            quoted(link),
            minutes / 60,
            minutes % 60
        ),
    )
}

/// A connection was idle for more than `milliseconds`.
pub fn idle_connection(milliseconds: u64) -> Refusal {
    Refusal::new(
        Condition::ConnectionForced,
        format!(
            "The connection was inactive for more than the allowed {milliseconds} milliseconds and is closed by \
             container 'LinkTracker'."
        ),
    )
}

impl From<&InvalidSelector> for Refusal {
    fn from(invalid: &InvalidSelector) -> Self {
        Self::new(Condition::ArgumentError, invalid.to_string())
    }
}

impl From<InvalidToken> for Refusal {
    fn from(invalid: InvalidToken) -> Self {
        Self::new(Condition::UnauthorizedAccess, invalid.to_string())
    }
}

impl Refusal {
    /// The refusal of an address that cannot be parsed: a partition that is not a number is out of range, and
    /// an entity with an impossible name cannot be found.
    pub fn of_address(invalid: InvalidAddress, address: &str) -> Self {
        match invalid {
            InvalidAddress::Partition => Self::new(Condition::ArgumentOutOfRange, invalid.to_string()),
            InvalidAddress::NoPartition => invalid_address(),
            InvalidAddress::TooLong | InvalidAddress::Encoding => {
                Self::new(Condition::InvalidField, invalid.to_string())
            }
            InvalidAddress::NoHub | InvalidAddress::HubName | InvalidAddress::Group => not_found(address),
        }
    }
}
