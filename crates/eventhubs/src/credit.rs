//! How many events a hub may send ahead.
//!
//! AMQP counts messages; a prefetch is also bounded in bytes. So the size that events typically have here turns
//! bytes into a number of events. It grows with the first large event, shrinks slowly, and begins large, so that
//! a new link asks for few events until it has seen some.

/// So many events fit into the byte bound before any has been seen.
const FIRST_EVENTS: usize = 32;

/// How slowly the typical size shrinks.
const SHRINK: usize = 16;

/// The bounds of one link, and what is known of its events.
#[derive(Clone, Debug)]
pub(crate) struct Credit {
    most_events: usize,
    most_bytes: usize,
    typical: usize,
}

/// What waits on this side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Waiting {
    pub(crate) events: usize,
    pub(crate) bytes: usize,
}

impl Credit {
    pub(crate) fn new(most_events: usize, most_bytes: usize) -> Self {
        let most_bytes = most_bytes.max(1);
        Self { most_events: most_events.max(1), most_bytes, typical: (most_bytes / FIRST_EVENTS).max(1) }
    }

    /// More events than this never wait if the hub keeps to its credit. Twice as many are forgiven: some count
    /// otherwise.
    pub(crate) fn most_waiting(&self) -> usize {
        self.most_events.saturating_mul(2)
    }

    /// Takes note of an event.
    pub(crate) fn saw(&mut self, bytes: usize) {
        self.typical = match bytes > self.typical {
            true => bytes,
            false => self.typical - (self.typical - bytes) / SHRINK,
        };
    }

    /// How many events of the typical size may wait.
    fn window(&self) -> usize {
        (self.most_bytes / self.typical.max(1)).clamp(1, self.most_events)
    }

    /// Whether a look at the credit may be worth it: little is under way or waits.
    pub(crate) fn is_low(&self, waiting: Waiting, outstanding: u32) -> bool {
        waiting.events + outstanding as usize <= self.window() / 2
    }

    /// What the hub is to be granted, if that should change.
    pub(crate) fn grant(&self, waiting: Waiting, outstanding: u32) -> Option<u32> {
        let room = match waiting {
            Waiting { events: 0, .. } => self.window(),
            Waiting { bytes, .. } if bytes >= self.most_bytes => 0,
            Waiting { events, .. } => self.window().saturating_sub(events),
        };
        let room = u32::try_from(room).unwrap_or(u32::MAX);
        // Larger events than were expected: what is not on its way yet is better not sent now.
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
            credit.saw(1_000);
        }
        assert_eq!(credit.grant(NOTHING, 0), Some(300));
    }

    #[test]
    fn one_large_event_takes_back_what_was_granted_for_small_ones() {
        let mut credit = Credit::new(300, 1 << 20);
        (0..200).for_each(|_| credit.saw(100));
        credit.saw(1 << 20);
        assert_eq!(credit.grant(Waiting { events: 1, bytes: 1 << 20 }, 299), Some(0));
        assert_eq!(credit.grant(NOTHING, 0), Some(1));
    }

    #[test]
    fn credit_is_renewed_when_half_is_used_and_not_for_every_event() {
        let mut credit = Credit::new(100, 1 << 20);
        (0..200).for_each(|_| credit.saw(10));
        assert_eq!(credit.grant(NOTHING, 100), None);
        assert_eq!(credit.grant(NOTHING, 51), None);
        assert_eq!(credit.grant(NOTHING, 50), Some(100));
        assert_eq!(credit.grant(Waiting { events: 30, bytes: 300 }, 20), Some(70));
        assert_eq!(credit.grant(Waiting { events: 60, bytes: 600 }, 20), None);
    }

    #[test]
    fn whoever_waits_for_an_event_may_always_get_one() {
        for (events, bytes) in [(0, 0), (1, 1), (1, usize::MAX), (usize::MAX, 1)] {
            let mut credit = Credit::new(events, bytes);
            assert!(credit.grant(NOTHING, 0).is_some_and(|granted| granted > 0), "{events} {bytes}");
            credit.saw(usize::MAX);
            assert_eq!(credit.grant(NOTHING, 0), Some(1));
        }
    }

    #[test]
    fn a_full_buffer_asks_for_nothing() {
        let mut credit = Credit::new(10, 1_000);
        (0..100).for_each(|_| credit.saw(100));
        assert_eq!(credit.grant(Waiting { events: 10, bytes: 1_000 }, 0), None);
        assert_eq!(credit.grant(Waiting { events: 10, bytes: 1_000 }, 10), Some(0));
    }
}
