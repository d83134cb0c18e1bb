//! Fingerprints of numbered events: they tell a batch that is sent again from other events under the same
//! numbers, which would be acknowledged and never stored.

use std::hash::{DefaultHasher, Hasher};

use ephor_amqp::{Malformed, Sections};

/// Odd, so that no product of such factors loses bits.
const FACTOR: u64 = 0x9E37_79B9_7F4A_7C15;

/// The fingerprint of events in a row. That of two batches in a row follows from theirs, so that a repeat may
/// divide the events into batches in another way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Fingerprint {
    hash: u64,
    /// [`FACTOR`] to the power of the number of events.
    factor: u64,
}

impl Fingerprint {
    /// No event.
    pub(crate) const EMPTY: Self = Self { hash: 0, factor: 1 };

    /// The fingerprint of one event: of what its receivers get from its sender. Headers and annotations do not
    /// count, because clients write them anew when they send it again.
    pub(crate) fn of(message: &[u8]) -> Result<Self, Malformed> {
        let Sections { properties, application_properties, body, footer, .. } = Sections::scan(message)?;
        let mut hasher = DefaultHasher::new();
        for (number, section) in (0_u8..).zip([properties, application_properties, footer]) {
            if let Some(section) = section {
                hasher.write_u8(number);
                hasher.write(&message[section.start..section.end]);
            }
        }
        hasher.write(&message[body.whole]);
        Ok(Self { hash: hasher.finish(), factor: FACTOR })
    }

    /// The fingerprint of an event of which the tests know only the number.
    #[cfg(test)]
    pub(super) fn of_number(number: i32) -> Self {
        let mut hasher = DefaultHasher::new();
        hasher.write_i32(number);
        Self { hash: hasher.finish(), factor: FACTOR }
    }

    /// The fingerprint of these events and `next`.
    pub(crate) fn then(self, next: Self) -> Self {
        let hash = self.hash.wrapping_mul(next.factor).wrapping_add(next.hash);
        Self { hash, factor: self.factor.wrapping_mul(next.factor) }
    }
}

#[cfg(test)]
mod tests {
    use ephor_core::event::NewEvent;

    use super::*;

    fn of(event: &NewEvent) -> Fingerprint {
        let mut message = Vec::new();
        ephor_wire::message::encode(event, &mut message).unwrap();
        Fingerprint::of(&message).unwrap()
    }

    #[test]
    fn events_with_another_body_or_other_properties_have_another_fingerprint() {
        let event = || NewEvent::new("the door is open");
        assert_eq!(of(&event()), of(&event()));
        assert_ne!(of(&event()), of(&NewEvent::new("the door is shut")));
        assert_ne!(of(&event()), of(&event().with_property("home", 7_i64)));
        assert_ne!(of(&event()), of(&event().with_message_id("7")));
    }

    #[test]
    fn the_fingerprint_of_events_depends_on_their_order_and_not_on_their_batches() {
        let [a, b, c] = ["a", "b", "c"].map(|body| of(&NewEvent::new(body)));
        assert_eq!(a.then(b).then(c), a.then(b.then(c)));
        assert_eq!(Fingerprint::EMPTY.then(a), a);
        assert_ne!(a.then(b), b.then(a));
        assert_ne!(a.then(a), a);
    }
}
