//! Reads all events of a hub, without waiting for more.

use std::future::Future;
use std::pin::pin;
use std::task::{Context, Poll, Waker};

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::Receiver;
use ephor_hub::{Hub, HubReceiver};

use super::Checked;

/// The result of a future that is ready at once; none if it would have to wait.
pub fn at_once<T>(future: impl Future<Output = T>) -> Option<T> {
    match pin!(future).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => Some(done),
        Poll::Pending => None,
    }
}

/// A reader of a partition from its beginning.
pub fn reader(hub: &Hub, partition: u32) -> Checked<HubReceiver> {
    let opened = at_once(hub.reader(PartitionId(partition), StartPosition::Earliest));
    let opened = opened.ok_or("opening a reader waits for something")?;
    opened.map_err(|error| format!("no reader for partition {partition}: {error}"))
}

/// All that a reader can have now. So few at a time that batches are cut in two.
pub fn rest_of(reader: &mut HubReceiver) -> Checked<Vec<Event>> {
    let mut events = Vec::new();
    while let Some(received) = at_once(reader.receive(&mut events, 5)) {
        received.map_err(|error| format!("reading partition {}: {error}", reader.partition()))?;
    }
    Ok(events)
}

/// Everything in a partition.
pub fn all_of(hub: &Hub, partition: u32) -> Checked<Vec<Event>> {
    rest_of(&mut reader(hub, partition)?)
}
