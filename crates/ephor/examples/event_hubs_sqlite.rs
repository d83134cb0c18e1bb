//! A host on Azure Event Hubs, or on any Ephor hub, with leases and checkpoints in a SQLite file.
//!
//! Start it several times with the same file: the processes divide the partitions among them.
//!
//! ```text
//! cargo run -p ephor-cli -- dev          # a hub on this machine; it prints its connection string
//! EVENT_HUB='Endpoint=sb://…;EntityPath=homes' cargo run -p ephor --example event_hubs_sqlite -- state.db
//! ```
#![allow(clippy::print_stdout, reason = "an example that shows something")]

use std::process::ExitCode;
use std::time::Duration;

use ephor::eventhubs::EventHub;
use ephor::stores::sqlite::SqliteStore;
use ephor::{BoxError, CheckpointPolicy, Event, EventProcessor, EventProcessorHost, EventProcessorOptions};
use ephor::{PartitionContext, PartitionError};

/// Counts the events of one partition.
#[derive(Default)]
struct Counter {
    events: u64,
}

impl EventProcessor for Counter {
    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        self.events += events.len() as u64;
        println!("partition {}: {} events since it was opened", context.partition(), self.events);
        Ok(())
    }

    async fn process_error(&mut self, context: &PartitionContext, error: &PartitionError) {
        eprintln!("partition {}: {error}", context.partition());
    }
}

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), BoxError> {
    let connection = std::env::var("EVENT_HUB").map_err(|_| "set EVENT_HUB to a connection string")?;
    let file = std::env::args_os().nth(1).ok_or("usage: event_hubs_sqlite FILE")?;
    let host = EventProcessorHost::builder(EventHub::connect(&connection).await?, SqliteStore::open(file)?)
        .consumer_group("$Default")
        .host_name(ephor::host_name("vm"))
        .options(EventProcessorOptions {
            checkpoint: CheckpointPolicy::every(Duration::from_secs(5)),
            ..EventProcessorOptions::default()
        })
        .processor(|_| Counter::default())?;
    println!("{}", host.run_until_signal(Duration::from_secs(20)).await?);
    Ok(())
}
