//! How the hub's errors read on the wire: with the service's conditions and texts, and with where and when
//! behind them. What names files or disks stays in our own log.

use ephor_amqp::performative::Error;
use ephor_core::ids::Namespace;
use ephor_core::source::{OpenError, ReceiveError, SourceError};
use ephor_core::time::Timestamp;
use ephor_hub::{Hub, HubError, LocalNamespace, SendError};
use ephor_wire::address::{Address, same_name};
use ephor_wire::condition::{Condition, Refusal, Tracking, texts};

/// How long a sender is told to wait while the disk is full, or nearly: what the service says when it throttles.
const WAIT_SECONDS: u64 = 4;

/// What an address is called in a text: `sb://namespace/path`.
pub(crate) fn entity(namespace: &Namespace, address: &Address) -> String {
    address.audience(namespace.as_str())
}

/// Why there is no hub to speak to.
pub(crate) fn of_hub(error: &HubError, entity: &str) -> Refusal {
    match error {
        HubError::NotFound { .. } => texts::not_found(entity),
        HubError::Closed(_) => Refusal::new(Condition::DetachForced, "The hub is closing."),
        error => {
            tracing::warn!(entity, %error, "a hub cannot be served");
            texts::internal()
        }
    }
}

/// Why nothing of a delivery was stored.
pub(crate) fn of_send(error: &SendError, delivery: u32) -> Refusal {
    match error {
        SendError::EventTooLarge { size, limit } | SendError::BatchTooLarge { size, limit } => {
            texts::too_large(delivery, *size, *limit)
        }
        SendError::NoSuchPartition { partitions, .. } => texts::no_such_partition(*partitions),
        SendError::EmptyBatch | SendError::InvalidKey(_) | SendError::Unencodable(_) => {
            Refusal::new(Condition::ArgumentError, error.to_string())
        }
        SendError::DiskFull(_) | SendError::LowOnDisk { .. } => {
            // The hub has said so, and not once a send.
            tracing::debug!(%error, "a send was refused");
            texts::throttled(WAIT_SECONDS)
        }
        SendError::Closed(_) => Refusal::new(Condition::DetachForced, "The hub is closed or was deleted."),
        error => {
            tracing::debug!(%error, "a send failed");
            texts::internal()
        }
    }
}

/// Why a receiver does not open at this address.
pub(crate) fn of_open(error: &OpenError, entity: &str) -> Refusal {
    match error {
        OpenError::Source(SourceError::NotFound { .. }) => texts::not_found(entity),
        error => {
            if let OpenError::Source(SourceError::Unavailable(error)) = error {
                tracing::warn!(entity, %error, "a receiver could not be opened");
            }
            error.into()
        }
    }
}

/// Why a receiver at this address came to its end: what was deleted is not found any more.
pub(crate) fn of_receive(
    error: &ReceiveError,
    namespace: &LocalNamespace,
    hub: &Hub,
    address: &Address,
) -> Refusal {
    if matches!(error, ReceiveError::Disconnected { .. }) {
        return error.into();
    }
    let entity = entity(namespace.name(), address);
    if let Err(error) = namespace.hub(hub.name().as_str()) {
        return of_hub(&error, &entity);
    }
    if let Address::Consumer { group, .. } = address {
        let groups = hub.describe().groups;
        if !groups.iter().any(|present| same_name(present.as_str(), group.as_str())) {
            return texts::not_found(&entity);
        }
    }
    tracing::warn!(entity, %error, "a receiver came to its end");
    match error {
        ReceiveError::Source(SourceError::Unavailable(_)) => {
            Refusal::new(Condition::DetachForced, "The receiver is force detached; open it anew.")
        }
        error => error.into(),
    }
}

/// Where and when, for a refusal that is about an address.
pub(crate) fn tracked(
    refusal: Refusal,
    id: &str,
    namespace: &Namespace,
    address: Option<&Address>,
    at: Timestamp,
) -> Error {
    let (partition, group) = match address {
        Some(Address::Partition { partition, .. }) => (Some(*partition), None),
        Some(Address::Group { group, .. }) => (None, Some(group.as_str())),
        Some(Address::Consumer { group, partition, .. }) => (Some(*partition), Some(group.as_str())),
        _ => (None, None),
    };
    let hub = address.and_then(Address::hub).map(|hub| hub.as_str());
    let tracking = Tracking { id, namespace: namespace.as_str(), hub, partition, group, at };
    error(&refusal.tracked(&tracking))
}

/// As it stands in a detach, a close or a disposition.
pub(crate) fn error(refusal: &Refusal) -> Error {
    Error::new(refusal.condition.symbol().to_owned(), refusal.text.clone())
}
