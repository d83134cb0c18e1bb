//! Test helper: a TCP listener that simulates outages of a hub. It counts connection attempts, and forwards
//! them only while the hub is available.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Listens on all addresses of this machine, so that 127.0.0.1, 127.0.0.2 and so on all reach it: to a client
/// they are different hubs.
pub(crate) struct Gate {
    pub(crate) port: u16,
    open: watch::Sender<bool>,
    dials: Arc<Mutex<Vec<Instant>>>,
    task: JoinHandle<()>,
}

impl Gate {
    pub(crate) async fn to(server: SocketAddr) -> Self {
        let listener = TcpListener::bind("0.0.0.0:0").await.unwrap();
        let port = listener.local_addr().unwrap().port();
        let (open, mut state) = watch::channel(true);
        let dials = Arc::<Mutex<Vec<Instant>>>::default();
        let noted = dials.clone();
        let task = tokio::spawn(async move {
            while let Ok((mut client, _)) = listener.accept().await {
                noted.lock().unwrap().push(Instant::now());
                // Like the load balancer of an unavailable hub, it accepts the connection and drops it.
                if !*state.borrow_and_update() {
                    continue;
                }
                let mut state = state.clone();
                tokio::spawn(async move {
                    let Ok(mut server) = TcpStream::connect(server).await else { return };
                    tokio::select! {
                        _ = copy_bidirectional(&mut client, &mut server) => {}
                        _ = state.wait_for(|open| !open) => {}
                    }
                });
            }
        });
        Self { port, open, dials, task }
    }

    /// Cuts all connections and forwards no more dials.
    pub(crate) fn close(&self) {
        self.open.send_replace(false);
    }

    /// Forwards dials again.
    pub(crate) fn open(&self) {
        self.open.send_replace(true);
    }

    /// The times of all dials since this instant.
    pub(crate) fn dials_since(&self, start: Instant) -> Vec<Duration> {
        let dials = self.dials.lock().unwrap();
        dials.iter().filter(|at| **at >= start).map(|at| at.duration_since(start)).collect()
    }
}

impl Drop for Gate {
    fn drop(&mut self) {
        self.task.abort();
    }
}
