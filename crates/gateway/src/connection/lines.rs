//! Outbound (hub → peer): fair FIFO queues ("lines") of receivers that have events and may not send them yet.
//!
//! ```text
//! room ─────────── the peer has read something ──► ready ─► next()
//! window of 7 ──── a flow of session 7 ──────────► ready ─► next()
//! window of 9 ──── …
//! ```
//!
//! A queue is ready until one of its receivers finds that there is nothing for it. So an event on one session
//! only costs work for the receivers of that session, however many others wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// The resource that a receiver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<S> {
    /// Room in the output of the connection.
    Room,
    /// The window of its session.
    Window(S),
}

/// The queues of a connection: links that wait for room, and links that wait for a window, by session.
#[derive(Debug)]
pub(super) struct Lines<L, S> {
    room: VecDeque<L>,
    room_is_ready: bool,
    /// No queue in it is empty.
    windows: BTreeMap<S, VecDeque<L>>,
    /// The sessions whose queue is ready.
    ready: BTreeSet<S>,
}

impl<L, S> Default for Lines<L, S> {
    fn default() -> Self {
        Self { room: VecDeque::new(), room_is_ready: false, windows: BTreeMap::new(), ready: BTreeSet::new() }
    }
}

impl<L: Copy + Eq, S: Copy + Ord> Lines<L, S> {
    /// Appends a link to a queue that has nothing to give now.
    pub(super) fn stand(&mut self, link: L, line: Line<S>) {
        match line {
            Line::Room => {
                self.room.push_back(link);
                self.room_is_ready = false;
            }
            Line::Window(session) => {
                self.windows.entry(session).or_default().push_back(link);
                self.ready.remove(&session);
            }
        }
    }

    /// Appends a link to the queue for room, though there may be room.
    pub(super) fn join_room(&mut self, link: L) {
        self.room.push_back(link);
    }

    /// Marks a queue as ready: there may be something for its links.
    pub(super) fn open(&mut self, line: Line<S>) {
        match line {
            Line::Room => self.room_is_ready = true,
            Line::Window(session) => {
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
        if self.room_is_ready
            && let Some(link) = self.room.pop_front()
        {
            return Some(link);
        }
        let session = *self.ready.first()?;
        let line = self.windows.get_mut(&session)?;
        let link = line.pop_front();
        if line.is_empty() {
            self.windows.remove(&session);
            self.ready.remove(&session);
        }
        link
    }

    /// Removes a link that is gone.
    pub(super) fn leave(&mut self, link: L, line: Line<S>) {
        match line {
            Line::Room => self.room.retain(|other| *other != link),
            Line::Window(session) => {
                let Some(line) = self.windows.get_mut(&session) else { return };
                line.retain(|other| *other != link);
                if line.is_empty() {
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
    fn a_flow_concerns_those_of_its_own_session_and_nobody_else() {
        let mut lines = Lines::default();
        for session in 0..2_048 {
            lines.stand(10 * session, Line::Window(session));
            lines.stand(10 * session + 1, Line::Window(session));
        }
        lines.stand(7, Line::Room);
        assert!(!lines.is_ready() && lines.next().is_none());
        lines.open(Line::Window(99));
        assert_eq!(std::iter::from_fn(|| lines.next()).collect::<Vec<_>>(), [990, 991]);
        assert!(!lines.is_ready());
        // No link waits there any more.
        lines.open(Line::Window(99));
        assert!(!lines.is_ready());
    }

    #[test]
    fn a_line_moves_until_one_of_it_finds_nothing_and_then_in_turn() {
        let mut lines: Lines<_, u32> = Lines::default();
        (0..5).for_each(|link| lines.stand(link, Line::Room));
        lines.open(Line::Room);
        assert_eq!((lines.next(), lines.next()), (Some(0), Some(1)));
        lines.stand(1, Line::Room);
        assert!(!lines.is_ready());
        lines.open(Line::Room);
        assert_eq!(std::iter::from_fn(|| lines.next()).collect::<Vec<_>>(), [2, 3, 4, 1]);
    }

    #[test]
    fn whoever_joins_a_line_does_not_stop_it() {
        let mut lines: Lines<_, u32> = Lines::default();
        (0..3).for_each(|link| lines.stand(link, Line::Room));
        lines.open(Line::Room);
        lines.join_room(3);
        assert!(lines.waits_for_room() && lines.is_ready());
        assert_eq!(std::iter::from_fn(|| lines.next()).collect::<Vec<_>>(), [0, 1, 2, 3]);
    }

    #[test]
    fn whoever_is_gone_takes_no_place() {
        let mut lines = Lines::default();
        lines.stand(1, Line::Window(1));
        lines.stand(2, Line::Room);
        lines.open(Line::Window(1));
        lines.leave(1, Line::Window(1));
        lines.leave(2, Line::Room);
        lines.open(Line::Room);
        assert!(!lines.is_ready() && lines.next().is_none());
        assert!(lines.windows.is_empty() && lines.ready.is_empty());
    }
}
