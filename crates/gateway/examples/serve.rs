//! Serves a hub in memory through the gateway, to try clients by hand: `serve ADDRESS [HUB:PARTITIONS]…`.

use std::process::ExitCode;
use std::sync::Arc;

use ephor_gateway::{Gateway, GatewayConfig, listen};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};

#[tokio::main]
async fn main() -> ExitCode {
    tracing_subscriber::fmt()
        .with_env_filter(tracing_subscriber::EnvFilter::from_default_env())
        .with_writer(std::io::stderr)
        .init();
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result<(), Box<dyn std::error::Error>> {
    let mut arguments = std::env::args().skip(1);
    let address = arguments.next().unwrap_or_else(|| "127.0.0.1:5672".to_owned());
    let namespace = Arc::new(LocalNamespace::in_memory(NamespaceConfig::default())?);
    let hubs: Vec<String> = arguments.collect();
    for hub in if hubs.is_empty() { vec!["eh1:4".to_owned()] } else { hubs } {
        let (name, partitions) = hub.split_once(':').unwrap_or((&hub, "4"));
        namespace.create_hub(HubConfig::new(name, partitions.parse()?)?)?;
    }
    let listener = listen(address.parse()?)?;
    tracing::info!(address = %listener.local_addr()?, "ready");
    let stop = async {
        let _ = tokio::signal::ctrl_c().await;
    };
    Gateway::new(namespace.clone(), GatewayConfig::default())?.serve(listener, stop).await?;
    namespace.close()?;
    Ok(())
}
