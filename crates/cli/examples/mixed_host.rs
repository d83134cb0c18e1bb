//! One Ephor host for tests with fleets of several SDKs: prints a line of JSON for each partition that it
//! opens or closes and for each event, until it is killed, as `interop/mixed/host.py` does.
//!
//! | variable | meaning |
//! |---|---|
//! | `EPHOR_CONNECTION`, `MIXED_HUB` | a connection string of a namespace, and the hub in it |
//! | `EPHOR_STORAGE`, `MIXED_CONTAINER` | a connection string of a storage account, and the container in it |
//! | `MIXED_CHECKPOINT_EVERY` | N: a checkpoint after every N-th sequence number |
//! | `MIXED_SHARED_WITH` | `other-sdks` (default) or `ephor`: who else owns partitions of the group |
//! | `MIXED_INTERVAL` | seconds between two renewals (default 1); a lease lasts six of them |

#![allow(clippy::print_stdout, reason = "its purpose is to print")]

use std::process::ExitCode;
use std::time::Duration;

use ephor::{
    BoxError, CheckpointPolicy, CloseReason, ErrorHandler, Event, EventProcessor, EventProcessorHost,
    EventProcessorOptions, PartitionContext, PartitionManagerOptions,
};
use ephor_eventhubs::EventHub;
use ephor_stores::azblob::{BlobOptions, BlobStore};
use serde_json::{Value, json};

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
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    let hub = EventHub::builder(&variable("EPHOR_CONNECTION")?).hub(variable("MIXED_HUB")?).build()?;
    let every: u64 = variable("MIXED_CHECKPOINT_EVERY")?.parse()?;
    let host = EventProcessorHost::builder(hub, store()?)
        .host_name(ephor::host_name("ephor"))
        .options(options())
        .manager_options(manager_options()?)
        .processor(move |_| Telling { every })?;
    host.start().await?;
    std::future::pending().await
}

fn variable(name: &str) -> Result<String, BoxError> {
    std::env::var(name).map_err(|_| {
        format!("set the environment variable {name}; the comment at the top of mixed_host.rs describes it")
            .into()
    })
}

fn store() -> Result<BlobStore, BoxError> {
    let (account, container) = (variable("EPHOR_STORAGE")?, variable("MIXED_CONTAINER")?);
    let shared_with = std::env::var("MIXED_SHARED_WITH").unwrap_or_else(|_| "other-sdks".to_owned());
    let account = account.trim_end_matches(';');
    let place = format!("{account};Container={container};SharedWith={shared_with}");
    Ok(BlobStore::new(&place, BlobOptions::default())?)
}

/// Small batches, and only explicit checkpoints, as in the other SDKs.
fn options() -> EventProcessorOptions {
    EventProcessorOptions {
        max_batch_size: 10,
        checkpoint: CheckpointPolicy { spacing: Duration::ZERO, ..CheckpointPolicy::manual() },
        on_error: Some(ErrorHandler::new(|error| tell(&json!({ "error": error.to_string() })))),
        ..EventProcessorOptions::default()
    }
}

fn manager_options() -> Result<PartitionManagerOptions, BoxError> {
    let interval = std::env::var("MIXED_INTERVAL").unwrap_or_else(|_| "1".to_owned());
    let interval = Duration::try_from_secs_f64(interval.parse()?)?;
    Ok(PartitionManagerOptions {
        lease_duration: interval * 6,
        renew_interval: interval,
        // Jitter shortens the scan interval by up to a quarter: there is at most one slow scan in an
        // interval.
        slow_scan: interval * 4 / 3,
        fast_scan: interval / 2,
        handover_timeout: interval * 3,
        fence_margin: interval,
        store_timeout: interval * 3,
        other_sdk_lease_duration: interval * 6,
        max_partitions: None,
    })
}

/// Prints one whole line.
fn tell(what: &Value) {
    println!("{what}");
}

struct Telling {
    every: u64,
}

impl EventProcessor for Telling {
    async fn open(&mut self, context: &PartitionContext) -> Result<(), BoxError> {
        tell(&json!({ "begun": context.partition().to_string() }));
        Ok(())
    }

    async fn process_events(&mut self, context: &PartitionContext, events: &[Event]) -> Result<(), BoxError> {
        for event in events {
            let (partition, sequence) = (context.partition().to_string(), event.sequence.0);
            tell(&json!({ "partition": partition, "sequence": sequence, "text": event.text() }));
            if (sequence + 1).is_multiple_of(self.every) {
                context.checkpoint_at(event).await?;
            }
        }
        Ok(())
    }

    async fn close(&mut self, context: &PartitionContext, _: CloseReason) -> Result<(), BoxError> {
        tell(&json!({ "ended": context.partition().to_string() }));
        Ok(())
    }
}
