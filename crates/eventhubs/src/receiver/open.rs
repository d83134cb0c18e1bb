//! Opens a receiver: builds its link specification and resolves its start position.

use std::future::poll_fn;
use std::sync::Arc;

use ephor_core::epoch::Epoch;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::position::{SequenceNumber, StartPosition};
use ephor_core::receivers::known_name;
use ephor_core::source::{OpenError, OpenRequest, Receiver, SourceError};
use ephor_wire::address::Address;

use super::RemoteReceiver;
use crate::client::Shared;
use crate::connection::ReceiverSpec;
use crate::credit::Credit;

/// Opens a receiver.
pub(crate) async fn open(shared: Arc<Shared>, request: OpenRequest) -> Result<Box<dyn Receiver>, OpenError> {
    let OpenRequest { group, partition, start, epoch, receiver, prefetch_events, prefetch_bytes } = request;
    if let Some(epoch) = epoch.filter(|epoch| *epoch > Epoch::MAX) {
        let why = format!("epoch {epoch} is larger than AMQP allows ({})", Epoch::MAX);
        return Err(SourceError::Unavailable(why.into()).into());
    }
    let (start, log) = pinned(&shared, partition, start).await?;
    let address = Address::Consumer { hub: shared.endpoint.hub.clone(), group, partition };
    // The name as the hub will repeat it in errors.
    let name = known_name(&receiver).to_owned();
    let spec = ReceiverSpec { address, start: exclusive(start).into(), epoch, name };
    let credit = Credit::new(prefetch_events, prefetch_bytes);
    let mut receiver = Box::new(RemoteReceiver::new(shared, partition, spec, credit, log));
    poll_fn(|context| receiver.poll_opened(context)).await?;
    Ok(receiver)
}

/// Resolves `Latest` to a sequence number once: a link that is lost before its first event would otherwise
/// skip the events in between. Also returns the log that the number belongs to.
async fn pinned(
    shared: &Shared,
    partition: PartitionId,
    start: StartPosition,
) -> Result<(StartPosition, Option<LogId>), SourceError> {
    if start != StartPosition::Latest {
        return Ok((start, None));
    }
    // In this order: if the hub still has this log when the receiver is attached, the number is of it.
    let log = shared.hub_properties().await?.log;
    let start = match shared.partition_properties(partition).await?.last {
        Some(last) => StartPosition::after(last.sequence),
        // Nothing was ever stored, so the beginning is the end.
        None => StartPosition::Earliest,
    };
    Ok((start, log))
}

/// Turns "at an event" into "after the one before it". For the next event to come, the service accepts only
/// this form.
fn exclusive(start: StartPosition) -> StartPosition {
    match start {
        StartPosition::Sequence { number, inclusive: true } => {
            let before = number.0.checked_sub(1).map(SequenceNumber);
            before.map_or(StartPosition::Earliest, StartPosition::after)
        }
        other => other,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn at_an_event_is_behind_the_one_before() {
        assert_eq!(exclusive(StartPosition::at(SequenceNumber(0))), StartPosition::Earliest);
        let behind = StartPosition::after(SequenceNumber(6));
        assert_eq!(exclusive(StartPosition::at(SequenceNumber(7))), behind);
        assert_eq!(exclusive(behind.clone()), behind);
        assert_eq!(exclusive(StartPosition::Latest), StartPosition::Latest);
    }
}
