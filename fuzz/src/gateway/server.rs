//! A gateway over in-memory streams, on a tokio runtime of its own.

use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use ephor_gateway::{Gateway, GatewayConfig};
use ephor_hub::{HubConfig, LocalNamespace, NamespaceConfig};
use tokio::io::{AsyncReadExt, AsyncWriteExt, DuplexStream};
use tokio::runtime::Runtime;
use tokio::task::JoinSet;

use super::client::{Client, Sender};

/// The hub that seeds use.
pub(super) const HUB: &str = "homes";
/// A hub that no seed names, so that no input can displace its receiver.
pub(super) const QUIET_HUB: &str = "of-the-bystander";

/// The buffer size of a stream.
const STREAM: usize = 64 << 10;
/// After this time without a byte the peer disconnects: the hub's thread has answered by then, or has nothing
/// to do. A shorter time would test less, but cause no failure.
const QUIET: Duration = Duration::from_millis(1);
/// A time limit far longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

pub(super) struct Server {
    runtime: Runtime,
    gateway: Gateway,
    bystander: (Client, Sender),
    /// The gateway's tasks: that of the bystander's stream, and of new clients.
    tasks: JoinSet<()>,
    /// The number of conversations so far.
    pub(super) conversations: usize,
}

impl Server {
    pub(super) fn start() -> Self {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_time().build().expect("a runtime");
        let namespace = LocalNamespace::in_memory(NamespaceConfig::default()).expect("a namespace");
        for hub in [HUB, QUIET_HUB] {
            namespace.create_hub(HubConfig::new(hub, 2).expect("a hub")).expect("a hub");
        }
        let gateway = Gateway::new(Arc::new(namespace), GatewayConfig::default()).expect("a gateway");
        let mut tasks = JoinSet::new();
        let bystander = runtime.block_on(within("an undisturbed client", async {
            let stream = connect(&gateway, &mut tasks);
            let mut bystander = Client::open(stream).await;
            let sender = bystander.sender(QUIET_HUB).await;
            bystander.listen(QUIET_HUB, sender).await;
            (bystander, sender)
        }));
        Self { runtime, gateway, bystander, tasks, conversations: 0 }
    }

    /// Sends this to the gateway, reads all answers, and disconnects, which the gateway has to notice.
    /// Returns the answers.
    pub(super) fn hear(&mut self, said: &[u8]) -> Vec<u8> {
        self.conversations += 1;
        let (ours, theirs) = tokio::io::duplex(STREAM);
        let gateway = self.gateway.clone();
        let ((), heard) = self.runtime.block_on(within("the end of a conversation", async move {
            tokio::join!(Box::pin(gateway.serve_stream(theirs, peer())), talk(ours, said))
        }));
        assert!(self.tasks.try_join_next().is_none(), "the gateway disconnected the other client");
        heard
    }

    /// Checks that the bystander and a new client are served; panics if not.
    pub(super) fn answers(&mut self) {
        let Self { runtime, gateway, bystander: (bystander, sender), tasks, .. } = self;
        runtime.block_on(within("an answer to a client that keeps the rules", async {
            bystander.send(*sender).await;
            bystander.receive().await;
            let mut newcomer = Client::open(connect(gateway, tasks)).await;
            let to = newcomer.sender(HUB).await;
            newcomer.send(to).await;
            newcomer.close().await;
            tasks.join_next().await.expect("its end").expect("no panic");
        }));
    }
}

/// Opens a stream that the gateway serves concurrently.
fn connect(gateway: &Gateway, tasks: &mut JoinSet<()>) -> DuplexStream {
    let (ours, theirs) = tokio::io::duplex(STREAM);
    let gateway = gateway.clone();
    tasks.spawn(async move { Box::pin(gateway.serve_stream(theirs, peer())).await });
    ours
}

fn peer() -> SocketAddr {
    (Ipv4Addr::LOCALHOST, 1).into()
}

/// Writes and reads concurrently, until no more output comes; returns the output.
async fn talk(stream: DuplexStream, said: &[u8]) -> Vec<u8> {
    let (mut from, mut to) = tokio::io::split(stream);
    let mut heard = Vec::new();
    let saying = async {
        // A gateway that closes the connection does not read to the end.
        let _ = to.write_all(said).await;
        to
    };
    let mut saying = std::pin::pin!(saying);
    let mut said_all = None;
    loop {
        tokio::select! {
            biased;
            to = &mut saying, if said_all.is_none() => said_all = Some(to),
            read = from.read_buf(&mut heard) => if !matches!(read, Ok(1..)) { return heard },
            () = quiet(), if said_all.is_some() => break,
        }
    }
    if let Some(mut to) = said_all {
        let _ = to.shutdown().await;
    }
    while matches!(from.read_buf(&mut heard).await, Ok(1..)) {}
    heard
}

#[expect(clippy::disallowed_methods, reason = "streams are not simulated, and nothing depends on it")]
async fn quiet() {
    tokio::time::sleep(QUIET).await;
}

#[expect(clippy::disallowed_methods, reason = "a task that hangs must fail the test")]
async fn within<T>(what: &str, future: impl Future<Output = T>) -> T {
    let Ok(done) = tokio::time::timeout(PATIENCE, future).await else {
        panic!("timeout: waiting for {what}")
    };
    done
}
