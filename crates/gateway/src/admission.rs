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

/// The connection limits, and the connections that are not admitted yet.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    /// Notified when a connection leaves those that wait.
    gone: Notify,
    max_waiting: usize,
    max_admitted: usize,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// By stage, and in the order in which they reached it.
    waiting: [BTreeMap<u64, Arc<Notify>>; STAGES],
    /// Connections that were evicted, and whose sockets are still open.
    leaving: usize,
    admitted: usize,
}

/// The connection limit, which is reached.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) usize);

impl Admission {
    pub(crate) fn new(max_admitted: usize, max_waiting: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), gone: Notify::new(), max_waiting, max_admitted })
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
                if state.waiting() + state.leaving <= self.max_waiting {
                    return;
                }
            }
            gone.await;
        }
    }

    /// Registers a new connection.
    pub(crate) fn enter(self: &Arc<Self>) -> Ticket {
        let evicted = Arc::new(Notify::new());
        let number = self.lock().wait(Stage::Connected, &evicted, self.max_waiting);
        Ticket { admission: self.clone(), number, evicted, stage: Some(Stage::Connected) }
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
        self.waiting[stage as usize].insert(self.next, evicted.clone());
        self.next
    }

    /// Evicts the oldest of the most crowded stage; of two as crowded, the earlier stage.
    fn evict(&mut self) {
        let largest = self.waiting.iter_mut().rev().max_by_key(|crowd| crowd.len());
        if let Some((_, oldest)) = largest.and_then(BTreeMap::pop_first) {
            self.leaving += 1;
            // `notify_one` is kept for a connection that does not wait for it yet.
            oldest.notify_one();
        }
    }

    /// It is admitted, or gone.
    fn leave(&mut self, stage: Stage, number: u64) {
        if self.waiting[stage as usize].remove(&number).is_none() {
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
        if let Some(evicted) = state.waiting[stage as usize].remove(&self.number) {
            state.next += 1;
            self.number = state.next;
            state.waiting[to as usize].insert(self.number, evicted);
            self.stage = Some(to);
        }
    }

    /// Counts the connection as admitted from now on.
    pub(crate) fn admit(&mut self) -> Result<(), Full> {
        let Some(stage) = self.stage else { return Ok(()) };
        let mut state = self.admission.lock();
        if state.admitted >= self.admission.max_admitted {
            return Err(Full(self.admission.max_admitted));
        }
        state.admitted += 1;
        state.leave(stage, self.number);
        self.stage = None;
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
        self.number = state.wait(Stage::Attached, &self.evicted, self.admission.max_waiting);
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
mod tests {
    use futures_util::FutureExt;

    use super::*;

    fn is_evicted(ticket: &Ticket) -> bool {
        ticket.evicted().now_or_never().is_some()
    }

    #[test]
    fn the_oldest_that_waits_is_evicted_and_never_an_admitted_one() {
        let admission = Admission::new(2, 2);
        let mut first = admission.enter();
        first.admit().unwrap();
        let (second, third) = (admission.enter(), admission.enter());
        let fourth = admission.enter();
        assert!(!is_evicted(&first));
        assert!(is_evicted(&second));
        assert!(!is_evicted(&third));
        drop(third);
        let _fifth = admission.enter();
        assert!(!is_evicted(&fourth));
        admission.make_room();
        assert!(is_evicted(&fourth));
    }

    #[test]
    fn connections_that_only_connect_evict_none_of_a_later_stage() {
        let admission = Admission::new(9, 8);
        let mut others: Vec<_> = (0..3).map(|_| admission.enter()).collect();
        for (other, stage) in others.iter_mut().zip([Stage::Greeted, Stage::Opened, Stage::Attached]) {
            other.advance(stage);
        }
        let flood: Vec<_> = (0..1_000).map(|_| admission.enter()).collect();
        assert!(!others.iter().any(is_evicted));
        assert_eq!(flood.iter().filter(|one| is_evicted(one)).count(), 1_000 - 5);
        assert!(!is_evicted(flood.last().unwrap()));
    }

    #[test]
    fn connections_of_a_later_stage_evict_none_that_just_connected() {
        let admission = Admission::new(9, 8);
        let mut flood = Vec::new();
        for _ in 0..100 {
            let mut one = admission.enter();
            one.advance(Stage::Opened);
            one.advance(Stage::Attached);
            flood.push(one);
        }
        let other = admission.enter();
        for _ in 0..100 {
            let mut one = admission.enter();
            one.advance(Stage::Attached);
            flood.push(one);
        }
        assert!(!is_evicted(&other));
    }

    #[test]
    fn a_socket_that_is_still_there_counts() {
        let admission = Admission::new(9, 2);
        let mut waiting: Vec<_> = (0..2).map(|_| admission.enter()).collect();
        assert!(admission.room().now_or_never().is_some());
        waiting.push(admission.enter());
        assert!(admission.room().now_or_never().is_none(), "three sockets");
        drop(waiting.remove(0));
        assert!(admission.room().now_or_never().is_some());
        // A connection that is admitted at the last moment needs no room among those that wait.
        waiting.push(admission.enter());
        waiting[0].admit().unwrap();
        assert!(admission.room().now_or_never().is_some());
    }

    #[test]
    fn a_dismissed_connection_waits_again_and_frees_its_place() {
        let admission = Admission::new(1, 2);
        let (mut one, mut other) = (admission.enter(), admission.enter());
        admission.make_room();
        one.admit().unwrap();
        one.dismiss();
        one.dismiss();
        assert!(!is_evicted(&one), "it was notified before it was admitted");
        other.admit().unwrap();
        assert_eq!(one.admit().unwrap_err().0, 1);
        admission.make_room();
        assert!(is_evicted(&one) && !is_evicted(&other));
        drop((one, other));
        let state = admission.lock();
        assert_eq!((state.waiting(), state.leaving, state.admitted), (0, 0, 0));
    }

    #[test]
    fn no_more_connections_are_admitted_than_the_limit() {
        let admission = Admission::new(1, 9);
        let (mut one, mut other) = (admission.enter(), admission.enter());
        one.admit().unwrap();
        one.admit().unwrap();
        assert_eq!(other.admit().unwrap_err().0, 1);
        drop(one);
        other.admit().unwrap();
        assert!(other.is_admitted());
    }
}
