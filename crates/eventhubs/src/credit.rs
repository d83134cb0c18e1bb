//! Flow control: computes the link credit of a receiver, that is, how many events the hub may send ahead.
//!
//! AMQP credit counts messages; a prefetch is also bounded in bytes. The typical size of recent events turns
//! bytes into a number of events. It grows with the first large event, shrinks slowly, and starts large, so
//! that a new receiver asks for few events until it has seen some. A link that replaces another continues with
//! the size that is known.

/// The number of events that the byte bound is assumed to hold before any has been seen.
const FIRST_EVENTS: usize = 32;

/// With each smaller event the typical size shrinks by the difference divided by this.
const SHRINK: usize = 16;

/// Events that grow come with the credit of the small ones before them, so that more bytes than the prefetch
/// may wait; beyond this many times the prefetch, the link is reattached.
const MAX_BYTES_FACTOR: usize = 4;

/// The bounds of a receiver, and the typical size of its events.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    max_events: usize,
    max_bytes: usize,
    typical: usize,
}

/// Events that are received and not yet taken by the receiver.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Credit {
    pub(crate) fn new(max_events: usize, max_bytes: usize) -> Self {
        let max_bytes = max_bytes.max(1);
        Self { max_events: max_events.max(1), max_bytes, typical: (max_bytes / FIRST_EVENTS).max(1) }
    }

    /// True if more waits unread than any hub in good order sends. In events that is twice the prefetch: some
    /// hubs count credit differently. In bytes it is [`MAX_BYTES_FACTOR`] times the prefetch.
    pub(crate) fn is_exceeded_by(&self, waiting: Waiting) -> bool {
        waiting.events >= self.max_events.saturating_mul(2)
            || waiting.bytes >= self.max_bytes.saturating_mul(MAX_BYTES_FACTOR)
    }

    /// Records the size of an event.
    pub(crate) fn note_size(&mut self, bytes: usize) {
        self.typical = match bytes > self.typical {
            true => bytes,
            false => self.typical - (self.typical - bytes) / SHRINK,
        };
    }

    /// The number of events of the typical size that may wait.
    fn window(&self) -> usize {
        (self.max_bytes / self.typical.max(1)).clamp(1, self.max_events)
    }

    /// True if few events are waiting or under way, so that more credit may be due.
    pub(crate) fn is_low(&self, waiting: Waiting, outstanding: u32) -> bool {
        waiting.events + outstanding as usize <= self.window() / 2
    }

    /// The credit to grant to the hub, if it should change.
    pub(crate) fn grant(&self, waiting: Waiting, outstanding: u32) -> Option<u32> {
        let room = match waiting {
            Waiting { events: 0, .. } => self.window(),
            Waiting { bytes, .. } if bytes >= self.max_bytes => 0,
            Waiting { events, .. } => self.window().saturating_sub(events),
        };
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        // Events are larger than expected: reduce the credit for those that are not under way yet.
        let too_much = room < outstanding / 2;
        let too_little = room > outstanding && self.is_low(waiting, outstanding);
        (too_much || too_little).then_some(room)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOTHING: Waiting = Waiting { events: 0, bytes: 0 };

    #[test]
    fn a_new_link_asks_for_few_events_and_soon_for_as_many_as_allowed() {
        let mut credit = Credit::new(300, 1 << 20);
        assert_eq!(credit.grant(NOTHING, 0), Some(32));
        for _ in 0..200 {
            credit.note_size(1_000);
        }
        assert_eq!(credit.grant(NOTHING, 0), Some(300));
    }

    #[test]
    fn one_large_event_takes_back_what_was_granted_for_small_ones() {
        let mut credit = Credit::new(300, 1 << 20);
        (0..200).for_each(|_| credit.note_size(100));
        credit.note_size(1 << 20);
        assert_eq!(credit.grant(Waiting { events: 1, bytes: 1 << 20 }, 299), Some(0));
        assert_eq!(credit.grant(NOTHING, 0), Some(1));
    }

    #[test]
    fn credit_is_renewed_when_half_is_used_and_not_for_every_event() {
        let mut credit = Credit::new(100, 1 << 20);
        (0..200).for_each(|_| credit.note_size(10));
        assert_eq!(credit.grant(NOTHING, 100), None);
        assert_eq!(credit.grant(NOTHING, 51), None);
        assert_eq!(credit.grant(NOTHING, 50), Some(100));
        assert_eq!(credit.grant(Waiting { events: 30, bytes: 300 }, 20), Some(70));
        assert_eq!(credit.grant(Waiting { events: 60, bytes: 600 }, 20), None);
    }

    #[test]
    fn a_receiver_that_waits_for_an_event_always_has_credit_for_one() {
        for (events, bytes) in [(0, 0), (1, 1), (1, usize::MAX), (usize::MAX, 1)] {
            let mut credit = Credit::new(events, bytes);
            assert!(credit.grant(NOTHING, 0).is_some_and(|granted| granted > 0), "{events} {bytes}");
            credit.note_size(usize::MAX);
            assert_eq!(credit.grant(NOTHING, 0), Some(1));
        }
    }

    #[test]
    fn a_full_buffer_asks_for_nothing() {
        let mut credit = Credit::new(10, 1_000);
        (0..100).for_each(|_| credit.note_size(100));
        assert_eq!(credit.grant(Waiting { events: 10, bytes: 1_000 }, 0), None);
        assert_eq!(credit.grant(Waiting { events: 10, bytes: 1_000 }, 10), Some(0));
    }
}
