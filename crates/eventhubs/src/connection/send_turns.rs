//! Schedules the sender links of one connection, so that they send in turns.
//!
//! A link that finds no room in the output, or no window in its session, stands in line; so does a link that
//! comes while others of its session stand there. When there is room again, the first in line sends as much as
//! it can; if it has more, it goes to the end. So a link with a long backlog cannot starve another.

use std::collections::{BTreeSet, VecDeque};

use ephor_amqp::connection::Blocked;

use super::LinkKey;

/// The line of a connection: links and their sessions, in the order in which they get their turns.
pub(super) struct Turns<S>(VecDeque<(LinkKey, S)>);

impl<S> Default for Turns<S> {
    fn default() -> Self {
        Self(VecDeque::new())
    }
}

/// The end of a link's turn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Turn {
    /// It has nothing more to send, or cannot send for reasons of its own.
    Done,
    /// It has more to send, and there is no room or no window. `sent` is true if it has sent anything.
    Blocked { by: Blocked, sent: bool },
}

impl<S: Copy + Ord> Turns<S> {
    /// True if a link of this session may send: nobody of its session stands in line.
    pub(super) fn is_free(&self, session: S) -> bool {
        !self.0.iter().any(|(_, of)| *of == session)
    }

    /// Appends a link, if it is not in line yet.
    pub(super) fn stand(&mut self, key: LinkKey, session: S) {
        if !self.0.iter().any(|(other, _)| *other == key) {
            self.0.push_back((key, session));
        }
    }

    pub(super) fn leave(&mut self, key: LinkKey) {
        self.0.retain(|(other, _)| *other != key);
    }

    /// Takes the line, to give everybody in it a turn; put it back with [`Self::put_back`].
    pub(super) fn take(&mut self) -> Self {
        std::mem::take(self)
    }

    /// Gives turns in order, until there is no room for anybody.
    pub(super) fn give(self, mut turn: impl FnMut(LinkKey) -> Turn) -> Self {
        let (mut before, mut behind) = (VecDeque::new(), VecDeque::new());
        let (mut full, mut without_window) = (false, BTreeSet::new());
        for (key, session) in self.0 {
            if full || without_window.contains(&session) {
                before.push_back((key, session));
                continue;
            }
            if let Turn::Blocked { by, sent } = turn(key) {
                match by {
                    Blocked::Room => full = true,
                    _ => drop(without_window.insert(session)),
                }
                match sent {
                    true => behind.push_back((key, session)),
                    false => before.push_back((key, session)),
                }
            }
        }
        before.append(&mut behind);
        Self(before)
    }

    pub(super) fn put_back(&mut self, line: Self) {
        *self = line;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Gives turns, and returns those who got one.
    fn turns(line: &mut Turns<u8>, mut outcome: impl FnMut(u64) -> Turn) -> Vec<u64> {
        let mut got = Vec::new();
        let after = line.take().give(|key| {
            got.push(key.0);
            outcome(key.0)
        });
        line.put_back(after);
        got
    }

    #[test]
    fn whoever_has_sent_and_has_more_goes_to_the_end() {
        let mut line = Turns::default();
        (1..=3).for_each(|key| line.stand(LinkKey(key), 0));
        line.stand(LinkKey(1), 0);
        let room_for_one = |_| Turn::Blocked { by: Blocked::Room, sent: true };
        let all: Vec<_> = (0..6).flat_map(|_| turns(&mut line, room_for_one)).collect();
        assert_eq!(all, [1, 2, 3, 1, 2, 3]);
        // Whoever could not send keeps its place.
        assert_eq!(turns(&mut line, |_| Turn::Blocked { by: Blocked::Room, sent: false }), [1]);
        line.leave(LinkKey(2));
        assert_eq!(turns(&mut line, |_| Turn::Done), [1, 3]);
        assert!(line.is_free(0));
    }

    #[test]
    fn a_session_without_a_window_does_not_hold_up_another() {
        let mut line = Turns::default();
        for (key, session) in [(1, 0), (2, 0), (3, 1)] {
            line.stand(LinkKey(key), session);
        }
        let outcome = |key| match key {
            3 => Turn::Done,
            _ => Turn::Blocked { by: Blocked::Window, sent: false },
        };
        assert_eq!(turns(&mut line, outcome), [1, 3]);
        assert!(!line.is_free(0) && line.is_free(1));
        assert_eq!(turns(&mut line, |_| Turn::Done), [1, 2]);
    }
}
