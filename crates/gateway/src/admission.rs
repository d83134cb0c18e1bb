//! Limits the number of connections, and evicts unauthenticated ones when there are too many.
//!
//! ```text
//! Connected ─► Greeted ─► Opened ─► Attached ─► admitted (at most `max_admitted`)
//! └── waiting: at most `max_waiting`; beyond it the oldest of the most crowded stage ─► leaving ─► gone
//! ```
//!
//! A flood of connections evicts its own oldest members. Unauthenticated peers that only connect are in one
//! stage, and cannot evict those that are about to put their token; peers that get further are in another
//! stage. Regular clients spend a moment in each.
//!
//! Connections that wait also share a limit of bytes and sessions. Beyond it the oldest of those that use more
//! than an equal share is evicted, so that one that uses little is not evicted because of others.

use std::collections::BTreeMap;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The progress of a connection that is not authenticated yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stage {
    /// It has sent nothing that counts.
    Connected,
    /// It has begun SASL.
    Greeted,
    /// It has sent `open`.
    Opened,
    /// It has a link to put a token on; or its last token expired.
    Attached,
}

const STAGES: usize = Stage::Attached as usize + 1;

/// The resources that a connection uses, or all that wait together.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Cost {
    /// Sessions, links, and what is buffered.
    pub(crate) bytes: usize,
    /// The number of sessions.
    pub(crate) sessions: usize,
}

/// The limits of an [`Admission`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct AdmissionLimits {
    /// Connections that wait.
    pub(crate) waiting: usize,
    /// The cost of all that wait together.
    pub(crate) cost: Cost,
    /// The bytes of one that waits. What one uses has to be small beside what all may, because memory that was
    /// freed is not returned to the system at once.
    pub(crate) bytes_of_one: usize,
    /// Admitted connections.
    pub(crate) admitted: usize,
}

/// The connection limits, and the connections that are not admitted yet.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    /// Notified when a connection leaves those that wait.
    gone: Notify,
    limits: AdmissionLimits,
}

/// A connection that waits.
#[derive(Debug)]
struct Waiting {
    evicted: Arc<Notify>,
    cost: Cost,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By stage, and in the order in which they reached it.
    waiting: [BTreeMap<u64, Waiting>; STAGES],
    /// The cost of all that wait.
    cost: Cost,
    /// Connections that were evicted, and whose sockets are still open.
    leaving: usize,
    admitted: usize,
}

/// The connection limit, which is reached.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) usize);

impl Admission {
    pub(crate) fn new(limits: AdmissionLimits) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), gone: Notify::new(), limits })
    }

    /// Waits until evicted connections are gone, as long as there would be too many otherwise. Call it before
    /// `accept`.
    pub(crate) async fn room(&self) {
        loop {
            // Registers for the notification before the check, so that none is missed.
            let mut gone = pin!(self.gone.notified());
            gone.as_mut().enable();
            {
                let state = self.lock();
                if state.waiting() + state.leaving <= self.limits.waiting {
                    return;
                }
            }
            gone.await;
        }
    }

    /// Registers a new connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Ticket {
        let evicted = Arc::new(Notify::new());
        let number = self.lock().wait(Stage::Connected, &evicted, self.limits.waiting);
        let stage = Some(Stage::Connected);
        Ticket { admission: self.clone(), number, evicted, stage, cost: Cost::default() }
    }

    /// Evicts one connection at once.
    pub(crate) fn make_room(&self) {
        self.lock().evict();
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl State {
    fn waiting(&self) -> usize {
        self.waiting.iter().map(BTreeMap::len).sum()
    }

    /// Registers one more that waits, and evicts another if there are too many.
    fn wait(&mut self, stage: Stage, evicted: &Arc<Notify>, max: usize) -> u64 {
        while self.waiting() >= max {
            self.evict();
        }
        self.next += 1;
        let waiting = Waiting { evicted: evicted.clone(), cost: Cost::default() };
        self.waiting[stage as usize].insert(self.next, waiting);
        self.next
    }

    /// Changes the cost of one that waits; false if it does not wait.
    fn set_cost(&mut self, stage: Stage, number: u64, cost: Cost) -> bool {
        let Some(waiting) = self.waiting[stage as usize].get_mut(&number) else { return false };
        let before = std::mem::replace(&mut waiting.cost, cost);
        self.cost.bytes = self.cost.bytes - before.bytes + cost.bytes;
        self.cost.sessions = self.cost.sessions - before.sessions + cost.sessions;
        true
    }

    fn remove(&mut self, stage: usize, number: u64) -> Option<Waiting> {
        let waiting = self.waiting[stage].remove(&number)?;
        self.cost.bytes -= waiting.cost.bytes;
        self.cost.sessions -= waiting.cost.sessions;
        Some(waiting)
    }

    /// Evicts connections until the cost of all is within the limit: the oldest of those that cost more than
    /// an equal share of what is exceeded. There is one, because no more connections wait than have a share.
    fn evict_costly(&mut self, limits: &AdmissionLimits) {
        loop {
            let share = |limit: usize| limit / limits.waiting.max(1);
            let many_bytes = self.cost.bytes > limits.cost.bytes;
            let many_sessions = self.cost.sessions > limits.cost.sessions;
            if !many_bytes && !many_sessions {
                return;
            }
            let is_costly = |cost: Cost| {
                many_bytes && cost.bytes > share(limits.cost.bytes)
                    || many_sessions && cost.sessions > share(limits.cost.sessions)
            };
            let costly = |(stage, crowd): (usize, &BTreeMap<u64, Waiting>)| {
                let (number, _) = crowd.iter().find(|(_, waiting)| is_costly(waiting.cost))?;
                Some((*number, stage))
            };
            let Some((number, stage)) = self.waiting.iter().enumerate().filter_map(costly).min() else {
                return;
            };
            self.evict_one(stage, number);
        }
    }

    fn evict_one(&mut self, stage: usize, number: u64) {
        if let Some(waiting) = self.remove(stage, number) {
            self.leaving += 1;
            // `notify_one` is kept for a connection that does not wait for it yet.
            waiting.evicted.notify_one();
        }
    }

    /// Evicts the oldest of the most crowded stage; of two as crowded, the earlier stage.
    fn evict(&mut self) {
        let largest = self.waiting.iter().enumerate().rev().max_by_key(|(_, crowd)| crowd.len());
        let oldest = largest.and_then(|(stage, crowd)| Some((stage, *crowd.first_key_value()?.0)));
        if let Some((stage, number)) = oldest {
            self.evict_one(stage, number);
        }
    }

    /// It is admitted, or gone.
    fn leave(&mut self, stage: Stage, number: u64) {
        if self.remove(stage as usize, number).is_none() {
            self.leaving -= 1;
        }
    }
}

/// A connection's place. Dropping it frees the place, so drop it after the socket.
#[derive(Debug)]
pub(crate) struct Ticket {
    admission: Arc<Admission>,
    number: u64,
    evicted: Arc<Notify>,
    /// Its progress; `None` once it is admitted.
    stage: Option<Stage>,
    /// The cost that it reported last.
    cost: Cost,
}

impl Ticket {
    /// Waits until this connection is evicted to make room for others.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// Moves on to a later stage. Each stage is entered once.
    pub(crate) fn advance(&mut self, to: Stage) {
        let Some(stage) = self.stage.filter(|stage| *stage < to) else { return };
        let mut state = self.admission.lock();
        // Unless it was evicted meanwhile.
        if let Some(waiting) = state.waiting[stage as usize].remove(&self.number) {
            state.next += 1;
            self.number = state.next;
            state.waiting[to as usize].insert(self.number, waiting);
            self.stage = Some(to);
        }
    }

    /// Reports what this connection costs while it waits. It may be evicted for it, or others may.
    pub(crate) fn report(&mut self, cost: Cost) {
        let Some(stage) = self.stage.filter(|_| cost != self.cost) else { return };
        self.cost = cost;
        let mut state = self.admission.lock();
        if !state.set_cost(stage, self.number, cost) {
            return;
        }
        if cost.bytes > self.admission.limits.bytes_of_one {
            state.evict_one(stage as usize, self.number);
        }
        state.evict_costly(&self.admission.limits);
    }

    /// Counts the connection as admitted from now on.
    pub(crate) fn admit(&mut self) -> Result<(), Full> {
        let Some(stage) = self.stage else { return Ok(()) };
        let mut state = self.admission.lock();
        if state.admitted >= self.admission.limits.admitted {
            return Err(Full(self.admission.limits.admitted));
        }
        state.admitted += 1;
        state.leave(stage, self.number);
        (self.stage, self.cost) = (None, Cost::default());
        drop(state);
        self.admission.gone.notify_waiters();
        Ok(())
    }

    /// Counts the connection as waiting again.
    pub(crate) fn dismiss(&mut self) {
        if self.stage.is_some() {
            return;
        }
        // A new `Notify`: the old one may have been notified just before the connection was admitted.
        self.evicted = Arc::new(Notify::new());
        let mut state = self.admission.lock();
        state.admitted -= 1;
        self.number = state.wait(Stage::Attached, &self.evicted, self.admission.limits.waiting);
        self.stage = Some(Stage::Attached);
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.stage.is_none()
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.admission.lock();
        match self.stage {
            None => state.admitted -= 1,
            Some(stage) => state.leave(stage, self.number),
        }
        drop(state);
        self.admission.gone.notify_waiters();
    }
}

#[cfg(test)]
mod tests;
