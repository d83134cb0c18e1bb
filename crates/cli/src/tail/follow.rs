//! Reads one partition for as long as somebody listens, whatever happens to its receiver.
//!
//! A receiver gets over lost links by itself. Here it is about what it does not get over: another reader took its
//! place, or the hub was away for too long. Both are said once, and so is that it goes on.

use std::time::Duration;

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest, ReceiveError, Receiver, SourceError};
use ephor_eventhubs::EventHubs;
use tokio::sync::mpsc;

use super::{AHEAD, say};

/// Before the first attempt at a new receiver; twice as long before each further one.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An event, and where it was found.
pub(super) type Found = (PartitionId, Event);

/// Where to begin. The end is looked up once, so that whoever begins anew there misses nothing in between.
pub(super) async fn beginning(
    hub: &EventHubs,
    partition: PartitionId,
    earliest: bool,
) -> Result<StartPosition, SourceError> {
    if earliest {
        return Ok(StartPosition::Earliest);
    }
    let last = hub.partition_properties(partition).await?.last;
    Ok(last.map_or(StartPosition::Earliest, |last| StartPosition::after(last.sequence)))
}

/// Hands on what the receiver yields, and what its successors do, until nobody takes it.
pub(super) async fn follow(
    hub: EventHubs,
    mut request: OpenRequest,
    mut receiver: Box<dyn Receiver>,
    found: mpsc::Sender<Found>,
) {
    let partition = request.partition;
    let mut pause = SHORTEST_PAUSE;
    loop {
        let before = request.start.clone();
        let Err(error) = read(receiver, &mut request, &found).await else { return };
        if request.start != before {
            pause = SHORTEST_PAUSE;
        }
        say(&format!("partition {partition}: {error}; trying again"));
        receiver = loop {
            wait(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
            if let Ok(opened) = hub.open(request.clone()).await {
                break opened;
            }
        };
        say(&format!("partition {partition}: reading again"));
    }
}

/// Until the receiver fails, or nobody takes the events. The next one begins behind what was handed on.
async fn read(
    mut receiver: Box<dyn Receiver>,
    request: &mut OpenRequest,
    found: &mpsc::Sender<Found>,
) -> Result<(), ReceiveError> {
    let mut events = Vec::new();
    loop {
        receiver.receive(&mut events, AHEAD).await?;
        for event in events.drain(..) {
            let sequence = event.sequence;
            if found.send((request.partition, event)).await.is_err() {
                receiver.close().await;
                return Ok(());
            }
            request.start = StartPosition::after(sequence);
        }
    }
}

#[expect(clippy::disallowed_methods, reason = "the outermost shell: a real hub takes real time")]
async fn wait(pause: Duration) {
    tokio::time::sleep(pause).await;
}
