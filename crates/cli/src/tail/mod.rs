//! `ephor tail`: prints events as they arrive, one line each.

mod follow;
mod print;

use std::io::{BufWriter, ErrorKind, Write};
use std::pin::pin;

use ephor_core::BoxError;
use ephor_core::ids::PartitionId;
use ephor_core::source::{EventSource, OpenError, OpenRequest};
use tokio::sync::mpsc;
use tokio::task::JoinSet;

use self::follow::Found;
use crate::arguments::Tail;
use crate::open_client;
use crate::store_commands::arguments::Output;

/// The maximum number of events that wait to be printed. They may be large.
const AHEAD: usize = 64;

pub(crate) async fn run(options: Tail) -> Result<(), BoxError> {
    let hub = open_client::open(&options.of, &options.hub)?;
    let partitions = match options.partition {
        Some(partition) => vec![PartitionId(partition)],
        None => hub.hub_properties().await?.partitions,
    };
    let (found, events) = mpsc::channel(AHEAD);
    let mut readers = JoinSet::new();
    for partition in partitions {
        let request = OpenRequest {
            group: options.group.parse()?,
            partition,
            start: follow::beginning(&hub, partition, options.from_beginning).await?,
            epoch: None,
            receiver: format!("ephor-tail-{}", std::process::id()),
            prefetch_events: AHEAD,
            prefetch_bytes: 1 << 20,
        };
        let receiver = hub.open(request.clone()).await.map_err(|error| kept_out(error, &options))?;
        readers.spawn(follow::follow(hub.clone(), request, receiver, found.clone()));
    }
    drop(found);
    say(&format!("reading {} of {}; Ctrl-C to stop", options.group, options.hub));
    match print_all(events, options.count, options.output).await {
        // The reader of the output has closed it.
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other?),
    }
}

/// The error for a reader without an epoch beside a host: advice first, then the hub's message.
fn kept_out(error: OpenError, options: &Tail) -> BoxError {
    let OpenError::Refused { message, .. } = &error else { return error.into() };
    let Tail { hub, group, .. } = options;
    format!(
        "a host reads {hub} with the consumer group {group}, which excludes other readers; use another \
         consumer group with --group NAME (ephor dev --group {hub}/NAME creates one). The hub's message: \
         {message}"
    )
    .into()
}

/// Prints `count` events, or until Ctrl-C.
async fn print_all(
    mut events: mpsc::Receiver<Found>,
    count: Option<u64>,
    output: Output,
) -> std::io::Result<()> {
    let mut out = BufWriter::new(std::io::stdout().lock());
    let mut interrupted = pin!(tokio::signal::ctrl_c());
    let mut left = count;
    while left != Some(0) {
        if events.is_empty() {
            out.flush()?;
        }
        tokio::select! {
            biased;
            _ = &mut interrupted => break,
            event = events.recv() => match event {
                Some((partition, event)) => match output {
                    Output::Table => writeln!(out, "{}", print::line(partition, &event))?,
                    Output::Json => writeln!(out, "{}", print::json(partition, &event))?,
                },
                None => break,
            },
        }
        left = left.map(|left| left - 1);
    }
    out.flush()
}

/// Writes to stderr, and ignores a closed one.
fn say(text: &str) {
    drop(writeln!(std::io::stderr(), "{text}"));
}
