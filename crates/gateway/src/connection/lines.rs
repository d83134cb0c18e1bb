//! Receivers that have events and may not send them: lines, in which they get their turn.
//!
//! ```text
//! room ─────────── the peer has read something ──► ready ─► next()
//! window of 7 ──── a flow of session 7 ──────────► ready ─► next()
//! window of 9 ──── …
//! ```
//!
//! A line is ready until one of it is told that there is nothing for it. So what happens on one session is
//! nobody's work but that of its own receivers, however many others wait.

use std::collections::{BTreeMap, BTreeSet, VecDeque};

/// What a receiver waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Line<S> {
    /// Room in the output.
    Room,
    /// The window of its session.
    Window(S),
}

/// The lines of a connection: links, by session.
#[derive(Debug)]
pub(super) struct Lines<L, S> {
    room: VecDeque<L>,
    room_is_ready: bool,
    /// None of them is empty.
    windows: BTreeMap<S, VecDeque<L>>,
    /// Those of them that are ready.
    ready: BTreeSet<S>,
}

impl<L, S> Default for Lines<L, S> {
    fn default() -> Self {
        Self { room: VecDeque::new(), room_is_ready: false, windows: BTreeMap::new(), ready: BTreeSet::new() }
    }
}

impl<L: Copy + Eq, S: Copy + Ord> Lines<L, S> {
    /// It stands in line, and there is nothing for that line now.
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

    /// It stands in the line for room, behind those who were there before, though there may be room.
    pub(super) fn join_room(&mut self, link: L) {
        self.room.push_back(link);
    }

    /// There may be something for those in this line.
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

    /// Whether anybody waits for room.
    pub(super) fn waits_for_room(&self) -> bool {
        !self.room.is_empty()
    }

    /// Whether anybody's turn has come.
    pub(super) fn is_ready(&self) -> bool {
        (self.room_is_ready && !self.room.is_empty()) || !self.ready.is_empty()
    }

    /// Whose turn has come: the first of a line that is ready. It stands in line no longer.
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

    /// It is gone.
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
        // Nobody waits there any more.
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
