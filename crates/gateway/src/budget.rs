//! Limits the memory of all connections together, with back-pressure and eviction.
//!
//! ```text
//! connection ─ bytes that it uses ─► Budget ─ used up, and it has more than its part ─────► it waits
//!                                      └──── and it has the oldest unended delivery ──────► it is closed
//! ```
//!
//! Most of what a connection buffers shrinks by itself: events reach the disk, and output is read, or the
//! peer that does not read it is closed. A connection that buffers more than its part of a used-up budget has
//! to wait: nothing more is read from it until there is room, and nothing more is put into its output.
//! Deliveries that have not ended, in either direction, and answers that the peer does not take (*unended*)
//! shrink only when the peer goes on, and that may never happen. So when the budget is used up and they take
//! at least half of it, the connection with the oldest one is closed, among those whose unended deliveries
//! and answers take at least their part. A connection that buffers little is never closed and never waits.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::time::{Clock, Monotonic};
use tokio::sync::Notify;

use crate::noise::Muffler;

/// Connections that buffer less than this are not counted, and smaller changes are not reported. Every
/// connection costs this much, even an idle one.
const GRAIN: usize = 16 << 10;

/// The memory that a connection uses.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All bytes.
    pub(crate) bytes: usize,
    /// The part of `bytes` that only the peer can end: unended deliveries, and answers that it does not take.
    pub(crate) unended: usize,
    /// The time since which the oldest of `unended` has been kept.
    pub(crate) since: Option<Monotonic>,
}

/// The memory budget of a gateway's connections.
pub(crate) struct Budget {
    most: usize,
    state: Mutex<State>,
    /// Notified when memory was given back and there is room.
    relief: Notify,
    clock: Arc<dyn Clock>,
    noise: Muffler,
}

/// A change between full and not full that is logged.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    /// The budget is used up: connections that buffer much may not buffer more.
    Full,
    /// There is room for all again.
    Room,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    used: usize,
    /// The part of `used` that is unended, without the connections that are being evicted.
    unended: usize,
    holders: BTreeMap<u64, Holder>,
    /// It was full, and since then a quarter has not been free.
    full: bool,
    /// A warning was logged that it is full.
    warned: bool,
}

#[derive(Debug)]
struct Holder {
    usage: Usage,
    evicted: Arc<Notify>,
    leaving: bool,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Budget").field("most", &self.most).finish_non_exhaustive()
    }
}

impl Budget {
    pub(crate) fn new(most: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (state, relief, noise) = (Mutex::default(), Notify::new(), Muffler::default());
        Arc::new(Self { most, state, relief, clock, noise })
    }

    /// Registers a connection.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        drop(state);
        let (told, evicted) = (Usage::default(), Arc::default());
        Share { budget: self.clone(), number, told, evicted, waits: false, wanted: 0 }
    }

    /// The number of bytes that are used.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.lock().used
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Updates what a connection buffers. True if it has to wait.
    fn change(&self, number: u64, usage: Usage, evicted: &Arc<Notify>) -> bool {
        let mut state = self.lock();
        let before = state.used;
        state.set(number, usage, evicted);
        if state.used >= self.most && state.unended >= self.most / 2 {
            state.evict(self.most);
        }
        let waits = state.must_wait(usage.bytes, 0, self.most);
        let relieved = state.used < before && state.used < self.most;
        let is_full = state.used >= self.most;
        self.note_pressure(&mut state, is_full);
        drop(state);
        // All waiters are woken, because each waits for a different amount and has to check for itself.
        if relieved {
            self.relief.notify_waiters();
        }
        waits
    }

    /// True if a connection that buffers `bytes` may buffer `more`.
    fn may_keep(&self, bytes: usize, more: usize) -> bool {
        let mut state = self.lock();
        let must_wait = state.must_wait(bytes, more, self.most);
        self.note_pressure(&mut state, must_wait);
        !must_wait
    }

    /// Logs when memory is used up, and when there is room again.
    fn note_pressure(&self, state: &mut State, is_full: bool) {
        let (used, most, connections) = (state.used, self.most, state.holders.len());
        match state.pressure(is_full, most) {
            Some(Pressure::Full) => {
                if let Some(muffled) = self.noise.hear(self.clock.now()) {
                    state.warned = true;
                    tracing::warn!(used, buffered_bytes = most, connections, muffled, "{FULL}");
                }
            }
            Some(Pressure::Room) if std::mem::take(&mut state.warned) => {
                tracing::info!(used, buffered_bytes = most, connections, "{ROOM}");
            }
            Some(Pressure::Room) | None => {}
        }
    }
}

const FULL: &str = "the memory for all connections is used up: nothing more is read from those who keep more than their share, \
                    and the connection with the oldest incomplete message may be closed. Look for clients that send faster \
                    than the disk or do not read, or raise `buffered_bytes`";
const ROOM: &str = "there is memory for all connections again";

impl State {
    /// The change to log, if there is one. There is room again only when a quarter is free, because full and
    /// not full alternate quickly.
    fn pressure(&mut self, is_full: bool, most: usize) -> Option<Pressure> {
        let is_over = self.used <= most - most / 4;
        match self.full {
            false if is_full => {
                self.full = true;
                Some(Pressure::Full)
            }
            true if !is_full && is_over => {
                self.full = false;
                Some(Pressure::Room)
            }
            _ => None,
        }
    }

    fn set(&mut self, number: u64, usage: Usage, evicted: &Arc<Notify>) {
        if let Some(before) = self.holders.get_mut(&number) {
            self.used -= before.usage.bytes;
            if !before.leaving {
                self.unended = self.unended - before.usage.unended + usage.unended;
            }
            before.usage = usage;
        } else if usage.bytes > 0 {
            self.unended += usage.unended;
            self.holders.insert(number, Holder { usage, evicted: evicted.clone(), leaving: false });
        }
        self.used += usage.bytes;
        if usage.bytes == 0 {
            self.holders.remove(&number);
        }
    }

    /// The fair share of each connection.
    fn part(&self, most: usize) -> usize {
        (most / self.holders.len().max(1)).max(GRAIN)
    }

    /// True if a connection that buffers `bytes` has to wait before it buffers `more`.
    fn must_wait(&self, bytes: usize, more: usize, most: usize) -> bool {
        self.used + more >= most && bytes + more > self.part(most)
    }

    /// Evicts one connection: the one with the oldest unended delivery, among those whose unended deliveries
    /// take at least their part. Well-behaved peers end the deliveries that they begin.
    fn evict(&mut self, most: usize) {
        let part = self.part(most);
        let hoards = |holder: &&mut Holder| !holder.leaving && holder.usage.unended >= part;
        if let Some(oldest) = self.holders.values_mut().filter(hoards).min_by_key(|one| one.usage.since) {
            oldest.leaving = true;
            self.unended -= oldest.usage.unended;
            oldest.evicted.notify_one();
        }
    }
}

/// The share of one connection in the budget. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    number: u64,
    told: Usage,
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
    pub(crate) fn tell(&mut self, usage: Usage) -> bool {
        let usage = if usage.bytes < GRAIN { Usage::default() } else { usage };
        let same = usage.bytes.abs_diff(self.told.bytes) < GRAIN
            && usage.unended.abs_diff(self.told.unended) < GRAIN
            && usage.since == self.told.since;
        let gone = usage.bytes == 0 && self.told.bytes > 0;
        if !same || gone || self.waits {
            self.waits = self.budget.change(self.number, usage, &self.evicted);
            self.told = usage;
        }
        self.waits
    }

    /// True if it may buffer this much more. If not, it has to wait until it is relieved, whatever it reports
    /// meanwhile.
    pub(crate) fn admit(&mut self, more: usize) -> bool {
        if self.waits || !self.budget.may_keep(self.told.bytes, more) {
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
            if !self.budget.lock().must_wait(self.told.bytes, self.wanted, self.budget.most) {
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
        self.budget.change(self.number, Usage::default(), &self.evicted);
    }
}

#[cfg(test)]
mod tests;
