//! Maps errors of the hub to AMQP errors, with the conditions and texts of the service, followed by a
//! tracking id, the entity and the time. Errors that name files or disks are only logged, and not sent to the
//! peer.

use ephor_amqp::performative::Error;
use ephor_core::ids::Namespace;
use ephor_core::source::{OpenError, ReceiveError, SourceError};
use ephor_core::time::Timestamp;
use ephor_hub::{Hub, HubError, LocalNamespace, SendError};
use ephor_wire::address::{Address, same_name};
use ephor_wire::condition::{Condition, Refusal, Tracking, error_texts as texts};

/// The time for which a sender is asked to wait while the disk is full, or nearly: the value that the service
/// sends when it throttles.
const WAIT_SECONDS: u64 = 4;

/// The name of an address in error texts: `sb://namespace/path`.
pub(crate) fn entity(namespace: &Namespace, address: &Address) -> String {
    address.audience(namespace.as_str())
}

/// The refusal for a hub that cannot be used.
pub(crate) fn hub_refusal(error: &HubError, entity: &str) -> Refusal {
    match error {
        HubError::NotFound { .. } => texts::not_found(entity),
        HubError::Closed(_) => Refusal::new(Condition::DetachForced, "The hub is closing."),
        error => {
            tracing::warn!(entity, %error, "cannot open a hub");
            texts::internal()
        }
    }
}

/// The refusal for a delivery of which nothing was stored.
pub(crate) fn send_refusal(error: &SendError, delivery: u32) -> Refusal {
    match error {
        SendError::EventTooLarge { size, limit } | SendError::BatchTooLarge { size, limit } => {
            texts::too_large(delivery, *size, *limit)
        }
        SendError::NoSuchPartition { partitions, .. } => texts::no_such_partition(*partitions),
        SendError::EmptyBatch | SendError::InvalidKey(_) | SendError::Unencodable(_) => {
            Refusal::new(Condition::ArgumentError, error.to_string())
        }
        SendError::DiskFull(_) | SendError::LowOnDisk { .. } => {
            // The hub logs that itself, and not for each send.
            tracing::debug!(%error, "send refused");
            texts::throttled(WAIT_SECONDS)
        }
        SendError::Closed(_) => Refusal::new(Condition::DetachForced, "The hub is closed or was deleted."),
        error => {
            tracing::debug!(%error, "send failed");
            texts::internal()
        }
    }
}

/// The refusal for a receiver that could not be opened at this address.
pub(crate) fn open_refusal(error: &OpenError, entity: &str) -> Refusal {
    match error {
        OpenError::Source(SourceError::NotFound { .. }) => texts::not_found(entity),
        error => {
            if let OpenError::Source(SourceError::Unavailable(error)) = error {
                tracing::warn!(entity, %error, "could not open a receiver");
            }
            error.into()
        }
    }
}

/// The refusal for a receiver at this address that ended. If its hub or consumer group was deleted, it is
/// "not found".
pub(crate) fn receive_refusal(
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
        return hub_refusal(&error, &entity);
    }
    if let Address::Consumer { group, .. } = address {
        let groups = hub.describe().groups;
        if !groups.iter().any(|present| same_name(present.as_str(), group.as_str())) {
            return texts::not_found(&entity);
        }
    }
    tracing::warn!(entity, %error, "a receiver ended");
    match error {
        ReceiveError::Source(SourceError::Unavailable(_)) => {
            Refusal::new(Condition::DetachForced, "The receiver is force detached; attach it again.")
        }
        error => error.into(),
    }
}

/// Adds the tracking id, entity and time to a refusal that is about an address.
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
    amqp_error(&refusal.tracked(&tracking))
}

/// The refusal as the error of a `detach`, `close` or `disposition`.
pub(crate) fn amqp_error(refusal: &Refusal) -> Error {
    Error::new(refusal.condition.symbol().to_owned(), refusal.text.clone())
}
