//! `ephor send`: events from the arguments, or from the lines of standard input.

use ephor_core::BoxError;
use ephor_core::event::NewEvent;
use ephor_core::ids::PartitionId;
use ephor_eventhubs::Target;
use tokio::io::{AsyncBufReadExt, BufReader};

use crate::arguments::Send;
use crate::connection;

/// Lines that are sent together, if they come fast enough.
const LINES_AT_A_TIME: usize = 100;

pub(crate) async fn run(options: Send) -> Result<(), BoxError> {
    let hub = connection::open(&options.to, &options.hub)?;
    let producer = hub.producer();
    let target = match (options.partition, &options.key) {
        (Some(partition), _) => Target::Partition(PartitionId(partition)),
        (None, Some(key)) => Target::Key(key),
        (None, None) => Target::Any,
    };
    let mut sent = options.bodies.len();
    if sent > 0 {
        producer.send_batch(target, options.bodies.into_iter().map(NewEvent::new)).await?;
    } else {
        let mut lines = BufReader::new(tokio::io::stdin()).lines();
        while let Some(first) = lines.next_line().await? {
            let mut batch = vec![NewEvent::new(first)];
            while batch.len() < LINES_AT_A_TIME && !lines.get_ref().buffer().is_empty() {
                let Some(line) = lines.next_line().await? else { break };
                batch.push(NewEvent::new(line));
            }
            sent += batch.len();
            producer.send_batch(target, batch).await?;
        }
    }
    eprintln!("{sent} {} sent to {}", if sent == 1 { "event" } else { "events" }, options.hub);
    Ok(())
}
