//! A durable hub, a store, two hosts and a sender, in one process and with nothing to install.
//!
//!     cargo run -p ephor --example two_hosts -- [FOLDER]
//!
//! Run it again: what was sent before is still there, and is processed first.
#![allow(clippy::print_stdout, reason = "an example that shows something")]
#![allow(clippy::disallowed_methods, reason = "an ordinary program sleeps as it likes")]

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::Duration;

use ephor::hub::{HubConfig, LocalNamespace, NamespaceConfig};
use ephor::memory::MemoryStore;
use ephor::{BoxError, EventProcessorHost, EventSource, NewEvent};

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
    let folder = std::env::args_os().nth(1).unwrap_or_else(|| "ephor-data".into());
    let namespace = LocalNamespace::open(&folder, NamespaceConfig::default())?;
    let hub = namespace.ensure_hub(&HubConfig::new("homes", 4)?)?;
    println!("{:?} in {}", hub.name(), folder.display());

    // Two hosts that share a store of leases and checkpoints: in memory, so each run begins with the first event.
    let store = MemoryStore::default();
    let mut hosts = Vec::new();
    let (tell, mut told) = tokio::sync::mpsc::unbounded_channel();
    for name in ["host-a", "host-b"] {
        let tell = tell.clone();
        let host = EventProcessorHost::builder(hub.clone(), store.clone()).host_name(name).for_each_event(
            move |context, event| {
                let tell = tell.clone();
                async move {
                    let text = event.text().unwrap_or_default();
                    println!("{name}, partition {}, event {}: {text}", context.partition(), event.sequence);
                    tell.send((context.partition(), event.sequence))?;
                    Ok(())
                }
            },
        )?;
        host.start().await?;
        hosts.push(host);
    }

    // The sender. An answer means that the event is on disk.
    let producer = hub.producer();
    for home in 0..20 {
        let event = NewEvent::new(format!("the door of home {home} opened"));
        producer.send(NewEvent { partition_key: Some(format!("home-{home}").into()), ..event }).await?;
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    // Everything that the hub holds is processed before the hosts stop. An event may come twice: it counts once.
    let mut held = 0;
    for partition in hub.hub_properties().await?.partitions {
        let last = hub.partition_properties(partition).await?.last;
        held += last.map_or(0, |last| last.sequence.0 + 1);
    }
    let mut seen = BTreeSet::new();
    while (seen.len() as u64) < held {
        seen.extend(told.recv().await);
    }
    for host in hosts {
        println!("{}", host.stop(Duration::from_secs(10)).await?);
    }
    Ok(namespace.close()?)
}
