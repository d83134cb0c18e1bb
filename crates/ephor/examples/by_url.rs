//! A program whose event hub and store are chosen by environment variables: the same code runs on a laptop
//! and on Azure.
//!
//! ```text
//! EVENT_HUB=memory:homes EPHOR_STORE=sqlite:state.db cargo run -p ephor --example by_url
//! EVENT_HUB='hub:hub-data/homes?partitions=16' EPHOR_STORE=sqlite:state.db cargo run -p ephor --example by_url
//! EVENT_HUB='Endpoint=sb://…;EntityPath=homes' EPHOR_STORE=postgres://USER:PASSWORD@HOST/DATABASE \
//!     cargo run -p ephor --example by_url
//! ```
//!
//! It sends an event every second and processes what it finds, until it is interrupted.
#![allow(clippy::print_stdout, reason = "an example that shows something")]
#![allow(clippy::disallowed_methods, reason = "an ordinary program sleeps as it likes")]

use std::process::ExitCode;
use std::time::Duration;

use ephor::hubs::{self, HubUrl};
use ephor::stores::{self, StoreUrl};
use ephor::{BoxError, EventProcessorHost, NewEvent, Producer};

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
    let hub_url: HubUrl = variable("EVENT_HUB")?.parse()?;
    let store_url: StoreUrl = variable("EPHOR_STORE")?.parse()?;
    println!("{hub_url}, {store_url}"); // without keys and passwords
    let hub = hubs::open(&hub_url).await?;
    let store = stores::open(&store_url).await?;

    let host = EventProcessorHost::builder(hub.source, store)
        .host_name(ephor::host_name("vm"))
        .for_each_event(|context, event| async move {
            println!("partition {}, event {}: {:?}", context.partition(), event.sequence, event.text());
            context.checkpoint().await?;
            Ok(())
        })?;
    // The host stops gracefully on Ctrl-C or SIGTERM; then nothing is sent any more.
    tokio::select! {
        report = host.run_until_signal(Duration::from_secs(20)) => println!("{}", report?),
        failed = send(&*hub.producer) => failed?,
    }
    Ok(())
}

/// Sends an event every second, to the partition of its home.
async fn send(producer: &dyn Producer) -> Result<(), BoxError> {
    for reading in 1_u64.. {
        let event = NewEvent::new(format!("reading {reading}"));
        producer
            .send(NewEvent { partition_key: Some(format!("home-{}", reading % 20).into()), ..event })
            .await?;
        tokio::time::sleep(Duration::from_secs(1)).await;
    }
    Ok(())
}

fn variable(name: &str) -> Result<String, String> {
    std::env::var(name).map_err(|_| format!("set {name}, such as in the first lines of this example"))
}
