//! Outbound (hub → peer): fair FIFO queues of receivers that may not send now, because the output has no
//! room or the window of their session is closed. Receivers without credit are in no queue.
//!
//! ```text
//! room ─────────── the peer has read something ──► ready ─► next()
//! window of 7 ──── a flow of session 7 ──────────► ready ─► next()
//! window of 9 ──── …
//! ```
//!
//! A queue is ready until one of its receivers finds that there is nothing for it. So an event on one session
//! only costs work for the receivers of that session, however many others wait. A receiver is in one queue at
//! most.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The resource that a receiver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum BlockedOn<S> {
    /// Room in the output of the connection.
    Room,
    /// The window of its session.
    Window(S),
}

/// The queues of a connection: links that wait for room, and links that wait for a window, by session.
#[derive(Debug)]
pub(super) struct BlockedQueues<L, S> {
    room: VecDeque<L>,
    room_is_ready: bool,
    /// No queue in it is empty.
    windows: BTreeMap<S, VecDeque<L>>,
    /// The sessions whose queue is ready.
    ready: BTreeSet<S>,
    /// The queue of each link that is in one.
    members: BTreeMap<L, BlockedOn<S>>,
}

impl<L, S> Default for BlockedQueues<L, S> {
    fn default() -> Self {
        Self {
            room: VecDeque::new(),
            room_is_ready: false,
            windows: BTreeMap::new(),
            ready: BTreeSet::new(),
            members: BTreeMap::new(),
        }
    }
}

impl<L: Copy + Ord, S: Copy + Ord> BlockedQueues<L, S> {
    /// True if the link is in a queue.
    pub(super) fn contains(&self, link: L) -> bool {
        self.members.contains_key(&link)
    }

    /// Registers a link for a queue. False if it is in one already.
    fn join(&mut self, link: L, blocked_on: BlockedOn<S>) -> bool {
        match self.members.entry(link) {
            Entry::Vacant(free) => {
                free.insert(blocked_on);
                true
            }
            Entry::Occupied(_) => false,
        }
    }

    /// Appends a link to a queue that has nothing to give now, unless it is in one.
    pub(super) fn enqueue(&mut self, link: L, blocked_on: BlockedOn<S>) {
        if !self.join(link, blocked_on) {
            return;
        }
        match blocked_on {
            BlockedOn::Room => {
                self.room.push_back(link);
                self.room_is_ready = false;
            }
            BlockedOn::Window(session) => {
                self.windows.entry(session).or_default().push_back(link);
                self.ready.remove(&session);
            }
        }
    }

    /// Appends a link to the queue for room, though there may be room, unless it is in one.
    pub(super) fn enqueue_for_room(&mut self, link: L) {
        if self.join(link, BlockedOn::Room) {
            self.room.push_back(link);
        }
    }

    /// Marks a queue as ready: there may be something for its links.
    pub(super) fn mark_ready(&mut self, blocked_on: BlockedOn<S>) {
        match blocked_on {
            BlockedOn::Room => self.room_is_ready = true,
            BlockedOn::Window(session) => {
                if self.windows.contains_key(&session) {
                    self.ready.insert(session);
                }
            }
        }
    }

    /// True if a link waits for room.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.room.is_empty()
    }

    /// True if `next` would return a link.
    pub(super) fn is_ready(&self) -> bool {
        (self.room_is_ready && !self.room.is_empty()) || !self.ready.is_empty()
    }

    /// Removes and returns the first link of a queue that is ready.
    pub(super) fn next(&mut self) -> Option<L> {
        let link = self.pop()?;
        self.members.remove(&link);
        Some(link)
    }

    fn pop(&mut self) -> Option<L> {
        if self.room_is_ready
            && let Some(link) = self.room.pop_front()
        {
            return Some(link);
        }
        let session = *self.ready.first()?;
        let queue = self.windows.get_mut(&session)?;
        let link = queue.pop_front();
        if queue.is_empty() {
            self.windows.remove(&session);
            self.ready.remove(&session);
        }
        link
    }

    /// Removes a link that is gone.
    pub(super) fn remove(&mut self, link: L) {
        let Some(blocked_on) = self.members.remove(&link) else { return };
        match blocked_on {
            BlockedOn::Room => self.room.retain(|other| *other != link),
            BlockedOn::Window(session) => {
                let Some(queue) = self.windows.get_mut(&session) else { return };
                queue.retain(|other| *other != link);
                if queue.is_empty() {
                    self.windows.remove(&session);
                    self.ready.remove(&session);
                }
            }
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_flow_concerns_the_receivers_of_its_own_session_only() {
        let mut queues = BlockedQueues::default();
        for session in 0..2_048 {
            queues.enqueue(10 * session, BlockedOn::Window(session));
            queues.enqueue(10 * session + 1, BlockedOn::Window(session));
        }
        queues.enqueue(7, BlockedOn::Room);
        assert!(!queues.is_ready() && queues.next().is_none());
        queues.mark_ready(BlockedOn::Window(99));
        assert_eq!(std::iter::from_fn(|| queues.next()).collect::<Vec<_>>(), [990, 991]);
        assert!(!queues.is_ready());
        // No link waits there any more.
        queues.mark_ready(BlockedOn::Window(99));
        assert!(!queues.is_ready());
    }

    #[test]
    fn a_queue_is_ready_until_one_of_its_receivers_finds_nothing() {
        let mut queues: BlockedQueues<_, u32> = BlockedQueues::default();
        (0..5).for_each(|link| queues.enqueue(link, BlockedOn::Room));
        queues.mark_ready(BlockedOn::Room);
        assert_eq!((queues.next(), queues.next()), (Some(0), Some(1)));
        queues.enqueue(1, BlockedOn::Room);
        assert!(!queues.is_ready());
        queues.mark_ready(BlockedOn::Room);
        assert_eq!(std::iter::from_fn(|| queues.next()).collect::<Vec<_>>(), [2, 3, 4, 1]);
    }

    #[test]
    fn a_receiver_that_joins_a_ready_queue_does_not_stop_it() {
        let mut queues: BlockedQueues<_, u32> = BlockedQueues::default();
        (0..3).for_each(|link| queues.enqueue(link, BlockedOn::Room));
        queues.mark_ready(BlockedOn::Room);
        queues.enqueue_for_room(3);
        assert!(queues.waits_for_room() && queues.is_ready());
        assert_eq!(std::iter::from_fn(|| queues.next()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn a_removed_receiver_takes_no_place() {
        let mut queues = BlockedQueues::default();
        queues.enqueue(1, BlockedOn::Window(1));
        queues.enqueue(2, BlockedOn::Room);
        queues.mark_ready(BlockedOn::Window(1));
        queues.remove(1);
        queues.remove(2);
        queues.mark_ready(BlockedOn::Room);
        assert!(!queues.is_ready() && queues.next().is_none());
        assert!(queues.windows.is_empty() && queues.ready.is_empty() && queues.members.is_empty());
    }

    #[test]
    fn a_receiver_has_one_place_however_often_it_is_blocked() {
        let mut queues = BlockedQueues::default();
        (1..=2).for_each(|link| queues.enqueue(link, BlockedOn::Room));
        queues.mark_ready(BlockedOn::Room);
        queues.enqueue(1, BlockedOn::Window(7));
        queues.enqueue_for_room(1);
        assert!(queues.contains(1) && queues.is_ready());
        assert_eq!(std::iter::from_fn(|| queues.next()).collect::<Vec<_>>(), [1, 2]);
        assert!(!queues.contains(1) && queues.windows.is_empty());
    }
}
