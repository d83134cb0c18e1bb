//! A TCP proxy that injects a fault at a frame boundary.
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
struct Weather {
    struck: bool,
    /// Cut or reset.
    broken: bool,
    silent: bool,
    closed: [bool; 2],
    held: [Option<Instant>; 2],
    /// Nothing is forwarded any more.
    over: bool,
}

pub(crate) struct Saboteur {
    pub(crate) address: SocketAddr,
    first: Arc<Road>,
    connections: Arc<AtomicUsize>,
    task: JoinHandle<()>,
}

impl Saboteur {
    /// Without a plan it only counts frames.
    pub(crate) async fn start(server: SocketAddr, plan: Option<Plan>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let first = Arc::new(Road::new(plan));
        let connections = Arc::new(AtomicUsize::new(0));
        let (road, count) = (first.clone(), connections.clone());
        let task = tokio::spawn(async move {
            while let Ok((client, _)) = listener.accept().await {
                let road = match count.fetch_add(1, Ordering::Relaxed) {
                    0 => road.clone(),
                    _ => Arc::new(Road::new(None)),
                };
                tokio::spawn(async move {
                    road.carry(client, server).await;
                    road.weather.send_modify(|weather| weather.over = true);
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
    pub(crate) fn has_struck(&self) -> bool {
        self.first.weather.borrow().struck
    }

    /// Stops forwarding on the first connection now.
    pub(crate) fn silence(&self) {
        self.first.weather.send_modify(|weather| weather.silent = true);
    }

    /// Waits until held frames are forwarded, if there are any.
    pub(crate) async fn is_past(&self) {
        let held = self.first.weather.borrow().held.into_iter().flatten().max();
        if let Some(until) = held {
            sleep_until(until).await;
        }
    }

    /// Waits until the first connection has ended on both sides, or is blackholed.
    pub(crate) async fn first_is_over(&self) {
        let is_over = |weather: &Weather| weather.over || weather.silent;
        self.first.weather.subscribe().wait_for(is_over).await.unwrap();
    }
}

impl Drop for Saboteur {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// One proxied connection.
struct Road {
    plan: Option<Plan>,
    carried: Mutex<[usize; 2]>,
    weather: watch::Sender<Weather>,
}

impl Road {
    fn new(plan: Option<Plan>) -> Self {
        Self { plan, carried: Mutex::default(), weather: watch::Sender::default() }
    }

    async fn carry(&self, mut client: TcpStream, server: SocketAddr) {
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
        let mut weather = self.weather.subscribe();
        let both = async {
            tokio::join!(
                self.pass(Direction::Up, client_in, server_out),
                self.pass(Direction::Down, server_in, client_out)
            )
        };
        tokio::select! {
            biased;
            _ = weather.wait_for(|weather| weather.broken) => {}
            _ = both => {}
        }
    }

    /// Forwards frames until there are no more.
    async fn pass(&self, direction: Direction, mut from: ReadHalf<'_>, mut to: WriteHalf<'_>) {
        let mut weather = self.weather.subscribe();
        let mut frames = Frames::default();
        let mut buffer = vec![0; 16 * 1024];
        let mut open = true;
        self.strike_if_due(direction);
        loop {
            let now = *weather.borrow_and_update();
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
                _ = weather.changed() => {}
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
        self.weather.send_modify(|weather| {
            weather.struck = true;
            match plan.fault {
                Fault::Cut | Fault::Reset => weather.broken = true,
                Fault::Silence => weather.silent = true,
                Fault::HalfClose(of) => weather.closed[of as usize] = true,
                Fault::Hold(time) => weather.held = [Some(Instant::now() + time); 2],
                Fault::HoldOneWay(of, time) => weather.held[of as usize] = Some(Instant::now() + time),
            }
        });
    }
}
