//! Bounds the memory of all connections together.
//!
//! ```text
//! connection ─ how much it keeps ─► Budget ─ all is used up, and it has more than its part ─► it waits
//!                                      └── its deliveries have been unended for longest ────► it goes
//! ```
//!
//! Most of what a connection keeps gets less by itself: events reach the disk, output is read or the peer is
//! closed. Whoever keeps more than its part of the budget is not read from until there is room, and nothing
//! more is put into its output. Deliveries that have not ended get less only when the peer goes on, and nobody
//! can wait for that: when they take half of the budget, the connection that has had one for longest is
//! closed, if they are more than its part. So whoever keeps little is never in the way and never waits.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use ephor_core::time::{Clock, Monotonic};
use tokio::sync::Notify;

use crate::noise::Muffler;

/// A connection that keeps less is not counted, and smaller changes are not told: what every connection costs,
/// whatever it does.
const GRAIN: usize = 16 << 10;

/// What a connection keeps.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Usage {
    /// All of it.
    pub(crate) bytes: usize,
    /// What only the peer can end.
    pub(crate) unended: usize,
    /// Since when.
    pub(crate) since: Option<Monotonic>,
}

/// The memory of a gateway's connections.
pub(crate) struct Budget {
    most: usize,
    state: Mutex<State>,
    /// Rings when there is room, or more of it.
    relief: Notify,
    clock: Arc<dyn Clock>,
    noise: Muffler,
}

/// A change that people are told of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Pressure {
    /// Nothing more may be kept by those who keep much.
    Full,
    /// There is room for all again.
    Room,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    used: usize,
    /// How much of that is deliveries that have not ended, of those who were not told to go.
    unended: usize,
    holders: BTreeMap<u64, Holder>,
    /// It was full, and there has not been much room since.
    full: bool,
    /// People were told so.
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

    /// A connection came.
    pub(crate) fn share(self: &Arc<Self>) -> Share {
        let mut state = self.lock();
        state.next += 1;
        let number = state.next;
        drop(state);
        let (told, evicted) = (Usage::default(), Arc::default());
        Share { budget: self.clone(), number, told, evicted, waits: false, wanted: 0 }
    }

    /// How many bytes are used.
    #[cfg(test)]
    fn used(&self) -> usize {
        self.lock().used
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes what a connection keeps, and says whether it has to wait.
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
        // Whoever wants much waits until much is free, so each of them looks for itself.
        if relieved {
            self.relief.notify_waiters();
        }
        waits
    }

    /// Whether one that keeps so much may keep so much more.
    fn may_keep(&self, bytes: usize, more: usize) -> bool {
        let mut state = self.lock();
        let must_wait = state.must_wait(bytes, more, self.most);
        self.note_pressure(&mut state, must_wait);
        !must_wait
    }

    /// Tells people when memory is used up, and when there is room again.
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
    /// Whether that is news. There is room again when a quarter is free: full and not full take turns quickly.
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

    /// The part of each.
    fn part(&self, most: usize) -> usize {
        (most / self.holders.len().max(1)).max(GRAIN)
    }

    /// Whether one that keeps so much has to wait before it keeps more.
    fn must_wait(&self, bytes: usize, more: usize, most: usize) -> bool {
        self.used + more >= most && bytes + more > self.part(most)
    }

    /// One goes: of those whose deliveries that have not ended are more than their part, the one that has had
    /// one for longest. Those who mean it begin a delivery and end it.
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

/// What one connection keeps, as the budget knows it. Dropping it gives everything back.
#[derive(Debug)]
pub(crate) struct Share {
    budget: Arc<Budget>,
    number: u64,
    told: Usage,
    evicted: Arc<Notify>,
    /// It keeps too much.
    waits: bool,
    /// It has to wait before it keeps so much more: what the first wanted who was refused, and who is called first.
    wanted: usize,
}

impl Share {
    /// Tells what the connection keeps now. Says whether that is too much, so that it has to wait until others have given
    /// something back.
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

    /// Whether it may keep so much more. If not, it has to wait until it is relieved, whatever it tells meanwhile.
    pub(crate) fn admit(&mut self, more: usize) -> bool {
        if self.waits || !self.budget.may_keep(self.told.bytes, more) {
            // Those who are refused now stand behind the first.
            if self.wanted == 0 {
                self.wanted = more.max(1);
            }
        }
        !self.waits()
    }

    /// Whether it has to wait, as of the last time that it told or asked.
    pub(crate) fn waits(&self) -> bool {
        self.waits || self.wanted > 0
    }

    /// Somebody is gone who may have wanted to keep something.
    pub(crate) fn forget_want(&mut self) {
        // Whoever is next in line asks again as soon as there is any room.
        self.wanted = self.wanted.min(1);
    }

    /// It has waited for what it wanted to keep, and may ask again.
    pub(crate) fn take_relief(&mut self) {
        self.wanted = 0;
    }

    /// Waits until it need not wait any more.
    pub(crate) async fn relieved(&self) {
        loop {
            // Listens before it looks.
            let mut relief = pin!(self.budget.relief.notified());
            relief.as_mut().enable();
            if !self.budget.lock().must_wait(self.told.bytes, self.wanted, self.budget.most) {
                return;
            }
            relief.await;
        }
    }

    /// Waits until this one has to go, for the sake of the others.
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
