//! Sixteen partitions and five hosts: one host is stopped, one crashes, one joins.
//!
//! Everything runs in this process, in memory and in real time: a hub to which sensors send, a
//! store that the hosts share, and the hosts. The output shows the owner of each partition, and
//! that every event is processed whatever happens.
//!
//! `cargo run -p ephor --example five_hosts`

#![allow(clippy::print_stdout, reason = "an example that shows something")]
#![allow(clippy::disallowed_methods, reason = "an ordinary program sleeps and spawns as it likes")]

use std::collections::{BTreeMap, BTreeSet};
use std::process::ExitCode;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use ephor::memory::{MemoryHub, MemoryStore};
use ephor::{
    BoxError, CheckpointPolicy, EventProcessorHost, EventProcessorOptions, PartitionId,
    PartitionManagerOptions, SequenceNumber,
};
use tokio::time::sleep;

/// Shorter than the defaults, so that there is something to see within seconds.
fn quick() -> PartitionManagerOptions {
    PartitionManagerOptions {
        lease_duration: Duration::from_secs(3),
        renew_interval: Duration::from_secs(1),
        slow_scan: Duration::from_millis(500),
        fast_scan: Duration::from_millis(200),
        fence_margin: Duration::from_millis(300),
        store_timeout: Duration::from_millis(500),
        ..PartitionManagerOptions::default()
    }
}

/// The events that were processed, and the number of repetitions.
#[derive(Default)]
struct Seen {
    events: BTreeSet<(PartitionId, SequenceNumber)>,
    repeated: u64,
}

type Hosts = BTreeMap<&'static str, EventProcessorHost>;

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
    let hub = MemoryHub::new("homes", 16)?;
    let store = MemoryStore::default();
    let seen = Arc::new(Mutex::new(Seen::default()));
    let sensors = tokio::spawn(send(hub.clone()));

    let mut hosts = Hosts::new();
    for name in ["vm-0", "vm-1", "vm-2", "vm-3", "vm-4"] {
        hosts.insert(name, start(name, &hub, &store, &seen).await?);
    }
    sleep(Duration::from_secs(2)).await;
    show("five hosts share sixteen partitions", &hosts);

    let leaving = hosts.remove("vm-1").ok_or("vm-1 was started")?;
    let report = leaving.stop(Duration::from_secs(5)).await?;
    sleep(Duration::from_millis(500)).await;
    show(&format!("vm-1 is stopped: {report}"), &hosts);

    // Dropped without a stop, as if its machine had lost power.
    hosts.remove("vm-3");
    sleep(Duration::from_secs(5)).await;
    show("vm-3 has died, its leases have expired", &hosts);

    hosts.insert("vm-5", start("vm-5", &hub, &store, &seen).await?);
    sleep(Duration::from_secs(2)).await;
    show("vm-5 has joined and was handed its share", &hosts);

    sensors.await??;
    sleep(Duration::from_millis(500)).await;
    for host in hosts.values() {
        host.stop(Duration::from_secs(5)).await?;
    }
    let sent: u64 = hub.ends().iter().map(|(_, last)| last.map_or(0, |last| last.0 + 1)).sum();
    let seen = seen.lock().map_err(|_| "a processor panicked")?;
    println!(
        "\n{sent} events sent, {} processed, {} of them again after the crash",
        seen.events.len(),
        seen.repeated
    );
    if sent == seen.events.len() as u64 { Ok(()) } else { Err("events are missing".into()) }
}

async fn start(
    name: &'static str,
    hub: &MemoryHub,
    store: &MemoryStore,
    seen: &Arc<Mutex<Seen>>,
) -> Result<EventProcessorHost, BoxError> {
    let seen = seen.clone();
    let host = EventProcessorHost::builder(hub.clone(), store.clone())
        .host_name(name)
        .manager_options(quick())
        .options(EventProcessorOptions {
            checkpoint: CheckpointPolicy::every_events(20),
            ..EventProcessorOptions::default()
        })
        .for_each_event(move |context, event| {
            let seen = seen.clone();
            async move {
                let mut seen = seen.lock().map_err(|_| "a processor panicked")?;
                let fresh = seen.events.insert((context.partition(), event.sequence));
                seen.repeated += u64::from(!fresh);
                Ok(())
            }
        })?;
    host.start().await?;
    Ok(host)
}

/// 500 events a second for eleven seconds, to all partitions in turn.
async fn send(hub: MemoryHub) -> Result<(), BoxError> {
    for tick in 0..550_u32 {
        for n in 0..10 {
            hub.send(PartitionId((tick * 10 + n) % 16), format!("motion in home {}", tick * 10 + n))?;
        }
        sleep(Duration::from_millis(20)).await;
    }
    Ok(())
}

fn show(title: &str, hosts: &Hosts) {
    println!("\n{title}");
    for (name, host) in hosts {
        let Some(snapshot) = host.snapshot() else { continue };
        let owned: Vec<String> = snapshot
            .partitions
            .iter()
            .map(|owned| format!("{} (epoch {}, lag {})", owned.partition, owned.epoch, owned.lag.events))
            .collect();
        println!("  {name}  {:>4} events  {}", snapshot.statistics.events, owned.join(", "));
    }
}
