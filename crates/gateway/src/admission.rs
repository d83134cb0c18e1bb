//! How many connections there may be, and who goes first if they are too many.
//!
//! ```text
//! accepted ─► waiting (at most so many: beyond it the oldest goes) ─► admitted (at most so many)
//! ```
//!
//! Whoever floods the door pushes out the flood: those who mean it put their token within a moment.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

/// The door.
#[derive(Debug)]
pub(crate) struct Admission {
    state: Mutex<State>,
    most_waiting: usize,
    most_admitted: usize,
}

#[derive(Debug, Default)]
struct State {
    next: u64,
    /// In the order in which they came.
    waiting: BTreeMap<u64, Arc<Notify>>,
    admitted: usize,
}

/// There are so many connections already.
#[derive(Debug)]
pub(crate) struct Full(pub(crate) usize);

impl Admission {
    pub(crate) fn new(most_admitted: usize, most_waiting: usize) -> Arc<Self> {
        Arc::new(Self { state: Mutex::default(), most_waiting, most_admitted })
    }

    /// Somebody came.
    pub(crate) fn enter(self: &Arc<Self>) -> Ticket {
        let mut state = self.lock();
        while state.waiting.len() >= self.most_waiting {
            evict(&mut state);
        }
        let evicted = Arc::new(Notify::new());
        let number = state.next;
        state.next += 1;
        state.waiting.insert(number, evicted.clone());
        drop(state);
        Ticket { door: self.clone(), number, evicted, admitted: false }
    }

    /// Makes room at once: the oldest of those who wait goes.
    pub(crate) fn make_room(&self) {
        evict(&mut self.lock());
    }

    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn evict(state: &mut State) {
    if let Some((_, oldest)) = state.waiting.pop_first() {
        // Kept for one who does not listen yet.
        oldest.notify_one();
    }
}

/// A connection's place. Dropping it frees the place.
#[derive(Debug)]
pub(crate) struct Ticket {
    door: Arc<Admission>,
    number: u64,
    evicted: Arc<Notify>,
    admitted: bool,
}

impl Ticket {
    /// Waits until this one has to make room for others.
    pub(crate) async fn evicted(&self) {
        self.evicted.notified().await;
    }

    /// From now on it counts as one that was let in.
    pub(crate) fn admit(&mut self) -> Result<(), Full> {
        if self.admitted {
            return Ok(());
        }
        let mut state = self.door.lock();
        if state.admitted >= self.door.most_admitted {
            return Err(Full(self.door.most_admitted));
        }
        state.admitted += 1;
        state.waiting.remove(&self.number);
        self.admitted = true;
        Ok(())
    }

    pub(crate) fn is_admitted(&self) -> bool {
        self.admitted
    }
}

impl Drop for Ticket {
    fn drop(&mut self) {
        let mut state = self.door.lock();
        match self.admitted {
            true => state.admitted -= 1,
            false => drop(state.waiting.remove(&self.number)),
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn the_oldest_of_those_who_wait_makes_room_and_nobody_who_was_let_in() {
        let door = Admission::new(2, 2);
        let mut first = door.enter();
        first.admit().unwrap();
        let (second, third) = (door.enter(), door.enter());
        let fourth = door.enter();
        assert!(first.evicted().now_or_never().is_none());
        assert!(second.evicted().now_or_never().is_some());
        assert!(third.evicted().now_or_never().is_none());
        drop(third);
        let _fifth = door.enter();
        assert!(fourth.evicted().now_or_never().is_none());
        door.make_room();
        assert!(fourth.evicted().now_or_never().is_some());
    }

    #[test]
    fn no_more_are_let_in_than_there_are_places() {
        let door = Admission::new(1, 9);
        let (mut one, mut other) = (door.enter(), door.enter());
        one.admit().unwrap();
        one.admit().unwrap();
        assert_eq!(other.admit().unwrap_err().0, 1);
        drop(one);
        other.admit().unwrap();
        assert!(other.is_admitted());
    }
}
