//! Counts the bytes and answers that a connection carries, and extends the deadlines of answers while these
//! counts grow, so that a slow connection does not count as dead.
//!
//! ```text
//!   request ─── limit ───┬─ something moved ──► limit ───┬─ … ──► up to ten limits
//!                        └─ nothing moved ──► give up    └─ …
//! ```
//!
//! On a slow connection an answer waits behind the bytes of others. So the deadline of an answer is extended
//! while the hub answers anything, or bytes move in either direction.

use std::future::Future;
use std::io;
use std::pin::{Pin, pin};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Instant, timeout_at};

use crate::endpoint::Transport;

/// Fewer bytes than this within a limit may be nothing but heartbeats.
const MIN_BYTES: u64 = 4 << 10;

/// The maximum wait for an answer, in multiples of its limit.
const MAX_LIMITS: u32 = 10;

/// Counts the bytes that the connections of one slot have carried so far.
#[derive(Default)]
pub(crate) struct Traffic {
    received: AtomicU64,
    written: AtomicU64,
    /// Answers of the hub: to a link, a message, or a request.
    answers: AtomicU64,
}

/// The counts at some time.
#[derive(Clone, Copy)]
struct Mark {
    received: u64,
    written: u64,
    answers: u64,
}

impl Traffic {
    /// The number of bytes that came from the hub.
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    /// The hub has answered something.
    pub(super) fn answered(&self) {
        self.answers.fetch_add(1, Ordering::Relaxed);
    }

    fn mark(&self) -> Mark {
        Mark {
            received: self.received(),
            written: self.written.load(Ordering::Relaxed),
            answers: self.answers.load(Ordering::Relaxed),
        }
    }
}

/// The deadline of an answer, which is extended while the connection carries anything.
pub(crate) struct Deadline {
    at: Instant,
    last: Instant,
    limit: Duration,
    since: Mark,
    /// The hub has answered something between the last two looks.
    answered: bool,
    /// It was logged that the answer is late.
    logged: bool,
}

impl Deadline {
    pub(crate) fn new(limit: Duration, traffic: &Traffic) -> Self {
        let now = Instant::now();
        let (at, last) = (now + limit, now + limit * MAX_LIMITS);
        Self { at, last, limit, since: traffic.mark(), answered: false, logged: false }
    }

    pub(crate) fn at(&self) -> Instant {
        self.at
    }

    /// Extends the deadline, which has passed. False if nothing moved since the last look, or if it was
    /// extended for too long.
    pub(crate) fn extend(&mut self, traffic: &Traffic) -> bool {
        let (before, now) = (self.since, traffic.mark());
        self.since = now;
        self.answered = now.answers != before.answers;
        let moved = now.received - before.received >= MIN_BYTES || now.written - before.written >= MIN_BYTES;
        let extended = (self.answered || moved) && self.at < self.last;
        if extended {
            if !std::mem::replace(&mut self.logged, true) {
                let (limit, most) = (self.limit, self.limit * MAX_LIMITS);
                tracing::warn!(
                    "no answer of the hub within {limit:?}, but the connection carries data: waiting up to {most:?}. The \
                     connection may be slow: then lower prefetch_bytes, or send smaller batches"
                );
            }
            self.at = (Instant::now() + self.limit).min(self.last);
        }
        extended
    }

    /// True if the hub answers others on this connection, though not this request.
    pub(crate) fn others_are_answered(&self) -> bool {
        self.answered
    }

    /// Awaits the answer; none if the deadline cannot be extended any more.
    pub(crate) async fn wait<T>(&mut self, traffic: &Traffic, answer: impl Future<Output = T>) -> Option<T> {
        let mut answer = pin!(answer);
        loop {
            match timeout_at(self.at, &mut answer).await {
                Ok(answer) => return Some(answer),
                Err(_) if self.extend(traffic) => {}
                Err(_) => return None,
            }
        }
    }
}

/// A transport whose bytes are counted.
pub(super) struct Metered {
    pub(super) stream: Box<dyn Transport>,
    pub(super) traffic: Arc<Traffic>,
}

impl AsyncRead for Metered {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = into.filled().len();
        let polled = Pin::new(&mut self.stream).poll_read(context, into);
        self.traffic.received.fetch_add((into.filled().len() - before) as u64, Ordering::Relaxed);
        polled
    }
}

impl AsyncWrite for Metered {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.stream).poll_write(context, bytes);
        if let Poll::Ready(Ok(count)) = &polled {
            self.traffic.written.fetch_add(*count as u64, Ordering::Relaxed);
        }
        polled
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMIT: Duration = Duration::from_secs(60);

    /// The time after which an answer that never comes is given up, if `step` happens every minute.
    async fn given_up_after(step: impl Fn(&Traffic)) -> (u64, bool) {
        let (traffic, began) = (Traffic::default(), Instant::now());
        let mut deadline = Deadline::new(LIMIT, &traffic);
        loop {
            step(&traffic);
            tokio::time::sleep_until(deadline.at()).await;
            if !deadline.extend(&traffic) {
                return (began.elapsed().as_secs(), deadline.others_are_answered());
            }
        }
    }

    #[tokio::test(start_paused = true)]
    async fn a_deadline_is_extended_while_something_moves_and_not_for_ever() {
        assert_eq!(given_up_after(|_| {}).await, (60, false));
        assert_eq!(given_up_after(Traffic::answered).await, (600, true));
        let count = |counter: &AtomicU64, bytes| _ = counter.fetch_add(bytes, Ordering::Relaxed);
        let received = |bytes| move |traffic: &Traffic| count(&traffic.received, bytes);
        let written = |bytes| move |traffic: &Traffic| count(&traffic.written, bytes);
        assert_eq!(given_up_after(received(MIN_BYTES)).await, (600, false));
        assert_eq!(given_up_after(written(MIN_BYTES)).await, (600, false));
        // Heartbeats are no progress.
        assert_eq!(given_up_after(received(8)).await, (60, false));
        assert_eq!(given_up_after(written(8)).await, (60, false));
    }
}
