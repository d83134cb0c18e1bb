//! An embedded hub on disk, a producer, and a host with leases and checkpoints in PostgreSQL.
//!
//! ```text
//! cargo run -p ephor --example embedded_hub_postgres -- postgres://USER:PASSWORD@localhost/DATABASE hub-data
//! ```
//!
//! It sends an event every second until it is interrupted. Run it again: it resumes after the last event.
#![allow(clippy::print_stdout, reason = "an example that shows something")]
#![allow(clippy::disallowed_methods, reason = "an ordinary program sleeps as it likes")]

use std::process::ExitCode;
use std::time::Duration;

use ephor::hub::{HubConfig, HubProducer, LocalNamespace, NamespaceConfig};
use ephor::stores::postgres::{PostgresOptions, PostgresStore};
use ephor::{BoxError, EventProcessorHost, NewEvent};

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
    let mut arguments = std::env::args().skip(1);
    let (Some(url), Some(folder)) = (arguments.next(), arguments.next()) else {
        return Err("usage: embedded_hub_postgres postgres://USER:PASSWORD@HOST/DATABASE FOLDER".into());
    };
    let namespace = LocalNamespace::open(&folder, NamespaceConfig::default())?;
    let hub = namespace.ensure_hub(&HubConfig::new("homes", 4)?)?;
    // A wrong password or a missing database is reported here.
    let store = PostgresStore::connect(&url, PostgresOptions::default()).await?;

    let producer = hub.producer();
    let host = EventProcessorHost::builder(hub, store).host_name(ephor::host_name("vm")).for_each_event(
        |context, event| async move {
            println!("partition {}, event {}: {:?}", context.partition(), event.sequence, event.text());
            context.checkpoint().await?;
            Ok(())
        },
    )?;
    // The host stops gracefully on Ctrl-C or SIGTERM; then nothing is sent any more.
    tokio::select! {
        report = host.run_until_signal(Duration::from_secs(20)) => println!("{}", report?),
        failed = send(&producer) => failed?,
    }
    Ok(namespace.close()?)
}

/// Sends an event every second. Each is on disk before the next one is sent.
async fn send(producer: &HubProducer) -> Result<(), BoxError> {
    for reading in 1_u64.. {
        producer.send(NewEvent::new(format!("reading {reading}"))).await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}
