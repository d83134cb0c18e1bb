//! Test helper: a TCP proxy that cuts connections after a number of bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The number of bytes that a connection carries, up and down, before it is cut.
pub(crate) type Plan = Arc<dyn Fn(u64) -> (u64, u64) + Send + Sync>;

/// A proxy between a client and a server.
pub(crate) struct Proxy {
    pub(crate) address: SocketAddr,
    pub(crate) connections: Arc<AtomicU64>,
    cut: watch::Sender<u64>,
    healed: Arc<AtomicBool>,
    task: JoinHandle<()>,
}

impl Proxy {
    /// `plan` returns for each connection, counted from 0, the bytes that it carries up and down.
    pub(crate) async fn start(server: SocketAddr, plan: Plan) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Arc::new(AtomicU64::new(0));
        let healed = Arc::new(AtomicBool::new(false));
        let (cut, cuts) = watch::channel(0);
        let (count, well) = (connections.clone(), healed.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let number = count.fetch_add(1, Ordering::Relaxed);
                let (up, down) = match well.load(Ordering::Relaxed) {
                    true => (u64::MAX, u64::MAX),
                    false => plan(number),
                };
                tokio::spawn(carry(client, server, up, down, cuts.clone()));
            }
        });
        Self { address, connections, cut, healed, task }
    }

    /// A proxy that cuts only when it is told to.
    pub(crate) async fn reliable(server: SocketAddr) -> Self {
        Self::start(server, Arc::new(|_| (u64::MAX, u64::MAX))).await
    }

    /// Cuts all current connections.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }

    /// Stops cutting new connections.
    pub(crate) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn carry(client: TcpStream, server: SocketAddr, up: u64, down: u64, mut cuts: watch::Receiver<u64>) {
    let Ok(server) = TcpStream::connect(server).await else { return };
    cuts.mark_unchanged();
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    tokio::select! {
        () = pass(client_in, server_out, up) => {}
        () = pass(server_in, client_out, down) => {}
        _ = cuts.changed() => {}
    }
}

/// Forwards at most `left` bytes.
async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, mut left: u64) {
    let mut buffer = vec![0; 16 * 1024];
    while left > 0 {
        let most = usize::try_from(left).unwrap_or(usize::MAX).min(buffer.len());
        match from.read(&mut buffer[..most]).await {
            Ok(count) if count > 0 => {
                if to.write_all(&buffer[..count]).await.is_err() {
                    return;
                }
                left -= count as u64;
            }
            _ => return,
        }
    }
}
