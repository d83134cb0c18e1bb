//! Reads one partition until the output is closed, and reopens receivers that fail.
//!
//! A receiver recovers from lost links by itself. This handles what it cannot recover from: another reader
//! took over, or the hub was away for too long. Both are reported once, and so is the recovery.

use std::time::Duration;

use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest, ReceiveError, Receiver, SourceError};
use ephor_eventhubs::EventHubs;
use tokio::sync::mpsc;

use super::{AHEAD, say};

/// The pause before the first attempt to reopen; it doubles with each further one.
const SHORTEST_PAUSE: Duration = Duration::from_secs(1);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// An event and its partition.
pub(super) type Found = (PartitionId, Event);

/// The start position. The end is looked up once, so that a receiver that is reopened there misses nothing.
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

/// Forwards the events of the receiver and of its replacements, until the channel is closed.
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

/// Forwards events until the receiver fails or the channel is closed. The next receiver starts after the last
/// forwarded event.
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
