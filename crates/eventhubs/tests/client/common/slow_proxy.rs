//! Test helper: a TCP proxy that forwards few bytes per second, through small socket buffers.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpSocket, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;

/// The size of each socket buffer.
const SOCKET: u32 = 16 << 10;
const CHUNK: usize = 4 << 10;

/// The rates of a connection in bytes per second, up and down.
#[derive(Clone, Copy)]
pub(crate) struct Rates {
    pub(crate) up: u64,
    pub(crate) down: u64,
}

/// As fast as the machine allows.
pub(crate) const FAST: u64 = u64::MAX;

pub(crate) struct Slow {
    pub(crate) address: SocketAddr,
    connections: Arc<AtomicU64>,
    down: Arc<AtomicU64>,
    cut: watch::Sender<u64>,
    task: JoinHandle<()>,
}

impl Slow {
    pub(crate) async fn start(server: SocketAddr, rates: Rates) -> Self {
        let listener = small_socket();
        listener.bind("127.0.0.1:0".parse().unwrap()).unwrap();
        let listener = listener.listen(16).unwrap();
        let address = listener.local_addr().unwrap();
        let (connections, down) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let (cut, cuts) = watch::channel(0);
        let (count, carried) = (connections.clone(), down.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                count.fetch_add(1, Ordering::Relaxed);
                tokio::spawn(carry(client, server, rates, carried.clone(), cuts.clone()));
            }
        });
        Self { address, connections, down, cut, task }
    }

    /// The number of connections that were made.
    pub(crate) fn connections(&self) -> u64 {
        self.connections.load(Ordering::Relaxed)
    }

    /// The number of bytes that were carried to clients.
    pub(crate) fn carried_down(&self) -> u64 {
        self.down.load(Ordering::Relaxed)
    }

    /// Cuts all current connections.
    pub(crate) fn cut(&self) {
        self.cut.send_modify(|count| *count += 1);
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        self.task.abort();
    }
}

fn small_socket() -> TcpSocket {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_send_buffer_size(SOCKET).unwrap();
    socket.set_recv_buffer_size(SOCKET).unwrap();
    socket
}

async fn carry(
    client: TcpStream,
    server: SocketAddr,
    rates: Rates,
    down: Arc<AtomicU64>,
    mut cuts: watch::Receiver<u64>,
) {
    let Ok(server) = small_socket().connect(server).await else { return };
    cuts.mark_unchanged();
    let (client_in, client_out) = client.into_split();
    let (server_in, server_out) = server.into_split();
    tokio::select! {
        () = pass(client_in, server_out, rates.up, Arc::default()) => {}
        () = pass(server_in, client_out, rates.down, down) => {}
        _ = cuts.changed() => {}
    }
}

async fn pass(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, rate: u64, carried: Arc<AtomicU64>) {
    let mut buffer = vec![0; CHUNK];
    while let Ok(count @ 1..) = from.read(&mut buffer).await {
        if to.write_all(&buffer[..count]).await.is_err() {
            return;
        }
        carried.fetch_add(count as u64, Ordering::Relaxed);
        if rate != FAST {
            tokio::time::sleep(Duration::from_nanos(1_000_000_000 * count as u64 / rate)).await;
        }
    }
}
