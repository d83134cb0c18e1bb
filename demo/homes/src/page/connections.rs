//! Accepts the page's connections, limits their number, and closes idle ones.
//!
//! A connection over which nothing goes in either direction holds a file of this process. A live page hears
//! something twice a second, and browsers connect again.

use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use axum::serve::Listener;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{Instant, Sleep};

/// Connections at the same time; one more waits until another has gone.
const MAX_CONNECTIONS: usize = 256;

/// A connection that is idle for this long is closed.
const TIME_TO_USE: Duration = Duration::from_secs(60);

/// A listener with a limit of connections.
pub(super) struct LimitedListener {
    listener: TcpListener,
    places: Arc<Semaphore>,
    time_to_use: Duration,
}

impl LimitedListener {
    pub(super) fn new(listener: TcpListener) -> Self {
        Self { listener, places: Arc::new(Semaphore::new(MAX_CONNECTIONS)), time_to_use: TIME_TO_USE }
    }
}

impl Listener for LimitedListener {
    type Io = IdleTimeoutStream;
    type Addr = SocketAddr;

    async fn accept(&mut self) -> (IdleTimeoutStream, SocketAddr) {
        // Never closed.
        let place = self.places.clone().acquire_owned().await.ok();
        // Waits a moment after an error, for example if too many files are open.
        let (stream, peer) = Listener::accept(&mut self.listener).await;
        let until = Box::pin(tokio::time::sleep_until(Instant::now() + self.time_to_use));
        (IdleTimeoutStream { stream, until, time_to_use: self.time_to_use, _place: place }, peer)
    }

    fn local_addr(&self) -> io::Result<SocketAddr> {
        self.listener.local_addr()
    }
}

/// A connection that ends when it is idle.
pub(super) struct IdleTimeoutStream {
    stream: TcpStream,
    until: Pin<Box<Sleep>>,
    time_to_use: Duration,
    _place: Option<OwnedSemaphorePermit>,
}

impl IdleTimeoutStream {
    /// Something went over it.
    fn used<T>(&mut self, done: Poll<T>) -> Poll<T> {
        if done.is_ready() {
            let until = Instant::now() + self.time_to_use;
            self.until.as_mut().reset(until);
        }
        done
    }
}

impl AsyncRead for IdleTimeoutStream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.stream).poll_read(cx, into);
        let read = self.used(read);
        if read.is_pending() && self.until.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::TimedOut.into()));
        }
        read
    }
}

impl AsyncWrite for IdleTimeoutStream {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write(cx, bytes);
        self.used(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(cx)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.stream).poll_write_vectored(cx, parts);
        self.used(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    async fn connected(time_to_use: Duration) -> (LimitedListener, IdleTimeoutStream, TcpStream) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let mut visitors = LimitedListener { time_to_use, ..LimitedListener::new(listener) };
        let (accepted, stream) = tokio::join!(visitors.accept(), TcpStream::connect(address));
        (visitors, accepted.0, stream.unwrap())
    }

    #[tokio::test]
    async fn a_connection_that_nobody_uses_comes_to_its_end() {
        let (_visitors, mut visitor, _silent) = connected(Duration::from_millis(20)).await;
        let read = tokio::time::timeout(Duration::from_secs(20), visitor.read(&mut [0; 16])).await;
        let ended = read.expect("the connection to be closed").unwrap_err();
        assert_eq!(ended.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn a_connection_that_is_used_stays_and_gives_its_place_back_when_it_goes() {
        let (visitors, mut visitor, mut stream) = connected(Duration::from_secs(60)).await;
        assert_eq!(visitors.places.available_permits(), MAX_CONNECTIONS - 1);
        stream.write_all(b"hello").await.unwrap();
        let mut heard = [0; 5];
        visitor.read_exact(&mut heard).await.unwrap();
        assert_eq!(&heard, b"hello");
        drop(visitor);
        assert_eq!(visitors.places.available_permits(), MAX_CONNECTIONS);
    }
}
