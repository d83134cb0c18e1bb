//! Runs a [`Connection`] on a socket: TCP, TLS, or anything that can be read and written.
//!
//! A driver has no task of its own. Its owner polls for the next event, usually in a `select!` beside its
//! other sources, and gives commands to the connection in between; their output is written when the next
//! event is polled. So one task owns a connection with all its state, and a turn of its loop becomes one
//! write.
//!
//! ```text
//! loop {
//!     select! {
//!         event = driver.next() => …,                      // reads, writes, heartbeats
//!         news = receivers.next() => …send until it is Blocked…,
//!         command = commands.recv() => …,
//!     }
//! }
//! ```
//!
//! A server that echoes messages, and a client:
//!
//! ```
//! use std::time::Duration;
//! use ephor_amqp::Connection;
//! use ephor_amqp::connection::{ClientSasl, Config, Event, Sent, ServerSasl};
//! use ephor_amqp::driver::Driver;
//! use ephor_amqp::performative::{Attach, Outcome, Role};
//!
//! async fn serve(stream: tokio::io::DuplexStream) {
//!     let connection = Connection::server(Config::new("echo"), ServerSasl::default(), Duration::ZERO);
//!     let mut driver = Driver::new(stream, connection);
//!     let mut back = None;
//!     while let Some(event) = driver.next().await {
//!         let connection = driver.connection();
//!         match event {
//!             Event::AttachRequested { link, attach, .. } => {
//!                 connection.accept(link, Attach { max_message_size: Some(1 << 20), ..attach.answer() });
//!                 match attach.role {
//!                     Role::Sender => connection.grant(link, 100),
//!                     Role::Receiver => back = Some(link),
//!                 }
//!             }
//!             Event::Delivery(delivery) => {
//!                 connection.settle(delivery.link, delivery.id, delivery.id, &Outcome::Accepted);
//!                 let sent = connection.send(back.unwrap(), delivery.format, true, &[&delivery.payload]);
//!                 assert!(matches!(sent, Sent::Sent(_)));
//!             }
//!             _ => {}
//!         }
//!     }
//! }
//!
//! async fn call(stream: tokio::io::DuplexStream) -> Vec<u8> {
//!     let connection = Connection::client(Config::new("client"), ClientSasl::Anonymous, Duration::ZERO);
//!     let mut driver = Driver::new(stream, connection);
//!     let mut answer = Vec::new();
//!     while let Some(event) = driver.next().await {
//!         let connection = driver.connection();
//!         match event {
//!             Event::Opened(_) => {
//!                 let session = connection.begin().unwrap();
//!                 connection.attach(session, Attach::receiver("back", "echo"));
//!                 connection.attach(session, Attach::sender("there", "echo"));
//!             }
//!             Event::Attached { link, attach } if attach.role == Role::Sender => connection.grant(link, 1),
//!             Event::Credit { link, .. } => {
//!                 assert_eq!(connection.send(link, 0, false, &[b"hel", b"lo"]), Sent::Sent(0));
//!             }
//!             Event::Delivery(delivery) => {
//!                 answer = delivery.payload.to_vec();
//!                 connection.close(None);
//!             }
//!             _ => {}
//!         }
//!     }
//!     answer
//! }
//!
//! # tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap().block_on(async {
//! let (ours, theirs) = tokio::io::duplex(64);
//! let (answer, ()) = tokio::join!(call(ours), serve(theirs));
//! assert_eq!(answer, b"hello");
//! # });
//! ```

use std::future::{Future, poll_fn};
use std::pin::{Pin, pin};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::time::{Instant, Sleep};

use crate::connection::{Connection, Event};

/// The initial read size, because many connections never send more than a few frames.
const FIRST_READ: usize = 4 * 1024;
/// If at least this many bytes of output wait, they are written before anything else.
const WRITE_FIRST: usize = 64 * 1024;
/// The number of rounds without an event after which a driver yields to other tasks.
const MAX_TURNS: usize = 64;

/// A connection and its transport.
pub struct Driver<S> {
    connection: Connection,
    stream: S,
    origin: Instant,
    timer: Option<Pin<Box<Sleep>>>,
    /// The timeout for the shutdown of the transport.
    shutdown: Option<Pin<Box<Sleep>>>,
    read_size: usize,
    /// Something was written that the transport may still buffer.
    unflushed: bool,
}

impl<S: AsyncRead + AsyncWrite + Unpin> Driver<S> {
    /// Joins a transport and a connection. The connection has to be new and started at time zero, because its
    /// time begins now.
    pub fn new(stream: S, connection: Connection) -> Self {
        Self {
            connection,
            stream,
            origin: Instant::now(),
            timer: None,
            shutdown: None,
            read_size: FIRST_READ,
            unflushed: false,
        }
    }

    /// The connection, to give it commands.
    pub fn connection(&mut self) -> &mut Connection {
        &mut self.connection
    }

    /// The transport.
    pub fn stream(&self) -> &S {
        &self.stream
    }

    /// The next event; `None` when the connection is over and the last bytes are written. Cancel-safe:
    /// nothing that was read or written is lost, and nothing is written twice.
    ///
    /// Go on polling after [`Event::Closed`], so that the peer is told.
    pub async fn next(&mut self) -> Option<Event> {
        poll_fn(|context| self.poll_next(context)).await
    }

    /// Closes the connection if it is not closed, and waits until the peer has answered, as long as the
    /// limits of the connection allow. Events that come meanwhile are dropped.
    pub async fn finish(&mut self) {
        self.connection.close(None);
        while self.next().await.is_some() {}
    }

    /// Writes what the transport takes at once, and does not wait for the rest.
    pub async fn write_now(&mut self) {
        poll_fn(|context| {
            self.write(context);
            Poll::Ready(())
        })
        .await;
    }

    fn poll_next(&mut self, context: &mut Context<'_>) -> Poll<Option<Event>> {
        if self.connection.output_length() >= WRITE_FIRST {
            self.write(context);
        }
        for _ in 0..MAX_TURNS {
            if let Some(event) = self.connection.next_event() {
                return Poll::Ready(Some(event));
            }
            if self.connection.is_finished() {
                return self.shut_down(context).map(|()| None);
            }
            let wrote = self.write(context);
            let read = self.read(context);
            // An event, or the end, that results from passed time is handled before this returns `Pending`.
            let changed = self.connection.on_time(self.origin.elapsed());
            if !wrote && !read && !changed && !self.timer_fired(context) {
                return Poll::Pending;
            }
        }
        context.waker().wake_by_ref();
        Poll::Pending
    }

    /// Shuts the transport down. Everything has been written, so errors are ignored; and a peer that does not
    /// read is not waited for beyond `time_to_close`, because its close notification may find no room.
    fn shut_down(&mut self, context: &mut Context<'_>) -> Poll<()> {
        if Pin::new(&mut self.stream).poll_shutdown(context).is_ready() {
            return Poll::Ready(());
        }
        let timeout = self.connection.config().limits.time_to_close;
        let timeout =
            self.shutdown.get_or_insert_with(|| Box::pin(tokio::time::sleep_until(Instant::now() + timeout)));
        timeout.as_mut().poll(context)
    }

    /// Writes what the transport takes. True if it took any, or failed.
    fn write(&mut self, context: &mut Context<'_>) -> bool {
        let mut progress = false;
        while self.connection.has_output() {
            let output = self.connection.output();
            if output.is_empty() {
                break;
            }
            match Pin::new(&mut self.stream).poll_write(context, output) {
                Poll::Ready(Ok(0)) => self.connection.on_lost("the transport takes no more bytes"),
                Poll::Ready(Ok(count)) => {
                    self.connection.wrote(count);
                    self.unflushed = true;
                    progress = true;
                    continue;
                }
                Poll::Ready(Err(error)) => self.connection.on_lost(format!("cannot write: {error}")),
                Poll::Pending => return progress,
            }
            return true;
        }
        if self.unflushed {
            match Pin::new(&mut self.stream).poll_flush(context) {
                Poll::Ready(Ok(())) => self.unflushed = false,
                Poll::Ready(Err(error)) => {
                    self.unflushed = false;
                    self.connection.on_lost(format!("cannot write: {error}"));
                    return true;
                }
                Poll::Pending => {}
            }
        }
        progress
    }

    /// Reads once. True if bytes came, or the transport ended.
    fn read(&mut self, context: &mut Context<'_>) -> bool {
        if !self.connection.wants_input() {
            return false;
        }
        let max = self.connection.config().limits.read.max(FIRST_READ);
        self.read_size = self.read_size.min(max);
        let input = self.connection.input();
        if input.capacity() - input.len() < self.read_size / 2 {
            input.reserve(self.read_size);
        }
        let room = input.capacity() - input.len();
        match pin!(self.stream.read_buf(input)).poll(context) {
            Poll::Ready(Ok(0)) => self.connection.on_lost("the peer closed the transport"),
            Poll::Ready(Ok(count)) if count == room => self.read_size = (room * 2).min(max),
            Poll::Ready(Ok(_)) => {}
            Poll::Ready(Err(error)) => self.connection.on_lost(format!("cannot read: {error}")),
            Poll::Pending => return false,
        }
        true
    }

    /// True if a deadline has passed. A timer that fires too early does no harm: it is set again.
    fn timer_fired(&mut self, context: &mut Context<'_>) -> bool {
        let Some(deadline) = self.connection.next_deadline() else { return false };
        let deadline = self.origin + deadline.max(Duration::from_millis(1));
        let timer = match &mut self.timer {
            Some(timer) => {
                if timer.deadline() > deadline || timer.is_elapsed() {
                    timer.as_mut().reset(deadline);
                }
                timer
            }
            // Not by an environment, because sockets are not simulated and tokio's own clock can be paused.
            none => none.insert(Box::pin(tokio::time::sleep_until(deadline))),
        };
        if timer.as_mut().poll(context).is_pending() {
            return false;
        }
        // An idle connection does not need to keep large buffers.
        if self.connection.input().is_empty() {
            self.read_size = FIRST_READ;
        }
        self.connection.release_memory();
        true
    }
}

impl<S> std::fmt::Debug for Driver<S> {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        self.connection.fmt(formatter)
    }
}
