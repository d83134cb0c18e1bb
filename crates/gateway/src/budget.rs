//! Limits the memory of all connections together, with back-pressure and eviction.
//!
//! ```text
//! connection ─ bytes that it uses ─► Budget ─ used up, and it has more than its part ─────► it waits
//!                                      └──── and its peer has ended nothing for longest ──► it is closed
//! ```
//!
//! Most of what a connection buffers shrinks by itself: events reach the disk, and output is read. A
//! connection that buffers more than its part of a used-up budget has to wait: nothing more is read from it
//! until there is room, and nothing more is put into its output. Some memory shrinks only when the peer goes
//! on, and that may never happen: deliveries that have not ended, in either direction, answers that the peer
//! does not take (*unended*), and output of which it has not read a tenth for [`STALE_AFTER`]. So when the
//! budget is used up and these take at least half of it, the connection with the oldest is closed, among
//! those that keep at least their part in this way.
//!
//! A connection that keeps no more than one message and one read of the log ([`ONE_OF_EACH`]) waits for nobody
//! when the budget is used up: a quarter of the budget is set aside for all of these. When that is used up,
//! too, output of any age costs its connection. A connection that buffers no more than [`LITTLE`], and less
//! than its part, never waits and is never closed, however much the others buffer.

mod usage;

use std::cmp::Reverse;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr};
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ephor_core::time::{Clock, Monotonic};
use tokio::sync::Notify;

use crate::log_limit::LogLimiter;
use usage::STALE_AFTER;
pub(crate) use usage::Usage;

/// Connections that buffer less than this are not counted, and smaller changes are not reported. Every
/// connection costs this much, even an idle one.
const GRAIN: usize = 16 << 10;

/// A connection that buffers no more than this, and no more than its part, never waits: as much as one read
/// of the log brings at least.
const LITTLE: usize = 64 << 10;

/// One message, one read of the log, and the buffers around them. A small budget has less for each.
const ONE_OF_EACH: usize = (2 << 20) + (256 << 10);

/// A connection that waits asks again after this time, because output gets stale without any notification.
pub(crate) const ASK_AGAIN_AFTER: Duration = Duration::from_secs(1);

/// The interval at which connections are searched for stale output.
const SEARCH_EVERY: Duration = Duration::from_millis(100);

/// The warning that memory is used up names this many addresses, those that use most.
const NAMED: usize = 3;

/// The memory budget of a gateway's connections.
pub(crate) struct Budget {
    max: usize,
    state: Mutex<State>,
    /// Notified when memory was given back and there is room.
    relief: Notify,
    clock: Arc<dyn Clock>,
    log_limit: LogLimiter,
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
    /// The part of `used` of the connections that are being evicted.
    leaving: usize,
    /// The time before which nobody is searched for whose output is stale.
    search_at: Option<Monotonic>,
    holders: BTreeMap<u64, Holder>,
    /// It was full, and since then a quarter has not been free.
    full: bool,
    /// A warning was logged that it is full.
    warned: bool,
}

#[derive(Debug)]
struct Holder {
    peer: SocketAddr,
    usage: Usage,
    evicted: Arc<Notify>,
    leaving: bool,
}

impl std::fmt::Debug for Budget {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        formatter.debug_struct("Budget").field("max", &self.max).finish_non_exhaustive()
    }
}

impl Budget {
    pub(crate) fn new(max: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let (state, relief, log_limit) = (Mutex::default(), Notify::new(), LogLimiter::default());
        Arc::new(Self { max, state, relief, clock, log_limit })
    }

    /// Registers the connection of a peer.
    pub(crate) fn share(self: &Arc<Self>, peer: SocketAddr) -> Share {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        drop(state);
        let (reported, evicted) = (Usage::default(), Arc::default());
        Share { budget: self.clone(), number, peer, reported, evicted, waits: false, wanted: 0 }
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
    fn change(&self, share: &Share, usage: Usage) -> bool {
        let mut state = self.lock();
        let before = state.used;
        state.set(share, usage);
        if state.used >= self.max {
            state.evict(0, self.max, self.clock.now());
        }
        let waits = state.must_wait(usage.bytes, 0, self.max);
        let end = self.max + set_aside(self.max);
        let left_the_end = before + ONE_OF_EACH >= end && state.used < end;
        let relieved = state.used < before && (state.used < self.max || left_the_end);
        let is_full = state.used >= self.max;
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
        let must_wait = state.must_wait(bytes, more, self.max);
        if must_wait {
            // Nobody has to go for a connection that buffers much already.
            let wanted = if state.is_modest(bytes + more, self.max) { more } else { 0 };
            state.evict(wanted, self.max, self.clock.now());
        }
        self.note_pressure(&mut state, must_wait);
        !must_wait
    }

    /// Logs when memory is used up, and when there is room again.
    fn note_pressure(&self, state: &mut State, is_full: bool) {
        let (used, max, connections) = (state.used, self.max, state.holders.len());
        match state.pressure(is_full, max) {
            Some(Pressure::Full) => {
                if let Some(suppressed) = self.log_limit.allow(self.clock.now()) {
                    state.warned = true;
                    let largest = state.largest();
                    tracing::warn!(used, buffered_bytes = max, connections, largest, suppressed, "{FULL}");
                }
            }
            Some(Pressure::Room) if std::mem::take(&mut state.warned) => {
                tracing::info!(used, buffered_bytes = max, connections, "{ROOM}");
            }
            Some(Pressure::Room) | None => {}
        }
    }
}

const FULL: &str = "the memory for all connections is used up: connections that hold more than their share are not \
                    read from, and the connection with the oldest incomplete message may be closed. Look for \
                    clients that send faster than the disk or do not read";
const ROOM: &str = "there is memory for all connections again";

impl State {
    /// The change to log, if there is one. There is room again only when a quarter is free, because full and
    /// not full alternate quickly.
    fn pressure(&mut self, is_full: bool, max: usize) -> Option<Pressure> {
        let is_over = self.used <= max - max / 4;
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

    fn set(&mut self, share: &Share, usage: Usage) {
        if let Some(before) = self.holders.get_mut(&share.number) {
            self.used -= before.usage.bytes;
            if before.leaving {
                self.leaving = self.leaving - before.usage.bytes + usage.bytes;
            }
            before.usage = usage;
        } else if usage.bytes > 0 {
            let evicted = share.evicted.clone();
            self.holders.insert(share.number, Holder { peer: share.peer, usage, evicted, leaving: false });
        }
        self.used += usage.bytes;
        if usage.bytes == 0 {
            self.holders.remove(&share.number);
        }
    }

    /// The fair share of each connection.
    fn fair_share(&self, max: usize) -> usize {
        (max / self.holders.len().max(1)).max(GRAIN)
    }

    /// True if a connection that buffers `bytes` has to wait before it buffers `more`.
    fn must_wait(&self, bytes: usize, more: usize, max: usize) -> bool {
        let (all, own, part) = (self.used + more, bytes + more, self.fair_share(max));
        if all < max || own <= LITTLE.min(part) {
            return false;
        }
        !self.is_modest(own, max) || all >= max + set_aside(max)
    }

    /// True if this is within the part of a connection, or no more than one message and one read.
    fn is_modest(&self, bytes: usize, max: usize) -> bool {
        bytes <= self.fair_share(max).max(ONE_OF_EACH.min(max / 12))
    }

    /// Evicts connections until the others use less than the budget, or until those that only their peers can
    /// end take less than half of it. The oldest goes first, among those that keep at least their part in this
    /// way. Well-behaved peers end the deliveries that they begin, and read what they asked for. Somebody waits
    /// for `wanted` bytes.
    fn evict(&mut self, wanted: usize, max: usize, now: Monotonic) {
        let fair_share = self.fair_share(max);
        let at_the_end = |used: usize| used + wanted >= max + set_aside(max);
        if self.search_at.is_some_and(|at| now < at) && !at_the_end(self.used - self.leaving) {
            return;
        }
        self.search_at = Some(now + SEARCH_EVERY);
        loop {
            let used = self.used - self.leaving;
            if used < max {
                return;
            }
            let stale = if at_the_end(used) { now } else { now.before(STALE_AFTER) };
            let staying = self.holders.values_mut().filter(|holder| !holder.leaving);
            let (mut kept, mut oldest) = (0, None);
            for holder in staying {
                let (bytes, since) = holder.usage.kept_by_peer(stale);
                kept += bytes;
                let age = (since, Reverse(bytes));
                if bytes >= fair_share && oldest.as_ref().is_none_or(|(other, _)| age < *other) {
                    oldest = Some((age, holder));
                }
            }
            let Some((_, holder)) = oldest.filter(|_| kept >= max / 2) else { return };
            holder.leaving = true;
            self.leaving += holder.usage.bytes;
            holder.evicted.notify_one();
        }
    }

    /// The addresses that use most, with their connections and bytes.
    fn largest(&self) -> String {
        let mut by_address: BTreeMap<IpAddr, (usize, usize)> = BTreeMap::new();
        for holder in self.holders.values() {
            let (bytes, connections) = by_address.entry(holder.peer.ip()).or_default();
            (*bytes, *connections) = (*bytes + holder.usage.bytes, *connections + 1);
        }
        let mut largest: Vec<_> = by_address.into_iter().collect();
        largest.sort_by_key(|(_, used)| Reverse(*used));
        let reported = largest.iter().take(NAMED).map(|(address, (bytes, connections))| {
            let s = if *connections == 1 { "" } else { "s" };
            format!("{address}: {bytes} bytes of {connections} connection{s}")
        });
        reported.collect::<Vec<_>>().join("; ")
    }
}

/// The bytes beside the budget for connections that keep no more than [`ONE_OF_EACH`].
fn set_aside(max: usize) -> usize {
    max / 4
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
        let usage = if usage.bytes < GRAIN { Usage::default() } else { usage };
        let same = usage.bytes.abs_diff(self.reported.bytes) < GRAIN
            && usage.unended.abs_diff(self.reported.unended) < GRAIN
            && usage.since == self.reported.since
            && usage.output.abs_diff(self.reported.output) < GRAIN
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
            if !self.budget.lock().must_wait(self.reported.bytes, self.wanted, self.budget.max) {
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
