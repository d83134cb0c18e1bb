//! `ephor tail`: prints events as they come, one line each.

use ephor_core::BoxError;
use ephor_core::event::Event;
use ephor_core::ids::PartitionId;
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest, Receiver};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use crate::arguments::Tail;
use crate::connection;

/// So many events wait to be printed.
const AHEAD: usize = 1_000;

pub(crate) async fn run(options: Tail) -> Result<(), BoxError> {
    let hub = connection::open(&options.of, &options.hub)?;
    let partitions = match options.partition {
        Some(partition) => vec![PartitionId(partition)],
        None => hub.hub_properties().await?.partitions,
    };
    let (found, mut events) = mpsc::channel(AHEAD);
    let mut readers = JoinSet::new();
    for partition in partitions {
        let start = if options.from_beginning { StartPosition::Earliest } else { StartPosition::Latest };
        let request = OpenRequest {
            group: options.group.parse()?,
            partition,
            start,
            epoch: None,
            receiver: format!("ephor-tail-{}", std::process::id()),
            prefetch_events: AHEAD,
            prefetch_bytes: 1 << 20,
        };
        let receiver = hub.open(request).await?;
        readers.spawn(read(partition, receiver, found.clone()));
    }
    drop(found);
    eprintln!("reading {} of {}; Ctrl-C to stop", options.group, options.hub);
    let mut left = options.count;
    while left != Some(0) {
        tokio::select! {
            biased;
            _ = tokio::signal::ctrl_c() => break,
            event = events.recv() => match event {
                Some((partition, event)) => print(partition, &event),
                None => break,
            },
        }
        left = left.map(|left| left - 1);
    }
    drop(events);
    // Whoever stopped reading says why; those who were stopped by us do not.
    while let Some(ended) = readers.try_join_next() {
        ended??;
    }
    Ok(())
}

async fn read(
    partition: PartitionId,
    mut receiver: Box<dyn Receiver>,
    found: mpsc::Sender<(PartitionId, Event)>,
) -> Result<(), BoxError> {
    let mut events = Vec::new();
    loop {
        receiver.receive(&mut events, AHEAD).await?;
        for event in events.drain(..) {
            if found.send((partition, event)).await.is_err() {
                receiver.close().await;
                return Ok(());
            }
        }
    }
}

fn print(partition: PartitionId, event: &Event) {
    let key = event.partition_key.as_deref().map(|key| format!(" key={key}")).unwrap_or_default();
    let body = match event.text() {
        Some(text) => text.to_owned(),
        None => format!("({} bytes)", event.body.len()),
    };
    println!("{} {partition}/{}{key} {body}", event.enqueued_at, event.sequence);
}
