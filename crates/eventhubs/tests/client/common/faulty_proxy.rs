//! Test helper: a TCP proxy that injects a fault at a frame boundary.
//!
//! ```text
//!   client ── Up ──► [ frame │ frame │ ✗ ] ──► server
//!          ◄── Down ──────────────────────────
//! ```
//!
//! Only the first connection gets a fault, once: after a given number of frames in one direction. The frame
//! before it is forwarded completely, the next one not at all.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{ReadHalf, WriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::{Instant, sleep_until};

use super::frames::Frames;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Direction {
    Up,
    Down,
}

impl Direction {
    pub(crate) const BOTH: [Self; 2] = [Self::Up, Self::Down];
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Both sides see the end of the stream.
    Cut,
    /// Both sides see a reset.
    Reset,
    /// One side sees the end of the stream and can still send; what the other sends is lost.
    HalfClose(Direction),
    /// Nothing is forwarded in either direction any more, and neither side sees an end.
    Silence,
    /// Nothing is forwarded in either direction for this time, then everything is.
    Hold(Duration),
    /// Nothing is forwarded in this direction for this time, then everything is; the other direction works.
    HoldOneWay(Direction, Duration),
}

/// The fault of the first connection, and its place.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Plan {
    pub(crate) direction: Direction,
    pub(crate) frames: usize,
    pub(crate) fault: Fault,
}

/// The state of the first connection.
#[derive(Clone, Copy, Debug, Default)]
struct ConnectionState {
    injected: bool,
    /// Cut or reset.
    broken: bool,
    silent: bool,
    closed: [bool; 2],
    held: [Option<Instant>; 2],
    /// Nothing is forwarded any more.
    over: bool,
}

pub(crate) struct FaultyProxy {
    pub(crate) address: SocketAddr,
    first: Arc<ProxiedConnection>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl FaultyProxy {
    /// Without a plan it only counts frames.
    pub(crate) async fn start(server: SocketAddr, plan: Option<Plan>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let first = Arc::new(ProxiedConnection::new(plan));
        let connections = Arc::new(AtomicUsize::new(0));
        let (connection, count) = (first.clone(), connections.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let connection = match count.fetch_add(1, Ordering::Relaxed) {
                    0 => connection.clone(),
                    _ => Arc::new(ProxiedConnection::new(None)),
                };
                tokio::spawn(async move {
                    connection.forward(client, server).await;
                    connection.state.send_modify(|state| state.over = true);
                });
            }
        });
        Self { address, first, connections, task }
    }

    /// The number of frames that the first connection has carried, up and down.
    pub(crate) fn carried(&self) -> [usize; 2] {
        *self.first.carried.lock().unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::Relaxed)
    }

    /// True if the fault was injected.
    pub(crate) fn was_injected(&self) -> bool {
        self.first.state.borrow().injected
    }

    /// Stops forwarding on the first connection now.
    pub(crate) fn silence(&self) {
        self.first.state.send_modify(|state| state.silent = true);
    }

    /// Waits until held frames are forwarded, if there are any.
    pub(crate) async fn hold_ended(&self) {
        let held = self.first.state.borrow().held.into_iter().flatten().max();
        if let Some(until) = held {
            sleep_until(until).await;
        }
    }

    /// Waits until the first connection has ended on both sides, or is blackholed.
    pub(crate) async fn first_ended(&self) {
        let is_over = |state: &ConnectionState| state.over || state.silent;
        self.first.state.subscribe().wait_for(is_over).await.unwrap();
    }
}

impl Drop for FaultyProxy {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One proxied connection.
struct ProxiedConnection {
    plan: Option<Plan>,
    carried: Mutex<[usize; 2]>,
    state: watch::Sender<ConnectionState>,
}

impl ProxiedConnection {
    fn new(plan: Option<Plan>) -> Self {
        Self { plan, carried: Mutex::default(), state: watch::Sender::default() }
    }

    async fn forward(&self, mut client: TcpStream, server: SocketAddr) {
        let Ok(mut server) = TcpStream::connect(server).await else { return };
        client.set_nodelay(true).unwrap();
        server.set_nodelay(true).unwrap();
        if matches!(self.plan, Some(Plan { fault: Fault::Reset, .. })) {
            // With zero linger, dropping the sockets resets them.
            client.set_zero_linger().unwrap();
            server.set_zero_linger().unwrap();
        }
        // Borrowed halves, since owned ones would send an end of stream before the reset.
        let (client_in, client_out) = client.split();
        let (server_in, server_out) = server.split();
        let mut state = self.state.subscribe();
        let both = async {
            tokio::join!(
                self.pass(Direction::Up, client_in, server_out),
                self.pass(Direction::Down, server_in, client_out)
            )
        };
        tokio::select! {
            biased;
            _ = state.wait_for(|state| state.broken) => {}
            _ = both => {}
        }
    }

    /// Forwards frames until there are no more.
    async fn pass(&self, direction: Direction, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) {
        let mut state = self.state.subscribe();
        let mut frames = Frames::default();
        let mut buffer = vec![0; 16 * 1024];
        let mut open = true;
        self.strike_if_due(direction);
        loop {
            let now = *state.borrow_and_update();
            if now.silent {
                return std::future::pending().await;
            }
            if let Some(until) = now.held[direction as usize] {
                sleep_until(until).await;
            }
            if open && now.closed[direction as usize] {
                open = false;
                to.shutdown().await.ok();
            }
            if let Some(frame) = frames.next() {
                if open && to.write_all(&frame).await.is_err() {
                    return;
                }
                self.count(direction);
                continue;
            }
            tokio::select! {
                biased;
                _ = state.changed() => {}
                read = from.read(&mut buffer) => match read {
                    Ok(count) if count > 0 => frames.push(&buffer[..count]),
                    _ => break,
                }
            }
        }
        to.shutdown().await.ok();
    }

    fn count(&self, direction: Direction) {
        self.carried.lock().unwrap()[direction as usize] += 1;
        self.strike_if_due(direction);
    }

    fn strike_if_due(&self, direction: Direction) {
        let Some(plan) = self.plan.filter(|plan| plan.direction == direction) else { return };
        if self.carried.lock().unwrap()[direction as usize] != plan.frames {
            return;
        }
        self.state.send_modify(|state| {
            state.injected = true;
            match plan.fault {
                Fault::Cut | Fault::Reset => state.broken = true,
                Fault::Silence => state.silent = true,
                Fault::HalfClose(of) => state.closed[of as usize] = true,
                Fault::Hold(time) => state.held = [Some(Instant::now() + time); 2],
                Fault::HoldOneWay(of, time) => state.held[of as usize] = Some(Instant::now() + time),
            }
        });
    }
}
