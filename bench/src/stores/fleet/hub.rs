//! The hub that the fleet reads (in memory, with a gateway), and the numbered events that are sent to it.

use std::future::pending;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ephor::NewEvent;
use ephor::{BoxError, PartitionId};
use ephor_gateway::{Gateway, GatewayConfig, listen};
use ephor_hub::{Hub, HubConfig, LocalNamespace, NamespaceConfig};
use tokio::net::TcpListener;

use crate::machine::{now, pause, since};

const NAME: &str = "fleet";

/// The time in which every partition gets an event.
pub(super) const ROUND: Duration = Duration::from_secs(2);

/// The number of portions in which the events of a round are sent.
const PORTIONS: u32 = 20;

pub(super) struct Source {
    hub: Hub,
    gateway: Gateway,
    /// The number of completed rounds, which is the number of the next event in every partition.
    pub(super) rounds: Arc<AtomicU64>,
}

impl Source {
    pub(super) fn new(partitions: u32) -> Result<Self, BoxError> {
        let namespace = Arc::new(LocalNamespace::in_memory(NamespaceConfig::default())?);
        let hub = namespace.create_hub(HubConfig::new(NAME, partitions)?)?;
        let gateway = Gateway::new(namespace, GatewayConfig::default())?;
        Ok(Self { hub, gateway, rounds: Arc::default() })
    }

    /// A listener, and its connection string.
    pub(super) fn listen() -> Result<(TcpListener, String), BoxError> {
        let listener = listen("127.0.0.1:0".parse()?)?;
        let connection = format!(
            "Endpoint=sb://127.0.0.1:{};SharedAccessKeyName=RootManageSharedAccessKey;\
             SharedAccessKey=SAS_KEY_VALUE;UseDevelopmentEmulator=true;EntityPath={NAME}",
            listener.local_addr()?.port()
        );
        Ok((listener, connection))
    }

    pub(super) async fn serve(&self, listener: TcpListener) -> Result<(), BoxError> {
        Ok(self.gateway.serve(listener, pending()).await?)
    }

    /// Sends an event to every partition in turn, again and again, until `enough`.
    pub(super) async fn send(&self, enough: impl Fn() -> bool) -> Result<(), BoxError> {
        let producer = self.hub.producer();
        let partitions = self.hub.partition_count();
        let portion = partitions.div_ceil(PORTIONS);
        let began = now();
        for round in 0.. {
            if enough() {
                return Ok(());
            }
            for partition in 0..partitions {
                let sent = producer.send_to(PartitionId(partition), NewEvent::new(round.to_string())).await?;
                if sent.first.0 != u64::from(round) {
                    return Err(format!("event {round} of partition {partition} is {}", sent.first).into());
                }
                if partition % portion == portion - 1 {
                    let due = ROUND * round + ROUND / PORTIONS * (partition / portion + 1);
                    pause(due.saturating_sub(since(began))).await;
                }
            }
            self.rounds.store(u64::from(round) + 1, Ordering::SeqCst);
        }
        Ok(())
    }
}
