//! Reads one partition until the output is closed, and reopens receivers that fail.
//!
//! A receiver recovers from lost links by itself. This handles what it cannot recover from: another reader
//! took over, the hub was away for too long, or it was created again. Each is reported once, and so is the
//! recovery. Positions of a hub mean nothing in one that was created again, which is read from its beginning.

use std::time::Duration;

use ephor_core::event::Event;
use ephor_core::ids::{LogId, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, HubProperties, OpenRequest, ReceiveError, Receiver, SourceError};
use ephor_eventhubs::{EventHub, LogReplaced};
use tokio::sync::mpsc;

use super::{AHEAD, say};

/// The pause before the first attempt to reopen; it doubles with each further one.
const MIN_PAUSE: Duration = Duration::from_secs(1);
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// An event and its partition.
pub(super) type Found = (PartitionId, Event);

/// The start position. The end is looked up once, so that a receiver that is reopened there misses nothing.
pub(super) async fn beginning(
    hub: &EventHub,
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
    hub: EventHub,
    mut request: OpenRequest,
    mut receiver: Box<dyn Receiver>,
    found: mpsc::Sender<Found>,
) {
    let partition = request.partition;
    let mut log = receiver.log();
    let mut pause = MIN_PAUSE;
    loop {
        let before = request.start.clone();
        let Err(error) = read(receiver, &mut request, &found).await else { return };
        if request.start != before {
            pause = MIN_PAUSE;
        }
        match replaced_by(&error) {
            Some(is) => begin_again(&mut request, &mut log, is),
            None => say(&format!("partition {partition}: {error}; trying again")),
        }
        receiver = loop {
            wait(pause).await;
            pause = (pause * 2).min(MAX_PAUSE);
            if let Some(opened) = reopen(&hub, &mut request, &mut log).await {
                break opened;
            }
        };
        say(&format!("partition {partition}: reading again"));
    }
}

/// Opens a receiver at the position of the request, or at the beginning if the hub has another log by now; none
/// if that failed, or the hub was created again in the middle of it.
async fn reopen(
    hub: &EventHub,
    request: &mut OpenRequest,
    log: &mut Option<LogId>,
) -> Option<Box<dyn Receiver>> {
    if let Ok(HubProperties { log: Some(is), .. }) = hub.hub_properties().await
        && log.as_ref().is_some_and(|was| *was != is)
    {
        begin_again(request, log, is);
    }
    let receiver = hub.open(request.clone()).await.ok()?;
    let is = receiver.log();
    if matches!((&*log, &is), (Some(was), Some(is)) if was != is) {
        return None;
    }
    *log = is.or_else(|| log.take());
    Some(receiver)
}

fn begin_again(request: &mut OpenRequest, log: &mut Option<LogId>, is: LogId) {
    request.start = StartPosition::Earliest;
    *log = Some(is);
    say(&format!(
        "partition {}: the hub was deleted and created again; reading the new one from its beginning",
        request.partition
    ));
}

/// The log that the hub has now, if that is why the receiver ended.
fn replaced_by(error: &ReceiveError) -> Option<LogId> {
    let ReceiveError::Source(SourceError::Unavailable(cause)) = error else { return None };
    cause.downcast_ref::<LogReplaced>().map(|replaced| replaced.is.clone())
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
