//! Measures events per second through gateway and client on this machine: `loopback_rate [EVENTS]`.
#![allow(clippy::print_stdout, reason = "that is what it is for")]
#![allow(clippy::disallowed_methods, reason = "it measures real time on real sockets")]

use std::process::ExitCode;
use std::sync::Arc;
use std::time::Instant;

use ephor_core::event::NewEvent;
use ephor_core::ids::{ConsumerGroup, PartitionId};
use ephor_core::position::StartPosition;
use ephor_core::source::{EventSource, OpenRequest};
use ephor_eventhubs::{ConnectionString, EventHub, Target};
use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};

const BODY: usize = 1_024;
const BATCH: usize = 500;
const SENDERS: usize = 4;

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

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let events: usize = std::env::args().nth(1).map_or(Ok(400_000), |text| text.parse())?;
    let namespace = Arc::new(LocalNamespace::in_memory(NamespaceConfig::default())?);
    namespace.create_hub(HubConfig::new("homes", 1)?)?;
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await?;
    let port = listener.local_addr()?.port();
    let gateway = Gateway::new(namespace, GatewayConfig::default())?;
    tokio::spawn(async move { gateway.serve(listener, std::future::pending()).await });
    let string = ConnectionString::development(&"127.0.0.1".parse()?, port, None);
    let client = EventHub::builder_for(string).hub("homes").build()?;

    let producer = client.producer();
    let begun = Instant::now();
    let sends = (0..SENDERS).map(|_| {
        let producer = producer.clone();
        tokio::spawn(async move {
            for _ in 0..events / BATCH / SENDERS {
                let batch = (0..BATCH).map(|_| NewEvent::new(vec![7; BODY]));
                producer.send_batch(Target::Partition(PartitionId(0)), batch).await?;
            }
            Ok::<(), ephor_eventhubs::SendError>(())
        })
    });
    for send in sends.collect::<Vec<_>>() {
        send.await??;
    }
    let sent = events / BATCH / SENDERS * SENDERS * BATCH;
    println!("sent      {:>9.0} events/s", sent as f64 / begun.elapsed().as_secs_f64());

    let mut receiver = client
        .open(OpenRequest {
            group: ConsumerGroup::default_group(),
            partition: PartitionId(0),
            start: StartPosition::Earliest,
            epoch: None,
            receiver: "rate".into(),
            prefetch_events: 3_000,
            prefetch_bytes: 8 << 20,
        })
        .await?;
    let begun = Instant::now();
    // A hub in memory keeps a limited amount, so read up to the last event and not up to the number sent.
    let last = client.partition_properties(PartitionId(0)).await?.last.map(|last| last.sequence);
    let (mut received, mut batch) = (0, Vec::new());
    while batch.last().map(|event: &ephor_core::event::Event| event.sequence) != last {
        batch.clear();
        receiver.receive(&mut batch, 1_000).await?;
        received += batch.len();
    }
    println!("received  {:>9.0} events/s", received as f64 / begun.elapsed().as_secs_f64());
    Ok(())
}
