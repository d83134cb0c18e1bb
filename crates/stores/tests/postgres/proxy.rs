//! Test helper: a proxy between store and server that delays, cuts and withholds answers, and can switch to
//! another server.

use std::sync::atomic::{AtomicBool, AtomicU16, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;

/// The faults that the proxy applies to its connections.
#[derive(Default)]
pub(crate) struct Weather {
    /// Every answer comes this much later.
    pub(crate) delay_ms: AtomicU64,
    /// And by up to this much more, each by another time.
    pub(crate) jitter_ms: AtomicU64,
    /// Requests arrive, and no answer comes back.
    pub(crate) swallows: AtomicBool,
    /// Answers wait here until this is false again.
    pub(crate) held: AtomicBool,
    /// Nobody new is let through.
    pub(crate) closed: AtomicBool,
    to: AtomicU16,
    cut: Notify,
    /// The kinds of messages from clients, after those of the greeting.
    kinds: Mutex<Vec<u8>>,
    connections: AtomicUsize,
}

impl Weather {
    /// Cuts all connections.
    pub(crate) fn cut(&self) {
        self.cut.notify_waiters();
    }

    pub(crate) fn clear_up(&self) {
        self.delay_ms.store(0, Ordering::SeqCst);
        self.jitter_ms.store(0, Ordering::SeqCst);
        self.swallows.store(false, Ordering::SeqCst);
        self.closed.store(false, Ordering::SeqCst);
    }

    /// Leads new connections to another port of this machine.
    pub(crate) fn lead_to(&self, port: u16) {
        self.to.store(port, Ordering::SeqCst);
    }

    fn delay(&self) -> Duration {
        let jitter = self.jitter_ms.load(Ordering::SeqCst);
        Duration::from_millis(self.delay_ms.load(Ordering::SeqCst) + fastrand::u64(..=jitter))
    }

    /// The kinds of messages that clients have sent since the last call.
    pub(crate) fn take_kinds(&self) -> String {
        String::from_utf8(std::mem::take(&mut *self.kinds.lock().unwrap())).unwrap()
    }

    pub(crate) fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }
}

/// A proxy to a port of this machine; gives its own port.
pub(crate) async fn start(to: u16) -> (u16, Arc<Weather>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let weather = Arc::new(Weather::default());
    weather.lead_to(to);
    let shared = weather.clone();
    tokio::spawn(async move {
        while let Ok((client, _)) = listener.accept().await {
            if !shared.closed.load(Ordering::SeqCst) {
                tokio::spawn(serve(client, shared.clone()));
            }
        }
    });
    (port, weather)
}

async fn serve(client: TcpStream, weather: Arc<Weather>) {
    let to = weather.to.load(Ordering::SeqCst);
    let Ok(server) = TcpStream::connect(("127.0.0.1", to)).await else { return };
    let _ = (client.set_nodelay(true), server.set_nodelay(true));
    weather.connections.fetch_add(1, Ordering::SeqCst);
    let (from_client, to_client) = client.into_split();
    let (from_server, to_server) = server.into_split();
    tokio::select! {
        () = weather.cut.notified() => {}
        () = ask(from_client, to_server, &weather) => {}
        () = answer(from_server, to_client, &weather) => {}
    }
}

async fn ask(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, weather: &Weather) {
    let mut buffer = vec![0; 64 * 1024];
    let mut messages = Messages::default();
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        messages.take_in(&buffer[..length], weather);
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

async fn answer(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, weather: &Weather) {
    let mut buffer = vec![0; 64 * 1024];
    while let Ok(length @ 1..) = from.read(&mut buffer).await {
        let delay = weather.delay();
        if !delay.is_zero() {
            tokio::time::sleep(delay).await;
        }
        while weather.held.load(Ordering::SeqCst) {
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
        if weather.swallows.load(Ordering::SeqCst) {
            continue;
        }
        if to.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}

/// Cuts what a client sends into messages: a greeting without a kind, then a kind and a length each.
#[derive(Default)]
struct Messages {
    pending: Vec<u8>,
    greeted: bool,
}

impl Messages {
    fn take_in(&mut self, bytes: &[u8], weather: &Weather) {
        self.pending.extend_from_slice(bytes);
        loop {
            let kind_length = usize::from(self.greeted);
            let Some(length) = self.pending.get(kind_length..kind_length + 4) else { return };
            let total = kind_length + u32::from_be_bytes(length.try_into().unwrap()) as usize;
            if self.pending.len() < total {
                return;
            }
            if self.greeted {
                weather.kinds.lock().unwrap().push(self.pending[0]);
            }
            self.greeted = true;
            self.pending.drain(..total);
        }
    }
}
