//! Limits the memory of all connections together, with back-pressure and eviction.
//!
//! ```text
//! connection ─ bytes that it uses ─► Budget ─ used up, and it has more than its part ─────► it waits
//!                                      └──── and its peer has ended nothing for longest ──► it is closed
//! ```
//!
//! A connection that waits is not read from, and nothing more is put into its output. Whether it has to wait
//! depends on what all connections buffer together, and on what it buffers itself. Its *part* is the budget
//! divided by the number of connections that count.
//!
//! ```text
//!  all together:                  0 ──────────► budget ──────────► budget + a quarter ────►
//!
//!  a connection that buffers
//!   less than UNCOUNTED            is not counted, and goes on
//!   at most LITTLE and its part    goes on        goes on            goes on
//!   at most ONE_OF_EACH or its     goes on        goes on            waits
//!    part (a modest connection)
//!   more                           goes on        waits              waits
//! ```
//!
//! Most of what a connection buffers shrinks by itself: events reach the disk, and output is read. Some shrinks
//! only when the peer goes on, which may never happen: deliveries that have not ended, in either direction,
//! answers that the peer does not take, and output that it does not read. This memory is *kept by the peer*:
//!
//! ```text
//!  all together:                    budget ──────────► budget + a quarter ────►
//!
//!  deliveries and answers           at any age         at any age
//!  output                           after 5 s          at any age
//! ```
//!
//! When the budget is used up, the connection that has kept memory for longest is closed, among those that keep
//! at least their part in this way. Nobody who keeps less is closed. So what they keep is subtracted from the
//! budget and its quarter first, and connections are closed only while those that can be closed keep at least
//! half of the rest. Otherwise most of the rest is free, or shrinks by itself and is waited for.
//!
//! Connections that buffer little come on top of the budget, and so does what a connection buffers in one turn
//! of its task, because it learns only at its end that it has to wait. So all together buffer at most
//!
//! ```text
//! budget + a quarter + connections × (UNCOUNTED + LITTLE + one turn)
//! ```

mod state;
mod usage;

use std::net::SocketAddr;
use std::pin::pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::time::Clock;
use tokio::sync::Notify;

use crate::log_line_limit::LogLimiter;
use state::{Pressure, State};
pub(crate) use usage::Usage;

/// Connections that buffer less than this are not counted, and smaller changes are not reported. Every
/// connection costs this much, even an idle one.
const UNCOUNTED: usize = 16 << 10;

/// A connection that buffers no more than this, and no more than its part, never waits: as much as one read
/// of the log brings at least.
const LITTLE: usize = 64 << 10;

/// One message, one read of the log, and the buffers around them. A small budget has less for each.
const ONE_OF_EACH: usize = (2 << 20) + (256 << 10);

/// A connection that waits asks again after this time, because output gets stale without any notification.
pub(crate) const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The memory budget of a gateway's connections.
pub(crate) struct Budget {
    /// The number of the next connection.
    next: AtomicU64,
    state: Mutex<State>,
    /// Notified when memory was given back and there is room.
    relief: Notify,
    clock: Arc<dyn Clock>,
    log_limit: LogLimiter,
}

/// A line for the log. It is written after the lock was released, because whoever writes it may block.
enum LogLine {
    Full { used: usize, max: usize, connections: usize, largest: String, suppressed: u64 },
    Room { used: usize, max: usize, connections: usize },
}

impl LogLine {
    fn write(self) {
        match self {
            Self::Full { used, max, connections, largest, suppressed } => {
                tracing::warn!(used, buffered_bytes = max, connections, largest, suppressed, "{FULL}");
            }
            Self::Room { used, max, connections } => {
                tracing::info!(used, buffered_bytes = max, connections, "{ROOM}");
            }
        }
    }
}

const FULL: &str = "the memory for all connections is used up: connections that hold more than their share are not \
                    read from, and the connection with the oldest incomplete message or unread output may be \
                    closed. Look for clients that send faster than the disk can write, or that do not read";
const ROOM: &str = "there is memory for all connections again";

impl std::fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Budget").finish_non_exhaustive()
    }
}

impl Budget {
    pub(crate) fn new(max: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (relief, log_limit) = (Notify::new(), LogLimiter::default());
        Arc::new(Self {
            next: AtomicU64::new(0),
            state: Mutex::new(State::new(max)),
            relief,
            clock,
            log_limit,
        })
    }

    /// Registers the connection of a peer.
    pub(crate) fn share(self: &Arc<Self>, peer: SocketAddr) -> Share {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        let (reported, evicted) = (Usage::default(), Arc::default());
        Share { budget: self.clone(), number, peer, reported, evicted, waits: false, wanted: 0 }
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates what a connection buffers. True if it has to wait.
    fn change(&self, share: &Share, usage: Usage) -> bool {
        let mut state = self.lock();
        let before = state.used;
        state.set(share.number, share.peer, &share.evicted, usage);
        let is_full = state.used >= state.max;
        if is_full {
            state.evict(0, self.clock.now());
        }
        let waits = state.must_wait(usage.bytes, 0);
        let relieved = state.is_relief_since(before);
        let line = self.pressure(&mut state, is_full);
        drop(state);
        // All waiters are woken, because each waits for a different amount and has to check for itself.
        if relieved {
            self.relief.notify_waiters();
        }
        line.into_iter().for_each(LogLine::write);
        waits
    }

    /// True if a connection that buffers `bytes` may buffer `more`.
    fn may_keep(&self, bytes: usize, more: usize) -> bool {
        let mut state = self.lock();
        let must_wait = state.must_wait(bytes, more);
        if must_wait {
            // Nobody has to go for a connection that buffers much already.
            let wanted = if state.is_modest(bytes + more) { more } else { 0 };
            state.evict(wanted, self.clock.now());
        }
        let line = self.pressure(&mut state, must_wait);
        drop(state);
        line.into_iter().for_each(LogLine::write);
        !must_wait
    }

    /// The line that says that memory is used up, or that there is room again.
    fn pressure(&self, state: &mut State, is_full: bool) -> Option<LogLine> {
        let (used, max, connections) = (state.used, state.max, state.connections());
        match state.pressure(is_full)? {
            Pressure::Full => {
                let suppressed = self.log_limit.allow(self.clock.now())?;
                state.warned = true;
                Some(LogLine::Full { used, max, connections, largest: state.largest(), suppressed })
            }
            Pressure::Room => {
                std::mem::take(&mut state.warned).then_some(LogLine::Room { used, max, connections })
            }
        }
    }
}

/// The share of one connection in the budget. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    number: u64,
    peer: SocketAddr,
    reported: Usage,
    evicted: Arc<Notify>,
    /// It buffers too much.
    waits: bool,
    /// The bytes that the first refused call of [`Self::admit`] wanted; 0 if none was refused. The connection
    /// waits until there is room for that much, because the receiver that was refused first continues first.
    wanted: usize,
}

impl Share {
    /// Reports what the connection buffers now. Returns true if that is too much, so that it has to wait
    /// until others have given memory back.
    pub(crate) fn report(&mut self, usage: Usage) -> bool {
        let usage = if usage.bytes < UNCOUNTED { Usage::default() } else { usage };
        let same = usage.bytes.abs_diff(self.reported.bytes) < UNCOUNTED
            && usage.unended.abs_diff(self.reported.unended) < UNCOUNTED
            && usage.since == self.reported.since
            && usage.output.abs_diff(self.reported.output) < UNCOUNTED
            && usage.output_since == self.reported.output_since;
        let gone = usage.bytes == 0 && self.reported.bytes > 0;
        if !same || gone || self.waits {
            self.waits = self.budget.change(self, usage);
            self.reported = usage;
        }
        self.waits
    }

    /// True if it may buffer this much more. If not, it has to wait until it is relieved, whatever it reports
    /// meanwhile.
    pub(crate) fn admit(&mut self, more: usize) -> bool {
        if self.waits || !self.budget.may_keep(self.reported.bytes, more) {
            // Requests that are refused now queue after the first.
            if self.wanted == 0 {
                self.wanted = more.max(1);
            }
        }
        !self.waits()
    }

    /// True if it has to wait, as of the last report or request.
    pub(crate) fn waits(&self) -> bool {
        self.waits || self.wanted > 0
    }

    /// Called when a link is gone that may have been refused memory.
    pub(crate) fn forget_want(&mut self) {
        // The next in the queue asks again as soon as there is any room.
        self.wanted = self.wanted.min(1);
    }

    /// The wait is over, and the connection may ask again.
    pub(crate) fn take_relief(&mut self) {
        self.wanted = 0;
    }

    /// Waits until there is room for this connection.
    pub(crate) async fn relieved(&self) {
        loop {
            // Registers for the notification before the check, so that none is missed.
            let mut relief = pin!(self.budget.relief.notified());
            relief.as_mut().enable();
            if !self.budget.lock().must_wait(self.reported.bytes, self.wanted) {
                return;
            }
            relief.await;
        }
    }

    /// Waits until this connection is evicted to free memory for the others.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.budget.change(self, Usage::default());
    }
}

#[cfg(test)]
mod tests;
